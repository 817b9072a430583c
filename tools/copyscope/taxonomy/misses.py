"""What a PMU counts as a cache miss: perf has one name for events that differ from vendor to vendor. Pure.

From the kernel's tables: hw_cache_event_ids and hw_cache_extra_regs of each generation in
arch/x86/events/intel/core.c, amd_hw_cache_event_ids_f17h in arch/x86/events/amd/core.c, and
armv8_pmuv3_perf_cache_map in drivers/perf/arm_pmuv3.c.
"""

import re
from typing import Protocol

MISSES = {"llc_misses": "LLC miss", "l1d_misses": "L1D miss"}
# Vendor -> column -> in a few words, and in full.
MEANINGS = {
    "Intel": {
        "llc_misses": (
            "demand loads only, no prefetches",
            "data that a load waited for and the last level did not have; what a prefetcher brought in time "
            "is in no number (offcore response, DEMAND_DATA_RD)",
        ),
        "l1d_misses": (
            "demand loads; before Golden Cove all lines",
            "from Golden Cove on (12th generation, Sapphire Rapids) loads that had to ask L2, without "
            "prefetches (L2_RQSTS.ALL_DEMAND_DATA_RD); before it every line brought into L1D, for stores and "
            "by prefetches, too (L1D.REPLACEMENT)",
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
    """What a record says of its machine, as far as it is asked here."""

    arch: str
    cpu_model: str


def vendor_of(machine: Processor) -> str | None:
    """A key of MEANINGS, by what a record says of its machine; None: nothing is known of its processor."""
    if machine.arch in ("aarch64", "arm64"):
        return "arm64"
    if re.search(r"\b(EPYC|Ryzen|Threadripper)\b", machine.cpu_model):
        return "AMD Zen"
    return "Intel" if "Intel" in machine.cpu_model else None


def in_short(machine: Processor, columns: list[str]) -> str:
    """What some columns of misses count on this machine, for one line."""
    vendor = vendor_of(machine)
    if vendor is None:
        return f"{', '.join(MISSES[column] for column in columns)}: as this PMU counts them"
    parts = [f"{MISSES[column]}: {MEANINGS[vendor][column][0]}" for column in columns]
    return f"{'; '.join(parts)} ({vendor})"


def in_full(machine: Processor, column: str) -> str:
    """What a column counts on this machine, as a sentence."""
    vendor = vendor_of(machine)
    if vendor is None:
        return f"{MISSES[column]}: what this PMU counts as one: of this processor copyscope knows no more"
    return f"{MISSES[column]} on {vendor}: {MEANINGS[vendor][column][1]}"
