"""One simulation in order: programs, kernel, symbols, a boot for each seed, and the document made of it."""

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from copyscope import VERSION
from copyscope.errors import RunError
from copyscope.record import store
from copyscope.record.store import Record
from copyscope.run.build import git_revision
from copyscope.simulate import boot, document, job, kernels, qemu
from copyscope.simulate.request import Request
from copyscope.taxonomy.taxonomy import Taxonomy


class Steps(Protocol):
    """Who tells how far it is."""

    def begin(self, step: str) -> None: ...
    def done(self) -> None: ...


def steps_of(request: Request) -> int:
    """How many steps there will be."""
    return len(request.seeds) * (request.count + 1)


def simulate(request: Request, steps: Steps) -> Record:
    """The record of one simulation. Raises RunError."""
    began, started = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = qemu.find()
    programs = boot.build(found)
    kernel = kernels.take(request.kernel, steps.begin)
    if request.exact and qemu.hangs_bit_exact(found, kernel.release, request.model.vcpus):
        raise RunError(
            f"QEMU {found.version}: while it counts instructions Linux {kernel.release} does not start its"
            f" second CPU: use --fast, --kernel {kernels.DEFAULT}, --cache {request.model.name},vcpus=1,"
            " or QEMU 10"
        )
    symbols = boot.kernel_symbols(kernel, found, programs, steps.begin)
    plan = boot.Plan(kernel, found, programs, symbols, request)
    booted = time.monotonic()
    steps.begin(f"booting Linux {kernel.release}")

    def hear(seed: int, line: str) -> None:
        if line.startswith("measure "):
            steps.done()
            steps.begin(f"seed {seed}: {line.removeprefix('measure ')}")
        elif line == "end":
            steps.done()

    counted = boot.count(plan, hear)
    counting_s = time.monotonic() - booted
    section = simulated_section(plan, counted, Path(symbols).read_text(encoding="utf-8"), counting_s)
    git, dirty = git_revision()
    run = {"started": started, "wall_s": round(time.monotonic() - began, 2)}
    return record(request, section, run, {"version": VERSION, "git": git, "dirty": dirty})


def record(
    request: Request, section: dict[str, Any], run: dict[str, Any], copyscope: dict[str, Any]
) -> Record:
    """A record with this section `simulated`; it is valid if all checks hold. Pure."""
    return {
        "schema": store.SCHEMA,
        "copyscope": copyscope,
        "run": {
            "id": store.run_id("simulated", {"request": repr(request)}, 0),
            "experiment": None,
            "factors": None,
            "repeat": 0,
            "order": 0,
            "seed": request.seeds[0],
            **run,
        },
        "simulated": section,
        "verdict": document.verdict(section["measurements"]),
    }


def simulated_section(
    plan: boot.Plan, counted: Sequence[boot.Counted], symbols: str, wall_s: float
) -> dict[str, Any]:
    """What was booted, and what was counted in it. `symbols`: those of the kernel. Pure."""
    asked, kernel = plan.request, plan.kernel
    path = asked.path
    return {
        "kernel": {"name": kernel.name, "release": kernel.release, "sha256": kernel.sha256},
        "qemu": {"version": plan.qemu.version, "api": plan.qemu.api},
        "cpu": {"model": qemu.CPU_MODEL, "flags": list(counted[0].cpu_flags)},
        "model": document.model_section(asked.model),
        "path": {"kind": path.kind, "mtu_bytes": path.mtu, "offloads": dict(path.offloads)},
        "exact": asked.exact,
        "seeds": list(asked.seeds),
        "digest": digest(counted),
        "measurements": _measurements(asked, counted, symbols),
        "wall_s": round(wall_s, 2),
    }


def digest(counted: Sequence[boot.Counted]) -> str:
    """Of all that was counted, in the order of the seeds and measurements."""
    whole = "".join(one.digest for each in counted for one in each.measurements)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _measurements(request: Request, counted: Sequence[boot.Counted], symbols: str) -> list[dict[str, Any]]:
    taxonomy = Taxonomy.load()
    known = [document.known_symbols((symbols, each.symbols), taxonomy) for each in counted]
    if request.command is not None:
        first = [each.measurements[0] for each in counted]
        return [document.command_section(request.command.line, first, known, taxonomy)]
    return [
        document.measurement_section(
            one,
            [each.measurements[number] for each in counted],
            [each.reports[number] for each in counted],
            known,
            taxonomy,
            packets=request.path.kind in job.BY_PACKET,
        )
        for number, one in enumerate(request.measured)
    ]
