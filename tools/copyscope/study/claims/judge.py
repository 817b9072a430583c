"""One evaluator for all claims: runs in, `holds`, `refuted` or `undetermined here` out. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from copyscope import stats
from copyscope.grouping import gathered, grouped
from copyscope.judge import estimates
from copyscope.judge.crossover import Crossover, crossovers_of, surroundings
from copyscope.judge.estimates import Point
from copyscope.judge.metrics import METRICS, Scalar, settings
from copyscope.record.check import Whole
from copyscope.record.simulated import Measurement
from copyscope.stats import Estimate, Missing
from copyscope.study.claims.counts import COUNTS
from copyscope.study.claims.table import CLAIMS, Check, Claim
from copyscope.study.modelled import ModelPoint, pairs, per_kib
from copyscope.units import counted, format_size

Verdict = Literal["holds", "refuted", "undetermined here"]
HOLDS: Verdict = "holds"
REFUTED: Verdict = "refuted"
UNDETERMINED: Verdict = "undetermined here"
# A 95 % interval lies wholly on the wrong side of the truth in this share of cases.
WRONG_SIDE = 0.025
CHANCE = 0.05
SHOWN = 3
# Misses of a model below one line per KiB are none: a copy moves 32.
NOTHING = 1.0
FLUSHES = "tlb_flushes"

Key = tuple[str, int, int]  # strategy, threads, size in bytes


@dataclass(frozen=True)
class Finding:
    """What a check, or all of a claim, came to."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Judgement:
    """The answer to one claim on this machine. `modelled`: in a simulated one; no part of the verdict."""

    claim: Claim
    verdict: Verdict
    evidence: str
    modelled: Finding | None


@dataclass(frozen=True)
class Figure:
    """One comparison: what was found, with its interval, or why nothing was."""

    what: str
    found: Estimate | Missing
    said: str | None = None  # in place of its numbers

    @property
    def text(self) -> str:
        if self.said is not None:
            return f"{self.what}: {self.said}"
        if isinstance(self.found, Missing):
            return f"{self.what}: n/a ({self.found.reason})"
        if self.found.low is None or self.found.high is None:
            return f"{self.what}: {_number(self.found.value)} (one repeat: no interval)"
        low, value, high = map(_number, (self.found.low, self.found.value, self.found.high))
        return f"{self.what}: {value} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def judge_all(runs: Sequence[Whole], points: Sequence[ModelPoint] = ()) -> list[Judgement]:
    """Every claim of the table. `points`: of simulated machines; what they say stands beside the verdict."""
    return [judge_one(claim, runs, points) for claim in CLAIMS]


def judge_one(claim: Claim, runs: Sequence[Whole], points: Sequence[ModelPoint] = ()) -> Judgement:
    """One claim. Runs that are missing turn `holds` into `undetermined here`: they could have refuted it."""
    found = _judge(claim, runs)
    return Judgement(claim, found.verdict, found.evidence, _in_model(claim, points))


def _judge(claim: Claim, runs: Sequence[Whole]) -> Finding:
    tables = _select(runs, claim)
    if not tables:
        needs = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in claim.needs.items())
        note = f"{claim.note}: " if claim.note else ""
        where = f": run {' or '.join(claim.experiments)}" if claim.experiments else ""
        return Finding(UNDETERMINED, f"{note}no valid run of {needs}{where}")
    found = _together(
        [
            (name, _in_order(claim.checks, [_figures(check, table) for check in claim.checks]))
            for name, table in tables
        ]
    )
    if (lacking := _missing(tables, claim)) and found.verdict != REFUTED:
        return Finding(UNDETERMINED, f"runs are missing ({'; '.join(lacking)}); {found.evidence}")
    return found


def _select(runs: Sequence[Whole], claim: Claim) -> list[tuple[str, Mapping[Key, Point]]]:
    """The valid runs that a claim needs; those of different settings (offloads, experiments) apart."""
    valid = [(run, settings(run)) for run in runs if run.derived.verdict.valid]
    apart = gathered(
        ((run.raw.run.experiment or "profile", str(sorted(surroundings(found, run).items()))), run)
        for run, found in valid
        if all(found[name] in values for name, values in claim.needs.items())
    )
    tables = [
        (name, {key: Point({}, tuple(rows)) for key, rows in sorted(grouped(members, _key).items())})
        for (name, _), members in apart.items()
    ]
    return sorted(tables, key=lambda one: one[0])


def _key(run: Whole) -> Key:
    return run.raw.asked.impl, run.raw.asked.threads, run.raw.asked.size_bytes


