# SPDX-License-Identifier: GPL-2.0-only
"""Estimates of the metrics, ledger rows and parts of a point (all runs with equal settings). Pure.

An estimate is a median over repeats with its interval (stats.median_of). Two points are compared repeat by
repeat: repeat N of both points ran in the same block, so a drift of the machine affects both repeats equally.

Medians of ledger rows do not add up to the CPU time: a row with few samples may have a median of zero over
repeats but a mean above zero. A short run may even have no sample of a process. Parts do add up: the CPU time
of each process is divided in proportion to its own rows. If a run has no samples of a process, the time of
that process is divided in the same proportions as in the other runs of the point. If no run has samples, that
time is `unattributed`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import get_args

from copyscope.base import stats
from copyscope.base.stats import Estimate, Missing, grouped
from copyscope.judge.metrics import Scalar, cpu_per_kib, cpu_time_rows, factors, read
from copyscope.ledger.attribution import SIDES
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.run import Run
from copyscope.taxonomy.accounts import PACKET_STAGES, TABLE, Group

# Key of a row: (account or stage, side, context).
RowKey = tuple[str, str, str]
# Name of a group of work -> accounts or stages that belong to it. Every other account or stage belongs to
# REST.
GROUPS = {
    **{
        group: tuple(account.name for account in TABLE if account.group == group) for group in get_args(Group)
    },
    "packets": PACKET_STAGES,
}
REST = "rest"
# Account or stage -> its CPU time in ns per KiB, summed over all sides and contexts.
Parts = dict[str, float]


@dataclass(frozen=True)
class MeasuredPoint:
    """All runs with equal settings (`factors`), in the order of their repeats."""

    factors: Mapping[str, Scalar]
    runs: tuple[Run, ...]


def group_points(runs: Iterable[Run], *, valid_only: bool = True) -> list[MeasuredPoint]:
    """Return the points of some runs, sorted by their factors.

    valid_only: True to leave out invalid runs
    """
    chosen = (run for run in runs if run.derived.verdict.valid or not valid_only)
    points = [
        MeasuredPoint(dict(key), tuple(sorted(members, key=lambda run: (run.raw.run.repeat, run.raw.run.id))))
        for key, members in grouped(chosen, lambda run: tuple(sorted(factors(run).items()))).items()
    ]
    return sorted(
        points,
        key=lambda point: [(name, _sort_key(value)) for name, value in sorted(point.factors.items())],
    )


def _sort_key(value: Scalar) -> tuple[int, float, str]:
    """Return a key that sorts mixed values of a factor: null first, numbers by size, text last."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, str):
        return (2, 0.0, value)
    return (1, float(value), "")


def estimate(point: MeasuredPoint, metric: str) -> Estimate | Missing:
    """Return a metric of a point: the median over the repeats that have the metric."""
    readings = [read(run, metric) for run in point.runs]
    values = [reading for reading in readings if not isinstance(reading, Missing)]
    if values:
        return stats.median_of(values)
    missing = (reading for reading in readings if isinstance(reading, Missing))
    return next(missing, Missing(f"{metric}: no run"))


def ratio(point_a: MeasuredPoint, point_b: MeasuredPoint, metric: str) -> Estimate | Missing:
    """Return a metric of point A divided by the same metric of point B, paired by repeat."""
    pairs = paired_values(point_a, point_b, metric)
    return pairs if isinstance(pairs, Missing) else stats.ratio_of(pairs)


def paired_values(
    point_a: MeasuredPoint, point_b: MeasuredPoint, metric: str
) -> list[tuple[float, float]] | Missing:
    """Return a metric of both points for each repeat in which both values are above zero."""
    readings_a, readings_b = (
        {run.raw.run.repeat: read(run, metric) for run in point.runs} for point in (point_a, point_b)
    )
    pairs = []
    reason = Missing(f"{metric}: no repeat that both have")
    for repeat in sorted(readings_a.keys() & readings_b):
        a, b = readings_a[repeat], readings_b[repeat]
        if isinstance(a, Missing) or isinstance(b, Missing):
            reason = next(value for value in (a, b) if isinstance(value, Missing))
        elif a <= 0 or b <= 0:
            reason = Missing(f"{metric}: no ratio, because a value is zero")
        else:
            pairs.append((a, b))
    return pairs or reason


