# SPDX-License-Identifier: GPL-2.0-only
"""Crossovers: the message sizes at which one strategy is better than another, and why. Pure.

Each size at which both strategies were measured gives a ratio, paired by repeat. A difference at a size is
certain if the interval of its ratio excludes 1. Sentences call a strategy better only at such sizes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from copyscope.base.errors import UsageError
from copyscope.base.spelling import format_size, join_with_and
from copyscope.base.stats import MORE, SAME, Estimate, Missing, grouped, ratio_of
from copyscope.judge import estimates
from copyscope.judge.crossing import ALWAYS, NEVER, Crossing, Verdict, find_crossing
from copyscope.judge.estimates import MeasuredPoint
from copyscope.judge.metrics import METRICS, SETTINGS, Scalar, factors, settings
from copyscope.record.run import Run

# Compared quantity -> sides with CPU time that is part of the quantity.
QUANTITY_SIDES: dict[str, tuple[str, ...]] = {
    "goodput_gbps": (),
    "sender_cpu_ns_per_kib": ("sender",),
    "receiver_cpu_ns_per_kib": ("receiver",),
    "system_cpu_ns_per_kib": ("sender", "receiver", "other"),
}
# Pairs of strategies that are compared by default: (first, second).
PAIRS = (
    ("two_copy", "one_copy"),
    ("one_copy", "zero_copy"),
    ("two_copy", "zero_copy"),
    ("per_field", "one_copy"),
    ("one_copy", "sendfile"),
    ("one_copy", "vmsplice"),
    ("one_copy", "uring_send"),
    ("one_copy", "uring_zc"),
    ("zero_copy", "uring_zc"),
    ("relay_copy", "relay_splice"),
)
# Axes of a comparison. Except for these axes and the compared setting, all settings must be equal.
AXES = frozenset(("size", "threads"))
EXAMPLES = "--pair one_copy,uring_zc or --pair receiver=read,map"


@dataclass(frozen=True)
class MeasuredRatio:
    """A quantity of the second strategy divided by that of the first, at a single size.

    better: the better strategy; None if no difference was found
    """

    size_bytes: int
    ratio: Estimate
    better: str | None


@dataclass(frozen=True)
class Crossover:
    """The crossover of two strategies for one number of threads and one quantity.

    pair: the two compared values of the setting `by`
    where: the settings that both strategies share
    size_bytes: size at which the second strategy overtakes the first; None if there is no such size, or
        several
    above: the better strategy above that size
    low, high: 95 % interval of the size; None if that end lies outside the measured sizes
    split: size -> group -> cost of the second strategy minus cost of the first, in ns per KiB
    """

    pair: tuple[str, str]
    threads: int
    quantity: str
    size_bytes: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "undetermined"
    evidence: str = ""
    above: str | None = None
    level: float = 0.0
    where: Mapping[str, Scalar] = field(default_factory=dict)
    measured: tuple[MeasuredRatio, ...] = ()
    split: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    by: str = "impl"


# Measured points, each under its (value of the compared setting, number of threads, size).
PointTable = dict[tuple[str, int, int], MeasuredPoint]


def shared_settings(values: Mapping[str, Scalar], run: Run, by: str = "impl") -> dict[str, Scalar]:
    """Return the settings in `values` that two runs must share if they are compared by the setting `by`.

    The number of messages in memory (working_set) depends on the size unless the experiment sets it, so two
    runs must share working_set only if it is a factor of the experiment.
    """
    given = run.raw.run.factors or {}
    return {
        name: value
        for name, value in values.items()
        if name != by and name not in AXES and (name != "working_set" or name in given)
    }


def points_by_setting(runs: Sequence[Run], by: str = "impl") -> list[tuple[Mapping[str, Scalar], PointTable]]:
    """Return the points of valid runs for each combination of shared settings."""
    tables: dict[str, tuple[Mapping[str, Scalar], PointTable]] = {}
    for point in estimates.group_points(runs):
        run = point.runs[0]
        shared = shared_settings(factors(run), run, by)
        key = (spell_setting(settings(run)[by]), run.raw.asked.threads, run.raw.asked.size_bytes)
        tables.setdefault(repr(sorted(shared.items())), (shared, {}))[1][key] = point
    return list(tables.values())


def spell_setting(value: Scalar) -> str:
    """Return the value of a setting as typed on the command line."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def crossovers_of(
    runs: Sequence[Run],
    quantities: Iterable[str] = tuple(QUANTITY_SIDES),
    pairs: Iterable[tuple[str, str]] = PAIRS,
    by: str = "impl",
) -> list[Crossover]:
    """Return a crossover for each pair, number of threads and quantity that was measured for both."""
    crossovers = []
    for shared, table in points_by_setting(runs, by):
        for threads in sorted({threads for _, threads, _ in table}):
            for pair in pairs:
                if all((name, threads) in {key[:2] for key in table} for name in pair):
                    crossovers += [
                        replace(_find_crossover(table, pair, threads, quantity, shared), by=by)
                        for quantity in quantities
                    ]
    return crossovers


