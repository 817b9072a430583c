"""The user's command lives on, and what was measured is kept, whatever becomes of the measurement."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.run import processes
from profiling import FRONT, SLOW, WATCH, in_all, is_root, left_after_a_second, record_of, traces
from programs import SAMPLED, running

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


def launch(done: Path, record: Path, *options: str, **streams: object) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", f"sleep {2 * SLOW}; touch {done}; exit 7"]
    argv = [*WATCH, *SAMPLED, *options, "--json", str(record), "--", *command]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, **streams)  # type: ignore[call-overload, no-any-return]


def child_of(run: subprocess.Popen[bytes], name: str) -> int:
    deadline = time.monotonic() + 20 * SLOW
    while time.monotonic() < deadline:
        for process in processes.all_processes():
            if process.parent == run.pid and process.comm == name:
                return process.pid
        time.sleep(0.02)
    raise AssertionError(f"no {name} was started")


@pytest.mark.parametrize("number", [signal.SIGKILL, in_all(signal.SIGSTOP)])
def test_a_collector_that_is_gone_costs_its_part_alone(number: signal.Signals, tmp_path: Path) -> None:
    before = traces()
    done, record = tmp_path / "done", tmp_path / "record.json"
    run = launch(done, record, stdout=subprocess.DEVNULL)
    collector = child_of(run, paths.COLLECTOR.name)
    assert run.stderr is not None and b"sh: attaching" in run.stderr.readline()
    assert b"watching sh" in run.stderr.readline()
    time.sleep(1.0 * SLOW)
    began = time.monotonic()
    os.kill(collector, number)
    run.communicate(timeout=30 * SLOW)
    assert run.returncode == 7 and done.exists()
    assert time.monotonic() - began < 10 * SLOW
    kept = json.loads(record.read_text())
    assert len(kept["run"]["segments"]) >= 1 and not kept["verdict"]["valid"]
    (error,) = kept["run"]["errors"]
    assert number.name in error and kept["target"]["ended"] == "the measurement failed"
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("reader", ["gone", in_all("full")])
def test_nobody_who_reads_the_screen_costs_neither_command_nor_record(reader: str, tmp_path: Path) -> None:
    done, record = tmp_path / "done", tmp_path / "record.json"
    with Path("/dev/full").open("wb") as full:
        run = launch(done, record, "--live", stdout=full if reader == "full" else subprocess.PIPE)
    if run.stdout is not None:  # | head -1
        assert run.stdout.readline()
        run.stdout.close()
    assert run.stderr is not None
    said = run.stderr.read().decode()
    assert run.wait(30 * SLOW) == 7 and done.exists() and "Traceback" not in said
    kept = json.loads(record.read_text())
    assert kept["run"]["segments"] and kept["run"]["errors"] == []
    if reader == "gone":
        assert kept["target"]["ended"] == "the reader of its output has ended"
    else:
        assert "copyscope: standard output: No space left on device" in said


@pytest.mark.all
def test_a_helper_that_is_called_like_the_target_is_not_watched(tmp_path: Path) -> None:
    """perf is started, by its name, while programs of this name are looked for."""
    shutil.copy("/bin/sleep", tmp_path / "perf")
    argv = [*WATCH, "--quiet", *SAMPLED, "--comm", "perf", "--duration", "1", "--json", "-"]
    with running([str(tmp_path / "perf"), str(20 * SLOW)]) as process:
        time.sleep(0.2)
        run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        helper = child_of(run, "perf")
        shown, _ = run.communicate(timeout=30 * SLOW)
    watched = {row["pid"] for row in json.loads(shown)["target"]["pids"]}
    assert process.pid in watched and not watched & {helper, run.pid}


# Each child sends 64 KiB and ends; with nobody else to watch.
STORM = """
import os, socket
server = socket.create_server(("127.0.0.1", 0), backlog=64)
for _ in range(1000):
    if (child := os.fork()) == 0:
        peer = socket.create_connection(server.getsockname())
        peer.sendall(bytes(1 << 16))
        os._exit(0)
    taken, _ = server.accept()
    while taken.recv(1 << 17):
        pass
    taken.close()
    os.waitpid(child, 0)
