"""What does it cost to be watched, whole: copyscope watch beside programs of five kinds, and not.

The same load runs with copyscope watch attached and without, in pairs, in seeded order. It lasts for as long
as the examples of --help watch, and lies within the watch, so that all kinds of segments are in it in their
shares; loading and ending are not. The program is busy before that already, as one is that somebody wants to
watch: what the first segment sees decides what others attach.
Goodput is TCP's own count, requests and their times are those of the client. Once with a CPU for each side,
which leaves none to copyscope, and once with both sides on one of two. The pace of these CPUs is measured
meanwhile (pace.c).
"""

import contextlib
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from conclusions import AT_MOST, goal_of, reached
from contestants import Program
from copyscope import paths
from copyscope.run.child import Child
from copyscope.run.program.connections import Snapshots
from samples import BLOCKS, Comparison, compare, compare_paced
from wrk_latency import parse, percentile_us

WATCH = [str(paths.ROOT / "bin" / "copyscope"), "watch"]
PINGPONG = paths.OUTPUT / "tests" / "pingpong"
PACE = paths.OUTPUT / "tests" / "pace"
WRK_SCRIPT = paths.ROOT / "tests" / "bench" / "wrk.lua"
LOAD_S = 10.0
# It begins when the program is watched, and the watch ends after it.
WATCH_S = LOAD_S + 0.5
# Of another client, which is there before.
BEFORE_S = 60
OVERLAP_S = 0.1
END_S = 20.0
SENDS_BYTES = (64, 8192, 65536)
FILE_BYTES = 8192
CONNECTIONS = 16
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
Sample = dict[str, float]


@dataclass(frozen=True)
class Load:
    """A program that can be watched, and what it does for LOAD_S while it is or is not."""

    name: str
    size_bytes: int
    pid: int
    run: Callable[[], Sample]
    # What keeps it busy until then; nothing where it is busy anyway.
    before: list[str]


@contextlib.contextmanager
def waiting_sender(size_bytes: int, cpu: str) -> Iterator[tuple[Child, str]]:
    """Our sender, and the port on which it waits for a receiver; `go` lets it send."""
    argv = [str(paths.TRAFFIC), "send", "--impl", "one_copy", "--cpus", cpu]
    child = Child("sender", [*argv, "--control", "--size", str(size_bytes)])
    try:
        yield child, str(child.expect("listening")["port"])
    finally:
        child.end()


@contextlib.contextmanager
def sender(size_bytes: int, cpus: list[str]) -> Iterator[Load]:
    with contextlib.ExitStack() as exit_:
        child, port = exit_.enter_context(waiting_sender(size_bytes, cpus[0]))
        argv = [str(paths.TRAFFIC), "recv", "--cpus", cpus[1], "--port", port]
        argv += ["--control", "--size", str(size_bytes)]
        receiver = Child("receiver", argv)
        exit_.callback(receiver.end)
        receiver.expect("connected")
        child.expect("connected")
        child.ask("go", "going")
        snapshots = Snapshots()
        exit_.callback(snapshots.close)

        def written() -> tuple[float, int]:
            found = snapshots.take(Path("/proc/self/ns/net")) or {}
            end = f":{port}"
            return time.monotonic(), max(c.written for c in found.values() if c.local.endswith(end))

        def run() -> Sample:
            began_s, before = written()
            time.sleep(LOAD_S)
            ended_s, after = written()
            return {"gbps": 8e-9 * (after - before) / (ended_s - began_s)}

        run()
        yield Load("sender", size_bytes, child.pid, run, [])


@contextlib.contextmanager
def nginx(cpu: str, port: int = 5203) -> Iterator[tuple[int, str]]:
    """One worker without sendfile: its pid, and the address of its one file."""
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        (here / "file").write_bytes(bytes(FILE_BYTES))
        (here / "conf").write_text(NGINX.format(here=here, port=port), encoding="ascii")
        argv = ["taskset", "-c", cpu, str(shutil.which("nginx", path=SEARCHED)), "-p", scratch]
        argv += ["-c", str(here / "conf"), "-g", "user root;"]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as server:
            try:
                time.sleep(0.5)
                yield server.pid, f"http://127.0.0.1:{port}/file"
            finally:
                server.terminate()


