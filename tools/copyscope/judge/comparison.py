# SPDX-License-Identifier: GPL-2.0-only
"""Two or more groups of runs, compared setting by setting: differences, verdicts and a ranking. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Annotated, Any

from msgspec import Meta, Struct

from copyscope.base import stats
from copyscope.base.errors import UsageError
from copyscope.base.stats import Missing, grouped
from copyscope.judge.comparison_sentences import (
    Ranked,
    change_sentences,
    choice_sentences,
    ranking_sentences,
    settings_sentence,
)
from copyscope.judge.difference import (
    BETTER,
    CPU,
    CPU_ROW,
    GOODPUT,
    GOODPUT_ROW,
    SAME,
    UNSURE,
    WORSE,
    ComparisonOptions,
    Difference,
    DifferenceRow,
    Key,
    compare,
    judged,
    read_metric,
    runs_needed,
    share_from_log,
)
from copyscope.judge.metrics import SETTINGS, Scalar, settings
from copyscope.judge.promise import Promise, promise_of
from copyscope.record.measured import TopologySection
from copyscope.record.run import Run
from copyscope.record.store import SAME_MACHINE, SAME_SETTINGS, machine_facts
from copyscope.record.watched import Target

# Values of `kind`: a comparison before and after a change, or a comparison of strategies to choose between.
KIND_DIFF, KIND_COMPARE = "diff", "compare"
NOISE_FILE = "noise.json"
# Maximum noise in a noise file, as a relative difference: identical runs never differ by a factor of 1000.
NOISE_MAX = 1000.0
# Name of the setting that holds the name of a watched program.
PROGRAM = "program"
# Names of machine facts and settings that the option --across accepts.
ACROSS_NAMES = (*SAME_MACHINE, *SETTINGS, PROGRAM)
# Label of a row -> name of its metric.
LABELS = {GOODPUT_ROW: GOODPUT, CPU_ROW: CPU}
BEFORE_AFTER = ("before", "after")


class Comparison(Struct, frozen=True):
    """Result of `diff`, or of `compare` with two strategies (docs/reference/verdicts.md lists the keys).

    also_differs: machine settings that also differ, but do not prevent the comparison
    cards_differ: settings of network cards that differ, such as `eth0 ring rx`
    promise: a saving that `advise` promised before the change, with the measured saving; null if there was no
        advice
    """

    kind: str
    across: list[str]
    machine: list[Mapping[str, Any]]
    also_differs: list[tuple[str, Any, Any]]
    cards_differ: list[tuple[str, str | None, str | None]]
    pmus: list[str] | None
    noise: Mapping[str, float] | None
    verdict: str
    names: list[str]
    sentence: str
    enough_runs: int | None
    overall: list[DifferenceRow]
    points: list[Difference]
    only_in: list[list[dict[str, Scalar]]]
    promise: Promise | None = None

    @property
    def is_choice(self) -> bool:
        """Return True for two strategies to choose between, False for before and after a change."""
        return self.kind == KIND_COMPARE


class Noise(Struct, frozen=True, tag_field="kind", tag="noise"):
    """Run-to-run noise: metric -> relative difference that 19 of 20 pairs of identical runs stay within."""

    hostname: str
    kernel: str
    blocks: int
    metrics: dict[str, Annotated[float, Meta(ge=0, le=NOISE_MAX)]]


def compare_groups(
    before: Sequence[Run],
    after: Sequence[Run],
    options: ComparisonOptions,
    across: frozenset[str] = frozenset(),
    names: Sequence[str] = BEFORE_AFTER,
) -> Comparison:
    """Compare two groups of runs. Raises UsageError if the groups are not comparable.

    across: names of machine facts and settings in which the groups may differ
    names: names of the two groups, as shown on the screen

    Settings that only one group has are listed but not compared. With several settings, each setting is
    judged at a stricter level, so that all settings together give one false alarm in twenty comparisons.
    """
    check_comparable(before, after, across)
    groups = [by_setting(runs, across) for runs in (before, after)]
    shared_keys = [key for key in groups[0] if key in groups[1]]
    if not shared_keys:
        first, second = (dict(next(iter(group))) for group in groups)
        raise UsageError(next(filter(None, (why_not_comparable(name, first, second) for name in first))))
    level = 1 - (1 - options.level) / len(shared_keys)
    points = []
    for key in shared_keys:
        old, new = groups[0][key], groups[1][key]
        paired = options.paired and len(old) == len(new)
        points.append(compare(old, new, replace(options, level=level, paired=paired), key))
    overall = overall_rows(points) if len(points) > 1 else []
    verdict = find_verdict(points, overall)
    unclear = points[0] if len(points) == 1 and verdict == UNSURE else None
    machines = machine_facts(before[0].raw.machine), machine_facts(after[0].raw.machine)
    return Comparison(
        kind=KIND_COMPARE if options.is_choice else KIND_DIFF,
        across=sorted(across),
        machine=[{name: machine[name] for name in SAME_MACHINE} for machine in machines],
        also_differs=[
            (name, machines[0][name], machines[1][name])
            for name in SAME_SETTINGS
            if machines[0][name] != machines[1][name]
        ],
        cards_differ=list(_differing_card_settings(before[0].raw.topology, after[0].raw.topology)),
        pmus=processors_of_different_pmus(before[0], after[0]),
        noise=options.noise,
        verdict=verdict,
        names=list(names),
        sentence=_sentence(verdict, points, overall, names, is_choice=options.is_choice),
        enough_runs=None if unclear is None else runs_needed(unclear.rows, unclear.runs, options),
        overall=overall,
        points=points,
        only_in=[
            [dict(key) for key in group if key not in other_group]
            for group, other_group in (groups, groups[::-1])
        ],
        promise=promise_of(before, after, points[0].rows) if len(points) == 1 else None,
    )


def _differing_card_settings(
    before: TopologySection, after: TopologySection
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield (name, value before, value after) of each setting of a network card that differs.

    A setting that only one record has is None in the other. Cards of older records have no settings.
    """
    cards = {(device.side, device.name): device.card for device in before.devices}
    for device in after.devices:
        old, new = cards.get((device.side, device.name)), device.card
        if not old or not new:
            continue
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                yield f"{device.name} {name}", old.get(name), new.get(name)


