"""From samples to time: what share of a side's samples a category has, times the CPU time of that side.

The time of a process is known exactly (its CPU clock, read at both ends of each segment); samples only say
how it divides. So no error of the sampling rate enters, and the identity between both remains a real check.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import UNSET

from copyscope import stats
from copyscope.ledger.cpu_time import counters_of, cpu_time, excludes_softirq, why_no_time
from copyscope.record.derived import Elsewhere, OtherSide
from copyscope.record.hooks import WORKS, find
from copyscope.record.instruments import Burst, Hook, Sample, Sampler
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.raw import Measured
from copyscope.record.sections import Interval
from copyscope.record.segments import processes, why_no_ledger, why_undivided
from copyscope.taxonomy.events import ARMED_IN, EVENT_COLUMNS, TIME_EVENTS, event_name

SIDES = ("sender", "receiver", "other")
# How softirq work on the time of others is known to be of this run (samples.tie_of); the rest is in no sum.
TIES = ("packet", "batch")
OWNER_HOOK = "packet_owner"

OWN_RULE = "on packets that came out of devices of its own network namespaces"
# Fewer groups of bursts say too little of how much they differ.
GROUPS_AT_LEAST = 4
WATCHED_RULE = "on packets of its connections"

Key = tuple[str, str, str]  # kind, category, context


@dataclass(frozen=True)
class Weights:
    """Samples and weight (in the event's unit) of one event on one side, by kind, category and context."""

    samples: dict[Key, int]
    weight: dict[Key, float]
    # Of a side that is sampled in bursts: its samples by group of bursts.
    groups: dict[Key, list[float]] = field(default_factory=dict)

    @property
    def all_samples(self) -> int:
        return sum(self.samples.values())

    @property
    def all_weight(self) -> float:
        return sum(self.weight.values())


@dataclass(frozen=True)
class SideTime:
    """How the samples of one side become nanoseconds: `scale_ns` per unit of weight, or why not."""

    weights: Weights
    event: str | None
    scale_ns: float | None
    reason: str | None
    # How many samples may be of one and the same piece of work: all that are taken in one burst.
    cluster: float = 1.0

    @property
    def cpu_ns(self) -> float | None:
        """CPU time that the side's samples stand for (with it the softirq time that ran on top)."""
        return None if self.scale_ns is None else self.weights.all_weight * self.scale_ns


def is_tied(row: Sample) -> bool:
    """Whether a row of `samples` is known to be of this run. Older records do not say it of softirq work."""
    return row.side != "other" or row.tie in TIES


def tied(rows: Iterable[Sample]) -> list[Sample]:
    """Those of a record's rows of samples that are known to be of this run."""
    return [row for row in rows if is_tied(row)]


def burst_of(sampler: Sampler, side: str) -> Burst | None:
    """The bursts of a side's timers; None where these are armed all the time."""
    return (sampler.bursts or {}).get(side)


def weights_of(
    sampler: Sampler,
    rows: Iterable[Sample],
    side: str,
    names: Sequence[str],
    *,
    mine: bool = True,
    as_sampled: bool = False,
) -> Weights:
    """The samples of one side whose event has one of the names, added up.

    mine: those that are known to be of this run, or those that are not. as_sampled: all that were taken;
    else what the timers of a side cost counts only for as long as they were armed.
    """
    samples: dict[Key, int] = defaultdict(int)
    weight: dict[Key, float] = defaultdict(float)
    groups: dict[Key, list[float]] = {}
    for row in rows:
        if row.side == side and is_tied(row) == mine and event_name(row.event) in names:
            key = (row.kind, row.category, row.context)
            part = 1.0 if as_sampled else _lasting_part(sampler, row)
            samples[key] += round(row.samples * part)
            weight[key] += row.weight * part
            if row.samples_of_group is not UNSET:
                so_far = groups.get(key) or [0.0] * len(row.samples_of_group)
                groups[key] = [a + b * part for a, b in zip(so_far, row.samples_of_group, strict=True)]
    return Weights(dict(samples), dict(weight), groups)


def _lasting_part(sampler: Sampler, row: Sample) -> float:
    """The part of a row of samples that there is in the whole of the segments.

    A side that sleeps all the time is sampled in bursts, and a weight stands for all of its time. But at each
    switch in a burst its timers are armed anew; outside of bursts they are not.
    """
    bursts = burst_of(sampler, row.side)
    enabled_ns = sampler.enabled_ns_of(row.side)
    if not bursts or not enabled_ns or (row.category, row.symbol) != ("instruments", ARMED_IN):
        return 1.0
    return min(1.0, bursts.armed_ns / enabled_ns)


def time_event(rows: Iterable[Sample]) -> tuple[str, ...] | None:
    """The names of the event that divides time in these samples; None when nothing was sampled."""
    sampled = {event_name(row.event) for row in rows}
    return next((names for names in TIME_EVENTS if sampled & set(names)), None)


def clocked(weights: Weights, raw: Measured, side: str) -> float:
    """The part of the weight that the side's CPU time covers."""
    if not excludes_softirq(raw, side):
        return weights.all_weight
    return sum(weight for (_, _, context), weight in weights.weight.items() if context != "softirq")


def side_times(raw: Measured) -> dict[str, SideTime]:
    """All sides with their scales. `other` has no process: weights of cpu-clock are ns already."""
    names = time_event(raw.samples)
    if names is None:
        unknown = SideTime(Weights({}, {}), None, None, why_undivided(raw) or why_unsampled(raw))
        return dict.fromkeys((*processes(raw), "other"), unknown)
    times: dict[str, SideTime] = {}
    covered, exact = 0.0, 0.0
    for side in processes(raw):
        weights = weights_of(raw.sampler, raw.samples, side, names)
        base = clocked(weights, raw, side)
        reason = why_no_time(raw, side) or why_undivided(raw)
        if base <= 0 and not reason:
            reason = f"{names[0]}: no sample of the {side}: run longer or sample more often"
        cpu_ns = cpu_time(raw, side).ns
        scale_ns = None if reason else cpu_ns / base
        times[side] = SideTime(weights, names[0], scale_ns, reason, cluster_of(raw.sampler, side))
        if not reason:
            covered, exact = covered + base, exact + cpu_ns
    weights = weights_of(raw.sampler, raw.samples, "other", names)
    if "cpu-clock" in names:
        return times | {"other": SideTime(weights, names[0], 1.0, None, cluster_of_others(raw.sampler))}
    scale = exact / covered if covered > 0 else None
    reason = f"{names[0]}: no process was sampled to scale it by" if scale is None else None
    return times | {"other": SideTime(weights, names[0], scale, reason)}


def cluster_of(sampler: Sampler, side: str) -> float:
    """How many samples of a side are in one burst, as one of these samples sees it; 1 without bursts."""
    bursts = burst_of(sampler, side)
    return max(1.0, bursts.samples_squared / bursts.samples) if bursts and bursts.samples else 1.0


def cluster_of_others(sampler: Sampler) -> float:
    """Samples of one CPU in one burst of the timers for everybody else; 1 where these are armed all the time.

    Softirq work on the time of others comes in runs of milliseconds, so a burst sees one of them or none.
    """
    bursts = burst_of(sampler, "other")
    if not bursts or not bursts.count or 2 * bursts.armed_ns > sampler.enabled_ns_of("other"):
        return 1.0
    return max(1.0, bursts.armed_ns / bursts.count / bursts.period_ns)


def softirq_beside(raw: Measured, times: dict[str, SideTime]) -> tuple[OtherSide, Elsewhere]:
    """Softirq work on the time of others: what is tied to this run, and what is not."""
    other = times["other"]
    names = time_event(raw.samples) or ()
    untied = replace(other, weights=weights_of(raw.sampler, raw.samples, "other", names, mine=False))
    rule = WATCHED_RULE if isinstance(raw, RawProgramRun) else OWN_RULE
    cause = why_untied(find(raw.hooks, OWNER_HOOK))
    return OtherSide(*_beside(other), rule), Elsewhere(*_beside(untied), cause)


def _beside(time: SideTime) -> tuple[dict[str, str], int | None, int]:
    """reasons, cpu_ns, samples."""
    if time.cpu_ns is None:
        return {"cpu_ns": time.reason or "not sampled"}, None, time.weights.all_samples
    return {}, round(time.cpu_ns), time.weights.all_samples


def why_untied(hook: Hook | None) -> str:
    """Why softirq work on the time of others is not tied to this run."""
    if hook is None:
        return "this record was made before copyscope looked whose packets they were"
    if hook.state in WORKS:
        return "packets of others, timers, the scheduler"
    return f"{hook.symbol}: {hook.state}: {hook.reason}: nothing else says whose packets they were"


def why_unsampled(raw: Measured) -> str:
    """Why there is no sample at all, in the sampler's own words where it has any."""
    absent, events = why_no_ledger(raw.run), raw.sampler.events
    if absent:
        return absent
    if not events:
        return "the sampler was not used, or the collector gave no report"
    refused = [] if any(event.status == "sampled" for event in events) else events
    reasons = (f"{event.name}: {event.status}: {event.reason}" for event in refused if event.reason)
    return next(reasons, "the sampler took no sample: run longer or sample more often")


def interval(time: SideTime, side: str, key: Key) -> Interval | None:
    """95 % interval of a row's CPU time in ns: that of its share of the side's samples.

    The `other` side has no known total, its rows are counts (Poisson) of clusters of samples.
    """
    all_samples = time.weights.all_samples
    if time.cpu_ns is None or all_samples == 0:
        return None
    if side == "other":
        samples = time.weights.samples.get(key, 0)
        found = stats.poisson(samples / time.cluster).scaled(time.cpu_ns * time.cluster / all_samples)
    else:
        found = share_of(time, (key,)).scaled(time.cpu_ns)
    return Interval(round(found.low), round(found.high), found.level)


def share_of(time: SideTime, keys: Iterable[Key], level: float = stats.LEVEL) -> stats.Interval:
    """The share (0..1) that some rows have of a side's samples: Wilson's interval of independent samples.

    Samples of one burst are not independent: so many of them count as one as the groups of bursts show. Where
    bursts were too few for that, all of a burst do.
    """
    wanted = list(keys)
    hits = sum(time.weights.samples.get(key, 0) for key in wanted)
    return stats.wilson(hits, time.weights.all_samples, level, as_one=as_one(time, wanted, level))


def as_one(time: SideTime, keys: Iterable[Key] = (), level: float = stats.LEVEL) -> float:
    """How many samples count as one in the interval of a share that some rows have of a side; at least 1."""
    groups = time.weights.groups
    if not groups:
        return 1.0
    totals = [sum(of) for of in zip(*groups.values(), strict=True)]
    taken = [number for number, total in enumerate(totals) if total]
    if len(taken) < GROUPS_AT_LEAST:
        return time.cluster
    of_all = {key: [of[number] for number in taken] for key, of in groups.items()}
    of_keys = [of_all[key] for key in keys if key in of_all]
    # Rows that have none of the samples, or all, say nothing of how alike neighbours are: the others do.
    known = 0 < len(of_keys) < len(of_all)
    parts = [[sum(of) for of in zip(*of_keys, strict=True)]] if known else list(of_all.values())
    found = stats.design_effect(parts, [totals[number] for number in taken], level)
    return min(found, time.cluster)


def event_value(raw: Measured, side: str, column: str, key: Key) -> tuple[float | None, str | None]:
    """Hardware events of one row: its share of that event's samples times the counter, or (None, why).

    Only a process has a counter; rows of `other` have none.
    """
    names = EVENT_COLUMNS[column]
    if side == "other":
        return None, "no process to count on: ksoftirqd and interrupts of idle"
    counters = {event_name(name): value for name, value in counters_of(raw, side).items()}
    counter = next((counters[name] for name in names if name in counters), None)
    if counter is None:
        return None, f"{names[0]}: not counted in this run"
    if counter.value is None:
        return None, counter.reason or f"{names[0]}: {counter.status}"
    weights = weights_of(raw.sampler, raw.samples, side, names)
    if weights.all_weight <= 0:
        return None, f"{names[0]}: counted for the {side} as a whole, not sampled: it cannot be divided"
    return round(weights.weight.get(key, 0.0) / weights.all_weight * counter.value), None
