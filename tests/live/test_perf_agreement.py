# SPDX-License-Identifier: GPL-2.0-only
"""perf record samples the same run, and its stacks give the same shares by the same taxonomy."""

import json
import math
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from copyscope.taxonomy.taxonomy import Taxonomy
from peers import kernel_stacks
from profiling import RUN, SLOW, child_named, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.quiet,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# Tolerance in standard errors.
SIGMAS = 3.5
# Further tolerance, because perf also samples segments without instruments, which do different work.
EXTRA_TOLERANCE = 0.05
# A guest takes fewer samples than requested.
STRETCH = max(1.0, SLOW / 2)
# Categories that are not compared: the code that takes samples differs between perf and copyscope, and perf
# also samples wake-ups in the pauses between segments.
NOT_COMPARED = {"instruments", "wakeup_sched"}


def perf_stacks(data: Path, pid: int) -> list[list[str]]:
    """Return the kernel frames of each sample of a process, leaf first (empty for a sample in user mode)."""
    argv = ["perf", "script", "-i", str(data), "--pid", str(pid), "-F", "ip,sym", "--no-inline"]
    return kernel_stacks(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def shares(counts: Counter[str]) -> dict[str, float]:
    compared = {name: n for name, n in counts.items() if name not in NOT_COMPARED}
    return {name: n / sum(compared.values()) for name, n in compared.items()}


def our_samples(record: dict[str, Any]) -> Counter[str]:
    samples: Counter[str] = Counter()
    for row in record["samples"]:
        if row["side"] == "sender":
            samples[row["category"]] += row["samples"]
    return samples


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
    # Sample each CPU, as copyscope does: perf would sample itself setting the timer of a task at each switch.
    perf = ["perf", "record", "-q", "-g", "-a", "-e", "cpu-clock", "-c", "1003009", "-o", str(data)]
    perf += ["--", "sleep", str(3.5 * STRETCH)]
    recorded = subprocess.run(perf, check=False, capture_output=True, text=True)
    assert run.wait(timeout=30 * SLOW) in (0, 1)
    assert recorded.returncode == 0 and sender is not None, recorded.stderr
    record = json.loads(out.read_text())

    taxonomy = Taxonomy.load()
    perf_counts = Counter(taxonomy.classify(stack).category for stack in perf_stacks(data, sender))
    our_counts = our_samples(record)
    # Other programs may take a part of the sender's CPU.
    assert sum(perf_counts.values()) > 300 and sum(our_counts.values()) > 300
    our_shares, perf_shares = shares(our_counts), shares(perf_counts)
    for category in set(our_shares) | set(perf_shares):
        our_share, perf_share = our_shares.get(category, 0.0), perf_shares.get(category, 0.0)
        pooled = (our_share + perf_share) / 2
        error = math.sqrt(
            pooled * (1 - pooled) * (1 / sum(our_counts.values()) + 1 / sum(perf_counts.values()))
        )
        assert abs(our_share - perf_share) <= SIGMAS * error + EXTRA_TOLERANCE, (
            f"{category}: {our_share:.3f} here, {perf_share:.3f} by perf record"
        )
