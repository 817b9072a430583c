# SPDX-License-Identifier: GPL-2.0-only
"""Beside busy programs a run is valid, or it names them and what to do.

COPYSCOPE_BUSY_RUNS=20 makes 20 runs of `copyscope run --impl one_copy` instead, for a test by hand.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.machine.cgroups import read_mounts
from profiling import broken_identities, is_root, profile

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

CPUS = 2
BY_HAND = int(os.environ.get("COPYSCOPE_BUSY_RUNS", "0"))
# Sends to itself over TCP. The argument is the duration in seconds.
SENDER = """
import socket, sys, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
reader = threading.Thread(target=lambda: [None for _ in iter(lambda: peer.recv(1 << 17), b"")])
reader.start()
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    client.sendall(bytes(1 << 16))
client.close()
reader.join()
"""


@pytest.fixture
def busy_loops() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(CPUS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# Period of the quota in us, and the part of it in which the processes of the cgroup may run.
PERIOD_US, QUOTA_US = 100_000, 30_000


@pytest.fixture
def throttling_cgroup() -> Iterator[Path]:
    """A cgroup that may use 30 % of one CPU, of version 2 or of the version 1 controller `cpu`."""
    parents = {version: read_mounts(version) for version in ("", "cpu")}
    with_cpu = [mount for mount in parents[""] if "cpu" in (mount / "cgroup.controllers").read_text().split()]
    parent = next(iter([*with_cpu, *parents["cpu"]]), None)
    if parent is None:
        pytest.skip("no cgroup hierarchy of this machine has the controller cpu")
    if with_cpu:
        (parent / "cgroup.subtree_control").write_text("+cpu")
    cgroup = parent / f"copyscope-test-{os.getpid()}"
    cgroup.mkdir()
    try:
        if with_cpu:
            (cgroup / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
        else:
            (cgroup / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (cgroup / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        yield cgroup
    finally:
        cgroup.rmdir()


def test_a_cpu_quota_that_stops_a_watched_program_is_reported(
    throttling_cgroup: Path, tmp_path: Path
) -> None:
    """The sender would use more than one CPU, so its quota stops it for most of the time."""
    path = tmp_path / "run.json"
    joins = f"echo 0 > {throttling_cgroup}/cgroup.procs && exec {sys.executable} -c '{SENDER}' 4"
    done = profile("-v", "--json", str(path), "--", "sh", "-c", joins, verb="watch", check=None)
    assert path.exists(), done.stderr
    state = json.loads(path.read_text())["machine_state"]
    row, wall_ns = state["quotas"][0], state["wall_ns"]
    assert row["cgroup"] == str(throttling_cgroup)
    # Ten periods a second, and the quota ends most of them early.
    assert 2 < row["stops"] <= wall_ns / (PERIOD_US * 1000) + 2
    assert wall_ns * 0.3 < row["stopped_ns"] < 2 * CPUS * wall_ns
    sentence = f"the CPU quota of cgroup {throttling_cgroup} stopped threads for "
    assert sentence in " ".join(done.stdout.split())


RUNS = {
    "one_copy": ["--impl", "one_copy", "--duration", "1"],
    "zero_copy": ["--impl", "zero_copy", "--duration", "1"],
    "watched": ["--", sys.executable, "-c", SENDER, "1.5"],
}
if BY_HAND:
    RUNS = {f"default-{number}": ["--impl", "one_copy"] for number in range(BY_HAND)}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
@pytest.mark.usefixtures("busy_loops")
def test_under_two_busy_loops_the_run_is_valid_and_names_them(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    verb = "watch" if "--" in options else "run"
    done = profile("-v", "--json", str(path), *options, verb=verb, check=None)
    assert path.exists(), done.stderr
    record = json.loads(path.read_text())
    state = record["machine_state"]
    # Each loop shares its CPU with the run and gets about half of it.
    assert state["others_ns"] > CPUS * 0.2 * state["wall_ns"], state
    assert state["busy_ns"] <= state["cpus"] * state["wall_ns"] * 1.1
    if state["others_share"] >= 0.10:  # on a machine with many CPUs, two loops take less
        top = " ".join(done.stdout.split("COPY LEDGER")[0].split())
        assert "machine busy: other programs used " in top and "repeat when idle" in top
    # Bytes and calls are exact on a busy machine, too. Only checks of time may be undecided.
    assert [line for line in broken_identities(record) if "time" not in line] == []
    assert record["verdict"]["valid"] or "machine busy: repeat when idle" in record["verdict"]["next"]
