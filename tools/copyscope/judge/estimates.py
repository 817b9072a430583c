"""Points: the runs of one setting, and what they say together, in metrics, rows and parts of the time. Pure.

An estimate is a median over repeats with its interval (stats.median_of). Two points are compared repeat by
repeat: repeat N of both ran in the same block, so that a drift of the machine is in both.

A ledger row with a few samples has a median of zero over repeats and a mean above it, and a short run may
not sample a side at all; so neither medians nor sums of rows come to what the counters say was spent. Parts
that add up to it come from dividing each side's CPU time by its own rows: in a run that did not sample it, by
those of the other runs of the point; where no run did, it is `unattributed`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from copyscope import stats
from copyscope.grouping import grouped
from copyscope.judge.metrics import Scalar, cpu_per_kib, factors, read, spenders
from copyscope.ledger.attribution import SIDES
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow, StageRow
from copyscope.stats import Estimate, Missing

RowKey = tuple[str, str, str]
# accounts and stages of each group; what is named nowhere is the rest
GROUPS: dict[str, tuple[str, ...]] = {
    "copies": ("file_read", "gather", "copy_in", "deferred", "silent", "copy_out", "tun"),
    "pin": ("pin",),
    "completion": ("completion",),
    "mapped": ("mapped",),
    "cipher": ("user_encrypt", "encrypt", "decrypt"),
    "packets": ("skb_alloc", "tcp_ip", "device", "softirq"),
}
REST = "rest"
Parts = dict[str, float]  # account or stage -> ns per KiB, all sides and contexts


@dataclass(frozen=True)
class Point:
    """The runs of one setting, in the order of their repeats."""

    factors: Mapping[str, Scalar]
    runs: tuple[Whole, ...]


def group(runs: Iterable[Whole], *, valid_only: bool = True) -> list[Point]:
    """The points of some runs, sorted by their factors; without invalid ones, which are never averaged."""
    wanted = (run for run in runs if run.derived.verdict.valid or not valid_only)
    found = grouped(wanted, lambda run: tuple(sorted(factors(run).items())))
    points = [
        Point(dict(key), tuple(sorted(runs, key=lambda run: (run.raw.run.repeat, run.raw.run.id))))
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
    found = [read(run, metric) for run in point.runs]
    values = [one for one in found if not isinstance(one, Missing)]
    if values:
        return stats.median_of(values)
    return next((one for one in found if isinstance(one, Missing)), Missing(f"{metric}: no run"))


def ratio(point_a: Point, point_b: Point, metric: str) -> Estimate | Missing:
    """A metric of a over that of b, paired by repeat."""
    found = pairs(point_a, point_b, metric)
    return found if isinstance(found, Missing) else stats.ratio_of(found)


def pairs(point_a: Point, point_b: Point, metric: str) -> list[tuple[float, float]] | Missing:
    """A metric of both, of each repeat in which both have one above zero."""
    ours, theirs = ({run.raw.run.repeat: read(run, metric) for run in p.runs} for p in (point_a, point_b))
    found = []
    why = Missing(f"{metric}: no repeat that both have")
    for repeat in sorted(ours.keys() & theirs):
        a, b = ours[repeat], theirs[repeat]
        if isinstance(a, Missing) or isinstance(b, Missing):
            why = next(one for one in (a, b) if isinstance(one, Missing))
        elif a <= 0 or b <= 0:
            why = Missing(f"{metric}: zero has no ratio")
        else:
            found.append((a, b))
    return found or why


def account_estimates(point: Point) -> dict[RowKey, Estimate]:
    """(account or stage, side, context) -> ns per KiB delivered, over the repeats that sampled that side.

    A row that a repeat does not have is 0 there: its side was sampled, and nothing of it was seen. Work on
    the time of others was looked for wherever anything was sampled.
    """
    tables = [row_costs(run) for run in point.runs]
    sampled = []
    for run in point.runs:
        sides = {side for side, row in spenders(run).items() if row.samples}
        sampled.append(sides | {"other"} if sides or run.derived.sides.elsewhere.samples else sides)
    found = {}
    for key in sorted({key for table in tables for key in table if any(key[1] in s for s in sampled)}):
        values = [
            table.get(key, 0.0) for table, sides in zip(tables, sampled, strict=True) if key[1] in sides
        ]
        made = stats.median_of(values)
        # a cost is never negative, whatever the spread of a few repeats around a small one says
        found[key] = replace(made, low=None if made.low is None else max(0.0, made.low))
    return found


def row_costs(run: Whole) -> dict[RowKey, float]:
    """(account or stage, side, context) -> ns per KiB, of the rows of a run that have a time."""
    return {key: row.ns_per_kib for key, row in keyed_rows(run) if row.ns_per_kib is not None}


def keyed_rows(run: Whole) -> Iterator[tuple[RowKey, AccountRow | StageRow]]:
    """Each row of the ledger and of the stages by (account or stage, side, context)."""
    for account in run.derived.ledger:
        yield (account.account, account.side, account.context), account
    for stage in run.derived.stages:
        yield (stage.stage, stage.side, stage.context), stage


def parts_of(
    runs: Sequence[Whole], sides: Sequence[str] = SIDES, beside: Sequence[Whole] | None = None
) -> list[Parts]:
    """The parts of each run, in order; of a run whose CPU time is not known, none.

    `beside`: the runs of a point that these are compared with. Time that cannot be divided there is not
    divided here: it would look like a saving.
    """
    tables = [row_costs(run) for run in runs]
    pooled = {side: _shares(tables, side) for side in sides}
    if beside is not None:
        others = [row_costs(run) for run in beside]
        pooled = {side: shares if _shares(others, side) else {} for side, shares in pooled.items()}
    return [_parts(run, table, pooled) for run, table in zip(runs, tables, strict=True)]


def _parts(run: Whole, rows: Mapping[RowKey, float], pooled: Mapping[str, Parts]) -> Parts:
    found: Parts = {}
    for side, shares_of_all in pooled.items():
        cost = cpu_per_kib(run, (side,))
        if isinstance(cost, Missing):
            return {}
        shares = (_shares([rows], side) or shares_of_all) if shares_of_all else {"unattributed": 1.0}
        for category, share in shares.items():
            found[category] = found.get(category, 0.0) + share * cost
    return found


def _shares(tables: Sequence[Mapping[RowKey, float]], side: str) -> Parts:
    """Account or stage -> its part of a side's rows (0..1); empty when nothing of the side was sampled."""
    found: Parts = {}
    for table in tables:
        for (category, whose, _), cost in table.items():
            if whose == side:
                found[category] = found.get(category, 0.0) + cost
    whole = sum(found.values())
    return {category: cost / whole for category, cost in found.items()} if whole > 0 else {}


def whole_of(runs: Sequence[Parts]) -> float | None:
    """The median cost over runs, ns per KiB; None where none is known."""
    known = [sum(parts.values()) for parts in runs if parts]
    return median(known) if known else None


def typical(runs: Sequence[Parts]) -> Parts:
    """Each part's mean share over runs, of the median cost: the parts add up to it."""
    whole = whole_of(runs)
    known = [parts for parts in runs if sum(parts.values()) > 0]
    if whole is None or not known:
        return {}
    names = dict.fromkeys(name for parts in known for name in parts)
    return {
        name: whole * fmean(parts.get(name, 0.0) / sum(parts.values()) for parts in known) for name in names
    }


def split(first: Point, second: Point, sides: Sequence[str]) -> dict[str, float]:
    """ns per KiB that the second costs more (less: negative), by group of rows; their `sum` at last."""
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    found = dict.fromkeys((*GROUPS, REST), 0.0)
    for point, other, sign in ((first, second, -1), (second, first, 1)):
        for name, cost in typical(parts_of(point.runs, sides, other.runs)).items():
            found[group_of.get(name, REST)] += sign * cost
    rounded = {group: round(cost, 3) for group, cost in found.items()}
    return {**rounded, "sum": round(sum(rounded.values()), 3)}