def _missing(tables: Sequence[tuple[str, Mapping[Key, Point]]], claim: Claim) -> list[str]:
    """Which values of the needed settings no run has, as `size 64, 256`."""
    have = [settings(r) for _, table in tables for point in table.values() for r in point.runs]
    texts = []
    for name, values in claim.needs.items():
        lacking = [str(value) for value in values if value not in {one[name] for one in have}]
        texts += [f"{name} {', '.join(lacking)}"] if lacking else []
    return texts


def _together(apart: Sequence[tuple[str, Finding]]) -> Finding:
    """One finding out of several settings: a general claim falls with one of them, and holds with all."""
    if len(apart) == 1:
        return apart[0][1]
    verdicts = {finding.verdict for _, finding in apart}
    verdict = REFUTED if REFUTED in verdicts else HOLDS if verdicts == {HOLDS} else UNDETERMINED
    said = "; ".join(f"{name}: {finding.verdict}: {finding.evidence}" for name, finding in apart)
    return Finding(verdict, said)


def _in_order(checks: Sequence[Check], figures: Sequence[Sequence[Figure]]) -> Finding:
    """The first check that does not hold decides; else all hold."""
    said = []
    for check, found in zip(checks, figures, strict=True):
        finding = _compare(check, found)
        said.append(finding.evidence)
        if finding.verdict != HOLDS:
            return Finding(finding.verdict, "; ".join(said))
    return Finding(HOLDS, "; ".join(said))


def _compare(check: Check, figures: Sequence[Figure]) -> Finding:
    """Whether all figures come out as the claim wants.

    Of many intervals some lie on the wrong side by chance: it is refuted when more do than that explains.
    """
    what = ", ".join(METRICS[name].label if name in METRICS else name for name in check.metrics)
    name = f"{what} (claimed: {check.comparator} {_number(check.figure)})"
    known = [one for one in figures if isinstance(one.found, Estimate)]
    if not known:
        reasons = dict.fromkeys(one.found.reason for one in figures if isinstance(one.found, Missing))
        return Finding(UNDETERMINED, "; ".join(reasons) or f"{name}: nothing to compare")
    sides = {one: _side(check, one.found) for one in known if isinstance(one.found, Estimate)}
    against = [one for one in known if sides[one] is False]
    open_ = [one for one in known if sides[one] is None]
    lacking = [one for one in figures if one not in known]
    if len(figures) == 1:
        name = f"{name}: {figures[0].text}"
        return Finding(REFUTED if against else UNDETERMINED if open_ else HOLDS, name)
    tally = f"{name}: of {len(known)} {len(known) - len(against) - len(open_)} as claimed"
    tally += f", {len(against)} the other way, {len(open_)} undecided"
    if against and stats.chance_of(len(against), len(known), WRONG_SIDE) < CHANCE:
        return Finding(REFUTED, f"{tally}; {_some(against)}")
    if not (against or open_ or lacking):
        return Finding(HOLDS, f"{tally}; {_some(known)}")
    return Finding(UNDETERMINED, f"{tally}; {_some([*against, *open_, *lacking])}")


def _side(check: Check, found: Estimate) -> bool | None:
    """Whether a figure is as claimed; None: not decided."""
    if found.low is None or found.high is None:
        return None
    holds = check.figure if check.holds is None else check.holds
    refuted = check.figure if check.refuted is None else check.refuted
    if check.comparator == "at most":
        return False if found.low > refuted else True if found.high < holds else None
    return False if found.high < refuted else True if found.low > holds else None


def _some(found: Sequence[Figure]) -> str:
    shown = "; ".join(one.text for one in found[:SHOWN])
    return f"{shown}; and {len(found) - SHOWN} more" if len(found) > SHOWN else shown


def _figures(check: Check, table: Mapping[Key, Point]) -> list[Figure]:
    match check.how:
        case "ratio":
            return _ratios(check, table)
        case "count":
            return [_count(metric, check, table) for metric in check.metrics]
        case "crossover":
            return _crossings(check, table)


def _ratios(check: Check, table: Mapping[Key, Point]) -> list[Figure]:
    """A metric of the first over that of the second, wherever both were measured."""
    figures = []
    for metric in check.metrics:
        for first, second in check.pairs:
            for key, point in table.items():
                other = _instead(key, check.by, first, second)
                if other is not None and other in table and key[2] in (check.sizes or (key[2],)):
                    found = estimates.ratio(point, table[other], metric)
                    figures.append(Figure(_place(key, f"{first} / {second}"), found))
    return figures


def _instead(key: Key, by: str, first: Scalar, second: Scalar) -> Key | None:
    """The key of what it is compared with; of a key that has not the first, none."""
    impl, threads, size = key
    if by == "impl":
        return (str(second), threads, size) if impl == first else None
    return (impl, int(second or 0), size) if threads == first else None


