"""How long the segments of a watched program are, and how a run ends in time whose hooks are slow."""

from itertools import islice

import pytest
from copyscope.plan.instruments import EXACT, Phase
from copyscope.plan.schedule import Bound, schedule_segments, watched_segments

PHASES: tuple[Phase, ...] = ("unprobed", "ledger", "calls")


@pytest.mark.parametrize("duration_s", [None, 1.0, 20.0])
def test_each_block_has_each_arm_in_random_order_and_few_calls(duration_s: float | None) -> None:
    orders = set()
    for seed in range(50):
        found = list(islice(watched_segments(duration_s, PHASES, seed), 18))
        assert [segment.index for segment in found] == list(range(len(found)))
        assert [segment.block for segment in found] == [n // 3 for n in range(len(found))]
        assert [segment.phase for segment in found[:2]] == ["calls", "ledger"]
        orders.add(tuple(segment.phase for segment in found[3:6]))
        for begin in range(0, len(found), 3):
            block = found[begin : begin + 3]
            assert {segment.phase for segment in block} == set(PHASES)
            lengths = {s.phase: s.length_s for s in block}
            assert lengths["calls"] == pytest.approx(min(0.05, sum(lengths.values()) / 10))
            assert lengths["ledger"] == pytest.approx(2 * lengths["unprobed"])
    assert len(orders) == 6


@pytest.mark.parametrize("watched", [True, False])
def test_functions_are_hooked_last_and_counted_as_often_as_not(watched: bool) -> None:
    phases = (*PHASES, *EXACT)
    for seed in range(20):
        found = list((watched_segments if watched else schedule_segments)(5.0, phases, seed))
        blocks = len(found) // 5
        assert blocks >= 3 and [segment.index for segment in found] == list(range(5 * blocks))
        assert sum(segment.length_s for segment in found) == pytest.approx(5.0)
        sampled, exact = found[: 3 * blocks], found[3 * blocks :]
        assert [segment.block for segment in sampled] == [n // 3 for n in range(3 * blocks)]
        assert [segment.block for segment in exact] == [blocks + n // 2 for n in range(2 * blocks)]
        assert {segment.phase for segment in sampled} == set(PHASES)
        for begin in range(0, 2 * blocks, 2):
            assert {segment.phase for segment in exact[begin : begin + 2]} == set(EXACT)


def test_a_run_whose_hooks_take_seconds_to_come_and_go_ends_in_time_and_says_so() -> None:
    """A second was asked for: at most seven, when each phase has been there once."""
    bound = Bound(1.0, PHASES)
    bound.add("calls", 0.05, 4.05)
    bound.add("ledger", 0.2, 4.2)
    assert bound.over() is None  # there is no control yet
    bound.add("unprobed", 0.1, 0.1)
    why = bound.over()
    assert why is not None and why.startswith("attaching and detaching hooks took 8.0 of 8.3 s")
    quick = Bound(1.0, PHASES)
    for phase in PHASES * 6:
        quick.add(phase, 0.055, 0.06)
    assert quick.over() is None and Bound(None, PHASES).over() is None
    endless = Bound(None, PHASES)
    for phase in PHASES * 100:
        endless.add(phase, 1.0, 7.0)
    assert endless.over() is None


def test_a_segment_is_as_long_as_what_its_hooks_took() -> None:
    """So at least half of the time is measured, and there are fewer changes; within the time that is left."""
    bound = Bound(5.0, PHASES)
    assert bound.least_s("ledger") == 0.0
    bound.add("ledger", 0.3, 2.3)
    assert bound.least_s("ledger") == pytest.approx(2.0) and bound.least_s("unprobed") == 0.0
    bound.add("calls", 0.05, 12.0)
    assert bound.least_s("ledger") == pytest.approx(0.7)
    bound.add("calls", 0.05, 12.0)
    assert bound.least_s("ledger") == 0.0
    quick = Bound(5.0, PHASES)
    quick.add("calls", 0.01, 0.04)
    assert quick.least_s("calls") == 0.0
