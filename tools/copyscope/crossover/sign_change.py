"""Where a curve changes its sign, over many draws of it: a size with an interval. Pure.

A curve is the logarithm of a cost ratio, second / first strategy, as a function of the message size: above
zero the second is the dearer one.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

LogRatio = Callable[[float], float]
Kind = Literal["crosses", "never", "always", "open"]

STEPS = 12  # halvings of the logarithm between two measured sizes: finer than any interval
TAIL = 0.025
# draws that cross the other way round than the measurement; more of them, and nothing is known
AMBIGUOUS = 0.05


@dataclass(frozen=True)
class Crossing:
    """`rising`: the second strategy wins above the size, else below it; None without a crossing.

    `low` and `high` None: that end of the interval lies outside of the measured sizes.
    `level` 0: nothing was repeated, so there is no interval.
    """

    kind: Kind
    size: float | None
    low: float | None
    high: float | None
    rising: bool | None
    level: float

    def second_better(self, size_bytes: float) -> bool | None:
        """Which side of the crossing a size is on; None where nothing is said of it."""
        if self.kind == "never":
            return False
        if self.kind == "always":
            return True
        if self.size is None or self.rising is None:
            return None
        return (size_bytes > self.size) == self.rising


def find(sizes: Sequence[int], curves: Sequence[LogRatio], repeated: bool) -> Crossing:
    """The crossing of the first curve (the measurement), with an interval from the others (its draws)."""
    turns = _turns(sizes, curves[0])
    rising = turns[0][0] if turns else None
    size = _bisect(curves[0], *turns[0][1:]) if turns else None
    if not repeated:
        return Crossing("open", size, None, None, rising, 0.0)
    # without a crossing of the measurement its draws are read as those of a strategy that wins when large
    upwards = True if rising is None else rising
    places = [_place(sizes, curve, upwards) for curve in curves[1:]]
    known = sorted(place for place in places if place is not None)
    nowhere = Crossing("open", None, None, None, None, 0.95)
    if len(known) < (1 - AMBIGUOUS) * len(places):
        return nowhere
    low = known[math.floor(TAIL * (len(known) - 1))]
    high = known[math.ceil((1 - TAIL) * (len(known) - 1))]
    if low == high and low in (0.0, math.inf):
        return replace(nowhere, kind="never" if (low == math.inf) == upwards else "always")
    ends = [end if 0 < end < math.inf else None for end in (low, high)]
    if size is None or ends == [None, None]:
        return nowhere
    return Crossing("open" if None in ends else "crosses", size, ends[0], ends[1], rising, 0.95)


def _turns(sizes: Sequence[int], curve: LogRatio) -> list[tuple[bool, int, int]]:
    """(rising, the size before, the size after) of each change of sign, the last one first."""
    dearer = [curve(size) > 0 for size in sizes]
    found = zip(pairwise(dearer), pairwise(sizes), strict=True)
    return [(before, low, high) for (before, after), (low, high) in found if before != after][::-1]


def _place(sizes: Sequence[int], curve: LogRatio, rising: bool) -> float | None:
    """Where this draw crosses that way: 0 below all sizes, infinity above all, None the other way."""
    turns = _turns(sizes, curve)
    if not turns:
        return math.inf if (curve(sizes[0]) > 0) == rising else 0.0
    ends = next((ends for direction, *ends in turns if direction == rising), None)
    return None if ends is None else _bisect(curve, *ends)


def _bisect(curve: LogRatio, low: float, high: float) -> float:
    begin, end = math.log(low), math.log(high)
    dearer = curve(low) > 0
    for _ in range(STEPS):
        middle = (begin + end) / 2
        if (curve(math.exp(middle)) > 0) == dearer:
            begin = middle
        else:
            end = middle
    return math.exp((begin + end) / 2)


def interpolate(sizes: Sequence[int], values: Sequence[float]) -> LogRatio:
    """The curve through measured values, straight in the logarithm of the size between them."""
    logs = [math.log(size) for size in sizes]

    def at(size: float) -> float:
        log = math.log(size)
        above = min(max(1, bisect_left(logs, log)), len(logs) - 1)
        part = (log - logs[above - 1]) / (logs[above] - logs[above - 1])
        return values[above - 1] + (values[above] - values[above - 1]) * part

    return at
