"""What TCP itself counts of each connection, by sock_diag(7): the second opinion on the bytes, and the path.

A server has thousands of connections, and each look takes all of them: what is not asked for is not worked
out, and the messages of one answer are read in bulk where they are alike. No other program is started for it:
that takes more CPU time from the watched program than the answer does.
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

# struct nlmsghdr: length, type; struct inet_diag_msg (linux/inet_diag.h): family, state, ports, addresses,
# device and cookie, the receive queue, the inode; then, behind attributes that are skipped, struct rtattr and
# struct tcp_info (linux/tcp.h), which only grows: 5.10 has all of these.
MESSAGE = "=IH10xBBxxHH16s16s12s4xI8xI"
INFO = "HH16xI108xQ8xI20xQQQ8xQQ"
MESSAGE_BYTES, INFO_BYTES = 16 + 72, 216
NAMES = {1: "ESTAB", 2: "SYN-SENT", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 8: "CLOSE-WAIT", 9: "LAST-ACK"}
ESTABLISHED = 1
NETLINK_SOCK_DIAG = 4
# The older of two questions: its answer holds both families, and the kernel walks its table of sockets once
# (inet_diag_dump_compat(), net/ipv4/inet_diag.c).
TCPDIAG_GETSOCK = 18
NLM_F_REQUEST = 0x1
NLM_F_DUMP = 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
# TCP_ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING (include/net/tcp_states.h)
STATES = sum(1 << state for state in (1, 2, 4, 5, 8, 9, 11))
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
LENGTH_AND_KIND = struct.Struct("=IH")
REQUEST = struct.Struct("=BBBB48sII")  # struct inet_diag_req
REQUEST_ALL = HEADER.pack(
    HEADER.size + REQUEST.size, TCPDIAG_GETSOCK, NLM_F_REQUEST | NLM_F_DUMP, 0, 0
) + REQUEST.pack(socket.AF_UNSPEC, 0, 0, 1 << (INET_DIAG_INFO - 1), bytes(48), STATES, 0)
CLONE_NEWNET = 0x40000000
ANSWER_S = 10.0
CHUNK_BYTES = 1 << 17
LIBC = ctypes.CDLL(None, use_errno=True)


class Connection(NamedTuple):
    """One TCP connection as the kernel counts it: in the order in which it says so."""

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
        return NAMES.get(self.state_number, str(self.state_number))

    @property
    def local(self) -> str:
        return _address(self.family, self.local_address, self.local_port)

    @property
    def peer(self) -> str:
        return _address(self.family, self.peer_address, self.peer_port)

    @property
    def written(self) -> int:
        """What the program has put into it: sent once, or not yet (write_seq - snd_nxt).

        All of it is read under the lock of the socket (tcp_get_info(), net/ipv4/tcp.c). The length of the
        send queue is not: on a busy machine megabytes are acknowledged before the lock is there.
        """
        return self.bytes_sent - self.bytes_retrans + self.unsent_bytes

    @property
    def taken(self) -> int:
        """What the program has taken out of it."""
        return self.bytes_received - self.receive_queue_bytes


def parse(chunks: Iterable[bytes]) -> dict[int, Connection]:
    """inode -> connection. One that belongs to no file any more has no inode, and nobody to be watched."""
    return {made.inode: made for made in _all(chunks) if made.inode}


def _all(chunks: Iterable[bytes]) -> Iterator[Connection]:
    """Those of all answers that come with their counts."""
    for chunk in chunks:
        alike = _read_alike(chunk)
        if alike is None:
            alone = (_read_one(chunk, *place) for place in messages(chunk))
            alike = [found for found in alone if found is not None]
        yield from alike


def _read_alike(chunk: bytes) -> list[Connection] | None:
    """All messages at once; None where they are not of one length, with tcp_info at one place."""
    first = next(messages(chunk), None)
    if first is None or first[0] != 0 or first[1] % 4:
        return None
    length = first[1]
    info_at = find_attribute(chunk, MESSAGE_BYTES, length, INET_DIAG_INFO)
    if info_at is None or length < info_at + 4 + INFO_BYTES:
        return None
    layout = _layout(info_at - MESSAGE_BYTES, length)
    whole = len(chunk) // length * length
    made = list(map(Connection._make, layout.iter_unpack(memoryview(chunk)[:whole])))
    # A last message of another kind may stand behind them: the end.
    rest = any(True for _ in messages(chunk[whole:]))
    alike = all(
        one.message_bytes == length
        and one.kind == TCPDIAG_GETSOCK
        and one.attribute == INET_DIAG_INFO
        and one.attribute_bytes >= 4 + INFO_BYTES
        for one in made
    )
    return made if alike and not rest else None


def _read_one(chunk: bytes, begin: int, length: int) -> Connection | None:
    end = min(begin + length, len(chunk))
    info_at = find_attribute(chunk, begin + MESSAGE_BYTES, end, INET_DIAG_INFO)
    if info_at is None or end < info_at + 4 + INFO_BYTES:
        return None
    layout = _layout(info_at - begin - MESSAGE_BYTES, None)
    made = Connection._make(layout.unpack_from(chunk, begin))
    return made if made.attribute_bytes >= 4 + INFO_BYTES else None


@lru_cache
def _layout(skipped: int, length: int | None) -> struct.Struct:
    """Of a message with so many bytes of other attributes before tcp_info, and with so many in all."""
    made = f"{MESSAGE}{skipped}x{INFO}"
    behind = 0 if length is None else length - struct.calcsize(made)
    return struct.Struct(f"{made}{behind}x")


def _address(family: int, host: bytes, port: int) -> str:
    port = socket.ntohs(port)
    if family == socket.AF_INET6:
        return f"[{socket.inet_ntop(socket.AF_INET6, host)}]:{port}"
    return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"


class Snapshots:
    """Looks at all TCP connections of a network namespace, one after the other on one open socket."""

    def __init__(self) -> None:
        self._namespace: Path | None = None
        self._asked: Asked | None = None

    def take(self, namespace: Path) -> dict[int, Connection] | None:
        """By inode; None where the kernel does not say, or when the namespace has gone."""
        try:
            if self._asked is None or namespace != self._namespace:
                self.close()
                self._asked, self._namespace = Asked(namespace), namespace
            return parse(self._asked.dump())
        except OSError:
            # What is left of an answer must not be taken for the next one.
            self.close()
            return None

    def close(self) -> None:
        if self._asked is not None:
            self._asked.close()
        self._asked = None


def other_ends(known: Mapping[int, Connection], inodes: Iterable[int]) -> set[int]:
    """The inodes of the sockets that these talk to, of all that one namespace has."""
    ends = {(known[inode].peer, known[inode].local) for inode in inodes if inode in known}
    return {inode for inode, one in known.items() if (one.local, one.peer) in ends}


def host_of(address: str) -> str:
    """`10.0.0.1:80` -> `10.0.0.1`, `[::1%lo]:80` -> `::1`."""
    return unmapped(address.rpartition(":")[0].strip("[]").partition("%")[0])


def unmapped(host: str) -> str:
    """`::ffff:10.0.0.1`, which a socket of IPv6 calls a peer of IPv4, -> `10.0.0.1`."""
    return host.removeprefix("::ffff:") if "." in host else host


class Asked:
    """One socket to ask on, which stays open until `close()`. Raises OSError.

    To open one is what disturbs: a thread is started for it, in another namespace. Twenty a second took 5 to
    18 % from an iperf3 that had both CPUs busy, as many questions on an open socket 1 %.
    """

    def __init__(self, namespace: Path) -> None:
        self._socket = socket_in(namespace, socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        self._socket.settimeout(ANSWER_S)

    def dump(self) -> Iterator[bytes]:
        """The answers as they come: in each some messages, one for each TCP connection of the namespace."""
        self._socket.send(REQUEST_ALL)
        done = False
        while not done:
            chunk = self._socket.recv(CHUNK_BYTES)
            yield chunk
            done = _ends(chunk)

    def close(self) -> None:
        self._socket.close()


def _ends(chunk: bytes) -> bool:
    """Whether it is the last one. Raises OSError where the kernel says that something is wrong.

    NLMSG_DONE comes last and holds a status of four bytes, NLMSG_ERROR comes alone.
    """
    if len(chunk) < HEADER.size:
        return True
    _, kind = LENGTH_AND_KIND.unpack_from(chunk)
    if kind == NLMSG_ERROR:
        number = -int(struct.unpack_from("=i", chunk, HEADER.size)[0])
        raise OSError(number, f"sock_diag: {os.strerror(number)}")
    length, last = LENGTH_AND_KIND.unpack_from(chunk, max(0, len(chunk) - HEADER.size - 4))
    return kind == NLMSG_DONE or (length, last) == (HEADER.size + 4, NLMSG_DONE)


def messages(chunk: bytes) -> Iterator[tuple[int, int]]:
    """(where it begins, its length with the header) of each message about a socket."""
    begin = 0
    while len(chunk) - begin >= HEADER.size:
        length, kind = LENGTH_AND_KIND.unpack_from(chunk, begin)
        if length < HEADER.size:
            return
        if kind == TCPDIAG_GETSOCK:
            yield begin, length
        begin += _aligned(length)


def find_attribute(chunk: bytes, begin: int, end: int, wanted: int) -> int | None:
    """Where the struct rtattr of this type begins; None where there is none."""
    while end - begin >= 4:
        length, kind = struct.unpack_from("=HH", chunk, begin)
        if kind == wanted:
            return begin
        if length < 4:
            return None
        begin += _aligned(length)
    return None


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def socket_in(namespace: Path, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """One of that namespace: it keeps the namespace of its thread (setns(2)), so a thread makes it."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            with namespace.open("rb") as handle:
                if LIBC.setns(handle.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"{namespace}: {os.strerror(ctypes.get_errno())}")
            made.append(socket.socket(family, kind, protocol))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
