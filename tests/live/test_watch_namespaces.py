# SPDX-License-Identifier: GPL-2.0-only
"""Bytes and packets are counted for the named network namespace only, and once."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from copyscope.run.child import Child
from crowds import watching
from profiling import SLOW, is_root
from programs import known_sender, running, watch

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# Prints its namespace, waits for a line, receives 50 times 1000 bytes in each of two namespaces, prints
# "done".
TWO_NAMESPACES = """
import ctypes, os, socket, subprocess, sys
def pair():
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    return near, server.accept()[0]
pairs = [pair()]
assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
pairs.append(pair())
print(os.stat("/proc/self/ns/net").st_ino, flush=True)
sys.stdin.readline()
for near, far in pairs:
    for _ in range(50):
        near.sendall(bytes(1000))
        remaining = 1000
        while remaining:
            remaining -= len(far.recv(remaining))
print("done", flush=True)
sys.stdin.readline()
"""

# Sends 200 messages of 10 bytes, and waits for an answer to each.
ASKER = """
import socket, sys
peer = socket.create_connection(("10.9.0.2", 7000))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(200):
    peer.sendall(b"0123456789")
    assert peer.recv(1) == b"x"
print("done", flush=True)
sys.stdin.readline()
"""
ANSWERER = """
import socket
peer, _ = socket.create_server(("10.9.0.2", 7000)).accept()
while peer.recv(10, socket.MSG_WAITALL):
    peer.sendall(b"x")
"""


@contextlib.contextmanager
def talking(*argv: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([*argv], stdin=pipe, stdout=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_work(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert line_of(process) == "done"


def volume_of_work(collector: Child, process: subprocess.Popen[str], instrument: str) -> dict[str, Any]:
    """Return the collector's counts of a process while it does its work."""
    collector.ask(f"open {instrument}", "opened", 30 * SLOW)
    let_work(process)
    return dict(collector.ask("volume", "volume"))


def test_bytes_in_another_namespace_are_not_counted() -> None:
    with talking(sys.executable, "-c", TWO_NAMESPACES) as process:
        inode = line_of(process)
        with watching(process.pid, "--netns", inode) as collector:
            volume = volume_of_work(collector, process, "copies,packets")
    counted = {row["direction"]: (row["calls"], row["bytes"]) for row in volume["volume"]}
    assert counted["send"] == counted["receive"] == (50, 50_000)
    assert counted["copy_out"][1] == 50_000
    assert volume["packets"]["packets"] == 50


@pytest.fixture
def two_hosts() -> Iterator[tuple[int, int]]:
    """Pids of two namespaces that a veth pair joins. A macvlan device is on top of the near end."""
    held = ["unshare", "--net", "sleep", str(60 * SLOW)]
    with running(held) as first, running(held) as second:
        own = Path("/proc/self/ns/net").stat().st_ino
        deadline = time.monotonic() + 10 * SLOW
        for host in (first, second):
            while Path(f"/proc/{host.pid}/ns/net").stat().st_ino == own:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        near = ["nsenter", f"--net=/proc/{first.pid}/ns/net"]
        far = ["nsenter", f"--net=/proc/{second.pid}/ns/net"]
        cable = ["ip", "link", "add", "cable", "type", "veth", "peer", "name", "end"]
        for argv in (
            [*near, *cable, "netns", str(second.pid)],
            [*near, "ip", "link", "add", "link", "cable", "name", "top", "type", "macvlan", "mode", "bridge"],
            [*near, "ip", "address", "add", "10.9.0.1/24", "dev", "top"],
            [*near, "ip", "link", "set", "cable", "up"],
            [*near, "ip", "link", "set", "top", "up"],
            [*far, "ip", "address", "add", "10.9.0.2/24", "dev", "end"],
            [*far, "ip", "link", "set", "end", "up"],
        ):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if "type" in argv and "Unknown device type" in done.stderr:
                pytest.skip("this kernel has no macvlan")
            assert done.returncode == 0, (argv, done.stderr)
        yield first.pid, second.pid


def test_a_packet_that_passes_two_devices_is_counted_once(two_hosts: tuple[int, int]) -> None:
    near, far = (["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c"] for pid in two_hosts)
    with running([*far, ANSWERER]):
        deadline = time.monotonic() + 10 * SLOW
        listen = ["nsenter", f"--net=/proc/{two_hosts[1]}/ns/net", "ss", "-Hltn"]
        while not subprocess.run(listen, capture_output=True, check=True).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with talking(*near, ASKER) as asker:
            assert line_of(asker) == "ready"
            with watching(asker.pid) as collector:
                packets = volume_of_work(collector, asker, "packets")["packets"]
    # Each message is a packet: 10 bytes and 66 bytes of headers. Pure acknowledgements do not count.
    assert packets["packets"] == packets["segments"] == 200
    assert packets["bytes"] == 200 * (10 + 14 + 20 + 32)


def test_the_path_of_a_short_command_is_known() -> None:
    with known_sender("copied", 20, 1000) as argv:
        record = watch("--", *argv, check=None)
    assert record["target"]["sent_bytes"] == 20_000 and record["run"]["wall_s"] < 10 * SLOW
    assert record["topology"]["kind"] == "lo" and record["topology"]["local_delivery"]
    assert record["topology"]["peers"] == [{"address": "127.0.0.1", "device": "lo", "local": True}]
    assert record["portrait"]["local_share"] == 1
