# SPDX-License-Identifier: GPL-2.0-only
"""Our intervals compared with those of scipy."""

import math
import random
from typing import Any

import pytest
from copyscope.base import stats
from copyscope.judge.crossing import find_crossing

scipy_stats: Any = pytest.importorskip("scipy.stats", reason="make check-statistics installs scipy")


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 19, 100])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_the_quantile_of_student(degrees: int, level: float) -> None:
    expected = scipy_stats.t.ppf(0.5 + level / 2, degrees)
    assert stats.student_quantile(level, degrees) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_interval_of_a_paired_difference(count: int) -> None:
    generator = random.Random(count)
    before, after = ([generator.gauss(mean, 1) for _ in range(count)] for mean in (10, 11))
    expected = scipy_stats.ttest_rel(after, before).confidence_interval(0.95)
    ours = stats.difference_of(before, after, paired=True)
    assert ours.ends == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("count", [3, 5, 8])
def test_the_interval_of_few_repeats(count: int) -> None:
    generator = random.Random(count)
    logs = [generator.gauss(0, 0.1) for _ in range(count)]
    expected = scipy_stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    ends = stats.median_of([math.exp(value) for value in logs]).ends
    assert ends == pytest.approx((math.exp(expected.low), math.exp(expected.high)), rel=1e-9)


@pytest.mark.parametrize("count", [9, 10, 15, 30, 101])
def test_the_interval_of_many_repeats(count: int) -> None:
    """The values from rank k+1 to n-k enclose the median unless at most k values lie on one side of it."""
    values = [float(value) for value in range(count)]
    low, high = stats.median_of(values).ends or pytest.fail("no interval")
    outside = int(low)
    assert high == count - 1 - outside
    below = scipy_stats.binom.cdf
    assert 2 * below(outside, count, 0.5) <= 0.05 < 2 * below(outside + 1, count, 0.5)


@pytest.mark.parametrize("total", [1, 19, 30, 100, 1000, 100_000])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.5, 1.0])
def test_the_interval_of_wilson(total: int, part: float) -> None:
    hits = round(part * total)
    expected = scipy_stats.binomtest(hits, total).proportion_ci(0.95, method="wilson")
    ours = stats.wilson(hits, total)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 10, 100, 10_000])
def test_the_interval_of_poisson(count: int) -> None:
    """The chi-square quantile is approximate: 1 %, and 0.1 for the smallest counts."""
    low = scipy_stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    high = scipy_stats.chi2.ppf(0.975, 2 * count + 2) / 2
    ours = stats.poisson(count)
    assert ours.low == pytest.approx(low, rel=0.01, abs=0.1)
    assert ours.high == pytest.approx(high, rel=0.01, abs=0.1)


@pytest.mark.parametrize("repeats", [9, 15])
def test_the_bootstrap_of_a_crossing(repeats: int) -> None:
    """Medians cross 1 between 1 and 4 KiB. The ends are those of the harmonic and linear interpolations."""
    generator = random.Random(repeats)
    small, large = ([math.exp(generator.gauss(mean, 0.1)) for _ in range(repeats)] for mean in (0.5, -0.5))
    below, above = 1024.0, 4096.0

    def position(first: Any, second: Any) -> float:
        a, b = (math.log(float(sorted(values)[repeats // 2])) for values in (first, second))
        return a / (a - b)

    def harmonic(first: Any, second: Any) -> float:
        part = position(first, second)
        return 1 / ((1 - part) / below + part / above)

    def linear(first: Any, second: Any) -> float:
        return below + (above - below) * position(first, second)

    low, high = (
        scipy_stats.bootstrap(
            (small, large), statistic, n_resamples=4000, vectorized=False, method="percentile", rng=1
        ).confidence_interval
        for statistic in (harmonic, linear)
    )
    ours = find_crossing({1024: small, 4096: large}, "referee")
    assert ours.verdict == "crosses"
    # 400 draws here and 4,000 there, of medians that take few values.
    assert ours.low == pytest.approx(low.low, rel=0.05)
    assert ours.high == pytest.approx(high.high, rel=0.05)
