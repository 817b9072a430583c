# SPDX-License-Identifier: GPL-2.0-only
"""A command that copyscope starts keeps its signals, its end and its exit status."""

import contextlib
import itertools
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from copyscope.run.processes import cpu_ns, with_descendants
from profiling import SLOW, WATCH, in_all, is_root, left_after_a_second, traces
from programs import SAMPLED, watch

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

Launch = Callable[..., "subprocess.Popen[str]"]

# Writes each signal that it gets to a file. After SIGINT or SIGTERM it exits once a second file exists.
UNHURRIED = """
import os, signal, sys, time
got = []
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: got.append(signal.Signals(number).name))
heard = open(sys.argv[1], "w")
print("ready", file=heard, flush=True)
while not set(got) & {"SIGINT", "SIGTERM"} or not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
print(*got, file=heard, flush=True)
sys.exit(5)
"""


@pytest.fixture(name="launch")
def _launch() -> Iterator[Launch]:
    """A function that starts copyscope.

    Runs that a failed test leaves, and their commands, are killed at the end.
    """
    runs: list[subprocess.Popen[str]] = []

    def launch(*options: str) -> subprocess.Popen[str]:
        argv = [*WATCH, *SAMPLED, *options]
        runs.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return runs[-1]

    yield launch
    for pid in with_descendants(run.pid for run in runs if run.poll() is None):
        os.kill(pid, signal.SIGKILL)
    for run in runs:
        run.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20 * SLOW
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("number", [signal.SIGINT, in_all(signal.SIGTERM)])
def test_a_command_that_exits_late_gets_a_signal_once(
    number: signal.Signals, tmp_path: Path, launch: Launch
) -> None:
    """SIGHUP is passed on and does not end the run. The report is written while the command still runs."""
    before = traces()
    signal_log, record_path, exit_file = tmp_path / "heard", tmp_path / "record.json", tmp_path / "over"
    run = launch(
        "--json", str(record_path), "--", sys.executable, "-c", UNHURRIED, str(signal_log), str(exit_file)
    )
    wait_until(lambda: text_of(signal_log) == "ready\n")
    run.send_signal(signal.SIGHUP)
    time.sleep(0.5 * SLOW)
    assert run.poll() is None and not record_path.exists()
    run.send_signal(number)
    wait_until(record_path.exists)
    assert run.stderr is not None
    message = next(line for line in run.stderr if "is still running" in line)
    assert run.poll() is None and text_of(signal_log) == "ready\n"
    exit_file.touch()
    run.communicate(timeout=30 * SLOW)
    assert text_of(signal_log) == f"ready\nSIGHUP {number.name}\n"
    assert run.returncode == 5, message
    assert "is still running: waiting for the command to end (Ctrl-C is passed on)" in message
    target = json.loads(record_path.read_text())["target"]
    assert target["status"] is None
    assert target["ended"] == ("interrupted" if number == signal.SIGINT else "stopped by SIGTERM")
    assert left_after_a_second(before) == []


@pytest.mark.parametrize(
    ("ignored", "ended_by"), [("INT", signal.SIGTERM), in_all("INT TERM", signal.SIGKILL)]
)
def test_further_signals_end_a_command_that_ignores_the_first(
    ignored: str, ended_by: signal.Signals, tmp_path: Path, launch: Launch
) -> None:
    before = traces()
    ready, record_path = tmp_path / "ready", tmp_path / "record.json"
    stubborn = f"trap '' {ignored}; echo >{shlex.quote(str(ready))}; sleep {60 * SLOW}"
    run = launch("-v", "--quiet", "--json", str(record_path), "--", "sh", "-c", stubborn)
    wait_until(ready.exists)
    run.send_signal(signal.SIGINT)
    wait_until(record_path.exists)
    time.sleep(0.5)
    for _ in ignored.split():
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        time.sleep(0.3)
    output, errors = run.communicate(timeout=60 * SLOW)
    assert run.returncode == 128 + ended_by, errors
    assert "nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by sh" in output
    assert left_after_a_second(before) == []


