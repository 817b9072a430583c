# SPDX-License-Identifier: GPL-2.0-only
"""Programs that report what became of each byte (moves.c): less usual ways are counted and named."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import SLOW, broken_identities, in_all, is_root
from programs import bytes_of, holding_identities, share_of, watch

Record = dict[str, Any]

MOVES = paths.OUTPUT / "tests" / "moves"
# A prime number, so that no other count is mistaken for it.
MESSAGES = 2297
UNSUPPORTED_STATUS = 77
MAPPED = "receive by mapping"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not MOVES.exists(), reason=f"needs {MOVES.name}: make {MOVES.relative_to(paths.ROOT)}"
    ),
]


def watch_moves(
    how: str, directory: Path, *options: str, much: str = str(MESSAGES)
) -> tuple[Record, dict[str, int]]:
    """Watch `moves HOW`.

    Return the record and the program's own counts. The default is one segment for the whole run.
    """
    report = directory / how
    record = watch(*(options or ("--whole",)), "--", str(MOVES), how, much, str(report), check=None)
    if record["target"]["status"] == UNSUPPORTED_STATUS:
        pytest.skip(f"this kernel cannot do {how}")
    truth: dict[str, int] = json.loads(report.read_text())
    assert broken_identities(record) == []
    return record, truth


def rows(record: Record, protocol: str, direction: str) -> dict[str, tuple[int, int]]:
    """Return system call -> (calls, bytes) of one protocol and direction."""
    return {
        row["syscall"]: (row["calls"], row["bytes"])
        for row in record["volume"]
        if (row["protocol"], row["direction"]) == (protocol, direction)
    }


def test_mapped_pages_are_counted_to_the_byte(tmp_path: Path) -> None:
    record, truth = watch_moves("mapped", tmp_path)
    # Before 5.11 the call copies nothing itself.
    assert truth["mapped"] > truth["copied"] + truth["received"] > 0
    assert rows(record, "tcp", "mapped")[MAPPED][1] == bytes_of(record, "mapped") == truth["mapped"]
    assert rows(record, "tcp", "receive").get(MAPPED, (0, 0))[1] == truth["copied"]
    assert record["target"]["received_bytes"] == truth["sent"] == record["rx_bytes"]
    # Bytes that could not be mapped were copied, by the same call or by others.
    assert bytes_of(record, "copy_out") == truth["copied"] + truth["received"]
    mapped = record["portrait"]["mapped"]
    assert mapped["pages"] * record["target"]["page_bytes"] == mapped["bytes"] == truth["mapped"]
    assert (
        truth["mappings"] <= mapped["calls"] <= truth["mappings"] + 1
    )  # the last call finds the end of the stream


@pytest.mark.all
def test_mapped_bytes_agree_with_the_counter_of_tcp(tmp_path: Path) -> None:
    """TCP counts all received bytes. Once the hook has seen a mapping, it stays attached in all segments."""
    record, _ = watch_moves("mapped", tmp_path, "--frequency", "999", much=f"{2.5 * SLOW:g}s")
    assert {"connection_received_bytes", "received_split"} <= holding_identities(record)
    identity = next(row for row in record["identities"] if row["name"] == "connection_received_bytes")
    assert "mapped" in identity["what"] and identity["left"] > 1 << 20
    assert rows(record, "tcp", "mapped")
    phases = {row["phase"] for row in record["volume"] if row["direction"] == "mapped"}
    assert phases > {"ledger"}
    assert share_of(record, "mapped") > 0.02
    assert "mapping received pages takes" in record["verdict"]["sentence"]


@pytest.mark.parametrize("how", ["udp", *map(in_all, ("unix_stream", "unix_dgram", "mptcp"))])
def test_bytes_of_each_kind_of_socket_are_counted_and_named(how: str, tmp_path: Path) -> None:
    record, truth = watch_moves(how, tmp_path)
    assert truth["sent"] == truth["received"] > 0
    assert rows(record, how, "send") == {"sendto": (truth["sends"], truth["sent"])}
    calls, received = rows(record, how, "receive")["recvfrom"]
    # The read of a stream's end is a call without a byte.
    assert received == truth["received"] and truth["receives"] <= calls <= truth["receives"] + 1
    assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") == truth["sent"]
    sentence = record["verdict"]["sentence"]
    assert ("100 % of its bytes went through UNIX sockets" in sentence) == how.startswith("unix")
    assert ("MPTCP, where the kernel ignores MSG_ZEROCOPY" in sentence) == (how == "mptcp")
    if how == "mptcp":
        assert record["zerocopy"] is None and truth["flagged"] == 0


# Reads the packets of what it sends, with their headers, by a raw and a packet socket.
TAPS = """
import socket

