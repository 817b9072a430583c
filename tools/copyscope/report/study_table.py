# SPDX-License-Identifier: GPL-2.0-only
"""The table of an experiment, read by the pages, plots and exports: one row per point, with all estimates.

This module also arranges the rows for line plots, as ratios to one strategy, and as waterfalls between two
strategies. Each line is a strategy. The factor with the most values becomes the axis, and each combination of
the other factors becomes a panel, so that the same code draws every kind of sweep.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from copyscope.base import stats
from copyscope.base.spelling import format_whole_size
from copyscope.base.stats import Estimate, Missing, gathered, grouped
from copyscope.judge import estimates
from copyscope.judge.crossover import Crossover, shared_settings
from copyscope.judge.estimates import MeasuredPoint, Parts, median_cost, parts_of, typical_parts
from copyscope.judge.metrics import METRICS, factors
from copyscope.ledger.share import SAMPLES_MIN, samples_of
from copyscope.record.run import Run
from copyscope.taxonomy.accounts import PACKET_STAGES, STAGES, TABLE

Key = tuple[str, str, str]  # (account or stage, side, context)

# Factor that every point has, even if it was not varied -> its key in the section `workload` of a record.
ALWAYS = {"impl": "impl", "size": "size_bytes", "threads": "threads"}
# Order of the first strategies in tables and legends. All other strategies follow by name.
STRATEGIES = ("per_field", "two_copy", "one_copy", "zero_copy")


@dataclass(frozen=True)
class StudyRow:
    """Estimates at a point of the experiment, which is a strategy in one setting.

    factors: settings of the point
    mode: traffic mode of the runs
    valid, invalid: number of valid and of invalid runs
    values: metric -> estimate
    accounts: ns per KiB of each row of the ledger
    parts: account or stage -> ns per KiB. These parts add up to the total (estimates.typical_parts())
    point: the valid runs, or all runs if none is valid
    """

    factors: Mapping[str, Any]
    mode: str
    valid: int
    invalid: int
    values: Mapping[str, Estimate | Missing]
    accounts: Mapping[Key, Estimate]
    parts: Mapping[str, float]
    point: MeasuredPoint

    @property
    def impl(self) -> str:
        return str(self.factors["impl"])

    @property
    def size(self) -> int:
        return int(self.factors["size"])

    @property
    def threads(self) -> int:
        return int(self.factors["threads"])


def fill(runs: Sequence[Run]) -> list[StudyRow]:
    """Return one row per point. If a point has no valid run, all its values are missing, with the reason."""
    valid = {setting_of(point.factors): point for point in estimates.group_points(runs)}
    points = estimates.group_points(runs, valid_only=False)
    return sorted((_row(point, valid.get(setting_of(point.factors))) for point in points), key=_sort_key)


def _row(point: MeasuredPoint, valid_point: MeasuredPoint | None) -> StudyRow:
    """Return the row for a point. `valid_point`: the point without invalid runs; None if no run is valid."""
    first_run = point.runs[0]
    asked = first_run.raw.asked
    factors = dict(point.factors) | {name: getattr(asked, key) for name, key in ALWAYS.items()}
    count = len(valid_point.runs) if valid_point else 0
    values: dict[str, Estimate | Missing]
    if valid_point is None:
        missing = Missing(f"no valid run of this point: {first_run.derived.verdict.reasons[0]}")
        values = {name: missing for name in METRICS}
    else:
        values = {name: estimates.estimate(valid_point, name) for name in METRICS}
    has_samples = valid_point is not None and samples_of(valid_point.runs) >= SAMPLES_MIN
    accounts = estimates.account_estimates(valid_point) if valid_point and has_samples else {}
    parts = typical_parts(parts_of(valid_point.runs)) if valid_point and has_samples else {}
    return StudyRow(
        factors, asked.mode, count, len(point.runs) - count, values, accounts, parts, valid_point or point
    )


def _sort_key(row: StudyRow) -> tuple[Any, ...]:
    """Return a row's sort key: size, threads, other factors, strategy."""
    rest = [(name, comparable(value)) for name, value in sorted(row.factors.items()) if name not in ALWAYS]
    return row.size, row.threads, rest, strategy_order(row.impl)


def strategy_order(impl: str) -> tuple[int, str]:
    """Return a strategy's sort key: its position in STRATEGIES, then its name."""
    return (STRATEGIES.index(impl) if impl in STRATEGIES else len(STRATEGIES)), impl


