"""When which instruments are attached, for a run whose end nobody may know."""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from copyscope.plan.arms import ARM_WEIGHTS, BLOCK_MAX_S, Arm, Segment, schedule_segments

# A program that may end at any moment is seen by every arm soon; one that goes on is disturbed seldom.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)
# The hooks that time calls are the dear ones: they make every system call of the machine take its slow way.
WEIGHTS: Mapping[Arm, float] = {**ARM_WEIGHTS, "calls": 0.05}
# Of a busy program so many calls a segment are enough, and its segment is as short as that takes.
CALLS_WANTED = 2000
CALLS_LEAST_S = 0.01
# The first, of which nothing is known yet.
CALLS_FIRST_S = 0.05
# A run for a duration takes at most so much longer.
LONGEST_TIMES, LONGEST_MORE_S = 2, 5.0


def segments(
    duration_s: float | None, arms: Sequence[Arm], seed: int, block_s: float | None = None
) -> Iterator[Segment]:
    """Blocks that hold every arm once, in seeded order: for a duration, or without an end.

    `block_s` sets the length of a block, also for a duration: the last one may then be cut short by its end.
    The very first segment times calls: what it has seen decides what the others attach.
    """
    found = _blocks(duration_s, arms, seed, block_s)
    first = [next(found) for _ in arms]
    first.sort(key=lambda segment: "calls" not in segment.arm)
    yield from (replace(segment, index=index) for index, segment in enumerate(first))
    yield from found


def _blocks(
    duration_s: float | None, arms: Sequence[Arm], seed: int, block_s: float | None
) -> Iterator[Segment]:
    if duration_s is not None and block_s is None:
        yield from schedule_segments(duration_s, arms, seed, WEIGHTS)
        return
    shuffler = random.Random(seed)
    total_weight = sum(WEIGHTS[arm] for arm in arms)
    index = block = 0
    left_s = math.inf if duration_s is None else duration_s
    while left_s > 0:
        length_s = FIRST_BLOCKS_S[block] if block < len(FIRST_BLOCKS_S) else block_s or BLOCK_MAX_S
        left_s -= length_s
        order = list(arms)
        shuffler.shuffle(order)
        if block < len(FIRST_BLOCKS_S):
            # Function hooks take longest to attach: a program that ends soon is not to end meanwhile.
            order.sort(key=lambda arm: arm == "functions")
        for arm in order:
            yield Segment(index, block, arm, length_s * WEIGHTS[arm] / total_weight)
            index += 1
        block += 1


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
        """A segment is no shorter than what its hooks took to come and go the last time."""
        return max(0.0, min(self._last_s.get(arm, 0.0), self._most_s - self._elapsed_s))

    def over(self) -> str | None:
        """Why the run ends before all of its segments; each arm has one."""
        if self._missing or self._elapsed_s <= self._most_s:
            return None
        return (
            f"attaching and detaching hooks took {self._switching_s:.1f} of {self._elapsed_s:.1f} s: "
            "repeat when idle"
        )
