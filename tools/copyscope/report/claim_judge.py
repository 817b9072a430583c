# SPDX-License-Identifier: GPL-2.0-only
"""Judge published claims by measured runs: `holds`, `refuted` or `undetermined here`.

All functions are pure: no input, no output.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

from copyscope.base import stats
from copyscope.base.spelling import counted, format_size
from copyscope.base.stats import Estimate, Missing, gathered, grouped
from copyscope.judge import estimates
from copyscope.judge.crossover import Crossover, crossovers_of, shared_settings
from copyscope.judge.estimates import MeasuredPoint
from copyscope.judge.metrics import (
    METRICS,
    Scalar,
    cpu_time_rows,
    least_disturbed_segments,
    ledger_segments,
    settings,
    switches,
)
from copyscope.ledger.attribution import samples_of_run
from copyscope.record.run import Run
from copyscope.record.segments import PROCESSES, bytes_sent, sender_sum
from copyscope.record.simulated import Measurement
from copyscope.report.claim_table import CLAIMS, ClaimCheck, PublishedClaim
from copyscope.report.model_points import ModelPoint, pairs, per_kib
from copyscope.taxonomy.accounts import LATE, SEND_COPIES

# Stages of the ledger that belong to the network stack.
STACK = ("tcp_ip", "device", "softirq")
# Drivers of virtual devices, which copy no bytes by DMA.
WITHOUT_DMA = frozenset(("veth", "lo", "loopback", None))
# Cache counters of the record that zero_readings() checks.
EVENTS = ("LLC-load-misses", "L1-dcache-load-misses")
# Counter of the record with the number of TLB flushes.
TLB_FLUSHES = "tlb-flushes"


class Tally(NamedTuple):
    """Number of events (`hits`) out of all opportunities (`total`), such as samples in copies out of all."""

    hits: float
    total: float


Count = Tally | Missing


def _samples(run: Run, categories: Collection[str] | None, sides: Iterable[str]) -> int:
    """Count some sides' samples in some accounts or stages (`categories`; None for all)."""
    rows = (row for row in samples_of_run(run.raw.samples) if row.side in sides)
    return sum(row.samples for row in rows if categories is None or row.category in categories)


def copy_samples_within_call(run: Run) -> Count:
    """Count the samples in copies during the send call, out of all samples in copies of the sent data."""
    sides = ("sender", "other")
    within_call = _samples(run, SEND_COPIES, sides)
    return Tally(within_call, within_call + _samples(run, LATE, sides))


def send_copy_samples(run: Run) -> Count:
    """Count the samples in the send call's copy, out of all samples of the sender."""
    return Tally(_samples(run, SEND_COPIES, ("sender", "other")), cpu_time_rows(run)["sender"].samples or 0)


def stack_samples(run: Run) -> Count:
    """Count the samples in the network stack, out of all samples (sender, receiver, other processes)."""
    sides = ("sender", "receiver", "other")
    return Tally(_samples(run, STACK, sides), _samples(run, None, sides))


def bytes_copied_by(accounts: Collection[str]) -> Callable[[Run], Count]:
    """Return a function that counts the bytes copied by some accounts, out of all bytes sent."""

    def count(run: Run) -> Count:
        copied = (row.bytes for row in run.derived.ledger if row.account in accounts)
        return Tally(sum(filter(None, copied)), bytes_sent(ledger_segments(run)))

    return count


def dma_bytes(run: Run) -> Count:
    """Count the bytes copied by DMA: zero on virtual devices, unknown on real devices."""
    drivers = {device.driver for device in run.raw.topology.devices}
    if drivers - WITHOUT_DMA:
        return Missing(f"DMA of {', '.join(sorted(map(str, drivers)))} is not visible to the CPU")
    return Tally(0, bytes_sent(ledger_segments(run)))


def flushes_per_send(run: Run) -> Count:
    """Count the sender's TLB flushes per send call, excluding flushes by task switches."""
    counter = run.raw.counters["sender"].get(TLB_FLUSHES)
    if counter is None:
        return Missing(f"{TLB_FLUSHES}: not counted in these runs")
    if counter.value is None:
        return Missing(f"{TLB_FLUSHES}: {counter.reason}")
    return Tally(counter.value, sender_sum(ledger_segments(run), lambda sender: sender.calls))


def switches_per_send(run: Run) -> Count:
    """Count the sender's context switches per send call, in the least disturbed segments."""
    segments = least_disturbed_segments(run)
    return Tally(switches(segments, "sender"), sender_sum(segments, lambda sender: sender.calls))


