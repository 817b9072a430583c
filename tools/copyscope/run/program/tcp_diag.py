"""Asking the kernel for its TCP connections, as ss(8) does: sock_diag(7), in a network namespace of choice.

Without another program: to start one takes more CPU time from the watched program than the answer does.
"""

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

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
