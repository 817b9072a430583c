"""How many calls of function hooks are timed: known costs and rates in, N out."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from copyscope.plan.gate import DEFAULT, MOST, Gate, Side, choose, choose_by, default, given, goal
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Segment
from copyscope.plan.tier import gated
from copyscope.record.segments import WARM_UP
from copyscope.record.session_result import Mark, Tier
from copyscope.run.session import Setup
from copyscope.run.traffic import OwnTraffic
from hypothesis import given as drawn
from hypothesis import strategies as st

KIB = 1024


@pytest.mark.parametrize(
    ("size_bytes", "share"),
    [(0, 0.05), (1, 0.05), (64, 0.05), (256, 0.04), (KIB, 0.03), (8 * KIB, 0.02), (64 * KIB, 0.01)],
)
def test_the_goal_between_two_sizes_goes_by_the_logarithm(size_bytes: int, share: float) -> None:
    assert goal(size_bytes) == pytest.approx(share)
    assert goal(1 << 30) == pytest.approx(0.01)


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
        (1_000_000, 290, 9_000, 64, MOST),
        (0, 290, 9_000, 64, 1),
    ],
)
def test_the_least_power_of_two_that_meets_the_goal(
    looks: float, look_ns: float, cpu_ns: float, size_bytes: int, one_in: int
) -> None:
    sides = [Side("sender", cpu_ns, looks), Side("receiver", 10 * cpu_ns, looks)]
    gate = choose(size_bytes, sides, look_ns)
    assert gate.one_in == one_in
    assert "the sender's CPU time" in gate.why
    assert ("missed" in gate.why) == (looks == 1_000_000)


def test_the_side_that_loses_most_decides() -> None:
    sides = [Side("sender", 100_000, 10), Side("receiver", 10_000, 10)]
    gate = choose(64 * KIB, sides, 100)
    assert gate.one_in == 16
    assert gate.reason == (
        "1 copy in 16 timed: all 10 looks of 100 ns a message would be 10 % of the receiver's CPU time,"
        " the goal at 64 KiB is 1 %"
    )


COSTS = st.floats(0, 1e6)


@drawn(COSTS, COSTS, st.floats(1, 1e9), st.integers(0, 1 << 30), st.floats(1, 100))
def test_what_costs_more_is_timed_no_more_often(
    looks: float, look_ns: float, cpu_ns: float, size_bytes: int, factor: float
) -> None:
    def one_in(looks: float, look_ns: float, cpu_ns: float, size_bytes: int) -> int:
        return choose(size_bytes, [Side("sender", cpu_ns, looks)], look_ns).one_in

    chosen = one_in(looks, look_ns, cpu_ns, size_bytes)
    assert 1 <= chosen <= MOST and chosen & (chosen - 1) == 0
    assert chosen <= one_in(looks * factor, look_ns, cpu_ns, size_bytes)
    assert chosen <= one_in(looks, look_ns * factor, cpu_ns, size_bytes)
    assert chosen >= one_in(looks, look_ns, cpu_ns * factor, size_bytes)
    # The goal is stricter for larger messages.
    assert chosen <= one_in(looks, look_ns, cpu_ns, int(size_bytes * factor))
    share = looks * look_ns / cpu_ns
    assert share / chosen <= goal(size_bytes) or chosen == MOST
    assert chosen == 1 or share / (chosen // 2) > goal(size_bytes)


def segment(messages: int, sender_ns: int, receiver_ns: int) -> list[dict[str, Any]]:
    """Its four marks; what was before does not count."""
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


def test_looks_and_times_are_of_one_message() -> None:
    """2 cells of 700 calls in 100 messages: 28 looks of 100 ns, in 10 us of the sender: 28 %."""
    warm_up = segment(1_000, 10_000_000, 40_000_000)
    trial = segment(100, 1, 1)
    gate = choose_by(64 * KIB, counted(sender=700, receiver=100, other=90_000), warm_up, trial)
    assert gate.one_in == 32
    assert "all 28 looks of 100 ns a message would be 28 % of the sender's CPU time" in gate.why


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
def test_nothing_to_choose_by_is_the_default_and_says_so(
    functions: dict[str, Any] | None, warm_up: list[Any], trial: list[Any], why: str
) -> None:
    gate = choose_by(64, functions, warm_up, trial)
    assert gate.one_in == DEFAULT and gate.reason.startswith("1 copy in 16 timed: default: ")
    assert why in gate.reason


def test_who_says_n_is_named() -> None:
    assert given(4, "--messages") == Gate(4, "--gate")
    assert given(None, "--messages") == Gate(1, "--messages")
    assert given(None, None) is None
    assert given(1, None) == Gate(1, "--gate")
    tier = Tier(True, "function hooks: 40 by fentry")
    assert gated(tier, Gate(4, "--gate")).reason == "function hooks: 40 by fentry; 1 copy in 4 timed: --gate"
    assert gated(tier, Gate(1, "--messages")).reason.endswith("; every copy timed: --messages")
    refused = Tier(False, "function hooks: not asked for")
    assert gated(refused, default("no warm-up to choose it")) == refused


def test_a_run_chooses_in_a_trial_before_its_first_segment_with_function_hooks() -> None:
    """Which has the hooks, and is no measured segment."""
    said: list[str] = []

    def ask(line: str, _event: str) -> dict[str, Any]:
        said.append(line)
        return {"functions": None}

    phases = ("ledger", "unarmed", "functions")
    planned = tuple(Segment(number, 0, phase, 1.0) for number, phase in enumerate(phases))
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
        subject.setup.raw.segments.append({"index": -1, "block": -1, "phase": segment.phase, "marks": marks})
    assert measured == [
        *((WARM_UP, 0.3, None), ("ledger", 1.0, None)),
        *((WARM_UP, 0.1, ("functions",)), ("unarmed", 1.0, None), ("functions", 1.0, None)),
    ]
    assert said == ["functions", "gate 16"]
    assert "40 by fentry; 1 copy in 16 timed: default" in subject.setup.raw.tier.reason
