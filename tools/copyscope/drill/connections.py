"""The paths of the drill: a connection of two sockets, over each of them."""

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from copyscope import paths
from copyscope.drill.kernel_calls import enter_network
from copyscope.topology import LinkSettings, open_topology

Pair = tuple[socket.socket, socket.socket]
Connect = Callable[[], Pair]
# More than the receiver takes before it reads, and with the buffer less than the sender's socket holds.
RECEIVER_ROOM_BYTES, QUEUED_BYTES, SENDER_ROOM_BYTES = 32 << 10, 160 << 10, 208 << 10
STUCK_S = 5
# include/uapi/linux/tcp.h, tls.h
TCP_ULP, SOL_TLS, TLS_TX, TLS_RX = 31, 282, 1, 2
TLS_1_3, AES_GCM_128, TLS_KEYS_BYTES = 0x0304, 51, 8 + 16 + 4 + 8


class Missing(Exception):
    """This kernel, or this machine, has no such path."""


@contextmanager
def open_path(path: str) -> Iterator[tuple[str, Connect]]:
    """Of `lo`, `tls` (kTLS over lo), `veth`, `nics:IFA,IFB`, `unix`: a short name, and what connects.

    Raises TopologyError, Missing.
    """
    if path == "unix":
        yield path, lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    elif path == "lo":
        yield path, lambda: _connect("127.0.0.1", lambda: None, lambda: None)
    elif path == "tls":
        yield path, _encrypted
    else:
        with ExitStack() as held:
            link = held.enter_context(open_topology(path, LinkSettings(), paths.XDP_OBJECT))
            home = held.enter_context(Path("/proc/self/ns/net").open("rb"))
            held.callback(enter_network, f"/proc/self/fd/{home.fileno()}")
            inside = {side: place.path for side, place in link.namespaces.items()}
            yield (
                path.partition(":")[0],
                lambda: _connect(
                    link.addresses["sender"],
                    lambda: enter_network(inside["sender"]),
                    lambda: enter_network(inside["receiver"]),
                ),
            )


def _connect(address: str, enter_sender: Callable[[], None], enter_receiver: Callable[[], None]) -> Pair:
    """Both ends; a socket stays in the namespace in which it was made. Raises Missing where lo is down."""
    enter_sender()
    with socket.create_server((address, 0)) as listener:
        enter_receiver()
        receiver = socket.socket()
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVER_ROOM_BYTES)
        receiver.settimeout(STUCK_S)
        try:
            receiver.connect(listener.getsockname())
        except OSError as error:
            receiver.close()
            if error.errno != errno.ENETUNREACH:
                raise
            raise Missing(f"{address} cannot be reached: ip link set lo up") from None
        sender, _ = listener.accept()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDER_ROOM_BYTES)
    # Not settimeout(): that makes the descriptor one that does not block.
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", STUCK_S, 0))
    return sender, receiver


def _encrypted() -> Pair:
    """kTLS with keys that are no secret, and without a handshake. Raises Missing."""
    pair = _connect("127.0.0.1", lambda: None, lambda: None)
    keys = struct.pack("=HH", TLS_1_3, AES_GCM_128) + bytes(range(TLS_KEYS_BYTES))
    try:
        for end, direction in zip(pair, (TLS_TX, TLS_RX), strict=True):
            end.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
            end.setsockopt(SOL_TLS, direction, keys)
    except OSError as error:
        for end in pair:
            end.close()
        if error.errno == errno.ENOENT:
            raise Missing("the kernel has no tls, or its module is not loaded: modprobe tls") from None
        raise Missing(f"kTLS: {os.strerror(error.errno or 0)}") from None
    return pair
