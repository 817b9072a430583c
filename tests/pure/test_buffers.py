"""The life of a watched program's zero-copy buffers: what the collector says becomes a section and a line."""

from typing import Any

from builders.watched import watched_record
from copyscope.ledger.derive import derive
from copyscope.record.assemble import buffers
from copyscope.record.check import typed, typed_whole
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


def said(section: dict[str, Any]) -> str:
    run = typed_whole(derive(watched_record() | section))
    return " ".join(" ".join(line.plain for line in buffer_lines(run, 200)).split())


def test_what_was_given_back_read_and_never_read_is_one_line() -> None:
    section = buffers({"buffers": [ROW]}, [{"id": "completion", "state": "attached", "reason": None}])
    line = said(section)
    assert "released p50 10.5 ms, p99 50.3 ms after the send" in line
    assert "the notices were read p50 2.56 us, p99 2.56 us later, of 40 sends never" in line
    assert "7 calls had MSG_ZEROCOPY and their sockets no SO_ZEROCOPY" in line
    (row,) = typed(watched_record() | section).buffers
    assert (row.side, row.given_back_sends, row.reason) == ("target", 100, None)


def test_without_a_hook_on_notices_nobody_knows_what_was_given_back() -> None:
    hooks = [{"id": "completion", "state": "missing", "reason": "this kernel has no such tracepoint"}]
    section = buffers({"buffers": [ROW]}, hooks)
    assert section["buffers"][0]["given_back_sends"] is None
    assert "inet_sk_error_report: this kernel has no such tracepoint" in said(section)


def test_a_program_that_never_asked_for_zero_copy_has_no_such_section() -> None:
    assert buffers({"buffers": []}, []) == buffers({}, []) == {}
