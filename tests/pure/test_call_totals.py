"""Timed calls that stand for all: the programs' counts are put in, and times in proportion."""

from typing import Any

from copyscope.record.call_totals import told_by_programs

Row = dict[str, Any]


def row(side: str, syscall: str, timed: int, moved: int) -> Row:
    """As the collector gives it: what was timed, 1 us on the CPU, 2 us of softirq, 3 us blocked each."""
    made: Row = {"side": side, "syscall": syscall, "calls": timed, "timed_calls": timed, "bytes": moved}
    times = {"on_cpu_ns": 1000 * timed, "softirq_ns": 2000 * timed, "blocked_ns": 3000 * timed}
    return made | times | {"largest_bytes": 64, "counted_at": "window"}


def segment(arm: str, sends: dict[str, int], receives: int, reads: int | None) -> Row:
    zerocopy = None if reads is None else {"errqueue_reads": reads}
    sent = 64 * sum(sends.values())
    return {
        "arm": arm,
        "sender": {"send_syscalls": sends, "bytes": sent, "zerocopy": zerocopy},
        "receiver": {"calls": receives, "bytes": sent},
    }


SEGMENTS = [
    segment("calls", {"sendmsg": 600}, 300, 50),
    segment("unprobed", {"sendmsg": 10**6}, 10**6, 10**6),
    segment("calls", {"sendmsg": 400}, 200, 30),
]


def test_counts_are_the_programs_and_times_are_in_proportion() -> None:
    rows = [row("sender", "sendmsg", 100, 6400), row("sender", "recvmsg", 8, 0)]
    rows.append(row("receiver", "recvfrom", 50, 6400))
    sends, reads, receives = told_by_programs(rows, SEGMENTS)
    assert (sends["calls"], sends["bytes"], sends["timed_calls"]) == (1000, 64_000, 100)
    assert (sends["on_cpu_ns"], sends["softirq_ns"], sends["blocked_ns"]) == (10**6, 2 * 10**6, 3 * 10**6)
    assert (reads["calls"], reads["bytes"]) == (80, 0)
    assert (receives["calls"], receives["bytes"], receives["on_cpu_ns"]) == (500, 64_000, 500_000)
    assert {made["counted_at"] for made in (sends, reads, receives)} == {"program"}


def test_what_passes_no_receive_call_is_not_one() -> None:
    mapped, asked = segment("calls", {}, 300, None), segment("calls", {}, 300, None)
    mapped["receiver"] |= {"bytes": 64_000, "mapped": {"calls": 290, "bytes": 61_440, "copied_bytes": 560}}
    asked["receiver"] |= {"bytes": 64_000, "io_uring": {"requests": 2, "enters": 40}}
    for told, calls, bytes_ in ((mapped, 10, 2000), (asked, 40, 64_000)):
        (receives,) = told_by_programs([row("receiver", "any", 5, 320)], [told])
        assert (receives["calls"], receives["bytes"]) == (calls, bytes_)


def test_the_name_of_the_library_is_not_that_of_the_system_call() -> None:
    segments = [segment("calls", {"send": 40, "sendfile": 10}, 10, None)]
    rows = [row("sender", "sendto", 4, 400), row("sender", "sendfile", 5, 1200)]
    sends, files = told_by_programs(rows, segments)
    assert (sends["calls"], files["calls"]) == (40, 10)
    # 3,200 bytes in all, as the timed ones share them.
    assert (sends["bytes"], files["bytes"]) == (800, 2400)


def test_calls_that_the_program_does_not_name_are_as_many_as_the_timed_ones_stand_for() -> None:
    rows = [row("sender", "sendmsg", 100, 6400), row("sender", "sendmmsg", 3, 0)]
    _, others = told_by_programs(rows, SEGMENTS)
    assert others["calls"] == 30


def test_what_the_kernel_has_counted_stays() -> None:
    rows = [{**row("sender", "sendmsg", 100, 6400), "calls": 1600, "counted_at": "socket"}]
    assert list(told_by_programs(rows, SEGMENTS)) == rows
    untimed = {**row("sender", "sendmsg", 0, 0), **dict.fromkeys(("on_cpu_ns", "softirq_ns", "blocked_ns"))}
    (made,) = told_by_programs([untimed], SEGMENTS)
    assert made["on_cpu_ns"] is None and made["calls"] == 1000
