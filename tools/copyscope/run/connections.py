# SPDX-License-Identifier: GPL-2.0-only
"""Read TCP's own counts for each connection with sock_diag(7), to check the bytes and to describe the path.

A server may have thousands of connections, and each snapshot reads all of them. Therefore derived values are
computed only on request, and messages with the same layout are parsed in bulk. No other program (such as ss)
is started, because that would take more CPU time from the watched process than sock_diag(7).
"""

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

# Layout of a message: struct nlmsghdr (length, type), then struct inet_diag_msg (linux/inet_diag.h: family,
# state, ports, addresses, device and cookie, receive queue, inode). After skipped attributes, INFO is the
# layout of struct rtattr and struct tcp_info (linux/tcp.h), which only grows: 5.10 has all of these fields.
MESSAGE = "=IH10xBBxxHH16s16s12s4xI8xI"
INFO = "HH16xI4xI52xI44xQ8xI20xQQQ8xQQ"
MESSAGE_BYTES, INFO_BYTES = 16 + 72, 216
STATE_NAMES = {1: "ESTAB", 2: "SYN-SENT", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 8: "CLOSE-WAIT", 9: "LAST-ACK"}
ESTABLISHED = 1
NETLINK_SOCK_DIAG = 4
# Type of the older of two requests: its answer covers both address families, so that the kernel walks its
# table of sockets once (inet_diag_dump_compat(), net/ipv4/inet_diag.c).
TCPDIAG_GETSOCK = 18
NLM_F_REQUEST = 0x1
NLM_F_DUMP = 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
# Mask of the states TCP_ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK and CLOSING
# (include/net/tcp_states.h).
OPEN_STATES = sum(1 << state for state in (1, 2, 4, 5, 8, 9, 11))
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
LENGTH_AND_KIND = struct.Struct("=IH")
REQUEST = struct.Struct("=BBBB48sII")  # struct inet_diag_req
REQUEST_ALL = HEADER.pack(
    HEADER.size + REQUEST.size, TCPDIAG_GETSOCK, NLM_F_REQUEST | NLM_F_DUMP, 0, 0
) + REQUEST.pack(socket.AF_UNSPEC, 0, 0, 1 << (INET_DIAG_INFO - 1), bytes(48), OPEN_STATES, 0)
CLONE_NEWNET = 0x40000000
ANSWER_TIMEOUT_S = 10.0
READ_BYTES = 1 << 17
LIBC = ctypes.CDLL(None, use_errno=True)


class TcpConnection(NamedTuple):
    """Counts of one TCP connection, in the order in which the kernel reports them."""

    message_bytes: int
    kind: int
    family: int
    state_number: int
    local_port: int
    peer_port: int
    local_address: bytes
    peer_address: bytes
    device_and_cookie: bytes
    receive_queue_bytes: int
    inode: int
    attribute_bytes: int
    attribute: int
    mss_bytes: int
    unacked_segments: int
    window_segments: int
    bytes_received: int
    unsent_bytes: int
    busy_us: int
    rwnd_limited_us: int
    sndbuf_limited_us: int
    bytes_sent: int
    bytes_retrans: int

    @property
    def established(self) -> bool:
        return self.state_number == ESTABLISHED

    @property
    def state(self) -> str:
        return STATE_NAMES.get(self.state_number, str(self.state_number))

    @property
    def local(self) -> str:
        return _address(self.family, self.local_address, self.local_port)

    @property
    def peer(self) -> str:
        return _address(self.family, self.peer_address, self.peer_port)

    @property
    def written(self) -> int:
        """Bytes that the program has written: those sent, and those not sent yet (write_seq - snd_nxt).

        The kernel reads all these counts under the socket's lock (tcp_get_info(), net/ipv4/tcp.c). It reads
        the send queue's length without the lock: on a busy machine, megabytes are acknowledged in between.
        """
        return self.bytes_sent - self.bytes_retrans + self.unsent_bytes

    @property
    def taken(self) -> int:
        """Bytes that the program has read."""
        return self.bytes_received - self.receive_queue_bytes


