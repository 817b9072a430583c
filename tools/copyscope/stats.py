"""Estimates and intervals, all of them: of what was repeated, of shares, of counts. Pure and reproducible.

What was repeated has one estimate for all readers, the sweep as well as the observer effect: a median, or
the mean difference of two groups, with Student's interval of a few repeats or the order statistics of many.
A share of samples has Wilson's score interval (Wilson 1927: it stays inside 0..1 and does not collapse at 0
hits), a count the exact Poisson interval (through the chi-square quantile, Wilson and Hilferty 1931).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, median

LEVEL = 0.95
# Of repeats: from so many on their order tells between which of them the median lies.
MANY = 9
MORE, LESS, SAME = "more", "less", "no difference found"


@dataclass(frozen=True)
class Interval:
    """`low` and `high` hold the value with probability `level`, in the unit of the value."""

    low: float
    high: float
    level: float = LEVEL

    def scaled(self, factor: float) -> "Interval":
        """The same interval in another unit: both ends times `factor` (>= 0)."""
        return Interval(self.low * factor, self.high * factor, self.level)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; low and high are None after one repeat, and level is 0 then."""

    value: float
    low: float | None
    high: float | None
    level: float
    samples: int

    @property
    def ends(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def against(self, value: float) -> str:
        """Whether this is more or less than a value, or no difference was found: the interval holds it."""
        if self.ends is None or self.ends[0] <= value <= self.ends[1]:
            return SAME
        return MORE if self.ends[0] > value else LESS


@dataclass(frozen=True)
class Missing:
    """Why there is no estimate."""

    reason: str


def median_of(values: Sequence[float]) -> Estimate:
    """The median of repeats with a 95 % interval that is honest for few of them.

    A percentile bootstrap is not: n values cannot leave their range, which holds the median with a
    probability of 1 - 2^(1-n) only (75 % for three), and its intervals of seven to fifteen values cover 88 to
    92 %. So up to eight values get Student's interval around the mean of their logarithms: 95 % where noise
    is about lognormal (times are), as much with one wild run in ten (tests/pure/test_stats.py simulates
    both). It always holds the median itself, because mean and median differ by less than one standard
    deviation. Values that are not all positive are taken as they are. Nine and more get two of their own,
    counted from both ends, which hold the median whatever its distribution (order statistics: the number
    below it is binomial). Raises ValueError for no values.
    """
    if not values:
        raise ValueError("median: no values: nothing to estimate: measure at least once")
    count, middle = len(values), median(values)
    if count >= MANY:
        ordered, outside = sorted(values), _outside(count)
        return Estimate(middle, ordered[outside], ordered[-1 - outside], LEVEL, count)
    logarithmic = min(values) > 0
    scale = [math.log(value) for value in values] if logarithmic else values
    half = _half([scale], LEVEL)
    if half is None:
        return Estimate(middle, None, None, 0.0, count)
    low, high = fmean(scale) - half, fmean(scale) + half
    if logarithmic:
        low, high = _exp(low), _exp(high)
    # rounding must not put the median of equal values outside
    return Estimate(middle, min(low, middle), max(high, middle), LEVEL, count)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """The median of a/b over blocks of (a, b): what drifts from block to block is in both.

    Raises ValueError for no pairs or a value that is not positive.
    """
    if any(a <= 0 or b <= 0 for a, b in pairs):
        raise ValueError("ratio: a value is not positive: it has no logarithm: leave the block out")
    return median_of([a / b for a, b in pairs])


def difference_of(
    before: Sequence[float], after: Sequence[float], *, paired: bool, level: float = LEVEL
) -> Estimate:
    """Mean of `after` less mean of `before`, with Student's interval.

    `paired`: value N of both was measured in one block; else for groups of unequal spread (Welch). Raises
    ValueError for no values.
    """
    if not before or not after:
        raise ValueError("difference: no values: nothing to compare: measure both")
    groups = [[b - a for a, b in zip(before, after, strict=True)]] if paired else [before, after]
    centre = fmean(groups[0]) if paired else fmean(after) - fmean(before)
    fewest, half = min(map(len, groups)), _half(groups, level)
    if half is None:
        return Estimate(centre, None, None, 0.0, fewest)
    return Estimate(centre, centre - half, centre + half, level, fewest)


def _half(groups: Sequence[Sequence[float]], level: float) -> float | None:
    """Half of Student's interval of a mean, or of the difference of two; None: a group of one tells nothing.

    With the degrees of freedom of the smaller group: never narrower than it should be.
    """
    fewest = min(map(len, groups))
    if fewest < 2:
        return None
    return student(level, fewest - 1) * math.sqrt(sum(deviation(one) ** 2 / len(one) for one in groups))


def deviation(values: Sequence[float]) -> float:
    """Of a sample, as `statistics.stdev` has it, but in a tenth of its time."""
    centre = fmean(values)
    off = [value - centre for value in values]
    squares = math.fsum(one * one for one in off) - math.fsum(off) ** 2 / len(off)
    return math.sqrt(max(0.0, squares) / (len(off) - 1))


def _outside(count: int) -> int:
    """How many values at each end the 95 % order-statistics interval of the median may leave out."""
    outside, below = 0, 1 / 2**count
    while True:
        below += math.comb(count, outside + 1) / 2**count
        if 2 * below > 1 - LEVEL:
            return outside
        outside += 1


def _exp(value: float) -> float:
    """e^value, and the largest float where that is more: two wild values have a wild interval."""
    return math.exp(min(value, 709.0))


@cache
def student(level: float, degrees: int) -> float:
    """Two-sided quantile of Student's t, by bisection of its distribution function.

    For whole degrees of freedom that is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """

    def inside(t: float) -> float:
        angle = math.atan2(t, math.sqrt(degrees))
        odd = degrees % 2
        term = math.cos(angle) if odd else 1.0
        added = 0.0
        for power in range(2 + odd, degrees + 1, 2):
            added += term
            term *= math.cos(angle) ** 2 * (power - 1) / power
        if not odd:
            return math.sin(angle) * added
        return 2 / math.pi * (angle + math.sin(angle) * added)

    low, high = 0.0, 1.0
    while inside(high) < level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < level else (low, middle)
    return high


def normal_quantile(level: float = LEVEL) -> float:
    """How many standard deviations hold `level` of a normal distribution, both sides: 1.96 for 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"level: {level}: not between 0 and 1: use a share such as 0.95")
    return NormalDist().inv_cdf(0.5 + level / 2)


def wilson(hits: float, total: float, level: float = LEVEL) -> Interval:
    """Interval of the share hits/total (0..1).

    Raises ValueError for total 0 or hits outside 0..total.
    """
    if total <= 0 or not 0 <= hits <= total:
        raise ValueError(f"wilson: {hits} of {total}: not a share of a positive count: check the samples")
    z = normal_quantile(level)
    share = hits / total
    scale = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == total else min(1.0, centre + half)
    return Interval(low, high, level)


def weighted_share(
    part: float, part_squared: float, whole: float, whole_squared: float, level: float = LEVEL
) -> Interval:
    """Interval of the share part/whole (0..1) of summed weights, each sum with that of the squares.

    Wilson's, of as many samples of equal weight as have the same variance: that of a ratio of sums (Cochran,
    Sampling Techniques, 1977, chapter 6), by which a part with few heavy samples is known less well than one
    with many light ones. For a share of 0 or 1, which tells nothing of that, the (sum w)^2 / sum w^2 of all
    samples (Kish, Survey Sampling, 1965). Raises ValueError for a whole that is not positive.
    """
    if whole <= 0 or whole_squared <= 0:
        raise ValueError(f"weighted share: of {whole}: nothing was sampled: check the samples")
    share = min(1.0, part / whole)
    rest_squared = max(0.0, whole_squared - part_squared)
    variance = ((1 - share) ** 2 * part_squared + share**2 * rest_squared) / whole**2
    count = share * (1 - share) / variance if variance else 0.0
    count = count or whole**2 / whole_squared
    return wilson(share * count, count, level)


def poisson(count: float, level: float = LEVEL) -> Interval:
    """Interval of the mean of a count (events).

    Raises ValueError for a negative count.
    """
    if count < 0:
        raise ValueError(f"poisson: {count}: a count is never negative: check the samples")
    z = normal_quantile(level)
    low = 0.0 if count == 0 else max(0.0, _chi_square_half(count, -z))
    return Interval(low, _chi_square_half(count + 1, z), level)


def _chi_square_half(shape: float, z: float) -> float:
    """Half the chi-square quantile with 2 x shape degrees of freedom, at the normal quantile z."""
    return shape * max(0.0, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


def chance_of(hits: int, trials: int, probability: float) -> float:
    """The probability of `hits` or more in so many independent trials (binomial)."""
    return sum(
        math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k)
        for k in range(max(0, hits), trials + 1)
    )
