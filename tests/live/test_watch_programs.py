# SPDX-License-Identifier: GPL-2.0-only
"""Real programs: each has a ledger, all identities hold, and the accounts differ as the programs do."""

import sys
from pathlib import Path

import pytest
from profiling import SLOW, is_root
from programs import (
    SAMPLED,
    Record,
    bytes_of,
    fetching,
    holding_identities,
    http_server,
    iperf3_server,
    missing,
    nginx,
    redis,
    share_of,
    splice_pipeline,
    stretched,
    watch,
)

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        missing("iperf3", "nginx", "curl") is not None, reason="needs iperf3, nginx, curl: tools/deps.sh test"
    ),
]

# In a guest each block of segments takes seconds to switch.
SECONDS = "1.5" if SLOW == 1 else "3"


@pytest.mark.all
@pytest.mark.parametrize("sending_call", ["write", "sendfile"])
def test_iperf3_has_its_bytes_in_the_account_of_its_call(sending_call: str) -> None:
    # The connection must be read twice, between blocks of segments.
    seconds = str(3 if SLOW == 1 else round(4 * SLOW))
    with iperf3_server() as port:
        argv = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", seconds]
        argv += ["-Z"] * (sending_call == "sendfile")
        record = watch("--", *argv)
    assert {"connection_sent_bytes", "call_sent_bytes"} <= holding_identities(record)
    assert record["target"]["status"] == 0 and record["target"]["ended"] == "the command ended"
    calls = {
        row["syscall"] for row in record["volume"] if row["direction"] == "send" and row["bytes"] > 1 << 20
    }
    assert calls == {sending_call}
    used_account, unused_account = ("copy_in", "pin") if sending_call == "write" else ("pin", "copy_in")
    assert bytes_of(record, used_account) > 1 << 26 > 1 << 16 > bytes_of(record, unused_account)
    # References to pages cost so little that some runs have no sample there.
    assert sending_call == "sendfile" or share_of(record, used_account) > 0.01


