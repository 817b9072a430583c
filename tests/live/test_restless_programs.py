# SPDX-License-Identifier: GPL-2.0-only
"""Programs that are switched often or work in short bursts are counted correctly."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from copyscope.base import paths
from crowds import CROWD, crowd
from profiling import SLOW, broken_identities, is_root, record_of

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.quiet,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# Two processes exchange one byte as fast as they can. The first answers, and is watched. Both run on one CPU,
# because the CPU clock also counts the wake-up of an idle CPU, on some machines a quarter of the time.
EXCHANGE = """
import os, socket
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
listener = socket.create_server(("127.0.0.1", 0))
if os.fork():
    near, _ = listener.accept()
    while byte := near.recv(1):
        near.send(byte)
else:
    near = socket.create_connection(listener.getsockname())
    while True:
        near.send(b"x")
        near.recv(1)
"""
# The watched process sends and never sleeps. Each send wakes the other process, which takes its CPU.
DISPLACED = """
import os, socket
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
listener = socket.create_server(("127.0.0.1", 0))
if os.fork():
    near, _ = listener.accept()
    while True:
        near.send(bytes(64))
else:
    near = socket.create_connection(listener.getsockname())
    while near.recv(65536):
        pass
"""
BUSY = "while True: pass"


@contextlib.contextmanager
def running(program: str) -> Iterator[int]:
    """Run a Python program, and yield its pid."""
    argv = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", program]
    with subprocess.Popen(argv) as child:
        try:
            yield child.pid
        finally:
            # The other process exits by itself when its connection breaks.
            child.kill()


@pytest.mark.parametrize("program", [EXCHANGE, DISPLACED], ids=["sleeps", "is displaced"])
def test_counters_of_an_often_switched_program_are_scaled_correctly(program: str) -> None:
    with running(program) as pid:
        record = record_of("--pid", str(pid), "--duration", "3", verb="watch")
    assert broken_identities(record) == []
    counted = record["counters"]["target"]["context-switches"]
    assert counted["status"] == "scaled" and 0.02 < counted["running"] < 0.9
    # /proc counts the same switches in all ledger segments.
    ledger = [row["sides"]["target"] for row in record["run"]["segments"] if row["phase"] == "ledger"]
    slept, displaced = (
        sum(row[f"{kind}_switches"] for row in ledger) for kind in ("voluntary", "involuntary")
    )
    assert (displaced if program == DISPLACED else slept) > 3000
    assert counted["value"] == pytest.approx(slept + displaced, rel=0.1)
    clock = record["counters"]["target"]["task-clock"]
    assert clock["status"] == "scaled" and record["sides"]["target"]["cpu_source"] == "task-clock"
    assert record["sides"]["target"]["cpu_ns"] == clock["value"]
    assert clock["value"] == pytest.approx(sum(row["process_cpu_ns"] for row in ledger), rel=0.2)


@pytest.mark.skipif(SLOW > 1, reason="an emulated CPU is never idle for long")
@pytest.mark.skipif(not CROWD.exists(), reason=f"needs {CROWD.name}: make {CROWD.relative_to(paths.ROOT)}")
def test_bursts_shorter_than_the_sampling_period_are_all_sampled() -> None:
    """Twelve processes work for 300 us of every 8 ms.

    A sample 10 us too late each would cost 3 % of the time.
    """
    with crowd("sleepers", 12) as program:
        program.begin()
        program.wait()
        pids = ",".join(map(str, program.children(12)))
        options = ("--duration", "8", "--frequency", "1000")
        record = record_of("--pid", pids, *options, verb="watch", check=None)
    if "cycles" in {row["event"] for row in record["samples"]}:
        pytest.skip("cycles are sampled, which do not measure time")
    ledger = [row["sides"]["target"] for row in record["run"]["segments"] if row["phase"] == "ledger"]
    clock_ns = sum(row["process_cpu_ns"] for row in ledger)
    sampled_ns = sum(row["weight"] for row in record["samples"] if row["side"] == "target")
    assert 0.75 < sampled_ns / clock_ns < 1.25


def test_counters_run_for_a_part_of_the_time_and_are_scaled() -> None:
    with running(BUSY) as pid:
        record = record_of("--pid", str(pid), "--duration", "2", verb="watch", check=None)
    clock = record["counters"]["target"]["task-clock"]
    ledger = [row["sides"]["target"] for row in record["run"]["segments"] if row["phase"] == "ledger"]
    assert clock["status"] == "scaled" and 0.2 < clock["running"] < 0.9
    assert clock["value"] == pytest.approx(sum(row["process_cpu_ns"] for row in ledger), rel=0.1)
