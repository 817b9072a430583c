# SPDX-License-Identifier: GPL-2.0-only
"""Counts of each copy by the collector and by the machine. Pure except `read`."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from copyscope.ledger.attribution import side_weights
from copyscope.ledger.rows import SideEvent, interrupts_of
from copyscope.record.instruments import Event, Sample
from copyscope.run.simulate import counted_stacks
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy
from machine_sums import Truth, truth

# Column of the exact rows -> (event, its name in the machine's counts).
EVENTS = {
    "l1d_misses": ("L1-dcache-load-misses", "l1d_load_misses"),
    "llc_misses": ("LLC-load-misses", "llc_load_misses"),
    "cycles": ("cycles", "cycles"),
    "instructions": ("instructions", "instructions"),
}
# Columns that the sampler samples.
SAMPLED_COLUMNS = ("l1d_misses", "llc_misses", "cycles")
# Copies of each strategy. `gather` is all work of the sender of two_copy in user mode.
COPIES = {
    "one_copy": ("copy_in", "copy_out"),
    "two_copy": ("gather", "copy_in", "copy_out"),
    "zero_copy": ("pin", "deferred", "copy_out"),
    "sendfile": ("copy_out",),
    "uring_send": ("copy_in", "copy_out"),
}
SIDES = ("sender", "receiver")
# Copy -> (category, process), if these are not the ledger's account and both processes.
SPECIAL_ROWS = {"gather": ("user", "sender")}
# Maximum relative error of a copy in the exact tier; larger errors are reported.
GOAL = 0.05


def relative_error(found: float, truth: float) -> float:
    """Return the relative error of a count. Counts of something that did not happen are infinitely wrong."""
    return found / truth - 1 if truth else math.inf if found else 0.0


@dataclass(frozen=True)
class Run:
    """Results of one guest: the collector's report, as rows of a record, and the counts of the machine."""

    impl: str
    size: str
    kib: float
    cells: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    report: Mapping[str, Any]
    truth: Truth


@dataclass(frozen=True)
class Figure:
    """Counts of an event in one copy, per KiB delivered. `deviation`: a standard deviation of the samples."""

    impl: str
    copy: str
    column: str
    tier: str
    truth: float
    found: float | None
    deviation: float | None = None
    reason: str | None = None
    size: str = "64K"

    @property
    def error(self) -> float | None:
        """Return the relative error, or None if nothing was counted or sampled."""
        return None if self.found is None else relative_error(self.found, self.truth)

    @property
    def missed(self) -> bool:
        """Return True if the error exceeds the goal or is unknown."""
        return self.error is None or abs(self.error) > GOAL

    @property
    def name(self) -> str:
        return f"{self.impl} {self.size} {self.copy} {self.column}"


@dataclass(frozen=True)
class Shown:
    """Count of an event in a row of the ledger with its interval, and the machine's count."""

    name: str
    truth: float
    count: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Return True if the interval contains the machine's count."""
        return self.low <= self.truth <= self.high


def read(directory: Path, impl: str, size: str) -> Run:
    """Read the files of a guest. Raises OSError, RunError, ValueError or KeyError if they are incomplete."""
    report, receiver_report = (
        json.loads((directory / f"{name}.json").read_text()) for name in ("report", "receiver")
    )
    # Empty if no event of a whole CPU was on: then the machine counted nothing.
    measured = counted_stacks.parse((directory / "counted").read_text())
    stacks = measured[-1].stacks if measured else ()
    taxonomy = Taxonomy.load()
    return Run(
        *(impl, size, receiver_report["bytes"] / 1024, (report.get("functions") or {}).get("cells", [])),
        list(map(dict, to_record(report["samples"], taxonomy))),
        report,
        truth(stacks, (directory / "symbols").read_text(), taxonomy),
    )


def exact(run: Run) -> Iterator[Figure]:
    """Yield the counts of each copy by function hooks, which include the hooks' own reads."""
    for copy in COPIES[run.impl]:
        category, side = SPECIAL_ROWS.get(copy, (copy, None))
        cells = [cell for cell in run.cells if cell["category"] in (copy, f"{copy}_pages")]
        cells = [cell for cell in cells if cell["side"] != "other"]
        for column, (event, machine_column) in EVENTS.items():
            values = [cell["counters"].get(event) for cell in cells]
            all_known = bool(values) and None not in values
            yield Figure(
                *(run.impl, copy, column, "exact"),
                truth=run.truth.hooked(machine_column, category, side=side) / run.kib,
                found=sum(values) / run.kib if all_known else None,
                reason=None if all_known else "not counted" if values else "no function of it is hooked",
                size=run.size,
            )


