# SPDX-License-Identifier: GPL-2.0-only
"""Compute estimates with confidence intervals, and group rows by a key. Pure."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, median
from typing import TypeVar

# Every estimate and interval of copyscope is computed here, without random numbers.
#
# Repeated measurements: a median, or the mean difference of two groups. The interval is Student's for few
# repeats; for many repeats of a median it comes from the order statistics. Share of samples: Wilson's score
# interval (Wilson 1927), which stays inside 0..1 and has a width at 0 hits, too. Count: the exact Poisson
# interval, by the approximate chi-square quantile of Wilson and Hilferty (1931).

# Probability that a confidence interval holds the true value.
LEVEL = 0.95
# Minimum number of repeats for an interval of the median from the sorted values (order statistics).
ORDER_STATISTICS_MIN_REPEATS = 9
MORE, LESS, SAME = "more", "less", "no difference found"


@dataclass(frozen=True)
class Interval:
    """Interval, in the unit of the value, that contains the true value with probability `level`."""

    low: float
    high: float
    level: float = LEVEL

    def scaled(self, factor: float) -> "Interval":
        """Return the interval in another unit: both ends times `factor` (>= 0)."""
        return Interval(self.low * factor, self.high * factor, self.level)


@dataclass(frozen=True)
class Estimate:
    """An estimated value with its interval low..high, from `samples` repeats.

    After a single repeat, `low` and `high` are None, and `level` is 0.
    """

    value: float
    low: float | None
    high: float | None
    level: float
    samples: int

    @property
    def ends(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def against(self, value: float) -> str:
        """Return MORE or LESS than `value`, or SAME if the interval contains `value` or is unknown."""
        if self.ends is None or self.ends[0] <= value <= self.ends[1]:
            return SAME
        return MORE if self.ends[0] > value else LESS


@dataclass(frozen=True)
class Missing:
    """Reason why an estimate is missing."""

    reason: str


def median_of(values: Sequence[float]) -> Estimate:
    """Return the median of repeats with a 95 % interval. Raises ValueError if there are no values.

    Up to eight values: Student's interval around the mean of their logarithms, or of the values if one is not
    positive. It covers 95 % for lognormal noise (which times have), and with one outlier in ten, too;
    tests/pure/test_stats.py simulates both. It is widened if rounding would leave the median outside.

    Nine or more values: two of the values, counted from both ends of the sorted list. They enclose the median
    for any distribution, because the number of values below it is binomial.

    A percentile bootstrap is too narrow. It cannot leave the range of n values, which contains the median
    with probability 1 - 2^(1-n) only (75 % for three). For seven to fifteen values it covers 88 to 92 %.
    """
    if not values:
        raise ValueError("median: no values: nothing to estimate: measure at least once")
    count, middle = len(values), median(values)
    if count >= ORDER_STATISTICS_MIN_REPEATS:
        ordered, outside = sorted(values), _outside(count)
        return Estimate(middle, ordered[outside], ordered[-1 - outside], LEVEL, count)
    logarithmic = min(values) > 0
    scale = [math.log(value) for value in values] if logarithmic else values
    half = _half_width([scale], LEVEL)
    if half is None:
        return Estimate(middle, None, None, 0.0, count)
    low, high = fmean(scale) - half, fmean(scale) + half
    if logarithmic:
        low, high = _exp(low), _exp(high)
    # Rounding could put the median of equal values outside.
    return Estimate(middle, min(low, middle), max(high, middle), LEVEL, count)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return the median of the ratios a/b of pairs (a, b). Both values of a pair were measured in one block.

    A drift from block to block changes a and b by the same factor, which cancels in the ratio. Raises
    ValueError if there are no pairs, or a value is not positive.
    """
    if any(a <= 0 or b <= 0 for a, b in pairs):
        raise ValueError("ratio: a value is not positive and has no logarithm; leave the block out")
    return median_of([a / b for a, b in pairs])


def difference_of(
    before: Sequence[float], after: Sequence[float], *, paired: bool, level: float = LEVEL
) -> Estimate:
    """Return the mean of `after` minus the mean of `before`, with Student's interval.

    `paired`: before[i] and after[i] were measured in the same block. Otherwise the groups may have different
    spreads (Welch). Raises ValueError if a group is empty.
    """
    if not before or not after:
        raise ValueError("difference: no values to compare; measure both")
    groups = [[b - a for a, b in zip(before, after, strict=True)]] if paired else [before, after]
    centre = fmean(groups[0]) if paired else fmean(after) - fmean(before)
    fewest, half = min(map(len, groups)), _half_width(groups, level)
    if half is None:
        return Estimate(centre, None, None, 0.0, fewest)
    return Estimate(centre, centre - half, centre + half, level, fewest)


