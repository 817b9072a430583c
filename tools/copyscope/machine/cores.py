"""What each CPU is: a thread of which core, of which type, on which NUMA node, behind which last cache.

Siblings are i and i + N/2 on most servers and desktops, 2i and 2i + 1 on hybrid laptops: the numbers say
nothing (Documentation/admin-guide/cputopology.rst, Documentation/ABI/stable/sysfs-devices-system-cpu).
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from copyscope.machine.cpu import parse_cpu_list, read_hybrid
from copyscope.machine.files import ROOT, read_integer, read_text
from copyscope.machine.fingerprint import CpuTimes, times_of_cpus

CPU = "sys/devices/system/cpu"
# Intel's PMUs by speed of their cores (arch/x86/events/intel/core.c: intel_hybrid_pmu_type_map).
BY_SPEED = ("cpu_core", "cpu_atom", "cpu_lowpower")
# Ten ticks of /proc/stat: what is busy all the time is told from what woke up once.
LOOK_S = 0.1
# What a record says of a CPU beside its number.
FACTS = ("core_cpus", "core_type", "node", "llc_level", "llc_cpus")


@dataclass(frozen=True)
class Cpu:
    """One that is online. CPUs of one core, or of one cache, have the same list."""

    number: int
    core_cpus: str
    # None where all cores are alike; `rank` is 0 of the fastest type.
    core_type: str | None = None
    rank: int = 0
    node: int | None = None
    llc_level: int | None = None
    llc_cpus: str | None = None


def read_cpus(allowed: Collection[int], root: Path = ROOT) -> list[Cpu]:
    """Those of `allowed` that are online, by number."""
    text = read_text(root, f"{CPU}/online")
    online = parse_cpu_list(text) if text else allowed
    numbers = sorted(set(allowed) & set(online))
    types, nodes = _core_types(root, online), _nodes(root)
    ranks = {name: rank for rank, name in enumerate(_by_speed(root, types))}
    siblings: dict[int, str] = {}
    caches: dict[int, tuple[int, str]] = {}
    for number in numbers:
        # One file of each core and of each cache: there are machines with a thousand CPUs.
        if number not in siblings:
            siblings |= dict.fromkeys(*_core(root, number))
        if number not in caches:
            caches |= _last_cache(root, number)
    return [
        Cpu(
            number,
            siblings[number],
            types.get(number),
            ranks.get(types.get(number, ""), 0),
            nodes.get(number),
            *caches.get(number, (None, None)),
        )
        for number in numbers
    ]


def _core(root: Path, number: int) -> tuple[list[int], str]:
    """The threads of its core; `thread_siblings_list` is what kernels before 5.3 call them."""
    at = f"{CPU}/cpu{number}/topology"
    text = read_text(root, f"{at}/core_cpus_list") or read_text(root, f"{at}/thread_siblings_list")
    text = text or str(number)
    return [number, *parse_cpu_list(text)], text


def _last_cache(root: Path, number: int) -> dict[int, tuple[int, str]]:
    """The highest level that it has, for each CPU that shares it; nothing where the kernel does not report "
    "it."""
    found = []
    for index in (root / f"{CPU}/cpu{number}/cache").glob("index[0-9]*"):
        level, shared = read_integer(index, "level"), read_text(index, "shared_cpu_list")
        if level is not None and shared is not None:
            found.append((level, shared))
    return dict.fromkeys(parse_cpu_list(max(found)[1]), max(found)) if found else {}


def _nodes(root: Path) -> dict[int, int]:
    found = {}
    for node in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for number in parse_cpu_list(read_text(node, "cpulist") or ""):
            found[number] = int(node.name.removeprefix("node"))
    return found


def _core_types(root: Path, numbers: Iterable[int]) -> dict[int, str]:
    """CPU -> what its cores are called; nothing where all are alike.

    arm64 tells types apart by capacity (`cpu_capacity`; one PMU may have two clocks). x86 has that, too,
    and it differs between P cores (arch_set_cpu_capacity(), since 6.12): there it is the PMU.
    """
    pmus = read_hybrid(root) or {}
    if "cpu_core" not in pmus:
        capacities = {one: read_integer(root, f"{CPU}/cpu{one}/cpu_capacity") for one in numbers}
        if len(set(capacities.values())) > 1:
            return {one: f"capacity {capacity}" for one, capacity in capacities.items()}
    return {one: name for name, text in pmus.items() for one in parse_cpu_list(text)}


def _by_speed(root: Path, types: Mapping[int, str]) -> list[str]:
    """The types, the fastest first."""
    most: dict[str, int] = {}
    for number, name in types.items():
        capacity = read_integer(root, f"{CPU}/cpu{number}/cpu_capacity") or 0
        most[name] = max(most.get(name, 0), capacity)
    known = {name: place for place, name in enumerate(BY_SPEED)}
    return sorted(most, key=lambda name: (known.get(name, 0), -most[name], name))


@cache
def look_at_load(root: Path = ROOT) -> Mapping[int, int]:
    """How many quarters of a moment each CPU was busy: nothing where that is not known.

    Once for all runs of a process, which are then at the same place.
    """
    try:
        before = times_of_cpus(root)
        time.sleep(LOOK_S)
        after = times_of_cpus(root)
    except (OSError, ValueError, IndexError):
        return {}
    return {number: _quarters(before[number], now) for number, now in after.items() if number in before}


def _quarters(before: CpuTimes, after: CpuTimes) -> int:
    elapsed = after.total - before.total
    return 4 * (after.busy - before.busy) // elapsed if elapsed > 0 else 0
