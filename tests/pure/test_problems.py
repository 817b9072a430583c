# SPDX-License-Identifier: GPL-2.0-only
"""Problems of zero-copy: a fault of a program is its first problem. A program without faults has none."""

import io
from typing import Any

import pytest
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.judge import advice
from copyscope.judge.crossover_file import SavedCrossover
from copyscope.show import first_screen
from msgspec import convert, to_builtins
from rich.console import Console

Record = dict[str, Any]

EMPTY_HISTOGRAM: Record = {"unit": "ns", "buckets": []}
# Buffers that are released 100 us after the send, with ten sends per notification.
WITHOUT_FAULT: Record = {
    **{"side": "target", "protocol": "tcp", "reason": None, "sends": 90_000, "given_back_sends": 90_000},
    **{"before_return": 0, "read_sends": 90_000, "closed_sends": 0, "enobufs": 0, "eagain": 0},
    **{"flag_only_calls": 0, "most_in_flight": 20, "most_in_flight_bytes": 20 * 65_536},
    **{"latency": {"unit": "ns", "buckets": [[81_920, 102_400, 90_000]]}, "reading": EMPTY_HISTOGRAM},
    **{"readings": 9_000, "waits": 0, "waited_ns": 0},
}

MIXED_SIZES: Record = {
    **{"protocol": "tcp", "syscall": "sendmsg", "messages": 10_000, "unreadable": 0, "repeated": 0},
    **{"buffers": 20_000, "looked": 20_000, "page_aligned": 0, "line_aligned": 0, "mixed": 9_000},
    **{"sends": 0, "rounds": 0, "buffers_per_message": [[2, 10_000]], "rounds_per_send": []},
}


def raw(row: Record | None = None, **options: Any) -> Record:
    """Return a program that sends 64 KiB per call with MSG_ZEROCOPY, without any copy."""
    record = watched_record(**{"zerocopy": True} | options)
    return record | {"buffers": [WITHOUT_FAULT | (row or {})]}


def why(record: Record) -> Any:
    return advice.why_section(typed_whole(derive(record)))