def errqueue_reads_per_switch(run: Run) -> Count:
    """Count the error-queue reads per context switch of the sender, in the least disturbed segments."""
    segments = least_disturbed_segments(run)
    zerocopy_counts = (segment.sender.zerocopy for segment in segments)
    reads = sum(counts.errqueue_reads for counts in zerocopy_counts if counts)
    return Tally(reads, switches(segments, "sender"))


def zero_readings(run: Run) -> Count:
    """Count the cache counters that read zero, out of all that were opened, including unsupported ones."""
    counters = [run.raw.counters[side].get(event) for side in PROCESSES for event in EVENTS]
    opened = [counter for counter in counters if counter is not None]
    return Tally(sum(counter.value == 0 for counter in opened), len(opened))


# Metric of a check with `how="count"` -> function that counts the events of the metric in a run.
COUNTS: dict[str, Callable[[Run], Count]] = {
    "samples of its copies within the call": copy_samples_within_call,
    "samples of the sender in that copy": send_copy_samples,
    "samples in tcp_ip, device or softirq": stack_samples,
    "bytes copied by the program": bytes_copied_by(("gather",)),
    "bytes copied into the socket": bytes_copied_by(SEND_COPIES),
    "bytes copied by DMA": dma_bytes,
    "tlb flushes per send": flushes_per_send,
    "context switches per send call": switches_per_send,
    "reads of the error queue per switch": errqueue_reads_per_switch,
    "readings of zero": zero_readings,
}


Verdict = Literal["holds", "refuted", "undetermined here"]
HOLDS: Verdict = "holds"
REFUTED: Verdict = "refuted"
UNDETERMINED: Verdict = "undetermined here"
# Probability that a 95 % interval lies entirely above the true value, and likewise entirely below it.
ONE_SIDED_ERROR = 0.025
# Maximum probability of the contradictions of several figures, if they were chance, for a refuted claim.
CHANCE_MAX = 0.05
# Maximum number of figures that the evidence of a finding lists.
FIGURES_SHOWN_MAX = 3
# Minimum of missed lines per KiB in ratios of a model: fewer count as this. A copy moves 32 lines per KiB.
LINES_MIN = 1.0
# Key of the number of TLB flushes in a simulated row.
FLUSHES = "tlb_flushes"


class PointKey(NamedTuple):
    """Settings that all runs of a point share. It is the key that groups a claim's runs."""

    impl: str
    threads: int
    size_bytes: int


Table = Mapping[PointKey, MeasuredPoint]


@dataclass(frozen=True)
class ClaimFinding:
    """Verdict on one check or on a whole claim, with its evidence."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Judgement:
    """Verdict on one claim on this machine. `modelled`: separate verdict for a simulated machine."""

    claim: PublishedClaim
    verdict: Verdict
    evidence: str
    modelled: ClaimFinding | None


@dataclass(frozen=True)
class ClaimFigure:
    """A number that a check compares with the claim.

    subject: the strategies or runs described by the figure
    value: the figure, or the reason why it is missing
    evidence: text that replaces the numbers in `text`
    """

    subject: str
    value: Estimate | Missing
    evidence: str | None = None

    @property
    def text(self) -> str:
        """The figure as a phrase: `zero_copy / two_copy: 1.2 (1.1 to 1.3)`."""
        if self.evidence is not None:
            return f"{self.subject}: {self.evidence}"
        if isinstance(self.value, Missing):
            return f"{self.subject}: n/a ({self.value.reason})"
        if self.value.low is None or self.value.high is None:
            return f"{self.subject}: {_number(self.value.value)} (one repeat: no interval)"
        low, value, high = map(_number, (self.value.low, self.value.value, self.value.high))
        return f"{self.subject}: {value} ({low} to {high})"


def _number(value: float) -> str:
    """Format a figure: from 1000 on without decimals, below 0.1 with two significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def judge_all(runs: Sequence[Run], points: Sequence[ModelPoint] = ()) -> list[Judgement]:
    """Judge every claim by measured runs, and separately by points of simulated machines."""
    return [judge_one(claim, runs, points) for claim in CLAIMS]


def judge_one(claim: PublishedClaim, runs: Sequence[Run], points: Sequence[ModelPoint] = ()) -> Judgement:
    """Judge one claim by measured runs, and separately by points of simulated machines."""
    finding = _judge(claim, runs)
    return Judgement(claim, finding.verdict, finding.evidence, _judge_in_model(claim, points))


