# SPDX-License-Identifier: GPL-2.0-only
"""Sender and receiver on two hosts by real ssh. Each host is an sshd in a network namespace, behind a pipe.

Both hosts are this machine, with one kernel, one clock and one tree. The tests check the joined record, the
errors, and that nothing remains. tests/kernels/two_hosts.py measures between two guests.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import far_hosts
import pytest
from copyscope.base import paths
from copyscope.machine.topology import LinkSettings, Topology, open_topology
from copyscope.record import store
from far_hosts import SSHD, children, wait_until
from profiling import SLOW, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
    pytest.mark.skipif(SSHD is None, reason="no sshd: make .output/tests/openssh"),
]
HOST = """\
#!/bin/sh
exec nsenter --net=$1 unshare --mount --propagation private sh -c '
mount --bind {directory}/passwd /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd &&
exec env LD_LIBRARY_PATH={libraries} {sshd} -i -f {directory}/sshd_config'
"""
SSH_CONFIG = """\
Host sending
  ProxyCommand {directory}/host.sh {sender}
Host receiving
  ProxyCommand {directory}/host.sh {receiver}
Host unknown
  UserKnownHostsFile /dev/null
  ProxyCommand {directory}/host.sh {receiver}
Host *
  User root
  HostKeyAlias far
  UserKnownHostsFile {directory}/known
  IdentitiesOnly yes
  IdentityFile {directory}/user
"""
ADDRESS = ("--sender-address", "198.18.0.1")


@pytest.fixture
def path() -> Iterator[Topology]:
    with open_topology("veth", LinkSettings(), paths.XDP_OBJECT) as topology:
        yield topology


@pytest.fixture
def directory(tmp_path: Path, path: Topology) -> Path:
    sides = {side: namespace.path for side, namespace in path.namespaces.items()}
    far_hosts.make(tmp_path, HOST, SSH_CONFIG, **sides)
    return tmp_path


Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(directory: Path) -> Iterator[Run]:
    """A function that starts `copyscope run` as a Python module: bin/copyscope would remove our `ssh`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    program = (sys.executable, "-Im", "copyscope.commands", "run", "--quiet", *ADDRESS)
    started = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        started.append(
            subprocess.Popen(
                [*program, *arguments],
                env={**environment, "PATH": f"{directory}/bin:{environment['PATH']}", "COLUMNS": "200"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=60 * SLOW)


BOTH = ("--sender-at", "sending", "--receiver-at", "receiving")


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and their descendants."""
    pids = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            pids += [child, *descendants(child)]
    return pids


def sshds_of(pid: int, host: str) -> list[int]:
    """Return the sshds of a run's connection to a host. ssh starts them as its ProxyCommand."""
    pids = []
    for ssh_pid in descendants(pid):
        words = Path(f"/proc/{ssh_pid}/cmdline").read_bytes().split(b"\0")
        if words[0].endswith(b"ssh") and b"ControlMaster=yes" in words and host.encode() in words:
            pids += [
                sshd_pid
                for sshd_pid in descendants(ssh_pid)
                if Path(f"/proc/{sshd_pid}/comm").read_text().startswith("sshd")
            ]
    assert pids
    return pids


def far_programs(run_pid: int) -> dict[int, str]:
    """Return pid -> program of the collectors and traffic programs that a run has started on its hosts."""
    programs = {}
    for pid in descendants(run_pid):
        with contextlib.suppress(OSError):
            program = str(Path(f"/proc/{pid}/exe").readlink())
            if program in (str(paths.COLLECTOR), str(paths.TRAFFIC)):
                programs[pid] = program
    return programs


def cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def wait_until_measuring(running: "subprocess.Popen[str]") -> dict[int, str]:
    """Wait until the traffic has used 3 s of CPU time, so that the first segment has begun.

    Return its programs.
    """

    def busy_programs() -> dict[int, str]:
        programs = far_programs(running.pid)
        return programs if len(programs) == 4 and sum(map(cpu_s, programs)) > 3 else {}

    programs = wait_until(busy_programs)
    assert sorted(programs.values()) == sorted(2 * [str(paths.COLLECTOR)] + 2 * [str(paths.TRAFFIC)])
    return programs


def have_exited(pids: Iterable[int]) -> bool:
    return not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_a_run_between_two_hosts_is_one_record_whose_bytes_agree(run: Run, directory: Path) -> None:
    running = run(*BOTH, "--impl", "zero_copy", "--duration", "2", "--json", str(directory / "made.json"))
    table, errors = running.communicate(timeout=60 * SLOW)
    record = json.loads((directory / "made.json").read_text())
    assert store.as_record(record), errors
    assert [row for row in record["identities"] if row["holds"] is False] == []
    holding = {row["name"]: row for row in record["identities"] if row["holds"]}
    assert {"delivered", "acked_bytes", "received_of_tcp", "sent_bytes", "received_bytes"} <= set(holding)
    assert holding["delivered"]["left"] == record["tx_bytes"] == record["rx_bytes"] > 1_000_000
    assert [record["places"][side]["host"] for side in ("sender", "receiver")] == ["sending", "receiving"]
    assert [row["name"] for row in record["topology"]["devices"]] == ["sender0", "receiver0"]
    assert {(row["side"], row["syscall"]) for row in record["calls"]} >= {("sender", "sendmsg")}
    assert {row["side"] for row in record["samples"]} >= {"sender", "receiver"}
    # Both hosts share a kernel, so packets are delivered locally, and the record says so.
    assert record["zerocopy"]["cause"]["code"] == "local_delivery"
    assert running.returncode == 0, table


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--receiver-at", "unknown"), "unknown: Host key verification failed; make sure `ssh unknown true`"),
        (("--receiver-at", "receiving", "--tree", "/nowhere"), "install copyscope there, or give its"),
    ],
)
def test_an_unreachable_host_is_an_error_of_one_line(
    run: Run, arguments: tuple[str, ...], error: str
) -> None:
    running = run("--sender-at", "sending", *arguments, "--duration", "2")
    _, errors = running.communicate(timeout=60 * SLOW)
    (line,) = errors.splitlines()
    assert running.returncode == 1 and error in line and len(line) <= 200