def _place(key: Key, what: str) -> str:
    return f"{what} at {format_size(key[2])}, {counted(key[1], 'thread')}"


def _count(metric: str, check: Check, table: Mapping[Key, Point]) -> Figure:
    """All runs together: hits over all, with the interval of so many hits."""
    runs = [run for key, point in table.items() if check.of in (None, key[0]) for run in point.runs]
    counts = [COUNTS[metric](run) for run in runs]
    known = [one for one in counts if not isinstance(one, Missing)]
    missing = next((one for one in counts if isinstance(one, Missing)), Missing(f"{metric}: none"))
    return _share(metric, check.of, sum(hits for hits, _ in known), sum(of for _, of in known), missing)


def _share(metric: str, who: str | None, hits: float, of: float, missing: Missing) -> Figure:
    if not of:
        return Figure(who or "all runs", missing)
    # A rate may be above one, a share may not.
    interval = stats.poisson(hits).scaled(1 / of) if " per " in metric else stats.wilson(hits, of)
    found = Estimate(hits / of, interval.low, interval.high, interval.level, int(of))
    return Figure(f"{who or 'all runs'}, {hits:,.0f} of {of:,.0f}", found)


def _crossings(check: Check, table: Mapping[Key, Point]) -> list[Figure]:
    """For each number of threads: 0 where the second is better at every size, infinite where it never is."""
    runs = [_outside_of_an_experiment(run) for point in table.values() for run in point.runs]
    of = [(str(first), str(second)) for first, second in check.pairs]
    return [
        Figure(counted(at.threads, "thread"), _crossing(check, at), at.evidence)
        for at in crossovers_of(runs, check.metrics, of)
    ]


def _outside_of_an_experiment(run: Whole) -> Whole:
    """The same run, of which all settings count."""
    return run._replace(raw=replace(run.raw, run=replace(run.raw.run, factors=None)))


def _crossing(check: Check, at: Crossover) -> Estimate | Missing:
    said = Missing(at.evidence.removeprefix("undetermined: "))
    sizes = [one.size_bytes for one in at.measured]
    if at.verdict == "crosses" and at.size_bytes is not None:
        if at.above == at.pair[1]:
            return Estimate(at.size_bytes, at.low, at.high, at.level, len(sizes))
        return Estimate(math.inf, math.inf, math.inf, at.level, len(sizes))
    if at.verdict == "always" and sizes[0] <= check.figure:
        return Estimate(0.0, 0.0, 0.0, at.level, len(sizes))
    if at.verdict == "never" and sizes[-1] >= check.figure:
        return Estimate(math.inf, math.inf, math.inf, at.level, len(sizes))
    return said


def _in_model(claim: Claim, points: Sequence[ModelPoint]) -> Finding | None:
    """What a simulated machine says: how many lines a strategy must move, not how long that takes."""
    if not claim.modelled or not points:
        return None
    path = str(claim.needs.get("topology", ("veth",))[0])
    chosen = [point for point in points if point.setting.path == path]
    figures = [_modelled(check, chosen) for check in claim.modelled]
    if not any(figures):
        return Finding(UNDETERMINED, "not simulated: run copyscope sweep simulated")
    return _in_order(claim.modelled, figures)


def _modelled(check: Check, points: Sequence[ModelPoint]) -> list[Figure]:
    if check.how == "count":
        boots = [boot for point in points if point.impl == check.of for boot in point.boots]
        flushes, sends = sum(map(_flushes, boots)), sum(boot.messages or 0 for boot in boots)
        return (
            [_share(check.metrics[0], check.of, flushes, sends, Missing("no send was simulated"))]
            if boots
            else []
        )
    figures = []
    for metric in check.metrics:
        level, _, side = metric.partition("_misses_per_kib_")
        for first, second in check.pairs:
            for ours, theirs in pairs(points, str(first), str(second)):
                if ours.size in (check.sizes or (ours.size,)):
                    misses = ([max(NOTHING, n) for n in p.misses(level, side=side)] for p in (ours, theirs))
                    found = stats.ratio_of(list(zip(*misses, strict=False)))
                    what = f"{first} / {second} at {format_size(ours.size)}, {ours.setting.cache}"
                    figures.append(Figure(what, found))
    return figures


def _flushes(boot: Measurement) -> int:
    """Of the sender, without task switches. Whole numbers were divided by the bytes, and rounded."""
    mine = [row for row in boot.rows if row.side == "sender" and row.category != "wakeup_sched"]
    return round(sum(per_kib(row, FLUSHES) for row in mine) * boot.delivered_bytes / 1024)
