"""A second opinion on the sampler: perf record of the same run, put through the same taxonomy."""

import json
import math
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from copyscope.crosscheck.tools import kernel_stacks
from copyscope.taxonomy.taxonomy import Taxonomy
from profiling import RUN, SLOW, child_named, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.quiet,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# Standard errors.
SIGMAS = 3.5
# perf samples the segments without instruments, too, and each has its own work.
OTHERWISE = 0.05
# A guest takes few of the samples that it was asked for.
STRETCH = max(1.0, SLOW / 2)
# What the kernel needs to take a sample of perf's, and ours: not the same code, so not compared. Nor is
# waking: perf has that of the pauses between segments, too.
NOT_COMPARED = {"instruments", "wakeup_sched"}


def perf_stacks(data: Path, pid: int) -> list[list[str]]:
    """The kernel frames of each sample of a process, leaf first; empty for a sample in user mode."""
    argv = ["perf", "script", "-i", str(data), "--pid", str(pid), "-F", "ip,sym", "--no-inline"]
    return kernel_stacks(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def shares(counts: Counter[str]) -> dict[str, float]:
    compared = {name: n for name, n in counts.items() if name not in NOT_COMPARED}
    return {name: n / sum(compared.values()) for name, n in compared.items()}


def ours(record: dict[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in record["samples"]:
        if row["side"] == "sender":
            found[row["category"]] += row["samples"]
    return found


@pytest.mark.parametrize("impl", ["one_copy", "zero_copy"])
def test_shares_agree_with_perf_record(impl: str, tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    duration = ("--duration", str(5 * STRETCH))
    argv = [*RUN, "--quiet", "--impl", impl, *duration, "--instruments", "counters,sampler"]
    run = subprocess.Popen([*argv, "--frequency", "997", "--json", str(out)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10 * SLOW
    while (sender := child_named(run.pid, "send")) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1.0)
    data = tmp_path / "perf.data"
    # On each CPU, as ours: timers of a task are set anew at every switch, and perf finds itself there.
    perf = ["perf", "record", "-q", "-g", "-a", "-e", "cpu-clock", "-c", "1003009", "-o", str(data)]
    perf += ["--", "sleep", str(3.5 * STRETCH)]
    recorded = subprocess.run(perf, check=False, capture_output=True, text=True)
    assert run.wait(timeout=30 * SLOW) in (0, 1)
    assert recorded.returncode == 0 and sender is not None, recorded.stderr
    record = json.loads(out.read_text())

    taxonomy = Taxonomy.load()
    theirs = Counter(taxonomy.classify(stack).category for stack in perf_stacks(data, sender))
    mine = ours(record)
    # Beside other programs a sender has a part of its CPU.
    assert sum(theirs.values()) > 300 and sum(mine.values()) > 300
    left, right = shares(mine), shares(theirs)
    for category in set(left) | set(right):
        a, b = left.get(category, 0.0), right.get(category, 0.0)
        pooled = (a + b) / 2
        error = math.sqrt(pooled * (1 - pooled) * (1 / sum(mine.values()) + 1 / sum(theirs.values())))
        assert abs(a - b) <= SIGMAS * error + OTHERWISE, f"{category}: {a:.3f} here, {b:.3f} by perf record"