@contextlib.contextmanager
def http(cpus: list[str], port: int = 5203) -> Iterator[Load]:
    """nginx and wrk."""
    with nginx(cpus[0], port) as (pid, page):
        client = ["taskset", "-c", cpus[1], "wrk", "-t1", f"-c{CONNECTIONS}"]
        load = [*client, f"-d{LOAD_S:.0f}s", "--script", str(WRK_SCRIPT), page]

        def run() -> Sample:
            said = subprocess.run(load, capture_output=True, text=True, check=False).stdout
            rate = re.search(r"Requests/sec: +([\d.]+)", said)
            latencies = parse(said, CONNECTIONS)
            if not rate or not latencies or "Non-2xx" in said:
                raise SystemExit(f"wrk: {said.strip() or 'said nothing'}")
            return {
                "requests": float(rate[1]),
                "p99_us": percentile_us(latencies.made, 0.99),
                "p99_waited_us": percentile_us(latencies.waited, 0.99),
            }

        run()
        yield Load("http", FILE_BYTES, pid, run, [*client, f"-d{BEFORE_S}s", page])


@contextlib.contextmanager
def answerer(cpu: str) -> Iterator[tuple[int, str]]:
    """Who sends each byte back: its pid and port."""
    server = Program(["taskset", "-c", cpu, str(PINGPONG), "serve"])
    try:
        yield server.pid, server.ready(r"listening on (\d+)")[1]
    finally:
        server.kill()


@contextlib.contextmanager
def exchange(cpus: list[str]) -> Iterator[Load]:
    """One byte there and back."""
    with answerer(cpus[0]) as (pid, port):
        client = ["taskset", "-c", cpus[1], str(PINGPONG), "ask", port]
        load = [*client, str(LOAD_S)]

        def run() -> Sample:
            made = json.loads(subprocess.run(load, capture_output=True, check=True).stdout)
            return {"requests": 1e9 * made["requests"] / made["elapsed_ns"], "p99_us": made["p99_ns"] / 1e3}

        run()
        yield Load("request-response", 1, pid, run, [*client, str(BEFORE_S)])


@contextlib.contextmanager
def busy(load: Load) -> Iterator[None]:
    """The program has something to do until then, and for a moment longer."""
    if not load.before:
        yield
        return
    with subprocess.Popen(load.before, stdout=subprocess.DEVNULL) as client:
        try:
            yield
            time.sleep(OVERLAP_S)
        finally:
            client.kill()


def paced(load: Load, cpus: list[str]) -> Sample:
    """The load, and how long the same system call took on its CPUs meanwhile."""
    argv = [[str(PACE), cpu, f"{LOAD_S:g}"] for cpu in sorted(set(cpus))]
    meters = [subprocess.Popen(words, stdout=subprocess.PIPE) for words in argv]
    try:
        sample = load.run()
        said = [json.loads(meter.communicate(timeout=END_S)[0]) for meter in meters]
    finally:
        for meter in meters:
            _end(meter)
    return sample | {"pace_ns": math.exp(fmean(math.log(one["getppid_ns"]) for one in said))}


def alone(load: Load, cpus: list[str]) -> Sample:
    with busy(load):
        time.sleep(1.0)
    return paced(load, cpus)


