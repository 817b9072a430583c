"""Which instruments are attached when, and for how long: each block has every phase once. Pure.

To hook functions takes a second and to let go of them several, so they have blocks of their own, the last:
hooked once, they count in some segments and do nothing in the others, which are the control of these.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat

from copyscope.errors import UsageError
from copyscope.plan.instruments import EXACT, Phase

# Parts of the measuring time, in proportion. The ledger needs samples, the control needs steadiness, calls
# and bytes are counted one by one and need little.
PHASE_WEIGHTS: Mapping[Phase, float] = {
    **{"unprobed": 0.30, "ledger": 0.60, "calls": 0.10, "bytes": 0.05, "functions": 0.20, "unarmed": 0.15},
}
# A watched program pays most for its calls being timed: of a block no more than this.
WATCHED_CALLS_S = 0.05
# Short enough that drift hits all phases alike and the stack map never fills; a pause of 10 ms is little.
BLOCK_MAX_S = 2.0
BLOCKS_WANTED = 6
# A watched program goes on while hooks come and go: with fewer blocks that is a small part of each.
WATCHED_BLOCK_MAX_S = 2.5
BLOCKS_MIN = 3
DURATION_MIN_S = 0.5
# Without a duration: a program may end at any moment, so every phase sees it soon.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)
# What attaching and detaching take at most without the segment between them being as long.
SWITCHING_QUICK_S = 0.1
# A run for a duration takes at most so much longer.
LONGEST_TIMES, LONGEST_MORE_S = 2, 5.0


# Of a program that is served without an end so much of a block is sampled; its counts are read after so many
# seconds at most.
SERVED_BLOCK_S, SAMPLED_S, READ_EVERY_S = 15.0, 1.0, 5.0


@dataclass(frozen=True)
class Segment:
    """A stretch of time with one set of programs attached."""

    index: int
    block: int
    phase: Phase
    length_s: float
    # What it has attached, if not what all of its phase have.
    probes: tuple[str, ...] | None = None


def schedule_segments(duration_s: float, phases: Sequence[Phase], seed: int) -> list[Segment]:
    """For traffic of our own; duration_s is the sum of all segments, the pauses come on top."""
    lengths_s = _equal_lengths(duration_s, BLOCK_MAX_S, BLOCKS_WANTED)
    return list(_sampled_then_hooked(lengths_s, phases, seed))


def watched_segments(
    duration_s: float | None, phases: Sequence[Phase], seed: int, block_s: float | None = None
) -> Iterator[Segment]:
    """For a program that is watched: for a duration, or without an end; with an end functions may be hooked.

    `block_s` sets the length of a block, also for a duration: the last one may then be cut short by its end.
    The very first segment times calls: it sees whether the program takes bytes by splice(2), whose hook is
    there from the next one on. That is the ledger's: perf's events are on the threads until it has begun.
    """
    lengths_s: Iterable[float]
    if duration_s is not None and block_s is None:
        lengths_s = _equal_lengths(duration_s, WATCHED_BLOCK_MAX_S, BLOCKS_MIN)
    else:
        lengths_s = _growing_lengths(duration_s, block_s)
    found = _sampled_then_hooked(lengths_s, phases, seed, WATCHED_CALLS_S)
    first = [next(found) for phase in phases if phase not in EXACT]
    first.sort(key=lambda segment: ("calls" not in segment.phase, "ledger" not in segment.phase))
    yield from (replace(segment, index=index) for index, segment in enumerate(first))
    yield from found


def served_segments(seed: int, block_s: float = SERVED_BLOCK_S) -> Iterator[Segment]:
    """Without an end: a sampled second in each block, in the first at once, later where chance puts it.

    A program that does the same every so many seconds is seen at all of it.
    """
    shuffler, number = random.Random(seed), count()
    parts = math.ceil((block_s - SAMPLED_S) / READ_EVERY_S)
    for block in count():
        made: list[tuple[Phase, float]] = [("unprobed", (block_s - SAMPLED_S) / parts)] * parts * (block > 0)
        made.insert(shuffler.randint(0, len(made)), ("ledger", SAMPLED_S))
        yield from (Segment(next(number), block, phase, length_s) for phase, length_s in made)


def _equal_lengths(duration_s: float, most_s: float, wanted: int) -> list[float]:
    if duration_s < DURATION_MIN_S:
        raise UsageError(
            f"--duration: {duration_s:g} s: too short to leave the socket buffers and to compare segments: "
            f"at least {DURATION_MIN_S:g} s, or --messages N for a fixed count"
        )
    blocks = max(BLOCKS_MIN, round(duration_s / min(most_s, duration_s / wanted)))
    return [duration_s / blocks] * blocks


def _growing_lengths(duration_s: float | None, block_s: float | None) -> Iterator[float]:
    left_s = math.inf if duration_s is None else duration_s
    for length_s in chain(FIRST_BLOCKS_S, repeat(block_s or BLOCK_MAX_S)):
        if left_s <= 0:
            return
        left_s -= length_s
        yield length_s


def _sampled_then_hooked(
    lengths_s: Iterable[float], phases: Sequence[Phase], seed: int, calls_most_s: float = math.inf
) -> Iterator[Segment]:
    """As many blocks without function hooks, and then with them, if they are among the phases."""
    shuffler, number = random.Random(seed), count()
    hooked = [phase for phase in phases if phase in EXACT]
    if not hooked:
        yield from _blocks(enumerate(lengths_s), phases, shuffler, number, calls_most_s)
        return
    others = [phase for phase in phases if phase not in EXACT]
    whole_s = list(lengths_s)
    share = _weight(hooked) / _weight(phases)
    sampled = ((block, (1 - share) * block_s) for block, block_s in enumerate(whole_s))
    yield from _blocks(sampled, others, shuffler, number, calls_most_s)
    exact = ((block, share * block_s) for block, block_s in enumerate(whole_s, start=len(whole_s)))
    yield from _blocks(exact, hooked, shuffler, number, calls_most_s)


def _blocks(
    lengths_s: Iterable[tuple[int, float]],
    phases: Sequence[Phase],
    shuffler: random.Random,
    number: Iterator[int],
    calls_most_s: float,
) -> Iterator[Segment]:
    """A randomised block design: each block holds every phase once, in seeded order."""
    for block, block_s in lengths_s:
        lengths = _divided(block_s, phases, calls_most_s)
        order = list(phases)
        shuffler.shuffle(order)
        for phase in order:
            yield Segment(next(number), block, phase, lengths[phase])


def _weight(phases: Iterable[Phase]) -> float:
    return sum(map(PHASE_WEIGHTS.__getitem__, phases))


def _divided(block_s: float, phases: Sequence[Phase], calls_most_s: float) -> dict[Phase, float]:
    """The length of each phase's segment in a block."""
    found = {phase: block_s * PHASE_WEIGHTS[phase] / _weight(phases) for phase in phases}
    calls_s = found.get("calls", 0.0)
    if calls_s <= calls_most_s or len(phases) == 1:
        return found
    rest = {phase: one_s * (block_s - calls_most_s) / (block_s - calls_s) for phase, one_s in found.items()}
    return rest | {"calls": calls_most_s}


