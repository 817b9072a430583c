# SPDX-License-Identifier: GPL-2.0-only
"""The user's command continues and measurements are kept if copyscope, its collector or its terminal ends."""

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
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.run import processes
from profiling import (
    COPYSCOPE,
    SLOW,
    WATCH,
    await_line,
    in_all,
    is_root,
    left_after_a_second,
    record_of,
    traces,
)
from programs import SAMPLED, running

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


def launch(done: Path, record: Path, *options: str, **streams: Any) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", f"sleep {2 * SLOW}; touch {done}; exit 7"]
    argv = [*WATCH, *SAMPLED, *options, "--json", str(record), "--", *command]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, **streams)


def child_of(run: subprocess.Popen[bytes], name: str) -> int:
    deadline = time.monotonic() + 20 * SLOW
    while time.monotonic() < deadline:
        for process in processes.all_processes():
            if process.parent == run.pid and process.comm == name:
                return process.pid
        time.sleep(0.02)
    raise AssertionError(f"no {name} was started")


@pytest.mark.parametrize("number", [signal.SIGKILL, in_all(signal.SIGSTOP)])
def test_the_command_continues_if_the_collector_dies(number: signal.Signals, tmp_path: Path) -> None:
    before = traces()
    done, record = tmp_path / "done", tmp_path / "record.json"
    run = launch(done, record, stdout=subprocess.DEVNULL)
    collector = child_of(run, paths.COLLECTOR.name)
    await_line(run.stderr, b"watching sh")
    time.sleep(1.0 * SLOW)
    began = time.monotonic()
    os.kill(collector, number)
    run.communicate(timeout=30 * SLOW)
    assert run.returncode == 7 and done.exists()
    assert time.monotonic() - began < 10 * SLOW
    document = json.loads(record.read_text())
    assert len(document["run"]["segments"]) >= 1 and not document["verdict"]["valid"]
    (error,) = document["run"]["errors"]
    assert number.name in error and document["target"]["ended"] == "the measurement failed"
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("reader", ["gone", in_all("full")])
def test_command_and_record_survive_a_lost_reader_of_the_screen(reader: str, tmp_path: Path) -> None:
    done, record = tmp_path / "done", tmp_path / "record.json"
    with Path("/dev/full").open("wb") as full:
        run = launch(done, record, "--live", stdout=full if reader == "full" else subprocess.PIPE)
    if run.stdout is not None:  # | head -1
        assert run.stdout.readline()
        run.stdout.close()
    assert run.stderr is not None
    errors = run.stderr.read().decode()
    assert run.wait(30 * SLOW) == 7 and done.exists() and "Traceback" not in errors
    document = json.loads(record.read_text())
    assert document["run"]["segments"] and document["run"]["errors"] == []
    if reader == "gone":
        assert document["target"]["ended"] == "the reader of its output has ended"
    else:
        assert "copyscope: standard output: No space left on device" in errors


@pytest.mark.all
def test_a_helper_with_the_name_of_the_target_is_not_watched(tmp_path: Path) -> None:
    """copyscope starts perf while it searches for programs with this name."""
    shutil.copy("/bin/sleep", tmp_path / "perf")
    argv = [*WATCH, "--quiet", *SAMPLED, "--comm", "perf", "--duration", "1", "--json", "-"]
    with running([str(tmp_path / "perf"), str(20 * SLOW)]) as process:
        time.sleep(0.2)
        run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        helper = child_of(run, "perf")
        output, _ = run.communicate(timeout=30 * SLOW)
    watched = {row["pid"] for row in json.loads(output)["target"]["pids"]}
    assert process.pid in watched and not watched & {helper, run.pid}


# Each of 1,000 children sends 64 KiB and exits. No other process is watched.
STORM = """
import os, socket
server = socket.create_server(("127.0.0.1", 0), backlog=64)
for _ in range(1000):
    if (child := os.fork()) == 0:
        peer = socket.create_connection(server.getsockname())
        peer.sendall(bytes(1 << 16))
        os._exit(0)
    accepted, _ = server.accept()
    while accepted.recv(1 << 17):
        pass
    accepted.close()
    os.waitpid(child, 0)
"""


@pytest.mark.all
def test_a_run_with_a_thousand_short_children_is_valid_or_advises(tmp_path: Path) -> None:
    record_path = tmp_path / "record.json"
    argv = [*WATCH, "--quiet", *SAMPLED, "--json", str(record_path), "--", sys.executable, "-c", STORM]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    record = json.loads(record_path.read_text())
    assert record["target"]["forks"] == 1000 and record["target"]["sent_bytes"] == 1000 << 16
    assert record["verdict"]["valid"] or record["verdict"]["next"], done.stdout


