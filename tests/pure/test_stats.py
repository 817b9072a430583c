"""Intervals and estimates against published values and against their own promises."""

import math
import random
import statistics
from collections.abc import Callable

import pytest
from copyscope import stats
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, score method without continuity correction
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_matches_published_values(hits: int, total: int, low: float, high: float) -> None:
    found = stats.wilson(hits, total)
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


@given(st.integers(1, 10**7), st.data())
def test_wilson_holds_the_share(total: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, total))
    found = stats.wilson(hits, total)
    assert 0 <= found.low <= hits / total <= found.high <= 1
    mirrored = stats.wilson(total - hits, total)
    assert mirrored.low == pytest.approx(1 - found.high, abs=1e-9)


@pytest.mark.parametrize(("hits", "total"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_share(hits: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"wilson: {hits} of {total}"):
        stats.wilson(hits, total)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Garwood's exact limits; the approximation is good to 1 % from 5 on, to 0.1 at 0
    [(0, 0.0, 3.689), (5, 1.623, 11.669), (10, 4.795, 18.391), (100, 81.364, 121.627)],
)
def test_poisson_matches_exact_limits(count: int, low: float, high: float) -> None:
    found = stats.poisson(count)
    assert found.low == pytest.approx(low, rel=0.01, abs=0.01)
    assert found.high == pytest.approx(high, rel=0.01, abs=0.1)


def test_poisson_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="poisson: -1"):
        stats.poisson(-1)


def test_quantile_of_the_normal_distribution() -> None:
    assert stats.normal_quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    with pytest.raises(ValueError, match=r"level: 1\.5"):
        stats.normal_quantile(1.5)


def test_interval_changes_its_unit() -> None:
    assert stats.Interval(0.1, 0.2).scaled(10) == stats.Interval(1.0, 2.0)


def test_paired_ratio_takes_drift_out() -> None:
    """Both phases of a block drift alike by a factor of three over the run; the ratio does not."""
    pairs = [(0.95 * speed, speed) for speed in (10.0, 17.0, 30.0, 12.0, 25.0, 14.0)]
    found = stats.paired_ratio(pairs, seed=1)
    assert found.value == pytest.approx(0.95)
    assert found.interval.low == pytest.approx(0.95)
    assert found.interval.high == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("pairs", "level"), [(1, 0.0), (3, 0.75), (4, 0.875), (5, 0.9375), (6, 0.95), (20, 0.95)]
)
def test_level_is_what_so_many_pairs_can_hold(pairs: int, level: float) -> None:
    assert stats.paired_ratio([(1.0, 1.0)] * pairs, seed=1).interval.level == pytest.approx(level)


def test_bootstrap_covers_as_often_as_it_says() -> None:
    """Twelve noisy pairs around 0.9: the interval should hold 0.9 in about 95 % of 200 experiments."""
    generator = random.Random(7)
    held = 0
    for experiment in range(200):
        pairs = [(0.9 * math.exp(generator.gauss(0, 0.05)), 1.0) for _ in range(12)]
        found = stats.paired_ratio(pairs, seed=experiment, draws=400)
        held += found.interval.low <= 0.9 <= found.interval.high
    assert 180 <= held <= 199


positive = st.floats(0.01, 1000, allow_nan=False)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=12), st.integers(0, 2**32))
def test_ratio_is_reproducible_and_symmetric(pairs: list[tuple[float, float]], seed: int) -> None:
    first = stats.paired_ratio(pairs, seed, draws=50)
    assert first == stats.paired_ratio(pairs, seed, draws=50)
    assert first.interval.low <= first.interval.high
    other_way = stats.paired_ratio([(b, a) for a, b in pairs], seed, draws=50)
    assert other_way.value == pytest.approx(1 / first.value)


