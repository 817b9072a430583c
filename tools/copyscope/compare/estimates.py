"""Points: the runs of one setting, and what they say together. Pure.

An estimate is a median over repeats with its interval (stats.median_of). Two points are compared repeat by
repeat: repeat N of both ran in the same block, so that a drift of the machine is in both.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from copyscope import stats
from copyscope.compare.metrics import read
from copyscope.compare.settings import Scalar, factors
from copyscope.grouping import grouped
from copyscope.record.segments import Record

RowKey = tuple[str, str, str]
MORE, LESS, SAME = "more", "less", "no difference found"


@dataclass(frozen=True)
class Point:
    """The runs of one setting, in the order of their repeats."""

    factors: Mapping[str, Scalar]
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Estimate:
    """A median with its interval; low and high are None after one repeat, and level is 0 then."""

    value: float
    low: float | None
    high: float | None
    level: float
    samples: int

    def against(self, value: float) -> str:
        """Whether this is more or less than a value, or no difference was found: the interval holds it."""
        if self.low is None or self.high is None or self.low <= value <= self.high:
            return SAME
        return MORE if self.low > value else LESS


@dataclass(frozen=True)
class Missing:
    """Why there is no estimate."""

    reason: str


def group(records: Iterable[Record], *, valid_only: bool = True) -> list[Point]:
    """The points of some records, sorted by their factors; without invalid runs, which are never averaged."""
    wanted = (record for record in records if record["verdict"]["valid"] or not valid_only)
    found = grouped(wanted, lambda record: tuple(sorted(factors(record).items())))
    points = [
        Point(dict(key), tuple(sorted(runs, key=lambda run: (run["run"]["repeat"], run["run"]["id"]))))
        for key, runs in found.items()
    ]
    return sorted(points, key=lambda point: [(name, _rank(v)) for name, v in sorted(point.factors.items())])


def _rank(value: Scalar) -> tuple[int, float, str]:
    """Numbers by size, before text, after null: values of one factor can be of several kinds."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, str):
        return (2, 0.0, value)
    return (1, float(value), "")


def estimate(point: Point, metric: str) -> Estimate | Missing:
    """A metric over the repeats of a point; of those repeats that have it."""
    readings = [read(record, metric) for record in point.records]
    values = [reading.value for reading in readings if reading.value is not None]
    if values:
        return from_median(stats.median_of(values))
    return Missing(next((r.reason for r in readings if r.reason), f"{metric}: no run"))


def ratio(point_a: Point, point_b: Point, metric: str) -> Estimate | Missing:
    """A metric of a over that of b, paired by repeat."""
    found = pairs(point_a, point_b, metric)
    return found if isinstance(found, Missing) else from_median(stats.ratio_of(found))


def pairs(point_a: Point, point_b: Point, metric: str) -> list[tuple[float, float]] | Missing:
    """A metric of both, of each repeat in which both have one above zero."""
    ours, theirs = ({r["run"]["repeat"]: read(r, metric) for r in p.records} for p in (point_a, point_b))
    found = []
    why = f"{metric}: no repeat that both have"
    for repeat in sorted(ours.keys() & theirs):
        a, b = ours[repeat], theirs[repeat]
        if a.value is None or b.value is None:
            why = str(a.reason or b.reason)
        elif a.value <= 0 or b.value <= 0:
            why = f"{metric}: zero has no ratio"
        else:
            found.append((a.value, b.value))
    return found or Missing(why)


def from_median(found: stats.Median) -> Estimate:
    """The same as an estimate."""
    if found.interval is None:
        return Estimate(found.value, None, None, 0.0, found.samples)
    return Estimate(found.value, found.interval.low, found.interval.high, found.interval.level, found.samples)


def account_estimates(point: Point) -> dict[RowKey, Estimate]:
    """(account or stage, side, context) -> ns per KiB delivered, over the repeats that sampled that side.

    A row that a repeat does not have is 0 there: its side was sampled, and nothing of it was seen. Work on
    the time of others was looked for wherever anything was sampled.
    """
    tables = [row_costs(record) for record in point.records]
    sampled = [{side for side, row in record["sides"].items() if row["samples"]} for record in point.records]
    for sides in filter(None, sampled):
        sides.add("other")
    found = {}
    for key in sorted({key for table in tables for key in table if any(key[1] in s for s in sampled)}):
        values = [
            table.get(key, 0.0) for table, sides in zip(tables, sampled, strict=True) if key[1] in sides
        ]
        made = from_median(stats.median_of(values))
        # a cost is never negative, whatever the spread of a few repeats around a small one says
        low = None if made.low is None else max(0.0, made.low)
        found[key] = Estimate(made.value, low, made.high, made.level, made.samples)
    return found


def row_costs(record: Record) -> dict[RowKey, float]:
    """(account or stage, side, context) -> ns per KiB, of the rows of a record that have a time."""
    return {key: float(row["ns_per_kib"]) for key, row in keyed_rows(record) if row["ns_per_kib"] is not None}


def keyed_rows(record: Record) -> Iterator[tuple[RowKey, Mapping[str, Any]]]:
    """Each row of the ledger and of the stages by (account or stage, side, context)."""
    for section, name in (("ledger", "account"), ("stages", "stage")):
        for row in record[section]:
            yield (str(row[name]), row["side"], row["context"]), row