def comparable(value: Any) -> tuple[int, float, str]:
    """Return a sort key for values of mixed types: numbers by value, then text."""
    if isinstance(value, (int, float)):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def setting_of(factors: Mapping[str, Any], without: str = "") -> tuple[tuple[str, str], ...]:
    """Return a point's factors as a key. Points that differ only in the factor `without` share a key."""
    return tuple(sorted((name, repr(value)) for name, value in factors.items() if name != without))


def counterparts(
    rows: Sequence[StudyRow], a: object, b: object, by: str = "impl"
) -> list[tuple[StudyRow, StudyRow]]:
    """Return the pairs of rows that differ only in the factor `by`.

    a, b: values of the factor in the first and the second row of each pair
    """
    seconds = {setting_of(row.factors, by): row for row in rows if row.factors.get(by) == b}
    firsts = [(row, setting_of(row.factors, by)) for row in rows if row.factors.get(by) == a]
    return [(row, seconds[setting]) for row, setting in firsts if setting in seconds]


@dataclass(frozen=True)
class Axis:
    """A factor as the horizontal axis of plots, on a scale of powers of two."""

    factor: str
    label: str
    binary: bool = False  # True if the values are bytes


@dataclass(frozen=True)
class Panel:
    """A panel of a plot.

    title: settings that all points of the panel share
    lines: strategy -> points of its line
    """

    title: str
    lines: Mapping[str, tuple[StudyRow, ...]]


# Factors with names that are written in capital letters.
ACRONYMS = ("mtu", "tso", "gso", "gro")
AXES = {
    "size": Axis("size", "message size", binary=True),
    "fields": Axis("fields", "fields per message"),
    "working_set": Axis("working_set", "messages in the working set"),
    "threads": Axis("threads", "threads"),
    "mtu": Axis("mtu", "MTU (bytes)"),
}


def find_axis(rows: Sequence[StudyRow], first: str | None = None) -> Axis:
    """Return the plots' horizontal axis: the numeric factor with the most values; if equal, the size.

    first: factor that becomes the axis whenever it was varied
    """
    counts = {name: len({row.factors.get(name) for row in rows}) for name in AXES}
    if first is not None and counts[first] > 1:
        return AXES[first]
    return AXES[max(AXES, key=lambda name: counts[name])]  # among equals, max() returns the first: size


def arrange(rows: Sequence[StudyRow], axis: Axis) -> list[Panel]:
    """Arrange rows in panels: one for each combination of the factors that are not the axis."""
    swept = varied(rows, without=("impl", axis.factor))
    cells = grouped(rows, lambda row: tuple(row.factors.get(name) for name in swept))
    return [
        Panel(describe(dict(zip(swept, key, strict=True))), _lines(cells[key], axis))
        for key in sorted(cells, key=lambda key: [comparable(value) for value in key])
    ]


def _lines(rows: Sequence[StudyRow], axis: Axis) -> dict[str, tuple[StudyRow, ...]]:
    """Return a mapping: strategy -> its points in the order of the axis."""
    ordered = sorted(rows, key=lambda row: comparable(row.factors.get(axis.factor)))
    by_impl = grouped(ordered, lambda row: row.impl)
    return {impl: tuple(by_impl[impl]) for impl in sorted(by_impl, key=strategy_order)}


def varied(rows: Sequence[StudyRow], without: Sequence[str] = ()) -> list[str]:
    """Return the factors that differ between points: size, threads, then all other factors by name.

    without: factors to leave out
    """
    names = {name for row in rows for name in row.factors} - set(without)
    differing = [name for name in names if len({repr(row.factors.get(name)) for row in rows}) > 1]
    return sorted(differing, key=lambda name: (name != "size", name != "threads", name))


def describe(factors: Mapping[str, Any]) -> str:
    """Format factors as text, such as `64 KiB, 4 threads, pages thp`."""
    return ", ".join(spell_factor(name, value) for name, value in factors.items())


def spell_factor(name: str, value: Any) -> str:
    """Format one factor: `64 KiB`, `4 threads`, `pages thp`, `TSO off`."""
    if name == "size":
        return format_whole_size(int(value))
    if name in ("threads", "fields"):
        return f"{value} {name if value != 1 else name[:-1]}"
    words = name.upper() if name in ACRONYMS else name.replace("_", " ")
    if isinstance(value, bool):
        return f"{words} {'on' if value else 'off'}"
    return f"{words} {'default' if value is None else value}"


# Strategies to which others are compared as ratios. The first strategy here that was measured is used.
BASES = ("one_copy", "relay_copy")
# Metrics drawn as ratios: goodput, and CPU time of all processes.
RATIO_METRICS = ("goodput_gbps", "system_cpu_ns_per_kib")

Ratios = Mapping[str, Sequence[Estimate | None]]  # strategy -> ratio to the base at each value of the axis


