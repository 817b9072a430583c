"""Which instruments are attached when, and for how long: each block has every arm of its phase once. Pure.

To hook functions takes a second and to let go of them several, so they have a phase of their own, the last:
hooked once, they count in some segments and do nothing in the others, which are the control of these.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat

from copyscope.errors import UsageError
from copyscope.plan.arms import EXACT, Arm

# Parts of the measuring time, in proportion. The ledger needs samples, the control needs steadiness, calls
# and bytes are counted one by one and need little.
ARM_WEIGHTS: Mapping[Arm, float] = {
    **{"unprobed": 0.30, "ledger": 0.60, "calls": 0.10, "bytes": 0.05, "functions": 0.20, "unarmed": 0.15},
}
# A watched program pays most for its calls being timed: of a block no more than this.
WATCHED_CALLS_S = 0.05
# Short enough that drift hits all arms alike and the stack map never fills; a pause of 10 ms is small to it.
BLOCK_MAX_S = 2.0
BLOCKS_WANTED = 6
# A watched program goes on while hooks come and go: with fewer blocks that is a small part of each.
WATCHED_BLOCK_MAX_S = 2.5
BLOCKS_MIN = 3
DURATION_MIN_S = 0.5
# Without a duration: a program may end at any moment, so every arm sees it soon.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)
# What attaching and detaching take at most without the segment between them being as long.
SWITCHING_QUICK_S = 0.1
# A run for a duration takes at most so much longer.
LONGEST_TIMES, LONGEST_MORE_S = 2, 5.0


@dataclass(frozen=True)
class Segment:
    """A stretch of time with one set of programs attached."""

    index: int
    block: int
    arm: Arm
    length_s: float


def schedule_segments(duration_s: float, arms: Sequence[Arm], seed: int) -> list[Segment]:
    """For traffic of our own; duration_s is the sum of all segments, the pauses come on top."""
    lengths_s = _equal_lengths(duration_s, BLOCK_MAX_S, BLOCKS_WANTED)
    return list(_phases(lengths_s, arms, seed))


def watched_segments(
    duration_s: float | None, arms: Sequence[Arm], seed: int, block_s: float | None = None
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
    found = _phases(lengths_s, arms, seed, WATCHED_CALLS_S)
    first = [next(found) for arm in arms if arm not in EXACT]
    first.sort(key=lambda segment: ("calls" not in segment.arm, "ledger" not in segment.arm))
    yield from (replace(segment, index=index) for index, segment in enumerate(first))
    yield from found


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


def _phases(
    lengths_s: Iterable[float], arms: Sequence[Arm], seed: int, calls_most_s: float = math.inf
) -> Iterator[Segment]:
    """As many blocks without function hooks, and then with them, if they are among the arms."""
    shuffler, number = random.Random(seed), count()
    hooked = [arm for arm in arms if arm in EXACT]
    if not hooked:
        yield from _blocks(enumerate(lengths_s), arms, shuffler, number, calls_most_s)
        return
    others = [arm for arm in arms if arm not in EXACT]
    whole_s = list(lengths_s)
    share = _weight(hooked) / _weight(arms)
    sampled = ((block, (1 - share) * block_s) for block, block_s in enumerate(whole_s))
    yield from _blocks(sampled, others, shuffler, number, calls_most_s)
    exact = ((block, share * block_s) for block, block_s in enumerate(whole_s, start=len(whole_s)))
    yield from _blocks(exact, hooked, shuffler, number, calls_most_s)


def _blocks(
    lengths_s: Iterable[tuple[int, float]],
    arms: Sequence[Arm],
    shuffler: random.Random,
    number: Iterator[int],
    calls_most_s: float,
) -> Iterator[Segment]:
    """A randomised block design: each block holds every arm once, in seeded order."""
    for block, block_s in lengths_s:
        lengths = _divided(block_s, arms, calls_most_s)
        order = list(arms)
        shuffler.shuffle(order)
        for arm in order:
            yield Segment(next(number), block, arm, lengths[arm])


def _weight(arms: Iterable[Arm]) -> float:
    return sum(map(ARM_WEIGHTS.__getitem__, arms))


def _divided(block_s: float, arms: Sequence[Arm], calls_most_s: float) -> dict[Arm, float]:
    """The length of each arm's segment in a block."""
    found = {arm: block_s * ARM_WEIGHTS[arm] / _weight(arms) for arm in arms}
    calls_s = found.get("calls", 0.0)
    if calls_s <= calls_most_s or len(arms) == 1:
        return found
    rest = {arm: one_s * (block_s - calls_most_s) / (block_s - calls_s) for arm, one_s in found.items()}
    return rest | {"calls": calls_most_s}


class Bound:
    """What attaching and detaching take: where that is long there is less of it, and the run ends in time.

    Where all CPUs are busy with softirqs the kernel lets one hook wait for seconds.
    """

    def __init__(self, duration_s: float | None, arms: Iterable[Arm]) -> None:
        self._most_s = math.inf if duration_s is None else LONGEST_TIMES * duration_s + LONGEST_MORE_S
        self._missing = set(arms)
        self._elapsed_s = self._switching_s = 0.0
        self._last_s: dict[Arm, float] = {}

    def add(self, arm: Arm, measured_s: float, elapsed_s: float) -> None:
        """One segment, and how long it took with all that is attached and detached for it."""
        self._missing.discard(arm)
        self._last_s[arm] = max(0.0, elapsed_s - measured_s)
        self._switching_s += self._last_s[arm]
        self._elapsed_s += elapsed_s

    def least_s(self, arm: Arm) -> float:
        """A segment is no shorter than what its hooks took to come and go the last time, if that was long."""
        last_s = self._last_s.get(arm, 0.0)
        return max(0.0, min(last_s, self._most_s - self._elapsed_s)) if last_s > SWITCHING_QUICK_S else 0.0

    def over(self) -> str | None:
        """Why the run ends before all of its segments; each arm has one."""
        if self._missing or self._elapsed_s <= self._most_s:
            return None
        return (
            f"attaching and detaching hooks took {self._switching_s:.1f} of {self._elapsed_s:.1f} s: "
            "repeat when idle"
        )
