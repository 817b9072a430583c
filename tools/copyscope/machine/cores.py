# SPDX-License-Identifier: GPL-2.0-only
"""Topology of the CPUs: the core, the core type, the NUMA node and the last-level cache of each.

The numbers of CPUs do not show which CPUs are threads of one core: CPUs i and i + N/2 on most servers and
desktops, but CPUs 2i and 2i + 1 on hybrid laptops. /sys shows it (Documentation/admin-guide/cputopology.rst,
Documentation/ABI/stable/sysfs-devices-system-cpu).
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from copyscope.base.spelling import parse_cpu_list
from copyscope.machine.fingerprint import MachineCpuTimes, read_times_by_cpu
from copyscope.machine.processors import ROOT, read_hybrid, read_integer, read_text

CPU_FOLDER = "sys/devices/system/cpu"
# PMUs of Intel's core types, the fastest type first (arch/x86/events/intel/core.c:
# intel_hybrid_pmu_type_map).
INTEL_PMUS_BY_SPEED = ("cpu_core", "cpu_atom", "cpu_lowpower")
# Time in seconds to measure the load of CPUs. Ten ticks of /proc/stat show that a CPU is busy, and did not
# only wake up once.
LOAD_INTERVAL_S = 0.1
# Keys of a CPU in a record, except its number.
CPU_RECORD_KEYS = ("core_cpus", "core_type", "node", "llc_level", "llc_cpus")


@dataclass(frozen=True)
class OnlineCpu:
    """An online CPU. core_cpus and llc_cpus list all CPUs of its core and of its last-level cache (llc)."""

    number: int
    core_cpus: str
    # Type of its core, or None if all cores have the same type. `rank` is 0 for the fastest type.
    core_type: str | None = None
    rank: int = 0
    node: int | None = None
    llc_level: int | None = None
    llc_cpus: str | None = None


def read_cpus(allowed: Collection[int], root: Path = ROOT) -> list[OnlineCpu]:
    """Read the topology of the CPUs in `allowed` that are online, sorted by number."""
    text = read_text(root, f"{CPU_FOLDER}/online")
    online = parse_cpu_list(text) if text else allowed
    numbers = sorted(set(allowed) & set(online))
    types, nodes = _core_types(root, online), _nodes(root)
    ranks = {name: rank for rank, name in enumerate(_by_speed(root, types))}
    siblings: dict[int, str] = {}
    caches: dict[int, tuple[int, str]] = {}
    for number in numbers:
        # Read one file for each core and each cache, because some machines have a thousand CPUs.
        if number not in siblings:
            siblings |= dict.fromkeys(*_core(root, number))
        if number not in caches:
            caches |= _last_cache(root, number)
    return [
        OnlineCpu(
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
    """Return the CPUs of the core that contains CPU `number`, as numbers and as a CPU list."""
    folder = f"{CPU_FOLDER}/cpu{number}/topology"
    # Kernels before 5.3 call the file thread_siblings_list.
    text = read_text(root, f"{folder}/core_cpus_list") or read_text(root, f"{folder}/thread_siblings_list")
    text = text or str(number)
    return [number, *parse_cpu_list(text)], text


def find_siblings(cpus: Collection[int], root: Path = ROOT) -> set[int]:
    """Return the online hyper-thread siblings of `cpus` that are not in `cpus` themselves."""
    online = set(parse_cpu_list(read_text(root, f"{CPU_FOLDER}/online") or ""))
    return {sibling for cpu in cpus for sibling in _core(root, cpu)[0]} & online - set(cpus)


def read_isolated_cpus(root: Path = ROOT) -> frozenset[int]:
    """Return the CPUs that the boot options isolcpus= and nohz_full= keep free of other work."""
    texts = (read_text(root, f"{CPU_FOLDER}/{name}") for name in ("isolated", "nohz_full"))
    # Without such CPUs, nohz_full contains the word (null) on some kernels.
    return frozenset(cpu for text in texts if text and text[0].isdecimal() for cpu in parse_cpu_list(text))


def _last_cache(root: Path, number: int) -> dict[int, tuple[int, str]]:
    """Map each CPU that shares the last-level cache of CPU `number` to (cache level, CPU list of the cache).

    The map is empty if the kernel does not report caches.
    """
    caches = []
    for index in (root / f"{CPU_FOLDER}/cpu{number}/cache").glob("index[0-9]*"):
        level, shared = read_integer(index, "level"), read_text(index, "shared_cpu_list")
        if level is not None and shared is not None:
            caches.append((level, shared))
    return dict.fromkeys(parse_cpu_list(max(caches)[1]), max(caches)) if caches else {}


def _nodes(root: Path) -> dict[int, int]:
    """Map the number of each CPU to its NUMA node."""
    nodes = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for number in parse_cpu_list(read_text(folder, "cpulist") or ""):
            nodes[number] = int(folder.name.removeprefix("node"))
    return nodes


def _core_types(root: Path, numbers: Iterable[int]) -> dict[int, str]:
    """Map each CPU of `numbers` to the name of its core type. The map is empty if all types are the same.

    On arm64 the type is the capacity (`cpu_capacity`), because cores with the same PMU may have different
    clocks. On x86 the type is the PMU, because capacities differ even between P cores
    (arch_set_cpu_capacity(), 6.12).
    """
    pmus = read_hybrid(root) or {}
    if "cpu_core" not in pmus:
        capacities = {cpu: read_integer(root, f"{CPU_FOLDER}/cpu{cpu}/cpu_capacity") for cpu in numbers}
        if len(set(capacities.values())) > 1:
            return {cpu: f"capacity {capacity}" for cpu, capacity in capacities.items()}
    return {cpu: name for name, text in pmus.items() for cpu in parse_cpu_list(text)}


def _by_speed(root: Path, types: Mapping[int, str]) -> list[str]:
    """Return the names of the core types, the fastest type first. `types`: core type of each CPU."""
    max_capacity: dict[str, int] = {}
    for number, name in types.items():
        capacity = read_integer(root, f"{CPU_FOLDER}/cpu{number}/cpu_capacity") or 0
        max_capacity[name] = max(max_capacity.get(name, 0), capacity)
    intel_rank = {name: rank for rank, name in enumerate(INTEL_PMUS_BY_SPEED)}
    return sorted(max_capacity, key=lambda name: (intel_rank.get(name, 0), -max_capacity[name], name))


@cache
def measure_busy_quarters(root: Path = ROOT) -> Mapping[int, int]:
    """Map the number of each CPU to its measured load, in full quarters of LOAD_INTERVAL_S (0 to 4).

    The map is empty if /proc/stat cannot be read. The result is cached, so that all runs of this process are
    placed on the same CPUs.
    """
    try:
        before = read_times_by_cpu(root)
        time.sleep(LOAD_INTERVAL_S)
        after = read_times_by_cpu(root)
    except (OSError, ValueError, IndexError):
        return {}
    return {cpu: _busy_quarters(before[cpu], times) for cpu, times in after.items() if cpu in before}


def _busy_quarters(before: MachineCpuTimes, after: MachineCpuTimes) -> int:
    """Return the busy time of a CPU between two readings, in full quarters of the elapsed time."""
    elapsed = after.total - before.total
    return 4 * (after.busy - before.busy) // elapsed if elapsed > 0 else 0
