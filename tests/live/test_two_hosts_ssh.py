"""Sender and receiver on two hosts by real ssh: each is an sshd in a namespace, spoken to through a pipe.

Both are this machine, with one kernel and one clock: what is tested is what is brought, joined, said and
taken away again. Figures of two machines come from two guests (tests/kernels/two_hosts.py).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import far_hosts
import pytest
from copyscope import paths
from copyscope.record import store
from copyscope.topology import LinkSettings, Topology, open_topology
from far_hosts import SSHD, wait_until
from profiling import SLOW, is_root

BUNDLE = paths.OUTPUT / "bundle" / f"copyscope-{os.uname().machine}.tar.gz"
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
    pytest.mark.skipif(SSHD is None, reason="no sshd: make .output/tests/openssh"),
    pytest.mark.skipif(not BUNDLE.exists(), reason="no bundle: make bundle"),
]
# Each has its own /tmp, as another machine has.
HOST = """\
#!/bin/sh
exec nsenter --net=$1 unshare --mount --propagation private sh -c '
mount --bind {place}/passwd /etc/passwd && mount -t tmpfs -o size=$1 none {place}/far &&
mount -t tmpfs none /run && mkdir /run/sshd &&
exec env LD_LIBRARY_PATH={libraries} {sshd} -i -f {place}/sshd_config' sh $2
"""
SSH_CONFIG = """\
Host sending
  ProxyCommand {place}/host.sh {sender} 64m
Host receiving
  ProxyCommand {place}/host.sh {receiver} 64m
Host full
  ProxyCommand {place}/host.sh {receiver} 1m
Host unknown
  UserKnownHostsFile /dev/null
  ProxyCommand {place}/host.sh {receiver} 64m
Host *
  User root
  HostKeyAlias far
  UserKnownHostsFile {place}/known
  IdentitiesOnly yes
  IdentityFile {place}/user
"""
ADDRESS = ("--sender-address", "198.18.0.1")


@pytest.fixture
def path() -> Iterator[Topology]:
    with open_topology("veth", LinkSettings(), paths.XDP_OBJECT) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path, path: Topology) -> Path:
    (tmp_path / "far").mkdir()
    sides = {side: namespace.path for side, namespace in path.namespaces.items()}
    far_hosts.make(tmp_path, HOST, SSH_CONFIG, f"{tmp_path}/far", **sides)
    return tmp_path


def run(place: Path, *words: str) -> "subprocess.Popen[str]":
    """As tools/profile.py runs it, which as root has a fixed PATH: without `ssh` of the test's."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.Popen(
        [
            *(sys.executable, "-I", str(paths.ROOT / "tools" / "copyscope"), "profile", "--quiet", *ADDRESS),
            *("--bundles", str(BUNDLE.parent), *words),
        ],
        env={**environment, "PATH": f"{place}/bin:{environment['PATH']}", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


BOTH = ("--sender-at", "sending", "--receiver-at", "receiving")


def far_programs(place: Path) -> list[str]:
    """What runs out of a bundle."""
    found = []
    for exe in Path("/proc").glob("[0-9]*/exe"):
        try:
            program = str(exe.readlink())
        except OSError:
            continue
        if program.startswith(str(place / "far")):
            found.append(f"{program}, process {exe.parent.name}")
    return found


def traffic_cpu_s(programs: list[str]) -> float:
    """What the traffic has computed: on a busy machine its first segment comes later."""
    found = 0
    for program in (program for program in programs if "traffic" in program):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{program.split()[-1]}/stat").read_text().rpartition(")")[2].split()
            found += int(stat[11]) + int(stat[12])
    return found / os.sysconf("SC_CLK_TCK")


def test_both_sides_elsewhere_make_one_record_whose_bytes_agree(place: Path) -> None:
    running = run(place, *BOTH, "--impl", "zero_copy", "--duration", "2", "--json", str(place / "made.json"))
    table, errors = running.communicate(timeout=60 * SLOW)
    record = json.loads((place / "made.json").read_text())
    assert store.validate(record) == [], errors
    assert [row for row in record["identities"] if row["holds"] is False] == []
    held = {row["name"]: row for row in record["identities"] if row["holds"]}
    assert {"delivered", "acked_bytes", "received_of_tcp", "sent_bytes", "received_bytes"} <= set(held)
    assert held["delivered"]["left"] == record["tx_bytes"] == record["rx_bytes"] > 1_000_000
    assert [record["places"][side]["host"] for side in ("sender", "receiver")] == ["sending", "receiving"]
    assert [row["name"] for row in record["topology"]["devices"]] == ["sender0", "receiver0"]
    assert {(row["side"], row["syscall"]) for row in record["calls"]} >= {("sender", "sendmsg")}
    assert {row["side"] for row in record["samples"]} >= {"sender", "receiver"}
    # One kernel: the path is a local one, and the record says so.
    assert record["zerocopy"]["cause"]["code"] == "local_delivery"
    assert running.returncode == 0, table
    assert far_programs(place) == []


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (("--receiver-at", "unknown"), "unknown: Host key verification failed: make `ssh unknown true` work"),
        (("--receiver-at", "full"), "full: "),
    ],
)
def test_a_host_that_cannot_be_had_is_one_line(place: Path, hosts: tuple[str, ...], said: str) -> None:
    running = run(place, "--sender-at", "sending", *hosts, "--duration", "2")
    _, errors = running.communicate(timeout=60 * SLOW)
    (line,) = errors.splitlines()
    assert running.returncode == 1 and said in line and len(line) <= 200
    assert hosts[1] != "full" or "the disk is full: make room" in line
    assert far_programs(place) == []


@pytest.mark.parametrize("how", ["we are killed", "it is killed there", "the network is cut"])
def test_what_ends_a_run_leaves_nothing_there(place: Path, how: str) -> None:
    """SIGSTOP of the sshd there is a network that is cut: connected, and silent."""
    running = run(place, *BOTH, "--duration", "60", "--json", str(place / "made.json"))
    stopped: list[int] = []
    try:
        wait_until(lambda: traffic_cpu_s(far_programs(place)) > 3)
        if how == "we are killed":
            running.kill()
        elif how == "it is killed there":
            (line,) = [line for line in far_programs(place) if "traffic" in line][1:]
            os.kill(int(line.split()[-1]), signal.SIGKILL)
        else:
            for sshd in far_ends(running.pid, "receiving"):
                os.kill(sshd, signal.SIGSTOP)
                stopped.append(sshd)
        began = time.monotonic()
        wait_until(lambda: not far_programs(place))
        assert time.monotonic() - began < 5 * SLOW
    finally:
        running.communicate(timeout=60 * SLOW)
        for sshd in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sshd, signal.SIGKILL)
    if how == "we are killed":
        return
    record = json.loads((place / "made.json").read_text())
    assert record["run"]["errors"] and len(record["run"]["segments"]) > 1
    assert any("receiving" in error or "sending" in error for error in record["run"]["errors"])


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def far_ends(pid: int, host: str) -> list[int]:
    """Each sshd that a run has made with a host: ssh has started them, as its ProxyCommand."""
    found = []
    for child in children(pid):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        below = children(child) if b"ControlMaster=yes" in words and host.encode() in words else []
        while below:
            one = below.pop()
            below += children(one)
            if Path(f"/proc/{one}/comm").read_text().startswith("sshd"):
                found.append(one)
    assert found
    return found