def watched(load: Load, cpus: list[str], record: Path) -> Sample:
    """The load while copyscope watches it, from its first segment on; its record must be one."""
    argv = [*WATCH, "--pid", str(load.pid), "--duration", f"{WATCH_S:g}", "--json", str(record)]
    said: list[str] = []
    with contextlib.ExitStack() as until:
        with busy(load):
            profile = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            until.callback(_end, profile)
            assert profile.stderr is not None
            while not said or not said[-1].startswith("watching"):
                said.append(profile.stderr.readline())
                if not said[-1]:
                    raise SystemExit(f"{' '.join(argv)}: ended before it watched: {''.join(said)}")
        sample = paced(load, cpus)
        said += profile.communicate(timeout=END_S)[1].splitlines()
    if not record.exists():
        raise SystemExit(f"{' '.join(argv)}: status {profile.returncode}: {' '.join(said)}")
    made = json.loads(record.read_text(encoding="utf-8"))
    if not made["verdict"]["valid"]:
        print(f"watch: {load.name}: {'; '.join(made['verdict']['reasons'])}", file=sys.stderr)
    return sample | {
        "own_cpu_ns": float(made["pace"]["own_cpu_ns"] or 0),
        "valid": float(made["verdict"]["valid"]),
    }


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each program: watched against not watched."""
    missing = [name for name in ("nginx", "wrk") if shutil.which(name, path=SEARCHED) is None]
    if missing:
        raise SystemExit(f"{' and '.join(missing)}: missing: sudo tools/deps.sh programs")
    shuffler = random.Random(seed)
    for placement, places in (("a CPU each", cpus), ("one CPU of two", [cpus[0], cpus[0]])):
        opened = [sender(size, places) for size in SENDS_BYTES] + [http(places), exchange(places)]
        for one in opened:
            with one as load, tempfile.TemporaryDirectory() as scratch:
                yield _one(load, placement, places, Path(scratch), shuffler)


def _one(
    load: Load, placement: str, cpus: list[str], scratch: Path, shuffler: random.Random
) -> tuple[list[Comparison], dict[str, Any]]:
    ours, peer = f"{load.name} watched", load.name
    samples: dict[str, list[Sample]] = {ours: [], peer: []}
    for pair in range(BLOCKS):
        order = [ours, peer]
        shuffler.shuffle(order)
        for who in order:
            record = scratch / f"{pair}.json"
            samples[who].append(watched(load, cpus, record) if who == ours else alone(load, cpus))
    factors = {"size_bytes": load.size_bytes, "placement": placement}
    known = ("gbps", "requests", "p99_us", "p99_waited_us")
    quantities = [key for key in known if key in samples[peer][0]]
    made = [compare_paced(samples, ours, peer, quantity, factors) for quantity in quantities]
    told = {"program": load.name, **factors, "comparisons": made, "samples": samples}
    return made, told


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md."""
    meter = _meter(raw)
    text = [
        "Programs that copyscope watches with everything it has by default, against the same without: "
        "all segments together, and its own work. A sender of one message after the other (8 buffers each), "
        f"nginx without sendfile under wrk ({CONNECTIONS} connections, {FILE_BYTES // 1024} KiB), one byte "
        "there and back, over lo; server and client on a CPU each, so that copyscope has none to itself, or "
        "both on one of two. What the host does to the machine meanwhile is taken off: how long getppid(2) "
        "took on these CPUs, by least squares over the pairs. In brackets as found, without that. "
        f"Beside a watch it took {_interval(meter)} as long as without, over all pairs: what watching does "
        "to each system call of the machine is taken off, too, and `reached` allows for it. p99 is that of "
        "the requests that were made; wrk prints another one, with those that it would have made while it "
        "waited for an answer.",
        "",
        "| program | size | where | goodput or requests kept | goal | reached | p99 | goal | reached "
        "| p99 as wrk prints it | goal | reached |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for item in raw:
        cells = [item["program"], f"{item['size_bytes']:,} B", item["placement"]]
        for made in item["comparisons"]:
            goal = goal_of("watch", made)
            found = reached(_allowing(made, meter["ratio"]), goal)
            cells += [f"{_interval(made)} [{_interval(made['raw'])}]", f"{goal:g}", str(found)]
        text.append(f"| {' | '.join(cells + [''] * (12 - len(cells)))} |")
    text += [
        "",
        *(f"- {_name(item)}: {_invalid(item)} runs were not valid" for item in raw if _invalid(item)),
    ]
    return text


def _meter(raw: list[dict[str, Any]]) -> Comparison:
    """What the meter read, watched over not watched: all pairs of all programs."""
    samples = {
        who: [sample for item in raw for sample in item["samples"][f"{item['program']}{who}"]]
        for who in (" watched", "")
    }
    return compare(samples, " watched", "", "pace_ns", {})


def _allowing(made: dict[str, Any], slower: float) -> dict[str, Any]:
    """The interval goes on to where it lies if all of that was watching, and none of it the host."""
    worse = max(1.0, slower)
    if made["quantity"] in AT_MOST:
        return {**made, "high": made["high"] * worse}
    return {**made, "low": made["low"] / worse}


def _interval(made: dict[str, float]) -> str:
    return f"{made['ratio']:.3f} ({made['low']:.3f} to {made['high']:.3f})"


def _name(item: dict[str, Any]) -> str:
    return f"{item['program']}, {item['size_bytes']:,} B, {item['placement']}"


def _invalid(item: dict[str, Any]) -> int:
    return sum(not sample["valid"] for sample in item["samples"][f"{item['program']} watched"])