@dataclass(frozen=True)
class Costs:
    """Measured costs of one strategy: size -> value of the compared quantity, in that quantity's unit."""

    impl: str
    threads: int
    quantity: str
    where: Mapping[str, Scalar]
    measured: Mapping[int, Estimate | Missing]


def costs_of(runs: Sequence[Run], by: str = "impl") -> list[Costs]:
    """Return the costs for each strategy, number of threads and quantity, to be interpolated by at_size()."""
    rows = []
    for shared, table in points_by_setting(runs, by):
        for (impl, threads), keys in groupby(sorted(table), lambda key: key[:2]):
            points = {size: table[impl, threads, size] for _, _, size in keys}
            for quantity in QUANTITY_SIDES:
                measured = {size: estimates.estimate(point, quantity) for size, point in points.items()}
                if any(isinstance(cost, Estimate) for cost in measured.values()):
                    rows.append(Costs(impl, threads, quantity, shared, measured))
    return rows


def _find_crossover(
    table: PointTable, pair: tuple[str, str], threads: int, quantity: str, shared: Mapping[str, Scalar]
) -> Crossover:
    """Return the crossover of a pair of strategies. `shared`: the settings that both strategies share."""
    points = {
        size: (point, table[pair[1], threads, size])
        for (name, count, size), point in sorted(table.items())
        if (name, count) == (pair[0], threads) and (pair[1], threads, size) in table
    }
    readings = {
        size: estimates.paired_values(second, first, quantity) for size, (first, second) in points.items()
    }
    pairs = {size: values for size, values in readings.items() if not isinstance(values, Missing)}
    sides, more_is_better = QUANTITY_SIDES[quantity], METRICS[quantity].more_is_better
    measured = tuple(
        _measured_ratio(size, values, pair, more_is_better=more_is_better) for size, values in pairs.items()
    )
    split = {size: estimates.split_difference(*points[size], sides) for size in pairs if sides}
    crossover = Crossover(pair, threads, quantity, where=shared, measured=measured, split=split)
    if len(pairs) < 2:
        return replace(crossover, evidence=_evidence(None, measured, pair))
    costs = {
        size: [first / second if more_is_better else second / first for second, first in values]
        for size, values in pairs.items()
    }
    crossing = find_crossing(costs, f"{pair} {threads} {quantity}")
    return replace(
        crossover,
        size_bytes=crossing.size,
        low=crossing.low,
        high=crossing.high,
        level=crossing.level,
        verdict=crossing.verdict,
        evidence=_evidence(crossing, measured, pair),
        above=None if crossing.rising is None else pair[crossing.rising],
    )


def _measured_ratio(
    size: int, values: Sequence[tuple[float, float]], pair: tuple[str, str], *, more_is_better: bool
) -> MeasuredRatio:
    """Return the ratio of a pair at a size. `values`: (second, first) strategy of each repeat."""
    ratio = ratio_of(values)
    verdict = ratio.against(1.0)
    return MeasuredRatio(size, ratio, None if verdict == SAME else pair[(verdict == MORE) == more_is_better])


def _evidence(crossing: Crossing | None, measured: Sequence[MeasuredRatio], pair: tuple[str, str]) -> str:
    """Return the verdict on a pair in words: the sizes at which each strategy is better, and the crossing.

    crossing: None if fewer than two sizes were measured
    """
    if not measured:
        return "undetermined: no size was measured for both strategies"
    if crossing is not None and crossing.verdict == "crosses":
        better = pair[bool(crossing.rising)]
        interval = f"95 % interval {format_size(crossing.low)} to {format_size(crossing.high)}"
        return f"{better} is better above {format_size(crossing.size)} ({interval})"
    is_open = not any(row.better for row in measured)
    texts = [
        f"{f'{name} is better' if name else 'no difference found'} {spell_sizes(sizes, measured)}"
        for name, sizes in sizes_by_better(measured).items()
    ]
    if is_open and any(row.ratio.ends is None for row in measured):
        size = f": about {format_size(crossing.size)}" if crossing and crossing.size else ""
        texts = [f"a single repeat has no interval{size}: run more repeats"]
    elif crossing is None:
        texts.append("a crossover needs at least two sizes")
    else:
        # Only one end of the interval is known if the crossing may lie outside the measured sizes.
        ends = [f"above {format_size(crossing.low)}"] if crossing.low is not None else []
        ends += [f"below {format_size(crossing.high)}"] if crossing.high is not None else []
        texts += [f"if the costs cross, then {' and '.join(ends)}"] if ends else []
    return f"{'undetermined: ' if is_open else ''}{'; '.join(texts)}"