def parse(chunks: Iterable[bytes]) -> dict[int, TcpConnection]:
    """Map inodes to connections. Connections without an inode no longer belong to a file, and are skipped.

    `chunks`: answers of sock_diag(7).
    """
    return {connection.inode: connection for connection in _parse_chunks(chunks) if connection.inode}


def _parse_chunks(chunks: Iterable[bytes]) -> Iterator[TcpConnection]:
    """Yield the connections in all answers. Messages that lack tcp_info are skipped."""
    for chunk in chunks:
        connections = _parse_uniform(chunk)
        if connections is None:
            parsed = (_parse_message(chunk, *message) for message in find_messages(chunk))
            connections = [connection for connection in parsed if connection is not None]
        yield from connections


def _parse_uniform(chunk: bytes) -> list[TcpConnection] | None:
    """Parse all messages of an answer at once. Return None if their tcp_info differs in length or offset."""
    first = next(find_messages(chunk), None)
    if first is None or first[0] != 0 or first[1] % 4:
        return None
    length = first[1]
    info_at = find_attribute(chunk, MESSAGE_BYTES, length, INET_DIAG_INFO)
    if info_at is None or length < info_at + 4 + INFO_BYTES:
        return None
    layout = _layout(info_at - MESSAGE_BYTES, length)
    uniform_bytes = len(chunk) // length * length
    connections = list(map(TcpConnection._make, layout.iter_unpack(memoryview(chunk)[:uniform_bytes])))
    # The last message may be of another kind, which ends the dump.
    rest = any(True for _ in find_messages(chunk[uniform_bytes:]))
    uniform = all(
        connection.message_bytes == length
        and connection.kind == TCPDIAG_GETSOCK
        and connection.attribute == INET_DIAG_INFO
        and connection.attribute_bytes >= 4 + INFO_BYTES
        for connection in connections
    )
    return connections if uniform and not rest else None


def _parse_message(chunk: bytes, begin: int, length: int) -> TcpConnection | None:
    """Parse the message at offset `begin` of an answer. Return None if the message lacks tcp_info."""
    end = min(begin + length, len(chunk))
    info_at = find_attribute(chunk, begin + MESSAGE_BYTES, end, INET_DIAG_INFO)
    if info_at is None or end < info_at + 4 + INFO_BYTES:
        return None
    layout = _layout(info_at - begin - MESSAGE_BYTES, None)
    connection = TcpConnection._make(layout.unpack_from(chunk, begin))
    return connection if connection.attribute_bytes >= 4 + INFO_BYTES else None


@lru_cache
def _layout(skipped_bytes: int, message_bytes: int | None) -> struct.Struct:
    """Return the layout of a message whose tcp_info follows `skipped_bytes` of other attributes.

    `message_bytes`: length of the message, or None to stop after tcp_info.
    """
    fields = f"{MESSAGE}{skipped_bytes}x{INFO}"
    trailing_bytes = 0 if message_bytes is None else message_bytes - struct.calcsize(fields)
    return struct.Struct(f"{fields}{trailing_bytes}x")


def _address(family: int, host: bytes, port: int) -> str:
    port = socket.ntohs(port)
    if family == socket.AF_INET6:
        return f"[{socket.inet_ntop(socket.AF_INET6, host)}]:{port}"
    return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"


class Snapshots:
    """Reader of all TCP connections in a network namespace, through a socket that stays open."""

    def __init__(self) -> None:
        self._namespace: Path | None = None
        self._diag: DiagSocket | None = None

    def take(self, namespace: Path) -> dict[int, TcpConnection] | None:
        """Map inodes to connections in a namespace; return None on an error."""
        try:
            if self._diag is None or namespace != self._namespace:
                self.close()
                self._diag, self._namespace = DiagSocket(namespace), namespace
            return parse(self._diag.dump())
        except OSError:
            # The rest of this answer must not be read as the next answer.
            self.close()
            return None

    def close(self) -> None:
        if self._diag is not None:
            self._diag.close()
        self._diag = None


