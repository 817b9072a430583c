# SPDX-License-Identifier: GPL-2.0-only
"""CPU time of each process, and how samples divide it between the ledger rows. Pure.

The CPU time of a process is known exactly, because its CPU clock is read as each segment starts and ends.
Samples only divide that time between rows. So an error in the sampling rate changes no sum, and comparing
samples with the clock remains an independent check.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from msgspec import structs

from copyscope.base import stats
from copyscope.ledger.tolerance import AGREE_SHARE, SWITCH_NS, chance_of_samples, time_tolerance
from copyscope.record import instruments
from copyscope.record.derived import Elsewhere, OtherSide
from copyscope.record.instruments import Hook, Sample, Sampled
from copyscope.record.measured import Measured
from copyscope.record.sections import RecordedInterval
from copyscope.record.segments import (
    WORKS,
    find_hook,
    machine_of,
    select,
    side_sum,
    why_no_ledger,
    why_undivided,
)
from copyscope.taxonomy.accounts import LATE, SEND_COPIES
from copyscope.taxonomy.callers import CAUSES, LINEARIZE, PULL_TAIL
from copyscope.taxonomy.events import event_name, measures_time, time_names

SIDES = ("sender", "receiver", "other")
# Values of the field `tie` of a sample that prove that softirq work in another task's time belongs to this
# run. Softirq samples with any other value are left out of every sum.
TIES = ("packet", "batch")
# Id of the hook that detects which program a packet belongs to.
OWNER_HOOK = "packet_owner"

# Description of the softirq work that is attributed to a run of our own traffic, or of a watched program.
OWN_RULE = "on packets from devices in the run's own network namespaces"
WATCHED_RULE = "on packets of its connections"


class RowKey(NamedTuple):
    """Key of a sample's row: account or stage (`kind`), its name (`category`), and the CPU context."""

    kind: str
    category: str
    context: str


@dataclass(frozen=True)
class Weights:
    """Samples of one event on one side, by row.

    samples: number of samples of a row
    weight: sum of the weights of a row's samples, in the event's unit
    squared: sum of the squared weights of a row's samples
    """

    samples: Mapping[RowKey, int]
    weight: Mapping[RowKey, float]
    squared: Mapping[RowKey, float]

    @property
    def all_samples(self) -> int:
        return sum(self.samples.values())

    @property
    def all_weight(self) -> float:
        return sum(self.weight.values())

    @property
    def effective_samples(self) -> float:
        """Number of equally weighted samples with the same precision: (sum w)^2 / sum w^2 (Kish, 1965).

        Timer samples all weigh the same. A cycle counter with a target frequency keeps changing its period,
        so its samples differ in weight.
        """
        squared = self.all_squared
        return min(float(self.all_samples), self.all_weight**2 / squared) if squared else 0.0

    @property
    def all_squared(self) -> float:
        """Sum of all squared weights. Records without squares are assumed to have samples of equal weight."""
        equal_weights = self.all_weight**2 / self.all_samples if self.all_samples else 0.0
        return sum(self.squared.values()) or equal_weights

    def interval(
        self,
        keys: Iterable[RowKey],
        level: float = stats.LEVEL,
        *,
        total_known: bool = True,
        default_weight: float = 0.0,
    ) -> stats.Interval:
        """Return the interval of the summed weight of some rows.

        keys: the rows
        level: probability that the interval contains the true weight
        total_known: True if a clock or counter gives the weight of all rows, and samples only divide it.
            False if each row is an independent count, which has a Poisson interval
        default_weight: weight of one sample in a Poisson interval, if this side has no samples
        """
        rows = set(keys)
        weight, squared = (sum(sums.get(key, 0.0) for key in rows) for sums in (self.weight, self.squared))
        if total_known:
            share = stats.weighted_share(weight, squared, self.all_weight, self.all_squared, level)
            return share.scaled(self.all_weight)
        sample_weight = default_weight
        if self.all_weight:
            sample_weight = squared / weight if weight else self.all_squared / self.all_weight
        return stats.poisson(weight / sample_weight, level).scaled(sample_weight)