taps = [
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP),
    socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)),
]
taps[1].bind(("lo", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(1000):
    sender.sendto(bytes(1000), ("127.0.0.1", 9))
    for tap in taps:
        tap.recv(2000)
"""


def test_bytes_read_by_packet_sockets_are_not_counted() -> None:
    """Packets copied to a packet socket once counted as copied out of TCP, which made the run invalid."""
    record = watch("--whole", "--", sys.executable, "-c", TAPS)
    assert broken_identities(record) == []
    ways = {(row["protocol"], row["direction"]) for row in record["volume"]}
    assert ways - {("file", "file_read")} == {("udp", "send")}


def test_bytes_dropped_with_msg_trunc_are_received_and_not_copied_out(tmp_path: Path) -> None:
    record, truth = watch_moves("tcp_dropped", tmp_path)
    dropped = truth["received"] - truth["copied"]
    assert truth["sent"] == truth["received"] and 0 < dropped < truth["received"]
    assert bytes_of(record, "copy_out") == truth["copied"]
    # The dropped bytes are first peeked with MSG_TRUNC, and then dropped with it.
    assert rows(record, "tcp", "truncated")["recvfrom"][1] == 2 * dropped
    assert rows(record, "tcp", "peek")["recvfrom"][1] == dropped
    assert "received_split" in holding_identities(record)
    assert "of what it received was dropped without a copy (MSG_TRUNC)" in record["verdict"]["sentence"]


@pytest.mark.all
def test_asking_for_the_length_of_a_datagram_copies_nothing(tmp_path: Path) -> None:
    record, truth = watch_moves("unix_length", tmp_path)
    assert rows(record, "unix_dgram", "truncated") == {"recvfrom": (truth["sends"], truth["sent"])}
    assert bytes_of(record, "copy_out") == record["target"]["received_bytes"] == truth["sent"]


@pytest.mark.all
def test_copied_bytes_of_a_truncated_datagram_are_unknown(tmp_path: Path) -> None:
    record, truth = watch_moves("udp_length", tmp_path)
    assert rows(record, "udp", "truncated") == {"recvfrom": (truth["sends"], truth["sent"])}
    (copied,) = (row for row in record["ledger"] if row["account"] == "copy_out")
    assert copied["bytes"] is None and "MSG_TRUNC" in copied["reasons"]["bytes"]


def test_urgent_bytes_are_counted_as_copies_of_their_own(tmp_path: Path) -> None:
    record, truth = watch_moves("tcp_urgent", tmp_path)
    assert truth["sent"] == truth["received"] == bytes_of(record, "copy_out")
    assert rows(record, "tcp", "copy_out")["recvfrom"] == (truth["sends"], truth["sends"])


def test_bytes_redirected_by_sk_msg_are_copied_and_pass_no_tcp(tmp_path: Path) -> None:
    record, truth = watch_moves("sockmap", tmp_path)
    assert record["verdict"]["valid"], record["verdict"]["reasons"]
    assert truth["sent"] == truth["received"] > 0
    assert rows(record, "sockmap", "send") == {"sendto": (truth["sends"], truth["sent"])}
    assert rows(record, "sockmap", "receive") == {"recvfrom": (truth["receives"], truth["received"])}
    assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") == truth["sent"]
    reasons = {row["name"]: row["reason"] for row in record["identities"] if row["holds"] is None}
    assert "sockmap" in reasons["connection_sent_bytes"] and "sockmap" in reasons["received_split"]
    assert "100 % of its bytes went through sockets in a sockmap" in record["verdict"]["sentence"]


@pytest.mark.parametrize(("how", "error"), [in_all("refused", "EAGAIN"), ("no_memlock", "ENOBUFS")])
def test_each_refused_send_is_counted_by_its_error(how: str, error: str, tmp_path: Path) -> None:
    record, truth = watch_moves(how, tmp_path)
    assert truth["refused"] == MESSAGES
    assert record["send_errors"] == [{"syscall": "sendto", "error": error, "calls": MESSAGES}]
    assert record["target"]["send_calls"] == truth["sends"]
    assert f"of its send calls were refused ({error} {MESSAGES:,})" in record["verdict"]["sentence"]


def spliced_on(record: Record) -> str:
    """Return the name of splice to a socket.

    Before 6.5 the pages have left the pipe before a hook sees the send.
    """
    (name,) = {"splice", "splice between sockets"}.intersection(rows(record, "tcp", "send"))
    return name


def test_copied_and_spliced_bytes_of_a_relay_are_separate(tmp_path: Path) -> None:
    record, truth = watch_moves("relay", tmp_path)
    assert truth["sent"] == truth["received"] == truth["relayed"] + truth["spliced"]
    # Source and sink of the relay are threads of the same program.
    assert bytes_of(record, "copy_out") == truth["relayed"] + truth["received"]
    assert bytes_of(record, "copy_in") == truth["sent"] + truth["relayed"]
    assert bytes_of(record, "pin") == truth["spliced"]
    assert rows(record, "tcp", "send")[spliced_on(record)][1] == truth["spliced"]
    relays = record["relays"]
    assert (relays["threads"], relays["received_bytes"], relays["sent_bytes"]) == (1, *2 * [truth["relayed"]])


# Bytes that the relay of moves.c takes with one splice (STREAM_BYTES / 4).
SPLICED_AT_ONCE_BYTES = 65536


@pytest.mark.all
def test_bytes_spliced_from_a_unix_socket_before_their_hook_are_counted_as_lost(tmp_path: Path) -> None:
    """The kernel has no cheap hook for such a splice, so its hook is attached after the first send."""
    record, truth = watch_moves(
        "relay_unix", tmp_path, "--instruments", "counters,sampler", much=f"{2 * SLOW:g}s"
    )
    assert truth["spliced"] > 100 * SPLICED_AT_ONCE_BYTES
    received_bytes = truth["received"] + truth["relayed"] + truth["spliced"]
    missing_bytes = received_bytes - record["target"]["received_bytes"]
    lost = record["loss"]["splices_before_their_hook"]["count"]
    # Besides the lost splices, the last splice may have taken bytes that the relay had not sent yet.
    assert 0 < missing_bytes <= (lost + 1) * SPLICED_AT_ONCE_BYTES
    assert record["target"]["sent_bytes"] == truth["sent"] + truth["relayed"] + truth["spliced"]


@pytest.mark.all
def test_a_relay_that_begins_to_splice_is_valid(tmp_path: Path) -> None:
    """The run has segments. Splices are counted from a moment after the first one."""
    record, truth = watch_moves("relay", tmp_path, "--frequency", "999", much=f"{3 * SLOW:g}s")
    # On a busy machine the hook comes late.
    reasons = record["verdict"]["reasons"]
    assert [reason for reason in reasons if not reason.startswith("loss: splices_before_their_hook")] == []
    ledger = [row for row in record["volume"] if row["phase"] == "ledger"]
    copied = sum(row["bytes"] for row in ledger if row["syscall"] == "recvfrom")
    assert bytes_of(record, "copy_out") == pytest.approx(copied, rel=0.01)
    spliced = sum(row["bytes"] for row in ledger if row["syscall"] == spliced_on(record))
    assert 0 < spliced == bytes_of(record, "pin") <= truth["spliced"]
    calls = {
        row["syscall"]: row["bytes"]
        for row in record["volume"]
        if (row["phase"], row["direction"]) == ("calls", "send")
    }
    # The source only sends. It sends as much as the relay forwards by sendto and splice.
    relayed = (calls["sendto"] - calls.get(spliced_on(record), 0)) / 2
    relays = record["relays"]
    assert relays["threads"] == 1 and relays["sent_bytes"] == pytest.approx(relayed, rel=0.25)


@pytest.mark.all
def test_zero_copy_completions_of_udp_are_counted(tmp_path: Path) -> None:
    # Only samples show where UDP copies, so that a busy machine needs many sends for 30 of them.
    messages = 50_021
    record, truth = watch_moves("udp_zerocopy", tmp_path, much=str(messages))
    assert truth["completions"] == truth["sends"] == messages
    zerocopy = record["zerocopy"]
    assert (zerocopy["sends"], zerocopy["bytes_sent"]) == (truth["sends"], truth["sent"])
    if zerocopy["completions"] is None:  # before 5.14
        assert "inet_sk_error_report" in zerocopy["reason"]
        return
    assert (zerocopy["completions"], zerocopy["unseen"]) == (truth["sends"], 0)
    # On this machine every send is copied late. The path is known although there is no TCP connection.
    assert zerocopy["copied"] == truth["sends"] and zerocopy["cause"]["code"] == "local_delivery"
    (row,) = record["buffers"]
    assert (row["protocol"], row["sends"], row["given_back_sends"], row["read_sends"]) == (
        "udp",
        *3 * [truth["sends"]],
    )
    assert bytes_of(record, "pin") == bytes_of(record, "deferred") == truth["sent"]


def spread(histogram: Record) -> tuple[float, float]:
    """Return the lowest and highest possible mean of the values in a histogram."""
    low, high = (
        sum(row[end] * row[2] for row in histogram["buckets"]) / sum(row[2] for row in histogram["buckets"])
        for end in (0, 1)
    )
    return low, high


def test_lifetimes_of_zero_copy_buffers_agree_with_the_program(tmp_path: Path) -> None:
    record, truth = watch_moves("tcp_zerocopy", tmp_path, much="300")
    (row,) = record["buffers"]
    assert (row["side"], row["protocol"], row["sends"]) == ("target", "tcp", truth["sends"])
    if row["given_back_sends"] is None:  # before 5.14
        assert "inet_sk_error_report" in row["reason"]
        return
    # The last buffer was with the kernel when its socket was closed. Three others were returned but not read.
    assert (row["given_back_sends"], row["closed_sends"]) == (truth["sends"] - 1, 1)
    assert row["read_sends"] == truth["completions"] == truth["sends"] - 4
    message = truth["sent"] // truth["sends"]
    assert (row["most_in_flight"], row["most_in_flight_bytes"]) == (3, 3 * message)
    assert sum(count for _, _, count in row["latency"]["buckets"]) == row["given_back_sends"]
    assert sum(count for _, _, count in row["reading"]["buckets"]) == row["read_sends"]
    # The program measures from the last of three sends, and a moment later than the kernel.
    for name, program_key in (("latency", "back_ns"), ("reading", "unread_ns")):
        low, high = spread(row[name])
        assert low / 1.05 < truth[program_key] < high * 1.05


def waits_of(how: str, directory: Path) -> tuple[Record, dict[str, int]]:
    record, truth = watch_moves(how, directory, much="503")
    (row,) = record["buffers"]
    if row["given_back_sends"] is None:  # before 5.14
        pytest.skip(row["reason"])
    assert row["sends"] == truth["sends"] and 0 < row["readings"] <= row["read_sends"]
    return row, truth


def test_time_waited_for_notifications_agrees_with_the_program(tmp_path: Path) -> None:
    row, truth = waits_of("wait_each", tmp_path)
    # The program does not send after its last wait.
    assert 0.9 * truth["waits"] < row["waits"] <= truth["waits"] - 1
    assert abs(row["waited_ns"] / truth["waited_ns"] - 1) < 0.1
    assert row["waited_ns"] > 500 * 1_000_000
    # A notification that is read while the kernel queues it is counted with the next one.
    assert 0.98 * truth["completions"] < row["readings"] <= row["read_sends"] == truth["completions"]


@pytest.mark.all
@pytest.mark.parametrize("how", ["wait_never", "wait_for_room"])
def test_waiting_for_room_in_the_socket_is_not_waiting_for_notifications(how: str, tmp_path: Path) -> None:
    row, _ = waits_of(how, tmp_path)
    assert row["waited_ns"] < 0.02 * 503 * 2_000_000


@pytest.mark.all
def test_a_server_woken_by_a_notification_while_idle_has_not_waited(tmp_path: Path) -> None:
    row, truth = waits_of("idle_server", tmp_path)
    assert (row["waits"], row["waited_ns"]) == (0, 0)
    assert truth["completions"] > 400 and row["readings"] > 400


def test_msg_zerocopy_without_so_zerocopy_is_not_a_zero_copy_send(tmp_path: Path) -> None:
    record, truth = watch_moves("flag_alone", tmp_path)
    (row,) = record["buffers"]
    assert (row["flag_only_calls"], row["sends"]) == (truth["sends"], 0)


def test_refused_zero_copy_sends_are_counted_by_error(tmp_path: Path) -> None:
    record, truth = watch_moves("no_memlock", tmp_path)
    (row,) = record["buffers"]
    assert (row["enobufs"], row["eagain"], row["sends"]) == (truth["refused"], 0, 0)
    assert record["target"]["optmem_limit_bytes"] == int(record["machine"]["sysctls"]["net.core.optmem_max"])
