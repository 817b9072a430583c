"""How long do the tools themselves take? Nothing here is compared with others.

Real runs of copyscope run, sweep and report, timed from outside.
"""

import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from copyscope import paths
from copyscope.grouping import grouped
from copyscope.record import records_file, store
from copyscope.sweep.rewriting import strip
from samples import BLOCKS, Comparison

RUN, SWEEP, REPORT = ([str(paths.ROOT / "bin" / "copyscope"), verb] for verb in ("run", "sweep", "report"))
RUNS = max(3, BLOCKS // 2)
REPORT_POINTS = 100
# The largest sweep there is: its records are in the tree.
PUBLISHED = paths.ROOT / "results" / "vm" / "published"
Sample = dict[str, float]
GOALS = {"beyond_measuring_s": 0.7, "report_s": 3.0}
LABELS = {
    "start_to_first_packet_s": "run: start to first packet",
    "last_packet_to_table_s": "run: last packet to table and end",
    "beyond_measuring_s": "sweep: a point beyond its measuring time, warm-up of 0.2 s included",
    "of_it_in_the_run_s": "… of it inside the run",
    "start_and_end_s": "sweep: before the first run and after the last",
    "report_s": f"report: {REPORT_POINTS} points of the published sweep, derived as they are read",
    "report_cpu_s": "… CPU time of it, all processes",
}
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


def profile(scratch: Path) -> Sample:
    """One run as a user starts it; the traffic's clock (CLOCK_MONOTONIC) is ours."""
    path = scratch / "record.json"
    began, ended, _ = run([*RUN, "--quiet", "--json", str(path), "--duration", "0.6"])
    segments = store.read(path)["run"]["segments"]
    return {
        "start_to_first_packet_s": segments[0]["begin_ns"] / 1e9 - began,
        "last_packet_to_table_s": ended - segments[-1]["end_ns"] / 1e9,
    }


def sweep(scratch: Path) -> Sample:
    """Of each point of a small sweep, what is beyond its segments; the warm-up is a part of it."""
    definition = scratch / "own.toml"
    definition.write_text(EXPERIMENT, encoding="utf-8")
    began, ended, printed = run(
        [*SWEEP, str(definition), "--out", str(scratch / "sweep"), "--quiet", "--json"]
    )
    outcome = json.loads(printed)
    made = [
        line.record["run"] for line in records_file.read(scratch / "sweep" / records_file.NAME) if line.record
    ]
    measured_s = sum(one["measured_s"] for one in made)
    return {
        "points": len(made),
        "beyond_measuring_s": (outcome["wall_s"] - measured_s) / len(made),
        "of_it_in_the_run_s": (sum(one["wall_s"] for one in made) - measured_s) / len(made),
        "start_and_end_s": ended - began - outcome["wall_s"],
    }


def report(scratch: Path) -> Sample:
    """A hundred points of the published sweep, evenly, with all of their runs."""
    some = scratch / "points"
    runs = [one.record for one in records_file.lines(PUBLISHED / records_file.NAME) if one.record]
    there = list(grouped(runs, lambda one: tuple(sorted(one["run"]["factors"].items()))).values())
    chosen = [one for at in range(REPORT_POINTS) for one in there[at * len(there) // REPORT_POINTS]]
    some.mkdir()
    records_file.write(some / records_file.NAME, map(strip, chosen))
    before_s = children_cpu_s()
    began, ended, _ = run([*REPORT, str(some), "--out", str(scratch / "report")])
    spent_s = children_cpu_s() - before_s
    return {"points": REPORT_POINTS, "runs": len(chosen), "report_s": ended - began, "report_cpu_s": spent_s}


def children_cpu_s() -> float:
    """CPU time of all processes that were waited for: what others do on the machine is not in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(_seed: int, _cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each question; no comparisons."""
    for part, times in ((profile, RUNS), (sweep, 3), (report, 3)):
        samples = []
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="copyscope-own-") as scratch:
                samples.append(part(Path(scratch)))
        yield [], {"what": part.__name__, "samples": samples}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md: medians, with the least and the most."""
    text = ["| what | median | least to most | goal |", "|---|---|---|---|"]
    for key, label in LABELS.items():
        values = [one[key] for part in raw for one in part["samples"] if key in one]
        if values:
            goal = f"{GOALS[key]:g} s" if key in GOALS else ""
            spread = f"{min(values):.2f} to {max(values):.2f} s"
            text.append(f"| {label} | {median(values):.2f} s | {spread} | {goal} |")
    return text
