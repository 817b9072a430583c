# SPDX-License-Identifier: GPL-2.0-only
"""Network namespace and devices of a watched program, from the peers that hooks reported."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from copyscope.machine.topology.links import read_sysctls
from copyscope.record.messages import PeerMessage
from copyscope.record.watched import Peer
from copyscope.run import path

OWN = Path("/proc/self/ns/net").stat().st_ino
GONE = path.TargetNamespace(Path("/proc/0/ns/net"), None)


def peer_row(netns: int, address: str, device: str) -> PeerMessage:
    return {"netns": netns, "address": address, "device": device}


def test_an_exited_program_had_our_namespace_if_a_socket_did() -> None:
    here, elsewhere = peer_row(OWN, "127.0.0.1", "lo"), peer_row(OWN + 1, "10.0.0.1", "eth0")
    assert path.namespace_of(GONE, [elsewhere, here]).path == Path("/proc/self/ns/net")
    assert path.namespace_of(GONE, [elsewhere]) is GONE
    assert path.namespace_of(GONE, []) is GONE
    running = path.TargetNamespace(Path("/proc/self/ns/net"), 1)
    assert path.namespace_of(running, [elsewhere]) is running


def test_only_devices_of_the_namespace_count() -> None:
    peers = [
        peer_row(OWN, "127.0.0.1", "lo"),
        peer_row(OWN, "::ffff:10.0.0.2", "eth1"),
        peer_row(OWN, "fe80::1", ""),
        peer_row(OWN + 1, "10.0.0.3", "eth0"),
    ]
    devices = path.devices_of(path.TargetNamespace(Path("/proc/self/ns/net"), None), peers)
    assert devices == {"127.0.0.1": "lo", "10.0.0.2": "eth1"}


def test_a_reported_device_needs_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """No route is looked up. The kind of the device may be unknown."""
    monkeypatch.setattr(path.TargetNamespace, "run", lambda *_: "")
    described = path.describe(GONE, [], {"192.0.2.7": "eth9"})
    assert described.peers == [Peer("192.0.2.7", "eth9", None)]
    assert described.kind == "no path seen"


def test_a_missing_sysctl_does_not_hide_others() -> None:
    """grep exits with 2 for a missing file, and the output of a failed command is ignored."""

    def run(command: Sequence[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout if done.returncode == 0 else ""

    names = ("kernel.ostype", "kernel.no_such_thing")
    assert read_sysctls(names, run) == {"kernel.ostype": "Linux", "kernel.no_such_thing": None}
