# SPDX-License-Identifier: GPL-2.0-only
"""Buffers of messages and rounds of TCP's send loop, from invented counts."""

from typing import Any

import pytest
from builders.documents import derive, typed_whole
from builders.kernel import hook_row
from builders.watched import CALLS, EDGE_CALLS, watched_record
from copyscope.ledger import watched_program
from copyscope.show.watch import portrait_lines
from hypothesis import given
from hypothesis import strategies as st

Record = dict[str, Any]

# Calls that the builder counts: nine segments, each with the calls before and after it.
EVERY_CALL = 9 * (CALLS + 2 * EDGE_CALLS)


def shown(record: Record) -> str:
    return " ".join(line.plain.strip() for line in portrait_lines(typed_whole(record), 80))


def test_buffers_and_rounds_of_sends_are_shown() -> None:
    full = derive(watched_record())
    buffers, rounds = full["portrait"]["buffers"], full["portrait"]["rounds"]
    assert (buffers["messages"], buffers["buffers"]) == (EVERY_CALL, 2 * EVERY_CALL)
    assert buffers["per_message"] == [[2, EVERY_CALL]]
    shares = [buffers[f"{alignment}_share"] for alignment in ("page", "line", "other", "repeated")]
    assert shares == pytest.approx([0.5, 0.25, 0.25, 0.5])
    assert (rounds["sends"], rounds["mean_per_send"]) == (EVERY_CALL, 3)
    text = shown(full)
    assert "2.0 per message (2: 100.0 %)" in text
    assert "page-aligned 50.0 %, cache-line-aligned (64 B) 25.0 %, unaligned 25.0 %" in text
    assert "3.0 rounds of TCP's copy loop per send (2: 50.0 %, 4: 50.0 %)" in text


def test_sendfile_has_rounds_but_no_buffers() -> None:
    full = derive(watched_record(call="sendfile"))
    assert full["portrait"]["buffers"] is None and full["portrait"]["rounds"]["sends"] == EVERY_CALL
    assert "hold no buffer" in full["portrait"]["reasons"]["buffers"]


def test_a_kernel_without_the_tracepoint_has_no_rounds() -> None:
    raw = watched_record()
    missing = {"state": "missing", "how": None, "reason": "no such tracepoint in this kernel"}
    raw["hooks"].append(hook_row("round", "shape", symbol="tcp_sendmsg_locked", **missing))
    for row in raw["shapes"]:
        row |= {"sends": 0, "rounds": 0, "rounds_per_send": []}
    full = derive(raw)
    assert full["portrait"]["rounds"] is None
    reason = "tcp_sendmsg_locked: no such tracepoint in this kernel"
    assert full["portrait"]["reasons"]["rounds"] == reason and reason in shown(full)


def test_buffers_and_rounds_need_calls_segments() -> None:
    raw = watched_record()
    raw["shapes"] = None
    full = derive(raw)
    assert full["portrait"]["buffers"] is None and full["portrait"]["rounds"] is None
    assert full["portrait"]["reasons"]["buffers"] == watched_program.NO_SEGMENT


@given(st.lists(st.dictionaries(st.integers(0, 4096), st.integers(1, 1 << 40)), max_size=5))
def test_merged_histograms_add_up(histograms: list[dict[int, int]]) -> None:
    rows = [[[low, count] for low, count in sorted(slots.items())] for slots in histograms]
    merged = watched_program.merge_histograms(rows)
    assert sum(count for _, count in merged) == sum(sum(slots.values()) for slots in histograms)
    assert [low for low, _ in merged] == sorted({low for slots in histograms for low in slots})


def test_io_uring_without_usage_reports_has_unknown_late_copies() -> None:
    raw = watched_record(zerocopy=True)
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"] |= {"completions": 0, "copied": 0, "notifications": 0, "untold": CALLS}
    full = derive(raw)
    deferred = next(row for row in full["ledger"] if row["account"] == "deferred")
    assert deferred["bytes"] is None and "IORING_SEND_ZC_REPORT_USAGE" in deferred["reasons"]["bytes"]
    assert full["zerocopy"]["untold"] == 9 * CALLS