def _sentence(
    verdict: str,
    points: Sequence[Difference],
    overall: Sequence[DifferenceRow],
    names: Sequence[str],
    *,
    is_choice: bool,
) -> str:
    """Describe a comparison, quantity by quantity. `names`: names of the two groups."""
    if len(points) > 1:
        return settings_sentence(verdict, points, overall, names)
    return choice_sentences(points[0], names) if is_choice else change_sentences(points[0], names)


def processors_of_different_pmus(before: Run, after: Run) -> list[str] | None:
    """Return the processors of two runs if their PMUs differ: cycles and misses are not comparable then."""
    machines = before.raw.machine, after.raw.machine
    first, second = ((machine.arch, machine.cpu_model, machine.pmu) for machine in machines)
    if first == second or not all(machine.pmu for machine in machines):
        return None
    return [machine.cpu_model for machine in machines]


def overall_rows(points: Sequence[Difference]) -> list[DifferenceRow]:
    """Return the mean change of goodput and of CPU time over all settings, each setting weighted equally."""
    overall = []
    for label, metric in LABELS.items():
        rows = [row for point in points for row in point.rows if row.what == label]
        logs = [math.log1p(row.change) for row in rows if row.change is not None]
        if len(logs) < 2:
            continue
        mean = stats.difference_of([0.0] * len(logs), logs, paired=True)
        assert mean.ends is not None
        change, threshold = share_from_log(mean.value), rows[0].threshold
        row = DifferenceRow(label, None, rows[0].unit, change=change, threshold=threshold, decides=True)
        low, high = map(share_from_log, mean.ends)
        overall.append(judged(row, low, high, metric))
    return overall


def find_verdict(points: Sequence[Difference], overall: Sequence[DifferenceRow]) -> str:
    """Return WORSE if a setting or the mean is worse, or else the verdict on the mean or the only setting."""
    point_verdicts = {point.verdict for point in points}
    mean_verdicts = {row.verdict for row in overall}
    if WORSE in point_verdicts | mean_verdicts:
        return WORSE
    verdicts = mean_verdicts or point_verdicts
    return next((verdict for verdict in (UNSURE, BETTER) if verdict in verdicts), SAME)


def check_comparable(before: Sequence[Run], after: Sequence[Run], across: frozenset[str]) -> None:
    """Raise UsageError if the machines or kinds of run differ in any fact that is not in `across`."""
    first = before[0]
    machine = machine_facts(first.raw.machine)
    for run in (*before, *after):
        if (run.raw.target is None) != (first.raw.target is None):
            raise UsageError(
                "one record is of copyscope's own traffic, the other of a watched program: not comparable;"
                " give two records of the same kind"
            )
        for name in SAME_MACHINE:
            if name in across:
                continue
            if reason := why_not_comparable(name, machine, machine_facts(run.raw.machine)):
                raise UsageError(f"machine.{reason}")