@dataclass(frozen=True)
class SideTime:
    """CPU time of one side, and the samples that divide it between rows.

    event: name of the sampled event used to divide the time; None if there are no samples
    scale_ns: nanoseconds per unit of weight; None if unknown, for the reason in `reason`
    all_ns: CPU time of all sides together; shares are fractions of it
    """

    weights: Weights
    event: str | None
    scale_ns: float | None
    reason: str | None
    all_ns: float = 0.0

    @property
    def cpu_ns(self) -> float | None:
        """CPU time of the side's samples, including softirq work charged to the side; None if unknown."""
        return None if self.scale_ns is None else self.weights.all_weight * self.scale_ns

    @property
    def share_of_all(self) -> float:
        """This side's share (0..1) of the CPU time of all sides, or 0 if unknown."""
        return (self.cpu_ns or 0.0) / self.all_ns if self.all_ns else 0.0


def belongs_to_run(row: Sampled) -> bool:
    """Return True if a sample is known to belong to this run.

    Every sample of the run's processes belongs to the run. A softirq sample charged to another task belongs
    to the run only if its `tie` is known. Old records lack that field.
    """
    return row.side != "other" or row.tie in TIES


def samples_of_run(rows: Iterable[Sample]) -> list[Sample]:
    """Return the samples that are known to belong to this run."""
    return [row for row in rows if belongs_to_run(row)]


def side_weights(rows: Iterable[Sample], side: str, events: Sequence[str], *, of_run: bool = True) -> Weights:
    """Sum up the samples of one side for the named events.

    events: accepted names of the sampled event
    of_run: True for the samples known to belong to this run, False for all other samples
    """
    samples: dict[RowKey, int] = defaultdict(int)
    weight: dict[RowKey, float] = defaultdict(float)
    squared: dict[RowKey, float] = defaultdict(float)
    for row in rows:
        if row.side == side and belongs_to_run(row) == of_run and event_name(row.event) in events:
            key = RowKey(row.kind, row.category, row.context)
            samples[key] += row.samples
            weight[key] += row.weight
            squared[key] += row.weight_squared
    return Weights(dict(samples), dict(weight), dict(squared))


def time_event_names(raw: Measured) -> tuple[str, ...] | None:
    """Return the names of the sampled event used to divide CPU time, or None if nothing was sampled."""
    statuses = {event.name: event.status for event in raw.sampler.events}
    return time_names({row.event for row in raw.samples}, statuses)


def clocked_weight(weights: Weights, raw: Measured, side: str) -> float:
    """Return the summed weight of a side's samples whose time is included in the side's CPU clock."""
    if not excludes_softirq(raw, side):
        return weights.all_weight
    return sum(weight for key, weight in weights.weight.items() if key.context != "softirq")


