"""What does it cost to be watched: goodput or requests while `copyscope watch` runs, beside the same without.

Three programs on a CPU each, client and server, which leaves none to copyscope: a sender of 8 KiB messages at
full speed, nginx under wrk, one byte there and back. Each runs on; in pairs, in seeded order, it is measured
for LOAD_S within a watch, and for LOAD_S alone. What loading and ending take is not in it.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from conclusions import goal_of, reached
from contestants import Program
from copyscope import paths
from copyscope.run.child import Child
from copyscope.run.connections import Snapshots
from samples import BLOCKS, Comparison, compare

WATCH = [str(paths.ROOT / "bin" / "copyscope"), "watch"]
PINGPONG = paths.OUTPUT / "tests" / "pingpong"
LOAD_S = 10.0
# It begins when the program is watched, and the watch ends after it.
WATCH_S = LOAD_S + 0.5
SETTLE_S = 1.0
END_S = 20.0
SENDS_BYTES = FILE_BYTES = 8192
CONNECTIONS = 16
PORT = 5203
NGINX = """
daemon off; master_process off; pid {here}/pid; error_log {here}/error;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile off; keepalive_requests 100000000;
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi;
  uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
  server {{ listen 127.0.0.1:{port}; root {here}; }}
}}
"""
# nginx is where users without root have no path to.
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Load:
    """A program that is busy all the time: what it has sent, by TCP's own count, is what it achieves."""

    name: str
    size_bytes: int
    pid: int
    # How many bytes it has sent so far.
    sent: Callable[[], int]


@contextlib.contextmanager
def sent_from(port: int) -> Iterator[Callable[[], int]]:
    """What all connections of this port on this machine have sent."""
    snapshots = Snapshots()

    def sent() -> int:
        found = snapshots.take(Path("/proc/self/ns/net")) or {}
        return sum(c.written for c in found.values() if c.local.endswith(f":{port}"))

    try:
        yield sent
    finally:
        snapshots.close()


@contextlib.contextmanager
def sender(cpus: list[str]) -> Iterator[Load]:
    """Our own, of one message after the other."""
    size = ["--control", "--size", str(SENDS_BYTES)]
    with contextlib.ExitStack() as exit_:
        child = Child("sender", [str(paths.TRAFFIC), "send", "--impl", "one_copy", "--cpus", cpus[0], *size])
        exit_.callback(child.end)
        port = int(child.expect("listening")["port"])
        argv = [str(paths.TRAFFIC), "recv", "--cpus", cpus[1], "--port", str(port), *size]
        receiver = Child("receiver", argv)
        exit_.callback(receiver.end)
        receiver.expect("connected")
        child.expect("connected")
        child.ask("go", "going")
        yield Load("sender", SENDS_BYTES, child.pid, exit_.enter_context(sent_from(port)))


@contextlib.contextmanager
def http(cpus: list[str]) -> Iterator[Load]:
    """nginx, one worker without sendfile, and wrk."""
    with contextlib.ExitStack() as exit_:
        here = Path(exit_.enter_context(tempfile.TemporaryDirectory()))
        (here / "file").write_bytes(bytes(FILE_BYTES))
        (here / "conf").write_text(NGINX.format(here=here, port=PORT), encoding="ascii")
        argv = ["taskset", "-c", cpus[0], str(shutil.which("nginx", path=SEARCHED)), "-p", str(here)]
        server = running(exit_, [*argv, "-c", str(here / "conf"), "-g", "user root;"])
        time.sleep(SETTLE_S)
        client = ["taskset", "-c", cpus[1], "wrk", "-t1", f"-c{CONNECTIONS}", "-d24h"]
        running(exit_, [*client, f"http://127.0.0.1:{PORT}/file"])
        yield Load("nginx", FILE_BYTES, server.pid, exit_.enter_context(sent_from(PORT)))


@contextlib.contextmanager
def exchange(cpus: list[str]) -> Iterator[Load]:
    """One byte there and back."""
    with contextlib.ExitStack() as exit_:
        server = Program(["taskset", "-c", cpus[0], str(PINGPONG), "serve"])
        exit_.callback(server.kill)
        port = server.ready(r"listening on (\d+)")[1]
        running(exit_, ["taskset", "-c", cpus[1], str(PINGPONG), "ask", port, "86400"])
        yield Load("request-response", 1, server.pid, exit_.enter_context(sent_from(int(port))))


