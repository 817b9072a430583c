"""How long do the tools themselves take, and how much memory? Nothing here is compared with others.

Real runs of tools/profile.py, tools/sweep.py and tools/report.py, timed from outside. The record of 600 s is
made from a real one of 30 s (`lengthened`): it has as many segments and slices as such a run.
"""

import gzip
import json
import math
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.compare import estimates
from copyscope.ledger.derive import derive
from copyscope.plan import arms as plan
from copyscope.record import store
from copyscope.render.sweep import outcome_lines
from copyscope.sweep import experiment, results, sweep
from own_memory import watched
from own_numbers import REPORT_POINTS, Sample, lines
from samples import BLOCKS, Comparison

__all__ = ["lines", "rows"]  # `lines` is what bench_table.py looks for

PROFILE, SWEEP, REPORT = (str(paths.ROOT / "tools" / f"{name}.py") for name in ("profile", "sweep", "report"))
RUNS = max(3, BLOCKS // 2)
SWEEPS = 3
THREADS = (1, 4, 16, 64)
REAL_S = (1, 30)
MADE_S = (600,)
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
    """One run as a user starts it; the traffic's clock (CLOCK_MONOTONIC) is ours."""
    path = scratch / "record.json"
    argv = [PROFILE, "--quiet", "--json", str(path), *options]
    began, ended, _ = run(argv)
    segments = store.read(path)["run"]["segments"]
    sample = {
        "start_to_first_packet_s": segments[0]["begin_ns"] / 1e9 - began,
        "last_packet_to_table_s": ended - segments[-1]["end_ns"] / 1e9,
    }
    return sample, path


def profile_times(scratch: Path) -> list[Sample]:
    return [profile(scratch, "--duration", "0.6")[0] for _ in range(RUNS)]


def sweep_times(scratch: Path) -> list[Sample]:
    """One sample a sweep: of each point, what is beyond its segments; the warm-up is a part of it."""
    return [one_sweep(scratch / str(number)) for number in range(SWEEPS)]


def one_sweep(scratch: Path) -> Sample:
    scratch.mkdir()
    began, ended, printed = run(sweep_argv(scratch))
    outcome = json.loads(printed)
    made = [store.read(path)["run"] for path in sorted((scratch / "sweep" / "raw").iterdir())]
    measured_s = sum(one["measured_s"] for one in made)
    return {
        "points": len(made),
        "beyond_measuring_s": (outcome["wall_s"] - measured_s) / len(made),
        "of_it_in_the_run_s": (sum(one["wall_s"] for one in made) - measured_s) / len(made),
        "start_and_end_s": ended - began - outcome["wall_s"],
    }


def sweep_argv(scratch: Path) -> list[str]:
    """The small sweep, to be made in `scratch`."""
    definition = scratch / "own.toml"
    definition.write_text(EXPERIMENT, encoding="utf-8")
    return [SWEEP, str(definition), "--out", str(scratch / "sweep"), "--quiet", "--json"]


def report_times(scratch: Path) -> list[Sample]:
    """A hundred points of the published sweep, evenly, with all of their runs."""
    some, runs = some_points(scratch)
    made = []
    for number in range(3):
        before_s = children_cpu_s()
        began, ended, _ = run([REPORT, str(some), "--out", str(scratch / f"report{number}")])
        spent_s = children_cpu_s() - before_s
        made.append(
            {"points": REPORT_POINTS, "runs": runs, "report_s": ended - began, "report_cpu_s": spent_s}
        )
    return made


def some_points(scratch: Path) -> tuple[Path, int]:
    """Their records, and how many these are."""
    some = scratch / "report"
    there = estimates.group(results.load(PUBLISHED).records)
    names = [
        f"{one['run']['id']}.json.gz"
        for at in range(REPORT_POINTS)
        for one in there[at * len(there) // REPORT_POINTS].records
    ]
    (some / "raw").mkdir(parents=True)
    for name in names:
        (some / "raw" / name).symlink_to(PUBLISHED / "raw" / name)
    return some, len(names)


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


def analysis(path: Path) -> Sample:
    """Size of a record, and the time to read and to derive it again, as every reader of a sweep does."""
    made = store.read(path)
    text = json.dumps(made).encode()
    return {
        "json_bytes": len(text),
        "gzip_bytes": len(gzip.compress(text, mtime=0)),
        "read_s": _best(lambda: store.read(path)),
        "derive_s": _best(lambda: derive(made)),
    }


def _best(what: Callable[[], Any]) -> float:
    """The least of five: everything else on the machine only adds."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        what()
        times.append(time.perf_counter() - began)
    return min(times)


def memory(scratch: Path) -> dict[str, dict[str, int]]:
    """Peak resident memory of a run, of a sweep and of a report: of each program of theirs, in KiB."""
    some, _ = some_points(scratch)
    profiled = [PROFILE, "--quiet", "--duration", "1", "--json", str(scratch / "memory.json")]
    return {
        "a run": watched(profiled),
        "a sweep": watched(sweep_argv(scratch)),
        "a report": watched([REPORT, str(some), "--out", str(scratch / "made")]),
    }


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
    real = store.read(path)
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


if __name__ == "__main__":
    sys.exit("own_bench: run it with: sudo make bench BENCH=own")