def side_times(raw: Measured) -> dict[str, SideTime]:
    """Return {side: CPU time with the samples that divide it}.

    No process clock measures the side `other`, but its cpu-clock samples have weights in nanoseconds already.
    Samples of any other event are scaled by the same factor as those of the processes.
    """
    events = time_event_names(raw)
    if events is None:
        unsampled = SideTime(Weights({}, {}, {}), None, None, why_undivided(raw) or why_unsampled(raw))
        return dict.fromkeys((*raw.run.sides, "other"), unsampled)
    event = events[0]
    times: dict[str, SideTime] = {}
    scaled_weight, scaled_ns = 0.0, 0.0
    for side in raw.run.sides:
        weights = side_weights(raw.samples, side, events)
        weight = clocked_weight(weights, raw, side)
        reason = why_no_cpu_time(raw, side) or why_undivided(raw)
        if weight <= 0 and not reason:
            reason = f"{event}: no sample of the {side}: run longer or sample more often"
        cpu_ns = cpu_time(raw, side).ns
        times[side] = SideTime(weights, event, None if reason else cpu_ns / weight, reason)
        if not reason:
            scaled_weight, scaled_ns = scaled_weight + weight, scaled_ns + cpu_ns
    weights = side_weights(raw.samples, "other", events)
    if "cpu-clock" in events:
        times["other"] = SideTime(weights, event, 1.0, None)
    elif scaled_weight > 0:
        times["other"] = SideTime(weights, event, scaled_ns / scaled_weight, None)
    else:
        reason = f"{event}: no process was sampled, so softirq samples have no scale"
        times["other"] = SideTime(weights, event, None, reason)
    # If a side has no samples, its CPU clock gives its part of the total.
    clocks_ns = {side: float(cpu_time(raw, side).ns) for side in raw.run.sides}
    all_ns = sum(
        clocks_ns.get(side, 0.0) if time.cpu_ns is None else time.cpu_ns for side, time in times.items()
    )
    return {side: replace(time, all_ns=all_ns) for side, time in times.items()}


def softirq_sides(raw: Measured, times: Mapping[str, SideTime]) -> tuple[OtherSide, Elsewhere]:
    """Return the softirq work charged to other tasks: first the work done for this run, then all the rest."""
    other = times["other"]
    unrelated = side_weights(raw.samples, "other", time_event_names(raw) or (), of_run=False)
    rule = WATCHED_RULE if raw.target is not None else OWN_RULE
    cause = why_untied(find_hook(raw.hooks, OWNER_HOOK))
    return (
        OtherSide(*_softirq_spent(other), rule),
        Elsewhere(*_softirq_spent(replace(other, weights=unrelated)), cause),
    )


def _softirq_spent(time: SideTime) -> tuple[dict[str, str], int | None, int]:
    """Return the fields of `Spent` for a side: reasons, CPU time in ns, and number of samples.

    time: CPU time of the side, and the samples that divide it
    """
    if time.cpu_ns is None:
        return {"cpu_ns": time.reason or "not sampled"}, None, time.weights.all_samples
    return {}, round(time.cpu_ns), time.weights.all_samples


def why_untied(hook: Hook | None) -> str:
    """Return why some softirq work is not attributed to this run.

    hook: hook that detects which program a packet belongs to; None in old records
    """
    if hook is None:
        return "this record was made before copyscope recorded which program packets belong to"
    if hook.state in WORKS:
        return "packets of other programs, timers, the scheduler"
    return f"{hook.symbol}: {hook.state}: {hook.reason}: no other hook shows the program of a packet"


def why_unsampled(raw: Measured) -> str:
    """Return why the run has no samples, in the sampler's own words if it gave a reason."""
    no_ledger, events = why_no_ledger(raw.run), raw.sampler.events
    if no_ledger:
        return no_ledger
    if not events:
        return "the sampler was not used, or the collector gave no report"
    refused = [] if any(event.status == "sampled" for event in events) else events
    reasons = (f"{event.name}: {event.status}: {event.reason}" for event in refused if event.reason)
    return next(reasons, "the sampler took no sample: run longer or sample more often")


def row_interval(time: SideTime, side: str, key: RowKey) -> RecordedInterval | None:
    """Return the 95 % interval of a row's CPU time in ns, or None if there are no samples.

    No clock gives the total of the side `other`, so each of its rows is an independent count.
    """
    if time.scale_ns is None or not time.weights.all_weight:
        return None
    interval = time.weights.interval((key,), total_known=side != "other").scaled(time.scale_ns)
    return RecordedInterval(round(interval.low), round(interval.high), interval.level)


def share_interval(time: SideTime, share: float) -> stats.Interval:
    """Return Wilson's 95 % interval for a share (0..1) of a side's samples."""
    samples = time.weights.effective_samples
    return stats.wilson(min(1.0, share) * samples, samples)


