# SPDX-License-Identifier: GPL-2.0-only
"""The table by thread agrees with a program that reports the CPU time of its threads (threads.c)."""

import json
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.ledger.attribution import side_times
from copyscope.ledger.watched_program import thread_shares
from profiling import SLOW, broken_identities, is_root, typed_run
from programs import SAMPLED, watch

PROGRAM = paths.OUTPUT / "tests" / "threads"

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.quiet,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="needs threads: make .output/tests/threads"),
]


def test_each_thread_has_its_cpu_time_and_its_copies(tmp_path: Path) -> None:
    report, seconds = tmp_path / "report", str(2 if SLOW == 1 else 3 * SLOW)
    record = watch(
        *SAMPLED, "--whole", "--frequency", "997", "--", str(PROGRAM), seconds, str(report), check=None
    )
    assert broken_identities(record) == []
    truth = json.loads(report.read_text())
    run = typed_run(record)
    threads_by_name = {
        thread.name: thread for thread in thread_shares(run.raw, side_times(run.raw)["target"])
    }
    samples = sum(thread.samples for thread in threads_by_name.values())
    for name, cpu_ns in truth.items():
        # Four standard errors of a share of one half with this number of samples.
        tolerance = max(0.04, 2 / samples**0.5)
        assert threads_by_name[name].share.share == pytest.approx(
            cpu_ns / sum(truth.values()), abs=tolerance
        ), name
    # Each kind of copy belongs to the thread that makes it.
    assert max(threads_by_name, key=lambda name: threads_by_name[name].copies["gather"] or 0.0) == "copies"
    assert max(threads_by_name, key=lambda name: threads_by_name[name].copies["copy_in"] or 0.0) == "sends"
    assert (threads_by_name["copies"].copies["gather"] or 0.0) > 0.8 * (
        threads_by_name["copies"].share.share or 0.0
    )
    assert threads_by_name["calculates"].copies["gather"] == pytest.approx(0, abs=0.01)
