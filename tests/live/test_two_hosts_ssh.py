"""Sender and receiver on two hosts by real ssh: each is an sshd in a namespace, spoken to through a pipe.

Both are this machine, with one kernel and one clock, and have the same tree: what is tested is what is
joined and said, and that nothing stays. Figures of two machines come from two guests
(tests/kernels/two_hosts.py).
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
from copyscope import paths
from copyscope.record import store
from copyscope.topology import LinkSettings, Topology, open_topology
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
mount --bind {place}/passwd /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd &&
exec env LD_LIBRARY_PATH={libraries} {sshd} -i -f {place}/sshd_config'
"""
SSH_CONFIG = """\
Host sending
  ProxyCommand {place}/host.sh {sender}
Host receiving
  ProxyCommand {place}/host.sh {receiver}
Host unknown
  UserKnownHostsFile /dev/null
  ProxyCommand {place}/host.sh {receiver}
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
    sides = {side: namespace.path for side, namespace in path.namespaces.items()}
    far_hosts.make(tmp_path, HOST, SSH_CONFIG, **sides)
    return tmp_path


Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(place: Path) -> Iterator[Run]:
    """As copyscope runs it, but that as root has a fixed PATH: without `ssh` of the test's."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    program = (sys.executable, "-Im", "copyscope", "run", "--quiet", *ADDRESS)
    started = []

    def start(*words: str) -> "subprocess.Popen[str]":
        started.append(
            subprocess.Popen(
                [*program, *words],
                env={**environment, "PATH": f"{place}/bin:{environment['PATH']}", "COLUMNS": "200"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate(timeout=20 * SLOW)


BOTH = ("--sender-at", "sending", "--receiver-at", "receiving")


def below(pid: int) -> list[int]:
    """All that a process has started, and what these have."""
    found = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            found += [child, *below(child)]
    return found


def sshds_of(pid: int, host: str) -> list[int]:
    """Each sshd of a run's connection to a host: ssh has started them, as its ProxyCommand."""
    found = []
    for one in below(pid):
        words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
        if words[0].endswith(b"ssh") and b"ControlMaster=yes" in words and host.encode() in words:
            found += [at for at in below(one) if Path(f"/proc/{at}/comm").read_text().startswith("sshd")]
    assert found
    return found


def far_programs(pid: int) -> dict[int, str]:
    """The collectors and the traffic of a run over there."""
    found = {}
    for one in below(pid):
        with contextlib.suppress(OSError):
            program = str(Path(f"/proc/{one}/exe").readlink())
            if program in (str(paths.COLLECTOR), str(paths.TRAFFIC)):
                found[one] = program
    return found


def cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def measuring(running: "subprocess.Popen[str]") -> dict[int, str]:
    """Its far programs, once the traffic has run: on a busy machine the first segment comes later."""

    def look() -> dict[int, str]:
        found = far_programs(running.pid)
        return found if len(found) == 4 and sum(map(cpu_s, found)) > 3 else {}

    found = wait_until(look)
    assert sorted(found.values()) == sorted(2 * [str(paths.COLLECTOR)] + 2 * [str(paths.TRAFFIC)])
    return found


def are_gone(pids: Iterable[int]) -> bool:
    return not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_both_sides_elsewhere_make_one_record_whose_bytes_agree(run: Run, place: Path) -> None:
    running = run(*BOTH, "--impl", "zero_copy", "--duration", "2", "--json", str(place / "made.json"))
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--receiver-at", "unknown"), "unknown: Host key verification failed: make sure `ssh unknown true`"),
        (("--receiver-at", "receiving", "--tree", "/nowhere"), "install copyscope there, or give its"),
    ],
)
def test_a_host_that_cannot_be_had_is_one_line(run: Run, words: tuple[str, ...], said: str) -> None:
    running = run("--sender-at", "sending", *words, "--duration", "2")
    _, errors = running.communicate(timeout=60 * SLOW)
    (line,) = errors.splitlines()
    assert running.returncode == 1 and said in line and len(line) <= 200


def test_when_we_are_killed_nothing_of_ours_lives_on_there(run: Run) -> None:
    """Neither there nor here: programs, shells, both ends of each ssh."""
    running = run(*BOTH, "--duration", "60")
    measuring(running)
    pids = below(running.pid)
    running.kill()
    began = time.monotonic()
    wait_until(lambda: are_gone(pids))
    assert time.monotonic() - began < 5 * SLOW


def test_a_program_that_is_killed_there_ends_the_run(run: Run, place: Path) -> None:
    running = run(*BOTH, "--duration", "60", "--json", str(place / "made.json"))
    pids = measuring(running)
    os.kill(next(pid for pid, program in pids.items() if program == str(paths.TRAFFIC)), signal.SIGKILL)
    running.communicate(timeout=60 * SLOW)
    assert are_gone(pids)
    errors = json.loads((place / "made.json").read_text())["run"]["errors"]
    assert any("was killed there" in error for error in errors)


def test_a_cut_network_ends_the_run_here_and_the_rest_when_it_is_back(run: Run, place: Path) -> None:
    """SIGSTOP of the sshd there is a network that is cut: connected, and silent."""
    running = run(*BOTH, "--duration", "60", "--json", str(place / "made.json"))
    pids = measuring(running)
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
    wait_until(lambda: are_gone([*pids, *sshds]))
    record = json.loads((place / "made.json").read_text())
    assert len(record["run"]["segments"]) > 1
    assert any("receiving: the connection broke" in error for error in record["run"]["errors"])