class Bound:
    """What attaching and detaching take: where that is long there is less of it, and the run ends in time.

    Where all CPUs are busy with softirqs the kernel lets one hook wait for seconds.
    """

    def __init__(self, duration_s: float | None, phases: Iterable[Phase]) -> None:
        self._most_s = math.inf if duration_s is None else LONGEST_TIMES * duration_s + LONGEST_MORE_S
        self._missing = set(phases)
        self._elapsed_s = self._switching_s = 0.0
        self._last_s: dict[Phase, float] = {}

    def add(self, phase: Phase, measured_s: float, elapsed_s: float) -> None:
        """One segment, and how long it took with all that is attached and detached for it."""
        self._missing.discard(phase)
        self._last_s[phase] = max(0.0, elapsed_s - measured_s)
        self._switching_s += self._last_s[phase]
        self._elapsed_s += elapsed_s

    def least_s(self, phase: Phase) -> float:
        """A segment is no shorter than what its hooks took to come and go the last time, if that was long."""
        last_s = self._last_s.get(phase, 0.0)
        return max(0.0, min(last_s, self._most_s - self._elapsed_s)) if last_s > SWITCHING_QUICK_S else 0.0

    def over(self) -> str | None:
        """Why the run ends before all of its segments; each phase has one."""
        if self._missing or self._elapsed_s <= self._most_s:
            return None
        return (
            f"attaching and detaching hooks took {self._switching_s:.1f} of {self._elapsed_s:.1f} s: "
            "repeat when idle"
        )
