# SPDX-License-Identifier: GPL-2.0-only
"""Why a watched program waits: each cause follows from samples whose reason is known."""

import io
from typing import Any

import pytest
from builders.documents import advise, typed_whole, with_derived_sections
from builders.watched import watched_record
from copyscope.ledger.waiting import Waiting, waiting
from copyscope.run.connections import TcpConnection
from copyscope.run.wait_calls import WaitCall, find_call
from copyscope.run.wait_sampler import is_held
from copyscope.show import first_screen
from rich.console import Console

Record = dict[str, Any]
Row = tuple[str | None, str | None, str | None, int]
READ: Row = ("read", "socket", "wait_woken", 90)
WRITE: Row = ("write", "socket", "wait_woken", 90)
POLL: Row = ("epoll_wait", None, "ep_poll", 90)
RAN: Row = (None, None, None, 10)


def record(*rows: Row, held: int = 0, **waits: Any) -> Record:
    """Return a record with samples of threads. `held`: held readings, of 100 readings of connections."""
    raw = watched_record()
    raw["connections"][0] |= {"busy_ms": 1000, "rwnd_limited_ms": 0, "sndbuf_limited_ms": 0}
    keys = ("call", "file", "function", "samples")
    raw["waits"] = {
        "samples": sum(row[3] for row in rows) or None,
        "reason": None if rows else "the kernel hides the system calls",
        "threads": 1,
        "rows": [dict(zip(keys, row, strict=True)) for row in rows],
        "disk_bytes": 0,
        "connection_samples": 100,
        "held_samples": held,
        "fixed_buffer_bytes": None,
        **waits,
    }
    return raw


def found(raw: Record) -> Waiting:
    result = waiting(typed_whole(with_derived_sections(raw)).raw)
    assert result is not None
    return result


def causes(raw: Record) -> list[tuple[str, float]]:
    return [(cause.name, round(cause.share, 3)) for cause in found(raw).causes]


def test_held_messages_are_due_to_nagle_unless_the_program_turned_it_off_or_corks() -> None:
    raw = record(READ, RAN, held=80)
    rows = [row for row in raw["volume"] if row["direction"] == "send"]
    for row in rows:
        row |= {"nodelay_calls": 0, "cork_calls": 0}
    assert causes(raw) == [("Nagle's algorithm", 0.8), ("requests or data", 0.1)]
    assert "TCP_NODELAY" in found(raw).sentence()
    for row in rows:
        row["cork_calls"] = row["calls"]
    assert causes(raw)[0] == ("TCP_CORK", 0.8)
    for row in rows:
        row |= {"nodelay_calls": row["calls"], "cork_calls": 0}
    assert causes(raw) == [("requests or data", 0.9)]


@pytest.mark.parametrize(
    ("window_ms", "buffer_ms", "fixed_bytes", "name", "words"),
    [
        (600, 0, 32_768, "peer's window", "let the peer read faster"),
        (0, 400, 32_768, "send buffer", "SO_SNDBUF fixes it at 16 KiB"),
        (0, 400, None, "send buffer", "raise net.ipv4.tcp_wmem"),
        (0, 0, 32_768, "network or peer", "takes no more bytes"),
    ],
)
def test_tcp_tells_why_a_socket_has_no_room(
    window_ms: int, buffer_ms: int, fixed_bytes: int | None, name: str, words: str
) -> None:
    raw = record(WRITE, RAN, fixed_buffer_bytes=fixed_bytes)
    raw["connections"][0] |= {"rwnd_limited_ms": window_ms, "sndbuf_limited_ms": buffer_ms}
    assert causes(raw) == [(name, 0.9)] and words in found(raw).sentence()


def test_waits_for_the_disk_and_for_room_in_sendfile_are_told_apart() -> None:
    raw = record(
        ("sendfile", "socket", "folio_wait_bit_common", 40),
        ("sendfile", "socket", None, 10),
        ("sendfile", "socket", "wait_woken", 20),
        (None, None, None, 30),
        disk_bytes=280 << 20,
    )
    assert causes(raw) == [("disk", 0.5), ("network or peer", 0.2)]
    assert "280 MiB" in found(raw).sentence()
    raw = record(POLL, RAN, disk_bytes=5 << 30)
    assert found(raw).sentence().endswith("; 5 GiB came from the disk")


def test_every_sample_of_a_waiting_thread_has_one_cause() -> None:
    raw = record(
        POLL,
        ("futex", None, "futex_wait_queue", 40),
        ("clock_nanosleep", None, "hrtimer_nanosleep", 30),
        ("read", "file", None, 20),
        ("write", "other", "pipe_write", 8),
        ("call 999", None, None, 2),
        RAN,
    )
    shares = dict(causes(raw))
    assert shares == {
        "requests or data": 0.45,
        "other threads": 0.2,
        "sleep": 0.15,
        "disk": 0.1,
        "other calls": 0.05,
    }


def screen(raw: Record) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    first_screen.render(typed_whole(with_derived_sections(raw)), console)
    return " ".join(out.getvalue().split())


def test_the_first_screen_names_the_cause_or_why_it_is_unknown() -> None:
    assert "waits: 90 % of the time in epoll_wait: nothing to do" in screen(record(POLL, RAN))
    assert "waits: n/a: the kernel hides the system calls" in screen(record())
    assert "waits: n/a: only 4 samples" in screen(record(("read", "socket", None, 4)))
    assert "waits:" not in screen(record((None, None, None, 100)))


def test_a_program_that_waits_is_not_told_to_wait_longer() -> None:
    def answer(raw: Record) -> str:
        raw["samples"], raw["stacks"] = raw["samples"][:1], None
        raw["samples"][0] |= {"samples": 3, "weight": 3_000_000, "weight_squared": 3e12}
        return str(advise(with_derived_sections(raw), None)["answer"])

    assert answer(record(POLL, RAN)).startswith(
        "server: it waits 90 % of the time in epoll_wait: nothing to do"
    )
    assert "--duration" in answer(record((None, None, None, 100)))


def connection(unsent: int, unacked: int, window: int) -> TcpConnection:
    zeros = TcpConnection._make([0] * len(TcpConnection._fields))
    return zeros._replace(
        mss_bytes=1448, unsent_bytes=unsent, unacked_segments=unacked, window_segments=window
    )


def test_a_connection_holds_less_than_a_segment_behind_an_unacknowledged_one() -> None:
    assert is_held(connection(100, 1, 10))
    assert not is_held(connection(0, 1, 10))  # everything is sent
    assert not is_held(connection(1448, 1, 10))  # a whole segment is never held
    assert not is_held(connection(100, 0, 10))  # nothing is unacknowledged
    assert not is_held(connection(100, 10, 10))  # the congestion window is full


def test_the_file_of_proc_names_the_call() -> None:
    assert find_call("running\n") is None
    assert find_call("-1 0x7ffd 0x7f01\n") == WaitCall("page fault", None)
    assert find_call("999 0x3 0x4\n") == WaitCall("call 999", None)
    assert find_call("426 0x3 0x4 0x1\n") == WaitCall("io_uring_enter", None)
    with pytest.raises(ValueError, match="invalid"):
        find_call("none\n")


def test_a_wait_for_a_page_of_a_file_has_no_second_cause() -> None:
    """Any call may touch memory that is mapped from a file, whose page comes from the disk."""
    page = "folio_wait_bit_common"
    raw = record(("io_uring_enter", None, page, 40), ("futex", None, page, 30), POLL, RAN)
    assert dict(causes(raw)) == pytest.approx({"disk": 70 / 170, "requests or data": 90 / 170}, abs=0.001)
