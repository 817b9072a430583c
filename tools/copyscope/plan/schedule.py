# SPDX-License-Identifier: GPL-2.0-only
"""Split a run into segments, and choose the instruments of each segment. Pure."""

import math
import random
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat

from copyscope.base.arguments import seconds
from copyscope.base.errors import UsageError

# The first part chooses the instruments of each phase, and parses lists of instruments, events and CPUs.

# Name of a set of instruments: unprobed, ledger, calls, bytes, functions, unarmed, or several joined by `+`.
Phase = str

INSTRUMENTS = ("counters", "calls", "sampler", "functions")
# Instruments of `--instruments auto`. Functions are added if the kernel allows function hooks.
SAMPLED = ("counters", "calls", "sampler")
# Instruments that need no BPF hook and therefore work on kernels without BTF.
HOOKLESS = ("counters", "sampler")
# Events that the function hooks can count (src/collector/kernel/pmu.c), at most COUNTED_EVENTS_MAX at once.
COUNTABLE = (
    *("LLC-load-misses", "dTLB-load-misses", "dTLB-store-misses", "iTLB-load-misses"),
    *("cpu-clock", "page-faults"),
)
# Pattern of a raw event of this processor, which function hooks can count, too: perf-list(1).
RAW_EVENT = re.compile(r"r[0-9a-fA-F]{1,16}")
COUNTED_EVENTS_MAX = 4
# Phases of the last blocks: functions stay hooked, and their hooks count (functions) or do nothing (unarmed).
EXACT: tuple[Phase, ...] = ("functions", "unarmed")

# Largest number of CPUs: CONFIG_NR_CPUS is at most 8192, on x86.
CPUS_MAX = 8192


def parse_instruments(text: str) -> tuple[str, ...]:
    """Parse the value of --instruments: `auto` or a comma-separated list. Raises UsageError."""
    if text == "auto":
        return INSTRUMENTS
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in INSTRUMENTS:
            choices = ", ".join(INSTRUMENTS)
            raise UsageError(
                f"--instruments {shlex.quote(name)}: unknown instrument; choose auto, or some of {choices}"
            )
    return tuple(name for name in INSTRUMENTS if name in names)


def parse_count(text: str) -> str:
    """Parse the value of --count, `none` or a list of events; return the collector's list.

    Raises UsageError.
    """
    if text == "none":
        return ""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in COUNTABLE and not RAW_EVENT.fullmatch(name):
            choices = ", ".join((*COUNTABLE, "rHEX (a raw event of this processor)"))
            raise UsageError(
                f"--count {shlex.quote(name)}: cannot be counted; choose none, or some of {choices}"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"--count {text}: an event is named twice; name each event once")
    if len(names) > COUNTED_EVENTS_MAX:
        raise UsageError(f"--count {text}: {len(names)} events; choose at most {COUNTED_EVENTS_MAX}")
    return ",".join(names)


def phase_probes(instruments: Sequence[str]) -> dict[Phase, tuple[str, ...]]:
    """Map each phase of a run to the BPF instruments that it attaches."""
    phases: dict[Phase, tuple[str, ...]] = {"unprobed": ()}
    if "sampler" in instruments or "counters" in instruments:
        phases["ledger"] = ("bytes", "sampler") if "sampler" in instruments else ("bytes",)
    if "calls" in instruments:
        phases["calls"] = ("calls",)
    if "functions" in instruments:
        phases |= {phase: (phase,) for phase in EXACT}
    return phases


def separate_bytes(phases: Mapping[Phase, tuple[str, ...]]) -> dict[Phase, tuple[str, ...]]:
    """Move the counting of bytes to a phase of its own, because hooking every send is expensive.

    This is only for our own traffic, which reports its exact bytes in the ledger segments. In the bytes
    segments, the kernel's count is compared with these reports.
    """
    if "ledger" not in phases:
        return dict(phases)
    other_probes = tuple(probe for probe in phases["ledger"] if probe != "bytes")
    return {**phases, "ledger": other_probes, "bytes": ("bytes",)}


def merge_phases(phases: Mapping[Phase, tuple[str, ...]]) -> dict[Phase, tuple[str, ...]]:
    """Return a single phase with all instruments, for a run of one segment without a control segment."""
    measuring = {phase: probes for phase, probes in phases.items() if phase not in ("unprobed", "unarmed")}
    probes = dict.fromkeys(probe for phase_probes in measuring.values() for probe in phase_probes)
    return {"+".join(measuring): tuple(probes)}


def parse_cpus(text: str, option: str) -> list[int]:
    """Parse a list of CPUs: `0,2-3` is [0, 2, 3]. Raises UsageError that names `option`."""
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, CPUS_MAX)
        if not first <= last < CPUS_MAX or len(cpus) >= CPUS_MAX:
            raise UsageError(f"{option} {text}: not a list of processors; write a list such as 0,2-3")
        cpus.extend(range(first, last + 1))
    return cpus