@dataclass(frozen=True)
class RatioView:
    """Ratios of all strategies to the strategy `base` in one setting, along `axis`.

    setting: swept factor -> its value in words
    positions: measured values of the axis
    ratios: metric -> strategy -> ratio at each position
    crossings: metric -> strategy -> crossover with the base
    """

    base: str
    axis: Axis
    setting: Mapping[str, str]
    positions: Sequence[float]
    ratios: Mapping[str, Ratios]
    crossings: Mapping[str, Mapping[str, Crossover]]

    @property
    def impls(self) -> list[str]:
        """Strategies with at least one known ratio, in the order of the table."""
        return list(dict.fromkeys(impl for ratios in self.ratios.values() for impl in ratios))


def ratio_views(rows: Sequence[StudyRow], crossings: Sequence[Crossover]) -> list[RatioView]:
    """Return a view for each setting in which the base and another strategy were measured."""
    base = next((impl for impl in BASES if any(row.impl == impl and row.valid for row in rows)), None)
    if base is None:
        return []
    axis = find_axis(rows, first="size")
    swept = varied(rows, without=("impl", axis.factor))
    views = []
    for panel in arrange(rows, axis):
        members = [row for line in panel.lines.values() for row in line]
        ratios = {metric: _relative(members, base, axis, metric) for metric in RATIO_METRICS}
        if any(set(by_impl) - {base} for by_impl in ratios.values()):
            setting = {name: spell_factor(name, members[0].factors.get(name)) for name in swept}
            crossing = _crossings(members[0], base, crossings) if axis.factor == "size" else {}
            views.append(RatioView(base, axis, setting, axis_values(members, axis), ratios, crossing))
    return views


def ratio_to(base: StudyRow, row: StudyRow, metric: str) -> Estimate | None:
    """Return a metric of a row divided by that of the base row, or None if a value is unknown."""
    if not base.valid or not row.valid:
        return None
    ratio = estimates.ratio(row.point, base.point, metric)
    return ratio if isinstance(ratio, Estimate) else None


def _relative(members: Sequence[StudyRow], base: str, axis: Axis, metric: str) -> Ratios:
    """Return a mapping: strategy -> ratio of a metric to the base, at each value of the axis.

    A ratio is None if the strategy's or the base's value is missing.

    members: points of one setting
    """
    ratios: dict[str, list[Estimate | None]] = {}
    positions = axis_values(members, axis)
    for impl in dict.fromkeys(row.impl for row in members):
        at_position = {}
        for base_row, row in counterparts(members, base, impl):
            at_position[row.factors[axis.factor]] = ratio_to(base_row, row, metric)
        if any(at_position.values()):
            ratios[impl] = [at_position.get(position) for position in positions]
    return ratios


def _crossings(row: StudyRow, base: str, crossings: Sequence[Crossover]) -> dict[str, dict[str, Crossover]]:
    """Return a mapping: metric -> strategy -> crossover with the base, in the setting of this row."""
    run = row.point.runs[0]
    where = shared_settings(factors(run), run)
    return {
        metric: {
            next(impl for impl in crossing.pair if impl != base): crossing
            for crossing in crossings
            if (crossing.quantity, crossing.threads, crossing.where) == (metric, row.threads, where)
            and crossing.verdict == "crosses"
            and base in crossing.pair
        }
        for metric in RATIO_METRICS
    }


def axis_values(rows: Sequence[StudyRow], axis: Axis) -> list[float]:
    """Return the measured values of the axis, in order."""
    return sorted({row.factors[axis.factor] for row in rows})


# A waterfall splits the difference in cost between two strategies, or between two ways of receiving, into
# steps: the saved copy, the work that replaces it (pinning, the late copy, completions, mapping), the work
# per packet, and all remaining work. Zero-copy can add work per packet, because a packet refers to at most
# MAX_SKB_FRAGS pages (17 by default, include/linux/skbuff.h). A total is the median over the repeats that
# both strategies have. Each part is its mean share of that total, so that the steps add up. Medians of the
# parts would not add up (judge/estimates.py).


def _parts() -> dict[str, tuple[str, ...]]:
    """Return a mapping: step of a waterfall -> its accounts and stages.

    The step "work per packet" comes after the sender's accounts.
    """
    accounts = gathered((account.step or account.title, account.name) for account in TABLE)
    sent = (account.step or account.title for account in TABLE if account.side == "sender")
    steps = dict.fromkeys([*sent, "work per packet", *accounts])
    stages = {"work per packet": PACKET_STAGES}
    single_stages = {STAGES[stage]: (stage,) for stage in ("wakeup_sched", "unattributed")}
    return {step: stages.get(step) or tuple(accounts[step]) for step in steps} | single_stages


