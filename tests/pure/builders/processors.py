# SPDX-License-Identifier: GPL-2.0-only
"""Processors of real machines, and their files in /sys.

The layouts are those that `lscpu -e` and lstopo print: a core is the list of its threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Machine:
    """A machine. `caches`: CPUs that share a last-level cache; `nodes`: CPUs of each NUMA node."""

    cores: Sequence[Sequence[int]]
    caches: Sequence[str]
    nodes: Sequence[str] = ()
    pmus: dict[str, str] = field(default_factory=dict)
    capacities: dict[int, int] = field(default_factory=dict)
    offline: tuple[int, ...] = ()
    level: int = 3


def spread(cores: int, first: int = 0, apart: int = 0) -> list[list[int]]:
    """Return cores with the threads i and i + apart."""
    return [[cpu, cpu + apart] for cpu in range(first, first + cores)]


def pairs(cores: int, first: int = 0) -> list[list[int]]:
    """Return cores with the threads 2i and 2i + 1."""
    return [[first + 2 * core, first + 2 * core + 1] for core in range(cores)]


def single(cores: int, first: int = 0) -> list[list[int]]:
    return [[cpu] for cpu in range(first, first + cores)]


DESKTOP_16 = Machine(spread(16, apart=16), ["0-7,16-23", "8-15,24-31"], ["0-31"])  # Ryzen 9 7950X
RYZEN_8 = Machine(spread(8, apart=8), ["0-15"], ["0-15"])  # Ryzen 7 5800X
XEON_48 = Machine(  # two Xeon Gold 6248R
    spread(48, apart=48), ["0-23,48-71", "24-47,72-95"], ["0-23,48-71", "24-47,72-95"]
)
XEON_SNC2 = Machine(  # a Xeon with sub-NUMA clustering: two nodes share a last-level cache
    spread(48, apart=48), ["0-95"], ["0-23,48-71", "24-47,72-95"]
)
I7_1260P = Machine(pairs(4) + single(8, 8), ["0-15"], ["0-15"], {"cpu_core": "0-7", "cpu_atom": "8-15"})
I7_13700H = Machine(pairs(6) + single(8, 12), ["0-19"], ["0-19"], {"cpu_core": "0-11", "cpu_atom": "12-19"})
I9_13900K = Machine(pairs(8) + single(16, 16), ["0-31"], ["0-31"], {"cpu_core": "0-15", "cpu_atom": "16-31"})
EPYC_64 = Machine(  # two EPYC 7543 with eight last-level caches each; four cores share a cache
    spread(64, apart=64),
    [f"{cpu}-{cpu + 3},{cpu + 64}-{cpu + 67}" for cpu in range(0, 64, 4)],
    ["0-31,64-95", "32-63,96-127"],
)
RK3588 = Machine(
    single(8),
    ["0-7"],
    pmus={"armv8_cortex_a55": "0-3", "armv8_cortex_a76": "4-7"},
    capacities=dict.fromkeys(range(4), 530) | dict.fromkeys(range(4, 8), 1024),
)
# 4 + 3 + 1 cores: the single fast core is too few for sender and receiver.
PHONE = Machine(
    single(8), ["0-7"], capacities=dict.fromkeys(range(4), 325) | dict.fromkeys((4, 5, 6), 828) | {7: 1024}
)


def plant(root: Path, machine: Machine) -> Path:
    """Write the /sys files of a machine below root. Files list only CPUs that are online."""
    numbers = sorted({cpu for core in machine.cores for cpu in core} - set(machine.offline))
    write(root / CPU / "online", listed(numbers))
    for core in machine.cores:
        alive = [cpu for cpu in core if cpu in numbers]
        for number in alive:
            for name in ("core_cpus_list", "thread_siblings_list"):
                write(root / f"{CPU}/cpu{number}/topology/{name}", listed(alive))
            _caches(root / f"{CPU}/cpu{number}/cache", machine, number, alive)
    for number, capacity in machine.capacities.items():
        write(root / f"{CPU}/cpu{number}/cpu_capacity", str(capacity))
    for number, text in enumerate(machine.nodes):
        write(root / f"sys/devices/system/node/node{number}/cpulist", text)
    for name, text in machine.pmus.items():
        write(root / f"sys/bus/event_source/devices/{name}/cpus", text)
    return root


def _caches(folder: Path, machine: Machine, number: int, core: list[int]) -> None:
    """Write the files of all caches. L2 comes last, because the last level may have a lower index."""
    shared = next(text for text in machine.caches if number in numbers_of(text))
    for index, (level, kind, text) in enumerate(
        [
            (1, "Data", listed(core)),
            (1, "Instruction", listed(core)),
            (machine.level, "Unified", shared),
            (2, "Unified", listed(core)),
        ]
    ):
        for name, value in (("level", str(level)), ("type", kind), ("shared_cpu_list", text)):
            write(folder / f"index{index}/{name}", value)


def numbers_of(text: str) -> set[int]:
    numbers: set[int] = set()
    for span in text.split(","):
        first, _, last = span.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n")
    except FileNotFoundError:
        path.parent.mkdir(parents=True)
        path.write_text(text + "\n")
