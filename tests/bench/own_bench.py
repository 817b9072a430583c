"""How long do the tools themselves take, and how much memory? Nothing here is compared with others.

Real runs of tools/profile.py, tools/sweep.py and tools/report.py, timed from outside. The record of 600 s is
made from a real one of 30 s (`lengthened`): it has as many segments and slices as such a run.
"""

import gzip
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from copyscope import experiment, ledger, paths, plan, points, record, results, sweep
from copyscope.render.sweep import outcome_lines
from samples import BLOCKS, Comparison, median

PROFILE, SWEEP, REPORT = (str(paths.ROOT / "tools" / f"{name}.py") for name in ("profile", "sweep", "report"))
RUNS = max(3, BLOCKS // 2)
THREADS = (1, 4, 16, 64)
REAL_S = (1, 30)
MADE_S = (600,)
REPORT_POINTS = 100
# The largest sweep there is: its records are in the tree.
PUBLISHED = paths.ROOT / "results" / "vm" / "published"
POINT_S = 0.5
EXPERIMENT = f"""\
name = "own"
question = "How long does a point take beyond its measuring time?"
expected = "1m"
repeats = 1
duration_s = {POINT_S}
seed = 1
[factors]
impl = ["two_copy", "one_copy"]
size = ["4K", "64K"]
threads = [1, 2]
[fixed]
topology = "veth"
warmup = 0.2
"""
Sample = dict[str, float]


def run(argv: list[str]) -> tuple[float, float, str]:
    """(began, ended, what it printed) by CLOCK_MONOTONIC, in s; a tool that fails ends the benchmark.

    Status 1 with output is a run that is invalid: its time counts all the same.
    """
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    ended = time.monotonic()
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    return began, ended, done.stdout


def profile(scratch: Path, *options: str) -> tuple[Sample, Path]:
    """One run as a user starts it; the traffic's clock (CLOCK_MONOTONIC, docs/RECORD.md) is ours."""
    path = scratch / "record.json"
    argv = [PROFILE, "--quiet", "--json", str(path), *options]
    began, ended, _ = run(argv)
    segments = record.read(path)["run"]["segments"]
    sample = {
        "start_to_first_packet_s": segments[0]["begin_ns"] / 1e9 - began,
        "last_packet_to_table_s": ended - segments[-1]["end_ns"] / 1e9,
    }
    return sample, path


def profile_times(scratch: Path) -> list[Sample]:
    return [profile(scratch, "--duration", "0.6")[0] for _ in range(RUNS)]


def sweep_times(scratch: Path) -> list[Sample]:
    """One sample: of each point, what is beyond its segments; the warm-up is a part of it."""
    definition, out = scratch / "own.toml", scratch / "sweep"
    definition.write_text(EXPERIMENT, encoding="utf-8")
    began, ended, printed = run([SWEEP, str(definition), "--out", str(out), "--quiet", "--json"])
    outcome = json.loads(printed)
    made = [record.read(path)["run"] for path in sorted((out / "raw").iterdir())]
    measured_s = sum(one["measured_s"] for one in made)
    return [
        {
            "points": len(made),
            "beyond_measuring_s": (outcome["wall_s"] - measured_s) / len(made),
            "of_it_in_the_run_s": (sum(one["wall_s"] for one in made) - measured_s) / len(made),
            "start_and_end_s": ended - began - outcome["wall_s"],
        }
    ]


def report_times(scratch: Path) -> list[Sample]:
    """A hundred points of the published sweep, evenly, with all of their runs."""
    some = scratch / "report"
    there = points.group(results.load(PUBLISHED).records)
    found = [there[at * len(there) // REPORT_POINTS] for at in range(REPORT_POINTS)]
    (some / "raw").mkdir(parents=True)
    for point in found:
        for one in point.records:
            name = f"{one['run']['id']}.json.gz"
            (some / "raw" / name).symlink_to(PUBLISHED / "raw" / name)
    made = []
    for number in range(3):
        before_s = children_cpu_s()
        began, ended, _ = run([REPORT, str(some), "--out", str(scratch / f"report{number}")])
        runs = sum(len(point.records) for point in found)
        spent_s = children_cpu_s() - before_s
        made.append({"points": len(found), "runs": runs, "report_s": ended - began, "report_cpu_s": spent_s})
    return made


def children_cpu_s() -> float:
    """CPU time of all processes that were waited for: what others do on the machine is not in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Told:
    """A sweep's progress: `start` is told when the records that are there have been read."""

    began = 0.0

    def start(self, *_: Any) -> None:
        self.began = time.monotonic()

    def add(self, runs: int) -> None: ...

    def begin(self, what: str) -> None: ...

    def end(self, what: str, result: str) -> None: ...


def finished_sweep_times(scratch: Path) -> list[Sample]:
    """The published sweep again, of which every record is there: checked, read, and the table made."""
    there = scratch / "published"
    shutil.copytree(PUBLISHED / "raw", there / "raw")
    shutil.copy(PUBLISHED / "experiment.toml", there)
    known = experiment.load(there / "experiment.toml")
    made = []
    for _ in range(3):
        told = Told()
        outcome = sweep.perform(known, there, progress=told, run=_nothing_is_left)
        outcome_lines(known.name, outcome.done, asdict(outcome), verbose=False)
        table_s = time.monotonic() - told.began
        began, ended, _ = run([SWEEP, str(there / "experiment.toml"), "--out", str(there), "--json"])
        made.append({"runs": outcome.done, "table_s": table_s, "whole_s": ended - began})
    return made


def _nothing_is_left(point: experiment.Point) -> dict[str, Any]:
    raise SystemExit(f"{PUBLISHED}: {point.run_id}: not there")


def memory(scratch: Path) -> dict[str, int]:
    """Peak resident memory (VmHWM, proc_pid_status(5)) of each program of a run, in KiB.

    Not ru_maxrss: a program inherits it from the process that forked it (exec_mmap(), fs/exec.c).
    """
    peaks: dict[str, int] = {}
    argv = [PROFILE, "--quiet", "--duration", "1", "--json", str(scratch / "memory.json")]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as tool:
        ended = threading.Event()
        looker = threading.Thread(target=_watch_memory, args=(tool.pid, peaks, ended))
        looker.start()
        status = tool.wait()
        ended.set()
        looker.join()
    if status:
        raise SystemExit(f"{' '.join(argv)}: status {status}")
    return peaks


def _watch_memory(root: int, peaks: dict[str, int], ended: threading.Event) -> None:
    while not ended.wait(0.03):
        for pid, parent in _family(root):
            name, peak = _peak_kib(pid)
            if name in ("traffic", "collector", "perf", "python3"):
                key = f"{name} {_side(pid)}".strip() if name in ("traffic", "perf") else name
                key = "profile.py" if name == "python3" and parent != root else key
                peaks[key] = max(peaks.get(key, 0), peak)


def _family(root: int) -> list[tuple[int, int]]:
    """The process and everything below it, each with its parent."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (processes come and go)
        if name.isdigit():
            try:
                status = Path(f"/proc/{name}/stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            parents[int(name)] = int(status.rpartition(")")[2].split()[1])
    found, queue = [(root, parents.get(root, 0))], [root]
    while queue:
        parent = queue.pop()
        children = [pid for pid, above in parents.items() if above == parent]
        found += [(pid, parent) for pid in children]
        queue += children
    return found


def _peak_kib(pid: int) -> tuple[str, int]:
    """(name, VmHWM in KiB); of a process that has ended, nothing."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "", 0
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return lines["Name"].strip(), int(lines.get("VmHWM", "0 kB").split()[0])


def _side(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[1].decode() if len(words) > 1 and words[1] in (b"send", b"recv") else ""


def analysis(path: Path) -> Sample:
    """Size of a record, and the time to read and to derive it again, as every reader of a sweep does."""
    made = record.read(path)
    text = json.dumps(made).encode()
    return {
        "json_bytes": len(text),
        "gzip_bytes": len(gzip.compress(text, mtime=0)),
        "read_s": _best(lambda: record.read(path)),
        "derive_s": _best(lambda: ledger.derive(made)),
    }


def _best(what: Callable[[], Any]) -> float:
    """The least of five: everything else on the machine only adds."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        what()
        times.append(time.perf_counter() - began)
    return min(times)


def growth_with_threads(scratch: Path) -> list[Sample]:
    made = []
    for threads in THREADS:
        sample, path = profile(scratch, "--threads", str(threads), "--duration", "1")
        made.append({"threads": threads, **sample, **analysis(path)})
    return made


def growth_with_time(scratch: Path) -> list[Sample]:
    made = []
    for seconds in REAL_S:
        sample, path = profile(scratch, "--duration", str(seconds))
        made.append({"seconds": seconds, **sample, **analysis(path)})
    real = record.read(path)
    for seconds in MADE_S:
        path = scratch / f"{seconds}.json"
        path.write_text(json.dumps(lengthened(real, seconds)), encoding="utf-8")
        made.append({"seconds": seconds, "synthetic": 1.0, "made_from_s": REAL_S[-1], **analysis(path)})
    return made


def lengthened(real: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A record as a run of so many seconds would leave it: its segments and slices again and again."""
    made: dict[str, Any] = json.loads(json.dumps(real))
    arms = tuple(dict.fromkeys(s["arm"] for s in real["run"]["segments"] if s["arm"] != "warmup"))
    wanted = len(plan.schedule_segments(seconds, arms, 1))
    warmup, *segments = made["run"]["segments"]
    many = [segments[index % len(segments)] for index in range(wanted)]
    made["run"]["segments"] = [warmup, *({**s, "index": i} for i, s in enumerate(many))]
    factor = math.ceil(seconds / real["workload"]["duration_s"])
    for report in made["traffic"].values():
        report["slices"] *= factor
    return made


def rows(_seed: int, _cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each question; no comparisons."""
    parts: tuple[tuple[str, Callable[[Path], Any]], ...] = (
        ("profile", profile_times),
        ("sweep", sweep_times),
        ("report", report_times),
        ("finished sweep", finished_sweep_times),
        ("memory", memory),
        ("threads", growth_with_threads),
        ("length", growth_with_time),
    )
    for name, part in parts:
        with tempfile.TemporaryDirectory(prefix="copyscope-own-") as scratch:
            yield [], {"what": name, "samples": part(Path(scratch))}


GOALS = {"beyond_measuring_s": 0.7, "report_s": 3.0, "table_s": 0.5}
LABELS = {
    "start_to_first_packet_s": "profile.py: start to first packet",
    "last_packet_to_table_s": "profile.py: last packet to table and end",
    "beyond_measuring_s": "sweep.py: a point beyond its measuring time, warm-up of 0.2 s included",
    "of_it_in_the_run_s": "… of it inside the run",
    "start_and_end_s": "sweep.py: before the first run and after the last",
    "report_s": f"report.py: {REPORT_POINTS} points of the published sweep",
    "report_cpu_s": "… CPU time of it, all processes",
    "table_s": "sweep.py: last record to table, 432 runs",
    "whole_s": "sweep.py: all of a sweep of which every record is there, 432 runs",
}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The table of results/bench/README.md: medians, with the least and the most."""
    found = {part["what"]: part["samples"] for part in raw}
    text = ["| what | median | least to most | goal |", "|---|---|---|---|"]
    for name in ("profile", "sweep", "report", "finished sweep"):
        for key, label in LABELS.items():
            values = [sample[key] for sample in found.get(name, []) if key in sample]
            if values:
                goal = f"{GOALS[key]:g} s" if key in GOALS else ""
                spread = f"{min(values):.2f} to {max(values):.2f} s" if len(values) > 1 else ""
                text.append(f"| {label} | {median(values):.2f} s | {spread} | {goal} |")
    if "memory" in found:
        peaks = ", ".join(f"{name} {kib / 1024:.0f} MiB" for name, kib in sorted(found["memory"].items()))
        text += ["", f"Peak memory of a run: {peaks}."]
    for name, unit in (("threads", "threads"), ("length", "s")):
        if name in found:
            text += ["", *_growth(found[name], "threads" if name == "threads" else "seconds", unit)]
    if "length" in found:
        text += [
            "",
            "Samples and ledger do not grow with the length of a run. Its segments (four in two seconds) "
            "and the slices of goodput (ten a second) do.",
        ]
    return text


def _growth(samples: list[Sample], key: str, unit: str) -> list[str]:
    head = ("record", "compressed", "read", "derive", "last packet to table")
    text = [f"| {unit} | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for one in samples:
        # results that are older than the key were made from 10 s
        made = f" (made from {one.get('made_from_s', 10):g} s)" if "synthetic" in one else ""
        last = f"{one['last_packet_to_table_s']:.2f} s" if "last_packet_to_table_s" in one else ""
        cells = [
            f"{one['json_bytes'] / 1024:.0f} KiB",
            f"{one['gzip_bytes'] / 1024:.0f} KiB",
            f"{1e3 * one['read_s']:.1f} ms",
            f"{1e3 * one['derive_s']:.1f} ms",
            last,
        ]
        text.append(f"| {one[key]:.0f}{made} | {' | '.join(cells)} |")
    return text


if __name__ == "__main__":
    sys.exit("own_bench: run it with: sudo make bench BENCH=own")
