# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of a long-running program are exact, also across its restart; and serving ends cleanly."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import SLOW, WATCH, is_root, left_after_a_second, traces
from scraping import samples, serving, wait_until

sys.path.append(str(paths.ROOT / "tests" / "consumers"))
from browser import CHANGED, look

pytest.importorskip("prometheus_client.openmetrics.parser", reason="make .venv/.ready-serve")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

NAME = "served"
MESSAGES, BYTES = 3000, 16384
# Begins to send after a line of input. Every third send is zero-copy. Prints its counts after all
# notifications.
SENDER = f"""
import contextlib, json, socket, sys, threading, time
open("/proc/self/comm", "w").write({NAME!r})
listener = socket.create_server(("127.0.0.1", 0))
out = socket.create_connection(listener.getsockname())
there, _ = listener.accept()
received = []
def read_all():
    while chunk := there.recv(1 << 20):
        received.append(len(chunk))
reader = threading.Thread(target=read_all)
reader.start()
out.setsockopt(socket.SOL_SOCKET, 60, 1)  # SO_ZEROCOPY
print(flush=True)
sys.stdin.readline()
zerocopy = given_back = 0
for number in range({MESSAGES}):
    flag = 0x4000000 if number % 3 == 0 else 0  # MSG_ZEROCOPY
    assert out.send(bytes({BYTES}), flag) == {BYTES}
    zerocopy += bool(flag)
    time.sleep(0.0005)
    # Wait first: a loop that polls would read the notification before the collector sees it.
    while given_back < zerocopy:
        time.sleep(0.001)
        with contextlib.suppress(BlockingIOError):
            _, [(_, _, notice)], _, _ = out.recvmsg(0, 256, 0x2000)  # MSG_ERRQUEUE
            low, high = (int.from_bytes(notice[at:at + 4], sys.byteorder) for at in (8, 12))
            given_back += high - low + 1
out.shutdown(socket.SHUT_WR)
reader.join()
print(json.dumps({{"zerocopy": zerocopy, "received": sum(received)}}), flush=True)
"""

# Sends over loopback from the first line of input to the end of input.
PUMP = f"""
import select, socket, sys, threading, time
open("/proc/self/comm", "w").write({NAME!r})
listener = socket.create_server(("127.0.0.1", 0))
out = socket.create_connection(listener.getsockname())
there, _ = listener.accept()
threading.Thread(target=lambda: all(iter(lambda: there.recv(1 << 20), b"")), daemon=True).start()
sys.stdin.readline()
while not select.select([sys.stdin], [], [], 0.001)[0]:
    out.sendall(bytes(1 << 18))
"""


