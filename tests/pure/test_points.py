# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of one run, estimates over the repeats of a point, and reasons for missing values."""

import copy
import random
from collections.abc import Iterable
from typing import Any

import pytest
from builders import quantiles, raw_record
from builders.documents import derive, typed_runs
from copyscope.base import stats
from copyscope.base.stats import Estimate, Missing
from copyscope.judge import estimates, metrics
from copyscope.judge.estimates import MeasuredPoint

Record = dict[str, Any]

# The invented run of one_copy: 10,000 messages of 64 KiB in each segment of 300 ms without instruments, and
# 9,700 on average in each of three ledger segments, with CPU times of 285 ms (sender) and 180 ms (receiver).
GBPS = 10_000 * 65_536 * 8 / 300e6
LEDGER_KIB = 29_100 * 64


def derived(impl: str = "one_copy", *, repeat: int = 0, size: int = 65_536, **options: Any) -> Record:
    record = raw_record(impl, size_bytes=size, **options)
    record["run"] |= {
        "id": f"t-{impl}-{size}-{repeat}",
        "repeat": repeat,
        "factors": {"impl": impl, "size": size},
    }
    return derive(record)


def read(record: Record, name: str) -> metrics.Value:
    (run,) = typed_runs([record])
    return metrics.read(run, name)


def value(record: Record, name: str) -> float:
    metric_value = read(record, name)
    assert isinstance(metric_value, float)
    return metric_value


def point(records: Iterable[Record]) -> MeasuredPoint:
    return MeasuredPoint({}, tuple(typed_runs(records)))


def faster(record: Record, factor: float) -> Record:
    """Return a copy of a run with its goodput multiplied by `factor`."""
    changed = copy.deepcopy(record)
    changed["throughput_gbps"]["unprobed"] *= factor
    return changed


def test_without_a_pmu_only_cycles_are_missing() -> None:
    assert read(derived(), "goodput_gbps") == pytest.approx(GBPS)
    assert read(derived(), "sender_cpu_ns_per_kib") == pytest.approx(855e6 / LEDGER_KIB)
    assert read(derived(), "receiver_cpu_ns_per_kib") == pytest.approx(540e6 / LEDGER_KIB)
    record = derived("zero_copy")
    assert read(record, "copied_share") == 1.0
    sender, receiver, system = (
        value(record, f"{side}_cpu_ns_per_kib") for side in ("sender", "receiver", "system")
    )
    assert system >= sender + receiver > sender > 0
    cycles = read(record, "cycles_per_byte_sender")
    assert isinstance(cycles, Missing) and "cycles" in cycles.reason


def test_every_metric_has_a_value_or_a_reason() -> None:
    runs = [derived(impl, pmu=pmu) for impl in ("one_copy", "zero_copy", "null") for pmu in (False, True)]
    runs += [derived(fixed_messages=23), derived(phases=("unprobed", "calls")), derived(died=("collector",))]
    for record in runs:
        for name, metric in metrics.METRICS.items():
            metric_value = read(record, name)
            assert isinstance(metric_value, float) or metric_value.reason, (name, metric_value)
            assert metric.name == name


def test_counters_are_divided_by_the_bytes_delivered_while_they_counted() -> None:
    record = derived(pmu=True)
    delivered = LEDGER_KIB * 1024
    cycles = record["counters"]["sender"]["cycles"]["value"]
    assert read(record, "cycles_per_byte_sender") == pytest.approx(cycles / delivered)
    misses = record["counters"]["receiver"]["LLC-load-misses"]["value"]
    assert read(record, "llc_misses_per_kib_receiver") == pytest.approx(misses * 1024 / delivered)


def test_time_per_message_is_per_connection_and_inverse_throughput_is_not() -> None:
    record = derived(threads=4)
    wall_us = 3 * 300_000
    for name, connections in (("time_per_message_us", 4), ("inverse_throughput_us", 1)):
        assert read(record, name) == pytest.approx(connections * wall_us / (3 * 10_000))


def test_latency_exists_only_with_mode_rr() -> None:
    record = derived()
    assert "--mode rr" in str(read(record, "rtt_p50_us"))
    record["workload"]["mode"] = "rr"
    record["traffic"]["sender"]["histograms"]["round_trip_ns"] = quantiles(42_000, 99_000)
    assert read(record, "rtt_p50_us") == 42.0
    assert read(record, "rtt_p99_us") == 99.0


