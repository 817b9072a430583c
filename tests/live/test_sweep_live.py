# SPDX-License-Identifier: GPL-2.0-only
"""A real sweep, killed at random moments: each point is run once, and nothing remains."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.record import store
from copyscope.sweep.experiment import combinations, expand, identify, load
from profiling import SLOW, in_all, is_root, left_after_a_second, traces

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

SWEEP = [str(paths.ROOT / "bin" / "copyscope"), "sweep"]
TINY = """\
# Does a sweep survive what happens to it?
name = "tiny"
question = "Does a sweep survive what happens to it?"
expected = "10s"
repeats = 2
duration_s = 0.5
seed = 23
[factors]
impl = ["one_copy", "zero_copy"]
size = ["4K"]
[fixed]
warmup = 0.1
time_every = 4
"""
RUNS = 4


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def start(experiment: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    argv = [*SWEEP, str(experiment), "--out", str(out), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(experiment: Path, out: Path, status: int = 0) -> dict[str, Any]:
    run = start(experiment, out, "--json", "-", "--quiet")
    output, errors = run.communicate(timeout=60 * SLOW)
    assert run.returncode == status, errors + output
    outcome: dict[str, Any] = json.loads(output)
    return outcome


def read_records(out: Path) -> list[dict[str, Any]]:
    """Return the complete records so far."""
    path = out / store.RECORDS_NAME
    lines = store.read_lines(path) if path.exists() else []
    return [line.record for line in lines if line.record is not None]


def wait_for_records(out: Path, count: int) -> None:
    deadline = time.monotonic() + 30 * SLOW
    while len(read_records(out)) < count:
        assert time.monotonic() < deadline, "no record came"
        time.sleep(0.01)


@pytest.mark.parametrize("seed", [0, in_all(1)])
def test_a_sweep_killed_at_random_loses_and_repeats_no_run(seed: int, tiny: Path, tmp_path: Path) -> None:
    before = traces()
    out = tmp_path / "out"
    sweep = start(tiny, out)
    wait_for_records(out, 1)
    time.sleep(random.Random(seed).uniform(0.0, 3.0))
    sweep.kill()
    sweep.communicate(timeout=60 * SLOW)
    assert left_after_a_second(before) == []
    first = read_records(out)
    outcome = finish(tiny, out)
    assert outcome["complete"] and outcome["done"] == RUNS
    assert outcome["ran"] == RUNS - len(first)
    records = read_records(out)
    assert sorted(record["run"]["id"] for record in records) == sorted(
        point.run_id for point in expand(load(tiny))
    )
    assert records[: len(first)] == first
    assert (out / "experiment.toml").read_text() == TINY
    points = {identify(factors) for factors in combinations(load(tiny))}
    for record in records:
        run, workload = record["run"], record["workload"]
        assert run["experiment"] == "tiny" and identify(run["factors"]) in points
        assert (workload["impl"], workload["size_bytes"]) == (run["factors"]["impl"], run["factors"]["size"])
        assert workload["time_every"] == 4 and workload["duration_s"] == 0.5
    assert left_after_a_second(before) == []


@pytest.mark.all
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_keeps_only_complete_runs_of_a_sweep(
    number: signal.Signals, tiny: Path, tmp_path: Path
) -> None:
    before = traces()
    out = tmp_path / "out"
    sweep = start(tiny, out)
    wait_for_records(out, 1)
    time.sleep(0.4)  # the second run is in progress
    sweep.send_signal(number)
    output, errors = sweep.communicate(timeout=30 * SLOW)
    assert sweep.returncode == 130 and "run the same command again" in output and "Traceback" not in errors
    records = read_records(out)
    assert records and not any(record["run"]["interrupted"] for record in records)
    assert left_after_a_second(before) == []


@pytest.mark.all
def test_points_without_reserved_huge_pages_fail_alone(tiny: Path, tmp_path: Path) -> None:
    if "HugePages_Free:        0\n" not in Path("/proc/meminfo").read_text():
        pytest.skip("huge pages are reserved on this machine")
    tiny.write_text(TINY.replace('size = ["4K"]', 'pages = ["4k", "hugetlb"]').replace("= 2", "= 1"))
    outcome = finish(tiny, tmp_path / "out", status=1)
    assert outcome["done"] == 2 and len(outcome["failed"]) == 2
    assert all("vm.nr_hugepages" in reason for reason in outcome["failed"])


def test_a_sweep_with_an_impossible_option_runs_nothing(tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(TINY.replace("time_every = 4", 'congestion = "turtle"'))
    out = tmp_path / "out"
    sweep = start(tiny, out)
    _, errors = sweep.communicate(timeout=30 * SLOW)
    assert sweep.returncode == 2 and not out.exists()
    assert errors.count("\n") == 1 and "turtle" in errors and str(tiny) in errors