def exact_side(run: Run, side: str, column: str) -> tuple[float, float] | None:
    """Return (counts of all hooks of a process, counts of the machine), or None if a row has no number."""
    values = [cell["counters"].get(EVENTS[column][0]) for cell in run.cells if cell["side"] == side]
    if not values or None in values:
        return None
    return sum(values), run.truth.with_instruments(EVENTS[column][1], side, user=False)


def sampled(run: Run) -> Iterator[Figure]:
    """Yield the counts of each copy by samples."""
    for copy in COPIES[run.impl]:
        for column in EVENTS:
            figure = sampled_copy(run, copy, column)
            if figure is not None:
                yield figure


def sampled_copy(run: Run, copy: str, column: str) -> Figure | None:
    """Return the counts of one copy by samples, less those of its interrupts; None if it was not sampled."""
    event, machine_column = EVENTS[column]
    category, side = SPECIAL_ROWS.get(copy, (copy, None))
    own_rows = [row for row in run.samples if row["side"] != "other"]
    rows = [row for row in own_rows if row["event"] == event]
    if not rows:
        return None
    hits = [row for row in own_rows if row["category"] == category and row["side"] == (side or row["side"])]
    copy_rows = [row for row in hits if row["event"] == event]
    of_interrupts = sum(row["samples"] for row in hits) * (_cost(run, event)["mean"] or 0.0)
    machine_count = run.truth.of(machine_column, category, side=side)
    return Figure(
        *(run.impl, copy, column, "sampled"),
        truth=machine_count / run.kib,
        found=(sum(row["weight"] for row in copy_rows) - of_interrupts) / run.kib,
        deviation=_deviation(rows, copy_rows, machine_count) / run.kib,
        size=run.size,
    )


def _cost(run: Run, name: str) -> Mapping[str, Any]:
    """Return what the collector measured of its interrupts, for one event."""
    (event,) = (event for event in run.report["sampler"]["events"] if event["name"] == name)
    cost: Mapping[str, Any] = event.get("per_interrupt") or {"mean": None, "reason": event["reason"]}
    return cost


def _deviation(rows: list[dict[str, Any]], copy_rows: list[dict[str, Any]], expected_sum: float) -> float:
    """Return the standard deviation of a sum of weights, at least that of the expected sum."""
    weight = sum(row["weight"] for row in rows)
    expected = expected_sum * _squared(rows) / weight if weight else 0.0
    return math.sqrt(max(_squared(copy_rows), expected))


def _squared(rows: list[dict[str, Any]]) -> float:
    return float(sum(row["weight_squared"] for row in rows))


def sampled_side(run: Run, side: str, column: str) -> tuple[float, float, float]:
    """Return (sum of the weights of a process's samples, its standard deviation, the machine's count)."""
    event, machine_column = EVENTS[column]
    rows = [row for row in run.samples if row["event"] == event and row["side"] == side]
    weight = sum(row["weight"] for row in rows)
    return weight, math.sqrt(_squared(rows)), run.truth.with_instruments(machine_column, side)


def shown(run: Run) -> Iterator[Shown]:
    """Yield the counts of copies as the ledger shows them, if perf counted what the machine counted."""
    events = msgspec.convert(run.report["sampler"]["events"], list[Event])
    samples = msgspec.convert(run.samples, list[Sample])
    for side, column in product(SIDES, SAMPLED_COLUMNS):
        name, machine_column = EVENTS[column]
        weights = side_weights(samples, side, (name,))
        if not weights.all_weight:
            continue
        scale = run.truth.with_instruments(machine_column, side) / weights.all_weight
        interrupts = interrupts_of(events, samples, side, (name,))
        event = SideEvent(weights, scale, None, interrupts=interrupts)
        for key in weights.samples:
            counts = run.truth.rows.get((key.category, side, key.context))
            estimate = event.estimate(key)
            if key.category in COPIES[run.impl] and counts is not None and estimate is not None:
                title = f"{run.impl} {run.size} {key.category} {side} {key.context} {column}"
                yield Shown(title, counts[machine_column], estimate[0], estimate[1].low, estimate[1].high)


def per_interrupt(run: Run, side: str, column: str) -> str:
    """Compare the events of one interrupt: by the collector, with its standard deviation, and the machine."""
    name, machine_column = EVENTS[column]
    interrupts = sum(row["samples"] for row in run.samples if row["side"] == side)
    machine = run.truth.of_interrupts(machine_column, side) / interrupts
    cost = _cost(run, name)
    if cost["mean"] is None:
        return f"{column} of an interrupt: {cost['reason']}; machine {machine:.1f}"
    return f"{column} of an interrupt: {cost['mean']:.1f} ({cost['deviation']:.1f}), machine {machine:.1f}"


def to_rows(figures: list[Figure]) -> list[dict[str, Any]]:
    """Return the figures as rows of results/pmu.json."""
    return [asdict(figure) for figure in figures]
