"""Which clock a side's CPU time is read from, and when the sampler is held against it."""

from typing import Any

import builders
import pytest
from builders.watched import watched_record
from copyscope.ledger.attribution import side_times
from copyscope.ledger.cpu_time import cpu_time, excludes_softirq
from copyscope.ledger.derive import derive
from copyscope.ledger.identities.time import armed_cpu_ns, burst_spread, sampled_share, sampled_time
from copyscope.record.check import typed
from msgspec import to_builtins

Record = dict[str, Any]

COUNTED_NS = 855_000_000  # task-clock of the sender in these records
CLOCK_NS = 900_000_000  # its CPU clock, which bills the wake-ups, too


def two_clocks() -> Record:
    """A record in which the CPU clock says more than task-clock."""
    raw = builders.raw_record("one_copy")
    for segment in raw["run"]["segments"]:
        if segment["arm"] == "ledger":
            segment["sender"]["process_cpu_ns"] = CLOCK_NS // 3
    return raw


def sleeping(switches: int, seen: float) -> Record:
    """A receiver that sleeps so often, and of whose time the sampler saw a part."""
    raw = builders.raw_record("one_copy")
    for segment in raw["run"]["segments"]:
        segment["receiver"]["voluntary_switches"] = switches
    for row in raw["samples"]:
        if row["side"] == "receiver":
            row["samples"] = round(row["samples"] * seen)
            row["weight"] = row["samples"] * builders.PERIOD_NS
    return raw


def receiver_time(raw: Record) -> Record:
    run = typed(raw)
    found: Record = to_builtins(sampled_time(run, "receiver", side_times(run)["receiver"]))
    return found


def share_seen(raw: Record) -> float | None:
    run = typed(raw)
    return sampled_share(run, "receiver", side_times(run)["receiver"])


def test_task_clock_where_it_was_counted() -> None:
    raw = two_clocks()
    spent = cpu_time(typed(raw), "sender")
    assert (spent.ns, spent.source, spent.switches) == (COUNTED_NS, "task-clock", 2_700)
    full = derive(raw)
    assert full["sides"]["sender"]["cpu_ns"] == COUNTED_NS
    assert full["sides"]["sender"]["cpu_source"] == "task-clock"
    assert full["sides"]["sender"]["on_cpu_share_of_wall"] == pytest.approx(0.95)
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


def test_task_clock_has_softirq_in_it_whatever_the_kernel_does_with_its_own() -> None:
    raw = builders.raw_record("one_copy")
    raw["machine"]["irq_time_accounting"] = True
    assert not excludes_softirq(typed(raw), "sender")
    assert excludes_softirq(typed(builders.without_task_clock(raw)), "sender")


def test_a_burst_is_the_time_between_two_sleeps() -> None:
    raw = sleeping(20_000, 1.0)
    assert cpu_time(typed(raw), "receiver").burst_ns == pytest.approx(540_000_000 / 60_000)
    assert derive(raw)["sides"]["receiver"]["burst_ns"] == 9_000


def test_too_little_seen_of_short_bursts_is_not_judged_and_says_how_much() -> None:
    raw = sleeping(20_000, 0.48)
    found = receiver_time(raw)
    assert found["holds"] is None
    assert "ran for 9.0 us at a time" in found["reason"] and "48% of its time was seen" in found["reason"]
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert full["sides"]["receiver"]["sampled_share"] == pytest.approx(0.48, abs=0.01)


def test_too_little_seen_of_long_bursts_is_broken() -> None:
    assert receiver_time(sleeping(900, 0.48))["holds"] is False


def test_a_side_from_which_others_take_the_cpu_runs_as_short_as_one_that_sleeps() -> None:
    raw = sleeping(900, 0.48)
    raw["counters"]["receiver"]["context-switches"] |= {"value": 60_000, "status": "counted", "reason": None}
    found = receiver_time(raw)
    assert found["holds"] is None and "ran for 9.0 us at a time" in found["reason"]


