"""Does it disturb a program to be watched? tools/profile.py on and off one busy iperf3, twenty times.

One iperf3 client sends over loopback all the time. Stretches with tools/profile.py --pid and stretches
without take turns; goodput of both is TCP's own count (ss). Beside it stands what the records say of
themselves: their goodput with all instruments against their own segments without.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants import Program
from copyscope import paths
from copyscope.segments import goodput_gbps, select
from copyscope.watch import connections
from samples import BLOCKS, Comparison, compare

PROFILE = [sys.executable, str(paths.ROOT / "tools" / "profile.py"), "--quiet"]
PORT = "5202"
SIZE_BYTES = 131_072  # what iperf3 writes at once
STRETCH_S = 1.0
WARM_UP_S = 2.0
BUFFERS = ("wmem", "rmem")
# Starting Python, loading the programs and writing the record come on top of each stretch that is watched.
CYCLE_S = 2 * STRETCH_S + 3.0
TURNS = 2 * BLOCKS


@dataclass(frozen=True)
class Moved:
    """What TCP has taken from the client so far, and when that was read."""

    bytes: int
    at_s: float

    def gbps_since(self, earlier: "Moved") -> float:
        return 8 * (self.bytes - earlier.bytes) / (self.at_s - earlier.at_s) / 1e9


def moved() -> Moved:
    """The busier connection to the port is that of the data; the other one controls the test."""
    found = connections.snapshot(Path("/proc/self/ns/net")) or {}
    sending = [c.written for c in found.values() if c.peer.endswith(f":{PORT}") and c.state == "ESTAB"]
    if not sending:
        raise SystemExit("iperf3: its connection is gone: it ended before the last turn")
    return Moved(max(sending), time.monotonic())


def watched(pid: int, record: Path) -> dict[str, dict[str, float]]:
    """One run beside the client: all of it by TCP's count, and the part that was measured by its record."""
    before = moved()
    argv = [*PROFILE, "--pid", str(pid), "--duration", str(STRETCH_S), "--json", str(record)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    after = moved()
    if not record.exists():
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr}")
    made = json.loads(record.read_text(encoding="utf-8"))
    measured, control = goodput_gbps(made["run"]["segments"]), goodput_gbps(select(made, "unprobed"))
    if not measured or not control:
        raise SystemExit(f"{record}: nothing was measured: {made['verdict']['reasons']}")
    return {
        "whole_run": {"gbps": after.gbps_since(before)},
        "attached": {"gbps": measured},
        "its_unprobed": {"gbps": control},
    }


def unwatched() -> dict[str, dict[str, float]]:
    before = moved()
    time.sleep(STRETCH_S)
    return {"detached": {"gbps": moved().gbps_since(before)}}


def finish(client: Program) -> int:
    """The client must have ended well, with every byte at the other side.

    The server stops reading when the client says that its time is over: what the socket buffers held then is
    sent and not received.
    """
    ended = json.loads(client.end().output)["end"]
    sent, received = int(ended["sum_sent"]["bytes"]), int(ended["sum_received"]["bytes"])
    sysctls = [Path(f"/proc/sys/net/ipv4/tcp_{buffer}").read_text(encoding="ascii") for buffer in BUFFERS]
    if not 0 <= sent - received <= sum(int(sysctl.split()[2]) for sysctl in sysctls):
        raise SystemExit(f"iperf3: {sent} bytes sent, {received} received: being watched broke it")
    return sent


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result: watched against not watched, and the records' own statement."""
    shuffler = random.Random(seed)
    seconds = str(round(WARM_UP_S + TURNS * CYCLE_S))
    server = subprocess.Popen(
        ["taskset", "-c", cpus[1], "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", PORT],
        stdout=subprocess.DEVNULL,
    )
    samples: dict[str, list[dict[str, float]]] = {}
    try:
        time.sleep(0.5)
        argv = ["taskset", "-c", cpus[0], "iperf3", "-J", "-c", "127.0.0.1", "-p", PORT, "-t", seconds]
        client = Program(argv)
        time.sleep(WARM_UP_S)
        with tempfile.TemporaryDirectory() as scratch:
            for turn in range(TURNS):
                record = Path(scratch) / f"{turn}.json"
                first = shuffler.random() < 0.5
                found = watched(client.pid, record) if first else {}
                found |= unwatched()
                found |= {} if first else watched(client.pid, record)
                for name, sample in found.items():
                    samples.setdefault(name, []).append(sample)
        sent = finish(client)
    finally:
        server.terminate()
        server.wait()
    factors = {"size_bytes": SIZE_BYTES}
    made = [
        compare(samples, ours, peer, "gbps", factors)
        for ours, peer in (
            ("attached", "detached"),
            ("attached", "its_unprobed"),
            ("whole_run", "detached"),
        )
    ]
    yield made, {**factors, "turns": TURNS, "sent_bytes": sent, "verdict": verdict(*made), "samples": samples}


def verdict(seen: Comparison, stated: Comparison, _whole: Comparison) -> str:
    """Whether what was seen from outside is more than what the records state of themselves."""
    more = seen.high < stated.low
    return (
        f"{TURNS} times on and off: goodput {seen.ratio:.3f} ({seen.low:.3f} to {seen.high:.3f}) of that "
        f"without, the records state {stated.ratio:.3f} ({stated.low:.3f} to {stated.high:.3f}): "
        f"{'MORE THAN STATED' if more else 'no more than stated'}"
    )
