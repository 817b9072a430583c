# SPDX-License-Identifier: GPL-2.0-only
"""The clock of each side's CPU time, and how the samples are checked against it."""

from typing import Any

import builders
import pytest
from builders.documents import derive, typed
from builders.watched import watched_record
from copyscope.ledger.attribution import cpu_time, excludes_softirq, row_interval, side_times
from copyscope.ledger.checks.time import sampled_time
from copyscope.ledger.tolerance import time_tolerance
from msgspec import to_builtins

Record = dict[str, Any]

COUNTED_NS = 855_000_000  # task-clock of the sender in these records
CLOCK_NS = 900_000_000  # its CPU clock, which bills the wake-ups, too


def two_clocks() -> Record:
    """Return a record with a CPU clock that is ahead of task-clock."""
    raw = builders.raw_record("one_copy")
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["sender"]["process_cpu_ns"] = CLOCK_NS // 3
    return raw


def sleeping(switches: int, sampled_share: float, hypervisor: str | None = None) -> Record:
    """Return a record with a receiver that sleeps `switches` times, and samples of a share of its time."""
    raw = builders.raw_record("one_copy")
    raw["machine"]["hypervisor"] = hypervisor
    for segment in raw["run"]["segments"]:
        segment["sides"]["receiver"]["voluntary_switches"] = switches
    for row in raw["samples"]:
        if row["side"] == "receiver":
            row["samples"] = round(row["samples"] * sampled_share)
            row["weight"] = row["samples"] * builders.PERIOD_NS
    return raw


def receiver_time(raw: Record) -> Record:
    run = typed(raw)
    check: Record = to_builtins(sampled_time(run, "receiver", side_times(run)["receiver"]))
    return check


def test_task_clock_is_used_if_perf_counted_it() -> None:
    raw = two_clocks()
    spent = cpu_time(typed(raw), "sender")
    assert (spent.ns, spent.source, spent.switches) == (COUNTED_NS, "task-clock", 2_700)
    full = derive(raw)
    assert full["sides"]["sender"]["cpu_ns"] == COUNTED_NS
    assert full["sides"]["sender"]["cpu_source"] == "task-clock"
    assert full["sides"]["sender"]["cpus_used"] == pytest.approx(0.95)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]


@pytest.mark.parametrize("how", ["not opened", "not supported"])
def test_the_cpu_clock_is_used_if_perf_did_not_count(how: str) -> None:
    raw = two_clocks()
    if how == "not opened":
        builders.without_task_clock(raw)
    else:
        refused = {"value": None, "status": "unsupported", "reason": "perf: not installed"}
        raw["counters"]["sender"]["task-clock"] |= refused
    assert (cpu_time(typed(raw), "sender").ns, cpu_time(typed(raw), "sender").source) == (
        CLOCK_NS,
        "CPU clock",
    )
    assert derive(raw)["sides"]["sender"]["cpu_source"] == "CPU clock"


def test_the_cpu_clock_is_used_if_perf_missed_most_of_the_time() -> None:
    """A server that forked for each connection had 125 ms by perf, 485 by CPU clocks, 767 by samples."""
    raw = watched_record()
    raw["counters"]["target"]["task-clock"]["value"] //= 4
    spent = cpu_time(typed(raw), "target")
    assert (spent.ns, spent.source) == (600_000_000, "CPU clock") and derive(raw)["verdict"]["valid"]


@pytest.mark.parametrize(
    ("task_clock_share", "sampled_share", "source", "valid"),
    [
        # perf missed threads: the samples confirm the CPU clock.
        (0.6, 1.0, "CPU clock", True),
        # The CPU clock includes the latency of wake-ups: the samples confirm task-clock.
        (0.6, 0.6, "task-clock", True),
        # The difference is smaller than the tolerance.
        (0.96, 1.0, "task-clock", True),
        # The samples confirm neither clock.
        (0.6, 1.6, "task-clock", False),
    ],
)
def test_samples_decide_between_two_clocks(
    task_clock_share: float, sampled_share: float, source: str, valid: bool
) -> None:
    """The CPU clock has 600 ms. The program sleeps so often that wake-ups could explain all of it."""
    raw = with_more_samples(watched_record(), sampled_share)
    raw["counters"]["target"]["task-clock"]["value"] = round(600_000_000 * task_clock_share)
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["voluntary_switches"] = 9_000
    full = derive(raw)
    assert full["sides"]["target"]["cpu_source"] == source
    assert target_time(raw)["holds"] is valid and full["verdict"]["valid"] is valid