def test_what_others_take_the_cpu_from_needs_no_counter_of_perf() -> None:
    raw = builders.without_task_clock(sleeping(900, 0.48))
    for segment in raw["run"]["segments"]:
        segment["receiver"]["involuntary_switches"] = 19_100
    found = receiver_time(raw)
    assert found["holds"] is None and "us at a time" in found["reason"]
    watched = watched_record()
    stays_ns = cpu_time(typed(watched), "target").stay_ns
    for segment in watched["run"]["segments"]:
        del segment["target"]["involuntary_switches"]
    assert cpu_time(typed(watched), "target").stay_ns == pytest.approx(stays_ns * 3 / 2)


def test_more_seen_than_there_was() -> None:
    """Arming the timer may cost as much as a short burst, not more, and nothing beside a long one."""
    assert receiver_time(sleeping(900, 1.6))["holds"] is False
    dear = receiver_time(sleeping(20_000, 1.6))
    assert dear["holds"] is None and "arming the timer costs" in dear["reason"]
    assert receiver_time(sleeping(20_000, 2.5))["holds"] is False


@pytest.mark.parametrize("switches", [900, 20_000])
def test_all_seen_holds(switches: int) -> None:
    raw = sleeping(switches, 1.0)
    assert receiver_time(raw)["holds"] is True
    assert share_seen(raw) == pytest.approx(1, abs=0.01)


def test_bursts_that_differ_widen_the_tolerance() -> None:
    """900 samples of ten bursts: 90 in each is chance, 180 in every second one is a spread of 300."""
    raw = builders.raw_record("one_copy")
    steady = receiver_time(raw)["tolerance"]
    sides = raw["sampler"]["bursts"]
    sides["receiver"] |= {"count": 10, "samples": 900, "samples_squared": 10 * 90**2}
    assert burst_spread(typed(raw).sampler, "receiver") == 0
    sides["receiver"] |= {"samples": 900, "samples_squared": 5 * 180**2}
    assert burst_spread(typed(raw).sampler, "receiver") == pytest.approx(300)
    assert receiver_time(raw)["tolerance"] > 2 * steady
    raw["sampler"]["bursts"] = None
    assert burst_spread(typed(raw).sampler, "receiver") == 0


@pytest.mark.parametrize("holds,seen_ns", [(True, 900_000_000), (False, 540_000_000), (False, 1_300_000_000)])
def test_beside_other_programs_the_sampler_is_held_against_the_time_in_its_bursts(
    holds: bool, seen_ns: int
) -> None:
    """540 ms of CPU time in all; in the bursts the receiver got the CPU more often, as if it had 900 ms."""
    raw = sleeping(900, seen_ns / 540_000_000)
    assert receiver_time(raw)["holds"] is (seen_ns == 540_000_000)
    burst = raw["sampler"]["bursts"]["receiver"]
    burst["armed_ns"] = raw["sampler"]["enabled_ns"] // 50
    burst["cpu_ns"] = 900_000_000 // 50
    found = receiver_time(raw)
    assert found["right"] == pytest.approx(900_000_000, rel=1e-6)
    assert found["what"].endswith("CPU time while sampled, scaled alike")
    assert found["holds"] is holds


def share_of_instruments(full: Record) -> float:
    of_receiver = (row for row in full["stages"] if row["side"] == "receiver")
    return sum(row["share"] or 0.0 for row in of_receiver if row["stage"] == "instruments")


