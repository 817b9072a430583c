"""Two sets of runs, setting by setting, as one document: what differs, and the verdict. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

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
    UNSURE,
    WORSE,
    Difference,
    How,
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

KIND, NOISE = "diff", "noise"
NOISE_FILE = "noise.json"
# No two equal runs differ a thousandfold.
NOISE_MAX = 1000.0
# What two sets of runs may differ in, if asked to.
ACROSS = (*SAME_MACHINE, *SETTINGS)
Key = tuple[tuple[str, Scalar], ...]
LABELS = {"goodput": GOODPUT, "CPU time": CPU}
# Of two ways that somebody chooses between, and what copies that nobody asked for come to there.
CHOICE = {WORSE: "worse", BETTER: "better", SAME: "no different", UNSURE: "not decided"}
COPIED = {
    "deferred": "{} of the bytes late (deferred)",
    "silent": "{} of the bytes without saying so (silent)",
    "flagged": "{} of the sends were reported as copied",
}


def document(
    before: Sequence[Whole], after: Sequence[Whole], how: How, across: frozenset[str] = frozenset()
) -> dict[str, Any]:
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
        found = compare(old, new, replace(each, paired=pairs))
        points.append((key, found, (len(old), len(new))))
    overall = over_all([found for _, found, _ in points]) if len(points) > 1 else []
    verdict = find_verdict([found for _, found, _ in points], overall)
    lone = points[0] if len(points) == 1 and verdict == UNSURE else None
    machines = machine_of(before[0]), machine_of(after[0])
    return {
        "kind": KIND,
        "across": sorted(across),
        "machine": [{name: machine[name] for name in SAME_MACHINE} for machine in machines],
        # Settings of the machine that somebody has changed: named, and no reason not to compare.
        "also_differs": [
            [name, old, new]
            for name in SAME_SETTINGS
            if (old := machines[0][name]) != (new := machines[1][name])
        ],
        "pmus": apart(before[0], after[0]),
        "noise": None if how.noise is None else dict(how.noise),
        "verdict": verdict,
        "sentence": sentence(verdict, points, overall),
        "enough_runs": lone and enough(lone[1], lone[2], how),
        "overall": [asdict(row) for row in overall],
        "points": [
            {
                "setting": dict(key),
                "runs": list(runs),
                "verdict": found.verdict,
                "appeared": [asdict(one) for one in found.appeared],
                "rows": [asdict(row) for row in found.rows],
            }
            for key, found, runs in points
        ],
        "only_in": [
            [dict(key) for key in mine if key not in other] for mine, other in (groups, groups[::-1])
        ],
    }


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
        row = Row(what, None, None, rows[0].unit, change=share_of(mean.value), low=low, high=high)
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
            raise UsageError("traffic of our own and a watched program: the two have nothing to compare")
        for name in SAME_MACHINE:
            if name not in across and (why := why_apart(name, machine_of(first), machine_of(other))):
                raise UsageError(f"machine.{why}")


def by_setting(runs: Iterable[Whole], across: frozenset[str]) -> dict[Key, list[Whole]]:
    """The runs of each setting, in the order of their blocks; of a program that is watched there is one."""

    def key(run: Whole) -> Key:
        known = settings(run) if run.raw.target is None else {}
        return tuple(sorted((name, value) for name, value in known.items() if name not in across))

    return {
        setting: sorted(group, key=lambda run: (run.raw.run.repeat, run.raw.run.started))
        for setting, group in grouped(runs, key).items()
    }


def why_apart(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """What two runs differ in under this name; None: in nothing."""
    a, b = ("not known" if one.get(name) is None else one[name] for one in (before, after))
    return f"{name}: {a} and {b}: not comparable: --across {name} does it" if a != b else None


def sentence(
    verdict: str, points: Sequence[tuple[Key, Difference, tuple[int, int]]], overall: Sequence[Row]
) -> str:
    """The verdict for people; of one setting with what it rests on."""
    if len(points) > 1:
        tally = [
            (sum(found.verdict == one for _, found, _ in points), one)
            for one in (WORSE, BETTER, SAME, UNSURE)
        ]
        counts = ", ".join(f"{count} {word}" for count, word in tally if count)
        means = "".join(f"; {said(row)}" for row in overall)
        return f"{verdict}: of {len(points)} settings {counts}{means} over all"
    (key, found, _) = points[0]
    if found.chosen:
        return choice(found, str(dict(key).get("topology", "these paths"))) + surely(found)
    parts = [
        f"{one.copy} copies appeared: {percent(one.before)} before, {percent(one.after)} after"
        for one in found.appeared
    ]
    telling = [row for row in found.rows if row.decides and row.verdict != SAME and row.unit != CALLS]
    new = {one.copy for one in found.appeared}
    parts += [
        said(row) for row in telling if row.what in LABELS or (row.verdict != UNSURE and row.what not in new)
    ]
    text = f"{verdict}: {'; '.join(parts)}" if parts else f"{verdict}: nothing that counts differs"
    return text + surely(found)


def surely(found: Difference) -> str:
    """Where all CPU time leaves it open: the row of it that changed most of those that surely did."""
    rows = [row for row in found.rows if row.sure and row.change is not None]
    if found.verdict != UNSURE or not rows:
        return ""
    row = max(rows, key=lambda one: abs(one.change or 0.0))
    return f"; sure is {row.side} {said(replace(row, unit=f'({row.context})'))} of all CPU time"


def choice(found: Difference, path: str) -> str:
    """What the second of two ways comes to: what somebody gets and pays decides, not how it is copied."""
    rows = [row for row in found.rows if row.decides]
    word = CHOICE[found.verdict]
    if {WORSE, BETTER} <= {row.verdict for row in rows}:
        word = "better and worse"
    text = f"{word}: {', '.join(map(said, rows))}"
    less = next(
        (row for row in found.rows if (row.what, row.unit, row.verdict) == (ALL, BYTES, BETTER)), None
    )
    if less is not None:
        text += f"; it copies {less.after:.2f} bytes for each byte instead of {less.before:.2f}"
    copied = [COPIED[one.copy].format(percent(one.after)) for one in found.appeared]
    return f"{text}; over {path} the kernel copied all the same: {', '.join(copied)}" if copied else text


def said(row: Row) -> str:
    """One row in words."""
    if row.change is None:
        return f"{row.what} n/a ({row.reason})"
    name = row.what if row.what in LABELS else f"{row.what} {row.unit}"
    text = f"{name} {row.change:+.1%}".replace("%", " %")
    if row.low is not None and row.high is not None and row.low != row.high:
        text += f" ({row.low * 100:+.1f} to {row.high * 100:+.1f})"
    return f"{text} of the payload" if row.base == "payload" else text


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def noise(before: Sequence[Whole], after: Sequence[Whole]) -> dict[str, Any]:
    """Of blocks of two equal runs: for each metric the share that two of them stay within, 19 times of 20."""
    made = {}
    for name in (GOODPUT, CPU):
        blocks = [[read_metric(run, name) for run in block] for block in zip(before, after, strict=True)]
        known = [[one for one in block if not isinstance(one, stats.Missing) and one] for block in blocks]
        logs = [math.log(block[1] / block[0]) for block in known if len(block) == 2]
        if logs:
            spread = math.sqrt(sum(one * one for one in logs) / len(logs))
            made[name] = math.expm1(spread * stats.student(stats.LEVEL, len(logs)))
    machine = before[0].raw.machine
    return {
        "kind": NOISE,
        "hostname": machine.hostname,
        "kernel": machine.kernel,
        "blocks": len(before),
        "metrics": made,
    }


def noise_of(document: Any, source: str) -> Mapping[str, float]:
    """The numbers of such a document. Raises UsageError for another one."""
    found = document.get("metrics") if isinstance(document, dict) and document.get("kind") == NOISE else None
    if not isinstance(found, dict) or not all(
        isinstance(one, (int, float)) and 0 <= one <= NOISE_MAX for one in found.values()
    ):
        raise UsageError(f"{source}: not what `compare A A` writes: give its {NOISE_FILE}")
    return found