def _judge(claim: PublishedClaim, runs: Sequence[Run]) -> ClaimFinding:
    """Judge a claim by measured runs. It cannot hold while runs that might have refuted it are missing."""
    tables = _select(runs, claim)
    if not tables:
        needs = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in claim.needs.items())
        note = f"{claim.note}: " if claim.note else ""
        next_step = f": run {' or '.join(claim.experiments)}" if claim.experiments else ""
        return ClaimFinding(UNDETERMINED, f"{note}no valid run of {needs}{next_step}")
    finding = _combine(
        [
            (name, _check_in_order(claim.checks, [_figures(check, table) for check in claim.checks]))
            for name, table in tables
        ]
    )
    if (lacking := _missing_values(tables, claim)) and finding.verdict != REFUTED:
        return ClaimFinding(UNDETERMINED, f"runs are missing ({'; '.join(lacking)}); {finding.evidence}")
    return finding


def _select(runs: Sequence[Run], claim: PublishedClaim) -> list[tuple[str, Table]]:
    """Return pairs (experiment, points) of the valid runs that a claim needs.

    Each experiment has a pair for each combination of other settings, such as offloads.
    """
    valid = [(run, settings(run)) for run in runs if run.derived.verdict.valid]
    members = gathered(
        ((run.raw.run.experiment or "profile", str(sorted(shared_settings(run_settings, run).items()))), run)
        for run, run_settings in valid
        if all(run_settings[name] in values for name, values in claim.needs.items())
    )
    tables = [
        (
            experiment,
            {
                key: MeasuredPoint({}, tuple(point_runs))
                for key, point_runs in sorted(grouped(table_runs, _point_key).items())
            },
        )
        for (experiment, _), table_runs in members.items()
    ]
    return sorted(tables, key=lambda item: item[0])


def _point_key(run: Run) -> PointKey:
    return PointKey(run.raw.asked.impl, run.raw.asked.threads, run.raw.asked.size_bytes)


def _missing_values(tables: Sequence[tuple[str, Table]], claim: PublishedClaim) -> list[str]:
    """Format the values of settings that a claim needs but no run has, such as `size 64, 256`."""
    measured = [settings(run) for _, table in tables for point in table.values() for run in point.runs]
    texts = []
    for name, values in claim.needs.items():
        present = {run_settings[name] for run_settings in measured}
        lacking = [str(value) for value in values if value not in present]
        texts += [f"{name} {', '.join(lacking)}"] if lacking else []
    return texts


def _combine(findings: Sequence[tuple[str, ClaimFinding]]) -> ClaimFinding:
    """Combine the findings (experiment, finding) of several experiments.

    A claim is refuted if one experiment refutes it, and holds only if it holds in every experiment.
    """
    if len(findings) == 1:
        return findings[0][1]
    verdicts = {finding.verdict for _, finding in findings}
    verdict = REFUTED if REFUTED in verdicts else HOLDS if verdicts == {HOLDS} else UNDETERMINED
    evidence = "; ".join(f"{name}: {finding.verdict}: {finding.evidence}" for name, finding in findings)
    return ClaimFinding(verdict, evidence)


def _check_in_order(checks: Sequence[ClaimCheck], figures: Sequence[Sequence[ClaimFigure]]) -> ClaimFinding:
    """Return the finding of the first check that does not hold, or `holds` if all checks hold.

    figures: the figures of each check
    """
    evidence = []
    for check, check_figures in zip(checks, figures, strict=True):
        finding = _compare(check, check_figures)
        evidence.append(finding.evidence)
        if finding.verdict != HOLDS:
            return ClaimFinding(finding.verdict, "; ".join(evidence))
    return ClaimFinding(HOLDS, "; ".join(evidence))


