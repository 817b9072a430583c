"""What the collector says of each copy, beside what the machine counted meanwhile. Pure but for `read`."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from copyscope.simulate import output
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy
from machine_sums import Truth, truth

# Column of the exact rows -> the event, and what the machine calls it.
EVENTS = {
    "l1d_misses": ("L1-dcache-load-misses", "l1d_load_misses"),
    "llc_misses": ("LLC-load-misses", "llc_load_misses"),
    "cycles": ("cycles", "cycles"),
    "instructions": ("instructions", "instructions"),
}
# The copies of each strategy; what two_copy gathers is all that its sender does in user mode.
COPIES = {
    "one_copy": ("copy_in", "copy_out"),
    "two_copy": ("gather", "copy_in", "copy_out"),
    "zero_copy": ("pin", "deferred", "copy_out"),
}
# Copy -> category and side, where they are not those of the ledger's account on both sides.
ELSEWHERE = {"gather": ("user", "sender")}
# How far a copy may be off (exact tier), in all of these; what is further is named.
GOAL = 0.05


@dataclass(frozen=True)
class Run:
    """What the collector reported, as rows of a record; what the machine counted while its events were on."""

    impl: str
    kib: float
    cells: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    report: Mapping[str, Any]
    truth: Truth


@dataclass(frozen=True)
class Figure:
    """One event of one copy, per KiB delivered; deviation: one standard deviation of the samples."""

    impl: str
    copy: str
    column: str
    tier: str
    truth: float
    found: float | None
    deviation: float | None = None
    reason: str | None = None

    @property
    def error(self) -> float | None:
        """The part by which it is too large; None where nothing is there."""
        return None if self.found is None or not self.truth else self.found / self.truth - 1

    @property
    def missed(self) -> bool:
        """Further off than the goal allows."""
        return self.error is None or abs(self.error) > GOAL

    @property
    def name(self) -> str:
        return f"{self.impl} {self.copy} {self.column}"


def read(kept: Path, impl: str) -> Run:
    """What a guest left. Raises OSError, RunError, ValueError or KeyError for what is not whole."""
    report, arrived = (json.loads((kept / f"{name}.json").read_text()) for name in ("report", "receiver"))
    # None where no event of a whole CPU was on: then nothing was counted, nor modelled.
    measured = output.parse((kept / "counted").read_text())
    stacks = measured[-1].stacks if measured else ()
    taxonomy = Taxonomy.load()
    return Run(
        *(impl, arrived["bytes"] / 1024, (report.get("functions") or {}).get("cells", [])),
        to_record(report["samples"], taxonomy),
        report,
        truth(stacks, (kept / "symbols").read_text(), taxonomy),
    )


def exact(run: Run) -> Iterator[Figure]:
    """What the function hooks counted in each copy, with their own looks."""
    for copy in COPIES[run.impl]:
        category, side = ELSEWHERE.get(copy, (copy, None))
        cells = [cell for cell in run.cells if cell["category"] in (copy, f"{copy}_pages")]
        cells = [cell for cell in cells if cell["side"] != "other"]
        for column, (event, counted) in EVENTS.items():
            values = [cell["counters"].get(event) for cell in cells]
            known = bool(values) and None not in values
            yield Figure(
                *(run.impl, copy, column, "exact"),
                truth=run.truth.hooked(counted, category, side=side) / run.kib,
                found=sum(values) / run.kib if known else None,
                reason=None if known else "not counted" if values else "no function of it is hooked",
            )


def exact_side(run: Run, side: str, column: str) -> tuple[float, float] | None:
    """All that the hooks counted on a side, and what there was to count; None where a cell has no number."""
    values = [cell["counters"].get(EVENTS[column][0]) for cell in run.cells if cell["side"] == side]
    if not values or None in values:
        return None
    return sum(values), run.truth.with_instruments(EVENTS[column][1], side, user=False)


def sampled(run: Run) -> Iterator[Figure]:
    """What the samples say of each copy."""
    for copy in COPIES[run.impl]:
        for column in EVENTS:
            figure = sampled_copy(run, copy, column)
            if figure is not None:
                yield figure


def sampled_copy(run: Run, copy: str, column: str) -> Figure | None:
    """The same of one; None where this event was not sampled on any side."""
    event, counted = EVENTS[column]
    rows = [row for row in run.samples if row["event"] == event and row["side"] != "other"]
    if not rows:
        return None
    category, side = ELSEWHERE.get(copy, (copy, None))
    mine = [row for row in rows if row["category"] == category and row["side"] == (side or row["side"])]
    true = run.truth.of(counted, category, side=side)
    return Figure(
        *(run.impl, copy, column, "sampled"),
        truth=true / run.kib,
        found=sum(row["weight"] for row in mine) / run.kib,
        deviation=_deviation(rows, mine, true) / run.kib,
    )


def _deviation(rows: list[dict[str, Any]], mine: list[dict[str, Any]], true: float) -> float:
    """Of a sum of weights: the root of the sum of their squares, or of those that the truth would have."""
    weight = sum(row["weight"] for row in rows)
    expected = true * _squared(rows) / weight if weight else 0.0
    return math.sqrt(max(_squared(mine), expected))


def _squared(rows: list[dict[str, Any]]) -> float:
    return float(sum(row["weight_squared"] for row in rows))


def sampled_side(run: Run, side: str, column: str) -> tuple[float, float, float]:
    """The weights of a side's samples, their standard deviation, and what there was to sample."""
    event, counted = EVENTS[column]
    rows = [row for row in run.samples if row["event"] == event and row["side"] == side]
    weight = sum(row["weight"] for row in rows)
    return weight, math.sqrt(_squared(rows)), run.truth.with_instruments(counted, side)


def to_rows(figures: list[Figure]) -> list[dict[str, Any]]:
    """As they are kept."""
    return [asdict(figure) for figure in figures]