def released_after(milliseconds: int) -> Record:
    ns = milliseconds * 1_000_000
    return {"latency": {"unit": "ns", "buckets": [[ns, ns * 5 // 4, 90_000]]}}


@pytest.mark.parametrize(
    ("record", "code", "sentence"),
    [
        (raw(copied=98), "copied", "the kernel copied 98 % of its zero-copy sends after all"),
        (raw({"flag_only_calls": 90_000, "sends": 0}), "no_option", "90,000 sends had MSG_ZEROCOPY"),
        (raw({"enobufs": 27_626}), "enobufs", "the kernel refused 23 % of its sends with the flag (27,626)"),
        (raw({"waits": 9_000, "waited_ns": 756_000_000}), "waits", "28 % of the elapsed time, 84.0 us each"),
        (
            raw(released_after(40) | {"sends": 50, "given_back_sends": 50}),
            "late_ack",
            "the kernel releases buffers late",
        ),
        (
            raw({"read_sends": 0, "readings": 0}),
            "never_read",
            "never read the notifications of 100 % of its sends",
        ),
        (
            raw() | {"shapes": [MIXED_SIZES]},
            "header_body",
            "90 % of its sends have a small buffer beside a large one",
        ),
        (raw(size=2048), "small", "half of its bytes are sent in calls of 4 KiB or less"),
        (raw(protocol="mptcp"), "protocol", "most of its traffic is MPTCP"),
    ],
)
def test_a_program_with_one_fault_has_that_problem_first(record: Record, code: str, sentence: str) -> None:
    why_section = why(record)
    assert why_section.problems[0].code == code and sentence in why_section.problems[0].what
    assert why_section.sentence == why_section.problems[0].what and why_section.problems[0].change


def test_a_slow_peer_is_reported_as_the_reason_for_late_buffers() -> None:
    """The receive window closes. A queue of buffers makes no difference."""
    full = derive(raw(released_after(40)))
    full["verdict"]["limit"]["who"] = "peer"
    (only,) = advice.why_section(typed_whole(full)).problems
    assert only.code == "slow_peer" and "make the peer read faster" in only.change
    # 40 ms are in the bucket of 40 to 50 ms.
    assert only.what == "the kernel releases buffers late: 50.0 ms after the send (p99 50.0 ms)"


def test_many_small_buffers_in_a_message_are_reported() -> None:
    """10,000 messages of 64 KiB consist of 640,000 buffers."""
    (only,) = why(raw() | {"shapes": [MIXED_SIZES | {"buffers": 640_000, "mixed": 0}]}).problems
    assert only.code == "fields" and only.what == "each send has 64.0 buffers of 1 KiB on average"


def test_notifications_read_one_by_one_are_reported_if_they_cost_time() -> None:
    """Each of 90,000 calls reads one notification. A quarter of the samples is in notifications."""
    record = raw({"readings": 90_000})
    for row in record["samples"]:
        row["category"] = "completion" if row["category"] == "pin" else row["category"]
    (only,) = why(record).problems
    assert only.code == "one_by_one" and only.what == "it reads notifications one by one: 1.0 sends each"
    assert only.cpu is not None and only.cpu.share == pytest.approx(0.25)


def test_a_program_without_a_fault_has_no_problem() -> None:
    why_section = why(raw())
    assert why_section.problems == []
    assert why_section.sentence.startswith("nothing is wrong: none of 90,000 zero-copy sends was copied")


def test_notifications_that_wait_for_the_next_batch_are_no_problem() -> None:
    """The measurement of a slow program ends between two batches."""
    one_batch = {"sends": 150, "given_back_sends": 150, "read_sends": 64, "readings": 2}
    assert [problem.code for problem in why(raw(one_batch)).problems] == []


def test_buffers_in_a_queue_are_no_problem() -> None:
    """With 90,000 sends in a few seconds and 40 ms each, more than a thousand are in flight at any time."""
    assert why(raw(released_after(40))).problems == []


def test_refused_sends_cost_the_copy_that_replaces_them() -> None:
    record = raw({"enobufs": 27_626})
    for row in record["samples"]:
        row["category"] = "copy_in" if row["category"] == "pin" else row["category"]
    (only,) = why(record).problems
    assert only.code == "enobufs" and only.cpu is not None and only.cpu.low > 0.05


CROSSOVER: Record = {
    **{"pair": ["one_copy", "zero_copy"], "threads": 1, "quantity": "sender_cpu_ns_per_kib", "where": {}},
    **{"verdict": "always", "above": None, "size_bytes": None, "low_bytes": None, "high_bytes": None},
    **{"by": "impl", "level": 0.95, "split_ns_per_kib": [], "costs": {}},
    **{"evidence": "", "path": "hosts", "file": "results/host/wire/crossover.json", "elsewhere": None},
}


NOT_MEASURED = "; to measure what it saves, run copyscope crossover over this path"


@pytest.mark.parametrize(
    ("ratio", "change", "sentence"),
    [
        # Shares refer to the time of plain sends: the saving is 1 - ratio.
        (
            (0.5, 0.4, 0.6),
            {},
            "; for such sends zero-copy saved 50 % (40 to 60) of the sender's CPU time (cross",
        ),
        (
            (2.0, 1.9, 2.1),
            {},
            "; yet for such sends zero-copy cost 100 % (90 to 110) more of the sender's CPU time (cross",
        ),
        (
            (1.0, 0.9, 1.1),
            {},
            "; no difference from plain sends was found for such sends (cross",
        ),
        ((0.5, 0.4, 0.6), {"elsewhere": "web2"}, NOT_MEASURED),
        ((0.5, 0.4, 0.6), {"path": "veth"}, NOT_MEASURED),
    ],
)
def test_the_saving_of_zero_copy_comes_from_a_crossover(
    ratio: tuple[float, float, float], change: Record, sentence: str
) -> None:
    compared = dict(zip(("ratio", "low", "high"), ratio, strict=True))
    measured = [{"size_bytes": 65_536, **compared, "better": None}]
    rows = convert([CROSSOVER | {"measured": measured} | change], list[SavedCrossover])
    why_section = advice.why_section(typed_whole(derive(raw())), rows)
    assert not why_section.problems and sentence in why_section.sentence


def test_zero_copy_of_udp_is_no_problem() -> None:
    assert why(raw(protocol="udp")).problems == []


def test_a_program_without_zero_copy_is_told_so() -> None:
    assert why(watched_record()).sentence.startswith("the program sends nothing with MSG_ZEROCOPY")


def test_the_most_expensive_problem_comes_first() -> None:
    """Waiting takes 28 % of the elapsed time. Unread notifications have no cost."""
    why_section = why(raw({"waits": 9_000, "waited_ns": 756_000_000, "read_sends": 0, "readings": 0}))
    assert [problem.code for problem in why_section.problems] == ["waits", "never_read"]


def test_silent_copies_are_found_by_samples() -> None:
    record = raw()
    record["samples"][1] |= {"kind": "account", "category": "silent", "symbol": "skb_pp_cow_data"}
    record["samples"][1]["caller"] = "veth_xdp_rcv_skb"
    (only,) = why(record).problems
    assert only.code == "silent" and only.cpu.share == pytest.approx(0.5)
    assert "XDP" in only.evidence and "detach the XDP program" in only.change


def test_late_copies_that_no_notification_reports_are_found_by_samples() -> None:
    """SEND_ZC without IORING_SEND_ZC_REPORT_USAGE reports no copy, and its completions are not counted."""
    record = raw()
    record["topology"]["peers"][0]["local"] = True
    for row in record["volume"]:
        row["syscall"] = "io_uring"
    for segment in record["run"]["segments"]:
        segment["sides"]["target"] |= {"completions": 0, "copied": 0}
    record["samples"][1] |= {"kind": "account", "category": "deferred", "symbol": "skb_copy_ubufs"}
    first, *_ = why(record).problems
    # Half of the samples is in the late copy, and a quarter pins pages.
    assert first.code == "late" and first.cpu.share == pytest.approx(0.75)
    assert "on delivery the kernel copies" in first.evidence and "peers on this machine" in first.change


def test_program_with_refused_sends_only_has_a_problem() -> None:
    """The kernel refused all sends with MSG_ZEROCOPY, so none counts as a zero-copy send."""
    record = watched_record() | {"buffers": [WITHOUT_FAULT | {"sends": 0, "enobufs": 9_000}]}
    (only,) = why(record).problems
    assert only.code == "enobufs" and "refused 100 % of its sends with the flag (9,000)" in only.what


@pytest.mark.parametrize(("unregistered", "codes"), [(10_000, ["unregistered"]), (0, [])])
def test_unregistered_memory_of_io_uring_is_reported(unregistered: int, codes: list[str]) -> None:
    record = raw()
    for row in record["volume"]:
        row["syscall"] = "io_uring"
    for segment in record["run"]["segments"]:
        segment["sides"]["target"]["unregistered"] = unregistered
    why_section = why(record)
    assert [problem.code for problem in why_section.problems] == codes
    sentence = "100 % of its SEND_ZC requests" if codes else "nothing is wrong"
    assert sentence in why_section.sentence


def test_waits_after_refusals_count_as_their_cost() -> None:
    (only,) = why(raw({"enobufs": 27_626, "waits": 9_000, "waited_ns": 756_000_000})).problems
    assert (only.code, only.wall_share) == ("enobufs", pytest.approx(0.28, abs=0.005))
    assert "it then waits for a notification, in all 28 % of the elapsed time" in only.evidence


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_screen_shows_problem_evidence_and_change(width: int, height: int) -> None:
    record = derive(raw({"enobufs": 7_826, "waits": 9_000, "waited_ns": 756_000_000}))
    record["target"] |= {"memlock_limit_bytes": 8 << 20, "optmem_limit_bytes": 131_072}
    record["why"] = to_builtins(advice.why_section(typed_whole(record)))
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    first_screen.render(typed_whole(record), console)
    lines = out.getvalue().splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    text = " ".join(out.getvalue().split())
    assert (
        "1. it waits for notifications: 28 % of the elapsed time" in text
        and "read notifications in batches" in text
    )
    assert "2. ENOBUFS: the kernel refused 8 %" in text and "raise RLIMIT_MEMLOCK" in text
