"""Which peers are on this machine: by their own end, in whichever network namespace it is."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.run import path
from copyscope.run.connections import Connection, Snapshots
from copyscope.run.path import namespaces, whereabouts
from copyscope.run.processes import uncounted

OWN = Path("/proc/self/ns/net")


@contextlib.contextmanager
def connected(family: socket.AddressFamily, host: str) -> Iterator[Connection]:
    """A connection to ourselves, as TCP shows it."""
    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.create_server((host, 0), family=family))
        near = held.enter_context(socket.create_connection(server.getsockname()[:2]))
        held.enter_context(server.accept()[0])
        seen = Snapshots()
        found = seen.take(OWN) or {}
        seen.close()
        yield found[os.fstat(near.fileno()).st_ino]


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter a namespace")
def test_a_peer_whose_own_end_is_found_is_local_whatever_the_device(
    family: socket.AddressFamily, host: str
) -> None:
    with connected(family, host) as mine:
        for kind in ("ether", "veth", "macvlan", "bridge"):
            assert whereabouts(OWN, [mine], {host: kind}) == {host: True}
        # The socket that listens there answers for every peer, and is none.
        other = mine._replace(local_port=mine.local_port ^ 1)
        assert whereabouts(OWN, [other], {host: "ether"}) == {host: False}


def test_who_is_found_nowhere_is_elsewhere_if_all_places_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert whereabouts(OWN, [], {"192.0.2.9": "veth", "192.0.2.8": None, "127.0.0.1": "loopback"}) == {
        "192.0.2.9": False,
        "192.0.2.8": None,
        "127.0.0.1": True,
    }
    monkeypatch.setattr(path, "NAMESPACES_MAX", 0)
    assert whereabouts(OWN, [], {"192.0.2.9": "veth"}) == {"192.0.2.9": None}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter a namespace")
def test_an_address_of_this_machine_says_it_too_but_not_behind_hardware() -> None:
    for address in ("127.0.0.9", "::1"):
        assert whereabouts(OWN, [], {address: "bridge"}) == {address: True}
        assert whereabouts(OWN, [], {address: "ether"}) == {address: False}


def test_our_own_namespace_is_among_those_of_this_machine() -> None:
    found, complete = namespaces()
    assert OWN.stat().st_ino in found and complete


def test_sockets_that_no_hook_counts_are_named() -> None:
    opened, named = [], set()
    kinds: dict[tuple[int, int, int], str] = {
        (socket.AF_VSOCK, socket.SOCK_STREAM, 0): "vsock",
        (44, socket.SOCK_RAW, 0): "AF_XDP",
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP): "raw IP",
        (socket.AF_INET, socket.SOCK_STREAM, 0): "",
    }
    for kind, name in kinds.items():
        # A kernel without them, a user who may not.
        with contextlib.suppress(OSError):
            opened.append(socket.socket(*kind))
            named.add(name)
    assert uncounted([os.getpid()]) == named - {""}
    for one in opened:
        one.close()
    assert uncounted([os.getpid(), 2**22 + 1]) == set()
