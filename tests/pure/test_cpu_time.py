"""Which clock a side's CPU time is read from, and when the sampler is held against it."""

from typing import Any

import builders
import pytest
from builders.watched import watched_record
from copyscope.ledger.attribution import cpu_time, excludes_softirq, interval, side_times
from copyscope.ledger.checks.time import sampled_time
from copyscope.ledger.derive import derive
from copyscope.record.check import typed
from msgspec import to_builtins

Record = dict[str, Any]

COUNTED_NS = 855_000_000  # task-clock of the sender in these records
CLOCK_NS = 900_000_000  # its CPU clock, which bills the wake-ups, too


def two_clocks() -> Record:
    """A record in which the CPU clock says more than task-clock."""
    raw = builders.raw_record("one_copy")
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["sender"]["process_cpu_ns"] = CLOCK_NS // 3
    return raw


def sleeping(switches: int, seen: float, hypervisor: str | None = None) -> Record:
    """A receiver that sleeps so often, and of whose time the sampler saw a part."""
    raw = builders.raw_record("one_copy")
    raw["machine"]["hypervisor"] = hypervisor
    for segment in raw["run"]["segments"]:
        segment["sides"]["receiver"]["voluntary_switches"] = switches
    for row in raw["samples"]:
        if row["side"] == "receiver":
            row["samples"] = round(row["samples"] * seen)
            row["weight"] = row["samples"] * builders.PERIOD_NS
    return raw


def receiver_time(raw: Record) -> Record:
    run = typed(raw)
    found: Record = to_builtins(sampled_time(run, "receiver", side_times(run)["receiver"]))
    return found


def test_task_clock_where_it_was_counted() -> None:
    raw = two_clocks()
    spent = cpu_time(typed(raw), "sender")
    assert (spent.ns, spent.source, spent.switches) == (COUNTED_NS, "task-clock", 2_700)
    full = derive(raw)
    assert full["sides"]["sender"]["cpu_ns"] == COUNTED_NS
    assert full["sides"]["sender"]["cpu_source"] == "task-clock"
    assert full["sides"]["sender"]["cpus_used"] == pytest.approx(0.95)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]


@pytest.mark.parametrize("how", ["not opened", "not supported"])
def test_the_cpu_clock_where_it_was_not(how: str) -> None:
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


def test_the_cpu_clock_where_perf_has_missed_most_of_it() -> None:
    """A fork for each connection on a busy machine: perf had 125 ms, the CPU clocks 485, the samples 767."""
    raw = watched_record()
    raw["counters"]["target"]["task-clock"]["value"] //= 4
    spent = cpu_time(typed(raw), "target")
    assert (spent.ns, spent.source) == (600_000_000, "CPU clock") and derive(raw)["verdict"]["valid"]
    # Wake-ups of which it bills the latency may be as much.
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["voluntary_switches"] = 100_000
    assert cpu_time(typed(raw), "target").source == "task-clock"


def test_task_clock_has_softirq_in_it_whatever_the_kernel_does_with_its_own() -> None:
    raw = builders.raw_record("one_copy")
    raw["machine"]["irq_time_accounting"] = True
    assert not excludes_softirq(typed(raw), "sender")
    assert excludes_softirq(typed(builders.without_task_clock(raw)), "sender")


@pytest.mark.parametrize("seen", [0.48, 1.6])
def test_too_little_or_too_much_seen_is_broken(seen: float) -> None:
    found = receiver_time(sleeping(900, seen))
    assert found["holds"] is False and found["left"] == pytest.approx(seen * 540e6, rel=0.01)


@pytest.mark.parametrize("switches", [900, 20_000])
def test_all_seen_holds(switches: int) -> None:
    assert receiver_time(sleeping(switches, 1.0))["holds"] is True


@pytest.mark.parametrize(("periods", "holds"), [(5, True), (100, False)])
def test_with_no_sample_at_all_the_period_says_how_much_may_be_missed(periods: int, holds: bool) -> None:
    raw = sleeping(0, 0.0)
    raw["counters"]["receiver"]["task-clock"]["value"] = periods * builders.PERIOD_NS
    assert receiver_time(raw)["holds"] is holds


def test_samples_of_unequal_weight_count_less() -> None:
    """A tenth of the samples have 90 % of the weight: they say as much as an eighth of them."""
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
    narrow, wide = (interval(time, "receiver", key) for time in (equal, unequal))
    assert narrow is not None and wide is not None
    ratio = (wide.high_ns - wide.low_ns) / (narrow.high_ns - narrow.low_ns)
    assert ratio == pytest.approx(8.11**0.5, rel=0.05)


def test_what_a_multiplexed_counter_did_not_see_is_in_the_tolerance() -> None:
    """A counter that ran half of the time says half of the cycles for certain, not of the rest."""
    raw = builders.raw_record("one_copy", pmu=True)
    counter = raw["counters"]["receiver"]["cycles"]
    counter["value"] = round(counter["value"] / 0.7)
    assert receiver_time(raw)["holds"] is False
    counter |= {"status": "scaled", "running": 0.5}
    assert receiver_time(raw)["holds"] is True


def test_timers_of_virtual_machines_come_late_and_never_too_often() -> None:
    """What a late timer misses is missing; no timer sees more than there was, nor on hardware less."""
    assert [receiver_time(sleeping(900, seen, "KVM"))["holds"] for seen in (0.4, 0.6, 1.0, 1.4)] == [
        *(False, True, True, False)
    ]
    assert receiver_time(sleeping(900, 0.6))["holds"] is False


def test_periods_that_passed_while_the_hypervisor_had_the_cpu_are_in_the_tolerance() -> None:
    """Of four seconds that the CPUs had work one was stolen: as much of the periods may be missing."""
    raw = sleeping(900, 0.72)
    assert receiver_time(raw)["holds"] is False
    raw["machine_state"] |= {"steal_ns": 10**9, "busy_ns": 3 * 10**9}
    assert receiver_time(raw)["holds"] is True
    assert receiver_time(sleeping(900, 0.48) | {"machine_state": raw["machine_state"]})["holds"] is False


def test_with_no_sample_of_either_process_the_work_of_others_has_no_time() -> None:
    """By a PMU's cycles, which are time only beside a clock of the same processor."""
    raw = builders.raw_record("one_copy", pmu=True)
    other = side_times(typed(raw))["other"]
    assert other.scale_ns is not None and other.scale_ns > 0
    raw["samples"] = [row for row in raw["samples"] if row["side"] == "other"]
    other = side_times(typed(raw))["other"]
    assert raw["samples"] and other.scale_ns is None and "no process was sampled" in str(other.reason)
