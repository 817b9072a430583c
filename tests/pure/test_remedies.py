# SPDX-License-Identifier: GPL-2.0-only
"""Remedies for the role of a program, and the bounds of their savings, in invented records.

A quarter of the samples is in the copy into the kernel, half in TCP and a quarter in the program's own code.
"""

from typing import Any

import pytest
from builders.advised import named, with_advice
from builders.samples import move_samples
from builders.watched import watched_record

Record = dict[str, Any]


def advised(raw: Record) -> tuple[str, dict[str, Record]]:
    """Return the one-sentence answer, and the remedies by name."""
    advice = with_advice(raw)["advice"]
    return advice["answer"], {remedy["name"]: remedy for remedy in advice["remedies"]}


def with_calls(raw: Record, **calls: int) -> Record:
    """Set the number of calls of each direction. Each call keeps its size."""
    for row in raw["volume"]:
        if row["direction"] in calls:
            size = row["bytes"] // row["calls"]
            count = calls[row["direction"]]
            row |= {"calls": count, "bytes": count * size, "nodelay_calls": 0, "sizes": [[size, count]]}
    return raw


def test_larger_sends_may_save_all_work_per_call() -> None:
    """Half of the time is entering calls of 1 byte. All of this goes for certain, and all else may go."""
    answer, remedies = advised(move_samples(watched_record(size=1), "syscall", "do_syscall_64"))
    saves = remedies["larger sends"]["saves"]
    # Wilson's interval of 300 of 600 samples begins at 46 %.
    assert saves["least_share"] == pytest.approx(0.46, abs=0.01) and saves["most_share"] > 0.99
    assert answer.startswith("server: a larger buffer for `send(2)` may save about 100 % (46 to 100)")


def test_larger_sends_leave_the_work_per_byte() -> None:
    """Packets of 16 KiB can become four times larger, so a quarter of TCP stays, and most of the copy.

    Calls of 32 KiB grow to 64 KiB, so half of the work per call likely goes.
    """
    _, remedies = advised(watched_record(size=32_768))
    saves = remedies["larger sends"]["saves"]
    # 1/4 own code + 3/4 * 1/2 TCP + 1/9 * 1/4 copy = 0.65; the interval of the samples adds 4 points.
    assert saves == pytest.approx({"least_share": 0.0, "most_share": 0.69, "likely_share": 0.33}, abs=0.01)


def test_io_uring_never_leads() -> None:
    """io_uring may save as much as larger sends if all work is in system calls."""
    raw = watched_record(size=1)
    for row in raw["samples"]:
        row |= {"category": "syscall", "symbol": "do_syscall_64", "kind": "stage", "context": "process"}
    answer, remedies = advised(raw)
    assert remedies["io_uring"]["saves"]["most_share"] == remedies["larger sends"]["saves"]["most_share"]
    assert "io_uring" not in answer


def test_one_send_instead_of_three_for_each_answer() -> None:
    """Two of three sends go: at most two thirds of the time."""
    raw = with_calls(watched_record(size=20, receives=40), send=30_000, receive=10_000)
    answer, remedies = advised(raw)
    assert remedies["one send"]["saves"]["most_share"] == pytest.approx(2 / 3, abs=0.01)
    assert remedies["larger sends"]["answer"] == "no"
    assert answer.startswith("server: one `sendmsg(2)`, or `MSG_MORE` may save ")


@pytest.mark.parametrize(("nodelay", "leads"), [(False, True), (True, False)])
def test_answers_of_40_ms_get_tcp_nodelay(nodelay: bool, leads: bool) -> None:
    """2.7 s have 60 answers in two sends each: 45 ms an answer."""
    raw = with_calls(watched_record(size=100, receives=40), send=40, receive=20)
    for row in raw["volume"]:
        row |= {"nodelay_calls": row["calls"] * nodelay, "bytes": row["calls"] * 100}
    answer, remedies = advised(raw)
    assert ("TCP_NODELAY" in remedies) is leads
    assert answer.startswith("server: `TCP_NODELAY` may end the wait for delayed") is leads


def test_datagrams_get_udp_segment() -> None:
    answer, remedies = advised(watched_record(size=1400, protocol="udp"))
    assert remedies["UDP batches"]["how"] == "`UDP_SEGMENT` or `sendmmsg(2)`"
    assert remedies["larger sends"]["why"] == "each send is a datagram, so it cannot grow"
    assert "`UDP_SEGMENT`" in answer


def test_server_with_short_answers_is_no_relay() -> None:
    """A GET of Redis receives and sends about as many bytes, 22 in each call."""
    raw = named(watched_record(size=22, receives=22), "redis-server")
    # The watch began between a request and its answer.
    raw = with_calls(raw, send=30_001, receive=30_000)
    raw["relays"] = {"threads": 1, "received_bytes": 660_000, "sent_bytes": 660_000}
    answer, remedies = advised(raw)
    assert "splice" not in remedies
    assert answer.startswith("redis-server: pipelining in its clients may save ")


def test_nginx_as_a_proxy_has_another_setting_than_nginx_with_files() -> None:
    how = {}
    for moved in (0, 1 << 30):
        raw = named(watched_record(size=8192, receives=0 if not moved else 8192), "nginx")
        raw["relays"] = {"threads": 1 if moved else 0, "received_bytes": moved, "sent_bytes": moved}
        how[bool(moved)] = advised(raw)[1]["larger sends"]["how"]
    assert how == {False: "`output_buffers 2 256k;`", True: "`proxy_buffers 8 64k;`"}


def test_program_of_a_distribution_is_not_told_to_change_its_code() -> None:
    raw = watched_record(size=1024)
    for row in raw["user_code"]:
        row["file"] = "/usr/bin/server"
    answer, remedies = advised(raw)
    assert answer.startswith("server: no change in this list")
    assert remedies["io_uring"]["answer"] == "no"
    assert remedies["larger sends"]["why"].startswith("server has no such setting (in its code: at most ")


def test_small_receives_get_a_larger_buffer() -> None:
    """90,000 calls in 2.7 s receive one byte each."""
    raw = watched_record(receives=1)
    raw["volume"] = [row for row in raw["volume"] if row["direction"] != "send"]
    answer, remedies = advised(move_samples(raw, "syscall", "do_syscall_64"))
    assert answer.startswith("server: a larger buffer for `recv(2)` may save about 100 % (46 to 100)")
    assert "sendfile" not in remedies and "io_uring" not in remedies


def test_receiver_may_map_the_pages_of_packets() -> None:
    raw = move_samples(watched_record(receives=65_536), "copy_out", "_copy_to_iter", kind="account")
    raw["volume"] = [row for row in raw["volume"] if row["direction"] != "send"]
    answer, _ = advised(raw)
    assert answer.startswith("server: `TCP_ZEROCOPY_RECEIVE` may save at most 54 %")


def test_own_copies_are_named_by_the_function_that_makes_them() -> None:
    raw = move_samples(watched_record(), "gather", "memcpy", kind="account", context="user")
    call = {"event": "cpu-clock", "copy": "memcpy", "file": "/opt/server", "reason": None}
    raw["user_callers"] = [
        {**call, "caller": "parse", "samples": 10},
        {**call, "caller": "add_reply", "source": "reply.c:41", "samples": 290},
    ]
    _, remedies = advised(raw)
    assert remedies["fewer user copies"]["why"] == (
        "`sendmsg(2)` of several buffers saves at most 54 %, "
        "if the copy in add_reply (reply.c:41) feeds a send"
    )
