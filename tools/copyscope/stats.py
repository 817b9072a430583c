"""Estimates and intervals. Pure, standard library only, and reproducible: every draw is seeded.

Medians and percentile bootstraps for what was repeated (Efron and Tibshirani, An Introduction to the
Bootstrap, chapter 13), Wilson's score interval for a share of samples (Wilson 1927: it stays inside 0..1
and does not collapse at 0 hits), the exact Poisson interval for a count (through the chi-square quantile,
Wilson and Hilferty 1931), Student's t on logarithms and order statistics
for the median of a few and of more repeats.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

LEVEL = 0.95
DRAWS = 2000


@dataclass(frozen=True)
class Interval:
    """`low` and `high` hold the value with probability `level`, in the unit of the value."""

    low: float
    high: float
    level: float = LEVEL

    def scaled(self, factor: float) -> "Interval":
        """The same interval in another unit: both ends times `factor` (>= 0)."""
        return Interval(self.low * factor, self.high * factor, self.level)


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


@dataclass(frozen=True)
class Ratio:
    """A ratio of two paired phases with its interval."""

    value: float
    interval: Interval


def paired_ratio(pairs: Sequence[tuple[float, float]], seed: int, draws: int = DRAWS) -> Ratio:
    """Median ratio a/b over blocks of (a, b), with a seeded percentile bootstrap of the log ratios.

    A ratio is symmetric only in its logarithm: halved and doubled average to unchanged. n blocks cannot
    hold the median with more certainty than 1 - 2^(1-n) whatever the bootstrap says (the order
    statistics), so the interval's level is that much when it is less than asked: 0.75 for three blocks.
    Raises ValueError for no pairs or a value that is not positive.
    """
    if not pairs:
        raise ValueError("paired ratio: no pairs: nothing to compare: measure at least one block")
    if any(a <= 0 or b <= 0 for a, b in pairs):
        raise ValueError("paired ratio: a value is not positive: it has no logarithm: leave the block out")
    logs = [math.log(a / b) for a, b in pairs]
    low, high = bootstrap(logs, seed, draws)
    reached = min(LEVEL, 1 - 2.0 ** (1 - len(logs)))
    return Ratio(math.exp(median(logs)), Interval(math.exp(low), math.exp(high), reached))


# Two-sided 95 % quantiles of Student's t with 1 to 7 degrees of freedom (any table of it).
STUDENT_95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646)


@dataclass(frozen=True)
class Median:
    """A median with its interval; None where one value says nothing about its spread."""

    value: float
    interval: Interval | None
    samples: int


def median_of(values: Sequence[float]) -> Median:
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
    count = len(values)
    middle = median(values)
    if count == 1:
        return Median(middle, None, 1)
    if count > len(STUDENT_95) + 1:
        ordered = sorted(values)
        outside = _outside(count)
        return Median(middle, Interval(ordered[outside], ordered[-1 - outside]), count)
    logarithmic = min(values) > 0
    scale = [math.log(value) for value in values] if logarithmic else list(values)
    centre = fmean(scale)
    half = STUDENT_95[count - 2] * deviation(scale) / math.sqrt(count)
    low, high = centre - half, centre + half
    if logarithmic:
        low, high = (_exp(low), _exp(high))
    # rounding must not put the median of equal values outside
    return Median(middle, Interval(min(low, middle), max(high, middle)), count)


def deviation(values: Sequence[float]) -> float:
    """Of a sample: what `statistics.stdev` says, to the last bit, in a third of its time."""
    ratios = [value.as_integer_ratio() for value in values]
    scale = max(below for _, below in ratios)  # of powers of two the largest is a common one
    whole = [above * (scale // below) for above, below in ratios]
    count = len(whole)
    squares = count * sum([one * one for one in whole]) - sum(whole) ** 2
    return _root(squares, count * (count - 1) * scale * scale)


def _root(above: int, below: int) -> float:
    """The root of a fraction, rounded once: of more bits than a float has, the last stands for all others."""
    shift = max(0, (below.bit_length() - above.bit_length()) // 2 + 56)
    root = math.isqrt((above << 2 * shift) // below)
    exact = root * root * below == above << 2 * shift
    return (root if exact else root | 1) / (1 << shift)


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


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Median:
    """Median of a/b over blocks of (a, b), with the interval of `median_of`.

    Raises ValueError for no pairs or a value that is not positive.
    """
    if any(a <= 0 or b <= 0 for a, b in pairs):
        raise ValueError("ratio: a value is not positive: it has no logarithm: leave the block out")
    return median_of([a / b for a, b in pairs])


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


def mean_difference(
    before: Sequence[float], after: Sequence[float], *, paired: bool, level: float = LEVEL
) -> tuple[float, Interval | None]:
    """Mean of `after` less mean of `before`, with Student's interval; none for a group of one value.

    `paired`: value N of both was measured side by side. Else for groups of unequal spread, with the degrees
    of freedom of the smaller one: never narrower than it should be. Raises ValueError for no values.
    """
    if not before or not after:
        raise ValueError("difference: no values: nothing to compare: measure both")
    if paired:
        groups = [[b - a for a, b in zip(before, after, strict=True)]]
        centre = fmean(groups[0])
    else:
        groups = [list(before), list(after)]
        centre = fmean(after) - fmean(before)
    fewest = min(map(len, groups))
    if fewest < 2:
        return centre, None
    error = math.sqrt(sum(deviation(group) ** 2 / len(group) for group in groups))
    half = student(level, fewest - 1) * error
    return centre, Interval(centre - half, centre + half, level)


def chance_of(hits: int, trials: int, probability: float) -> float:
    """The probability of `hits` or more in so many independent trials (binomial)."""
    return sum(
        math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k)
        for k in range(max(0, hits), trials + 1)
    )


def bootstrap(values: Sequence[float], seed: int, draws: int = DRAWS) -> tuple[float, float]:
    """Percentile interval of the median of `values`, from `draws` seeded resamples."""
    if not values:
        raise ValueError("bootstrap: no values: nothing to resample: measure at least once")
    generator = random.Random(seed)
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(draws))
    tail = (1 - LEVEL) / 2
    return quantile(medians, tail), quantile(medians, 1 - tail)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of a sorted sequence lies, linear between neighbours."""
    if not ordered or not 0 <= share <= 1:
        raise ValueError(f"quantile: {share} of {len(ordered)} values: give a share of a non-empty sequence")
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
