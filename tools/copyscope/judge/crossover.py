"""At which message size one strategy overtakes another, how sure that is, and what makes the difference.

Pure: records in, answers out. docs/method.md says how to read them.

Each size at which both were measured gives a ratio, paired by repeat; between two sizes the ratio is
interpolated (interpolation.py). Nothing is assumed of what a message costs beyond the measured sizes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from copyscope.errors import UsageError
from copyscope.judge import estimates, interpolation
from copyscope.judge.estimates import Point
from copyscope.judge.interpolation import Crossing, Verdict
from copyscope.judge.metrics import METRICS, SETTINGS, Scalar, factors, settings
from copyscope.record.check import Whole
from copyscope.stats import MORE, SAME, Estimate, Missing, ratio_of
from copyscope.units import format_size

# What is compared -> the sides whose CPU time it is.
SIDES: dict[str, tuple[str, ...]] = {
    "goodput_gbps": (),
    "sender_cpu_ns_per_kib": ("sender",),
    "receiver_cpu_ns_per_kib": ("receiver",),
    "system_cpu_ns_per_kib": ("sender", "receiver", "other"),
}
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
# The axes of a comparison; beside them, and what is compared, everything must be equal.
AXES = frozenset(("size", "threads"))
EXAMPLES = "--pair one_copy,uring_zc or --pair receiver=read,map"


@dataclass(frozen=True)
class Measured:
    """One size at which both strategies were measured: the ratio second / first of the quantity."""

    size_bytes: int
    ratio: Estimate
    better: str | None  # which strategy is; None: no difference found


@dataclass(frozen=True)
class Crossover:
    """The answer for one pair, one number of threads, one quantity.

    The pair is two values of the setting `by`. `size_bytes` is where the second overtakes the first (`above`
    names who is better above it); None without one. `low` and `high` are its 95 % interval; None where an
    end lies outside of the measured sizes. `split`: size -> ns per KiB that the second costs more, by group.
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
    measured: tuple[Measured, ...] = ()
    split: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    by: str = "impl"


Table = Mapping[tuple[str, int, int], Point]


def surroundings(found: Mapping[str, Scalar], run: Whole, by: str = "impl") -> dict[str, Scalar]:
    """The settings that two values of `by` must share. The number of messages in turn follows from the size
    where it was not set, so it is one of them only as a factor.
    """
    given = run.raw.run.factors or {}
    return {
        name: value
        for name, value in found.items()
        if name != by and name not in AXES and (name != "working_set" or name in given)
    }


def arrange(runs: Sequence[Whole], by: str = "impl") -> list[tuple[Mapping[str, Scalar], Table]]:
    """(setting, its points by the value of `by`, threads and size), of valid runs."""
    found: dict[str, tuple[Mapping[str, Scalar], dict[tuple[str, int, int], Point]]] = {}
    for point in estimates.group(runs):
        first = point.runs[0]
        other = surroundings(factors(first), first, by)
        key = (spelled(settings(first)[by]), first.raw.asked.threads, first.raw.asked.size_bytes)
        found.setdefault(repr(sorted(other.items())), (other, {}))[1][key] = point
    return list(found.values())


