# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: durations of copyscope's own commands, without a comparison.

Real calls of copyscope run, sweep and report are timed from outside.
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

from copyscope.base import paths
from copyscope.record import store
from samples import BLOCKS, Comparison

RUN, SWEEP, REPORT = ([str(paths.ROOT / "bin" / "copyscope"), verb] for verb in ("run", "sweep", "report"))
RUNS = max(3, BLOCKS // 2)
# The largest sweep with records in the tree.
LARGEST = paths.ROOT / "results" / "vm" / "ways"
Sample = dict[str, float]
GOALS = {"beyond_measuring_s": 0.7, "report_s": 3.0}
LABELS = {
    "start_to_first_packet_s": "run: start to first packet",
    "last_packet_to_table_s": "run: last packet to table and end",
    "beyond_measuring_s": "sweep: a point beyond its measuring time, warm-up of 0.2 s included",
    "of_it_in_the_run_s": "… of it inside the run",
    "start_and_end_s": "sweep: before the first run and after the last",
    "report_s": "report: {points} points of a sweep, derived as they are read",
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
    """Run a command. Return (start, end, output), in seconds of CLOCK_MONOTONIC. Exits on failure.

    Status 1 with output is an invalid run, which is timed, too.
    """
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    ended = time.monotonic()
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    return began, ended, done.stdout


def profile(scratch: Path) -> Sample:
    """Time one run as a user starts it. The traffic has the same clock (CLOCK_MONOTONIC)."""
    path = scratch / "record.json"
    began, ended, _ = run([*RUN, "--quiet", "--json", str(path), "--duration", "0.6"])
    segments = store.read_document(path)["run"]["segments"]
    return {
        "start_to_first_packet_s": segments[0]["begin_ns"] / 1e9 - began,
        "last_packet_to_table_s": ended - segments[-1]["end_ns"] / 1e9,
    }


def sweep(scratch: Path) -> Sample:
    """Time a small sweep: the time of each point beyond its segments, including the warm-up."""
    definition = scratch / "own.toml"
    definition.write_text(EXPERIMENT, encoding="utf-8")
    began, ended, printed = run(
        [*SWEEP, str(definition), "--out", str(scratch / "sweep"), "--quiet", "--json", "-"]
    )
    outcome = json.loads(printed)
    run_sections = [
        line.record["run"] for line in store.read_lines(scratch / "sweep" / store.RECORDS_NAME) if line.record
    ]
    measured_s = sum(run_section["measured_s"] for run_section in run_sections)
    return {
        "points": len(run_sections),
        "beyond_measuring_s": (outcome["wall_s"] - measured_s) / len(run_sections),
        "of_it_in_the_run_s": (sum(run_section["wall_s"] for run_section in run_sections) - measured_s)
        / len(run_sections),
        "start_and_end_s": ended - began - outcome["wall_s"],
    }


def report(scratch: Path) -> Sample:
    """Time the report of the largest sweep with all its runs."""
    runs = [line.record["run"] for line in store.iterate_lines(LARGEST / store.RECORDS_NAME) if line.record]
    points = len({tuple(sorted(line["factors"].items())) for line in runs})
    before_s = children_cpu_s()
    began, ended, _ = run([*REPORT, str(LARGEST), "--out", str(scratch / "report")])
    cpu_s = children_cpu_s() - before_s
    return {"points": points, "runs": len(runs), "report_s": ended - began, "report_cpu_s": cpu_s}


def children_cpu_s() -> float:
    """Return the CPU time of all child processes that have exited. Other programs do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(_seed: int, _cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Yield the samples of each command; there are no comparisons."""
    for part, times in ((profile, RUNS), (sweep, 3), (report, 3)):
        samples = []
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="copyscope-own-") as scratch:
                samples.append(part(Path(scratch)))
        yield [], {"what": part.__name__, "samples": samples}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """Return the section of results/bench/README.md: medians with minimum and maximum."""
    text = ["| what | median | least to most | goal |", "|---|---|---|---|"]
    for key, label in LABELS.items():
        samples = [sample for part in raw for sample in part["samples"] if key in sample]
        if samples:
            values = [sample[key] for sample in samples]
            goal = f"{GOALS[key]:g} s" if key in GOALS else ""
            spread = f"{min(values):.2f} to {max(values):.2f} s"
            text.append(f"| {label.format(**samples[0])} | {median(values):.2f} s | {spread} | {goal} |")
    return text