def parse_time_s(text: str, option: str) -> float:
    """Parse `90s`, `20m` or `1.5h` into seconds. Raises UsageError that names `option`."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise UsageError(f"{option} {shlex.quote(text)}: not a time; write a time such as 90s, 20m or 1h")
    return seconds(text.strip())


# The second part chooses the order and the lengths of the segments. A block has every phase once.
#
# Attaching function hooks takes a second, and detaching takes several seconds. Therefore functions are hooked
# only once, for the last blocks. The hooks count in some segments and do nothing in control segments.

# Relative length of each phase. The ledger needs many samples and the control needs to be steady. Calls and
# bytes are counted one by one and need little time.
PHASE_WEIGHTS: Mapping[Phase, float] = {
    **{"unprobed": 0.30, "ledger": 0.60, "calls": 0.10, "bytes": 0.05, "functions": 0.20, "unarmed": 0.15},
}
# Longest time in seconds in which calls are timed in a block: timing slows down a watched program most.
WATCHED_CALLS_MAX_S = 0.05
# Longest block in seconds: slow changes affect all phases equally, and the stack map never gets full. A pause
# between segments takes only 10 ms.
BLOCK_MAX_S = 2.0
BLOCKS_PREFERRED = 6
# Longest block in seconds of a watched program, which keeps running while hooks are attached: longer blocks
# make attaching a smaller part.
WATCHED_BLOCK_MAX_S = 2.5
BLOCKS_MIN = 3
DURATION_MIN_S = 0.5
# Lengths in seconds of the first blocks without a duration: short, because the program may exit at any
# moment.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)
# Longest time in seconds to switch hooks quickly. After a slower switch, the segment is at least as long.
QUICK_SWITCH_S = 0.1
# Limits of the time of a run: its duration times a factor, plus seconds.
OVERRUN_FACTOR, OVERRUN_EXTRA_S = 2, 5.0


# Times in seconds of an endless watch: a block, its sampled part, and most time between readings of counts.
SERVED_BLOCK_S, SERVED_SAMPLED_S, SERVED_READ_INTERVAL_S = 15.0, 1.0, 5.0


@dataclass(frozen=True)
class PlannedSegment:
    """Planned period of a run with one set of instruments."""

    index: int
    block: int
    phase: Phase
    length_s: float
    # Instruments of the segment; None: the instruments of its phase.
    probes: tuple[str, ...] | None = None


def schedule_segments(duration_s: float, phases: Sequence[Phase], seed: int) -> list[PlannedSegment]:
    """Return the segments of our own traffic. `duration_s`: sum of all segments, without pauses."""
    lengths_s = _equal_lengths(duration_s, BLOCK_MAX_S, BLOCKS_PREFERRED)
    return list(_sampled_then_hooked(lengths_s, phases, seed))


def watched_segments(
    duration_s: float | None, phases: Sequence[Phase], seed: int, block_s: float | None = None
) -> Iterator[PlannedSegment]:
    """Yield the segments of a watched program, for a duration or endlessly. Function hooks need a duration.

    `block_s`: length of a block; the last block may be shorter. The first segment times calls and so shows if
    the program receives by splice(2); only then is splice(2) hooked in the next segment. The second segment
    is a ledger segment, because perf attaches its events to the threads before that segment starts.
    """
    lengths_s: Iterable[float]
    if duration_s is not None and block_s is None:
        lengths_s = _equal_lengths(duration_s, WATCHED_BLOCK_MAX_S, BLOCKS_MIN)
    else:
        lengths_s = _growing_lengths(duration_s, block_s)
    segments = _sampled_then_hooked(lengths_s, phases, seed, WATCHED_CALLS_MAX_S)
    first = [next(segments) for phase in phases if phase not in EXACT]
    first.sort(key=lambda segment: ("calls" not in segment.phase, "ledger" not in segment.phase))
    yield from (replace(segment, index=index) for index, segment in enumerate(first))
    yield from segments


def served_segments(seed: int, block_s: float = SERVED_BLOCK_S) -> Iterator[PlannedSegment]:
    """Yield the segments of an endless watch: each block samples for a second.

    After the first block the sampled time is random, so that samples cover every part of periodic work.
    """
    shuffler, indexes = random.Random(seed), count()
    parts = math.ceil((block_s - SERVED_SAMPLED_S) / SERVED_READ_INTERVAL_S)
    for block in count():
        unprobed_s = (block_s - SERVED_SAMPLED_S) / parts
        segments: list[tuple[Phase, float]] = [("unprobed", unprobed_s)] * parts * (block > 0)
        segments.insert(shuffler.randint(0, len(segments)), ("ledger", SERVED_SAMPLED_S))
        yield from (PlannedSegment(next(indexes), block, phase, length_s) for phase, length_s in segments)


def _equal_lengths(duration_s: float, block_max_s: float, blocks_preferred: int) -> list[float]:
    """Return the lengths of a run's blocks, which are equal. Raises UsageError if the run is too short."""
    if duration_s < DURATION_MIN_S:
        raise UsageError(
            f"--duration {duration_s:g}: too short to compare segments; choose "
            f"at least {DURATION_MIN_S:g} s, or --messages N for a fixed count"
        )
    blocks = max(BLOCKS_MIN, round(duration_s / min(block_max_s, duration_s / blocks_preferred)))
    return [duration_s / blocks] * blocks


