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


def test_ratio_takes_drift_out() -> None:
    """Both phases of a block drift alike by a factor of three over the run; the ratio does not."""
    pairs = [(0.95 * speed, speed) for speed in (10.0, 17.0, 30.0, 12.0, 25.0, 14.0)]
    found = stats.ratio_of(pairs)
    assert (found.value, found.low, found.high) == pytest.approx((0.95, 0.95, 0.95))
    assert (found.level, found.samples) == (0.95, 6)


@pytest.mark.parametrize("blocks", [3, 4, 6, 12])
def test_interval_of_a_ratio_holds_it_as_often_as_it_says(blocks: int) -> None:
    """Noisy pairs around 0.9, three blocks or twelve: no fewer than 95 % less what chance explains."""
    generator = random.Random(7)
    held = 0
    for _ in range(400):
        pairs = [(0.9 * math.exp(generator.gauss(0, 0.05)), 1.0) for _ in range(blocks)]
        low, high = stats.ratio_of(pairs).ends or pytest.fail("no interval")
        held += low <= 0.9 <= high
    assert held >= 0.95 * 400 - 3 * math.sqrt(400 * 0.95 * 0.05)


positive = st.floats(0.01, 1000, allow_nan=False)


@given(st.lists(st.tuples(positive, positive), min_size=3, max_size=11).filter(lambda pairs: len(pairs) % 2))
def test_ratio_the_other_way_round_is_the_same(pairs: list[tuple[float, float]]) -> None:
    found, other_way = stats.ratio_of(pairs), stats.ratio_of([(b, a) for a, b in pairs])
    assert other_way.value == pytest.approx(1 / found.value)
    assert found.ends is not None and other_way.ends is not None
    assert math.log(other_way.ends[0]) == pytest.approx(-math.log(found.ends[1]), abs=1e-6)


@pytest.mark.parametrize(("pairs", "message"), [([], "no values"), ([(1.0, 0.0)], "not positive")])
def test_ratio_refuses(pairs: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stats.ratio_of(pairs)


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
        low, high = stats.median_of([noise(generator) for _ in range(repeats)]).ends or pytest.fail("none")
        held += low <= 1.0 <= high
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
            low, high = stats.median_of(generator.sample(runs, 5)).ends or pytest.fail("none")
            covered += low <= whole <= high
        enough += covered >= 17
    assert enough >= 48


def test_one_value_has_no_interval() -> None:
    assert stats.median_of([3.0]) == stats.Estimate(3.0, None, None, 0.0, 1)
    with pytest.raises(ValueError, match="median: no values"):
        stats.median_of([])


def test_student_matches_a_worked_example() -> None:
    """ln 1, ln e, ln e^2: mean 1, standard deviation 1, half width 4.3027 / sqrt 3."""
    found = stats.median_of([1.0, math.e, math.e**2])
    assert found.ends is not None
    assert [math.log(end) for end in found.ends] == pytest.approx(
        [1 - 4.3027 / math.sqrt(3), 1 + 4.3027 / math.sqrt(3)], abs=1e-4
    )


def test_values_around_zero_stay_as_they_are() -> None:
    found = stats.median_of([-0.01, 0.0, 0.01])
    assert found.value == 0.0
    assert found.ends is not None and found.ends[0] == pytest.approx(-found.ends[1])


anything = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(anything, min_size=1, max_size=20))
def test_interval_holds_its_median_and_is_reproducible(values: list[float]) -> None:
    first = stats.median_of(values)
    assert first == stats.median_of(values)
    if first.ends is not None:
        assert first.ends[0] <= first.value <= first.ends[1]


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=5), st.floats(0.01, 1000))
def test_interval_does_not_depend_on_the_unit(values: list[float], unit: float) -> None:
    ours = stats.median_of(values).ends
    other = stats.median_of([value * unit for value in values]).ends
    assert ours is not None and other is not None
    assert [math.log(end) for end in other] == pytest.approx([math.log(end * unit) for end in ours], abs=1e-6)


def test_chance_of_so_many_hits() -> None:
    assert stats.chance_of(0, 10, 0.5) == pytest.approx(1.0)
    assert stats.chance_of(2, 3, 0.5) == pytest.approx(0.5)
    assert stats.chance_of(10, 10, 0.025) == pytest.approx(0.025**10)


@given(st.lists(st.floats(-1e100, 1e100), min_size=2, max_size=8))
def test_the_deviation_is_that_of_the_standard_library(values: list[float]) -> None:
    """Also of values that differ in their last bits only."""
    assert stats.deviation(values) == pytest.approx(statistics.stdev(values), rel=1e-12, abs=1e-150)
