# SPDX-License-Identifier: GPL-2.0-only
"""Names of the events that are sampled and counted, and of the columns that show their counts. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

# Names that perf may give a hardware event, by the key of its column.
EVENT_COLUMNS: dict[str, tuple[str, ...]] = {
    "cycles": ("cycles", "cpu-cycles"),
    "instructions": ("instructions",),
    "l1d_misses": ("L1-dcache-load-misses",),
    "llc_misses": ("LLC-load-misses",),
}

# Events that measure time, the best first. ref-cycles run at the same rate on every core, whatever its type
# and clock. cpu-clock charges code with interrupts disabled to the code that enables them again, while cycles
# also interrupt code with interrupts disabled. But cpu-clock is opened only if cycles do not show time
# (open_time() of the sampler).
TIME_EVENTS = (("ref-cycles",), ("cpu-clock", "task-clock"), EVENT_COLUMNS["cycles"])


def time_names(sampled: Iterable[str], statuses: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the names of the event used to apportion CPU time to functions, or None if there is none.

    `sampled`: names of the sampled events. `statuses`: states of events, if known. An event that was sampled
    on some CPUs only is not used.
    """
    usable = {name for name in map(event_name, sampled) if statuses.get(name, "sampled") == "sampled"}
    return next((names for names in TIME_EVENTS if usable & set(names)), None)


def measures_time(event: str, units: Mapping[str, str]) -> bool:
    """Return True if the weights of an event's samples are times. `units`: maps event names to units."""
    return units.get(event) == "ns"


def dividing_event_names(names: Sequence[str], units: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the sampled event used to apportion a counted event to functions.

    `names`: names of the counted event. `units`: maps sampled events to units. Samples of ref-cycles
    apportion cycles if the sampler uses ref-cycles instead of cycles, as on machines with equal cores
    (cycles_are_spared()).
    """
    uses_ref_cycles = tuple(names) == EVENT_COLUMNS["cycles"] and measures_time("ref-cycles", units)
    return TIME_EVENTS[0] if uses_ref_cycles else names


def event_name(name: str) -> str:
    """Return the name of an event without PMU and modifiers: `cycles` for `cpu_core/cycles/u`, `cycles:k`."""
    match = re.fullmatch(r"[\w.-]+/([^/]+)/\w*", name)
    return (match.group(1) if match else name).split(":")[0]


# Meaning of a cache miss: under one name of perf, PMUs of different vendors count different events. Pure.
#
# From the kernel's tables: hw_cache_event_ids and hw_cache_extra_regs of each generation in
# arch/x86/events/intel/core.c, amd_hw_cache_event_ids_f17h in arch/x86/events/amd/core.c, and
# armv8_pmuv3_perf_cache_map in drivers/perf/arm_pmuv3.c.

# Title of a cache miss, by its column.
MISSES = {"llc_misses": "LLC miss", "l1d_misses": "L1D miss"}
MISS_EVENTS = frozenset(name for column in MISSES for name in EVENT_COLUMNS[column])
# Description of a cache miss, short and full, by the vendor of the PMU and by its column.
MEANINGS_BY_VENDOR = {
    "Intel": {
        "llc_misses": (
            "demand loads only, no prefetches",
            "loads of data that the last level did not have; data that a prefetcher brought in time is not "
            "counted (offcore response, DEMAND_DATA_RD)",
        ),
        "l1d_misses": (
            "demand loads; before Golden Cove all lines",
            "from Golden Cove on (12th generation, Sapphire Rapids) loads that had to ask L2, without "
            "prefetches (L2_RQSTS.ALL_DEMAND_DATA_RD); before Golden Cove every line brought into L1D, for "
            "stores and by prefetches, too (L1D.REPLACEMENT)",
        ),
    },
    "AMD Zen": {
        "llc_misses": (
            "demand fills from memory",
            "lines brought into L1D from memory because a load or a store asked for them",
        ),
        "l1d_misses": (
            "requests to L2, with stores and prefetches",
            "requests of L1D to L2, for loads, stores and prefetches (event 0x60, unit mask 0xc8)",
        ),
    },
    "arm64": {
        "llc_misses": ("reads", "reads that the last level did not have (LL_CACHE_MISS_RD)"),
        "l1d_misses": (
            "refills, for loads and stores",
            "lines brought into L1D, for loads and for stores (L1D_CACHE_REFILL)",
        ),
    },
}


class Processor(Protocol):
    """Architecture and processor model of a record's machine."""

    arch: str
    cpu_model: str


def vendor_of(machine: Processor) -> str | None:
    """Return the vendor of a machine's processor, a key of MEANINGS_BY_VENDOR, or None for other vendors."""
    if machine.arch in ("aarch64", "arm64"):
        return "arm64"
    if re.search(r"\b(EPYC|Ryzen|Threadripper)\b", machine.cpu_model):
        return "AMD Zen"
    return "Intel" if "Intel" in machine.cpu_model else None


def describe_misses_briefly(machine: Processor, columns: list[str]) -> str:
    """Describe in one line what columns of cache misses count on this machine."""
    vendor = vendor_of(machine)
    if vendor is None:
        return f"{', '.join(MISSES[column] for column in columns)}: as this PMU defines them"
    parts = [f"{MISSES[column]}: {MEANINGS_BY_VENDOR[vendor][column][0]}" for column in columns]
    return f"{'; '.join(parts)} ({vendor})"


def describe_misses(machine: Processor, column: str) -> str:
    """Describe in a sentence what a column of cache misses counts on this machine."""
    vendor = vendor_of(machine)
    if vendor is None:
        return f"{MISSES[column]}: as this PMU defines it, because copyscope does not know this processor"
    return f"{MISSES[column]} on {vendor}: {MEANINGS_BY_VENDOR[vendor][column][1]}"
