# SPDX-License-Identifier: GPL-2.0-only
"""Crossings of two measured costs: the message size at which their ratio crosses 1, with its interval. Pure.

Between two measured sizes the logarithm of a cost, or of a ratio, is interpolated linearly in the logarithm
of the size. Nothing is assumed beyond the measured sizes.

The cost of a message is roughly a constant for each call plus a constant for each byte. If calls dominate,
the cost per byte is proportional to the inverse of the size. If bytes dominate, the cost is linear in the
size. Intervals contain both models and the logarithmic interpolation, so they are wide between measured sizes
that are far apart.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from copyscope.base import stats
from copyscope.base.stats import Estimate

Verdict = Literal["crosses", "never", "always", "undetermined"]
# Verdicts for a second strategy that is better, or worse, at each measured size.
ALWAYS: Verdict = "always"
NEVER: Verdict = "never"

# Number of bootstrap draws. Each draw resamples the repeats of each size at random.
DRAWS = 400
# Fraction (0..1) of the draws that lie below an interval. An equal part lies above it.
TAIL = 0.025
# Maximum fraction (0..1) of the draws that may cross several times, or in the opposite direction. Above it, a
# crossing is undetermined.
AMBIGUOUS_MAX = 0.05
# Number of repeats -> factor by which the repeats' distances from their median are increased; see _widened().
WIDENING = {2: 4.0, 3: 2.0}


def at_size(measured: Mapping[int, Estimate], size_bytes: float) -> Estimate | None:
    """Return the estimate at a size, interpolated between measured sizes, or None beyond the measured sizes.

    measured: size -> estimate
    """
    sizes = sorted(measured)
    if not sizes or not sizes[0] <= size_bytes <= sizes[-1]:
        return None
    if size_bytes in sizes:
        return measured[int(size_bytes)]
    index = bisect_left(sizes, size_bytes)
    below, above = sizes[index - 1], sizes[index]
    a, b = measured[below], measured[above]
    positions = _positions(below, above, size_bytes)
    value, samples = _interpolate(a.value, b.value, positions[1]), min(a.samples, b.samples)
    if a.ends is None or b.ends is None:
        return Estimate(value, None, None, 0.0, samples)
    low = min(_interpolate(a.ends[0], b.ends[0], position) for position in positions)
    high = max(_interpolate(a.ends[1], b.ends[1], position) for position in positions)
    return Estimate(value, low, high, min(a.level, b.level), samples)


def _positions(below: float, above: float, size: float) -> tuple[float, float, float]:
    """Return positions (0..1) of a size between `below` and `above`: on an inverse, log and linear scale."""
    return (
        (1 / below - 1 / size) / (1 / below - 1 / above),
        math.log(size / below) / math.log(above / below),
        (size - below) / (above - below),
    )


def _interpolate(a: float, b: float, position: float) -> float:
    """Interpolate between a and b at a position (0..1), logarithmically if both are positive."""
    if a > 0 and b > 0:
        return float(a ** (1 - position) * b**position)
    return a + (b - a) * position


@dataclass(frozen=True)
class Crossing:
    """The size at which the second strategy overtakes the first, and the interval of that size.

    rising: True if the second strategy is better above the size, False if below; None if there is no crossing
    low, high: None if that end of the interval lies outside the measured sizes
    level: probability of the interval; 0 if there is none because nothing was repeated
    """

    verdict: Verdict
    size: float | None
    low: float | None
    high: float | None
    rising: bool | None
    level: float


def find_crossing(ratios: Mapping[int, Sequence[float]], seed: str) -> Crossing:
    """Return the size at which the second strategy overtakes the first, with its interval.

    ratios: size -> cost of the second strategy divided by the cost of the first, for each repeat
    seed: seed of the random draws

    At that size the median ratio crosses 1. The interval comes from a bootstrap: the repeats of each size are
    drawn again, with replacement. A strategy is called better at all sizes, or above a size, only if the
    interval of the ratio at each of these sizes excludes 1.
    """
    sizes = sorted(ratios)
    verdicts = {size: stats.median_of(ratios[size]).against(1.0) for size in sizes}
    changes = _sign_changes(sizes, [median(ratios[size]) for size in sizes])
    rising, size = (changes[0].rising, changes[0].size) if len(changes) == 1 else (None, None)
    if min(map(len, ratios.values())) < 2:
        return Crossing("undetermined", size, None, None, rising, 0.0)
    undetermined = Crossing("undetermined", None, None, None, None, stats.LEVEL)
    for verdict, word in ((stats.LESS, ALWAYS), (stats.MORE, NEVER)):
        if set(verdicts.values()) == {verdict}:
            return replace(undetermined, verdict=word)
    if size is None or rising is None:
        return undetermined
    ends = _interval(sizes, _widened(ratios), rising, seed)
    low, high = (end if 0 < end < math.inf else None for end in ends or (0.0, math.inf))
    if low is None and high is None:
        return undetermined
    crossing = Crossing("undetermined", size, low, high, rising, stats.LEVEL)
    return replace(crossing, verdict="crosses") if _all_decide(crossing, verdicts) else crossing


def _all_decide(crossing: Crossing, verdicts: Mapping[int, str]) -> bool:
    """Return True if the interval has two ends, and all sizes outside the interval agree with the crossing.

    verdicts: size -> LESS if the second strategy costs less for certain, MORE or SAME
    """
    if crossing.low is None or crossing.high is None:
        return False
    below, above = (stats.MORE, stats.LESS) if crossing.rising else (stats.LESS, stats.MORE)
    low, high = crossing.low, crossing.high
    return all(verdict == below for size, verdict in verdicts.items() if size <= low) and all(
        verdict == above for size, verdict in verdicts.items() if size >= high
    )


def _interval(
    sizes: Sequence[int], ratios: Mapping[int, Sequence[float]], upwards: bool, seed: str
) -> tuple[float, float] | None:
    """Return the two sizes between which 95 % of the draws cross 1, or None if too many are ambiguous.

    ratios: size -> cost of the second strategy divided by the cost of the first, for each repeat
    upwards: direction of the crossing; seed: seed of the random draws
    """
    crossings = [_draw_ends(sizes, medians, upwards) for medians in _drawn_medians(sizes, ratios, seed)]
    ends = [crossing for crossing in crossings if crossing is not None]
    if len(ends) < (1 - AMBIGUOUS_MAX) * len(crossings):
        return None
    low = sorted(low for low, _ in ends)[math.floor(TAIL * (len(ends) - 1))]
    high = sorted(high for _, high in ends)[math.ceil((1 - TAIL) * (len(ends) - 1))]
    return low, high


@dataclass(frozen=True)
class SignChange:
    """A crossing between two neighbouring sizes, and the range of its size from the three interpolations."""

    rising: bool
    low: float
    size: float
    high: float


def _sign_changes(sizes: Sequence[int], ratios: Sequence[float]) -> list[SignChange]:
    """Return the sizes at which the ratio crosses 1."""
    changes = []
    for (below, a), (above, b) in pairwise(zip(sizes, map(math.log, ratios), strict=True)):
        if (a > 0) != (b > 0):
            position = a / (a - b)
            low = 1 / ((1 - position) / below + position / above)
            size, high = _interpolate(below, above, position), below + (above - below) * position
            changes.append(SignChange(a > 0, low, size, high))
    return changes


def _draw_ends(sizes: Sequence[int], ratios: Sequence[float], upwards: bool) -> tuple[float, float] | None:
    """Return the range of sizes in which a single draw crosses 1 in the direction `upwards`.

    0 stands for a crossing below all sizes, and infinity for a crossing above all sizes. Return None if the
    draw crosses several times, or in the opposite direction.
    """
    match _sign_changes(sizes, ratios):
        case []:
            outside = math.inf if (ratios[0] > 1) == upwards else 0.0
            return outside, outside
        case [change] if change.rising == upwards:
            return change.low, change.high
    return None


def _drawn_medians(
    sizes: Sequence[int], ratios: Mapping[int, Sequence[float]], seed: str
) -> Iterator[list[float]]:
    """Yield DRAWS lists of medians: for each size the median of its repeats, drawn again with replacement."""
    # A text seed gives the same draws on every machine. A name in a record may contain invalid UTF-8.
    generator = random.Random(seed.encode(errors="surrogatepass"))
    # Cache (repeats of a draw -> median), because there are only ten different draws of three repeats.
    medians: dict[tuple[float, ...], float] = {}
    for _ in range(DRAWS):
        draws = [
            tuple(sorted(generator.choices(values, k=len(values))))
            for values in (ratios[size] for size in sizes)
        ]
        for draw in draws:
            if draw not in medians:
                medians[draw] = median(draw)
        yield [medians[draw] for draw in draws]


def _widened(ratios: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """Return the ratios of each size. If there are only two or three, move them further from their median.

    A draw never leaves the range of the repeats, and the range of so few repeats contains the true value too
    rarely. With WIDENING, 95 % of simulated intervals contain it (tests/pure/test_crossover.py).
    """
    widened = {}
    for size, values in ratios.items():
        middle, factor = median(values), WIDENING.get(len(values), 1.0)
        widened[size] = [middle * (value / middle) ** factor for value in values]
    return widened
