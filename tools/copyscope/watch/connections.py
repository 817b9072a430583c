"""What TCP itself says of each connection, by sock_diag(7): the second opinion on the bytes, and the path."""

import socket
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from copyscope.watch import tcp_diag

# struct inet_diag_msg: family, state, ports, addresses, then the queues and the inode (linux/inet_diag.h)
HEAD = struct.Struct("=BBxx")
PORTS = struct.Struct("!HH")
ADDRESSES = struct.Struct("16s16s")
TAIL = struct.Struct("=4xIIII")
PORTS_AT, ADDRESSES_AT, TAIL_AT, MESSAGE_BYTES = 4, 8, 52, 72
NAMES = {1: "ESTAB", 2: "SYN-SENT", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 8: "CLOSE-WAIT", 9: "LAST-ACK"}
# struct tcp_info (linux/tcp.h): it only grows, and 5.10 has all of these.
MSS_AT, RECEIVED_AT, UNSENT_AT, BUSY_AT, SENT_AT, INFO_BYTES = 16, 128, 144, 168, 200, 216


@dataclass(frozen=True)
class Connection:
    """One TCP connection as the kernel counts it."""

    inode: int
    state: str
    local: str
    peer: str
    receive_queue_bytes: int
    mss_bytes: int
    bytes_sent: int
    bytes_retrans: int
    unsent_bytes: int
    bytes_received: int
    busy_ms: int
    rwnd_limited_ms: int
    sndbuf_limited_ms: int

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

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def parse(bodies: Iterable[bytes]) -> dict[int, Connection]:
    """inode -> connection. One that belongs to no file any more has no inode, and nobody to be watched."""
    made = (_connection(body) for body in bodies)
    return {connection.inode: connection for connection in made if connection is not None}


def _connection(body: bytes) -> Connection | None:
    info = next(
        (v for kind, v in tcp_diag.attributes(body[MESSAGE_BYTES:]) if kind == tcp_diag.INET_DIAG_INFO), b""
    )
    receive_queue, _send_queue, _uid, inode = TAIL.unpack_from(body, TAIL_AT)
    if len(info) < INFO_BYTES or not inode:
        return None
    family, state = HEAD.unpack_from(body)
    ports = PORTS.unpack_from(body, PORTS_AT)
    hosts = ADDRESSES.unpack_from(body, ADDRESSES_AT)
    (mss,) = struct.unpack_from("=I", info, MSS_AT)
    (received,) = struct.unpack_from("=Q", info, RECEIVED_AT)
    (unsent,) = struct.unpack_from("=I", info, UNSENT_AT)
    busy_us, rwnd_us, sndbuf_us = struct.unpack_from("=QQQ", info, BUSY_AT)
    sent, retrans = struct.unpack_from("=QQ", info, SENT_AT)
    local, peer = (_address(family, host, port) for host, port in zip(hosts, ports, strict=True))
    return Connection(
        *(inode, NAMES.get(state, str(state)), local, peer, receive_queue),
        *(mss, sent, retrans, unsent, received, busy_us // 1000, rwnd_us // 1000, sndbuf_us // 1000),
    )


def _address(family: int, host: bytes, port: int) -> str:
    if family == socket.AF_INET6:
        return f"[{socket.inet_ntop(socket.AF_INET6, host)}]:{port}"
    return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"


class Snapshots:
    """Looks at all TCP connections of a network namespace, one after the other on one open socket."""

    def __init__(self) -> None:
        self._namespace: Path | None = None
        self._asked: tcp_diag.Asked | None = None

    def take(self, namespace: Path) -> dict[int, Connection] | None:
        """By inode; None where the kernel does not say, or when the namespace has gone."""
        try:
            if self._asked is None or namespace != self._namespace:
                self.close()
                self._asked, self._namespace = tcp_diag.Asked(namespace), namespace
            return parse(self._asked.dump())
        except OSError:
            # What is left of an answer must not be taken for the next one.
            self.close()
            return None

    def close(self) -> None:
        if self._asked is not None:
            self._asked.close()
        self._asked = None


def host_of(address: str) -> str:
    """`10.0.0.1:80` -> `10.0.0.1`, `[::1%lo]:80` -> `::1`."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    return host.removeprefix("::ffff:") if "." in host else host
