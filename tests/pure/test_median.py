"""The interval of a median of few repeats, against simulated noise and against its own promises."""

import math
import random
import statistics
from collections.abc import Callable

import pytest
from copyscope import stats
from hypothesis import given
from hypothesis import strategies as st


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
