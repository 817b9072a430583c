# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: goodput or requests of a program while `copyscope watch` runs, compared with the same without.

Three pairs of programs use both CPUs, which leaves none to copyscope: a sender of 8 KiB messages at full
speed, nginx with wrk, and an exchange of one byte. Each runs all the time and is measured in pairs, in random
order: LOAD_S while it is watched, and LOAD_S alone. Start and end of the watch do not count.
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
from copyscope.base import paths
from copyscope.run.child import Child
from copyscope.run.connections import Snapshots
from samples import BLOCKS, Comparison, compare

WATCH = [str(paths.ROOT / "bin" / "copyscope"), "watch"]
PINGPONG = paths.OUTPUT / "tests" / "pingpong"
LOAD_S = 10.0
# The load is measured within the watch: from its first segment on, and it ends this much earlier.
AFTER_LOAD_S = 0.5
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
# Search path for programs: users' PATH lacks the directory of nginx.
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Load:
    """A program under constant load. Its rate is the bytes that it sends by TCP's own count."""

    name: str
    size_bytes: int
    pid: int
    # Returns the number of bytes sent so far.
    sent: Callable[[], int]


@contextlib.contextmanager
def sent_from(port: int) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes sent by all connections of a local port."""
    snapshots = Snapshots()

    def sent() -> int:
        connections = snapshots.take(Path("/proc/self/ns/net")) or {}
        return sum(
            connection.written for connection in connections.values() if connection.local.endswith(f":{port}")
        )

    try:
        yield sent
    finally:
        snapshots.close()


@contextlib.contextmanager
def sender(cpus: list[str], size_bytes: int = SENDS_BYTES, threads: int = 1) -> Iterator[Load]:
    """Run our sender and receiver at full speed, all senders on one CPU and all receivers on the other."""
    options = ["--control", "--size", str(size_bytes), "--threads", str(threads)]
    with contextlib.ExitStack() as exit_:
        child = Child(
            "sender", [str(paths.TRAFFIC), "send", "--impl", "one_copy", "--cpus", cpus[0], *options]
        )
        exit_.callback(child.end)
        port = int(child.expect("listening")["port"])
        argv = [str(paths.TRAFFIC), "recv", "--cpus", cpus[1], "--port", str(port), *options]
        receiver = Child("receiver", argv)
        exit_.callback(receiver.end)
        receiver.expect("connected")
        child.expect("connected")
        child.ask("go", "going")
        yield Load("sender", size_bytes, child.pid, exit_.enter_context(sent_from(port)))


@contextlib.contextmanager
def http(cpus: list[str]) -> Iterator[Load]:
    """Run nginx with one process and without sendfile, and wrk."""
    with contextlib.ExitStack() as exit_:
        directory = Path(exit_.enter_context(tempfile.TemporaryDirectory()))
        (directory / "file").write_bytes(bytes(FILE_BYTES))
        (directory / "conf").write_text(NGINX.format(here=directory, port=PORT), encoding="ascii")
        argv = ["taskset", "-c", cpus[0], str(shutil.which("nginx", path=SEARCHED)), "-p", str(directory)]
        server = running(exit_, [*argv, "-c", str(directory / "conf"), "-g", "user root;"])
        time.sleep(SETTLE_S)
        client = ["taskset", "-c", cpus[1], "wrk", "-t1", f"-c{CONNECTIONS}", "-d24h"]
        running(exit_, [*client, f"http://127.0.0.1:{PORT}/file"])
        yield Load("nginx", FILE_BYTES, server.pid, exit_.enter_context(sent_from(PORT)))


@contextlib.contextmanager
def exchange(cpus: list[str]) -> Iterator[Load]:
    """Run a server and a client that exchange one byte."""
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


def rate(load: Load, load_s: float = LOAD_S) -> float:
    """Return the bytes per second that a program sends during `load_s`."""
    began_s, before = time.monotonic(), load.sent()
    time.sleep(load_s)
    return (load.sent() - before) / (time.monotonic() - began_s)


def watched(load: Load, pid: int, record: Path, load_s: float = LOAD_S) -> dict[str, float]:
    """Return the rate of a load while a process is watched, and figures of the record."""
    duration = f"{load_s + AFTER_LOAD_S:g}"
    argv = [*WATCH, "--pid", str(pid), "--duration", duration, "--json", str(record)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as profile:
        assert profile.stderr is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("watching"):
            lines.append(profile.stderr.readline())
            if not lines[-1]:
                raise SystemExit(f"{' '.join(argv)}: ended before it watched: {''.join(lines)}")
        bytes_per_s = rate(load, load_s)
        profile.communicate(timeout=END_S)
    record_read = json.loads(record.read_text(encoding="utf-8"))
    if not record_read["verdict"]["valid"]:
        print(f"watch: {load.name}: {'; '.join(record_read['verdict']['reasons'])}", file=sys.stderr)
    reported_cost = record_read["overhead"]["watching"]["effect"]
    valid = float(record_read["verdict"]["valid"])
    return {"bytes_per_s": bytes_per_s, "valid": valid} | (
        {} if reported_cost is None else {"said_cost": reported_cost}
    )


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Yield a result for each program: watched, compared with not watched."""
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
        for state in order:
            record = scratch / f"{pair}.json"
            sample = watched(load, load.pid, record) if state == "watched" else {"bytes_per_s": rate(load)}
            samples[state].append(sample)
    factors = {"size_bytes": load.size_bytes}
    comparison = compare(samples, "watched", "alone", "bytes_per_s", factors)
    return [comparison], {"program": load.name, **factors, "comparisons": [comparison], "samples": samples}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """Return the section of results/bench/README.md."""
    text = [
        f"Goodput or requests of programs that copyscope watches for {LOAD_S + AFTER_LOAD_S:g} s with its",
        "default instruments, compared with the same time without copyscope. `said` is the median cost",
        "that the watches themselves report, which excludes the hooks that count bytes.",
        "",
        "| program | size | goodput or requests kept | goal | reached | said | watches not valid |",
        "|---|---|---|---|---|---|---|",
    ]
    for item in raw:
        (comparison,) = item["comparisons"]
        goal = goal_of("watch", comparison)
        kept = f"{comparison['ratio']:.3f} ({comparison['low']:.3f} to {comparison['high']:.3f})"
        cells = [
            item["program"],
            f"{item['size_bytes']:,} B",
            kept,
            f"{goal:g}",
            str(reached(comparison, goal)),
        ]
        watches = item["samples"]["watched"]
        costs = [sample["said_cost"] for sample in watches if "said_cost" in sample]
        cells.append(f"{100 * median(costs):.1f} %" if costs else "n/a")
        text.append(f"| {' | '.join([*cells, str(sum(not sample['valid'] for sample in watches))])} |")
    return text