def test_samples_in_cycles_choose_no_clock() -> None:
    raw = watched_record()
    raw["counters"]["target"]["task-clock"]["value"] = 360_000_000
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["voluntary_switches"] = 100_000
    raw["sampler"]["events"][0] |= {"name": "cycles", "unit": "cycles"}
    for row in raw["samples"]:
        row["event"] = "cycles"
    assert cpu_time(typed(raw), "target").source == "task-clock"


def test_task_clock_always_includes_softirq() -> None:
    raw = builders.raw_record("one_copy")
    raw["machine"]["irq_time_accounting"] = True
    assert not excludes_softirq(typed(raw), "sender")
    assert excludes_softirq(typed(builders.without_task_clock(raw)), "sender")


@pytest.mark.parametrize("sampled_share", [0.48, 1.6])
def test_too_few_or_too_many_samples_break_the_check(sampled_share: float) -> None:
    check = receiver_time(sleeping(900, sampled_share))
    assert check["holds"] is False and check["left"] == pytest.approx(sampled_share * 540e6, rel=0.01)


@pytest.mark.parametrize("switches", [900, 20_000])
def test_complete_samples_pass_the_check(switches: int) -> None:
    assert receiver_time(sleeping(switches, 1.0))["holds"] is True


@pytest.mark.parametrize(("periods", "holds"), [(5, True), (100, False)])
def test_without_samples_the_tolerance_follows_from_the_period(periods: int, holds: bool) -> None:
    raw = sleeping(0, 0.0)
    raw["counters"]["receiver"]["task-clock"]["value"] = periods * builders.PERIOD_NS
    assert receiver_time(raw)["holds"] is holds


def test_unequal_weights_give_fewer_effective_samples() -> None:
    """A tenth of the samples has 90 % of the weight, which is as precise as an eighth of all samples."""
    raw = builders.raw_record("one_copy", pmu=True)
    rows = [row for row in raw["samples"] if (row["side"], row["event"]) == ("receiver", "cycles")]
    for row in rows:
        row["weight_squared"] = row["weight"] ** 2 / row["samples"]
    equal = side_times(typed(raw))["receiver"]
    assert equal.weights.effective_samples == pytest.approx(equal.weights.all_samples, rel=0.01)
    for row in rows:
        row["weight_squared"] *= 0.9**2 / 0.1 + 0.1**2 / 0.9
    unequal = side_times(typed(raw))["receiver"]
    assert unequal.weights.effective_samples == pytest.approx(equal.weights.all_samples / 8.11, rel=0.01)
    key = next(iter(unequal.weights.samples))
    narrow, wide = (row_interval(time, "receiver", key) for time in (equal, unequal))
    assert narrow is not None and wide is not None
    ratio = (wide.high_ns - wide.low_ns) / (narrow.high_ns - narrow.low_ns)
    assert ratio == pytest.approx(8.11**0.5, rel=0.05)


def test_the_tolerance_includes_the_time_that_a_multiplexed_counter_missed() -> None:
    """A counter that ran half of the time is certain about half of the cycles only."""
    raw = builders.raw_record("one_copy", pmu=True)
    counter = raw["counters"]["receiver"]["cycles"]
    counter["value"] = round(counter["value"] / 0.7)
    assert receiver_time(raw)["holds"] is False
    counter |= {"status": "scaled", "running": 0.5}
    assert receiver_time(raw)["holds"] is True


def test_late_timers_of_virtual_machines_are_tolerated() -> None:
    """Late timers only lose samples, and only in virtual machines."""
    assert [
        receiver_time(sleeping(900, sampled_share, "KVM"))["holds"] for sampled_share in (0.4, 0.6, 1.0, 1.4)
    ] == [*(False, True, True, False)]
    assert receiver_time(sleeping(900, 0.6))["holds"] is False


