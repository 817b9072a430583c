# SPDX-License-Identifier: GPL-2.0-only
"""Intervals and estimates, compared with published values and with their promised coverage."""

import math
import random
import statistics
from collections.abc import Callable

import pytest
from copyscope.base import stats
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, score method without continuity correction
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_wilson_interval_has_published_values(hits: int, total: int, low: float, high: float) -> None:
    interval = stats.wilson(hits, total)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@given(st.integers(1, 10**7), st.data())
def test_the_wilson_interval_contains_the_share(total: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, total))
    interval = stats.wilson(hits, total)
    assert 0 <= interval.low <= hits / total <= interval.high <= 1
    mirrored = stats.wilson(total - hits, total)
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-9)


@pytest.mark.parametrize(("hits", "total"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(hits: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"wilson: {hits} of {total}"):
        stats.wilson(hits, total)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Garwood's exact limits. The approximation errs by at most 1 % from 5 on, and by 0.1 at 0.
    [(0, 0.0, 3.689), (5, 1.623, 11.669), (10, 4.795, 18.391), (100, 81.364, 121.627)],
)
def test_the_poisson_interval_is_close_to_exact_limits(count: int, low: float, high: float) -> None:
    interval = stats.poisson(count)
    assert interval.low == pytest.approx(low, rel=0.01, abs=0.01)
    assert interval.high == pytest.approx(high, rel=0.01, abs=0.1)


def test_poisson_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="poisson: -1"):
        stats.poisson(-1)


def test_the_normal_quantile_has_published_values() -> None:
    assert stats.normal_quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    with pytest.raises(ValueError, match=r"level: 1\.5"):
        stats.normal_quantile(1.5)


def test_a_scaled_interval_has_scaled_limits() -> None:
    assert stats.Interval(0.1, 0.2).scaled(10) == stats.Interval(1.0, 2.0)


def test_drift_does_not_change_a_paired_ratio() -> None:
    """Both phases of a block drift by the same factor, up to three. The ratio stays the same."""
    pairs = [(0.95 * speed, speed) for speed in (10.0, 17.0, 30.0, 12.0, 25.0, 14.0)]
    ratio = stats.ratio_of(pairs)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.95, 0.95, 0.95))
    assert (ratio.level, ratio.samples) == (0.95, 6)


@pytest.mark.parametrize("blocks", [3, 4, 6, 12])
def test_the_interval_of_a_ratio_has_its_promised_coverage(blocks: int) -> None:
    """Noisy pairs around 0.9: at least 95 % of the intervals contain 0.9, less three standard deviations."""
    generator = random.Random(7)
    covered = 0
    for _ in range(400):
        pairs = [(0.9 * math.exp(generator.gauss(0, 0.05)), 1.0) for _ in range(blocks)]
        low, high = stats.ratio_of(pairs).ends or pytest.fail("no interval")
        covered += low <= 0.9 <= high
    assert covered >= 0.95 * 400 - 3 * math.sqrt(400 * 0.95 * 0.05)


positive = st.floats(0.01, 1000, allow_nan=False)


@given(st.lists(st.tuples(positive, positive), min_size=3, max_size=11).filter(lambda pairs: len(pairs) % 2))
def test_the_ratio_of_swapped_pairs_is_the_inverse(pairs: list[tuple[float, float]]) -> None:
    ratio, inverse = stats.ratio_of(pairs), stats.ratio_of([(b, a) for a, b in pairs])
    assert inverse.value == pytest.approx(1 / ratio.value)
    assert ratio.ends is not None and inverse.ends is not None
    assert math.log(inverse.ends[0]) == pytest.approx(-math.log(ratio.ends[1]), abs=1e-6)


