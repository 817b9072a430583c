# SPDX-License-Identifier: GPL-2.0-only
"""Run a simulation: build programs, get kernel and symbols, boot once per seed, and make the record."""

import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from copyscope import VERSION
from copyscope.base.errors import RunError
from copyscope.record import store
from copyscope.record.derived import SimulatedRun
from copyscope.record.measured import SCHEMA, Copyscope, RunIdentity
from copyscope.record.simulated import Cpu, Kernel, Measurement, Qemu, Simulated
from copyscope.record.simulated import Path as GuestNetworkPath
from copyscope.run.build import git_revision
from copyscope.run.simulate import boot, counted_stacks, document, job, kernels, qemu
from copyscope.run.simulate.request import Request
from copyscope.taxonomy.taxonomy import Taxonomy


def count_steps(request: Request) -> int:
    """Return how many steps of the progress display a simulation has."""
    return len(request.seeds) * (request.count + 1)


def simulate(request: Request, begin: Callable[[str], None], done: Callable[[], None]) -> SimulatedRun:
    """Run the requested simulation, and return its record. Raises RunError.

    `begin(step)` announces a step of the progress display, and `done()` ends the step.
    """
    began, started = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    program = qemu.find_qemu()
    programs = boot.build(program)
    kernel = kernels.get_kernel(request.kernel, begin)
    if request.exact and qemu.hangs_bit_exact(program, kernel.release, request.model.vcpus):
        raise RunError(
            f"QEMU {program.version}: Linux {kernel.release} does not start its second CPU while QEMU counts"
            f" instructions; use --fast, --kernel {kernels.DEFAULT}, --cache {request.model.name},vcpus=1,"
            " or QEMU 10"
        )
    symbols = boot.kernel_symbols(kernel, program, programs, begin)
    plan = boot.Plan(kernel, program, programs, symbols, request)
    booted = time.monotonic()
    begin(f"booting Linux {kernel.release}")

    def hear(seed: int, line: str) -> None:
        """Advance the progress display for a line that a guest printed."""
        if line.startswith("measure "):
            done()
            begin(f"seed {seed}: {line.removeprefix('measure ')}")
        elif line == "end":
            done()

    boots = boot.count(plan, hear)
    counting_s = time.monotonic() - booted
    section = simulated_section(plan, boots, Path(symbols).read_text(encoding="utf-8"), counting_s)
    wall_s = round(time.monotonic() - began, 2)
    return make_record(request, section, started, wall_s, Copyscope(VERSION, *git_revision()))


def make_record(
    request: Request, section: Simulated, started: str, wall_s: float, copyscope: Copyscope
) -> SimulatedRun:
    """Return the record with a section `simulated`. The run is valid if all checks hold. Pure.

    `started`: start time. `wall_s`: elapsed time. `copyscope`: version of copyscope.
    """
    run = RunIdentity(
        id=store.run_id("simulated", {"request": repr(request)}, 0),
        experiment=None,
        factors=None,
        repeat=0,
        order=0,
        seed=request.seeds[0],
        started=started,
        wall_s=wall_s,
    )
    return SimulatedRun(SCHEMA, copyscope, run, section, document.verdict(section.measurements))


def simulated_section(
    plan: boot.Plan, boots: Sequence[boot.BootCounts], symbols: str, wall_s: float
) -> Simulated:
    """Return the section `simulated`: kernel, QEMU, model and counts of all boots. Pure.

    `symbols`: text of the kernel's symbols. `wall_s`: elapsed time of the boots.
    """
    request, kernel = plan.request, plan.kernel
    path = request.path
    return Simulated(
        kernel=Kernel(kernel.name, kernel.release, kernel.sha256),
        qemu=Qemu(plan.qemu.version, plan.qemu.api),
        cpu=Cpu(qemu.CPU_MODEL, list(boots[0].cpu_flags)),
        model=document.model_section(request.model),
        path=GuestNetworkPath(path.kind, path.mtu, dict(path.offloads)),
        exact=request.exact,
        seeds=list(request.seeds),
        digest=digest_of_counts(boots),
        measurements=_measurements(request, boots, symbols),
        wall_s=round(wall_s, 2),
    )


def digest_of_counts(boots: Sequence[boot.BootCounts]) -> str:
    """Return a hash over the counts of all boots, in the order of seeds and measurements."""
    digests = "".join(measurement.digest for boot_counts in boots for measurement in boot_counts.measurements)
    return hashlib.sha256(digests.encode()).hexdigest()[:16]


def _measurements(request: Request, boots: Sequence[boot.BootCounts], symbols: str) -> list[Measurement]:
    """Return the measurements in the section `simulated`, each combined over all boots."""
    taxonomy = Taxonomy.load()
    names = [counted_stacks.name_symbols((symbols, boot_counts.symbols), taxonomy) for boot_counts in boots]
    if request.command is not None:
        first = [boot_counts.measurements[0] for boot_counts in boots]
        return [document.command_section(request.command.line, first, names, taxonomy)]
    return [
        document.measurement_section(
            measurement,
            [boot_counts.measurements[index] for boot_counts in boots],
            [boot_counts.reports[index] for boot_counts in boots],
            names,
            taxonomy,
            packets=request.path.kind in job.KINDS_BY_PACKET,
        )
        for index, measurement in enumerate(request.measured)
    ]
