"""The path of a watched program from what its hooks noted: which namespace, which devices."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from copyscope.run import path
from copyscope.topology.inspection import read_sysctls

OWN = Path("/proc/self/ns/net").stat().st_ino
GONE = path.Namespace(Path("/proc/0/ns/net"), None)


def noted(netns: int, address: str, device: str) -> dict[str, object]:
    return {"netns": netns, "address": address, "device": device}


def test_of_a_program_that_is_gone_the_namespace_is_ours_if_its_sockets_were_here() -> None:
    here, elsewhere = noted(OWN, "127.0.0.1", "lo"), noted(OWN + 1, "10.0.0.1", "eth0")
    assert path.namespace_of(GONE, [elsewhere, here]).path == Path("/proc/self/ns/net")
    assert path.namespace_of(GONE, [elsewhere]) is GONE
    assert path.namespace_of(GONE, []) is GONE
    there = path.Namespace(Path("/proc/self/ns/net"), 1)
    assert path.namespace_of(there, [elsewhere]) is there


def test_devices_are_those_of_the_namespace_and_addresses_as_they_are_written() -> None:
    peers = [
        noted(OWN, "127.0.0.1", "lo"),
        noted(OWN, "::ffff:10.0.0.2", "eth1"),
        noted(OWN, "fe80::1", ""),
        noted(OWN + 1, "10.0.0.3", "eth0"),
    ]
    found = path.devices_of(path.Namespace(Path("/proc/self/ns/net"), None), peers)
    assert found == {"127.0.0.1": "lo", "10.0.0.2": "eth1"}


def test_a_noted_device_needs_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for the route there; what the device is may be unknown."""
    monkeypatch.setattr(path.Namespace, "run", lambda *_: "")
    described = path.describe(GONE, [], {"192.0.2.7": "eth9"})
    assert described["peers"] == [{"address": "192.0.2.7", "device": "eth9", "local": None}]
    assert described["kind"] == "no path seen"


def test_a_sysctl_that_this_kernel_lacks_hides_no_other() -> None:
    """grep ends with 2 for a missing file, and what a failed command printed is not read."""

    def run(command: Sequence[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        return done.stdout if done.returncode == 0 else ""

    names = ("kernel.ostype", "kernel.no_such_thing")
    assert read_sysctls(names, run) == {"kernel.ostype": "Linux", "kernel.no_such_thing": None}
