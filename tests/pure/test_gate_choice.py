# SPDX-License-Identifier: GPL-2.0-only
"""Choice of the gate N from known costs and rates: one hooked copy in N is timed."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import PlannedSegment
from copyscope.plan.tier import (
    DEFAULT_ONE_IN,
    ONE_IN_MAX,
    Gate,
    SideCost,
    choose_gate,
    choose_instrument_gate,
    default_gate,
    given_gate,
    overhead_goal,
    with_gate,
)
from copyscope.record.messages import Mark
from copyscope.record.moved import MeasuredSegment
from copyscope.record.segments import WARM_UP
from copyscope.record.session_result import Tier
from copyscope.run.session import Setup
from copyscope.run.traffic import OwnTraffic
from hypothesis import given as drawn
from hypothesis import strategies as st

KIB = 1024


@pytest.mark.parametrize(
    ("size_bytes", "share"),
    [(0, 0.05), (1, 0.05), (64, 0.05), (256, 0.04), (KIB, 0.03), (8 * KIB, 0.02), (64 * KIB, 0.01)],
)
def test_goal_is_interpolated_by_the_logarithm_of_the_size(size_bytes: int, share: float) -> None:
    assert overhead_goal(size_bytes) == pytest.approx(share)
    assert overhead_goal(1 << 30) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("looks", "look_ns", "cpu_ns", "size_bytes", "one_in"),
    [
        # 14 * 95 of 33,250 ns are 4 %: a quarter of that is the goal
        (14, 95, 33_250, 64 * KIB, 4),
        (14, 95, 33_000, 64 * KIB, 8),
        (14, 95, 133_000, 64 * KIB, 1),
        (14, 95, 33_250, KIB, 2),
        (14, 95, 33_250, 64, 1),
        (32, 290, 9_000, 64 * KIB, 128),
        (1_000_000, 290, 9_000, 64, ONE_IN_MAX),
        (0, 290, 9_000, 64, 1),
    ],
)
def test_gate_is_the_smallest_power_of_two_that_meets_the_goal(
    looks: float, look_ns: float, cpu_ns: float, size_bytes: int, one_in: int
) -> None:
    sides = [SideCost("sender", cpu_ns, looks), SideCost("receiver", 10 * cpu_ns, looks)]
    gate = choose_gate(size_bytes, sides, look_ns)
    assert gate.one_in == one_in
    assert "the sender's CPU time" in gate.why
    assert ("exceeds" in gate.why) == (looks == 1_000_000)


def test_side_with_the_largest_overhead_decides() -> None:
    sides = [SideCost("sender", 100_000, 10), SideCost("receiver", 10_000, 10)]
    gate = choose_gate(64 * KIB, sides, 100)
    assert gate.one_in == 16
    assert gate.reason == (
        "1 copy in 16 timed: all 10 clock readings of 100 ns per message would take 10 % of the receiver's "
        "CPU time,"
        " and the goal at 64 KiB is 1 %"
    )


COSTS = st.floats(0, 1e6)


@drawn(COSTS, COSTS, st.floats(1, 1e9), st.integers(0, 1 << 30), st.floats(1, 100))
def test_higher_cost_never_times_more_copies(
    looks: float, look_ns: float, cpu_ns: float, size_bytes: int, factor: float
) -> None:
    def one_in(looks: float, look_ns: float, cpu_ns: float, size_bytes: int) -> int:
        return choose_gate(size_bytes, [SideCost("sender", cpu_ns, looks)], look_ns).one_in

    chosen = one_in(looks, look_ns, cpu_ns, size_bytes)
    assert 1 <= chosen <= ONE_IN_MAX and chosen & (chosen - 1) == 0
    assert chosen <= one_in(looks * factor, look_ns, cpu_ns, size_bytes)
    assert chosen <= one_in(looks, look_ns * factor, cpu_ns, size_bytes)
    assert chosen >= one_in(looks, look_ns, cpu_ns * factor, size_bytes)
    # The goal is stricter for larger messages.
    assert chosen <= one_in(looks, look_ns, cpu_ns, int(size_bytes * factor))
    share = looks * look_ns / cpu_ns
    assert share / chosen <= overhead_goal(size_bytes) or chosen == ONE_IN_MAX
    assert chosen == 1 or share / (chosen // 2) > overhead_goal(size_bytes)


def segment(messages: int, sender_ns: int, receiver_ns: int) -> list[dict[str, Any]]:
    """Return the totals at four moments of a segment. Only the increase between the middle two counts."""
    before = {"messages": 1_000_000, "process_cpu_ns": 5_000_000_000}
    after = {
        "sender": {"messages": before["messages"] + messages, "process_cpu_ns": 5_000_000_000 + sender_ns},
        "receiver": {"messages": None, "process_cpu_ns": 5_000_000_000 + receiver_ns},
    }
    begin = {"sender": before, "receiver": before}
    return [begin, begin, after, after]


def counted(**calls: int) -> dict[str, Any]:
    cells = [{"side": side, "calls": count} for side, count in calls.items()]
    return {"cells": cells + cells, "read_cost": {"look_ns": 100.0}}


def test_clock_readings_and_times_are_per_message() -> None:
    """2 cells of 700 calls in 100 messages: 28 clock readings of 100 ns, in 10 us of the sender: 28 %."""
    warm_up = segment(1_000, 10_000_000, 40_000_000)
    trial = segment(100, 1, 1)
    gate = choose_instrument_gate(64 * KIB, counted(sender=700, receiver=100, other=90_000), warm_up, trial)
    assert gate.one_in == 32
    assert "all 28 clock readings of 100 ns per message would take 28 % of the sender's CPU time" in gate.why


@pytest.mark.parametrize(
    ("functions", "warm_up", "trial", "why"),
    [
        (None, segment(9, 9, 9), segment(9, 9, 9), "could not be measured"),
        ({"cells": [], "read_cost": None}, segment(9, 9, 9), segment(9, 9, 9), "could not be measured"),
        (counted(sender=9), segment(0, 9, 9), segment(9, 9, 9), "too little was sent"),
        (counted(sender=9), segment(9, 9, 0), segment(9, 9, 9), "too little was sent"),
        (counted(sender=9), segment(9, 9, 9), segment(0, 9, 9), "too little was sent"),
    ],
)
def test_default_gate_is_used_without_measurements(
    functions: dict[str, Any] | None, warm_up: list[Any], trial: list[Any], why: str
) -> None:
    gate = choose_instrument_gate(64, functions, warm_up, trial)
    assert gate.one_in == DEFAULT_ONE_IN and gate.reason.startswith("1 copy in 16 timed: default: ")
    assert why in gate.reason


def test_reason_names_the_option_that_sets_the_gate() -> None:
    assert given_gate(4, "--messages") == Gate(4, "--gate")
    assert given_gate(None, "--messages") == Gate(1, "--messages")
    assert given_gate(None, None) is None
    assert given_gate(1, None) == Gate(1, "--gate")
    tier = Tier(True, "function hooks: 40 by fentry")
    assert (
        with_gate(tier, Gate(4, "--gate")).reason == "function hooks: 40 by fentry; 1 copy in 4 timed: --gate"
    )
    assert with_gate(tier, Gate(1, "--messages")).reason.endswith("; every copy timed: --messages")
    refused = Tier(False, "function hooks: not requested")
    assert with_gate(refused, default_gate("no warm-up to choose it")) == refused


def test_gate_is_chosen_in_a_trial_before_the_first_hooked_segment() -> None:
    """The trial attaches the hooks, but is not a measured segment."""
    messages: list[str] = []

    def ask(line: str, _event: str) -> dict[str, Any]:
        messages.append(line)
        return {"functions": None}

    phases = ("ledger", "unarmed", "functions")
    planned = tuple(PlannedSegment(number, 0, phase, 1.0) for number, phase in enumerate(phases))
    plan = RunPlan({phase: (phase,) for phase in phases}, planned, 199, None, counters=False, seed=1)
    path: Any = SimpleNamespace(warmup_s=0.3)
    traffic: Any = SimpleNamespace(resolved={"size_bytes": 64}, placement=None)
    subject = OwnTraffic(path, traffic)
    subject.setup = Setup(plan)
    subject.setup.collector = cast("Any", SimpleNamespace(ask=ask))
    subject.setup.raw.tier = Tier(True, "function hooks: 40 by fentry")
    measured: list[tuple[str, float, tuple[str, ...] | None]] = []
    for segment in subject.segments(planned):
        measured.append((segment.phase, segment.length_s, segment.probes))
        none: Mark = {}
        marks = (none, none, none, none)
        subject.setup.raw.segments.append(MeasuredSegment(-1, -1, segment.phase, marks))
    assert measured == [
        *((WARM_UP, 0.3, None), ("ledger", 1.0, None)),
        *((WARM_UP, 0.1, ("functions",)), ("unarmed", 1.0, None), ("functions", 1.0, None)),
    ]
    assert messages == ["functions", "gate 16"]
    assert "40 by fentry; 1 copy in 16 timed: default" in subject.setup.raw.tier.reason
