"""Beside busy programs a run is valid, or names them and what to do: never wrong in a calm voice.

By hand, with COPYSCOPE_BUSY_RUNS=20, it is that many runs as `copyscope run --impl one_copy` makes them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from profiling import broken_identities, is_root, profile

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

CPUS = 2
BY_HAND = int(os.environ.get("COPYSCOPE_BUSY_RUNS", "0"))
# Sends to itself for so many seconds.
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


RUNS = {
    "one_copy": ["--impl", "one_copy", "--duration", "1"],
    "zero_copy": ["--impl", "zero_copy", "--duration", "1"],
    "watched": ["--", sys.executable, "-c", SENDER, "1.5"],
}
if BY_HAND:
    RUNS = {f"default-{number}": ["--impl", "one_copy"] for number in range(BY_HAND)}


@pytest.mark.parametrize("what", RUNS.values(), ids=RUNS)
@pytest.mark.usefixtures("busy_loops")
def test_under_two_busy_loops_the_run_is_valid_and_names_them(what: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    verb = "watch" if "--" in what else "run"
    done = profile("-v", "--json", str(kept), *what, verb=verb, check=None)
    assert kept.exists(), done.stderr
    made = json.loads(kept.read_text())
    state = made["machine_state"]
    # Beside a run of the same weight each loop gets about half of its CPU.
    assert state["others_ns"] > CPUS * 0.2 * state["wall_ns"], state
    assert state["busy_ns"] <= state["cpus"] * state["wall_ns"] * 1.1
    if state["others_share"] >= 0.10:  # of many CPUs two loops are few
        top = " ".join(done.stdout.split("COPY LEDGER")[0].split())
        assert "machine busy: others took " in top and "repeat when idle" in top
    # Bytes and calls are exact whoever else runs; only times may be hard to tell.
    assert [line for line in broken_identities(made) if "time" not in line] == []
    assert made["verdict"]["valid"] or "machine busy: repeat when idle" in made["verdict"]["next"]
