"""Which instruments are attached when, and for how long: each block has every arm once. Pure."""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from copyscope.errors import UsageError
from copyscope.plan.arms import Arm

# Parts of the measuring time, in proportion. The ledger needs samples, the control needs steadiness, calls
# and bytes are counted one by one and need little.
ARM_WEIGHTS: Mapping[Arm, float] = {
    **{"unprobed": 0.30, "ledger": 0.60, "calls": 0.10, "bytes": 0.05, "functions": 0.20},
}
# The hooks that time calls are the dear ones: they make every system call of the machine take its slow way.
WATCHED_WEIGHTS: Mapping[Arm, float] = {**ARM_WEIGHTS, "calls": 0.05}
# Short enough that drift hits all arms alike and the stack map never fills; a pause of 10 ms is small to it.
BLOCK_MAX_S = 2.0
BLOCKS_WANTED = 6
# A program that runs already goes on while hooks come and go, and what we do then stops it, or who talks to
# it: a block took 20 ms of CPU time. So there are fewer, and longer ones.
RUNNING_BLOCK_MAX_S = 2.5
RUNNING_BLOCKS_WANTED = 4
BLOCKS_MIN = 3
DURATION_MIN_S = 0.5
# Without a duration. A command may end at any moment, so every arm sees it soon. Of the requests of an nginx
# that ran already short first blocks took 4 % more.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)
FIRST_BLOCKS_OF_RUNNING_S = (1.0, 1.0, 2.0)
# Of a busy program so many calls a segment are enough, and its segment is as short as that takes.
CALLS_WANTED = 1000
CALLS_LEAST_S = 0.01
# The first, of which nothing is known yet.
CALLS_FIRST_S = 0.05
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
    return list(_blocks(lengths_s, arms, seed, ARM_WEIGHTS))


def watched_segments(
    duration_s: float | None,
    arms: Sequence[Arm],
    seed: int,
    block_s: float | None = None,
    *,
    running: bool = False,
) -> Iterator[Segment]:
    """For a program that is watched: for a duration, or without an end. Unless `running`, we start it.

    `block_s` sets the length of a block, also for a duration: the last one may then be cut short by its end.
    The very first segment times calls: what it has seen decides what the others attach. The next one is the
    ledger's: perf's events are on the program's threads from the start until they have counted enough there.
    """
    lengths_s: Iterable[float]
    if duration_s is not None and block_s is None:
        most_s = RUNNING_BLOCK_MAX_S if running else BLOCK_MAX_S
        wanted = RUNNING_BLOCKS_WANTED if running else BLOCKS_WANTED
        lengths_s, functions_last = _equal_lengths(duration_s, most_s, wanted), 0
    else:
        # Function hooks take longest to attach: a program that ends soon is not to end meanwhile.
        lengths_s = _growing_lengths(duration_s, block_s, running)
        functions_last = len(FIRST_BLOCKS_S)
    found = _blocks(lengths_s, arms, seed, WATCHED_WEIGHTS, functions_last)
    first = [next(found) for _ in arms]
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


def _growing_lengths(duration_s: float | None, block_s: float | None, running: bool) -> Iterator[float]:
    left_s = math.inf if duration_s is None else duration_s
    first_s = FIRST_BLOCKS_OF_RUNNING_S if running else FIRST_BLOCKS_S
    for length_s in chain(first_s, repeat(block_s or BLOCK_MAX_S)):
        if left_s <= 0:
            return
        left_s -= length_s
        yield length_s


def _blocks(
    lengths_s: Iterable[float],
    arms: Sequence[Arm],
    seed: int,
    weights: Mapping[Arm, float],
    functions_last: int = 0,
) -> Iterator[Segment]:
    """A randomised block design: each block holds every arm once, in seeded order.

    `functions_last`: in so many of the first blocks the arm `functions` stands at the end.
    """
    shuffler = random.Random(seed)
    total_weight = sum(weights[arm] for arm in arms)
    for block, length_s in enumerate(lengths_s):
        order = list(arms)
        shuffler.shuffle(order)
        if block < functions_last:
            order.sort(key=lambda arm: arm == "functions")
        for number, arm in enumerate(order):
            yield Segment(block * len(arms) + number, block, arm, length_s * weights[arm] / total_weight)


class Lengths:
    """How long each segment is in the end: what one that times calls does not need, the next one gets."""

    def __init__(self) -> None:
        self._spare_s = 0.0
        self._calls = 0
        self._elapsed_s = 0.0

    def of(self, segment: Segment) -> float:
        """The time that it is to have, from the rate of calls so far."""
        if segment.arm != "calls":
            length_s, self._spare_s = segment.length_s + self._spare_s, 0.0
            return length_s
        if self._elapsed_s == 0.0:
            needed_s = CALLS_FIRST_S
        elif self._calls:
            needed_s = CALLS_WANTED * self._elapsed_s / self._calls
        else:
            needed_s = segment.length_s
        length_s = min(segment.length_s, max(CALLS_LEAST_S, needed_s))
        self._spare_s += segment.length_s - length_s
        return length_s

    def skip(self, segment: Segment) -> None:
        """Its time is the next one's."""
        self._spare_s += segment.length_s

    def add(self, calls: int, elapsed_s: float) -> None:
        """What a segment has seen at the socket."""
        self._calls, self._elapsed_s = calls, elapsed_s


def rest_of_first(length_s: float, calls: int, *, only: bool) -> float:
    """How long the first segment goes on when it has seen this in its first CALLS_LEAST_S.

    Of a busy program much is known by then; unless it is the only segment, which is the whole run.
    """
    return 0.0 if calls >= CALLS_WANTED and not only else length_s - CALLS_LEAST_S


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
