"""perf counts a part of a watched program's ledger segments: its counts are scaled to all, and say so."""

from copyscope.run.counters import CountedPart, Counter, Part
from copyscope.run.processes import Use


def measured(value: int) -> Counter:
    return Counter(value, "ns", "measured", 1.0, None)


def test_counts_of_a_part_are_scaled_and_marked() -> None:
    """By CPU time, or by switches of both kinds where these are counted."""
    counts = CountedPart()
    missing = Counter(None, "cycles", "unsupported", None, "no PMU")
    parts = [Part("cpu_core", 40, 0.5, 1.0), Part("atom", None, 0.0, None)]
    multiplexed = Counter(50, "misses", "scaled", 0.5, None, parts)
    made = {"task-clock": measured(120), "cycles": missing, "LLC-load-misses": multiplexed}
    # One segment before that one, of which a part had passed; then another.
    counts.add(Use(100, 10, 0))
    counts.keep({**made, "context-switches": measured(33)}, Use(50, 5, 15))
    counts.add(Use(250, 20, 30))
    counts.add(Use(250, 200, 40))
    whole = counts.whole()
    assert whole["task-clock"] == Counter(480, "ns", "scaled", 0.25, None)
    assert whole["context-switches"] == Counter(330, "ns", "scaled", 0.1, None)
    assert whole["cycles"] == missing
    misses = whole["LLC-load-misses"]
    assert (misses.value, misses.status, misses.running) == (200, "scaled", 0.125)
    assert misses.parts == [Part("cpu_core", 160, 0.125, 1.0), Part("atom", None, 0.0, None)]


def test_counts_of_the_whole_stay_as_they_are() -> None:
    counts = CountedPart()
    counts.keep({"task-clock": measured(120)}, Use(100, 0))
    counts.add(Use(100, 0))
    assert counts.whole() == {"task-clock": measured(120)}