def mean_half_width(values: Sequence[float]) -> float | None:
    """Return half the width of Student's 95 % interval for a mean, or None for fewer than two values."""
    return _half_width([values], LEVEL) if values else None


def _half_width(groups: Sequence[Sequence[float]], level: float) -> float | None:
    """Return half the width of Student's interval for a mean, or for the difference between two means.

    The degrees of freedom are those of the smaller group, so that the interval is never too narrow. Returns
    None if a group has a single value.
    """
    fewest = min(map(len, groups))
    if fewest < 2:
        return None
    variance = sum(standard_deviation(group) ** 2 / len(group) for group in groups)
    return student_quantile(level, fewest - 1) * math.sqrt(variance)


def standard_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample, ten times faster than statistics.stdev()."""
    centre = fmean(values)
    deviations = [value - centre for value in values]
    squares = math.fsum(deviation * deviation for deviation in deviations) - math.fsum(deviations) ** 2 / len(
        values
    )
    return math.sqrt(max(0.0, squares) / (len(values) - 1))


def _outside(count: int) -> int:
    """Return how many of `count` sorted values lie outside the 95 % interval of the median at each end."""
    outside, below = 0, 1 / 2**count
    while True:
        below += math.comb(count, outside + 1) / 2**count
        if 2 * below > 1 - LEVEL:
            return outside
        outside += 1


def _exp(value: float) -> float:
    """Return e^value, limited to about the largest float: an interval of two distant values can be huge."""
    return math.exp(min(value, 709.0))


@cache
def student_quantile(level: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t, by bisection of its distribution function.

    For integer degrees of freedom the function is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """

    def inside(t: float) -> float:
        """Return the probability of -t..t."""
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
    """Return z such that a share `level` of a normal distribution lies within z deviations: 1.96 for 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"level: {level}: not between 0 and 1; use a share such as 0.95")
    return NormalDist().inv_cdf(0.5 + level / 2)


def wilson(hits: float, total: float, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of the share hits/total (0..1).

    Raises ValueError for total 0 or hits outside 0..total.
    """
    if total <= 0 or not 0 <= hits <= total:
        raise ValueError(f"wilson: {hits} of {total} is not a share of a positive count; check the samples")
    z = normal_quantile(level)
    share = hits / total
    scale = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == total else min(1.0, centre + half)
    return Interval(low, high, level)


def weighted_share(
    part: float, part_squared: float, total: float, total_squared: float, level: float = LEVEL
) -> Interval:
    """Return the interval of the share part/total (0..1) of weighted samples.

    `part`, `total`: sums of the weights. `part_squared`, `total_squared`: sums of the squared weights.

    The interval is Wilson's, for the number of equally weighted samples that gives the same variance. This is
    the variance of a ratio of sums (Cochran, Sampling Techniques, 1977, chapter 6): a few heavy samples give
    a wider interval than many light ones. For a share of 0 or 1 that variance is 0, so the number is
    (sum w)^2 / sum w^2 of all samples (Kish, Survey Sampling, 1965). Raises ValueError if the total is not
    positive.
    """
    if total <= 0 or total_squared <= 0:
        raise ValueError(f"weighted share: nothing was sampled (total {total}); check the samples")
    share = min(1.0, part / total)
    rest_squared = max(0.0, total_squared - part_squared)
    variance = ((1 - share) ** 2 * part_squared + share**2 * rest_squared) / total**2
    sample_count = share * (1 - share) / variance if variance else 0.0
    sample_count = sample_count or total**2 / total_squared
    return wilson(share * sample_count, sample_count, level)


def poisson(count: float, level: float = LEVEL) -> Interval:
    """Return the interval for the expected number of events when `count` were counted.

    Raises ValueError for a negative count.
    """
    if count < 0:
        raise ValueError(f"poisson: {count}: a count is never negative; check the samples")
    z = normal_quantile(level)
    low = 0.0 if count == 0 else max(0.0, _chi_square_half(count, -z))
    return Interval(low, _chi_square_half(count + 1, z), level)


def _chi_square_half(shape: float, z: float) -> float:
    """Return half the chi-square quantile with 2 x shape degrees of freedom, at the normal quantile z."""
    return shape * max(0.0, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


def binomial_tail(hits: int, trials: int, probability: float) -> float:
    """Return the probability of at least `hits` hits in `trials` independent trials."""
    return sum(
        math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k)
        for k in range(max(0, hits), trials + 1)
    )


# The groups of grouped() and gathered() are in the order of their first member.

Row = TypeVar("Row")
Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Return {key(row): rows with that key}."""
    return gathered((key(row), row) for row in rows)


def gathered(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Group pairs (key, value) into {key: values paired with that key}."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
