# SPDX-License-Identifier: GPL-2.0-only
"""Peers on this machine are found by their own socket, in whichever network namespace it is."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.run import path
from copyscope.run.connections import Snapshots, TcpConnection
from copyscope.run.path import find_local_peers, find_namespaces
from copyscope.run.processes import find_uncounted_sockets

OWN = Path("/proc/self/ns/net")


@contextlib.contextmanager
def connected(family: socket.AddressFamily, host: str) -> Iterator[TcpConnection]:
    """Connect to a server of this process, and yield the row of the client's socket."""
    with contextlib.ExitStack() as open_sockets:
        server = open_sockets.enter_context(socket.create_server((host, 0), family=family))
        near = open_sockets.enter_context(socket.create_connection(server.getsockname()[:2]))
        open_sockets.enter_context(server.accept()[0])
        snapshots = Snapshots()
        connections = snapshots.take(OWN) or {}
        snapshots.close()
        yield connections[os.fstat(near.fileno()).st_ino]


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter a namespace")
def test_a_peer_is_local_if_its_own_socket_is_found_whatever_the_device(
    family: socket.AddressFamily, host: str
) -> None:
    with connected(family, host) as mine:
        for kind in ("ether", "veth", "macvlan", "bridge"):
            assert find_local_peers(OWN, [mine], {host: kind}) == {host: True}
        # A lookup of an unknown connection finds the listening socket, which is not the peer.
        other = mine._replace(local_port=mine.local_port ^ 1)
        assert find_local_peers(OWN, [other], {host: "ether"}) == {host: False}


def test_a_peer_without_a_socket_is_remote_only_if_all_namespaces_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_local_peers(OWN, [], {"192.0.2.9": "veth", "192.0.2.8": None, "127.0.0.1": "loopback"}) == {
        "192.0.2.9": False,
        "192.0.2.8": None,
        "127.0.0.1": True,
    }
    monkeypatch.setattr(path, "NAMESPACES_MAX", 0)
    assert find_local_peers(OWN, [], {"192.0.2.9": "veth"}) == {"192.0.2.9": None}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter a namespace")
def test_a_peer_with_an_address_of_this_machine_is_local_except_behind_hardware() -> None:
    for address in ("127.0.0.9", "::1"):
        assert find_local_peers(OWN, [], {address: "bridge"}) == {address: True}
        assert find_local_peers(OWN, [], {address: "ether"}) == {address: False}


def test_the_namespace_of_copyscope_is_among_those_found() -> None:
    namespaces, complete = find_namespaces()
    assert OWN.stat().st_ino in namespaces and complete


def test_sockets_that_no_hook_counts_are_named() -> None:
    opened, named = [], set()
    kinds: dict[tuple[int, int, int], str] = {
        (socket.AF_VSOCK, socket.SOCK_STREAM, 0): "vsock",
        (44, socket.SOCK_RAW, 0): "AF_XDP",
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP): "raw IP",
        (socket.AF_INET, socket.SOCK_STREAM, 0): "",
    }
    for kind, name in kinds.items():
        # This kernel may lack the family, or the user may not open it.
        with contextlib.suppress(OSError):
            opened.append(socket.socket(*kind))
            named.add(name)
    assert find_uncounted_sockets([os.getpid()]) == named - {""}
    for opened_socket in opened:
        opened_socket.close()
    assert find_uncounted_sockets([os.getpid(), 2**22 + 1]) == set()
