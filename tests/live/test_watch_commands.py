"""A command that copyscope starts: its signals, its end and its status are its own."""

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

# Writes each signal that it gets into a file, and takes its time over the one that ends it: until another
# file is there.
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
    """Begins a run; what a test that failed leaves behind is ended with its command."""
    begun: list[subprocess.Popen[str]] = []

    def launch(*options: str) -> subprocess.Popen[str]:
        argv = [*WATCH, *SAMPLED, *options]
        begun.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return begun[-1]

    yield launch
    for pid in with_descendants(run.pid for run in begun if run.poll() is None):
        os.kill(pid, signal.SIGKILL)
    for run in begun:
        run.communicate()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20 * SLOW
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def says(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("number", [signal.SIGINT, in_all(signal.SIGTERM)])
def test_a_command_that_takes_its_time_over_a_signal_gets_it_once(
    number: signal.Signals, tmp_path: Path, launch: Launch
) -> None:
    """SIGHUP is passed on and no end; the report is there while the command still takes its time."""
    before = traces()
    heard, kept, over = tmp_path / "heard", tmp_path / "record.json", tmp_path / "over"
    run = launch("--json", str(kept), "--", sys.executable, "-c", UNHURRIED, str(heard), str(over))
    wait_until(lambda: says(heard) == "ready\n")
    run.send_signal(signal.SIGHUP)
    time.sleep(0.5 * SLOW)
    assert run.poll() is None and not kept.exists()
    run.send_signal(number)
    wait_until(kept.exists)
    assert run.stderr is not None
    said = next(line for line in run.stderr if "is still running" in line)
    assert run.poll() is None and says(heard) == "ready\n"
    over.touch()
    run.communicate(timeout=30 * SLOW)
    assert says(heard) == f"ready\nSIGHUP {number.name}\n"
    assert run.returncode == 5, said
    assert "is still running: waiting for it to end (Ctrl-C is passed on)" in said
    target = json.loads(kept.read_text())["target"]
    assert target["status"] is None
    assert target["ended"] == ("interrupted" if number == signal.SIGINT else "stopped by SIGTERM")
    assert left_after_a_second(before) == []


@pytest.mark.parametrize(
    ("ignored", "ended_by"), [("INT", signal.SIGTERM), in_all("INT TERM", signal.SIGKILL)]
)
def test_who_asks_again_ends_a_command_that_ignores_it(
    ignored: str, ended_by: signal.Signals, tmp_path: Path, launch: Launch
) -> None:
    before = traces()
    ready, kept = tmp_path / "ready", tmp_path / "record.json"
    stubborn = f"trap '' {ignored}; echo >{shlex.quote(str(ready))}; sleep {60 * SLOW}"
    run = launch("-v", "--quiet", "--json", str(kept), "--", "sh", "-c", stubborn)
    wait_until(ready.exists)
    run.send_signal(signal.SIGINT)
    wait_until(kept.exists)
    time.sleep(0.5)
    for _ in ignored.split():
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        time.sleep(0.3)
    shown, said = run.communicate(timeout=20 * SLOW)
    assert run.returncode == 128 + ended_by, said
    assert "nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by sh" in shown
    assert left_after_a_second(before) == []


def test_the_report_does_not_wait_for_the_end_of_the_command(tmp_path: Path, launch: Launch) -> None:
    kept, over = tmp_path / "record.json", tmp_path / "over"
    waits = f"until [ -e {shlex.quote(str(over))} ]; do sleep 0.1; done; exit 3"
    run = launch("-v", "--duration", "1", "--json", str(kept), "--", "sh", "-c", waits)
    assert run.stdout is not None
    # The last line of the report; without it the output ends with the run, in whatever it failed.
    shown = list(itertools.takewhile(lambda line: not line.startswith("instruments"), run.stdout))
    assert run.poll() is None and kept.exists(), f"{''.join(shown)}{run.communicate()[1]}"
    over.touch()
    _, said = run.communicate(timeout=30 * SLOW)
    assert run.returncode == 3
    assert re.search(
        r"^copyscope: measured; sh is still running: waiting for it to end", said, re.MULTILINE
    ), said


def test_what_a_command_prints_comes_after_the_screen(tmp_path: Path) -> None:
    over = tmp_path / "over"
    ours, theirs = pty.openpty()
    argv = [*WATCH, *SAMPLED, "--live", "--duration", "1", "--"]
    waits = f"until [ -e {shlex.quote(str(over))} ]; do sleep 0.1; done"
    argv += ["sh", "-c", f"echo early; echo errors >&2; {waits}; echo late"]
    run = subprocess.Popen(argv, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    # A terminal whose last writer has gone gives EIO (pty(7)).
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
            if b"is still running" in shown:
                over.touch()
    os.close(ours)
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
    places = [shown.find(text) for text in in_order]
    assert places == sorted(places) and -1 not in places


def test_a_command_that_ends_at_once_has_its_own_name() -> None:
    record = watch("--", "false", check=1)
    assert [row["comm"] for row in record["target"]["pids"]] == ["false"]


# A server of known bytes and a client that gets them over one connection, then ends.
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


def test_all_bytes_of_a_short_command_are_shown_and_whole_is_named() -> None:
    """64 MiB take a fraction of a second: most of it between two segments."""
    said = subprocess.run(
        [*WATCH, "--", sys.executable, "-c", FETCH], capture_output=True, text=True, timeout=60, check=False
    )
    shown = " ".join(said.stdout.split())
    assert "64 MiB sent, 64 MiB received" in shown and "--whole" in shown + said.stderr, shown + said.stderr


@pytest.mark.all
def test_who_it_talks_to_here_is_its_peer_and_not_others() -> None:
    """A receiver in a process of its own, from before the measurement to its end: it uses CPU time, too."""
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
    # It was measured for two seconds of those three or so in which it ran.
    assert used_ns / 4 < state["peers_ns"] <= used_ns, (used_ns, state)
