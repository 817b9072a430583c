"""Hosts for tests: network namespaces of this machine, what joins them, and what runs in them."""

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from profiling import SLOW
from programs import running

SINK = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
peer, _ = socket.create_server((sys.argv[1], 7000), family=family).accept()
block = bytearray(1 << 18)
while peer.recv_into(block):
    pass
"""
TAP = """
import socket
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
while True:
    tap.recv(64)
"""
# A tun device in each of two namespaces; what comes out of one goes into the other, as a VPN has it.
RELAY = """
import ctypes, fcntl, os, select, struct, sys
ends = []
for pid in sys.argv[1:]:
    with open(f"/proc/{pid}/ns/net") as space:
        assert ctypes.CDLL(None).setns(space.fileno(), 0x40000000) == 0
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x1001))
    ends.append(end)
other = dict(zip(ends, reversed(ends)))
while True:
    for end in select.select(ends, [], [])[0]:
        try:
            for _ in range(64):
                os.write(other[end], os.read(end, 65536))
        except OSError:  # nothing more, or the other end is not up yet
            pass
"""


# What these need; the kernel of a test guest loads nothing by itself.
MODULES = ("veth", "macvlan", "ipvlan", "bridge", "vxlan", "geneve", "tun", "af_packet", "tcp_diag")


class Hosts:
    """Network namespaces that end with the test, by name."""

    def __init__(self, held: contextlib.ExitStack) -> None:
        if shutil.which("modprobe"):
            subprocess.run(["modprobe", "--quiet", "--all", *MODULES], check=False)
        self._held = held
        self.pids: dict[str, int] = {}
        own = Path("/proc/self/ns/net").stat().st_ino
        for name in ("near", "far", "hub"):
            holder = held.enter_context(running(["unshare", "--net", "sleep", str(120 * SLOW)]))
            self.pids[name] = holder.pid
            wait_until(partial(is_apart, Path(f"/proc/{holder.pid}/ns/net"), own))
            self.ip(name, "link set lo up")

    def inside(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.pids[name]}/ns/net", "--"]

    def ip(self, name: str, line: str) -> None:
        named = re.sub(r"netns (\w+)", lambda found: f"netns {self.pids[found[1]]}", line)
        done = subprocess.run(
            [*self.inside(name), "ip", *named.split()], capture_output=True, text=True, check=False
        )
        if "Unknown device type" in done.stderr:
            pytest.skip(f"this kernel has no such device: ip {line}")
        assert done.returncode == 0, (line, done.stderr)

    def start(self, name: str, script: str, *arguments: str) -> int:
        argv = [*self.inside(name), sys.executable, "-c", script, *arguments]
        return self._held.enter_context(running(argv)).pid

    def up(self, name: str, device: str, address: str) -> None:
        self.ip(name, f"address add {address} dev {device}")
        self.ip(name, f"link set {device} up")

    def relay(self, first: str, second: str) -> int:
        """The pid of who carries packets between a tun device in each of the two."""
        if not Path("/dev/net/tun").exists():
            pytest.skip("this kernel has no tun")
        pid = self.start("hub", RELAY, *(str(self.pids[name]) for name in (first, second)))
        for name in (first, second):
            wait_until(partial(succeeds, [*self.inside(name), "ip", "link", "show", "tun0"]))
            # Large packets, so that the relay is not what takes the time.
            self.ip(name, "link set tun0 mtu 9000")
        return pid


def is_apart(namespace: Path, own: int) -> bool:
    return namespace.stat().st_ino != own


def succeeds(argv: list[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10 * SLOW
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def veth(hosts: Hosts) -> str:
    hosts.ip("near", "link add va type veth peer name vb netns far")
    hosts.up("near", "va", "10.77.0.1/24")
    hosts.up("far", "vb", "10.77.0.2/24")
    return "10.77.0.2"