def test_the_report_does_not_wait_for_the_end_of_the_command(tmp_path: Path, launch: Launch) -> None:
    record_path, exit_file = tmp_path / "record.json", tmp_path / "over"
    waits = f"until [ -e {shlex.quote(str(exit_file))} ]; do sleep 0.1; done; exit 3"
    run = launch("-v", "--duration", "1", "--json", str(record_path), "--", "sh", "-c", waits)
    assert run.stdout is not None
    # "instruments" begins the last line of the report. If a run fails, its output ends before that line.
    lines = list(itertools.takewhile(lambda line: not line.startswith("instruments"), run.stdout))
    assert run.poll() is None and record_path.exists(), f"{''.join(lines)}{run.communicate()[1]}"
    exit_file.touch()
    _, errors = run.communicate(timeout=30 * SLOW)
    assert run.returncode == 3
    assert re.search(
        r"^copyscope watch: measured; sh is still running: waiting for the command to end",
        errors,
        re.MULTILINE,
    ), errors


def test_the_output_of_a_command_is_shown_after_the_live_screen(tmp_path: Path) -> None:
    exit_file = tmp_path / "over"
    terminal, command_end = pty.openpty()
    argv = [*WATCH, *SAMPLED, "--live", "--duration", "1", "--"]
    waits = f"until [ -e {shlex.quote(str(exit_file))} ]; do sleep 0.1; done"
    argv += ["sh", "-c", f"echo early; echo errors >&2; {waits}; echo late"]
    run = subprocess.Popen(argv, stdout=command_end, stderr=command_end, env={**os.environ, "TERM": "xterm"})
    os.close(command_end)
    output = b""
    # Reading a terminal without writers fails with EIO (pty(7)).
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 1 << 16):
            output += chunk
            if b"is still running" in output:
                exit_file.touch()
    os.close(terminal)
    assert run.wait(10 * SLOW) == 1
    in_order = [
        b"\x1b[?1049h",
        b"goodput",
        b"\x1b[?1049l",
        b"early\r\nerrors",
        b"INVALID RUN",
        b"is still running",
        b"\r\nlate\r\n",
    ]
    positions = [output.find(text) for text in in_order]
    assert positions == sorted(positions) and -1 not in positions


def test_a_command_that_exits_at_once_has_its_own_name() -> None:
    record = watch("--", "false", check=1)
    assert [row["comm"] for row in record["target"]["pids"]] == ["false"]


# A server sends 64 MiB to a client over one connection, and both end.
FETCH = """
import socket, threading
listening = socket.create_server(("127.0.0.1", 0))
def serve():
    with listening.accept()[0] as one:
        one.sendall(bytes(64 << 20))
threading.Thread(target=serve).start()
with socket.create_connection(listening.getsockname()) as mine:
    while mine.recv(1 << 18):
        pass
"""


def test_a_short_command_shows_all_bytes_and_suggests_whole() -> None:
    """64 MiB take a fraction of a second, most of it between two segments."""
    done = subprocess.run(
        [*WATCH, "--", sys.executable, "-c", FETCH], capture_output=True, text=True, timeout=60, check=False
    )
    screen = " ".join(done.stdout.split())
    assert "64 MiB sent, 64 MiB received" in screen and "--whole" in screen + done.stderr, (
        screen + done.stderr
    )


@pytest.mark.all
def test_cpu_time_of_a_local_peer_does_not_count_as_other_programs() -> None:
    """The peer is a process of its own that receives before, during and after the measurement."""
    receiving = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
with listening.accept()[0] as one:
    while one.recv(1 << 18):
        pass
"""
    sending = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    print("ready", flush=True)
    while True:
        one.sendall(bytes(1 << 18))
"""
    with (
        subprocess.Popen([sys.executable, "-c", receiving], stdout=subprocess.PIPE, text=True) as peer,
        subprocess.Popen(
            [sys.executable, "-c", sending, str(peer.stdout and peer.stdout.readline().strip())],
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        try:
            assert program.stdout is not None and program.stdout.readline() == "ready\n"
            before_ns = cpu_ns(peer.pid) or 0
            record = watch("--pid", str(program.pid), "--duration", "2", *SAMPLED)
            used_ns = (cpu_ns(peer.pid) or 0) - before_ns
        finally:
            program.kill()
            peer.kill()
    state = record["machine_state"]
    # The measurement took two of the three seconds or so in which the peer ran.
    assert used_ns / 4 < state["peers_ns"] <= used_ns, (used_ns, state)