def _growing_lengths(duration_s: float | None, block_s: float | None) -> Iterator[float]:
    """Yield block lengths, short at first, until they fill the duration, or endlessly if it is None."""
    left_s = math.inf if duration_s is None else duration_s
    for length_s in chain(FIRST_BLOCKS_S, repeat(block_s or BLOCK_MAX_S)):
        if left_s <= 0:
            return
        left_s -= length_s
        yield length_s


def _sampled_then_hooked(
    lengths_s: Iterable[float], phases: Sequence[Phase], seed: int, calls_max_s: float = math.inf
) -> Iterator[PlannedSegment]:
    """Yield the segments of blocks without function hooks, then of as many blocks with function hooks.

    `lengths_s`: lengths of the blocks. `calls_max_s`: longest time of the phase `calls` in a block.
    """
    shuffler, indexes = random.Random(seed), count()
    hooked = [phase for phase in phases if phase in EXACT]
    if not hooked:
        yield from _randomise_blocks(enumerate(lengths_s), phases, shuffler, indexes, calls_max_s)
        return
    unhooked = [phase for phase in phases if phase not in EXACT]
    blocks_s = list(lengths_s)
    share = _sum_weights(hooked) / _sum_weights(phases)
    sampled = ((block, (1 - share) * block_s) for block, block_s in enumerate(blocks_s))
    yield from _randomise_blocks(sampled, unhooked, shuffler, indexes, calls_max_s)
    exact = ((block, share * block_s) for block, block_s in enumerate(blocks_s, start=len(blocks_s)))
    yield from _randomise_blocks(exact, hooked, shuffler, indexes, calls_max_s)


def _randomise_blocks(
    lengths_s: Iterable[tuple[int, float]],
    phases: Sequence[Phase],
    shuffler: random.Random,
    indexes: Iterator[int],
    calls_max_s: float,
) -> Iterator[PlannedSegment]:
    """Yield the segments of a randomised block design: each block has every phase once, in random order.

    `lengths_s`: number and length of each block. `indexes`: indexes of the segments.
    """
    for block, block_s in lengths_s:
        lengths = _divide_block(block_s, phases, calls_max_s)
        order = list(phases)
        shuffler.shuffle(order)
        for phase in order:
            yield PlannedSegment(next(indexes), block, phase, lengths[phase])


def _sum_weights(phases: Iterable[Phase]) -> float:
    return sum(map(PHASE_WEIGHTS.__getitem__, phases))


def _divide_block(block_s: float, phases: Sequence[Phase], calls_max_s: float) -> dict[Phase, float]:
    """Return the length of each phase in a block of `block_s` seconds."""
    lengths_s = {phase: block_s * PHASE_WEIGHTS[phase] / _sum_weights(phases) for phase in phases}
    calls_s = lengths_s.get("calls", 0.0)
    if calls_s <= calls_max_s or len(phases) == 1:
        return lengths_s
    factor = (block_s - calls_max_s) / (block_s - calls_s)
    rest = {phase: length_s * factor for phase, length_s in lengths_s.items()}
    return rest | {"calls": calls_max_s}


class Bound:
    """Limit on the total time of a run, which slow attaching and detaching of hooks could exceed.

    If all CPUs are busy with softirqs, the kernel may need seconds for each hook.
    """

    def __init__(self, duration_s: float | None, phases: Iterable[Phase]) -> None:
        self._limit_s = math.inf if duration_s is None else OVERRUN_FACTOR * duration_s + OVERRUN_EXTRA_S
        self._missing = set(phases)
        self._elapsed_s = self._switching_s = 0.0
        self._last_s: dict[Phase, float] = {}

    def add(self, phase: Phase, measured_s: float, elapsed_s: float) -> None:
        """Add a segment: its measured time, and its total time including attaching and detaching."""
        self._missing.discard(phase)
        self._last_s[phase] = max(0.0, elapsed_s - measured_s)
        self._switching_s += self._last_s[phase]
        self._elapsed_s += elapsed_s

    def shortest_s(self, phase: Phase) -> float:
        """Return the minimum length of a segment of `phase`: the time of its last hooking if slow, else 0."""
        last_s = self._last_s.get(phase, 0.0)
        return max(0.0, min(last_s, self._limit_s - self._elapsed_s)) if last_s > QUICK_SWITCH_S else 0.0

    def why_over(self) -> str | None:
        """Return the reason why the run must end before its last segment, or None.

        A run never ends before each phase has had a segment.
        """
        if self._missing or self._elapsed_s <= self._limit_s:
            return None
        return (
            f"attaching and detaching hooks took {self._switching_s:.1f} of {self._elapsed_s:.1f} s: "
            "repeat when idle"
        )