"""


@pytest.mark.all
def test_a_thousand_short_children_are_valid_or_say_what_to_do(tmp_path: Path) -> None:
    kept = tmp_path / "record.json"
    argv = [*WATCH, "--quiet", *SAMPLED, "--json", str(kept), "--", sys.executable, "-c", STORM]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    record = json.loads(kept.read_text())
    assert record["target"]["forks"] == 1000 and record["target"]["sent_bytes"] == 1000 << 16
    assert record["verdict"]["valid"] or record["verdict"]["next"], done.stdout


# Sends to itself, under a name of its own.
STEADY = """
import socket, sys
open("/proc/self/comm", "w").write(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
while True:
    client.sendall(bytes(1 << 14))
    peer.recv(1 << 14, socket.MSG_WAITALL)
"""


@contextlib.contextmanager
def watching(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that watches and has said so; what is left of it after its test is ended."""
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    run = subprocess.Popen([*WATCH, *SAMPLED, *options], stdout=quiet, stderr=pipe, text=True)
    try:
        assert run.stderr is not None and "attaching" in run.stderr.readline()
        assert "watching" in run.stderr.readline()
        yield run
    finally:
        run.kill()
        run.communicate()


@pytest.mark.parametrize("how", ["--pid", in_all("--comm")])
def test_a_terminal_that_goes_ends_what_it_measured_in_order(how: str, tmp_path: Path) -> None:
    """SIGHUP is no signal to a program that was there before: it goes on, and the record is kept."""
    before = traces()
    record, name = tmp_path / "record.json", f"steady{os.getpid()}"
    with running([sys.executable, "-c", STEADY, name]) as program:
        comm = Path(f"/proc/{program.pid}/comm")
        while comm.read_text() != f"{name}\n":
            time.sleep(0.02)
        whom = name if how == "--comm" else str(program.pid)
        with watching(how, whom, "--json", str(record)) as run:
            time.sleep(1.5 * SLOW)
            run.send_signal(signal.SIGHUP)
            run.communicate(timeout=30 * SLOW)
        assert program.poll() is None
    kept = json.loads(record.read_text())
    assert run.returncode == (not kept["verdict"]["valid"])
    assert kept["run"]["segments"] and kept["target"]["sent_bytes"] > 1 << 20
    assert kept["target"]["ended"] == "stopped by SIGHUP" and kept["run"]["errors"] == []
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, in_all(signal.SIGINT)])
@pytest.mark.parametrize(("verb", "after_s"), [("run", 0.0), ("watch", 0.0), ("watch", 0.25)])
def test_a_signal_after_the_last_segment_loses_nothing(
    verb: str, after_s: float, number: signal.Signals, tmp_path: Path
) -> None:
    """When the collector has gone all is measured, and the record is not yet written."""
    record = tmp_path / "record.json"
    with running([sys.executable, "-c", STEADY, "steady"]) as program:
        words = {"watch": ["--pid", str(program.pid)], "run": ["--impl", "one_copy"]}[verb]
        argv = [FRONT, verb, "--quiet", *SAMPLED, *words, "--duration", str(SLOW), "--json", str(record)]
        run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        collector = child_of(run, paths.COLLECTOR.name)
        while processes.is_alive(collector):
            time.sleep(0.002)
        time.sleep(after_s)
        run.send_signal(number)
        _, said = run.communicate(timeout=30 * SLOW)
        assert program.poll() is None
    kept = json.loads(record.read_text())
    assert kept["run"]["segments"] and kept["run"]["errors"] == [], said
    # When all is written a signal does what it always does.
    assert run.returncode in (not kept["verdict"]["valid"], -number), said


# Sends to itself for a second, then nothing for longer than a block lasts.
PAUSES = STEADY.replace(
    "while True:", "import time\nwhile time.sleep(0 if time.monotonic() % 4 < 1.2 else 0.1) or True:"
)


@pytest.mark.all
@pytest.mark.parametrize("how", ["silent", "stopped"])
def test_a_program_that_pauses_is_watched_to_its_end(how: str, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    with running([sys.executable, "-c", PAUSES if how == "silent" else STEADY, "pauses"]) as program:
        with watching("--pid", str(program.pid), "--duration", str(6 * SLOW), "--json", str(record)) as run:
            time.sleep(1.5 * SLOW)
            if how == "stopped":
                program.send_signal(signal.SIGSTOP)
            _, said = run.communicate(timeout=60 * SLOW)
        program.send_signal(signal.SIGCONT)
    kept = json.loads(record.read_text())
    assert "Traceback" not in said and "fault" not in said
    assert kept["run"]["errors"] == [] and kept["target"]["ended"] == "stopped after --duration"
    assert run.returncode == (not kept["verdict"]["valid"])
    assert kept["target"]["sent_bytes"] > 1 << 20


def test_the_whole_of_a_program_for_a_time_is_one_segment() -> None:
    with running([sys.executable, "-c", STEADY, "whole"]) as program:
        made = record_of(
            "--whole", "--pid", str(program.pid), "--duration", str(SLOW), verb="watch", check=None
        )
    (segment,) = made["run"]["segments"]
    assert 0.9 * SLOW < (segment["end_ns"] - segment["begin_ns"]) / 1e9 < 3 * SLOW
    assert made["run"]["errors"] == [] and made["target"]["sent_bytes"] > 1 << 20
