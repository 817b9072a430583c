"""Where the saved copy went: what each part of the work costs more or less with zero-copy than without.

The difference between two strategies in ns per KiB of payload, split by what the ledger knows: the copy that
was saved, what stands for it (pinning, the deferred or silent copy, completions), the work per packet (which
grows when referenced pages make smaller packets: at most 17 fragments each, net/core/skbuff.h MAX_SKB_FRAGS),
and the rest. The parts of each repeat add up to its difference; medians of parts do so only nearly, so the
last part is what the others leave of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from copyscope import stats
from copyscope.points import Estimate, Missing, Point, from_median, row_costs
from copyscope.segments import Record
from copyscope.sheet import Row

# what a step is called -> the accounts and stages that it is made of
PARTS: dict[str, tuple[str, ...]] = {
    "gather": ("gather",),
    "copy in": ("copy_in",),
    "pin": ("pin",),
    "deferred copy": ("deferred", "silent"),
    "completion": ("completion",),
    "work per packet": ("skb_alloc", "tcp_ip", "device", "softirq"),
    "copy out": ("copy_out",),
    "wakeups": ("wakeup_sched",),
}
REST = "rest"


@dataclass(frozen=True)
class Step:
    """One part of the difference, ns per KiB: negative is saved, positive is dearer."""

    name: str
    change: Estimate


@dataclass(frozen=True)
class Waterfall:
    """From what `before` costs to what `after` costs, all sides together, ns per KiB."""

    before: Row
    after: Row
    start: float
    end: float
    steps: tuple[Step, ...]


def waterfalls(
    rows: Sequence[Row], before: str = "one_copy", after: str = "zero_copy"
) -> list[Waterfall | Missing]:
    """One per setting that both strategies were measured in."""
    return [found for a, b in counterparts(rows, before, after) if (found := waterfall(a, b)) is not None]


def counterparts(rows: Sequence[Row], a: str, b: str) -> list[tuple[Row, Row]]:
    """Pairs of rows that differ in the strategy only, in the order of the sheet."""
    theirs = {_setting(row): row for row in rows if row.impl == b}
    return [(row, theirs[_setting(row)]) for row in rows if row.impl == a and _setting(row) in theirs]


def _setting(row: Row) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in row.factors.items() if name != "impl"))


def waterfall(before: Row, after: Row) -> Waterfall | Missing:
    """The steps from one point to the other, paired by repeat."""
    pairs = list(_pairs(before.point, after.point))
    if not before.valid or not after.valid or not pairs:
        return Missing("no repeat in which both were valid and sampled")
    differences = [(_parts(a), _parts(b)) for a, b in pairs]
    steps = []
    for name in PARTS:
        changes = [b.get(name, 0.0) - a.get(name, 0.0) for a, b in differences]
        if any(changes):
            steps.append(Step(name, from_median(stats.median_of(changes))))
    start = median(sum(a.values()) for a, _ in differences)
    end = median(sum(b.values()) for _, b in differences)
    rests = [b.get(REST, 0.0) - a.get(REST, 0.0) for a, b in differences]
    spread = from_median(stats.median_of(rests))
    left = end - start - sum(step.change.value for step in steps)
    moved = left - spread.value  # the interval stays where its centre goes
    low, high = (None if end is None else end + moved for end in (spread.low, spread.high))
    steps.append(Step(REST, Estimate(left, low, high, spread.level, spread.samples)))
    return Waterfall(before, after, start, end, tuple(steps))


def _pairs(a: Point, b: Point) -> Iterable[tuple[Record, Record]]:
    """The repeats that both points have with sampled rows."""
    theirs = {r["run"]["repeat"]: r for r in b.records if row_costs(r)}
    for record in a.records:
        if record["run"]["repeat"] in theirs and row_costs(record):
            yield record, theirs[record["run"]["repeat"]]


def _parts(record: Record) -> dict[str, float]:
    """ns per KiB of each part of one run, all sides and contexts."""
    part_of = {category: part for part, categories in PARTS.items() for category in categories}
    found: dict[str, float] = {}
    for (category, _, _), cost in row_costs(record).items():
        part = part_of.get(category, REST)
        found[part] = found.get(part, 0.0) + cost
    return found
