"""From a kernel and programs to what was counted: a boot for the symbols (kept), one for each seed."""

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from copyscope import paths
from copyscope.errors import BUILD, RunError
from copyscope.files import saving
from copyscope.run.build import build_if_stale
from copyscope.run.elf import ElfFile
from copyscope.simulate import initramfs, job, output, qemu
from copyscope.simulate.command import Command
from copyscope.simulate.guest import Guest, wait
from copyscope.simulate.kernels import Kernel, Say
from copyscope.simulate.request import Request
from copyscope.simulate.unpacked import startable

BUILT = paths.OUTPUT / "guest"
# Without it the plugin finds no system call; with it the guest came to the end of its list.
LANDMARK = " entry_SYSCALL_64\n"
CONSOLE = "console"


@dataclass(frozen=True)
class Programs:
    """What was built for the guest and for its QEMU."""

    init: bytes
    traffic: bytes
    plugin: str


@dataclass(frozen=True)
class Counted:
    """What one boot counted, measurement by measurement, and what the two sides said of it."""

    measurements: tuple[output.Measurement, ...]
    reports: tuple[dict[str, dict[str, Any]], ...]
    symbols: str
    cpu_flags: tuple[str, ...]


def build(found: qemu.Qemu) -> Programs:
    """The guest's programs, and the plugin for this QEMU. Raises RunError with the compiler's words."""
    plugin = BUILT / f"simulator-{found.api}.so"
    wanted = [BUILT / "init", BUILT / "traffic", plugin]
    build_if_stale(targets=[str(path.relative_to(paths.ROOT)) for path in wanted])
    try:
        init, traffic = (path.read_bytes() for path in wanted[:2])
    except OSError as error:
        step = BUILD if paths.INSTALLED else f"build it: make {error.filename}"
        raise RunError(f"{error.filename}: {error.strerror}: {step}") from error
    return Programs(init, traffic, str(plugin))


def files(kernel: Kernel, programs: Programs, orders: str, command: Command | None = None) -> bytes:
    """The guest's file system."""
    made = {"init": programs.init, "traffic": programs.traffic, "job": os.fsencode(orders)}
    if command is not None:
        made |= {"command": command.program, "command.symbols": command.symbols}
        made |= {"server": command.server_program} if command.server else {}
    for name, content in kernel.modules.items():
        made[f"modules/{name}.ko"] = content
        made[f"modules/{name}.symbols"] = functions_of(content)
    return initramfs.cpio(made)


def functions_of(module: bytes) -> bytes:
    """`SECTION OFFSET NAME` for each function of a module, ordered. Raises RunError for what is none.

    Where the kernel has put the sections only the guest knows, which adds the two (src/guest/symbols.c).
    """
    rows = ElfFile.of(module).code()
    return "".join(f"{section} {offset:x} {name}\n" for section, offset, name in rows).encode()


def kernel_symbols(kernel: Kernel, found: qemu.Qemu, programs: Programs, say: Say) -> str:
    """The path of this kernel's symbols: kept, or from a boot of its own, which counts no instructions."""
    kept = kernel.place / f"symbols-{kernel.sha256[:16]}"
    try:
        if LANDMARK in kept.read_text():
            return str(kept)
    except (OSError, UnicodeDecodeError):
        pass
    say(f"reading the symbols of Linux {kernel.release}, once")
    with Guest(startable(kernel), files(kernel, programs, "kernel-symbols\n")) as guest:
        machine = qemu.Machine(vcpus=1, seed=1, exact=False)
        guest.run(qemu.command(found, machine, guest.files), kernel.place / CONSOLE, lambda _: None)
        text = guest.symbols.text()
    if LANDMARK not in text:
        raise RunError(
            f"guest: Linux {kernel.release} has no symbol{LANDMARK.rstrip()}: it cannot be simulated"
        )
    try:
        saving.save(kept, text.encode())
    except OSError as error:
        raise RunError(f"{kept}: {error.strerror}: the symbols cannot be kept") from error
    return str(kept)


@dataclass(frozen=True)
class Plan:
    """What every boot has in common."""

    kernel: Kernel
    qemu: qemu.Qemu
    programs: Programs
    symbols: str
    request: Request


def count(plan: Plan, say: Callable[[int, str], None]) -> list[Counted]:
    """A boot for each seed, in order; `say` is told the seed and what its guest says. Raises RunError."""
    waiting = list(plan.request.seeds)
    running: dict[Guest, int] = {}
    done: dict[int, Counted] = {}
    with contextlib.ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < at_once(plan.request):
                seed = waiting.pop(0)
                guest = stack.enter_context(_guest(plan, seed))
                running[guest] = seed
                guest.start(_command(plan, seed, guest), plan.kernel.place / CONSOLE, partial(say, seed))
            for guest in wait(running):
                done[running.pop(guest)] = _counted(plan, guest)
                guest.close()
    return [done[seed] for seed in plan.request.seeds]


def at_once(request: Request) -> int:
    """How many boots: each keeps one CPU busy. One that goes by the clock is alone, or would be disturbed."""
    return len(os.sched_getaffinity(0)) if request.exact else 1


def _guest(plan: Plan, seed: int) -> Guest:
    asked, kernel = plan.request, plan.kernel
    if asked.command is None:
        orders = job.text(
            asked.path, asked.measured, list(kernel.modules), asked.model.vcpus, seed, exact=asked.exact
        )
    else:
        orders = job.of_command(asked.command.words, asked.command.server)
    return Guest(startable(kernel), files(kernel, plan.programs, orders, asked.command))


def _command(plan: Plan, seed: int, guest: Guest) -> list[str]:
    asked = plan.request
    options = [("out", guest.counted.path), ("symbols", plan.symbols), ("symbols", guest.symbols.path)]
    plugin = qemu.plugin_argument(plan.programs.plugin, [*options, *asked.model.options()])
    cards = asked.path.kind == "nics"
    machine = qemu.Machine(
        asked.model.vcpus, seed, asked.exact, cards=cards, plugin=plugin, fine_timers=asked.fine_timers
    )
    return qemu.command(plan.qemu, machine, guest.files)


def _counted(plan: Plan, guest: Guest) -> Counted:
    measurements, wanted = output.parse(guest.counted.text()), plan.request.count
    if len(measurements) != wanted:
        raise RunError(f"simulator: {len(measurements)} measurements of {wanted}")
    said = guest.said
    return Counted(tuple(measurements), tuple(reports(said)), guest.symbols.text(), flags(said))


def reports(said: Sequence[str]) -> list[dict[str, dict[str, Any]]]:
    """The reports of both sides, measurement by measurement. Raises RunError for what cannot be read."""
    found: list[dict[str, dict[str, Any]]] = []
    for line in said:
        name, _, rest = line.partition(" ")
        if name == "measure":
            found.append({})
        elif name in ("sender", "receiver") and found:
            try:
                found[-1][name] = json.loads(rest)
            except ValueError as error:
                raise RunError(f"guest: {name}: a report that cannot be read: {error}") from error
    return found


def flags(said: Sequence[str]) -> tuple[str, ...]:
    """Which kinds of fast string instructions the guest's CPU has: copies are made of other instructions."""
    for line in said:
        if line.startswith("cpu "):
            return tuple(word for word in line.split()[1:] if word != "-")
    return ()
