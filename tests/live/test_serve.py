"""Metrics of a program without an end: they are what it did, over its restart; and how serving ends."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from profiling import SLOW, WATCH, is_root, left_after_a_second, traces
from programs import free_port

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="make .venv/.ready-serve")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

NAME = "served"
MESSAGES, BYTES = 3000, 16384
# Every third send is zero-copy; says what it did when all has been given back. A line begins it.
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
    # Who looks for a notice in a loop may read it before anybody else has.
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


@contextlib.contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    served = subprocess.Popen([*WATCH, *words, "--serve", f":{port}"], stderr=subprocess.PIPE)
    try:
        yield served, port
    finally:
        served.kill()
        served.communicate()


def samples(port: int) -> dict[str, float]:
    """All of one scrape; nothing while nobody listens, or nothing is known."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except urllib.error.URLError:
        return {}
    return {
        " ".join((one.name.removeprefix("copyscope_"), *one.labels.values())): one.value
        for family in parser.text_string_to_metric_families(text)
        for one in family.samples
    }


def wait_until(port: int, there: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    deadline = time.monotonic() + 40 * SLOW
    while time.monotonic() < deadline:
        found = samples(port)
        if found and there(found):
            return found
        time.sleep(0.3)
    raise AssertionError(f"not within {40 * SLOW:g} s: {samples(port)}")


@contextlib.contextmanager
def sender() -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    """(pid, what lets it send and says what it did)."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SENDER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "\n"

        def go() -> dict[str, Any]:
            said, _ = process.communicate("\n", timeout=60 * SLOW)
            return dict(json.loads(said))

        yield process.pid, go


@pytest.mark.all
def test_counts_are_what_a_program_did_before_and_after_its_restart() -> None:
    before = traces()
    with contextlib.ExitStack() as until:
        pid, go = until.enter_context(sender())
        served, port = until.enter_context(serving(str(pid), "--interval", "2"))
        wait_until(port, lambda found: found["program_processes"] == 1)
        done = [go()]
        # It waits for the next one of this name.
        wait_until(port, lambda found: found["sessions_total"] == 2)
        _, go = until.enter_context(sender())
        wait_until(port, lambda found: found["program_processes"] == 1)
        done.append(go())
        calls = 2 * MESSAGES
        found = wait_until(port, lambda found: found["program_processes"] == 0)
        served.send_signal(signal.SIGTERM)
        assert served.wait(10 * SLOW) == 0
    zerocopy = sum(one["zerocopy"] for one in done)
    expected = {
        "socket_calls_total sendto send tcp": calls,
        "socket_bytes_total sendto send tcp": calls * BYTES,
        "socket_bytes_total recvfrom receive tcp": sum(one["received"] for one in done),
        "zerocopy_sends_total sendto tcp": zerocopy,
        "zerocopy_sent_bytes_total sendto tcp": zerocopy * BYTES,
        "zerocopy_completed_sends_total": zerocopy,
        "zerocopy_refused_sends_total ENOBUFS tcp": 0,
    }
    assert {name: found.get(name) for name in expected} == expected
    # These are estimates; of a call that an edge of the sampled second divides, one half is seen.
    third, received = calls * BYTES / 3, sum(one["received"] for one in done)
    accounts = {"copy_in": 2 * third, "pin": third, "deferred": third, "copy_out": received}
    estimates = {account: found.get(f"account_bytes_total {account}") for account in accounts}
    assert estimates == pytest.approx(accounts, rel=0.05)
    copied = {name: n for name, n in found.items() if name.startswith("zerocopy_copied_sends_total")}
    seen = zerocopy - found["zerocopy_unseen_sends_total"]
    assert (
        sum(copied.values()) == seen > 0.9 * zerocopy
        and "zerocopy_copied_sends_total local_delivery" in copied
    )
    assert left_after_a_second(before) == []


def test_a_killed_server_leaves_nothing_and_a_port_has_one() -> None:
    before = traces()
    with serving(NAME) as (served, port):
        assert wait_until(port, lambda _: True)["program_processes"] == 0
        second = subprocess.run(
            [*WATCH, NAME, "--serve", f":{port}"], capture_output=True, timeout=30 * SLOW, check=False
        )
        assert second.returncode == 1 and b"Address already in use: choose another port" in second.stderr
        os.kill(served.pid, signal.SIGKILL)
        served.wait()
        assert samples(port) == {} and left_after_a_second(before) == []


@pytest.mark.all
def test_a_cgroup_that_is_made_anew_is_watched_again() -> None:
    """As systemd does when a unit starts again."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroup of version 2 is mounted")
    group = root / f"copyscope-served-{os.getpid()}"
    group.mkdir()
    try:
        with serving("--cgroup", str(group), "--interval", "2") as (_, port):
            wait_until(port, lambda found: found["sessions_total"] == 1)
            group.rmdir()
            time.sleep(2 * SLOW)
            group.mkdir()
            found = wait_until(port, lambda found: found["sessions_total"] == 2)
            assert found["unwatched_seconds_total"] > 0
    finally:
        group.rmdir()