# Minimum number of samples that prove a copy in the send call. Fewer samples may occur by chance.
COPY_SAMPLES_MIN = 5


def reclassify_linearized(raw: Measured, flagged_sends: int) -> Measured:
    """Return the run with linearized packets counted as late copies, if sends were flagged as copied.

    flagged_sends: number of completions that reported a copy. Such completions account for the bytes of
        linearized packets. Pages of files have no completions, so if no send was flagged, the copy remains a
        silent copy.
    """
    if flagged_sends <= 0:
        return raw
    samples = [
        structs.replace(row, category="deferred") if _is_linearized(row) else row for row in raw.samples
    ]
    return structs.replace(raw, samples=samples)


def _is_linearized(row: Sample) -> bool:
    """Return True for a silent copy that turned a packet with page references into one linear buffer."""
    linearizes = row.symbol in LINEARIZE or (row.symbol == PULL_TAIL and row.caller in CAUSES)
    return row.category == "silent" and linearizes


def samples_by_caller(raw: Measured, accounts: Sequence[str]) -> Counter[str]:
    """Return {kernel function that needed the copy: number of samples} for the copies in some accounts."""
    samples: Counter[str] = Counter()
    for row in time_samples(raw):
        if row.category in accounts and row.caller is not None:
            samples[row.caller] += row.samples
    return samples


def has_samples(raw: Measured, account: str) -> bool:
    """Return True if any CPU time of an account is known to belong to this run."""
    return any(row.category == account for row in time_samples(raw))


def sample_count(raw: Measured, *accounts: str) -> int:
    """Return the number of this run's samples in some accounts; without `accounts`, of all samples."""
    return sum(row.samples for row in time_samples(raw) if not accounts or row.category in accounts)


def copied_in_call(raw: Measured) -> bool:
    """Return True if samples show that sends flagged as copied were copied inside the send call.

    UDP copies inside the send call if the device lacks scatter-gather or checksum offload, or if a message is
    larger than a packet (__ip_append_data(), net/ipv4/ip_output.c).
    """
    return sample_count(raw, *SEND_COPIES) >= COPY_SAMPLES_MIN and not copied_late(raw)


def copied_late(raw: Measured) -> bool:
    """Return True if samples show copies after the send call."""
    return any(has_samples(raw, account) for account in LATE)


def time_samples(raw: Measured) -> list[Sample]:
    """Return this run's samples of the event used to divide CPU time."""
    events = time_event_names(raw) or ()
    return [row for row in samples_of_run(raw.samples) if event_name(row.event) in events]


# Maximum wake-up latency in ns that the CPU clock charges for one sleep.
WAKE_UP_LATENCY_MAX_NS = 20_000

Source = Literal["task-clock", "CPU clock"]


@dataclass(frozen=True)
class CpuTime:
    """CPU time of one side's process over the ledger segments.

    source: perf's task-clock, or the CPU clock of the process
    switches: number of times that the process went to sleep
    departures: number of times that the process left a CPU, to sleep or for another task
    """

    ns: int
    source: Source
    switches: int
    departures: int

    @property
    def waited_ns(self) -> int:
        """Upper bound of the wake-up latency that `ns` contains."""
        return WAKE_UP_LATENCY_MAX_NS * self.switches if self.source == "CPU clock" else 0


