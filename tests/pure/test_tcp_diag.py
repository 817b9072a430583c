# SPDX-License-Identifier: GPL-2.0-only
"""Counts of TCP connections in messages of sock_diag(7). ss(8) printed the expected values."""

import socket
import struct
from pathlib import Path

import pytest
from copyscope.run import connections

# Recorded on Linux 6.18: a program had filled its socket; its peer had read 50,000 bytes and sent 321.
MESSAGE = bytes.fromhex(
    "02010400e776e3e57f0000010000000000000000000000007f00000100000000000000000000000000000000"
    "7f18000000000000380100004101000000903d000000000009632500"
)
INFO = bytes.fromhex(
    "010000000107aa01e01c0300409c000000ba0000180200000000000000000000000000000000000000000000300100"
    "00000000003001000060000000ffff0000d7ff00003f00000050000000ffffff7f0f000000cbff00002400000000"
    "000000d7ff000000000000a7e155e305000000ffffffffffffffffa1720200000000004101000000000000090000"
    "000500000000903d000b0000000100000005000000d14506040200000080a304000000000080a304000000000000"
    "000000000000000600000000000000a0720200000000000000000000000000"
)


def body(message: bytes = MESSAGE, info: bytes = INFO, first_attribute_bytes: int = 1) -> bytes:
    """Return a netlink message with two attributes. The length of the first is not a multiple of four."""
    attributes = ((8, bytes(first_attribute_bytes)), (connections.INET_DIAG_INFO, info))
    padded = (
        struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
        for kind, value in attributes
    )
    content = message + b"".join(padded)
    return connections.HEADER.pack(16 + len(content), connections.TCPDIAG_GETSOCK, 0, 0, 0) + content


def with_inode(inode: int) -> bytes:
    return MESSAGE[:68] + struct.pack("=I", inode)


DONE = connections.HEADER.pack(20, connections.NLMSG_DONE, 0, 0, 0) + bytes(4)


def test_a_connection_is_read_as_ss_reads_it() -> None:
    connections_by_inode = connections.parse([body()])
    assert list(connections_by_inode) == [2_450_185]
    connection = connections_by_inode[2_450_185]
    assert (connection.state, connection.local, connection.peer) == (
        "ESTAB",
        "127.0.0.1:59254",
        "127.0.0.1:58341",
    )
    assert (connection.written, connection.taken) == (160_416 + 4_034_560, 321 - 321)
    assert (connection.mss_bytes, connection.bytes_retrans) == (47_616, 0)
    assert (connection.unacked_segments, connection.window_segments) == (0, 15)
    assert (connection.busy_us, connection.rwnd_limited_us, connection.sndbuf_limited_us) == (
        304_000,
        304_000,
        0,
    )


@pytest.mark.parametrize("end", [b"", DONE])
def test_messages_of_different_lengths_in_an_answer_are_read(end: bytes) -> None:
    """Longer attributes are accepted. A message with a short tcp_info is skipped and hides no other."""
    alike = [body(with_inode(inode)) for inode in range(1, 101)]
    connections_by_inode = connections.parse([b"".join(alike) + end])
    assert {inode: connection.written for inode, connection in connections_by_inode.items()} == dict.fromkeys(
        range(1, 101), 4_194_976
    )
    unlike = [
        *alike,
        body(with_inode(200), first_attribute_bytes=9),
        body(with_inode(201), INFO[:200]),
        alike[0],
    ]
    connections_by_inode = connections.parse([b"".join(unlike) + end])
    assert sorted(connections_by_inode) == [*range(1, 101), 200]
    assert connections_by_inode[200] == connections_by_inode[1]._replace(
        inode=200, message_bytes=connections_by_inode[200].message_bytes
    )


def test_addresses_of_ipv4_and_ipv6_are_spelled() -> None:
    mapped = bytes(10) + b"\xff\xff" + socket.inet_aton("10.0.0.1")
    loopback = socket.inet_pton(socket.AF_INET6, "::1")
    message = bytes((socket.AF_INET6, *MESSAGE[1:8])) + mapped + loopback + MESSAGE[40:]
    (connection,) = connections.parse([body(message)]).values()
    assert (connection.local, connection.peer) == ("[::ffff:10.0.0.1]:59254", "[::1]:58341")
    assert connections.host_of(connection.local) == "10.0.0.1"


def test_connections_without_counts_or_inode_are_skipped() -> None:
    bare = connections.HEADER.pack(16 + len(MESSAGE), connections.TCPDIAG_GETSOCK, 0, 0, 0) + MESSAGE
    assert connections.parse([bare, body(info=INFO[:200]), body(with_inode(0)), DONE, b""]) == {}


def test_truncated_messages_and_attributes_end_the_reading() -> None:
    """The kernel does not send such messages, but the reader must not hang."""
    assert connections.find_attribute(struct.pack("=HH", 0, 1) + bytes(8), 0, 12, 2) is None
    two = connections.HEADER.pack(17, 18, 0, 0, 0) + b"abcd" + connections.HEADER.pack(16, 3, 0, 0, 0)
    assert list(connections.find_messages(two)) == [(0, 17)]
    assert list(connections.find_messages(bytes(16))) == []
    assert connections.parse([body()[:200]]) == {}


def test_a_namespace_that_is_gone_has_no_connections(tmp_path: Path) -> None:
    snapshots = connections.Snapshots()
    assert snapshots.take(tmp_path / "none") is None
    snapshots.close()
    with pytest.raises(OSError, match="none"):
        connections.DiagSocket(tmp_path / "none")
