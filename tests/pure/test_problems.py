"""Why zero-copy is not faster: a program with one fault has that problem first, and one without has none."""

import io
from typing import Any

import pytest
from builders.watched import watched_record
from copyscope.judge import problems
from copyscope.ledger.derive import derive
from copyscope.record.check import typed_whole
from copyscope.show import first_screen
from msgspec import to_builtins
from rich.console import Console

Record = dict[str, Any]

NONE: Record = {"unit": "ns", "buckets": []}
# Given back 100 us after the send, read 10 us later, ten sends a notice.
GOOD: Record = {
    **{"side": "target", "protocol": "tcp", "reason": None, "sends": 90_000, "given_back_sends": 90_000},
    **{"before_return": 0, "read_sends": 90_000, "closed_sends": 0, "enobufs": 0, "eagain": 0},
    **{"flag_only_calls": 0, "most_in_flight": 20, "most_in_flight_bytes": 20 * 65_536},
    **{"latency": {"unit": "ns", "buckets": [[81_920, 102_400, 90_000]]}, "reading": NONE},
    **{"readings": 9_000, "waits": 0, "waited_ns": 0},
}


def raw(row: Record | None = None, **options: Any) -> Record:
    """A program that sends 64 KiB at a time with MSG_ZEROCOPY, none of it copied."""
    made = watched_record(**{"zerocopy": True} | options)
    return made | {"buffers": [GOOD | (row or {})]}


def why(made: Record) -> Any:
    return problems.why(typed_whole(derive(made)))


def slow(milliseconds: int) -> Record:
    ns = milliseconds * 1_000_000
    return {"latency": {"unit": "ns", "buckets": [[ns, ns * 5 // 4, 90_000]]}}


@pytest.mark.parametrize(
    ("made", "code", "said"),
    [
        (raw(copied=98), "copied", "the kernel copied 98 % of its zero-copy sends after all"),
        (raw({"flag_only_calls": 90_000, "sends": 0}), "no_option", "90,000 sends had MSG_ZEROCOPY"),
        (raw({"enobufs": 27_626}), "enobufs", "23 % of its sends with the flag were refused (27,626)"),
        (raw({"waits": 9_000, "waited_ns": 756_000_000}), "waits", "28 % of the wall time, 84.0 us each"),
        (raw(slow(40)), "late_ack", "buffers come back late"),
        (raw({"read_sends": 0, "readings": 0}), "never_read", "never read the notices of 100 % of its sends"),
        (raw(size=2048), "small", "half of its bytes go in calls of 4 KiB or less"),
        (raw(protocol="mptcp"), "protocol", "most of it is MPTCP"),
    ],
)
def test_a_program_with_one_fault_has_that_problem_first(made: Record, code: str, said: str) -> None:
    found = why(made)
    assert found.problems[0].code == code and said in found.problems[0].what
    assert found.sentence == found.problems[0].what and found.problems[0].change


def test_a_program_without_a_fault_has_none() -> None:
    found = why(raw())
    assert found.problems == []
    assert found.sentence.startswith("nothing is wrong: none of 90,000 zero-copy sends was copied")


def test_a_program_that_sends_plainly_is_told_so() -> None:
    assert why(watched_record()).sentence.startswith("it sends nothing with MSG_ZEROCOPY")


def test_the_dearest_comes_first() -> None:
    """Waiting takes 28 % of the wall time; unread notices have no price."""
    found = why(raw({"waits": 9_000, "waited_ns": 756_000_000, "read_sends": 0, "readings": 0}))
    assert [one.code for one in found.problems] == ["waits", "never_read"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_screen_has_the_problem_its_evidence_and_the_change(width: int, height: int) -> None:
    made = derive(raw({"enobufs": 27_626, "waits": 9_000, "waited_ns": 756_000_000}))
    made["target"] |= {"memlock_limit_bytes": 8 << 20, "optmem_limit_bytes": 131_072}
    made["why"] = to_builtins(problems.why(typed_whole(made)))
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    first_screen.render(typed_whole(made), console)
    lines = out.getvalue().splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    text = " ".join(out.getvalue().split())
    assert "1. it waits for notices: 28 % of the wall time" in text and "read notices in batches" in text
    assert "2. ENOBUFS: 23 %" in text and "raise RLIMIT_MEMLOCK" in text
