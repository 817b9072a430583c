"""One simulation in order: programs, kernel, symbols, a boot for each seed, and the document made of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from copyscope import VERSION
from copyscope.errors import RunError
from copyscope.run.build import git_revision
from copyscope.simulate import boot, document, job, kernels, qemu
from copyscope.simulate.request import Request
from copyscope.taxonomy.taxonomy import Taxonomy

SCHEMA = 1


class Steps(Protocol):
    """Who tells how far it is."""

    def begin(self, step: str) -> None: ...
    def done(self, steps: int = 1) -> None: ...


def steps_of(request: Request) -> int:
    """How many steps there will be."""
    return len(request.seeds) * (len(request.measured) + 1)


def simulate(request: Request, steps: Steps) -> dict[str, Any]:
    """The document of one simulation. Raises RunError."""
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
    counted = [_count(plan, seed, steps) for seed in request.seeds]
    git, dirty = git_revision()
    path, model = request.path, request.model
    return {
        "schema": SCHEMA,
        "copyscope": {"version": VERSION, "git": git, "dirty": dirty},
        "started": started,
        "simulated": {
            "kernel": {"name": kernel.name, "release": kernel.release, "sha256": kernel.sha256},
            "qemu": {"version": found.version, "api": found.api},
            "cpu": {"model": qemu.CPU_MODEL, "flags": list(counted[0].cpu_flags)},
            "model": document.model_section(model),
            "path": {"kind": path.kind, "mtu_bytes": path.mtu, "offloads": dict(path.offloads)},
            "exact": request.exact,
            "seeds": list(request.seeds),
            "digest": digest(counted),
            "measurements": _measurements(request, counted, symbols),
            "wall_s": round(time.monotonic() - began, 2),
        },
    }


def _count(plan: boot.Plan, seed: int, steps: Steps) -> boot.Counted:
    steps.begin(f"booting Linux {plan.kernel.release}, seed {seed}")

    def hear(line: str) -> None:
        if line.startswith("measure "):
            steps.done()
            steps.begin(f"seed {seed}: {line.removeprefix('measure ')}")

    counted = boot.count(plan, seed, hear)
    steps.done()
    return counted


def digest(counted: Sequence[boot.Counted]) -> str:
    """Of all that was counted, in the order of the seeds and measurements."""
    whole = "".join(one.digest for each in counted for one in each.measurements)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _measurements(request: Request, counted: Sequence[boot.Counted], symbols: str) -> list[dict[str, Any]]:
    taxonomy = Taxonomy.load()
    text = Path(symbols).read_text(encoding="utf-8")
    known = [document.known_symbols((text, each.symbols), taxonomy) for each in counted]
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
