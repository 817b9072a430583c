# SPDX-License-Identifier: GPL-2.0-only
"""Check the output of a guest without Python (script `inside`): bytes, and counters against another reader.

COPYSCOPE_GUEST_RESULTS is the directory that the guest filled; make check-kernels sets it. Over lo, every
byte of a zero-copy send is copied late, in the time of the receiving process.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

RESULTS = os.environ.get("COPYSCOPE_GUEST_RESULTS", "")
pytestmark = pytest.mark.skipif(
    not RESULTS, reason="COPYSCOPE_GUEST_RESULTS: not set: run make check-kernels"
)

SIZE = 40_000
MESSAGES = 23
CALLS = {"per_field": 8, "two_copy": 1, "one_copy": 1, "zero_copy": 1}
LONG_BYTES = 32 << 20
LONG = ("one_copy_long", "zero_copy_long")

Report = dict[str, Any]


def last(run: str, program: str) -> Report:
    """Return the final report of a program."""
    lines = (Path(RESULTS) / run / f"{program}.jsonl").read_text().splitlines()
    report: Report = json.loads(lines[-1])
    assert report["event"] == "report"
    return report


def cells(run: str) -> list[Report]:
    rows: list[Report] = last(run, "collector")["functions"]["cells"]
    return rows


def total(run: str, category: str, key: str) -> int:
    return sum(cell[key] for cell in cells(run) if cell["category"] == category)


def counted_outside(run: str) -> Report:
    """Return the counts of the sender's threads in kernel mode, read by thread_counter.c."""
    counts: Report = json.loads((Path(RESULTS) / run / "counter.json").read_text())
    return counts


def keep_figure(name: str, value: str) -> None:
    """Save a figure for the page of the matrix (outcome.py)."""
    path = Path(RESULTS) / "figures.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**figures, name: value}, indent=1) + "\n")


@pytest.mark.parametrize("impl", CALLS)
def test_23_messages_are_counted_to_the_byte(impl: str) -> None:
    sent = MESSAGES * SIZE
    referenced = sent if impl == "zero_copy" else 0
    assert last(impl, "sender")["bytes"] == last(impl, "receiver")["bytes"] == sent
    assert total(impl, "copy_in", "bytes") == sent - referenced
    assert total(impl, "pin", "bytes") == referenced
    assert total(impl, "deferred", "bytes") == referenced
    assert total(impl, "copy_out", "bytes") == sent


@pytest.mark.parametrize("run", [*CALLS, *LONG])
def test_no_event_is_lost(run: str) -> None:
    losses = last(run, "collector")["loss"]
    counts = {name: lost["count"] if isinstance(lost, dict) else lost for name, lost in losses.items()}
    assert {name: count for name, count in counts.items() if count} == {}


def test_the_emulated_pmu_accepts_events_that_it_never_counts() -> None:
    """A counter that always reads 0 must be called unsupported: the kernel opens such events."""
    outside = counted_outside("one_copy_long")
    assert outside["cycles"] > 1e6 and outside["instructions"] > 1e6
    assert outside["raw_0x03"] == outside["raw_0x37"] == 0
    assert outside["LLC-load-misses"] is None


def counters_of(run: str, event: str, category: str | None = None) -> int:
    """Return the sum of an event in the sender's hooked functions, of all categories or of one."""
    return sum(
        cell["counters"][event]
        for cell in cells(run)
        if cell["side"] == "sender" and category in (None, cell["category"])
    )


@pytest.mark.parametrize("event", ["cycles", "instructions"])
@pytest.mark.parametrize("run", LONG)
def test_counters_per_copy_are_a_part_of_the_kernel_mode_of_the_thread(run: str, event: str) -> None:
    """Every copy was timed (--functions-gate 1), so nothing is scaled.

    Copies are a part of the kernel mode.
    """
    inside, outside = counters_of(run, event), counted_outside(run)[event]
    keep_figure(
        f"{run}, {event}",
        f"{inside} in copies, {outside} of the sender in kernel mode: {inside / outside:.1%}",
    )
    assert 0 < inside < outside


@pytest.mark.parametrize(("run", "category"), [("one_copy_long", "copy_in"), ("zero_copy_long", "pin")])
def test_each_copy_has_counters_of_its_own(run: str, category: str) -> None:
    kib = total(run, category, "bytes") / 1024
    per_kib = {event: counters_of(run, event, category) / kib for event in ("cycles", "instructions")}
    keep_figure(
        f"{run}, {category}",
        f"{per_kib['cycles']:.0f} cycles/KiB, {per_kib['instructions']:.0f} instructions/KiB",
    )
    assert total(run, category, "bytes") == LONG_BYTES
    for event in per_kib:
        assert 0 < counters_of(run, event, category) <= counters_of(run, event)


def events_of(run: str) -> dict[str, Report]:
    return {row["name"]: row for row in last(run, "collector")["functions"]["events"]}


def test_events_of_this_pmu_are_counted_and_others_are_unsupported() -> None:
    events = events_of("one_copy_long")
    assert {name: row["status"] for name, row in events.items()} == {
        **{"cycles": "counted", "instructions": "counted"},
        **{"LLC-load-misses": "unsupported", "L1-dcache-load-misses": "unsupported"},
    }
    assert all(row["reason"] for row in events.values() if row["status"] == "unsupported")


def test_an_event_that_opens_but_never_counts_is_unsupported_not_zero() -> None:
    events = events_of("one_copy_raw")
    for name in ("r03", "r37"):
        assert events[name]["status"] == "unsupported" and "counted nothing" in events[name]["reason"]
    assert {name for cell in cells("one_copy_raw") for name in cell["counters"]} == {"cycles", "instructions"}