def test_nothing_survives_on_hosts_when_copyscope_is_killed(run: Run) -> None:
    """Programs, shells and both ends of each ssh exit, on the hosts and here."""
    running = run(*BOTH, "--duration", "60")
    wait_until_measuring(running)
    pids = descendants(running.pid)
    running.kill()
    began = time.monotonic()
    wait_until(lambda: have_exited(pids))
    assert time.monotonic() - began < 5 * SLOW


def test_a_traffic_program_killed_on_a_host_ends_the_run(run: Run, directory: Path) -> None:
    running = run(*BOTH, "--duration", "60", "--json", str(directory / "made.json"))
    pids = wait_until_measuring(running)
    os.kill(next(pid for pid, program in pids.items() if program == str(paths.TRAFFIC)), signal.SIGKILL)
    running.communicate(timeout=60 * SLOW)
    assert have_exited(pids)
    errors = json.loads((directory / "made.json").read_text())["run"]["errors"]
    assert any("was killed on that machine" in error for error in errors)


def test_a_cut_network_ends_the_run_and_programs_exit_when_it_is_back(run: Run, directory: Path) -> None:
    """A stopped sshd (SIGSTOP) acts like a cut network: connected and silent."""
    running = run(*BOTH, "--duration", "60", "--json", str(directory / "made.json"))
    pids = wait_until_measuring(running)
    sshds = sshds_of(running.pid, "receiving")
    try:
        for sshd in sshds:
            os.kill(sshd, signal.SIGSTOP)
        began = time.monotonic()
        running.communicate(timeout=60 * SLOW)
        assert time.monotonic() - began < 20 * SLOW
    finally:
        for sshd in sshds:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sshd, signal.SIGCONT)
    wait_until(lambda: have_exited([*pids, *sshds]))
    record = json.loads((directory / "made.json").read_text())
    assert len(record["run"]["segments"]) > 1
    assert any("receiving: the connection broke" in error for error in record["run"]["errors"])
