"""Softirq work on the time of others: what is tied to a run is in its ledger, and nothing else is."""

import time

from copyscope import paths
from copyscope.child import Child
from profiling import SLOW


def test_the_trial_of_the_timers_is_in_no_segment() -> None:
    """Each stack of the report was taken while the timers were armed in a segment, no more and no less."""
    collector = Child("collector", [str(paths.COLLECTOR)])
    try:
        collector.expect("ready", 30 * SLOW)
        collector.ask("symbols", "symbols", 30 * SLOW)
        collector.ask("open sampler", "opened", 30 * SLOW)
        time.sleep(1.0)
        collector.ask("close", "closed", 30 * SLOW)
        report = collector.ask("report", "report", 30 * SLOW)
    finally:
        collector.end()
    taken = sum(row["samples"] for row in report["samples"] if row["event"] == "cpu-clock")
    bursts = report["sampler"]["bursts"]
    assert taken == (bursts["other"]["samples"] if bursts else 0)