def running(exit_: contextlib.ExitStack, argv: list[str]) -> "subprocess.Popen[bytes]":
    process = exit_.enter_context(
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    )
    exit_.callback(process.kill)
    return process


def rate(load: Load) -> float:
    """Bytes a second over LOAD_S."""
    began_s, before = time.monotonic(), load.sent()
    time.sleep(LOAD_S)
    return (load.sent() - before) / (time.monotonic() - began_s)


def watched(load: Load, record: Path) -> dict[str, float]:
    """The same while it is watched, from the first segment on; what the record says of it, too."""
    argv = [*WATCH, "--pid", str(load.pid), "--duration", f"{WATCH_S:g}", "--json", str(record)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as profile:
        assert profile.stderr is not None
        said: list[str] = []
        while not said or not said[-1].startswith("watching"):
            said.append(profile.stderr.readline())
            if not said[-1]:
                raise SystemExit(f"{' '.join(argv)}: ended before it watched: {''.join(said)}")
        found = rate(load)
        profile.communicate(timeout=END_S)
    made = json.loads(record.read_text(encoding="utf-8"))
    if not made["verdict"]["valid"]:
        print(f"watch: {load.name}: {'; '.join(made['verdict']['reasons'])}", file=sys.stderr)
    said_cost = made["overhead"]["watching"]["effect"]
    valid = float(made["verdict"]["valid"])
    return {"bytes_per_s": found, "valid": valid} | ({} if said_cost is None else {"said_cost": said_cost})


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each program: watched against not watched."""
    missing = [name for name in ("nginx", "wrk") if shutil.which(name, path=SEARCHED) is None]
    if missing:
        raise SystemExit(f"{' and '.join(missing)}: missing: sudo tools/deps.sh programs")
    shuffler = random.Random(seed)
    for opened in (sender, http, exchange):
        with opened(cpus) as load, tempfile.TemporaryDirectory() as scratch:
            time.sleep(SETTLE_S)
            yield _one(load, Path(scratch), shuffler)


def _one(load: Load, scratch: Path, shuffler: random.Random) -> tuple[list[Comparison], dict[str, Any]]:
    samples: dict[str, list[dict[str, float]]] = {"watched": [], "alone": []}
    for pair in range(BLOCKS):
        order = ["watched", "alone"]
        shuffler.shuffle(order)
        for who in order:
            record = scratch / f"{pair}.json"
            sample = watched(load, record) if who == "watched" else {"bytes_per_s": rate(load)}
            samples[who].append(sample)
    factors = {"size_bytes": load.size_bytes}
    made = compare(samples, "watched", "alone", "bytes_per_s", factors)
    return [made], {"program": load.name, **factors, "comparisons": [made], "samples": samples}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md."""
    text = [
        f"Programs that copyscope watches for {WATCH_S:g} s with everything that it has by default, beside "
        "the same time without: all kinds of segments in their shares, the hooks that count bytes, and "
        "copyscope's own work. `said` is the median of what the watches themselves say that watching cost: "
        "what the hooks that count bytes cost is not in that.",
        "",
        "| program | size | goodput or requests kept | goal | reached | said | watches not valid |",
        "|---|---|---|---|---|---|---|",
    ]
    for item in raw:
        (made,) = item["comparisons"]
        goal = goal_of("watch", made)
        kept = f"{made['ratio']:.3f} ({made['low']:.3f} to {made['high']:.3f})"
        cells = [item["program"], f"{item['size_bytes']:,} B", kept, f"{goal:g}", str(reached(made, goal))]
        watches = item["samples"]["watched"]
        costs = [one["said_cost"] for one in watches if "said_cost" in one]
        cells.append(f"{100 * median(costs):.1f} %" if costs else "n/a")
        text.append(f"| {' | '.join([*cells, str(sum(not one['valid'] for one in watches))])} |")
    return text