def test_what_arming_the_timers_costs_is_not_the_program_s() -> None:
    """In its bursts, a fiftieth of the time, arming takes half as much CPU time as the receiver itself."""
    raw = sleeping(900, 1.0)
    sampler, rows = raw["sampler"], [row for row in raw["samples"] if row["side"] == "receiver"]
    burst = sampler["bursts"]["receiver"] | {"armed_ns": sampler["enabled_ns"] // 50}
    sampler["bursts"]["receiver"] = burst
    samples = sum(row["samples"] for row in rows) // 2
    arming = {
        "kind": "stage",
        "category": "instruments",
        "context": "process",
        "symbol": "finish_task_switch",
    }
    raw["samples"].append(rows[0] | arming | {"samples": samples, "weight": samples * builders.PERIOD_NS})
    burst["cpu_ns"] = round(540_000_000 * 1.5) // 50
    full = derive(raw)
    # The timers and their clock saw all of it.
    assert receiver_time(raw)["holds"] is True
    assert receiver_time(raw)["left"] == pytest.approx(540_000_000 * 1.5, rel=0.01)
    assert share_seen(raw) == pytest.approx(1, abs=0.005)
    # The program's rows are as without: a hundredth is what the timers really took of the segments.
    before = derive(sleeping(900, 1.0))
    for was, row in zip(before["ledger"], full["ledger"], strict=True):
        if row["side"] == "receiver" and was["share"]:
            assert row["share"] == pytest.approx(was["share"] / 1.01, rel=0.002)
    assert share_of_instruments(full) == pytest.approx(0.01 / 1.01, rel=0.01)
    # Where they are armed all the time it is a third of all, and said.
    burst["armed_ns"] = sampler["enabled_ns"]
    assert share_of_instruments(derive(raw)) == pytest.approx(1 / 3, rel=0.01)


def test_who_got_no_cpu_in_any_burst_is_no_test_of_the_sampler() -> None:
    """Beside busy programs nine bursts of 5 ms may all miss a program that ran for 540 ms."""
    raw = sleeping(900, 0.0)
    burst = raw["sampler"]["bursts"]["receiver"]
    burst |= {"armed_ns": 45_000_000, "cpu_ns": 0, "count": 9}
    found = receiver_time(raw)
    assert found["holds"] is None and "in none of 9 bursts" in found["reason"]
    burst["cpu_ns"] = 20_000_000
    assert receiver_time(raw)["holds"] is False


def test_a_timer_that_is_always_armed_is_held_against_another_clock() -> None:
    raw = sleeping(900, 1.0)
    raw["sampler"]["bursts"]["receiver"] |= {"armed_ns": raw["sampler"]["enabled_ns"], "cpu_ns": 900_000_000}
    assert receiver_time(raw)["right"] == 540_000_000


def test_what_a_multiplexed_counter_did_not_see_is_in_the_tolerance() -> None:
    """A counter that ran half of the time says half of the cycles for certain, not of the rest."""
    raw = builders.raw_record("one_copy", pmu=True)
    counter = raw["counters"]["receiver"]["cycles"]
    counter["value"] = round(counter["value"] / 0.7)
    assert receiver_time(raw)["holds"] is False
    counter |= {"status": "scaled", "running": 0.5}
    assert receiver_time(raw)["holds"] is True


def test_periods_that_passed_while_the_hypervisor_had_the_cpu_are_in_the_tolerance() -> None:
    """Of four seconds that the CPUs had work one was stolen: as much of the periods may be missing."""
    raw = sleeping(900, 0.72)
    assert receiver_time(raw)["holds"] is False
    raw["machine_state"] |= {"steal_ns": 10**9, "busy_ns": 3 * 10**9}
    assert receiver_time(raw)["holds"] is True
    assert receiver_time(sleeping(900, 0.48) | {"machine_state": raw["machine_state"]})["holds"] is False


def test_a_slice_of_the_hypervisor_s_may_fall_into_a_burst() -> None:
    """Of bursts of 100 ms in 2 s, 30 ms were stolen, 1.5 % of all time."""
    raw = sleeping(900, 1.0)
    enabled_ns = raw["sampler"]["enabled_ns"]
    armed = {"armed_ns": enabled_ns // 20, "cpu_ns": round(540_000_000 / 0.7) // 20, "count": 20}
    raw["sampler"]["bursts"]["receiver"] |= armed
    raw["machine_state"] |= {"steal_ns": 0, "busy_ns": 10**9}
    assert receiver_time(raw)["holds"] is False
    raw["machine_state"] |= {"steal_ns": 15 * 10**6}
    assert receiver_time(raw)["holds"] is True
    raw["sampler"]["bursts"]["receiver"]["cpu_ns"] *= 2
    assert receiver_time(raw)["holds"] is False


def test_samples_and_the_clock_may_differ_as_much_as_they_do_from_burst_to_burst() -> None:
    """Nine bursts saw 216 ms where the clock had 270: 6 ms less in each, or that much on average."""
    raw = builders.raw_record("one_copy")
    burst = raw["sampler"]["bursts"]["receiver"]
    assert burst["samples"] * burst["period_ns"] == 216_000_000
    alike_us2 = 9 * 6_000**2
    burst |= {"count": 9, "cpu_ns": 270_000_000, "difference_us_squared": alike_us2}
    assert receiver_time(raw)["holds"] is False
    burst["difference_us_squared"] = alike_us2 + 8 * 4_000**2
    one = receiver_time(raw)
    # of 9 bursts: 5.04 of Student's times 4 ms times 3, in 360 of 900 ms
    assert one["holds"] is True and one["tolerance"] == pytest.approx(151.2e6 + 0.03 * 675e6, rel=0.05)
    # More than a third of the time is not called chance, however much bursts differ.
    burst |= {"cpu_ns": 350_000_000, "difference_us_squared": 9 * 15_000**2 + 8 * 40_000**2}
    assert receiver_time(raw)["holds"] is False
    # Of an older record the number of samples says it.
    del burst["difference_us_squared"]
    assert receiver_time(raw)["holds"] is False


def test_children_that_are_not_watched_are_not_held_against_the_samples() -> None:
    """They inherit the timers: what these measured is not the program's alone."""
    raw = watched_record()
    armed = {"armed_ns": 45_000_000, "cpu_ns": 44_000_000, "count": 9, "period_ns": 100_000}
    raw["sampler"]["bursts"] = {"target": {**armed, "samples": 1, "samples_squared": 1}}
    assert armed_cpu_ns(typed(raw), "target") is not None
    raw["target"]["follow"] = False
    assert armed_cpu_ns(typed(raw), "target") is None


def test_the_cpu_clock_in_bursts_is_held_against_task_clock_as_in_all_segments() -> None:
    """Timers of CPUs have no clock of the program: that of its processes is read."""
    raw = watched_record()
    armed = {"armed_ns": 45_000_000, "cpu_ns": 40_000_000, "count": 10, "period_ns": 100_000}
    raw["sampler"]["bursts"] = {"target": {**armed, "by_cpus": 0, "samples": 1, "samples_squared": 1}}
    by_threads = armed_cpu_ns(typed(raw), "target")
    assert by_threads is not None
    billed_ns = sum(s["target"]["process_cpu_ns"] for s in raw["run"]["segments"] if s["arm"] == "ledger")
    raw["counters"]["target"]["task-clock"] |= {"value": billed_ns * 1.2, "status": "scaled"}
    raw["sampler"]["bursts"]["target"]["by_cpus"] = 5
    assert armed_cpu_ns(typed(raw), "target") == pytest.approx(1.1 * by_threads)
    raw["sampler"]["bursts"]["target"]["by_cpus"] = 10
    assert armed_cpu_ns(typed(raw), "target") == pytest.approx(1.2 * by_threads)
    # Without task-clock, where the CPU clock leaves softirq work out and the timers do not.
    raw["counters"]["target"]["task-clock"] |= {"value": None, "status": "unsupported", "reason": "no perf"}
    assert armed_cpu_ns(typed(raw), "target") == pytest.approx(by_threads)
    raw["machine"]["irq_time_accounting"] = True
    assert armed_cpu_ns(typed(raw), "target") is None


def test_with_no_sample_of_either_process_the_work_of_others_has_no_time() -> None:
    """By a PMU's cycles, which are time only beside a clock of the same processor."""
    raw = builders.raw_record("one_copy", pmu=True)
    other = side_times(typed(raw))["other"]
    assert other.scale_ns is not None and other.scale_ns > 0
    raw["samples"] = [row for row in raw["samples"] if row["side"] == "other"]
    other = side_times(typed(raw))["other"]
    assert raw["samples"] and other.scale_ns is None and "no process was sampled" in str(other.reason)
