"""Two sets of runs, setting by setting: what differs, and the verdict. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import geometric_mean
from typing import Annotated, Any

from msgspec import Meta, Struct

from copyscope import stats
from copyscope.errors import UsageError
from copyscope.grouping import grouped
from copyscope.judge.difference import (
    ALL,
    BETTER,
    BYTES,
    CALLS,
    CPU,
    GOODPUT,
    SAME,
    SENDS,
    UNSURE,
    WORSE,
    Difference,
    How,
    Key,
    Row,
    compare,
    enough,
    judge,
    read_metric,
    share_of,
)
from copyscope.judge.metrics import SETTINGS, Scalar, settings
from copyscope.record.check import Whole
from copyscope.record.same_machine import SAME_MACHINE, SAME_SETTINGS

BEFORE_AND_AFTER, TO_CHOOSE = "diff", "compare"
NOISE_FILE = "noise.json"
# No two equal runs differ a thousandfold.
NOISE_MAX = 1000.0
# What two sets of runs may differ in, if asked to.
PROGRAM = "program"
ACROSS = (*SAME_MACHINE, *SETTINGS, PROGRAM)
LABELS = {"goodput": GOODPUT, "CPU time": CPU}
# Copies that nobody asked for: of two ways that somebody chooses between, and as the name of a row.
COPIED = {
    "deferred": "{} of the bytes late",
    "silent": "{} of the bytes without saying so",
    "flagged": "{} of the sends were reported as copied",
}
APPEARED = {"deferred": "late copies", "silent": "hidden copies", "flagged": "sends that were copied"}
BEFORE_AFTER = ("before", "after")


class Comparison(Struct, frozen=True):
    """What `diff` and `compare` of two find, and write as JSON (docs/reference/verdicts.md)."""

    kind: str
    across: list[str]
    machine: list[dict[str, Any]]
    # Settings of the machine that somebody has changed: named, and no reason not to compare.
    also_differs: list[tuple[str, Any, Any]]
    pmus: list[str] | None
    noise: Mapping[str, float] | None
    verdict: str
    names: list[str]
    sentence: str
    enough_runs: int | None
    overall: list[Row]
    points: list[Difference]
    only_in: list[list[dict[str, Scalar]]]

    @property
    def is_choice(self) -> bool:
        """Whether these are two ways to choose between, and not one before and after a change."""
        return self.kind == TO_CHOOSE


class Noise(Struct, frozen=True, tag_field="kind", tag="noise"):
    """Of equal runs: for each metric the share that two of them stay within, 19 times of 20."""

    hostname: str
    kernel: str
    blocks: int
    metrics: dict[str, Annotated[float, Meta(ge=0, le=NOISE_MAX)]]


def document(
    before: Sequence[Whole],
    after: Sequence[Whole],
    how: How,
    across: frozenset[str] = frozenset(),
    names: Sequence[str] = BEFORE_AFTER,
) -> Comparison:
    """The differences of two sets of runs. Raises UsageError when they cannot be compared.

    Settings that only one of the two has are listed and left out. Of several settings each is judged at a
    level that leaves one false alarm in twenty for all of them together.
    """
    check_machine(before, after, across)
    groups = [by_setting(runs, across) for runs in (before, after)]
    shared = [key for key in groups[0] if key in groups[1]]
    if not shared:
        one, other = (dict(next(iter(group))) for group in groups)
        raise UsageError(next(filter(None, (why_apart(name, one, other) for name in one))))
    each = replace(how, level=1 - (1 - how.level) / len(shared))
    points = []
    for key in shared:
        old, new = groups[0][key], groups[1][key]
        pairs = how.paired and len(old) == len(new)
        points.append(compare(old, new, replace(each, paired=pairs), key))
    overall = over_all(points) if len(points) > 1 else []
    verdict = find_verdict(points, overall)
    lone = points[0] if len(points) == 1 and verdict == UNSURE else None
    machines = machine_of(before[0]), machine_of(after[0])
    return Comparison(
        kind=TO_CHOOSE if how.chosen else BEFORE_AND_AFTER,
        across=sorted(across),
        machine=[{name: machine[name] for name in SAME_MACHINE} for machine in machines],
        also_differs=[
            (name, old, new)
            for name in SAME_SETTINGS
            if (old := machines[0][name]) != (new := machines[1][name])
        ],
        pmus=apart(before[0], after[0]),
        noise=how.noise,
        verdict=verdict,
        names=list(names),
        sentence=sentence(verdict, points, overall, names, chosen=how.chosen),
        enough_runs=None if lone is None else enough(lone.rows, lone.runs, how),
        overall=overall,
        points=points,
        only_in=[[dict(key) for key in mine if key not in other] for mine, other in (groups, groups[::-1])],
    )


def machine_of(run: Whole) -> dict[str, Any]:
    """What tells machines, and states of one, apart."""
    return {name: getattr(run.raw.machine, name) for name in (*SAME_MACHINE, *SAME_SETTINGS)}


def apart(before: Whole, after: Whole) -> list[str] | None:
    """The processors of two runs with unlike PMUs: their cycles and misses are unlike events."""
    machines = before.raw.machine, after.raw.machine
    first, second = ((one.arch, one.cpu_model, one.pmu) for one in machines)
    if first == second or not (first[2] and second[2]):
        return None
    return [one.cpu_model for one in machines]


def over_all(points: Sequence[Difference]) -> list[Row]:
    """Goodput and CPU time over all settings: the mean of their changes, each setting once."""
    made = []
    for what, metric in LABELS.items():
        rows = [row for point in points for row in point.rows if row.what == what]
        logs = [math.log1p(row.change) for row in rows if row.change is not None]
        if len(logs) < 2:
            continue
        mean = stats.difference_of([0.0] * len(logs), logs, paired=True)
        assert mean.ends is not None
        (low, high), threshold = map(share_of, mean.ends), rows[0].threshold
        found = judge(low, high, threshold, metric)
        row = Row(what, None, rows[0].unit, change=share_of(mean.value), low=low, high=high)
        made.append(replace(row, threshold=threshold, verdict=found, decides=True))
    return made


def find_verdict(points: Sequence[Difference], overall: Sequence[Row]) -> str:
    """One regression is enough; else what holds over all settings, where there are several."""
    each = {point.verdict for point in points}
    together = {row.verdict for row in overall}
    if WORSE in each | together:
        return WORSE
    return next((one for one in (UNSURE, BETTER) if one in (together or each)), SAME)


def check_machine(before: Sequence[Whole], after: Sequence[Whole], across: frozenset[str]) -> None:
    """Raises UsageError for the first key in which two machines, or kinds of run, are not the same."""
    first = before[0]
    for other in (*before, *after):
        if (other.raw.target is None) != (first.raw.target is None):
            raise UsageError("copyscope's own traffic and a watched program cannot be compared")
        for name in SAME_MACHINE:
            if name not in across and (why := why_apart(name, machine_of(first), machine_of(other))):
                raise UsageError(f"machine.{why}")


def by_setting(runs: Iterable[Whole], across: frozenset[str]) -> dict[Key, list[Whole]]:
    """The runs of each setting, in the order of their blocks; of a watched program: which it is."""

    def key(run: Whole) -> Key:
        known = settings(run) if run.raw.target is None else {PROGRAM: run.raw.target.name.partition("[")[0]}
        return tuple(sorted((name, value) for name, value in known.items() if name not in across))

    return {
        setting: sorted(group, key=lambda run: (run.raw.run.repeat, run.raw.run.started))
        for setting, group in grouped(runs, key).items()
    }


def why_apart(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """What two runs differ in under this name; None: in nothing."""
    a, b = ("not known" if one.get(name) is None else one[name] for one in (before, after))
    return f"{name}: {a} and {b}: not comparable; add --across {name} to compare anyway" if a != b else None


def sentence(
    verdict: str, points: Sequence[Difference], overall: Sequence[Row], names: Sequence[str], *, chosen: bool
) -> str:
    """The verdict for people; of one setting with what it rests on."""
    if len(points) > 1:
        tally = [
            (sum(point.verdict == one for point in points), one) for one in (WORSE, BETTER, SAME, UNSURE)
        ]
        counts = ", ".join(f"{count} {word}" for count, word in tally if count)
        means = "".join(f"; {said(row)}" for row in overall)
        return f"{verdict}: of {len(points)} settings {counts}{means} over all"
    found = points[0]
    if chosen:
        return choice(found, names)
    parts = [
        f"{APPEARED[one.copy]} appeared: {percent(one.before)} before, {percent(one.after)} after"
        for one in found.appeared
    ]
    telling = [row for row in found.rows if row.decides and row.verdict != SAME and row.unit != CALLS]
    new = {one.copy for one in found.appeared}
    parts += [
        said(row) for row in telling if row.what in LABELS or (row.verdict != UNSURE and row.what not in new)
    ]
    if parts:
        return f"{verdict}: {'; '.join(parts)}"
    if verdict == UNSURE:
        return (
            f"{verdict}: {next((row.reason for row in found.rows if row.reason), 'nothing differs for sure')}"
        )
    return f"{verdict} was found between before and after"


def choice(found: Difference, names: Sequence[str]) -> str:
    """What the second of two ways comes to: what somebody gets and pays decides, not how it is copied."""
    rows = {row.what: row for row in found.rows if row.decides}
    first, second = names
    text = _speed(rows["goodput"], first, second) + _price(rows.get("CPU time"))
    less = next(
        (row for row in found.rows if (row.what, row.unit, row.verdict) == (ALL, BYTES, BETTER)), None
    )
    if less is not None:
        text += f"; it copies {less.after:.2f} bytes for each byte instead of {less.before:.2f}"
    copied = [COPIED[one.copy].format(percent(one.after)) for one in found.appeared]
    path = found.setting.get("topology", "these paths")
    return f"{text}; over {path} the kernel copied anyway: {', '.join(copied)}" if copied else text


def _speed(row: Row, first: str, second: str) -> str:
    if row.before is None or row.after is None:
        return f"goodput of {first} and {second} n/a ({row.reason})"
    values = f"{row.after:.3g} instead of {row.before:.3g} {row.unit}{between(row)}"
    words = {WORSE: f"{second} is slower than {first}", BETTER: f"{second} is faster than {first}"}
    if row.verdict in words:
        return f"{words[row.verdict]}: {values}"
    if row.verdict == SAME:
        return f"{second} is as fast as {first}: {values}"
    return f"no difference in goodput was found between {first} and {second}: {values}"


def _price(row: Row | None) -> str:
    if row is None or row.before is None or row.after is None:
        return ""
    if row.verdict in (WORSE, BETTER):
        values = f"{row.after:,.0f} instead of {row.before:,.0f} {row.unit}"
        return f"; it takes {values} of CPU time{between(row)}"
    found = "as much CPU time" if row.verdict == SAME else "CPU time: no difference was found"
    return f"; {found}{between(row)}"


def between(row: Row) -> str:
    """The interval of a change, in brackets."""
    if row.change is None:
        return ""
    ends = (row.change if end is None else end for end in (row.low, row.high))
    # Adding nothing makes +0 of -0.
    low, high = (f"{round(end * 100) + 0.0:+.0f}" for end in ends)
    return f" ({low} %)" if low == high else f" ({low} to {high} %)"


def said(row: Row) -> str:
    """One row in words."""
    if row.change is None:
        return f"{row.what} n/a ({row.reason})"
    if row.base == "payload" and row.before is not None and row.after is not None:
        if row.unit == SENDS:
            return f"sends copied anyway: {percent(row.before)} before, {percent(row.after)} after"
        return f"counted copies per byte: {row.before:.2f} before, {row.after:.2f} after"
    name = row.what if row.what in LABELS else f"{row.what} {row.unit}"
    text = f"{name} {row.change:+.1%}".replace("%", " %")
    if row.low is not None and row.high is not None and row.low != row.high:
        text += f" ({row.low * 100:+.1f} to {row.high * 100:+.1f})"
    return text


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def noise(before: Sequence[Whole], after: Sequence[Whole]) -> Noise:
    """What blocks of two equal runs differ by."""
    made = {}
    for name in (GOODPUT, CPU):
        blocks = [[read_metric(run, name) for run in block] for block in zip(before, after, strict=True)]
        known = [[one for one in block if not isinstance(one, stats.Missing) and one] for block in blocks]
        logs = [math.log(block[1] / block[0]) for block in known if len(block) == 2]
        if logs:
            spread = math.sqrt(sum(one * one for one in logs) / len(logs))
            made[name] = math.expm1(spread * stats.student(stats.LEVEL, len(logs)))
    machine = before[0].raw.machine
    return Noise(machine.hostname, machine.kernel, len(before), made)


@dataclass(frozen=True)
class Ranked:
    """One of several ways: how fast it is; `goodput`, `cpu`: against the one above it."""

    name: str
    gbps: float | None
    cpu_ns_per_kib: float | None
    against: str | None = None
    goodput: Row | None = None
    cpu: Row | None = None

    @property
    def is_apart(self) -> bool:
        return self.goodput is not None and self.goodput.verdict in (WORSE, BETTER)

    def __str__(self) -> str:
        return f"{self.name} {'n/a' if self.gbps is None else f'{self.gbps:.3g} Gb/s'}"


class Ranking(Struct, frozen=True, tag_field="kind", tag="ranking"):
    """More than two ways, the fastest first; `judged`: each of the others against the first named."""

    names: list[str]
    verdict: str
    against: str
    judged: dict[str, str]
    ranking: list[Ranked]
    sentence: str


def ranking(groups: Sequence[tuple[str, Sequence[Whole]]], how: How) -> Ranking:
    """Each against the one above it.

    Each comparison is at a level that leaves one false alarm in twenty for all of them together.
    """
    each = replace(how, level=1 - (1 - how.level) / (2 * (len(groups) - 1)))
    speeds = {name: mean_of(runs, GOODPUT) for name, runs in groups}
    runs_of = dict(groups)
    ranked = sorted(speeds, key=lambda name: -(speeds[name] or 0.0))
    rows = [Ranked(ranked[0], speeds[ranked[0]], mean_of(runs_of[ranked[0]], CPU))]
    for above, name in pairwise(ranked):
        goodput, cpu, *_ = compare(runs_of[above], runs_of[name], each).rows
        rows.append(Ranked(name, speeds[name], mean_of(runs_of[name], CPU), above, goodput, cpu))
    (first, before), *others = groups
    judged = {name: compare(before, after, each).verdict for name, after in others}
    return Ranking(
        names=[name for name, _ in groups],
        verdict=next((one for one in (WORSE, UNSURE, BETTER) if one in judged.values()), SAME),
        against=first,
        judged=judged,
        ranking=rows,
        sentence=f"{ranked_sentence(rows)}; against {first}: {_listed(judged)}",
    )


def mean_of(runs: Sequence[Whole], metric: str) -> float | None:
    """The geometric mean of what is known."""
    known = [one for run in runs if not isinstance(one := read_metric(run, metric), stats.Missing) and one]
    return geometric_mean(known) if known else None


def _listed(judged: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {verdict}" for name, verdict in judged.items())


def _beside(row: Ranked) -> str:
    """Of one that is not known to be slower than the one above; that none was found does not say the same."""
    if row.is_apart:
        return ""
    same = row.goodput is not None and row.goodput.verdict == SAME
    return f" (no difference from {row.against})" if same else f" (not clear against {row.against})"


def ranked_sentence(rows: Sequence[Ranked]) -> str:
    """`the fastest: one_copy 11.2 Gb/s; then ...`; of who is no slower than the one above that is said."""
    first, *others = rows
    text = f"the fastest: {first}"
    if not others[0].is_apart:
        second, *others = others
        text = f"no difference was found between {first} and {second}"
    then = (f"{row}{_beside(row)}" for row in others)
    return f"{text}; then {', '.join(then)}" if others else text