def find_peer_inodes(connections: Mapping[int, TcpConnection], inodes: Iterable[int]) -> set[int]:
    """Return the inodes of the sockets' peers, where `connections` contains the peer."""
    swapped_ends = {
        (connections[inode].peer, connections[inode].local) for inode in inodes if inode in connections
    }
    return {
        inode
        for inode, connection in connections.items()
        if (connection.local, connection.peer) in swapped_ends
    }


def host_of(address: str) -> str:
    """Return the host of an address: `10.0.0.1` for `10.0.0.1:80`, `::1` for `[::1%lo]:80`."""
    return unmap_ipv4(address.rpartition(":")[0].strip("[]").partition("%")[0])


def unmap_ipv4(host: str) -> str:
    """Return `10.0.0.1` for `::ffff:10.0.0.1`, which is how an IPv6 socket names an IPv4 peer."""
    return host.removeprefix("::ffff:") if "." in host else host


class DiagSocket:
    """Socket for sock_diag(7) requests, open until `close()`. Raises OSError.

    Opening a socket in another namespace starts a thread, which disturbs the watched process. Opening twenty
    sockets a second slowed an iperf3 that kept both CPUs busy by 5 to 18 %; as many requests on an open
    socket slowed it by 1 %.
    """

    def __init__(self, namespace: Path) -> None:
        self._socket = open_socket_in(namespace, socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        self._socket.settimeout(ANSWER_TIMEOUT_S)

    def dump(self) -> Iterator[bytes]:
        """Request all TCP connections of the namespace. Yield the answers (one message per connection)."""
        self._socket.send(REQUEST_ALL)
        done = False
        while not done:
            chunk = self._socket.recv(READ_BYTES)
            yield chunk
            done = _is_last(chunk)

    def close(self) -> None:
        self._socket.close()


def _is_last(chunk: bytes) -> bool:
    """Return True if the list of sockets ends in this answer. Raises OSError if the kernel reports an error.

    The last message is NLMSG_DONE, with a four-byte status. NLMSG_ERROR is the only message of its answer.
    """
    if len(chunk) < HEADER.size:
        return True
    _, kind = LENGTH_AND_KIND.unpack_from(chunk)
    if kind == NLMSG_ERROR:
        number = -int(struct.unpack_from("=i", chunk, HEADER.size)[0])
        raise OSError(number, f"sock_diag: {os.strerror(number)}")
    length, last = LENGTH_AND_KIND.unpack_from(chunk, max(0, len(chunk) - HEADER.size - 4))
    return kind == NLMSG_DONE or (length, last) == (HEADER.size + 4, NLMSG_DONE)


def find_messages(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offset and length (including the header) of each message about a socket in an answer."""
    begin = 0
    while len(chunk) - begin >= HEADER.size:
        length, kind = LENGTH_AND_KIND.unpack_from(chunk, begin)
        if length < HEADER.size:
            return
        if kind == TCPDIAG_GETSOCK:
            yield begin, length
        begin += _aligned(length)


def find_attribute(chunk: bytes, begin: int, end: int, attribute_type: int) -> int | None:
    """Return the offset of the struct rtattr with the given type between `begin` and `end`, or None."""
    while end - begin >= 4:
        length, kind = struct.unpack_from("=HH", chunk, begin)
        if kind == attribute_type:
            return begin
        if length < 4:
            return None
        begin += _aligned(length)
    return None


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def open_socket_in(namespace: Path, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Open a socket in a network namespace, in a new thread: setns(2) affects only the calling thread."""
    result: list[socket.socket | OSError] = []

    def open_in_thread() -> None:
        try:
            with namespace.open("rb") as file:
                if LIBC.setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"{namespace}: {os.strerror(ctypes.get_errno())}")
            result.append(socket.socket(family, kind, protocol))
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=open_in_thread)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]
