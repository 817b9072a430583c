# SPDX-License-Identifier: GPL-2.0-only
"""Intervals and verdicts of planted records: they hold the planted truth, and equal groups do not differ.

The counts of samples are quantiles of their binomial distribution, so that no seed can make a test pass or
fail. The noise of whole runs comes from fixed seeds.
"""

import math
import random
from itertools import accumulate

import pytest
from builders.documents import derive, typed_runs, typed_whole
from builders.priced import priced
from builders.watched import watched_record
from copyscope.judge import crossing
from copyscope.judge.comparison import compare_groups
from copyscope.judge.difference import BETTER, WORSE, ComparisonOptions
from copyscope.judge.evidence import Evidence

RUNS = 400


def planted_counts(samples: int, share: float) -> list[int]:
    """Return the number of samples in the copy for each of 400 runs: evenly spaced binomial quantiles."""
    chances = [
        math.comb(samples, hits) * share**hits * (1 - share) ** (samples - hits)
        for hits in range(samples + 1)
    ]
    sums = list(accumulate(chances))
    return [
        next(hits for hits, total in enumerate(sums) if total >= (run + 0.5) / RUNS - 1e-12)
        for run in range(RUNS)
    ]


def shown_interval(samples: int, in_copy: int) -> tuple[float, float]:
    """Return the interval of the copy's share that advice uses, for a program with these samples."""
    raw = watched_record()
    rows = {row["category"]: row for row in raw["samples"] if row["side"] == "target"}
    weight = 600_000_000 // samples
    for name, count in (("copy_in", in_copy), ("tcp_ip", samples - in_copy)):
        rows[name] |= {
            "samples": count,
            "weight": count * weight,
            "weight_squared": float(count * weight**2),
        }
    raw["samples"] = [rows[name] for name in ("copy_in", "tcp_ip") if rows[name]["samples"]]
    share = Evidence(typed_whole(derive(raw))).share(("copy_in",))
    assert share is not None
    return share.low, share.high


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5])
@pytest.mark.parametrize("samples", [30, 100, 1000])
def test_shares_of_400_runs_hold_the_truth_as_often_as_promised(samples: int, share: float) -> None:
    counts = planted_counts(samples, share)
    intervals = {in_copy: shown_interval(samples, in_copy) for in_copy in set(counts)}
    holds = sum(intervals[count][0] <= share <= intervals[count][1] for count in counts)
    assert 0.93 * RUNS <= holds <= 0.97 * RUNS, holds / RUNS


def equal_runs(generator: random.Random, impl: str, size: int, repeats: int) -> list[dict[str, object]]:
    """Return repeats of a run whose cost varies by 5 %."""
    prices = {"copies": {"call": 900.0, "byte": 0.2}, "packets": {"call": 500.0}}
    return [
        priced(impl, size, prices, repeat=repeat, slower=math.exp(generator.gauss(0, 0.05)))
        for repeat in range(repeats)
    ]


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_at_most_5_of_100_comparisons_of_equal_groups_decide(repeats: int) -> None:
    generator = random.Random(repeats)
    decided = 0
    for _ in range(100):
        before, after = (typed_runs(equal_runs(generator, "one_copy", 65_536, repeats)) for _ in range(2))
        verdict = compare_groups(before, after, ComparisonOptions()).verdict
        decided += verdict in (BETTER, WORSE)
    assert decided <= 5


def test_equal_strategies_never_cross() -> None:
    """The ratio is 1 at each of six sizes, with noise of 5 % and five repeats."""
    sizes = [1 << power for power in range(10, 21, 2)]
    for seed in range(100):
        generator = random.Random(seed)
        ratios = {size: [math.exp(generator.gauss(0, 0.05)) for _ in range(5)] for size in sizes}
        assert crossing.find_crossing(ratios, str(seed)).verdict != "crosses", seed
