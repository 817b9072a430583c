"""Intervals and estimates against published values and against their own promises."""

import math
import random

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
    """Both arms of a block drift alike by a factor of three over the run; the ratio does not."""
    pairs = [(0.95 * speed, speed) for speed in (10.0, 17.0, 30.0, 12.0, 25.0, 14.0)]
    found = stats.paired_ratio(pairs, seed=1)
    assert found.value == pytest.approx(0.95)
    assert found.interval.low == pytest.approx(0.95)
    assert found.interval.high == pytest.approx(0.95)
    assert found.pairs == 6


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
