"""From samples to time: how long a side ran, and which part of its samples a category has. Pure.

The time of a process is known exactly (its CPU clock, read at both ends of each segment); samples only say
how it divides. So no error of the sampling rate enters, and the check of one against the other stays real.
"""

import collections
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from msgspec import structs

from copyscope import stats
from copyscope.record.derived import Elsewhere, OtherSide
from copyscope.record.hooks import WORKS, find
from copyscope.record.instruments import Counter, Event, Hook, Sample
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval
from copyscope.record.segments import machine_of, select, total, why_no_ledger, why_undivided
from copyscope.taxonomy.callers import CAUSES, LATE, LINEARIZE, PULL
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
    """How the samples of one side become nanoseconds: `scale_ns` per unit of weight, or why not.

    all_ns: CPU time of all sides: shares are of this
    """

    weights: Weights
    event: str | None
    scale_ns: float | None
    reason: str | None
    all_ns: float = 0.0

    @property
    def cpu_ns(self) -> float | None:
        """CPU time that the side's samples stand for (with it the softirq time that ran on top)."""
        return None if self.scale_ns is None else self.weights.all_weight * self.scale_ns

    @property
    def part(self) -> float:
        """Of all CPU time, that of this side; 0 where it is not known."""
        return (self.cpu_ns or 0.0) / self.all_ns if self.all_ns else 0.0


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
        times["other"] = SideTime(weights, names[0], 1.0, None)
    else:
        scale = exact / covered if covered > 0 else None
        reason = f"{names[0]}: no process was sampled to scale it by" if scale is None else None
        times["other"] = SideTime(weights, names[0], scale, reason)
    return _of_one_whole(raw, times)


def _of_one_whole(raw: Measured, times: dict[str, SideTime]) -> dict[str, SideTime]:
    """Each knows the CPU time of all: of a side without samples what its clock says."""
    clocks = {side: float(cpu_time(raw, side).ns) for side in raw.run.sides}
    all_ns = sum(
        clocks.get(name, 0.0) if time.cpu_ns is None else time.cpu_ns for name, time in times.items()
    )
    return {side: replace(one, all_ns=all_ns) for side, one in times.items()}


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
        return "this record was made before copyscope saw which program these packets belong to"
    if hook.state in WORKS:
        return "packets of others, timers, the scheduler"
    return f"{hook.symbol}: {hook.state}: {hook.reason}: nothing else shows which program they belong to"


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


Raw = TypeVar("Raw", Measured, Measured)
# So many samples of the copy at the send call are no chance.
SURE_SAMPLES = 5


def decided(raw: Raw, flagged: int) -> Raw:
    """The run; where sends were flagged as copied, packets made into one piece among those copies.

    Their completion carries the flag, so the bytes are there. Of pages of files nothing completes.
    """
    if flagged <= 0:
        return raw
    changed = [
        structs.replace(row, category="deferred") if _is_linearized(row) else row for row in raw.samples
    ]
    return structs.replace(raw, samples=changed)


def _is_linearized(row: Sample) -> bool:
    whole = row.symbol in LINEARIZE or (row.symbol == PULL and row.caller in CAUSES)
    return row.category == "silent" and whole


def callers(raw: Measured, accounts: Sequence[str]) -> collections.Counter[str]:
    """Function -> samples of the copies that were made for it. Where none was seen there is none."""
    found: collections.Counter[str] = collections.Counter()
    for row in _of_time(raw):
        if row.category in accounts and row.caller is not None:
            found[row.caller] += row.samples
    return found


def sampled(raw: Measured, account: str) -> bool:
    """Whether any time of an account is known to be of this run."""
    return any(row.category == account for row in _of_time(raw))


def at_call(raw: Measured) -> bool:
    """Whether the samples say that sends flagged as copied were copied before the call returned.

    UDP does so where the device cannot gather or work out checksums, or a message is more than a packet
    (__ip_append_data(), net/ipv4/ip_output.c).
    """
    samples: collections.Counter[str] = collections.Counter()
    for row in _of_time(raw):
        samples[row.category] += row.samples
    return samples["copy_in"] >= SURE_SAMPLES and not any(samples[account] for account in LATE)


def _of_time(raw: Measured) -> list[Sample]:
    names = time_event(raw.samples, raw.sampler.events) or ()
    return [row for row in tied(raw.samples) if event_name(row.event) in names]


# Of the latency of one wake-up the CPU clock bills at most so much.
WAKE_UP_MOST_NS = 20_000

Source = Literal["task-clock", "CPU clock"]


@dataclass(frozen=True)
class CpuTime:
    """CPU time of one side's process over the ledger segments."""

    ns: int
    source: Source
    # How often it went to sleep, and how often it left the CPU at all: by sleeping or for another task.
    switches: int
    departures: int


def cpu_time(raw: Measured, side: str) -> CpuTime:
    """The CPU time of a side: perf's task-clock, else the process CPU clock.

    The two differ for a process that sleeps often: the CPU clock starts when the wake-up is queued, not when
    the task is switched in, because the scheduler skips a clock update between the two
    (rq_clock_skip_update() in wakeup_preempt(), kernel/sched/core.c). So it bills the wake-up latency once
    per sleep: 1 us on bare metal, 10 us in some virtual machines. perf starts and stops between segments; of
    a program that forks hundreds of times a second it was seen to miss most: where it has less than half of
    what is certain, the clocks count.
    """
    segments = select(raw.run.segments, "ledger")
    switches = total(segments, side, "voluntary_switches")
    counted = _counted(raw, side, "task-clock")
    displaced = total(segments, side, "involuntary_switches")
    departures = max(switches + displaced, round(_counted(raw, side, "context-switches") or 0))
    clocked = total(segments, side, "process_cpu_ns")
    certain = clocked - WAKE_UP_MOST_NS * departures if side == "target" else 0
    if counted is not None and segments and 2 * counted >= certain:
        return CpuTime(round(counted), "task-clock", switches, departures)
    return CpuTime(clocked, "CPU clock", switches, departures)


def counters_of(raw: Measured, side: str) -> dict[str, Counter]:
    """What perf counted of a side, by event."""
    return raw.counters.get(side, {})


def _counted(raw: Measured, side: str, event: str) -> float | None:
    """What perf counted of a side; None where it did not."""
    found = counters_of(raw, side).get(event)
    return None if found is None else found.value


def why_no_time(raw: Measured, side: str) -> str | None:
    """Why the CPU time of a side is not known; None when it is. Nothing runs in no time at all."""
    if cpu_time(raw, side).ns:
        return None
    return why_no_ledger(raw.run) or (
        "its processes used no CPU time while it was sampled: they slept, or had ended before it was read"
    )


def excludes_softirq(raw: Measured, side: str) -> bool:
    """Whether the side's CPU time leaves softirq work out.

    The CPU clock of a kernel with CONFIG_IRQ_TIME_ACCOUNTING does; task-clock never does.
    """
    return cpu_time(raw, side).source == "CPU clock" and bool(machine_of(raw, side).irq_time_accounting)
