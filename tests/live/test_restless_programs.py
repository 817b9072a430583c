"""A program that is switched often: events of perf are on its threads for a short time only."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd
from profiling import SLOW, broken_identities, is_root, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

# One byte there and back, as often as it goes, by two processes: the first answers, and is watched.
# On one CPU: where an idle one wakes up, the CPU clock bills that, too, in some machines a quarter of all.
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
# The one sends and never sleeps; whom it wakes up takes its CPU each time.
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


def idle_s() -> float:
    """How long all CPUs together have been idle (proc(5))."""
    return float(Path("/proc/uptime").read_text().split()[1])


PERF_EVENT = "anon_inode:[perf_event]"


@contextlib.contextmanager
def running(program: str) -> Iterator[int]:
    """Its process."""
    argv = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", program]
    with subprocess.Popen(argv) as child:
        try:
            yield child.pid
        finally:
            # The one that asks ends when nobody answers.
            child.kill()


def open_events(pid: int) -> int:
    """How many events of perf a process holds now; each timer is one."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found += str(entry.readlink()) == PERF_EVENT
    return found


def test_timers_are_there_in_bursts_only() -> None:
    """One for each CPU stays; on none of the program's threads is there one between its bursts."""
    with running(BUSY) as pid:
        collector = Child("collector", [str(paths.COLLECTOR), "--watch"])
        try:
            collector.expect("ready", 30 * SLOW)
            collector.ask("open watch,volume", "opened", 30 * SLOW)
            collector.ask(f"target target {pid}", "target")
            collector.ask("symbols", "symbols", 30 * SLOW)
            collector.ask("open sampler", "opened", 30 * SLOW)
            looks = []
            until_s = time.monotonic() + 2 * SLOW
            while time.monotonic() < until_s:
                looks.append(open_events(collector.pid))
                time.sleep(0.001)
            collector.ask("close", "closed", 30 * SLOW)
            report = collector.ask("report", "report", 30 * SLOW)
        finally:
            collector.end()
    bursts = report["sampler"]["bursts"]["target"]
    if bursts["period_ns"] * report["sampler"]["frequency_hz"] > 9e8:
        pytest.skip("this processor takes no faster timer: there are no bursts")
    # A busy program is sampled in each burst, by the one timer of its one thread.
    assert bursts["count"] and bursts["samples"] > 10
    assert report["loss"]["samples_threads_untimed"] == {"count": 0, "of": 1}
    steady = min(looks)
    assert set(looks) <= {steady, steady + 1}
    assert looks.count(steady) > 0.8 * len(looks)
    assert steady <= 3 * (os.cpu_count() or 1)  # with counters of the PMU, where there is one


@pytest.mark.parametrize("program", [EXCHANGE, DISPLACED], ids=["sleeps", "is displaced"])
def test_a_program_that_is_switched_often_is_counted_for_a_part_and_scaled(program: str) -> None:
    with running(program) as pid:
        record = record_of("--pid", str(pid), "--duration", "3", "--no-baseline", verb="watch")
    assert broken_identities(record) == []
    counted = record["counters"]["target"]["context-switches"]
    assert counted["status"] == "scaled" and 0.02 < counted["running"] < 0.9
    # /proc counts the same in all ledger segments.
    ledger = [row["target"] for row in record["run"]["segments"] if row["arm"] == "ledger"]
    slept, displaced = (
        sum(row[f"{kind}_switches"] for row in ledger) for kind in ("voluntary", "involuntary")
    )
    assert (displaced if program == DISPLACED else slept) > 3000
    assert counted["value"] == pytest.approx(slept + displaced, rel=0.1)
    clock = record["counters"]["target"]["task-clock"]
    assert clock["status"] == "scaled" and record["sides"]["target"]["cpu_source"] == "task-clock"
    assert record["sides"]["target"]["cpu_ns"] == clock["value"]
    assert clock["value"] == pytest.approx(sum(row["process_cpu_ns"] for row in ledger), rel=0.2)


def bursts_of_target(record: dict[str, Any]) -> dict[str, Any]:
    bursts: dict[str, Any] = (record["sampler"]["bursts"] or {}).get("target") or {}
    if not bursts:
        pytest.skip("hardware counters are sampled: there are no timers")
    return bursts


@pytest.mark.parametrize("program", [EXCHANGE, DISPLACED], ids=["sleeps", "is displaced"])
def test_on_a_cpu_that_is_never_idle_its_timers_sample(program: str) -> None:
    """After a second without instruments it is known; no thread has a timer of its own then."""
    with running(program) as pid:
        record = record_of("--pid", str(pid), "--duration", "3", verb="watch")
    bursts = bursts_of_target(record)
    assert broken_identities(record) == []
    assert bursts["by_cpus"] == bursts["count"] > 0
    assert bursts["samples"] > 20


def test_a_program_that_may_use_an_idle_cpu_has_timers_of_its_own() -> None:
    before_s = idle_s()
    with running("import time\nwhile True: time.sleep(0.0001)") as pid:
        record = record_of("--pid", str(pid), "--duration", "2", verb="watch", check=None)
    if idle_s() - before_s < 0.5:
        pytest.skip("other programs left no CPU idle")
    assert bursts_of_target(record)["by_cpus"] == 0


@pytest.mark.skipif(SLOW > 1, reason="an emulated processor is never idle for long")
@pytest.mark.skipif(not CROWD.exists(), reason=f"needs {CROWD.name}: make {CROWD.relative_to(paths.ROOT)}")
def test_of_a_program_that_works_for_less_than_a_period_all_is_seen() -> None:
    """60 us in 8 ms, by each of twelve: timers that begin anew in each burst saw a two-hundredth."""
    with crowd("sleepers", 12) as made:
        made.begin()
        made.wait()
        pids = ",".join(map(str, made.children(12)))
        options = ("--duration", "8", "--frequency", "1000", "--no-baseline")
        record = record_of("--pid", pids, *options, verb="watch", check=None)
    bursts = bursts_of_target(record)
    if bursts["by_cpus"]:
        pytest.skip("other programs left no CPU idle")
    ledger = [row["target"] for row in record["run"]["segments"] if row["arm"] == "ledger"]
    clock_ns = sum(row["process_cpu_ns"] for row in ledger)
    sampled_ns = sum(row["weight"] for row in record["samples"] if row["side"] == "target")
    assert 0.75 < sampled_ns / clock_ns < 1.25


def test_a_program_that_does_not_is_counted_as_a_whole() -> None:
    with running(BUSY) as pid:
        record = record_of("--pid", str(pid), "--duration", "2", "--no-baseline", verb="watch", check=None)
    clock = record["counters"]["target"]["task-clock"]
    assert clock["status"] == "measured" and clock["running"] == 1.0
