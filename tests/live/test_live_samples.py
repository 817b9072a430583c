# SPDX-License-Identifier: GPL-2.0-only
"""The collector reports new samples to the live view, each once; together they are the final report's."""

import os
import time

import pytest
from copyscope.base import paths
from copyscope.run.child import Child
from profiling import SLOW, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


def count(rows: list[dict[str, int]]) -> int:
    return sum(row["samples"] for row in rows)


def test_each_sample_is_reported_once() -> None:
    collector = Child("collector", [str(paths.COLLECTOR), "--watch"])
    try:
        collector.expect("ready", 30 * SLOW)
        collector.ask("symbols", "symbols", 30 * SLOW)
        collector.ask("open watch,volume", "opened", 30 * SLOW)
        collector.ask(f"target target {os.getpid()}", "target", 30 * SLOW)
        reported = []
        for _ in range(3):
            collector.ask("open sampler", "opened", 30 * SLOW)
            end_s = time.process_time() + 0.2
            while time.process_time() < end_s:
                pass
            collector.ask("close", "closed", 30 * SLOW)
            reported.append(count(collector.ask("samples", "samples", 30 * SLOW)["samples"]))
        assert collector.ask("samples", "samples", 30 * SLOW)["samples"] == []
        report = collector.ask("report", "report", 30 * SLOW)
    finally:
        collector.end()
    assert min(reported) > 0
    assert sum(reported) == count(report["samples"]) > 0
