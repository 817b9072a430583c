# SPDX-License-Identifier: GPL-2.0-only
"""Zero-copy buffers of a watched program: section of the record, and line on the screen."""

from typing import Any

from builders.documents import derive, typed, typed_whole
from builders.watched import watched_record
from copyscope.record.assemble import buffer_rows
from copyscope.show.watch import buffer_lines

HELD = {"unit": "ns", "buckets": [[8_388_608, 10_485_760, 98], [41_943_040, 50_331_648, 2]]}
READ = {"unit": "ns", "buckets": [[2_048, 2_560, 60]]}
ROW = {
    **{
        "protocol": "tcp",
        "sends": 101,
        "given_back_sends": 100,
        "before_return": 0,
        "read_sends": 60,
        "closed_sends": 1,
    },
    **{"enobufs": 0, "eagain": 0, "flag_only_calls": 7, "most_in_flight": 3},
    **{"most_in_flight_bytes": 24_576, "latency": HELD, "reading": READ},
}


def section_of(hooks: Any) -> dict[str, Any]:
    last: Any = {"buffers": [ROW]}
    return {"buffers": buffer_rows(last, hooks)}


def printed_text(section: dict[str, Any]) -> str:
    run = typed_whole(derive(watched_record() | section))
    return " ".join(" ".join(line.plain for line in buffer_lines(run, 200)).split())


def test_one_line_shows_released_buffers_and_unread_notifications() -> None:
    section = section_of([{"id": "completion", "state": "attached", "reason": None}])
    line = printed_text(section)
    assert "released p50 10.5 ms, p99 50.3 ms after the send" in line
    assert "the notifications were read p50 2.56 us, p99 2.56 us later, those of 40 sends never" in line
    assert "7 calls had MSG_ZEROCOPY and their sockets no SO_ZEROCOPY" in line
    (row,) = typed(watched_record() | section).buffers
    assert (row.side, row.given_back_sends, row.reason) == ("target", 100, None)


def test_released_buffers_are_unknown_without_the_notification_hook() -> None:
    hooks = [{"id": "completion", "state": "missing", "reason": "this kernel has no such tracepoint"}]
    section = section_of(hooks)
    assert section["buffers"][0]["given_back_sends"] is None
    assert "inet_sk_error_report: this kernel has no such tracepoint" in printed_text(section)


def test_program_without_zero_copy_has_no_buffer_section() -> None:
    readings: list[Any] = [{"buffers": []}, {}]
    assert [buffer_rows(reading, []) for reading in readings] == [[], []]