@pytest.mark.parametrize(("pairs", "message"), [([], "no pairs"), ([(1.0, 0.0)], "not positive")])
def test_paired_ratio_refuses(pairs: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stats.paired_ratio(pairs, seed=1)


def test_quantile_is_linear_between_neighbours() -> None:
    assert stats.quantile([1.0, 2.0, 4.0], 0.75) == 3.0
    with pytest.raises(ValueError, match="quantile"):
        stats.quantile([], 0.5)
    with pytest.raises(ValueError, match="bootstrap"):
        stats.bootstrap([], seed=1)


def _lognormal(generator: random.Random) -> float:
    return math.exp(generator.gauss(0, 0.1))


def _heavy(generator: random.Random) -> float:
    """One run in ten is three times as noisy: what a busy machine does."""
    return math.exp(generator.gauss(0, 0.3 if generator.random() < 0.1 else 0.1))


@pytest.mark.parametrize("noise", [_lognormal, _heavy], ids=["lognormal", "heavy"])
@pytest.mark.parametrize("repeats", [2, 3, 5, 8, 9, 15, 20])
def test_interval_holds_the_true_median_as_often_as_it_says(
    repeats: int, noise: Callable[[random.Random], float]
) -> None:
    generator = random.Random(repeats)
    experiments = 400
    held = 0
    for _ in range(experiments):
        found = stats.median_of([noise(generator) for _ in range(repeats)]).interval
        assert found is not None
        held += found.low <= 1.0 <= found.high
    # 95 % of 400, less three standard deviations of such a count
    assert held >= 0.95 * experiments - 3 * math.sqrt(experiments * 0.95 * 0.05)


def test_five_of_twenty_cover_the_median_of_all() -> None:
    """What a reader can repeat: five runs at a time out of twenty of the same point."""
    generator = random.Random(3)
    enough = 0
    for _ in range(50):
        runs = [_lognormal(generator) for _ in range(20)]
        whole = stats.median_of(runs).value
        covered = 0
        for _ in range(20):
            found = stats.median_of(generator.sample(runs, 5)).interval
            assert found is not None
            covered += found.low <= whole <= found.high
        enough += covered >= 17
    assert enough >= 48


def test_one_value_has_no_interval() -> None:
    assert stats.median_of([3.0]) == stats.Median(3.0, None, 1)
    with pytest.raises(ValueError, match="median: no values"):
        stats.median_of([])


def test_student_matches_a_worked_example() -> None:
    """ln 1, ln e, ln e^2: mean 1, standard deviation 1, half width 4.3027 / sqrt 3."""
    found = stats.median_of([1.0, math.e, math.e**2])
    assert found.interval is not None
    assert math.log(found.interval.low) == pytest.approx(1 - 4.3027 / math.sqrt(3))
    assert math.log(found.interval.high) == pytest.approx(1 + 4.3027 / math.sqrt(3))


def test_values_around_zero_stay_as_they_are() -> None:
    found = stats.median_of([-0.01, 0.0, 0.01])
    assert found.value == 0.0
    assert found.interval is not None
    assert found.interval.low == pytest.approx(-found.interval.high)


anything = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(anything, min_size=1, max_size=20))
def test_interval_holds_its_median_and_is_reproducible(values: list[float]) -> None:
    first = stats.median_of(values)
    assert first == stats.median_of(values)
    if first.interval is not None:
        assert first.interval.low <= first.value <= first.interval.high


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=5), st.floats(0.01, 1000))
def test_interval_does_not_depend_on_the_unit(values: list[float], unit: float) -> None:
    ours = stats.median_of(values).interval
    other = stats.median_of([value * unit for value in values]).interval
    assert ours is not None
    assert other is not None
    assert math.log(other.low) == pytest.approx(math.log(ours.low * unit), abs=1e-6)
    assert math.log(other.high) == pytest.approx(math.log(ours.high * unit), abs=1e-6)


def test_ratio_takes_drift_out_and_refuses_zero() -> None:
    found = stats.ratio_of([(0.9 * speed, speed) for speed in (10.0, 30.0, 12.0)])
    assert found.value == pytest.approx(0.9)
    assert found.interval is not None
    assert found.interval.high - found.interval.low < 1e-9
    with pytest.raises(ValueError, match="not positive"):
        stats.ratio_of([(0.0, 1.0)])


def test_chance_of_so_many_hits() -> None:
    assert stats.chance_of(0, 10, 0.5) == pytest.approx(1.0)
    assert stats.chance_of(2, 3, 0.5) == pytest.approx(0.5)
    assert stats.chance_of(10, 10, 0.025) == pytest.approx(0.025**10)


@given(st.lists(st.floats(-1e100, 1e100), min_size=2, max_size=8))
def test_the_deviation_is_that_of_the_standard_library_to_the_last_bit(values: list[float]) -> None:
    assert stats.deviation(values) == statistics.stdev(values)