def _program(target: Target) -> str:
    """Return the name of a watched program, without the pid or the option that selected it."""
    return target.comm or target.name.partition("[")[0]


def by_setting(runs: Iterable[Run], across: frozenset[str]) -> dict[Key, list[Run]]:
    """Return the runs of each setting in the order of their blocks. The name of a program is a setting, too.

    across: settings that are left out of the keys, because groups may differ in them
    """

    def key(run: Run) -> Key:
        target = run.raw.target
        values = settings(run) if target is None else {PROGRAM: _program(target)}
        return tuple(sorted((name, value) for name, value in values.items() if name not in across))

    return {
        setting: sorted(group, key=lambda run: (run.raw.run.repeat, run.raw.run.started))
        for setting, group in grouped(runs, key).items()
    }


def why_not_comparable(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return why two runs that differ in the value of `name` are not comparable, or None if they agree."""
    old, new = ("not known" if facts.get(name) is None else facts[name] for facts in (before, after))
    if old == new:
        return None
    return f"{name}: {old} and {new}: not comparable; add --across {name} to compare anyway"


def measure_noise(before: Sequence[Run], after: Sequence[Run]) -> Noise:
    """Return the run-to-run noise of this host. before[i] and after[i] are identical runs in block i."""
    limits = {}
    for metric in (GOODPUT, CPU):
        blocks = [_positive_values(block, metric) for block in zip(before, after, strict=True)]
        logs = [math.log(block[1] / block[0]) for block in blocks if len(block) == 2]
        if logs:
            spread = math.sqrt(sum(log * log for log in logs) / len(logs))
            limits[metric] = math.expm1(spread * stats.student_quantile(stats.LEVEL, len(logs)))
    machine = before[0].raw.machine
    return Noise(machine.hostname, machine.kernel, len(before), limits)


def _positive_values(runs: Sequence[Run], metric: str) -> list[float]:
    """Return the values of a metric that are known and not zero."""
    readings = [read_metric(run, metric) for run in runs]
    return [reading for reading in readings if not isinstance(reading, Missing) and reading]


class Ranking(Struct, frozen=True, tag_field="kind", tag="ranking"):
    """Three or more strategies, the fastest first.

    against: the strategy that the user named first
    judged: strategy -> verdict against that strategy
    """

    names: list[str]
    verdict: str
    against: str
    judged: dict[str, str]
    ranking: list[Ranked]
    sentence: str


def rank(groups: Sequence[tuple[str, Sequence[Run]]], options: ComparisonOptions) -> Ranking:
    """Rank strategies by goodput. Compare each with the next faster strategy and with the first in `groups`.

    groups: (name, runs) of each strategy

    Each comparison uses a stricter level, so that all comparisons together give one false alarm in twenty.
    """
    strict = replace(options, level=1 - (1 - options.level) / (2 * (len(groups) - 1)))
    speeds = {name: mean_value(runs, GOODPUT) for name, runs in groups}
    runs_of = dict(groups)
    ranked = sorted(speeds, key=lambda name: -(speeds[name] or 0.0))
    (first, before), *later_groups = groups
    against_first = {name: compare(before, after, strict) for name, after in later_groups}
    judged = {name: difference.verdict for name, difference in against_first.items()}
    rows = []
    for faster, name in zip([None, *ranked], ranked, strict=False):
        row = Ranked(name, speeds[name], mean_value(runs_of[name], CPU))
        if name in against_first:
            row = replace(row, cpu_against_first=against_first[name].rows[1])
        if faster is not None:
            goodput, cpu, *_ = compare(runs_of[faster], runs_of[name], strict).rows
            row = replace(row, against=faster, goodput=goodput, cpu=cpu)
        rows.append(row)
    return Ranking(
        names=[name for name, _ in groups],
        verdict=next((verdict for verdict in (WORSE, UNSURE, BETTER) if verdict in judged.values()), SAME),
        against=first,
        judged=judged,
        ranking=rows,
        sentence=ranking_sentences(rows, first),
    )


def mean_value(runs: Sequence[Run], metric: str) -> float | None:
    """Return the geometric mean of a metric over the runs that have it, or None if no run has it."""
    values = _positive_values(runs, metric)
    return geometric_mean(values) if values else None