def test_points_are_sorted_by_factor_without_invalid_runs() -> None:
    runs = [derived(size=size, repeat=r) for r in (1, 0) for size in (65_536, 1024, 4096)]
    runs[0]["verdict"] = runs[0]["verdict"] | {"valid": False, "reasons": ["too short"]}
    random.Random(1).shuffle(runs)
    points = estimates.group_points(typed_runs(runs))
    assert [p.factors["size"] for p in points] == [1024, 4096, 65_536]
    assert [[r.raw.run.repeat for r in p.runs] for p in points] == [[0, 1], [0, 1], [0]]
    assert len(estimates.group_points(typed_runs(runs), valid_only=False)[2].runs) == 2


def test_runs_outside_an_experiment_are_grouped_by_their_settings() -> None:
    runs = [derived(), derived(threads=2), derived()]
    for run in runs:
        run["run"]["factors"] = None
    assert [(p.factors["threads"], len(p.runs)) for p in estimates.group_points(typed_runs(runs))] == [
        (1, 2),
        (2, 1),
    ]


def test_an_estimate_is_a_median_with_interval() -> None:
    run = derived()
    goodput = pytest.approx(GBPS)
    three_runs = point(faster(run, f) for f in (0.9, 1.0, 1.1))
    estimate = estimates.estimate(three_runs, "goodput_gbps")
    assert isinstance(estimate, Estimate) and estimate.value == goodput and estimate.level == 0.95
    assert estimate.low is not None and estimate.high is not None and estimate.low < GBPS < estimate.high
    single = estimates.estimate(point([run]), "goodput_gbps")
    assert isinstance(single, Estimate) and single.value == goodput
    assert (single.low, single.high, single.level, single.samples) == (None, None, 0.0, 1)
    assert isinstance(estimates.estimate(three_runs, "cycles_per_byte_sender"), Missing)


def test_a_ratio_is_paired_by_repeat() -> None:
    """The machine halves its speed between repeats, which affects both strategies but not their ratio."""
    base = derived()
    ours: list[Record] = []
    theirs: list[Record] = []
    for repeat, drift in enumerate((1.0, 0.5, 0.8)):
        for runs, factor in ((ours, 1.2 * drift), (theirs, drift)):
            run = faster(base, factor)
            run["run"]["repeat"] = repeat
            runs.append(run)
    ratio = estimates.ratio(point(ours), point(theirs[::-1]), "goodput_gbps")
    assert isinstance(ratio, Estimate)
    assert ratio.value == pytest.approx(1.2)
    assert ratio.against(1.0) == stats.MORE
    assert ratio.against(1.3) == stats.LESS
    for run in theirs:
        run["run"]["repeat"] += 10
    nothing = estimates.ratio(point(ours), point(theirs), "goodput_gbps")
    assert nothing == Missing("goodput_gbps: no repeat that both have")


def test_an_interval_around_one_shows_no_difference() -> None:
    assert Estimate(1.02, 0.97, 1.06, 0.95, 5).against(1.0) == stats.SAME
    assert Estimate(1.5, None, None, 0.0, 1).against(1.0) == stats.SAME


def test_a_row_that_a_repeat_lacks_costs_zero_in_that_repeat() -> None:
    runs = [derived(repeat=r) for r in range(3)]
    runs[2]["stages"] = [row for row in runs[2]["stages"] if row["stage"] != "lock"]
    runs[1]["stages"] = [row for row in runs[1]["stages"] if row["stage"] != "lock"]
    costs = estimates.account_estimates(point(runs))
    copied = costs["copy_in", "sender", "process"]
    samples = [row for row in runs[0]["samples"] if row["side"] == "sender"]
    part = sum(row["weight"] for row in samples if row["category"] == "copy_in")
    assert copied.value == pytest.approx(
        855e6 * part / sum(row["weight"] for row in samples) / LEDGER_KIB, rel=1e-3
    )
    lock = costs["lock", "sender", "process"]
    assert (lock.value, lock.low, lock.samples) == (0.0, 0.0, 3)


def test_missing_softirq_work_charged_to_other_tasks_costs_zero() -> None:
    """Only a single repeat of three has such work, so the median is 0."""
    runs = [derived(repeat=r) for r in range(3)]
    for run in runs[1:]:
        run["stages"] = [row for row in run["stages"] if row["side"] != "other"]
        run["sides"]["other"] |= {"samples": 0, "cpu_ns": 0}
    softirq_cost = estimates.account_estimates(point(runs))["softirq", "other", "softirq"]
    assert (softirq_cost.value, softirq_cost.samples) == (0.0, 3)


def test_a_side_without_samples_has_no_rows() -> None:
    costs = estimates.account_estimates(point([derived(died=("collector",))]))
    assert {side for _, side, _ in costs} == set()