def spelled(value: Scalar) -> str:
    """A setting's value as the command line has it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def crossovers_of(
    runs: Sequence[Whole],
    quantities: Iterable[str] = tuple(SIDES),
    pairs: Iterable[tuple[str, str]] = PAIRS,
    by: str = "impl",
) -> list[Crossover]:
    """Every pair, number of threads and quantity of which both strategies were measured at some size."""
    answers = []
    for where, table in arrange(runs, by):
        for threads in sorted({threads for _, threads, _ in table}):
            for pair in pairs:
                if all((name, threads) in {key[:2] for key in table} for name in pair):
                    answers += [_answer(table, pair, threads, quantity, where) for quantity in quantities]
    return [replace(at, by=by) for at in answers]


@dataclass(frozen=True)
class Costs:
    """What one strategy was measured to cost: size -> the quantity, in its own unit."""

    impl: str
    threads: int
    quantity: str
    where: Mapping[str, Scalar]
    measured: Mapping[int, Estimate | Missing]


def costs_of(runs: Sequence[Whole], by: str = "impl") -> list[Costs]:
    """One row for each strategy, number of threads and quantity: interpolation.at_size() takes them."""
    found = []
    for where, table in arrange(runs, by):
        for (impl, threads), keys in groupby(sorted(table), lambda key: key[:2]):
            sizes = {size: table[impl, threads, size] for _, _, size in keys}
            for quantity in SIDES:
                measured = {size: estimates.estimate(point, quantity) for size, point in sizes.items()}
                if any(isinstance(one, Estimate) for one in measured.values()):
                    found.append(Costs(impl, threads, quantity, where, measured))
    return found


def _answer(
    table: Table, pair: tuple[str, str], threads: int, quantity: str, where: Mapping[str, Scalar]
) -> Crossover:
    points = {
        size: (point, table[pair[1], threads, size])
        for (name, count, size), point in sorted(table.items())
        if (name, count) == (pair[0], threads) and (pair[1], threads, size) in table
    }
    known = {size: estimates.pairs(second, first, quantity) for size, (first, second) in points.items()}
    paired = {size: found for size, found in known.items() if not isinstance(found, Missing)}
    sides, more = SIDES[quantity], METRICS[quantity].more_is_better
    measured = tuple(_measured(size, found, pair, more_is_better=more) for size, found in paired.items())
    split = {size: estimates.split(*points[size], sides) for size in paired if sides}
    made = Crossover(pair, threads, quantity, where=where, measured=measured, split=split)
    if len(paired) < 2:
        have = f"only at {_ratio_text(measured[0], pair)}" if measured else "at no size"
        evidence = f"undetermined: both were measured {have}: at least two sizes are needed"
        return replace(made, evidence=evidence)
    costs = {size: [a / b if more else b / a for b, a in found] for size, found in paired.items()}
    crossing = interpolation.find(costs, f"{pair} {threads} {quantity}")
    above = None if crossing.rising is None else pair[crossing.rising]
    made = replace(made, size_bytes=crossing.size, low=crossing.low, high=crossing.high, level=crossing.level)
    return replace(made, verdict=crossing.verdict, evidence=_evidence(crossing, measured, pair), above=above)


def _measured(
    size: int, found: Sequence[tuple[float, float]], names: tuple[str, str], *, more_is_better: bool
) -> Measured:
    ratio = ratio_of(found)
    verdict = ratio.against(1.0)
    return Measured(size, ratio, None if verdict == SAME else names[(verdict == MORE) == more_is_better])


def _ratio_text(at: Measured, pair: tuple[str, str]) -> str:
    """What was measured at a size, as `64 KiB (map / read: 0.97, 0.96 to 0.99)`."""
    ends = "" if at.ratio.low is None else f", {at.ratio.low:.3g} to {at.ratio.high:.3g}"
    return f"{format_size(at.size_bytes)} ({pair[1]} / {pair[0]}: {at.ratio.value:.3g}{ends})"


def _evidence(crossing: Crossing, measured: Sequence[Measured], pair: tuple[str, str]) -> str:
    first, second = pair
    span = f"from {format_size(measured[0].size_bytes)} to {format_size(measured[-1].size_bytes)}"
    if crossing.level == 0:
        at = "" if crossing.size is None else f": about {format_size(crossing.size)}"
        return f"undetermined: one repeat has no interval{at}: run more repeats"
    if crossing.verdict == "never":
        return f"{second} never overtakes {first} {span}"
    if crossing.verdict == "always":
        return f"{second} is better than {first} at every size {span}"
    if crossing.verdict == "crosses":
        who = second if crossing.rising else first
        interval = f"95 % interval {format_size(crossing.low)} to {format_size(crossing.high)}"
        return f"{who} is better above {format_size(crossing.size)} ({interval})"
    if not any(at.better for at in measured):
        return f"undetermined: no difference found between {first} and {second} {span}"
    texts = []
    for better, alike in groupby(measured, key=lambda at: at.better):
        ends = [format_size(at.size_bytes) for at in alike]
        where = f"at {ends[0]}" if len(ends) == 1 else f"from {ends[0]} to {ends[-1]}"
        texts.append(f"{better} is better {where}" if better else f"no difference found {where}")
    # What is known of a crossing that may lie outside of the measured sizes.
    ends = [f"above {format_size(crossing.low)}"] if crossing.low is not None else []
    ends += [f"below {format_size(crossing.high)}"] if crossing.high is not None else []
    texts += [f"if they cross, then {' and '.join(ends)}"] if ends else []
    return f"undetermined: {'; '.join(texts)}"


def read_pair(text: str, runs: Sequence[Whole]) -> tuple[str, tuple[str, str]]:
    """`[SETTING=]FIRST,SECOND` as (setting, pair). Raises UsageError.

    Without a name it is the setting of which some runs have the one value and some the other.
    """
    name, _, rest = text.rpartition("=")
    first, _, second = rest.partition(",")
    if not first or not second or first == second or "," in second:
        raise UsageError(f"--pair: {text!r}: give two different values, for example {EXAMPLES}")
    known = [setting for setting in SETTINGS if setting not in AXES]
    if name and name not in known:
        raise UsageError(f"--pair: {name}: no setting: use one of {', '.join(known)}")
    found_settings = [settings(run) for run in runs]
    values = {setting: {spelled(one[setting]) for one in found_settings} for setting in known}
    found = [s for s in ([name] if name else known) if {first, second} <= values[s]]
    if len(found) == 1:
        return found[0], (first, second)
    if found:
        given = " or ".join(f"{setting}={first},{second}" for setting in found)
        raise UsageError(f"--pair: {text}: values of {' and of '.join(found)}: say --pair {given}")
    there = "; ".join(f"{s} {', '.join(sorted(values[s]))}" for s in known if len(values[s]) > 1)
    raise UsageError(f"--pair: {text}: not both in these runs, which differ in: {there or 'nothing'}")