def _compare(check: ClaimCheck, figures: Sequence[ClaimFigure]) -> ClaimFinding:
    """Compare all figures with the claim.

    Among many intervals, some contradict a true claim by chance. A claim is refuted if more intervals
    contradict it than chance explains.
    """
    metrics = ", ".join(METRICS[name].label if name in METRICS else name for name in check.metrics)
    claimed = f"{metrics} (claimed: {check.comparator} {_number(check.figure)})"
    known = [figure for figure in figures if isinstance(figure.value, Estimate)]
    lacking = [figure for figure in figures if isinstance(figure.value, Missing)]
    if not known:
        reasons = dict.fromkeys(f.value.reason for f in figures if isinstance(f.value, Missing))
        return ClaimFinding(UNDETERMINED, "; ".join(reasons) or f"{claimed}: nothing to compare")
    against = [figure for figure in known if _agrees(check, figure) is False]
    undecided = [figure for figure in known if _agrees(check, figure) is None]
    if len(figures) == 1:
        verdict = REFUTED if against else UNDETERMINED if undecided else HOLDS
        return ClaimFinding(verdict, f"{claimed}: {figures[0].text}")
    agreeing = len(known) - len(against) - len(undecided)
    tally = f"{claimed}: of {len(known)} {agreeing} as claimed"
    tally += f", {len(against)} the other way, {len(undecided)} undecided"
    if against and stats.binomial_tail(len(against), len(known), ONE_SIDED_ERROR) < CHANCE_MAX:
        return ClaimFinding(REFUTED, f"{tally}; {_spell_figures(against)}")
    if not (against or undecided or lacking):
        return ClaimFinding(HOLDS, f"{tally}; {_spell_figures(known)}")
    return ClaimFinding(UNDETERMINED, f"{tally}; {_spell_figures([*against, *undecided, *lacking])}")


def _agrees(check: ClaimCheck, figure: ClaimFigure) -> bool | None:
    """Return True if a figure agrees with the claim, False if it contradicts the claim, None if undecided."""
    value = figure.value
    if isinstance(value, Missing) or value.low is None or value.high is None:
        return None
    holds = check.figure if check.holds is None else check.holds
    refuted = check.figure if check.refuted is None else check.refuted
    if check.comparator == "at most":
        return False if value.low > refuted else True if value.high < holds else None
    return False if value.high < refuted else True if value.low > holds else None


def _spell_figures(figures: Sequence[ClaimFigure]) -> str:
    """Format the first figures, and the number of figures that are left out."""
    shown = "; ".join(figure.text for figure in figures[:FIGURES_SHOWN_MAX])
    hidden = len(figures) - FIGURES_SHOWN_MAX
    return f"{shown}; and {hidden} more" if hidden > 0 else shown


def _figures(check: ClaimCheck, table: Table) -> list[ClaimFigure]:
    """Return the figures that a check compares with the claim, from the measured points of a table."""
    match check.how:
        case "ratio":
            return _ratios(check, table)
        case "count":
            return [_count(metric, check, table) for metric in check.metrics]
        case "crossover":
            return _crossovers(check, table)


def _ratios(check: ClaimCheck, table: Table) -> list[ClaimFigure]:
    """Return the ratio between the two points in each pair of a check, at every setting that both have."""
    figures = []
    for metric in check.metrics:
        for first, second in check.pairs:
            for key, point in table.items():
                other = _counterpart(key, check.by, first, second)
                has_size = not check.sizes or key.size_bytes in check.sizes
                if other is not None and other in table and has_size:
                    where = f"{format_size(key.size_bytes)}, {counted(key.threads, 'thread')}"
                    ratio = estimates.ratio(point, table[other], metric)
                    figures.append(ClaimFigure(f"{first} / {second} at {where}", ratio))
    return figures


def _counterpart(key: PointKey, by: str, first: Scalar, second: Scalar) -> PointKey | None:
    """Return the key of the point that has `second` instead of `first` in the setting `by`.

    Return None if the setting of this point is not `first`.
    """
    if by == "impl":
        return key._replace(impl=str(second)) if key.impl == first else None
    return key._replace(threads=int(second or 0)) if key.threads == first else None


def _count(metric: str, check: ClaimCheck, table: Table) -> ClaimFigure:
    """Count the events over all runs, and return them as a share or rate with an interval.

    metric: key of COUNTS
    """
    runs = [run for key, point in table.items() if check.of in (None, key.impl) for run in point.runs]
    counts = [COUNTS[metric](run) for run in runs]
    tallies = [count for count in counts if not isinstance(count, Missing)]
    missing = next((count for count in counts if isinstance(count, Missing)), Missing(f"{metric}: none"))
    total = Tally(sum(tally.hits for tally in tallies), sum(tally.total for tally in tallies))
    return _share(metric, check.of, total, missing)


