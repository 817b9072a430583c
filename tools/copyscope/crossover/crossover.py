"""At which message size one strategy overtakes another, how sure that is, and what makes the difference.

Pure: records in, answers out. docs/method/crossover.md says how to read them.

The size comes from cost models fitted to the ledger rows (cost_model.py); resampling the repeats gives its
interval. Beside it stands what was measured directly: between which two sizes the ratio of the strategies
changed sides. Where the model puts the crossover elsewhere, it is not believed: the size then comes from the
measured ratios, interpolated, and the answer says so.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from copyscope.compare import estimates
from copyscope.compare.estimates import MORE, SAME, Estimate, Missing, Point
from copyscope.compare.metrics import METRICS
from copyscope.compare.settings import Scalar, factors, settings
from copyscope.crossover import sign_change
from copyscope.crossover.cost_model import PARTS
from copyscope.crossover.sign_change import Crossing
from copyscope.crossover.strategy_costs import Costs, StrategyCosts, Table, fit_costs
from copyscope.record.segments import Record
from copyscope.units import format_size

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
)
# The axes of a comparison; beside them, and what is compared, everything must be equal.
AXES = frozenset(("size", "threads"))

Verdict = Literal["crosses", "never", "always", "undetermined"]


@dataclass(frozen=True)
class Measured:
    """One size at which both strategies were measured: the ratio second / first of the quantity."""

    size_bytes: int
    ratio: Estimate | Missing
    better: str | None  # which strategy is; None: no difference found


@dataclass(frozen=True)
class Crossover:
    """The answer for one pair, one number of threads, one quantity.

    The pair is two values of the setting `by`. `size_bytes` is where the second overtakes the first (`above`
    names who is better above it); None without one. `low` and `high` are its 95 % interval; None where an
    end lies outside of the measured sizes. `method`: `model`, or `interpolated` where the model contradicts
    what was measured.
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
    method: str | None = None
    level: float = 0.0
    where: Mapping[str, Scalar] = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    split: tuple[Mapping[str, float], ...] = ()
    by: str = "impl"


Fitted = tuple[Mapping[str, Scalar], Table, Mapping[tuple[str, int], StrategyCosts]]


def surroundings(found: Mapping[str, Scalar], record: Record, by: str = "impl") -> dict[str, Scalar]:
    """The settings that two values of `by` must share. The number of messages in turn follows from the size
    where it was not set, so it is one of them only as a factor.
    """
    given = record["run"].get("factors") or {}
    return {
        name: value
        for name, value in found.items()
        if name != by and name not in AXES and (name != "working_set" or name in given)
    }


def arrange(records: Sequence[Record], by: str = "impl") -> list[tuple[Mapping[str, Scalar], Table]]:
    """(setting, its points by the value of `by`, threads and size), of valid runs."""
    found: dict[str, tuple[Mapping[str, Scalar], dict[tuple[str, int, int], Point]]] = {}
    for point in estimates.group(records):
        first = point.records[0]
        other = surroundings(factors(first), first, by)
        work = first["workload"]
        key = (spelled(settings(first)[by]), int(work["threads"]), int(work["size_bytes"]))
        found.setdefault(repr(sorted(other.items())), (other, {}))[1][key] = point
    return list(found.values())