def cpu_time(raw: Measured, side: str) -> CpuTime:
    """Return the CPU time of a side, from perf's task-clock or from the CPU clock of the process.

    The CPU clock starts when the wake-up is queued, not when the task is switched in, because the scheduler
    skips a clock update between the two (rq_clock_skip_update() in wakeup_preempt(), kernel/sched/core.c).
    So each sleep adds the latency of its wake-up: 1 us on bare metal, up to 17 us in some virtual machines.

    perf counts a watched program for half a second only, and misses children of a program that forks often.
    The CPU clock minus the largest possible latencies is a lower bound. The CPU clock is used if task-clock
    is below that bound, or if the samples agree with the CPU clock and not with task-clock.
    """
    segments = select(raw.run.segments, "ledger")
    switches = side_sum(segments, side, lambda totals: totals.voluntary_switches)
    preempted = side_sum(segments, side, lambda totals: totals.involuntary_switches)
    departures = max(switches + preempted, round(_perf_count(raw, side, "context-switches") or 0))
    task_clock_ns = _perf_count(raw, side, "task-clock")
    cpu_clock_ns = side_sum(segments, side, lambda totals: totals.process_cpu_ns)
    cpu_clock = CpuTime(cpu_clock_ns, "CPU clock", switches, departures)
    if task_clock_ns is None or not segments:
        return cpu_clock
    task_clock = CpuTime(round(task_clock_ns), "task-clock", switches, departures)
    is_low = side == "target" and (
        task_clock_ns < cpu_clock_ns - WAKE_UP_LATENCY_MAX_NS * departures
        or _samples_prefer(raw, cpu_clock, task_clock)
    )
    return cpu_clock if is_low else task_clock


def _samples_prefer(raw: Measured, cpu_clock: CpuTime, task_clock: CpuTime) -> bool:
    """Return True if the samples of a watched program agree with its CPU clock and not with task-clock."""
    # Samples are added up only if the two clocks differ by more than a check tolerates.
    if task_clock.ns >= (1 - AGREE_SHARE) * cpu_clock.ns:
        return False
    events = time_event_names(raw)
    if events is None or not measures_time(events[0], {row.name: row.unit for row in raw.sampler.events}):
        return False
    weights = side_weights(raw.samples, "target", events)
    with_softirq = not machine_of(raw, "target").irq_time_accounting
    return _agrees(weights, cpu_clock, with_softirq=with_softirq) and not _agrees(
        weights, task_clock, with_softirq=True
    )


def _agrees(weights: Weights, clock: CpuTime, *, with_softirq: bool) -> bool:
    """Return True if samples differ from a clock by no more than chance and known errors explain.

    weights: samples whose weights are nanoseconds
    with_softirq: True if the clock includes softirq work
    """
    if not weights.all_samples or not clock.ns:
        return False
    sampled_ns = sum(w for key, w in weights.weight.items() if with_softirq or key.context != "softirq")
    sample_ns = weights.all_weight / weights.effective_samples
    chance_ns = chance_of_samples(weights.effective_samples, sample_ns, clock.ns)
    # The latency of wake-ups makes a clock too large only.
    waited_ns = clock.waited_ns if clock.ns > sampled_ns else 0
    error_ns = clock.departures * SWITCH_NS + waited_ns
    return abs(sampled_ns - clock.ns) <= time_tolerance(
        max(sampled_ns, clock.ns), chance_ns, clock_error=error_ns
    )


def counters_of(raw: Measured, side: str) -> Mapping[str, instruments.Counter]:
    """Return the counters of `perf stat` for a side, by event name."""
    return raw.counters.get(side, {})


def _perf_count(raw: Measured, side: str, event: str) -> float | None:
    """Return the value of a perf counter for a side, or None if perf did not count that event."""
    counter = counters_of(raw, side).get(event)
    return None if counter is None else counter.value


def why_no_cpu_time(raw: Measured, side: str) -> str | None:
    """Return why the CPU time of a side is unknown, or None if it is known. 0 ns counts as unknown."""
    if cpu_time(raw, side).ns:
        return None
    return why_no_ledger(raw.run) or (
        "its processes used no CPU time while they were sampled: they slept, or exited before copyscope "
        "read their clock"
    )


def excludes_softirq(raw: Measured, side: str) -> bool:
    """Return True if the CPU time of a side excludes softirq work.

    The CPU clock excludes softirq work on kernels with CONFIG_IRQ_TIME_ACCOUNTING. task-clock includes it.
    """
    return cpu_time(raw, side).source == "CPU clock" and bool(machine_of(raw, side).irq_time_accounting)