def test_the_tolerance_includes_stolen_time() -> None:
    """The hypervisor stole one of four seconds, so that share of the samples may be missing."""
    raw = sleeping(900, 0.72)
    assert receiver_time(raw)["holds"] is False
    raw["machine_state"] |= {"steal_ns": 10**9, "busy_ns": 3 * 10**9}
    assert receiver_time(raw)["holds"] is True
    assert receiver_time(sleeping(900, 0.48) | {"machine_state": raw["machine_state"]})["holds"] is False


def target_time(raw: Record) -> Record:
    return next(row for row in derive(raw)["identities"] if row["name"] == "target_time")


def with_more_samples(raw: Record, factor: float) -> Record:
    """Return the record with the samples of the watched program multiplied by a factor."""
    for row in raw["samples"]:
        if row["side"] == "target":
            row |= {"samples": round(row["samples"] * factor), "weight": round(row["weight"] * factor)}
            row["weight_squared"] *= factor
    return raw


def test_samples_counted_twice_break_the_check() -> None:
    assert target_time(watched_record())["holds"] is True
    assert target_time(with_more_samples(watched_record(), 2))["holds"] is False


@pytest.mark.parametrize("hypervisor", [None, "KVM"])
@pytest.mark.parametrize("category", ["copy_out", "user"])
def test_samples_of_another_process_break_the_check(hypervisor: str | None, category: str) -> None:
    """The other process takes a third of the receiver's time, in a copy or in user mode."""
    raw = sleeping(900, 1.0, hypervisor)
    row = next(row for row in raw["samples"] if row["side"] == "receiver")
    of_another = {"category": category, "samples": 720, "weight": 720 * builders.PERIOD_NS}
    raw["samples"].append(row | of_another | {"kind": "account" if category == "copy_out" else "stage"})
    assert receiver_time(raw)["holds"] is False


@pytest.mark.parametrize(("hypervisor", "factor"), [(None, 1.3), ("KVM", 2.2)])
def test_a_clock_that_includes_another_process_breaks_the_check(
    hypervisor: str | None, factor: float
) -> None:
    raw = sleeping(900, 1.0, hypervisor)
    clock = raw["counters"]["receiver"]["task-clock"]
    clock["value"] = round(clock["value"] * factor)
    assert receiver_time(raw)["holds"] is False


def test_an_incomplete_task_clock_is_replaced_by_the_cpu_clock() -> None:
    raw = watched_record()
    raw["counters"]["target"]["task-clock"]["value"] = 400_000_000
    full = derive(raw)
    spent = full["sides"]["target"]
    assert (spent["cpu_ns"], spent["cpu_source"]) == (600_000_000, "CPU clock")
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert target_time(with_more_samples(raw, 2))["holds"] is False


@pytest.mark.parametrize(("exits", "holds"), [(0, False), (10, False), (60, True)])
def test_the_tolerance_includes_one_tick_for_each_process_that_exited(exits: int, holds: bool) -> None:
    """Samples show 1,200 ms, the clock 600 ms: 10 exits explain 100 ms of that, 60 exits all."""
    raw = with_more_samples(watched_record(), 2)
    raw["counters"] = {}
    raw["target"] |= {"exits": exits, "forks": exits}
    assert target_time(raw)["holds"] is holds


def test_one_tolerance_for_all_counts_of_time() -> None:
    """Chance, 5 % of the larger count and clock errors add up. Time missing in guests includes them."""
    assert time_tolerance(1_000, 30) == 80
    assert time_tolerance(1_000, 30, clock_error=20) == 100
    assert time_tolerance(1_000, 30, missing=50) == 80
    assert time_tolerance(1_000, 30, missing=500) == 500


def test_softirq_work_has_no_time_without_samples_of_the_processes() -> None:
    """PMU cycles become time only by comparison with the clock of a process."""
    raw = builders.raw_record("one_copy", pmu=True)
    other = side_times(typed(raw))["other"]
    assert other.scale_ns is not None and other.scale_ns > 0
    raw["samples"] = [row for row in raw["samples"] if row["side"] == "other"]
    other = side_times(typed(raw))["other"]
    assert raw["samples"] and other.scale_ns is None and "no process was sampled" in str(other.reason)
