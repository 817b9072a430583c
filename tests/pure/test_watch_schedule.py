"""How long the segments of a watched program are: the dear ones as short as it is busy."""

import math
from itertools import islice

import pytest
from copyscope.plan.arms import Arm
from copyscope.plan.schedule import Bound, Lengths, Segment, rest_of_first, watched_segments

ARMS: tuple[Arm, ...] = ("unprobed", "ledger", "calls")

TIMING = Segment(0, 0, "calls", 0.1)


def test_the_calls_of_a_busy_program_are_timed_in_a_short_segment() -> None:
    lengths = Lengths()
    # Of 70,000 calls a second 1,000 take 14.3 ms.
    lengths.add(70_000, 1.0)
    assert lengths.of(TIMING) == pytest.approx(0.0143, abs=1e-4)
    # What it did not need, the next one has; and only that.
    assert lengths.of(Segment(1, 0, "ledger", 1.0)) == pytest.approx(1.0857, abs=1e-4)
    assert lengths.of(Segment(2, 0, "unprobed", 1.0)) == 1.0


def test_of_an_idle_or_slow_program_the_whole_segment_is_taken() -> None:
    for calls in (0, 100):
        lengths = Lengths()
        lengths.add(calls, 1.0)
        assert lengths.of(TIMING) == 0.1
    assert Lengths().of(TIMING) == 0.05  # nothing is known yet
    fast = Lengths()
    fast.add(10_000_000, 1.0)
    assert fast.of(TIMING) == 0.01


@pytest.mark.parametrize("duration_s", [None, 20.0])
def test_calls_are_timed_first_and_in_a_twentieth_of_the_time(duration_s: float | None) -> None:
    for seed in range(20):
        found = list(islice(watched_segments(duration_s, ARMS, seed), 18))
        assert [segment.index for segment in found] == list(range(18))
        assert [segment.block for segment in found] == [n // 3 for n in range(18)]
        assert [segment.arm for segment in found[:2]] == ["calls", "ledger"]
        for begin in range(0, 18, 3):
            block = found[begin : begin + 3]
            assert {segment.arm for segment in block} == set(ARMS)
            share = next(s.length_s for s in block if s.arm == "calls") / sum(s.length_s for s in block)
            assert share == pytest.approx(0.05 / 0.95)


@pytest.mark.parametrize("length_s", [0.05, 5.0, math.inf])
def test_only_the_first_of_several_segments_ends_as_soon_as_much_is_known(length_s: float) -> None:
    """One segment of an hour or without an end (--whole) goes on, however busy the program is."""
    assert rest_of_first(length_s, 1_000_000, only=False) == 0.0
    assert rest_of_first(length_s, 10, only=False) == pytest.approx(length_s - 0.01)
    for calls in (10, 1_000_000):
        assert rest_of_first(length_s, calls, only=True) == pytest.approx(length_s - 0.01)


def test_a_run_whose_hooks_take_seconds_to_come_and_go_ends_in_time_and_says_so() -> None:
    """A second was asked for: at most seven, when each arm has been there once."""
    bound = Bound(1.0, ARMS)
    bound.add("calls", 0.05, 4.05)
    bound.add("ledger", 0.2, 4.2)
    assert bound.over() is None  # there is no control yet
    bound.add("unprobed", 0.1, 0.1)
    why = bound.over()
    assert why is not None and why.startswith("attaching and detaching hooks took 8.0 of 8.3 s")
    quick = Bound(1.0, ARMS)
    for arm in ARMS * 6:
        quick.add(arm, 0.055, 0.06)
    assert quick.over() is None and Bound(None, ARMS).over() is None
    endless = Bound(None, ARMS)
    for arm in ARMS * 100:
        endless.add(arm, 1.0, 7.0)
    assert endless.over() is None


def test_a_segment_is_as_long_as_what_its_hooks_took() -> None:
    """So at least half of the time is measured, and there are fewer changes; within the time that is left."""
    bound = Bound(5.0, ARMS)
    assert bound.least_s("ledger") == 0.0
    bound.add("ledger", 0.3, 2.3)
    assert bound.least_s("ledger") == pytest.approx(2.0) and bound.least_s("unprobed") == 0.0
    bound.add("calls", 0.05, 12.0)
    assert bound.least_s("ledger") == pytest.approx(0.7)
    bound.add("calls", 0.05, 12.0)
    assert bound.least_s("ledger") == 0.0
    quick = Bound(5.0, ARMS)
    quick.add("calls", 0.01, 0.04)
    assert quick.least_s("calls") == 0.0