@contextlib.contextmanager
def sender() -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    """Start SENDER. Yield its pid and a function that lets it send and returns its counts."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SENDER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "\n"

        def go() -> dict[str, Any]:
            output, _ = process.communicate("\n", timeout=60 * SLOW)
            return dict(json.loads(output))

        yield process.pid, go


@contextlib.contextmanager
def served_pump() -> Iterator[tuple[Callable[[], None], int]]:
    """Serve the metrics of PUMP. Yield a function that starts its sends, and the port of the server."""
    argv = [sys.executable, "-c", PUMP]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, text=True) as pump:
        assert pump.stdin is not None
        with pump.stdin as sends, serving(str(pump.pid), "--interval", "2") as (_, port):
            wait_until(port, lambda metrics: metrics["program_processes"] == 1)
            yield lambda: print(file=sends, flush=True), port


def page_with(port: int, text: str) -> str:
    """Return the page of the server once it contains a text."""
    deadline = time.monotonic() + 40 * SLOW
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            if text in (page := answer.read().decode()):
                return str(page)
        time.sleep(0.3)
    raise AssertionError(f"no {text!r} within {40 * SLOW:g} s: {page}")


def test_the_page_draws_a_program_as_soon_as_it_sends() -> None:
    with served_pump() as (start_sends, port):
        assert "Nothing to draw yet" in page_with(port, "Sent <b>0 B</b>")
        start_sends()
        page = page_with(port, "<svg")
        assert f"<h1>{NAME}: the path of a byte</h1>" in page and "Sent <b>0 B</b>" not in page
        assert all(f">{name}<" in page for name in ("copy into the kernel", "copy to the receiver"))


@pytest.mark.all
@pytest.mark.parametrize("dark", [False, True])
def test_numbers_of_the_page_change_in_a_browser_while_a_program_sends(dark: bool) -> None:
    with served_pump() as (start_sends, port):
        start_sends()
        page_with(port, "<svg")
        name = f"watched-{'dark' if dark else 'light'}"
        answer = look(f"http://127.0.0.1:{port}/", wait=CHANGED, dark=dark, name=name)
        assert answer["messages"] == []


@pytest.mark.all
def test_metrics_count_a_program_before_and_after_its_restart() -> None:
    before = traces()
    with contextlib.ExitStack() as until:
        pid, go = until.enter_context(sender())
        served, port = until.enter_context(serving(str(pid), "--interval", "2"))
        wait_until(port, lambda metrics: metrics["program_processes"] == 1)
        done = [go()]
        # copyscope waits for the next program of this name.
        wait_until(port, lambda metrics: metrics["sessions_total"] == 2)
        _, go = until.enter_context(sender())
        wait_until(port, lambda metrics: metrics["program_processes"] == 1)
        done.append(go())
        calls = 2 * MESSAGES
        metrics = wait_until(port, lambda metrics: metrics["program_processes"] == 0)
        served.send_signal(signal.SIGTERM)
        assert served.wait(10 * SLOW) == 0
    zerocopy = sum(counts["zerocopy"] for counts in done)
    expected = {
        "socket_calls_total sendto send tcp": calls,
        "socket_bytes_total sendto send tcp": calls * BYTES,
        "socket_bytes_total recvfrom receive tcp": sum(counts["received"] for counts in done),
        "zerocopy_sends_total sendto tcp": zerocopy,
        "zerocopy_sent_bytes_total sendto tcp": zerocopy * BYTES,
        "zerocopy_completed_sends_total": zerocopy,
        "zerocopy_refused_sends_total ENOBUFS tcp": None,
    }
    assert {name: metrics.get(name) for name in expected} == expected
    # Accounts are estimates: of a call across the begin or end of a sampled second, one half is counted.
    third_of_bytes, received = calls * BYTES / 3, sum(counts["received"] for counts in done)
    accounts = {
        "copy_in": 2 * third_of_bytes,
        "pin": third_of_bytes,
        "deferred": third_of_bytes,
        "copy_out": received,
    }
    estimates = {account: metrics.get(f"account_bytes_total {account}") for account in accounts}
    assert estimates == pytest.approx(accounts, rel=0.05)
    copied = {name: n for name, n in metrics.items() if name.startswith("zerocopy_copied_sends_total")}
    counted_sends = zerocopy - metrics["zerocopy_unseen_sends_total"]
    assert (
        sum(copied.values()) == counted_sends > 0.9 * zerocopy
        and "zerocopy_copied_sends_total local_delivery" in copied
    )
    assert left_after_a_second(before) == []


def test_a_killed_server_leaves_nothing_and_a_used_port_is_refused() -> None:
    before = traces()
    with serving(NAME) as (served, port):
        assert wait_until(port, lambda _: True)["program_processes"] == 0
        second = subprocess.run(
            [*WATCH, NAME, "--serve", f":{port}"], capture_output=True, timeout=30 * SLOW, check=False
        )
        assert second.returncode == 1 and b"Address already in use; choose another port" in second.stderr
        os.kill(served.pid, signal.SIGKILL)
        served.wait()
        assert samples(port) == {} and left_after_a_second(before) == []


@pytest.mark.all
def test_a_recreated_cgroup_is_watched_again() -> None:
    """systemd removes and creates the cgroup when a unit restarts."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroup of version 2 is mounted")
    group = root / f"copyscope-served-{os.getpid()}"
    group.mkdir()
    try:
        with serving("--cgroup", str(group), "--interval", "2") as (_, port):
            wait_until(port, lambda metrics: metrics["sessions_total"] == 1)
            group.rmdir()
            time.sleep(2 * SLOW)
            group.mkdir()
            metrics = wait_until(port, lambda metrics: metrics["sessions_total"] == 2)
            assert metrics["unwatched_seconds_total"] > 0
    finally:
        group.rmdir()