# Sends to itself. The argument becomes the name of the process.
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
    """Yield a copyscope that has printed that it watches. It is killed at the end."""
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    run = subprocess.Popen([*WATCH, *SAMPLED, *options], stdout=quiet, stderr=pipe, text=True)
    try:
        await_line(run.stderr, "watching")
        yield run
    finally:
        run.kill()
        run.communicate()


@pytest.mark.all
@pytest.mark.parametrize("how", ["--pid", "--comm"])
def test_sighup_of_the_terminal_ends_the_run_in_order(how: str, tmp_path: Path) -> None:
    """SIGHUP ends the measurement of a program that ran before. The program continues."""
    before = traces()
    record, name = tmp_path / "record.json", f"steady{os.getpid()}"
    with running([sys.executable, "-c", STEADY, name]) as program:
        comm = Path(f"/proc/{program.pid}/comm")
        while comm.read_text() != f"{name}\n":
            time.sleep(0.02)
        target = name if how == "--comm" else str(program.pid)
        with watching(how, target, "--json", str(record)) as run:
            time.sleep(1.5 * SLOW)
            run.send_signal(signal.SIGHUP)
            run.communicate(timeout=30 * SLOW)
        assert program.poll() is None
    document = json.loads(record.read_text())
    assert run.returncode == (not document["verdict"]["valid"])
    assert document["run"]["segments"] and document["target"]["sent_bytes"] > 1 << 20
    assert document["target"]["ended"] == "stopped by SIGHUP" and document["run"]["errors"] == []
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, in_all(signal.SIGINT)])
@pytest.mark.parametrize(("verb", "after_s"), [in_all("run", 0.0), ("watch", 0.0), in_all("watch", 0.25)])
def test_a_signal_after_the_last_segment_loses_nothing(
    verb: str, after_s: float, number: signal.Signals, tmp_path: Path
) -> None:
    """The signal arrives after the collector has exited and before the record is written."""
    record = tmp_path / "record.json"
    with running([sys.executable, "-c", STEADY, "steady"]) as program:
        words = {"watch": ["--pid", str(program.pid)], "run": ["--impl", "one_copy"]}[verb]
        argv = [COPYSCOPE, verb, "--quiet", *SAMPLED, *words, "--duration", str(SLOW), "--json", str(record)]
        run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        collector = child_of(run, paths.COLLECTOR.name)
        while processes.is_alive(collector):
            time.sleep(0.002)
        time.sleep(after_s)
        run.send_signal(number)
        _, errors = run.communicate(timeout=30 * SLOW)
        assert program.poll() is None
    document = json.loads(record.read_text())
    assert document["run"]["segments"] and document["run"]["errors"] == [], errors
    # Once the record is written, the signal kills copyscope as usual.
    assert run.returncode in (not document["verdict"]["valid"], -number), errors


# Sends to itself for a second, then pauses for longer than a block of segments.
PAUSES = STEADY.replace(
    "while True:", "import time\nwhile time.sleep(0 if time.monotonic() % 4 < 1.2 else 0.1) or True:"
)


@pytest.mark.all
@pytest.mark.parametrize("how", ["silent", "stopped"])
def test_a_program_that_pauses_is_watched_for_the_whole_duration(how: str, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    with running([sys.executable, "-c", PAUSES if how == "silent" else STEADY, "pauses"]) as program:
        with watching("--pid", str(program.pid), "--duration", str(6 * SLOW), "--json", str(record)) as run:
            time.sleep(1.5 * SLOW)
            if how == "stopped":
                program.send_signal(signal.SIGSTOP)
            _, errors = run.communicate(timeout=60 * SLOW)
        program.send_signal(signal.SIGCONT)
    document = json.loads(record.read_text())
    assert "Traceback" not in errors and "fault" not in errors
    assert document["run"]["errors"] == [] and document["target"]["ended"] == "stopped after --duration"
    assert run.returncode == (not document["verdict"]["valid"])
    assert document["target"]["sent_bytes"] > 1 << 20


@pytest.mark.all
def test_whole_with_a_duration_is_one_segment() -> None:
    with running([sys.executable, "-c", STEADY, "whole"]) as program:
        record = record_of(
            "--whole", "--pid", str(program.pid), "--duration", str(SLOW), verb="watch", check=None
        )
    (segment,) = record["run"]["segments"]
    assert 0.9 * SLOW < (segment["end_ns"] - segment["begin_ns"]) / 1e9 < 3 * SLOW
    assert record["run"]["errors"] == [] and record["target"]["sent_bytes"] > 1 << 20