def account_estimates(point: MeasuredPoint) -> dict[RowKey, Estimate]:
    """Return the cost of each ledger and stage row in ns per KiB, over the repeats that sampled its side.

    A row that is missing in such a repeat costs 0 in it, because the side was sampled. Softirq work charged
    to other tasks is expected in every run that has any sample.
    """
    tables = [row_costs(run) for run in point.runs]
    sampled = []
    for run in point.runs:
        sides = {side for side, row in cpu_time_rows(run).items() if row.samples}
        sampled.append(sides | {"other"} if sides or run.derived.sides.elsewhere.samples else sides)
    estimates = {}
    for key in sorted(
        {key for table in tables for key in table if any(key[1] in sides for sides in sampled)}
    ):
        values = [
            table.get(key, 0.0) for table, sides in zip(tables, sampled, strict=True) if key[1] in sides
        ]
        cost = stats.median_of(values)
        # A cost is never negative, but Student's interval of a few small values may reach below zero.
        estimates[key] = replace(cost, low=None if cost.low is None else max(0.0, cost.low))
    return estimates


def row_costs(run: Run) -> dict[RowKey, float]:
    """Return the CPU time of each ledger and stage row in ns per KiB, leaving out rows of unknown time."""
    return {key: row.ns_per_kib for key, row in keyed_rows(run) if row.ns_per_kib is not None}


def keyed_rows(run: Run) -> Iterator[tuple[RowKey, AccountRow | StageRow]]:
    """Yield each row of the ledger and of the stages with its key."""
    for account in run.derived.ledger:
        yield (account.account, account.side, account.context), account
    for stage in run.derived.stages:
        yield (stage.stage, stage.side, stage.context), stage


def parts_of(
    runs: Sequence[Run], sides: Sequence[str] = SIDES, compared_with: Sequence[Run] | None = None
) -> list[Parts]:
    """Return the parts of each run, in order. A run without CPU time has no parts.

    compared_with: runs of the point that these runs are compared with. If no run of that point sampled a
        side, the time of that side is not divided into parts in these runs either, because the parts of only
        one of the two points would look like a saving.
    """
    tables = [row_costs(run) for run in runs]
    pooled = {side: _shares(tables, side) for side in sides}
    if compared_with is not None:
        other_tables = [row_costs(run) for run in compared_with]
        pooled = {side: shares if _shares(other_tables, side) else {} for side, shares in pooled.items()}
    return [_parts(run, table, pooled) for run, table in zip(runs, tables, strict=True)]


def _parts(run: Run, rows: Mapping[RowKey, float], pooled: Mapping[str, Parts]) -> Parts:
    """Divide the CPU time of each side of a run in proportion to the side's own rows.

    rows: key of a row -> its cost in this run, in ns per KiB (row_costs())
    pooled: side -> shares used for a side without rows
    """
    parts: Parts = {}
    for side, pooled_shares in pooled.items():
        cost = cpu_per_kib(run, (side,))
        if isinstance(cost, Missing):
            return {}
        shares = (_shares([rows], side) or pooled_shares) if pooled_shares else {"unattributed": 1.0}
        for category, share in shares.items():
            parts[category] = parts.get(category, 0.0) + share * cost
    return parts


def _shares(tables: Sequence[Mapping[RowKey, float]], side: str) -> Parts:
    """Return account or stage -> fraction (0..1) of a side's CPU time, or {} if the side has no sample."""
    costs: Parts = {}
    for table in tables:
        for (category, row_side, _), cost in table.items():
            if row_side == side:
                costs[category] = costs.get(category, 0.0) + cost
    total = sum(costs.values())
    return {category: cost / total for category, cost in costs.items()} if total > 0 else {}


def median_cost(parts_of_runs: Sequence[Parts]) -> float | None:
    """Return the median CPU time over runs in ns per KiB, or None if no run measured it."""
    totals = [sum(parts.values()) for parts in parts_of_runs if parts]
    return median(totals) if totals else None


def typical_parts(parts_of_runs: Sequence[Parts]) -> Parts:
    """Return parts that add up to the median cost, in proportion to their mean shares over runs."""
    total = median_cost(parts_of_runs)
    nonzero = [parts for parts in parts_of_runs if sum(parts.values()) > 0]
    if total is None or not nonzero:
        return {}
    names = dict.fromkeys(name for parts in nonzero for name in parts)
    return {
        name: total * fmean(parts.get(name, 0.0) / sum(parts.values()) for parts in nonzero) for name in names
    }


def split_difference(first: MeasuredPoint, second: MeasuredPoint, sides: Sequence[str]) -> dict[str, float]:
    """Return by how much the second point costs more than the first, in ns per KiB, for each group of work.

    A negative number is a saving of the second point. The last entry, `sum`, is the total.
    """
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    differences = dict.fromkeys((*GROUPS, REST), 0.0)
    for point, other_point, sign in ((first, second, -1), (second, first, 1)):
        for name, cost in typical_parts(parts_of(point.runs, sides, other_point.runs)).items():
            differences[group_of.get(name, REST)] += sign * cost
    rounded = {group: round(cost, 3) for group, cost in differences.items()}
    return {**rounded, "sum": round(sum(rounded.values()), 3)}