def _share(metric: str, strategy: str | None, tally: Tally, missing: Missing) -> ClaimFigure:
    """Return hits / total of a tally as a figure, or `missing` if the total is zero.

    metric: key of COUNTS
    strategy: strategy of the counted runs; None for all strategies
    """
    hits, total = tally
    if not total:
        return ClaimFigure(strategy or "all runs", missing)
    # A metric with "per" in its name is a rate, which can exceed 1. All others are shares.
    interval = stats.poisson(hits).scaled(1 / total) if " per " in metric else stats.wilson(hits, total)
    value = Estimate(hits / total, interval.low, interval.high, interval.level, int(total))
    return ClaimFigure(f"{strategy or 'all runs'}, {hits:,.0f} of {total:,.0f}", value)


def _crossovers(check: ClaimCheck, table: Table) -> list[ClaimFigure]:
    """Return the crossover's message size, for each number of threads.

    The size is 0 if the second strategy is better at every size, and infinite if it never is.
    """
    runs = [_without_factors(run) for point in table.values() for run in point.runs]
    pairs_compared = [(str(first), str(second)) for first, second in check.pairs]
    return [
        ClaimFigure(counted(item.threads, "thread"), _crossover_size(check, item), item.evidence)
        for item in crossovers_of(runs, check.metrics, pairs_compared)
    ]


def _without_factors(run: Run) -> Run:
    """Return a run without its experiment's factors, so that runs are grouped by all their settings."""
    return Run(replace(run.raw, run=replace(run.raw.run, factors=None)), run.derived)


def _crossover_size(check: ClaimCheck, crossover: Crossover) -> Estimate | Missing:
    """Return the size in bytes above which the second strategy is better; 0: always, infinite: never."""
    sizes = [measured.size_bytes for measured in crossover.measured]
    if crossover.verdict == "crosses" and crossover.size_bytes is not None:
        if crossover.above == crossover.pair[1]:
            return Estimate(crossover.size_bytes, crossover.low, crossover.high, crossover.level, len(sizes))
        return Estimate(math.inf, math.inf, math.inf, crossover.level, len(sizes))
    if crossover.verdict == "always" and sizes[0] <= check.figure:
        return Estimate(0.0, 0.0, 0.0, crossover.level, len(sizes))
    if crossover.verdict == "never" and sizes[-1] >= check.figure:
        return Estimate(math.inf, math.inf, math.inf, crossover.level, len(sizes))
    return Missing(crossover.evidence.removeprefix("undetermined: "))


def _judge_in_model(claim: PublishedClaim, points: Sequence[ModelPoint]) -> ClaimFinding | None:
    """Judge a claim by a simulated machine's cache lines. Return None if there is no check or no point."""
    if not claim.modelled or not points:
        return None
    path = str(claim.needs.get("topology", ("veth",))[0])
    chosen = [point for point in points if point.setting.path == path]
    figures = [_modelled_figures(check, chosen) for check in claim.modelled]
    if not any(figures):
        return ClaimFinding(UNDETERMINED, "not simulated; run copyscope sweep simulated")
    return _check_in_order(claim.modelled, figures)


def _modelled_figures(check: ClaimCheck, points: Sequence[ModelPoint]) -> list[ClaimFigure]:
    """Return the figures that a check compares with the claim, from simulated points."""
    if check.how == "count":
        boots = [boot for point in points if point.impl == check.of for boot in point.boots]
        if not boots:
            return []
        flushes = Tally(sum(map(_flushes, boots)), sum(boot.messages or 0 for boot in boots))
        return [_share(check.metrics[0], check.of, flushes, Missing("no send was simulated"))]
    figures = []
    for metric in check.metrics:
        level, _, side = metric.partition("_misses_per_kib_")
        for first, second in check.pairs:
            for point, other in pairs(points, str(first), str(second)):
                if point.size in (check.sizes or (point.size,)):
                    misses = (
                        [max(LINES_MIN, lines) for lines in compared.misses(level, side=side)]
                        for compared in (point, other)
                    )
                    ratio = stats.ratio_of(list(zip(*misses, strict=False)))
                    subject = f"{first} / {second} at {format_size(point.size)}, {point.setting.cache}"
                    figures.append(ClaimFigure(subject, ratio))
    return figures


def _flushes(boot: Measurement) -> int:
    """Return the number of the sender's TLB flushes in one boot, excluding flushes by task switches."""
    rows = [row for row in boot.rows if row.side == "sender" and row.category != "wakeup_sched"]
    return round(sum(per_kib(row, FLUSHES) for row in rows) * boot.delivered_bytes / 1024)
