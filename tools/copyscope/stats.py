"""Estimates and intervals. Pure, standard library only, and reproducible: every draw is seeded.

Medians and percentile bootstraps for what was repeated (Efron and Tibshirani, An Introduction to the
Bootstrap, chapter 13), Wilson's score interval for a share of samples (Wilson 1927: it stays inside 0..1
and does not collapse at 0 hits), the exact Poisson interval for a count (through the chi-square quantile,
Wilson and Hilferty 1931).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

LEVEL = 0.95
DRAWS = 2000


@dataclass(frozen=True)
class Interval:
    """`low` and `high` hold the value with probability `level`, in the unit of the value."""

    low: float
    high: float
    level: float = LEVEL

    def scaled(self, factor: float) -> Interval:
        """The same interval in another unit: both ends times `factor` (>= 0)."""
        return Interval(self.low * factor, self.high * factor, self.level)


def normal_quantile(level: float = LEVEL) -> float:
    """How many standard deviations hold `level` of a normal distribution, both sides: 1.96 for 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"level: {level}: not between 0 and 1: use a share such as 0.95")
    return NormalDist().inv_cdf(0.5 + level / 2)


def wilson(hits: int, total: int, level: float = LEVEL) -> Interval:
    """Interval of the share hits/total (0..1). Raises ValueError for total 0 or hits outside 0..total."""
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


def poisson(count: int, level: float = LEVEL) -> Interval:
    """Interval of the mean of a count (events). Raises ValueError for a negative count."""
    if count < 0:
        raise ValueError(f"poisson: {count}: a count is never negative: check the samples")
    z = normal_quantile(level)
    low = 0.0 if count == 0 else max(0.0, _chi_square_half(count, -z))
    return Interval(low, _chi_square_half(count + 1, z), level)


def _chi_square_half(shape: int, z: float) -> float:
    """Half the chi-square quantile with 2 x shape degrees of freedom, at the normal quantile z."""
    return shape * (1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


@dataclass(frozen=True)
class Ratio:
    """A ratio of two paired arms with its interval; `pairs` blocks were used."""

    value: float
    interval: Interval
    pairs: int


def paired_ratio(
    pairs: Sequence[tuple[float, float]], seed: int, level: float = LEVEL, draws: int = DRAWS
) -> Ratio:
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
    low, high = bootstrap(logs, seed, level, draws)
    reached = min(level, 1 - 2.0 ** (1 - len(logs)))
    return Ratio(math.exp(median(logs)), Interval(math.exp(low), math.exp(high), reached), len(logs))


def bootstrap(
    values: Sequence[float], seed: int, level: float = LEVEL, draws: int = DRAWS
) -> tuple[float, float]:
    """Percentile interval of the median of `values`, from `draws` seeded resamples."""
    if not values:
        raise ValueError("bootstrap: no values: nothing to resample: measure at least once")
    generator = random.Random(seed)
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(draws))
    tail = (1 - level) / 2
    return quantile(medians, tail), quantile(medians, 1 - tail)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of a sorted sequence lies, linear between neighbours."""
    if not ordered or not 0 <= share <= 1:
        raise ValueError(f"quantile: {share} of {len(ordered)} values: give a share of a non-empty sequence")
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
