# SPDX-License-Identifier: GPL-2.0-only
"""Hosts for tests: network namespaces, the devices that connect them, and programs that run in them."""

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
# Creates a tun device in each of two namespaces and passes packets between them, as a VPN does.
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
        except OSError:  # no packet left, or the other device is not up yet
            pass
"""


# Kernel modules of the devices. The kernel of a test guest loads no module by itself.
MODULES = ("veth", "macvlan", "ipvlan", "bridge", "vxlan", "geneve", "tun", "af_packet", "tcp_diag")


class Hosts:
    """The network namespaces near, far and hub, which exist until `held` is closed."""

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
        """Return the words that run a command in the namespace `name`."""
        return ["nsenter", f"--net=/proc/{self.pids[name]}/ns/net", "--"]

    def ip(self, name: str, line: str) -> None:
        """Run `ip` with the words of `line` in the namespace `name`. `netns NAME` in it means one of ours."""
        words = re.sub(r"netns (\w+)", lambda match: f"netns {self.pids[match[1]]}", line)
        done = subprocess.run(
            [*self.inside(name), "ip", *words.split()], capture_output=True, text=True, check=False
        )
        if "Unknown device type" in done.stderr:
            pytest.skip(f"this kernel has no such device: ip {line}")
        assert done.returncode == 0, (line, done.stderr)

    def start(self, name: str, script: str, *arguments: str) -> int:
        argv = [*self.inside(name), sys.executable, "-c", script, *arguments]
        return self._held.enter_context(running(argv)).pid

    def up(self, name: str, device: str, address: str) -> None:
        """Give a device an address and set it up."""
        self.ip(name, f"address add {address} dev {device}")
        self.ip(name, f"link set {device} up")

    def relay(self, first: str, second: str) -> int:
        """Start RELAY between two namespaces, each of which gets tun0. Return its pid."""
        if not Path("/dev/net/tun").exists():
            pytest.skip("this kernel has no tun")
        pid = self.start("hub", RELAY, *(str(self.pids[name]) for name in (first, second)))
        for name in (first, second):
            wait_until(partial(succeeds, [*self.inside(name), "ip", "link", "show", "tun0"]))
            # Large packets, so that the relay does not take most of the CPU time.
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