def sizes_by_better(measured: Sequence[MeasuredRatio]) -> dict[str | None, list[int]]:
    """Return {better strategy: its sizes}. Sizes without a difference come last, under the key None."""
    groups = grouped(measured, lambda row: row.better)
    return {
        name: [row.size_bytes for row in rows]
        for name, rows in sorted(groups.items(), key=lambda item: item[0] is None)
    }


def spell_sizes(sizes: Sequence[int], measured: Sequence[MeasuredRatio]) -> str:
    """Format some of the measured sizes: `at 1 KiB and from 16 KiB to 1 MiB`, `at every size from ...`."""
    ranges = []
    for chosen, rows in groupby(measured, key=lambda row: row.size_bytes in sizes):
        ends = [format_size(row.size_bytes) for row in rows]
        if chosen:
            ranges.append(f"at {ends[0]}" if len(ends) == 1 else f"from {ends[0]} to {ends[-1]}")
    every = "at every size " if len(measured) == len(sizes) > 1 else ""
    return every + join_with_and(ranges)


def where_second_is_better(row: Crossover) -> str:
    """Return where the second strategy of a pair is better or worse, as text for a cell of a table.

    Examples are `better from 12.5 KiB (9.34 KiB to 13.7 KiB)` and `worse from 4 KiB to 16 KiB`. Sizes without
    a difference are left out, unless no size has a difference.
    """
    if row.verdict == "crosses":
        preposition = "from" if row.above == row.pair[1] else "up to"
        interval = f"{format_size(row.low)} to {format_size(row.high)}"
        return f"better {preposition} {format_size(row.size_bytes)} ({interval})"
    if row.verdict in (ALWAYS, NEVER):
        return f"{'better' if row.verdict == ALWAYS else 'worse'} at every size"
    texts = [
        f"{'better' if name == row.pair[1] else 'worse'} {spell_sizes(sizes, row.measured)}"
        for name, sizes in sizes_by_better(row.measured).items()
        if name is not None
    ]
    if texts:
        return "; ".join(texts)
    return "no difference found" if any(at.ratio.ends for at in row.measured) else "unknown, one repeat"


def read_pair(text: str, runs: Sequence[Run]) -> tuple[str, tuple[str, str]]:
    """Parse `[SETTING=]FIRST,SECOND` into (setting, pair). Raises UsageError.

    Without SETTING, use the only setting that is FIRST in some runs and SECOND in others.
    """
    name, _, values_text = text.rpartition("=")
    first, _, second = values_text.partition(",")
    if not first or not second or first == second or "," in second:
        raise UsageError(f"--pair {text}: give two different values, for example {EXAMPLES}")
    names = [setting for setting in SETTINGS if setting not in AXES]
    if name and name not in names:
        raise UsageError(f"--pair {text}: unknown setting {name}; choose {', '.join(names)}")
    settings_of_runs = [settings(run) for run in runs]
    values = {setting: {spell_setting(row[setting]) for row in settings_of_runs} for setting in names}
    matching = [setting for setting in ([name] if name else names) if {first, second} <= values[setting]]
    if len(matching) == 1:
        return matching[0], (first, second)
    if matching:
        choices = " or ".join(f"{setting}={first},{second}" for setting in matching)
        raise UsageError(
            f"--pair {text}: ambiguous, because both {' and '.join(matching)} have these values; "
            f"use --pair {choices}"
        )
    varied = [
        f"{setting} {', '.join(sorted(values[setting]))}" for setting in names if len(values[setting]) > 1
    ]
    raise UsageError(
        f"--pair {text}: no setting has both values in these runs; "
        f"settings that differ: {'; '.join(varied) or 'none'}"
    )
