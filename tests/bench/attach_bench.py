"""Does it disturb a program to be watched? tools/profile.py on and off one busy iperf3, twenty times.

One iperf3 client sends over loopback all the time. Stretches with tools/profile.py --pid and stretches
without take turns; goodput of both is TCP's own count, read from outside every tenth of a second. Beside it
stands what the records state of themselves: their goodput while anything is attached against that before
and after (overhead.attached), all records together.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from contestants import Program
from copyscope import paths
from copyscope.run.program.connections import Snapshots
from samples import BLOCKS, Comparison, compare

PROFILE = [sys.executable, str(paths.ROOT / "tools" / "profile.py"), "--quiet"]
PORT = "5202"
SIZE_BYTES = 131_072  # what iperf3 writes at once
STRETCH_S = 1.0
WARM_UP_S = 2.0
BUFFERS = ("wmem", "rmem")
# Starting Python, loading the programs and writing the record come on top of each stretch that is watched.
CYCLE_S = 2 * STRETCH_S + 6.0
TURNS = 2 * BLOCKS
LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Moved:
    """What TCP has taken from the client so far, and when that was read."""

    bytes: float
    at_s: float

    def gbps_since(self, earlier: "Moved") -> float:
        return 8 * (self.bytes - earlier.bytes) / (self.at_s - earlier.at_s) / 1e9


def moved(snapshots: Snapshots) -> Moved:
    """The busier connection to the port is that of the data; the other one controls the test."""
    found = snapshots.take(Path("/proc/self/ns/net")) or {}
    sending = [c.written for c in found.values() if c.peer.endswith(f":{PORT}") and c.state == "ESTAB"]
    if not sending:
        raise SystemExit("iperf3: its connection is gone: it ended before the last turn")
    return Moved(max(sending), time.monotonic())


class Looking:
    """Looks at the connection all the time, whether somebody watches the client or not."""

    def __init__(self) -> None:
        # One socket all the time: to open one at each look would slow the client down.
        self._snapshots = Snapshots()
        self.looks = [moved(self._snapshots)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self.looks.append(moved(self._snapshots))

    def gbps_between(self, begin_s: float, end_s: float) -> float:
        """From the first to the last look in between: loading and ending, which are slower, lie outside."""
        inside = [look for look in self.looks if begin_s <= look.at_s <= end_s]
        return inside[-1].gbps_since(inside[0])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.looks.append(moved(self._snapshots))
        self._snapshots.close()


class Silent(Exception):
    """A record that cannot say what it cost; the message is its reason."""


def watched(pid: int, record: Path) -> dict[str, dict[str, float]]:
    """One run beside the client: all of it and its attached part from outside, and what its record states.

    Raises Silent when it states nothing.
    """
    argv = [*PROFILE, "--pid", str(pid), "--duration", str(STRETCH_S), "--json", str(record)]
    with Looking() as looking:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not record.exists():
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr}")
    made = json.loads(record.read_text(encoding="utf-8"))
    stated = made["overhead"]["attached"]
    if stated["ratio"] is None:
        raise Silent(stated["reason"])
    slices = made["pace"]["slices"]
    span = [row for row in slices if row["when"] == "attached"]
    seen_gbps = looking.gbps_between(span[0]["begin_ns"] / 1e9, span[-1]["end_ns"] / 1e9)
    return {
        "whole_run": {"gbps": looking.looks[-1].gbps_since(looking.looks[0])},
        "attached": {"gbps": seen_gbps},
        "its_attached": {"gbps": gbps(span)},
        "its_detached": {"gbps": gbps([row for row in slices if row["when"] != "attached"])},
        "own_cpu": {"share": stated["own_cpu_share"]},
    }


def gbps(rows: list[dict[str, Any]]) -> float:
    elapsed_ns: int = sum(row["end_ns"] - row["begin_ns"] for row in rows)
    moved_bytes: int = sum(row["bytes"] for row in rows)
    return 8 * moved_bytes / elapsed_ns


def unwatched() -> dict[str, dict[str, float]]:
    with Looking() as looking:
        time.sleep(STRETCH_S)
    return {"detached": {"gbps": looking.looks[-1].gbps_since(looking.looks[0])}}


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
    left_out: list[str] = []
    try:
        time.sleep(0.5)
        argv = ["taskset", "-c", cpus[0], "iperf3", "-J", "-c", "127.0.0.1", "-p", PORT, "-t", seconds]
        client = Program(argv)
        time.sleep(WARM_UP_S)
        with tempfile.TemporaryDirectory() as scratch:
            for turn in range(TURNS):
                record = Path(scratch) / f"{turn}.json"
                first = shuffler.random() < 0.5
                try:
                    found = watched(client.pid, record) if first else {}
                    found |= unwatched()
                    found |= {} if first else watched(client.pid, record)
                except Silent as reason:
                    left_out.append(str(reason))
                    continue
                for name, sample in found.items():
                    samples.setdefault(name, []).append(sample)
        sent = finish(client)
    finally:
        server.terminate()
        server.wait()
    if len(left_out) > TURNS // 4:
        raise SystemExit(
            f"attach: {len(left_out)} of {TURNS} records do not say what they cost: {left_out[0]}"
        )
    factors = {"size_bytes": SIZE_BYTES}
    made = [
        compare(samples, ours, peer, "gbps", factors)
        for ours, peer in (
            ("attached", "detached"),
            ("its_attached", "its_detached"),
            ("whole_run", "detached"),
        )
    ]
    own = median(sample["share"] for sample in samples["own_cpu"])
    said = verdict(made[0], made[1], made[2], own)
    yield (
        made,
        {
            **factors,
            "turns": TURNS,
            "sent_bytes": sent,
            "verdict": said,
            "left_out": left_out,
            "samples": samples,
        },
    )


def verdict(seen: Comparison, stated: Comparison, whole: Comparison, own_cpu_share: float) -> str:
    """Whether what was seen from outside is more than what the records state of themselves."""
    if seen.high < stated.low:
        judged = "MORE THAN STATED"
    elif seen.low > stated.high:
        judged = "less than stated"
    else:
        judged = "as stated, within the intervals"
    return (
        f"{TURNS} times on and off: goodput {told(seen)} of that without, the records state {told(stated)}: "
        f"{judged}. copyscope's own work took {own_cpu_share * 100:.1f} % of one CPU (median); with "
        f"its start and end a run of {STRETCH_S:.0f} s cost {told(whole)}"
    )


def told(made: Comparison) -> str:
    return f"{made.ratio:.3f} ({made.low:.3f} to {made.high:.3f})"
