"""Programs that say what became of each byte (moves.c): the less usual ways are counted, and have a name."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from profiling import SLOW, broken_identities, in_all, is_root
from programs import bytes_of, held, share_of, watch

Record = dict[str, Any]

MOVES = paths.OUTPUT / "tests" / "moves"
# A prime number, so that no other count is mistaken for it.
MESSAGES = 2297
CANNOT = 77
MAPPED = "receive by mapping"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not MOVES.exists(), reason=f"needs {MOVES.name}: make {MOVES.relative_to(paths.ROOT)}"
    ),
]


def moved(
    how: str, directory: Path, *options: str, much: str = str(MESSAGES)
) -> tuple[Record, dict[str, int]]:
    """The record of one such program, and what it says of itself; whole: nothing moves before or after."""
    report = directory / how
    record = watch(*(options or ("--whole",)), "--", str(MOVES), how, much, str(report), check=None)
    if record["target"]["status"] == CANNOT:
        pytest.skip(f"this kernel cannot do {how}")
    truth: dict[str, int] = json.loads(report.read_text())
    assert broken_identities(record) == []
    return record, truth


def rows(record: Record, protocol: str, direction: str) -> dict[str, tuple[int, int]]:
    """System call -> (calls, bytes)."""
    return {
        row["syscall"]: (row["calls"], row["bytes"])
        for row in record["volume"]
        if (row["protocol"], row["direction"]) == (protocol, direction)
    }


def test_mapped_pages_are_counted_to_the_byte(tmp_path: Path) -> None:
    record, truth = moved("mapped", tmp_path)
    # Before 5.11 nothing is copied by the same call.
    assert truth["mapped"] > truth["copied"] + truth["received"] > 0
    assert rows(record, "tcp", "mapped")[MAPPED][1] == bytes_of(record, "mapped") == truth["mapped"]
    assert rows(record, "tcp", "receive").get(MAPPED, (0, 0))[1] == truth["copied"]
    assert record["target"]["received_bytes"] == truth["sent"] == record["rx_bytes"]
    # What could not be mapped was copied, by the same calls or by others.
    assert bytes_of(record, "copy_out") == truth["copied"] + truth["received"]
    found = record["portrait"]["mapped"]
    assert found["pages"] * record["target"]["page_bytes"] == found["bytes"] == truth["mapped"]
    assert (
        truth["mappings"] <= found["calls"] <= truth["mappings"] + 1
    )  # the last finds the end of the stream


@pytest.mark.all
def test_tcp_itself_says_that_all_that_was_mapped_is_counted(tmp_path: Path) -> None:
    """Segments with and without the hook that counts: it stays, once it has seen anything."""
    record, _ = moved("mapped", tmp_path, "--frequency", "999", much=f"{2.5 * SLOW:g}s")
    assert {"connection_received_bytes", "received_split"} <= held(record)
    identity = next(row for row in record["identities"] if row["name"] == "connection_received_bytes")
    assert "mapped" in identity["what"] and identity["left"] > 1 << 20
    assert rows(record, "tcp", "mapped")
    phases = {row["phase"] for row in record["volume"] if row["direction"] == "mapped"}
    assert phases > {"ledger"}
    assert share_of(record, "mapped") > 0.02
    assert "mapping received pages takes" in record["verdict"]["sentence"]


@pytest.mark.parametrize("how", ["unix_stream", "udp", *map(in_all, ("unix_dgram", "mptcp"))])
def test_each_kind_of_socket_has_its_bytes_and_its_name(how: str, tmp_path: Path) -> None:
    record, truth = moved(how, tmp_path)
    assert truth["sent"] == truth["received"] > 0
    assert rows(record, how, "send") == {"sendto": (truth["sends"], truth["sent"])}
    calls, received = rows(record, how, "receive")["recvfrom"]
    # The end of a stream is read, too: a call without a byte.
    assert received == truth["received"] and truth["receives"] <= calls <= truth["receives"] + 1
    assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") == truth["sent"]
    sentence = record["verdict"]["sentence"]
    assert ("100 % of its bytes went through UNIX sockets" in sentence) == how.startswith("unix")
    assert ("MPTCP, where the kernel ignores MSG_ZEROCOPY" in sentence) == (how == "mptcp")
    if how == "mptcp":
        assert record["zerocopy"] is None and truth["flagged"] == 0


# Reads what it sends as packets, with their headers.
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


def test_what_is_read_as_packets_is_of_no_socket_that_is_counted() -> None:
    """It was copied out of TCP without having been received, which made the run invalid."""
    record = watch("--whole", "--", sys.executable, "-c", TAPS)
    assert broken_identities(record) == []
    ways = {(row["protocol"], row["direction"]) for row in record["volume"]}
    assert ways - {("file", "file_read")} == {("udp", "send")}


def test_what_is_dropped_without_a_copy_is_received_and_not_copied_out(tmp_path: Path) -> None:
    record, truth = moved("tcp_dropped", tmp_path)
    dropped = truth["received"] - truth["copied"]
    assert truth["sent"] == truth["received"] and 0 < dropped < truth["received"]
    assert bytes_of(record, "copy_out") == truth["copied"]
    # Looked at, and dropped.
    assert rows(record, "tcp", "truncated")["recvfrom"][1] == 2 * dropped
    assert rows(record, "tcp", "peek")["recvfrom"][1] == dropped
    assert "received_split" in held(record)
    assert "of what it received was dropped without a copy (MSG_TRUNC)" in record["verdict"]["sentence"]


@pytest.mark.all
def test_whoever_asks_for_the_length_of_a_datagram_gets_no_bytes_of_it(tmp_path: Path) -> None:
    record, truth = moved("unix_length", tmp_path)
    assert rows(record, "unix_dgram", "truncated") == {"recvfrom": (truth["sends"], truth["sent"])}
    assert bytes_of(record, "copy_out") == record["target"]["received_bytes"] == truth["sent"]


@pytest.mark.all
def test_how_much_is_copied_of_a_datagram_that_is_too_long_is_not_known(tmp_path: Path) -> None:
    record, truth = moved("udp_length", tmp_path)
    assert rows(record, "udp", "truncated") == {"recvfrom": (truth["sends"], truth["sent"])}
    (copied,) = (row for row in record["ledger"] if row["account"] == "copy_out")
    assert copied["bytes"] is None and "MSG_TRUNC" in copied["reasons"]["bytes"]


def test_urgent_bytes_are_copied_out_by_themselves(tmp_path: Path) -> None:
    record, truth = moved("tcp_urgent", tmp_path)
    assert truth["sent"] == truth["received"] == bytes_of(record, "copy_out")
    assert rows(record, "tcp", "copy_out")["recvfrom"] == (truth["sends"], truth["sends"])


def test_what_sk_msg_redirects_is_copied_in_and_out_and_passes_no_tcp(tmp_path: Path) -> None:
    record, truth = moved("sockmap", tmp_path)
    assert record["verdict"]["valid"], record["verdict"]["reasons"]
    assert truth["sent"] == truth["received"] > 0
    assert rows(record, "sockmap", "send") == {"sendto": (truth["sends"], truth["sent"])}
    assert rows(record, "sockmap", "receive") == {"recvfrom": (truth["receives"], truth["received"])}
    assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") == truth["sent"]
    found = {row["name"]: row["reason"] for row in record["identities"] if row["holds"] is None}
    assert "sockmap" in found["connection_sent_bytes"] and "sockmap" in found["received_split"]
    assert "100 % of its bytes went through sockets in a sockmap" in record["verdict"]["sentence"]


@pytest.mark.parametrize(("how", "error"), [("refused", "EAGAIN"), ("no_memlock", "ENOBUFS")])
def test_each_refused_send_is_counted_by_its_error(how: str, error: str, tmp_path: Path) -> None:
    record, truth = moved(how, tmp_path)
    assert truth["refused"] == MESSAGES
    assert record["send_errors"] == [{"syscall": "sendto", "error": error, "calls": MESSAGES}]
    assert record["target"]["send_calls"] == truth["sends"]
    assert f"of its send calls were refused ({error} {MESSAGES:,})" in record["verdict"]["sentence"]


def spliced_on(record: Record) -> str:
    """Before 6.5 the pages are gone from the pipe before anybody sees the send."""
    (found,) = {"splice", "splice between sockets"}.intersection(rows(record, "tcp", "send"))
    return found


def test_what_a_relay_copies_and_what_it_splices_are_told_apart(tmp_path: Path) -> None:
    record, truth = moved("relay", tmp_path)
    assert truth["sent"] == truth["received"] == truth["relayed"] + truth["spliced"]
    # Its source and its sink are threads of the same program.
    assert bytes_of(record, "copy_out") == truth["relayed"] + truth["received"]
    assert bytes_of(record, "copy_in") == truth["sent"] + truth["relayed"]
    assert bytes_of(record, "pin") == truth["spliced"]
    assert rows(record, "tcp", "send")[spliced_on(record)][1] == truth["spliced"]
    relays = record["relays"]
    assert (relays["threads"], relays["received_bytes"], relays["sent_bytes"]) == (1, *2 * [truth["relayed"]])


@pytest.mark.all
def test_a_relay_that_begins_to_splice_is_valid(tmp_path: Path) -> None:
    """In segments: what it splices is counted from a moment after it began."""
    record, truth = moved("relay", tmp_path, "--frequency", "999", much=f"{3 * SLOW:g}s")
    # On a busy machine the hook comes late.
    reasons = record["verdict"]["reasons"]
    assert [why for why in reasons if not why.startswith("loss: splices_before_their_hook")] == []
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
    # Its source sends as much as it passes on, be it by sendto or by splice, and does nothing else.
    relayed = (calls["sendto"] - calls.get(spliced_on(record), 0)) / 2
    relays = record["relays"]
    assert relays["threads"] == 1 and relays["sent_bytes"] == pytest.approx(relayed, rel=0.25)


@pytest.mark.all
def test_completions_of_udp_are_seen(tmp_path: Path) -> None:
    record, truth = moved("udp_zerocopy", tmp_path)
    assert truth["completions"] == truth["sends"] == MESSAGES
    zerocopy = record["zerocopy"]
    assert (zerocopy["sends"], zerocopy["bytes_sent"]) == (truth["sends"], truth["sent"])
    if zerocopy["completions"] is None:  # before 5.14
        assert "inet_sk_error_report" in zerocopy["reason"]
        return
    assert (zerocopy["completions"], zerocopy["unseen"]) == (truth["sends"], 0)
    # Within this machine every one is copied, and the path is seen although there is no connection of TCP.
    assert zerocopy["copied"] == truth["sends"] and zerocopy["cause"]["code"] == "local_delivery"
    (row,) = record["buffers"]
    assert (row["protocol"], row["sends"], row["given_back_sends"], row["read_sends"]) == (
        "udp",
        *3 * [truth["sends"]],
    )
    assert bytes_of(record, "pin") == bytes_of(record, "deferred") == truth["sent"]


def spread(histogram: Record) -> tuple[float, float]:
    """Between which bounds the mean of its values lies."""
    low, high = (
        sum(row[end] * row[2] for row in histogram["buckets"]) / sum(row[2] for row in histogram["buckets"])
        for end in (0, 1)
    )
    return low, high


def test_the_life_of_zero_copy_buffers_is_that_of_the_programs_own_book(tmp_path: Path) -> None:
    record, truth = moved("tcp_zerocopy", tmp_path, much="300")
    (row,) = record["buffers"]
    assert (row["side"], row["protocol"], row["sends"]) == ("target", "tcp", truth["sends"])
    if row["given_back_sends"] is None:  # before 5.14
        assert "inet_sk_error_report" in row["reason"]
        return
    # The last was with the kernel when its socket was closed; three before it were given back and not read.
    assert (row["given_back_sends"], row["closed_sends"]) == (truth["sends"] - 1, 1)
    assert row["read_sends"] == truth["completions"] == truth["sends"] - 4
    message = truth["sent"] // truth["sends"]
    assert (row["most_in_flight"], row["most_in_flight_bytes"]) == (3, 3 * message)
    assert sum(count for _, _, count in row["latency"]["buckets"]) == row["given_back_sends"]
    assert sum(count for _, _, count in row["reading"]["buckets"]) == row["read_sends"]
    # The program clocks from the last of three sends, and a moment after the kernel did.
    for name, its_own in (("latency", "back_ns"), ("reading", "unread_ns")):
        low, high = spread(row[name])
        assert low / 1.05 < truth[its_own] < high * 1.05


def waits_of(how: str, directory: Path) -> tuple[Record, dict[str, int]]:
    record, truth = moved(how, directory, much="503")
    (row,) = record["buffers"]
    if row["given_back_sends"] is None:  # before 5.14
        pytest.skip(row["reason"])
    assert row["sends"] == truth["sends"] and 0 < row["readings"] <= row["read_sends"]
    return row, truth


def test_a_program_that_waits_for_each_notice_has_waited_as_long_as_it_says(tmp_path: Path) -> None:
    row, truth = waits_of("wait_each", tmp_path)
    # After the last wait it does not send on.
    assert 0.9 * truth["waits"] < row["waits"] <= truth["waits"] - 1
    assert abs(row["waited_ns"] / truth["waited_ns"] - 1) < 0.1
    assert row["waited_ns"] > 500 * 1_000_000
    # Read while the kernel queues it, a notice is seen with the next one.
    assert 0.98 * truth["completions"] < row["readings"] <= row["read_sends"] == truth["completions"]


@pytest.mark.all
@pytest.mark.parametrize("how", ["wait_never", "wait_for_room"])
def test_a_sender_that_sleeps_for_room_in_its_socket_does_not_wait_for_notices(
    how: str, tmp_path: Path
) -> None:
    row, _ = waits_of(how, tmp_path)
    assert row["waited_ns"] < 0.02 * 503 * 2_000_000


@pytest.mark.all
def test_a_server_that_a_notice_wakes_and_that_then_receives_a_request_has_not_waited(tmp_path: Path) -> None:
    row, truth = waits_of("idle_server", tmp_path)
    assert (row["waits"], row["waited_ns"]) == (0, 0)
    assert truth["completions"] > 400 and row["readings"] > 400


def test_the_flag_without_the_option_is_no_zero_copy_send(tmp_path: Path) -> None:
    record, truth = moved("flag_alone", tmp_path)
    (row,) = record["buffers"]
    assert (row["flag_only_calls"], row["sends"]) == (truth["sends"], 0)


def test_zero_copy_sends_that_are_refused_are_told_from_others(tmp_path: Path) -> None:
    record, truth = moved("no_memlock", tmp_path)
    (row,) = record["buffers"]
    assert (row["enobufs"], row["eagain"], row["sends"]) == (truth["refused"], 0, 0)
    assert record["target"]["optmem_limit_bytes"] == int(record["machine"]["sysctls"]["net.core.optmem_max"])