def spelled(value: Scalar) -> str:
    """A setting's value as the command line has it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def fitted(
    records: Sequence[Record], by: str = "impl", quantities: Iterable[str] = tuple(PARTS)
) -> list[Fitted]:
    """(setting, its points, the models of each strategy and number of threads): what takes the time."""
    return [(where, table, fit_costs(table, quantities)) for where, table in arrange(records, by)]


def crossovers_of(
    fits: Sequence[Fitted],
    quantities: Iterable[str] = tuple(PARTS),
    pairs: Iterable[tuple[str, str]] = PAIRS,
    by: str = "impl",
) -> list[Crossover]:
    """Every pair, number of threads and quantity of which both strategies were measured at some size."""
    answers = []
    for where, table, models in fits:
        for threads in sorted({threads for _, threads, _ in table}):
            for pair in pairs:
                first, second = (models.get((name, threads)) for name in pair)
                if first is None or second is None:
                    continue
                answers += [_answer(first, second, table, quantity, where) for quantity in quantities]
    return [replace(at, by=by) for at in answers]


def costs_of(fits: Sequence[Fitted]) -> list[Costs]:
    """The cost models with their residuals, one per strategy, number of threads and quantity."""
    return [found for where, _, models in fits for model in models.values() for found in model.costs(where)]


def _answer(
    first: StrategyCosts, second: StrategyCosts, table: Table, quantity: str, where: Mapping[str, Scalar]
) -> Crossover:
    pair, threads = (first.impl, second.impl), first.threads
    sizes = sorted(set(first.sizes(quantity)) & set(second.sizes(quantity)))
    measured = tuple(
        _measured(table[first.impl, threads, size], table[second.impl, threads, size], size, quantity, pair)
        for size in sizes
    )
    split: tuple[Mapping[str, float], ...] = ()
    if quantity != "goodput_gbps":
        split = tuple(_split(first, second, quantity, size) for size in sizes)

    unknown = Crossover(pair, threads, quantity, measured=measured, split=split, where=where)
    if len(sizes) < 2:
        have = f"only at {_ratio_text(measured[0], pair)}" if measured else "at no size"
        evidence = f"undetermined: both were measured {have}: at least two sizes are needed"
        return replace(unknown, evidence=evidence)
    repeated = first.repeated and second.repeated
    curves = zip(first.curves(quantity), second.curves(quantity), strict=True)
    crossing, method = sign_change.find(sizes, [_log_ratio(a, b) for a, b in curves], repeated), "model"
    worst = [max(abs(value) for value in model.residuals(quantity).values()) for model in (first, second)]
    fits = f"largest residual of the models {worst[0]:.0%} ({first.impl}), {worst[1]:.0%} ({second.impl})"
    contradiction = _contradiction(crossing, measured, pair)
    if contradiction is not None:
        direct = _direct_curves(first, second, quantity, sizes)
        crossing, method = sign_change.find(sizes, direct, repeated), "interpolated"
        again = _contradiction(crossing, measured, pair)
        if again is not None:
            return replace(unknown, evidence=f"undetermined: no single size fits: {again}; {fits}")
    verdict, remark = _judge(crossing, measured, pair, sizes)
    if contradiction is not None:
        remark += f"; the cost model does not fit ({contradiction}): from the measured ratios instead"
    above = None if crossing.rising is None else pair[crossing.rising]
    at = replace(unknown, size_bytes=crossing.size, low=crossing.low, high=crossing.high, above=above)
    evidence = f"{remark}; {fits}"
    return replace(at, verdict=verdict, evidence=evidence, method=method, level=crossing.level)


def _measured(first: Point, second: Point, size: int, quantity: str, names: tuple[str, str]) -> Measured:
    ratio = estimates.ratio(second, first, quantity)
    verdict = SAME if isinstance(ratio, Missing) else ratio.against(1.0)
    second_wins = (verdict == MORE) == METRICS[quantity].more_is_better
    return Measured(size, ratio, None if verdict == SAME else names[second_wins])


def _ratio_text(at: Measured, pair: tuple[str, str]) -> str:
    """What was measured at a size, as `64 KiB (map / read: 0.97, 0.96 to 0.99)`."""
    if isinstance(at.ratio, Missing):
        return format_size(at.size_bytes)
    ends = "" if at.ratio.low is None else f", {at.ratio.low:.3g} to {at.ratio.high:.3g}"
    return f"{format_size(at.size_bytes)} ({pair[1]} / {pair[0]}: {at.ratio.value:.3g}{ends})"


def _contradiction(crossing: Crossing, measured: Sequence[Measured], pair: tuple[str, str]) -> str | None:
    """A size at which the strategies were measured to be the other way round than the crossing says."""
    for at in measured:
        if at.better is None:
            continue
        expected = crossing.second_better(at.size_bytes)
        at_the_border = (crossing.low or 0) <= at.size_bytes <= (crossing.high or math.inf)
        if expected is not None and not at_the_border and expected != (at.better == pair[1]):
            return f"{at.better} was measured to be better at {format_size(at.size_bytes)}"
    return None


def _judge(
    crossing: Crossing, measured: Sequence[Measured], pair: tuple[str, str], sizes: Sequence[int]
) -> tuple[Verdict, str]:
    first, second = pair
    span = f"from {format_size(sizes[0])} to {format_size(sizes[-1])}"
    if crossing.level == 0:
        at = "" if crossing.size is None else f": about {format_size(crossing.size)}"
        return "undetermined", f"undetermined: one repeat has no interval{at}: run more repeats"
    if crossing.kind == "never":
        return "never", f"{second} never overtakes {first} {span}"
    if crossing.kind == "always":
        return "always", f"{second} is better than {first} at every size {span}"
    if crossing.kind == "crosses":
        who = second if crossing.rising else first
        interval = f"95 % interval {format_size(crossing.low)} to {format_size(crossing.high)}"
        return "crosses", f"{who} is better above {format_size(crossing.size)} ({interval})"
    if not any(at.better for at in measured):
        return "undetermined", f"undetermined: no difference found between {first} and {second} {span}"
    texts = []
    for name in dict.fromkeys(at.better for at in measured):
        where = ", ".join(format_size(at.size_bytes) for at in measured if at.better == name)
        texts.append(f"{name} is better at {where}" if name else f"no difference found at {where}")
    # What is known of a crossing that may lie outside of the measured sizes.
    ends = [f"above {format_size(crossing.low)}"] if crossing.low is not None else []
    ends += [f"below {format_size(crossing.high)}"] if crossing.high is not None else []
    texts += [f"if they cross, then {' and '.join(ends)}"] if ends else []
    return "undetermined", f"undetermined: {'; '.join(texts)}"


def _log_ratio(a: Callable[[float], float], b: Callable[[float], float]) -> Callable[[float], float]:
    def at(size: float) -> float:
        ours, theirs = b(size), a(size)
        if ours <= 0 or theirs <= 0:
            return math.copysign(math.inf, ours - theirs) if ours != theirs else 0.0
        return math.log(ours / theirs)

    return at


def _direct_curves(
    first: StrategyCosts, second: StrategyCosts, quantity: str, sizes: Sequence[int]
) -> list[Callable[[float], float]]:
    curves = []
    for a, b in zip(first.measured_and_drawn(quantity), second.measured_and_drawn(quantity), strict=True):
        ratio = _log_ratio(a.__getitem__, b.__getitem__)
        curves.append(sign_change.interpolate(sizes, [ratio(size) for size in sizes]))
    return curves


def _split(first: StrategyCosts, second: StrategyCosts, quantity: str, size: int) -> dict[str, float]:
    """ns per KiB that the second strategy costs more (less: negative), by group of rows, as measured."""
    ours, theirs = (model.groups(quantity, size) for model in (second, first))
    kib = size / 1024
    found: dict[str, float] = {group: round((ours[group] - theirs[group]) / kib, 3) for group in ours}
    return {"size_bytes": size, **found, "sum": round(sum(found.values()), 3)}
