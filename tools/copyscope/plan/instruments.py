"""What a run attaches, and the words of options that are lists: instruments, phases, processors. Pure."""

import re
from collections.abc import Mapping, Sequence

from copyscope.arguments import seconds
from copyscope.errors import UsageError

# Which instruments a segment has: unprobed, ledger, calls, bytes, functions, unarmed, or several with `+`.
Phase = str

INSTRUMENTS = ("counters", "calls", "sampler", "functions")
# What `auto` takes where the kernel allows no function hooks; where it does, these and functions.
SAMPLED = ("counters", "calls", "sampler")
# What works where no hook does: on kernels without BTF.
HOOKLESS = ("counters", "sampler")
# What the function hooks can count (src/collector/kernel/pmu.c), at most so many at once.
COUNTABLE = (
    *("LLC-load-misses", "dTLB-load-misses", "dTLB-store-misses", "iTLB-load-misses"),
    *("cpu-clock", "page-faults"),
)
# And an event of this processor's own, by the number that its vendor gives: perf-list(1).
RAW_EVENT = re.compile(r"r[0-9a-fA-F]{1,16}")
COUNTERS_MAX = 4
# In the last blocks of a run: functions are hooked once; the hooks count, or they do nothing.
EXACT: tuple[Phase, ...] = ("functions", "unarmed")

# CONFIG_NR_CPUS is at most 8192, on x86.
CPUS_MAX = 8192


def parse_instruments(text: str) -> tuple[str, ...]:
    """`auto` or a comma list. Raises UsageError naming the unknown one."""
    if text == "auto":
        return INSTRUMENTS
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in INSTRUMENTS:
            known = ", ".join(INSTRUMENTS)
            raise UsageError(
                f"--instruments: {name or 'nothing'}: not an instrument: auto, or some of {known}"
            )
    return tuple(name for name in INSTRUMENTS if name in names)


def parse_count(text: str) -> str:
    """`none`, or a comma list of events; returns what the collector takes. Raises UsageError."""
    if text == "none":
        return ""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in COUNTABLE and not RAW_EVENT.fullmatch(name):
            known = ", ".join((*COUNTABLE, "rHEX, a raw event of this processor"))
            raise UsageError(
                f"--count: {name or 'nothing'}: cannot be counted per function: none, or some of {known}"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"--count: {text}: an event is named twice")
    if len(names) > COUNTERS_MAX:
        raise UsageError(f"--count: {text}: {len(names)} events: at most {COUNTERS_MAX} at once")
    return ",".join(names)


def phase_probes(instruments: Sequence[str]) -> dict[Phase, tuple[str, ...]]:
    """Which BPF instruments each phase attaches."""
    phases: dict[Phase, tuple[str, ...]] = {"unprobed": ()}
    if "sampler" in instruments or "counters" in instruments:
        phases["ledger"] = ("bytes", "sampler") if "sampler" in instruments else ("bytes",)
    if "calls" in instruments:
        phases["calls"] = ("calls",)
    if "functions" in instruments:
        phases |= {phase: (phase,) for phase in EXACT}
    return phases


def bytes_apart(phases: Mapping[Phase, tuple[str, ...]]) -> dict[Phase, tuple[str, ...]]:
    """Bytes counted in segments of their own: a hook at every send is the dearest part of the ledger's.

    For traffic that cooperates: it says to the byte what it moved in the ledger segments, where nobody counts
    beside it, and is compared with the kernel's count here.
    """
    if "ledger" not in phases:
        return dict(phases)
    others = tuple(probe for probe in phases["ledger"] if probe != "bytes")
    return {**phases, "ledger": others, "bytes": ("bytes",)}


def all_at_once(phases: Mapping[Phase, tuple[str, ...]]) -> dict[Phase, tuple[str, ...]]:
    """One phase with every instrument, for a run in one segment; it has no control to be compared with."""
    used = {phase: probes for phase, probes in phases.items() if phase not in ("unprobed", "unarmed")}
    return {"+".join(used): tuple(dict.fromkeys(probe for phase in used.values() for probe in phase))}


def parse_cpus(text: str, option: str) -> list[int]:
    """`0,2-3` -> [0, 2, 3]."""
    cpus: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, CPUS_MAX)
        if not first <= last < CPUS_MAX or len(cpus) >= CPUS_MAX:
            raise UsageError(f"{option}: {text}: not a list of processors such as 0,2-3")
        cpus.extend(range(first, last + 1))
    return cpus


def parse_time_s(text: str, option: str) -> float:
    """`90s`, `20m` or `1.5h` -> seconds. Raises UsageError naming the option."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smh])", text.strip())
    if not found or float(found[1]) == 0:
        raise UsageError(f"{option}: {text or 'nothing'}: not a time such as 90s, 20m or 1h")
    return seconds(text.strip())
