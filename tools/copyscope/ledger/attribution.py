"""From samples to time: what share of a side's samples a category has, times the CPU time of that side.

The time of a process is known exactly (its CPU clock, read at both ends of each segment); samples only say
how it divides. So no error of the sampling rate enters, and the identity between both remains a real check.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from copyscope import stats
from copyscope.ledger.cpu_time import cpu_time, excludes_softirq, why_no_time
from copyscope.record.derived import Elsewhere, OtherSide
from copyscope.record.hooks import WORKS, find
from copyscope.record.instruments import Event, Hook, Sample
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval
from copyscope.record.segments import why_no_ledger, why_undivided
from copyscope.taxonomy.events import event_name, time_names

SIDES = ("sender", "receiver", "other")
# How softirq work on the time of others is known to be of this run (samples.tie_of); the rest is in no sum.
TIES = ("packet", "batch")
OWNER_HOOK = "packet_owner"

OWN_RULE = "on packets that came out of devices of its own network namespaces"
WATCHED_RULE = "on packets of its connections"

Key = tuple[str, str, str]  # kind, category, context


@dataclass(frozen=True)
class Weights:
    """Samples and weight (in the event's unit) of one event on one side, by kind, category and context."""

    samples: dict[Key, int]
    weight: dict[Key, float]
    # The sum of the squares of the weights.
    squared: dict[Key, float]

    @property
    def all_samples(self) -> int:
        return sum(self.samples.values())

    @property
    def all_weight(self) -> float:
        return sum(self.weight.values())

    @property
    def effective_samples(self) -> float:
        """How many samples of equal weight say as much: (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965).

        A cycle counter that is asked for a frequency changes its period all the time, a timer does not.
        """
        squared = self.all_squared
        return min(float(self.all_samples), self.all_weight**2 / squared) if squared else 0.0

    @property
    def all_squared(self) -> float:
        """Where none is known, as if all were alike."""
        alike = self.all_weight**2 / self.all_samples if self.all_samples else 0.0
        return sum(self.squared.values()) or alike

    def interval(
        self, keys: Iterable[Key], level: float = stats.LEVEL, *, whole_known: bool = True, each: float = 0.0
    ) -> stats.Interval:
        """Of the weight of some rows.

        `whole_known`: the weight of all rows is known from elsewhere, and only divided by samples, of which
        there are some; else a row is a count of its own (Poisson), and where nothing was sampled a sample
        would weigh `each`.
        """
        rows = set(keys)
        weight, squared = (sum(sums.get(key, 0.0) for key in rows) for sums in (self.weight, self.squared))
        if whole_known:
            found = stats.weighted_share(weight, squared, self.all_weight, self.all_squared, level)
            return found.scaled(self.all_weight)
        if self.all_weight:
            each = squared / weight if weight else self.all_squared / self.all_weight
        return stats.poisson(weight / each, level).scaled(each)


@dataclass(frozen=True)
class SideTime:
    """How the samples of one side become nanoseconds: `scale_ns` per unit of weight, or why not."""

    weights: Weights
    event: str | None
    scale_ns: float | None
    reason: str | None

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


def weights_of(rows: Iterable[Sample], side: str, names: Sequence[str], *, mine: bool = True) -> Weights:
    """The samples of one side whose event has one of the names, added up.

    mine: those that are known to be of this run, or those that are not.
    """
    samples: dict[Key, int] = defaultdict(int)
    weight: dict[Key, float] = defaultdict(float)
    squared: dict[Key, float] = defaultdict(float)
    for row in rows:
        if row.side == side and is_tied(row) == mine and event_name(row.event) in names:
            key = (row.kind, row.category, row.context)
            samples[key] += row.samples
            weight[key] += row.weight
            squared[key] += row.weight_squared
    return Weights(dict(samples), dict(weight), dict(squared))


def time_event(rows: Iterable[Sample], events: Iterable[Event]) -> tuple[str, ...] | None:
    """The names of the event that divides time in these samples; None when nothing was sampled."""
    return time_names({row.event for row in rows}, {event.name: event.status for event in events})


def clocked(weights: Weights, raw: Measured, side: str) -> float:
    """The part of the weight that the side's CPU time covers."""
    if not excludes_softirq(raw, side):
        return weights.all_weight
    return sum(weight for (_, _, context), weight in weights.weight.items() if context != "softirq")


def side_times(raw: Measured) -> dict[str, SideTime]:
    """All sides with their scales. `other` has no process: weights of cpu-clock are ns already."""
    names = time_event(raw.samples, raw.sampler.events)
    if names is None:
        unknown = SideTime(Weights({}, {}, {}), None, None, why_undivided(raw) or why_unsampled(raw))
        return dict.fromkeys((*raw.run.sides, "other"), unknown)
    times: dict[str, SideTime] = {}
    covered, exact = 0.0, 0.0
    for side in raw.run.sides:
        weights = weights_of(raw.samples, side, names)
        base = clocked(weights, raw, side)
        reason = why_no_time(raw, side) or why_undivided(raw)
        if base <= 0 and not reason:
            reason = f"{names[0]}: no sample of the {side}: run longer or sample more often"
        cpu_ns = cpu_time(raw, side).ns
        scale_ns = None if reason else cpu_ns / base
        times[side] = SideTime(weights, names[0], scale_ns, reason)
        if not reason:
            covered, exact = covered + base, exact + cpu_ns
    weights = weights_of(raw.samples, "other", names)
    if "cpu-clock" in names:
        return times | {"other": SideTime(weights, names[0], 1.0, None)}
    scale = exact / covered if covered > 0 else None
    reason = f"{names[0]}: no process was sampled to scale it by" if scale is None else None
    return times | {"other": SideTime(weights, names[0], scale, reason)}


def softirq_beside(raw: Measured, times: dict[str, SideTime]) -> tuple[OtherSide, Elsewhere]:
    """Softirq work on the time of others: what is tied to this run, and what is not."""
    other = times["other"]
    names = time_event(raw.samples, raw.sampler.events) or ()
    untied = replace(other, weights=weights_of(raw.samples, "other", names, mine=False))
    rule = WATCHED_RULE if raw.target is not None else OWN_RULE
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
    """95 % interval of a row's CPU time in ns. The side `other` has no clock that knows its whole."""
    if time.scale_ns is None or not time.weights.all_weight:
        return None
    found = time.weights.interval((key,), whole_known=side != "other").scaled(time.scale_ns)
    return Interval(round(found.low), round(found.high), found.level)


def share_of(time: SideTime, keys: Iterable[Key], level: float = stats.LEVEL) -> stats.Interval:
    """The share (0..1) that some rows have of a side's samples, of the weights."""
    return time.weights.interval(keys, level).scaled(1 / time.weights.all_weight)


def interval_of(time: SideTime, share: float, level: float = stats.LEVEL) -> stats.Interval:
    """Wilson's interval of a share of a side's samples."""
    samples = time.weights.effective_samples
    return stats.wilson(min(1.0, share) * samples, samples, level)