PARTS = _parts()
# Name of the step with all remaining work.
REST = "rest"
# Pairs that waterfalls compare: (setting, value with a copy, value without this copy).
SAVING = (("impl", "one_copy", "zero_copy"), ("receiver", "read", "map"))


@dataclass(frozen=True)
class WaterfallStep:
    """Step of a waterfall.

    change: change in cost in ns per KiB, negative if CPU time is saved
    """

    name: str
    change: Estimate


@dataclass(frozen=True)
class Waterfall:
    """Steps from the cost of point `before` to the cost of point `after`, in ns per KiB.

    start, end: costs of `before` and `after`, over all processes
    by: the only setting in which the points differ
    """

    before: StudyRow
    after: StudyRow
    start: float
    end: float
    steps: tuple[WaterfallStep, ...]
    by: str = "impl"

    @property
    def names(self) -> tuple[str, str]:
        return str(self.before.factors[self.by]), str(self.after.factors[self.by])


def waterfalls(rows: Sequence[StudyRow]) -> list[Waterfall | Missing]:
    """Return a waterfall for each setting in which both values of a SAVING pair were measured."""
    return [
        waterfall(first, second, by)
        for by, copying, saving in SAVING
        for first, second in counterparts(rows, copying, saving, by)
    ]


def waterfall(before: StudyRow, after: StudyRow, by: str = "impl") -> Waterfall | Missing:
    """Return the waterfall between two points that differ only in the setting `by`.

    The waterfall uses the repeats that both points have. If they share none, it is missing.
    """
    if not before.valid or not after.valid:
        return Missing("no repeat in which both points were valid")
    if not before.parts or not after.parts:
        return Missing(f"fewer than {SAMPLES_MIN} samples at one of the two points")
    parts_before, parts_after = _shared_parts(before.point.runs, after.point.runs)
    start, end = median_cost(parts_before), median_cost(parts_after)
    if start is None or end is None:
        return Missing("no repeat in which both points have a known CPU time")
    typical_before = _by_step(typical_parts(parts_before))
    typical_after = _by_step(typical_parts(parts_after))
    pairs = list(zip(map(_by_step, parts_before), map(_by_step, parts_after), strict=True))
    steps = []
    for name in (*PARTS, REST):
        changes = [second.get(name, 0.0) - first.get(name, 0.0) for first, second in pairs]
        if any(changes):
            value = typical_after.get(name, 0.0) - typical_before.get(name, 0.0)
            steps.append(WaterfallStep(name, _centred(stats.median_of(changes), fmean(changes), value)))
    return Waterfall(before, after, start, end, tuple(steps), by)


def _shared_parts(runs_before: Sequence[Run], runs_after: Sequence[Run]) -> tuple[list[Parts], list[Parts]]:
    """Return the parts of each run's cost at two points, before and after.

    Only repeats that both points have are included. Runs with the same index have the same repeat.
    """
    before, after = (
        {run.raw.run.repeat: parts for run, parts in zip(runs, run_parts, strict=True) if parts}
        for runs, run_parts in (
            (runs_before, parts_of(runs_before, compared_with=runs_after)),
            (runs_after, parts_of(runs_after, compared_with=runs_before)),
        )
    )
    repeats = [repeat for repeat in before if repeat in after]
    return [before[repeat] for repeat in repeats], [after[repeat] for repeat in repeats]


def _centred(spread: Estimate, middle: float, value: float) -> Estimate:
    """Return `value` with the interval of the paired differences, shifted to surround `value`.

    spread: median of the paired differences, with its interval
    middle: mean of the paired differences
    """
    if spread.ends is None:
        return replace(spread, value=value)
    low, high = min(0.0, spread.ends[0] - middle), max(0.0, spread.ends[1] - middle)
    return replace(spread, value=value, low=value + low, high=value + high)


def _by_step(parts: Parts) -> dict[str, float]:
    """Return a mapping: step of a waterfall -> total cost of its accounts and stages."""
    step_of = {category: step for step, categories in PARTS.items() for category in categories}
    costs: dict[str, float] = {}
    for category, cost in parts.items():
        step = step_of.get(category, REST)
        costs[step] = costs.get(step, 0.0) + cost
    return costs


def why_no_waterfall(saved: Sequence[Waterfall | Missing]) -> str | None:
    """If all waterfalls are missing, return the first reason; otherwise None."""
    reasons = [waterfall.reason for waterfall in saved if isinstance(waterfall, Missing)]
    if len(reasons) < len(saved):
        return None
    return reasons[0] if reasons else "one_copy and zero_copy were not both measured"
