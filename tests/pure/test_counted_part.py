# SPDX-License-Identifier: GPL-2.0-only
"""perf counts only a part of the ledger segments of a watched program. Its counts are scaled and marked."""

from copyscope.run.counters import CounterRow, Part, scale_to_ledger
from copyscope.run.processes import Use


def measured(value: int) -> CounterRow:
    return CounterRow(value, "ns", "measured", 1.0, None)


def test_counts_of_a_part_are_scaled_and_marked() -> None:
    """Counts are scaled by CPU time, and counts of context switches by the switches that /proc reports."""
    missing = CounterRow(None, "cycles", "unsupported", None, "no PMU")
    parts = [Part("cpu_core", 40, 0.5, 1.0), Part("atom", None, 0.0, None)]
    multiplexed = CounterRow(50, "misses", "scaled", 0.5, None, parts)
    counted_rows = {"task-clock": measured(120), "cycles": missing, "LLC-load-misses": multiplexed}
    # A segment of Use(100, 10, 0), half a segment of Use(50, 5, 15), and then all of three segments.
    counted = Use(100, 10, 0) + Use(50, 5, 15)
    ledger = Use(100, 10, 0) + Use(250, 20, 30) + Use(250, 200, 40)
    scaled = scale_to_ledger({**counted_rows, "context-switches": measured(33)}, counted, ledger)
    assert scaled["task-clock"] == CounterRow(480, "ns", "scaled", 0.25, None)
    assert scaled["context-switches"] == CounterRow(330, "ns", "scaled", 0.1, None)
    assert scaled["cycles"] == missing
    misses = scaled["LLC-load-misses"]
    assert (misses.value, misses.status, misses.running) == (200, "scaled", 0.125)
    assert misses.parts == [Part("cpu_core", 160, 0.125, 1.0), Part("atom", None, 0.0, None)]


def test_counts_of_the_whole_stay_as_they_are() -> None:
    counts = scale_to_ledger({"task-clock": measured(120)}, Use(100, 0), Use(100, 0))
    assert counts == {"task-clock": measured(120)}