@pytest.mark.parametrize(("pairs", "message"), [([], "no values"), ([(1.0, 0.0)], "not positive")])
def test_a_ratio_of_no_pairs_or_of_zero_is_refused(pairs: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stats.ratio_of(pairs)


def _lognormal(generator: random.Random) -> float:
    return math.exp(generator.gauss(0, 0.1))


def _heavy(generator: random.Random) -> float:
    """Return noise of a busy machine: every tenth run is three times as noisy."""
    return math.exp(generator.gauss(0, 0.3 if generator.random() < 0.1 else 0.1))


@pytest.mark.parametrize("noise", [_lognormal, _heavy], ids=["lognormal", "heavy"])
@pytest.mark.parametrize("repeats", [2, 3, 5, 8, 9, 15, 20])
def test_the_interval_of_a_median_has_its_promised_coverage(
    repeats: int, noise: Callable[[random.Random], float]
) -> None:
    generator = random.Random(repeats)
    experiments = 400
    covered = 0
    for _ in range(experiments):
        low, high = stats.median_of([noise(generator) for _ in range(repeats)]).ends or pytest.fail("none")
        covered += low <= 1.0 <= high
    # 95 % of 400, less three standard deviations of this count
    assert covered >= 0.95 * experiments - 3 * math.sqrt(experiments * 0.95 * 0.05)


def test_intervals_of_five_runs_contain_the_median_of_twenty() -> None:
    """Each of 20 random samples of five runs has an interval. At least 17 contain the median of all runs."""
    generator = random.Random(3)
    successes = 0
    for _ in range(50):
        runs = [_lognormal(generator) for _ in range(20)]
        median = stats.median_of(runs).value
        covered = 0
        for _ in range(20):
            low, high = stats.median_of(generator.sample(runs, 5)).ends or pytest.fail("none")
            covered += low <= median <= high
        successes += covered >= 17
    assert successes >= 48


def test_a_single_value_has_no_interval() -> None:
    assert stats.median_of([3.0]) == stats.Estimate(3.0, None, None, 0.0, 1)
    with pytest.raises(ValueError, match="median: no values"):
        stats.median_of([])


def test_an_interval_of_three_values_follows_student() -> None:
    """Logarithms 0, 1 and 2: mean 1, standard deviation 1, half width 4.3027 / sqrt 3."""
    estimate = stats.median_of([1.0, math.e, math.e**2])
    assert estimate.ends is not None
    assert [math.log(end) for end in estimate.ends] == pytest.approx(
        [1 - 4.3027 / math.sqrt(3), 1 + 4.3027 / math.sqrt(3)], abs=1e-4
    )


def test_values_around_zero_are_not_averaged_by_logarithms() -> None:
    estimate = stats.median_of([-0.01, 0.0, 0.01])
    assert estimate.value == 0.0
    assert estimate.ends is not None and estimate.ends[0] == pytest.approx(-estimate.ends[1])


anything = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(anything, min_size=1, max_size=20))
def test_an_interval_contains_its_median_and_is_reproducible(values: list[float]) -> None:
    first = stats.median_of(values)
    assert first == stats.median_of(values)
    if first.ends is not None:
        assert first.ends[0] <= first.value <= first.ends[1]


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=5), st.floats(0.01, 1000))
def test_an_interval_does_not_depend_on_the_unit(values: list[float], unit: float) -> None:
    limits = stats.median_of(values).ends
    scaled_limits = stats.median_of([value * unit for value in values]).ends
    assert limits is not None and scaled_limits is not None
    assert [math.log(end) for end in scaled_limits] == pytest.approx(
        [math.log(end * unit) for end in limits], abs=1e-6
    )


def test_the_binomial_tail_has_known_values() -> None:
    assert stats.binomial_tail(0, 10, 0.5) == pytest.approx(1.0)
    assert stats.binomial_tail(2, 3, 0.5) == pytest.approx(0.5)
    assert stats.binomial_tail(10, 10, 0.025) == pytest.approx(0.025**10)


@given(st.lists(st.floats(-1e100, 1e100), min_size=2, max_size=8))
def test_the_standard_deviation_equals_that_of_the_standard_library(values: list[float]) -> None:
    """Values may differ in their last bits only."""
    assert stats.standard_deviation(values) == pytest.approx(statistics.stdev(values), rel=1e-12, abs=1e-150)
