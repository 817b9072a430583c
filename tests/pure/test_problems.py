"""Why zero-copy is not faster: a program with one fault has that problem first, and one without has none."""

import io
from typing import Any

import pytest
from builders.watched import watched_record
from copyscope.judge import problems
from copyscope.judge.crossover_file import Found
from copyscope.ledger.derive import derive
from copyscope.record.check import typed_whole
from copyscope.show import first_screen
from msgspec import convert, to_builtins
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

MIXED: Record = {
    **{"protocol": "tcp", "syscall": "sendmsg", "messages": 10_000, "unreadable": 0, "repeated": 0},
    **{"buffers": 20_000, "looked": 20_000, "page_aligned": 0, "line_aligned": 0, "mixed": 9_000},
    **{"sends": 0, "rounds": 0, "buffers_per_message": [[2, 10_000]], "rounds_per_send": []},
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
        (raw(slow(40) | {"sends": 50, "given_back_sends": 50}), "late_ack", "buffers come back late"),
        (raw({"read_sends": 0, "readings": 0}), "never_read", "never read the notices of 100 % of its sends"),
        (
            raw() | {"shapes": [MIXED]},
            "header_body",
            "90 % of its sends have a small buffer beside a large one",
        ),
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


def test_notices_that_wait_for_the_next_batch_are_no_fault() -> None:
    """A slow program was seen between two batches."""
    few = {"sends": 150, "given_back_sends": 150, "read_sends": 64, "readings": 2}
    assert [one.code for one in why(raw(few)).problems] == []


def test_buffers_that_wait_for_those_before_them_are_no_fault() -> None:
    """Of 90,000 sends in some seconds, 40 ms each, more than a thousand are on their way at any time."""
    assert why(raw(slow(40))).problems == []


def test_refused_sends_that_went_as_copies_cost_that_copy() -> None:
    made = raw({"enobufs": 27_626})
    for row in made["samples"]:
        row["category"] = "copy_in" if row["category"] == "pin" else row["category"]
    (only,) = why(made).problems
    assert only.code == "enobufs" and only.cpu is not None and only.cpu.low > 0.05


CROSSOVER: Record = {
    **{"pair": ["one_copy", "zero_copy"], "threads": 1, "quantity": "sender_cpu_ns_per_kib", "where": {}},
    **{"verdict": "always", "above": None, "size_bytes": None, "low_bytes": None, "high_bytes": None},
    **{"by": "impl", "level": 0.95, "split_ns_per_kib": [], "costs": {}},
    **{"evidence": "", "path": "hosts", "file": "results/host/wire/crossover.json", "elsewhere": None},
}


NOT_MEASURED = "; what it saves is not measured: copyscope crossover, over this path"


@pytest.mark.parametrize(
    ("ratio", "change", "said"),
    [
        # What plain sends took is all: 1 - ratio.
        (
            (0.5, 0.4, 0.6),
            {},
            "; in sends like these zero-copy saved 50 % (40 to 60) of the sender's CPU time (cross",
        ),
        (
            (2.0, 1.9, 2.1),
            {},
            ", but in sends like these zero-copy cost 100 % (90 to 110) more of the sender's CPU time (cross",
        ),
        (
            (1.0, 0.9, 1.1),
            {},
            "; in sends like these no difference to plain ones was found (cross",
        ),
        ((0.5, 0.4, 0.6), {"elsewhere": "web2"}, NOT_MEASURED),
        ((0.5, 0.4, 0.6), {"path": "veth"}, NOT_MEASURED),
    ],
)
def test_what_zero_copy_saves_is_said_by_a_crossover(
    ratio: tuple[float, float, float], change: Record, said: str
) -> None:
    compared = dict(zip(("ratio", "low", "high"), ratio, strict=True))
    measured = [{"size_bytes": 65_536, **compared, "better": None}]
    rows = convert([CROSSOVER | {"measured": measured} | change], list[Found])
    found = problems.why(typed_whole(derive(raw())), rows)
    assert not found.problems and said in found.sentence


def test_udp_has_zero_copy() -> None:
    assert why(raw(protocol="udp")).problems == []


def test_a_program_that_sends_plainly_is_told_so() -> None:
    assert why(watched_record()).sentence.startswith("it sends nothing with MSG_ZEROCOPY")


def test_the_dearest_comes_first() -> None:
    """Waiting takes 28 % of the wall time; unread notices have no price."""
    found = why(raw({"waits": 9_000, "waited_ns": 756_000_000, "read_sends": 0, "readings": 0}))
    assert [one.code for one in found.problems] == ["waits", "never_read"]


def test_copies_that_no_notice_tells_of_are_named_by_their_samples() -> None:
    made = raw()
    made["samples"][1] |= {"kind": "account", "category": "silent", "symbol": "skb_pp_cow_data"}
    made["samples"][1]["caller"] = "veth_xdp_rcv_skb"
    (only,) = why(made).problems
    assert only.code == "silent" and only.cpu.share == pytest.approx(0.5)
    assert "XDP" in only.evidence and "detach the XDP program" in only.change


@pytest.mark.parametrize(("unregistered", "codes"), [(10_000, ["unregistered"]), (0, [])])
def test_a_ring_that_has_its_memory_pinned_for_each_request_is_told_so(
    unregistered: int, codes: list[str]
) -> None:
    made = raw()
    for row in made["volume"]:
        row["syscall"] = "io_uring"
    for segment in made["run"]["segments"]:
        segment["sides"]["target"]["unregistered"] = unregistered
    found = why(made)
    assert [one.code for one in found.problems] == codes
    said = "100 % of its SEND_ZC requests" if codes else "nothing is wrong"
    assert said in found.sentence


def test_waits_that_are_no_more_than_refusals_are_their_cost() -> None:
    (only,) = why(raw({"enobufs": 27_626, "waits": 9_000, "waited_ns": 756_000_000})).problems
    assert (only.code, only.wall_share) == ("enobufs", pytest.approx(0.28, abs=0.005))
    assert "it then waits for a notice: 28 % of the wall time" in only.evidence


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_screen_has_the_problem_its_evidence_and_the_change(width: int, height: int) -> None:
    made = derive(raw({"enobufs": 7_826, "waits": 9_000, "waited_ns": 756_000_000}))
    made["target"] |= {"memlock_limit_bytes": 8 << 20, "optmem_limit_bytes": 131_072}
    made["why"] = to_builtins(problems.why(typed_whole(made)))
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    first_screen.render(typed_whole(made), console)
    lines = out.getvalue().splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    text = " ".join(out.getvalue().split())
    assert "1. it waits for notices: 28 % of the wall time" in text and "read notices in batches" in text
    assert "2. ENOBUFS: 8 %" in text and "raise RLIMIT_MEMLOCK" in text