@pytest.fixture(scope="module")
def with_sendfile(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Record of an nginx with sendfile that serves a file, watched with advice."""
    with nginx(tmp_path_factory.mktemp("nginx"), "on") as (pid, port), fetching(port):
        return watch("--pid", str(pid), "--duration", SECONDS, "--advise", *SAMPLED[:2])


def test_nginx_copies_less_with_sendfile(with_sendfile: Record, tmp_path: Path) -> None:
    with nginx(tmp_path, "off") as (pid, port), fetching(port):
        copies = watch("--pid", str(pid), "--duration", SECONDS, "--advise", "--frequency", "1997")
    pages = with_sendfile
    for record in (pages, copies):
        assert {"connection_sent_bytes", "call_sent_bytes"} <= holding_identities(record)
    watching = pages["overhead"]["watching"]
    assert watching["pairs"] >= 3 and 0.5 < watching["ratio"] < 1.5
    # Headers are written, the file is not.
    assert bytes_of(pages, "copy_in") < bytes_of(pages, "pin") / 1000
    assert bytes_of(pages, "deferred") == 0  # pages of the page cache are delivered, not copied
    assert bytes_of(copies, "pin") == 0 and bytes_of(copies, "copy_in") > 1 << 24
    # Without sendfile the file is copied to the program first.
    assert bytes_of(copies, "file_read") == pytest.approx(bytes_of(copies, "copy_in"), rel=0.15)
    assert bytes_of(pages, "file_read") == 0
    assert "the copy from the page cache takes" in copies["verdict"]["sentence"]
    assert "by reference to pages" in pages["verdict"]["sentence"]
    # The advice for nginx without sendfile is what the other nginx does.
    assert copies["advice"]["answer"].startswith("nginx: `sendfile on;` may save ")
    (remedy,) = (remedy for remedy in pages["advice"]["remedies"] if remedy["name"] == "sendfile")
    assert (remedy["answer"], remedy["why"]) == ("yes", "in use: 100 % of its bytes are sent by reference")
    assert pages["portrait"]["local_share"] == 1 and pages["topology"]["kind"] == "lo"


@pytest.mark.all
def test_threads_of_a_python_http_server_are_followed(tmp_path: Path) -> None:
    with http_server(tmp_path) as (pid, port), fetching(port):
        record = watch("--pid", str(pid), "--duration", SECONDS)
    assert "call_sent_bytes" in holding_identities(record)
    assert bytes_of(record, "copy_in") > 1 << 24
    assert record["portrait"]["send"]["median_low_bytes"] >= 1 << 15


def test_the_portrait_of_nginx_describes_its_sends(with_sendfile: Record) -> None:
    record = with_sendfile
    send = record["portrait"]["send"]
    assert send["page_share"] > 0.99 and record["portrait"]["receive"]["calls"] > 0
    assert [peer["address"] for peer in record["topology"]["peers"]] == ["127.0.0.1"]
    text = record["advice"]["text"]
    assert "by reference to pages already" in text
    assert "address of the message before" not in text  # reuse of the headers' buffer needs no advice


@pytest.mark.all
def test_a_splice_pipeline_copies_nothing() -> None:
    with splice_pipeline() as pid:
        record = watch("--pid", str(pid), "--duration", SECONDS)
    assert {"connection_sent_bytes", "call_sent_bytes"} <= holding_identities(record)
    calls = {(row["direction"], row["syscall"]) for row in record["volume"]}
    # Before 6.5 the pages have left the pipe before a hook sees the send.
    sends = {call for direction, call in calls if direction == "send"}
    assert sends in ({"splice between sockets"}, {"splice"}) and len(calls) == 2
    assert ("receive", "splice from a socket") in calls
    if sends == {"splice between sockets"}:
        assert record["portrait"]["send"]["socket_share"] == 1
        assert "it spliced from socket to socket, by reference" in record["verdict"]["sentence"]
    assert bytes_of(record, "pin") > 1 << 24
    assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") == 0
    received_rows = [
        row for row in record["volume"] if (row["direction"], row["phase"]) == ("receive", "ledger")
    ]
    spliced = sum(row["bytes"] for row in received_rows)
    # Equal amounts enter and leave, except for bytes in the pipe while hooks are attached or detached.
    assert spliced == pytest.approx(bytes_of(record, "pin"), rel=0.05)


# Writes into a pipe, and splices from there to a peer that discards the bytes.
WRITES_AND_SPLICES = """
import os, socket, sys, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
drain = lambda: [None for _ in iter(lambda: peer.recv(1 << 17, socket.MSG_TRUNC), b"")]
threading.Thread(target=drain, daemon=True).start()
reader, writer = os.pipe()
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    left = os.write(writer, bytes(1 << 14))
    while left:
        left -= os.splice(reader, client.fileno(), left)
"""


@pytest.mark.all
def test_bytes_written_into_a_pipe_and_spliced_count_as_one_copy() -> None:
    command = ("--", sys.executable, "-c", WRITES_AND_SPLICES, stretched(2))
    record = watch(*command)
    sent = {row["syscall"] for row in record["volume"] if row["direction"] == "send"}
    # Before 6.5 the pages have left the pipe before a hook sees the send.
    assert sent in ({"splice after write"}, {"splice"})
    if sent == {"splice"}:
        pytest.skip("this kernel does not show what is in a pipe")
    assert "% of its bytes it wrote into a pipe, which copied them once" in record["verdict"]["sentence"]


@pytest.mark.all
@pytest.mark.skipif(missing("redis-server") is not None, reason="needs redis-server, redis-benchmark")
@pytest.mark.parametrize("value_bytes", [4096, 1 << 20])
def test_redis_copies_in_both_directions(value_bytes: int, tmp_path: Path) -> None:
    with redis(tmp_path, value_bytes) as pid:
        record = watch("--pid", str(pid), "--duration", SECONDS)
    assert {"received_split", "call_sent_bytes", "call_received_bytes"} <= holding_identities(record)
    assert bytes_of(record, "copy_in") > 1 << 20 and bytes_of(record, "pin") == 0
    assert bytes_of(record, "copy_out") > 1 << 20
