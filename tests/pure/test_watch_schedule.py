# SPDX-License-Identifier: GPL-2.0-only
"""Lengths of the segments of a watched program, and the end of a run with slow hooks."""

from itertools import islice

import pytest
from copyscope.plan.schedule import EXACT, Bound, Phase, schedule_segments, watched_segments

PHASES: tuple[Phase, ...] = ("unprobed", "ledger", "calls")


@pytest.mark.parametrize("duration_s", [None, 1.0, 20.0])
def test_each_block_has_each_phase_in_random_order_and_short_calls(duration_s: float | None) -> None:
    orders = set()
    for seed in range(50):
        segments = list(islice(watched_segments(duration_s, PHASES, seed), 18))
        assert [segment.index for segment in segments] == list(range(len(segments)))
        assert [segment.block for segment in segments] == [n // 3 for n in range(len(segments))]
        assert [segment.phase for segment in segments[:2]] == ["calls", "ledger"]
        orders.add(tuple(segment.phase for segment in segments[3:6]))
        for begin in range(0, len(segments), 3):
            block = segments[begin : begin + 3]
            assert {segment.phase for segment in block} == set(PHASES)
            lengths = {s.phase: s.length_s for s in block}
            assert lengths["calls"] == pytest.approx(min(0.05, sum(lengths.values()) / 10))
            assert lengths["ledger"] == pytest.approx(2 * lengths["unprobed"])
    assert len(orders) == 6


@pytest.mark.parametrize("watched", [True, False])
def test_functions_are_hooked_last_with_as_many_idle_segments(watched: bool) -> None:
    phases = (*PHASES, *EXACT)
    for seed in range(20):
        segments = list((watched_segments if watched else schedule_segments)(5.0, phases, seed))
        blocks = len(segments) // 5
        assert blocks >= 3 and [segment.index for segment in segments] == list(range(5 * blocks))
        assert sum(segment.length_s for segment in segments) == pytest.approx(5.0)
        sampled, exact = segments[: 3 * blocks], segments[3 * blocks :]
        assert [segment.block for segment in sampled] == [n // 3 for n in range(3 * blocks)]
        assert [segment.block for segment in exact] == [blocks + n // 2 for n in range(2 * blocks)]
        assert {segment.phase for segment in sampled} == set(PHASES)
        for begin in range(0, 2 * blocks, 2):
            assert {segment.phase for segment in exact[begin : begin + 2]} == set(EXACT)


def test_a_run_with_slow_hooks_ends_in_time_with_a_reason() -> None:
    """A run of one second may take up to seven, and ends only after one segment of each phase."""
    bound = Bound(1.0, PHASES)
    bound.add("calls", 0.05, 4.05)
    bound.add("ledger", 0.2, 4.2)
    assert bound.why_over() is None  # no control segment yet
    bound.add("unprobed", 0.1, 0.1)
    reason = bound.why_over()
    assert reason is not None and reason.startswith("attaching and detaching hooks took 8.0 of 8.3 s")
    quick = Bound(1.0, PHASES)
    for phase in PHASES * 6:
        quick.add(phase, 0.055, 0.06)
    assert quick.why_over() is None and Bound(None, PHASES).why_over() is None
    endless = Bound(None, PHASES)
    for phase in PHASES * 100:
        endless.add(phase, 1.0, 7.0)
    assert endless.why_over() is None


def test_a_segment_is_as_long_as_the_attaching_of_its_hooks() -> None:
    """At least half of the time is then measured. The remaining time of the run limits the length."""
    bound = Bound(5.0, PHASES)
    assert bound.shortest_s("ledger") == 0.0
    bound.add("ledger", 0.3, 2.3)
    assert bound.shortest_s("ledger") == pytest.approx(2.0) and bound.shortest_s("unprobed") == 0.0
    bound.add("calls", 0.05, 12.0)
    assert bound.shortest_s("ledger") == pytest.approx(0.7)
    bound.add("calls", 0.05, 12.0)
    assert bound.shortest_s("ledger") == 0.0
    quick = Bound(5.0, PHASES)
    quick.add("calls", 0.01, 0.04)
    assert quick.shortest_s("calls") == 0.0
