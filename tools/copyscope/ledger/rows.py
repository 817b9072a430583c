# SPDX-License-Identifier: GPL-2.0-only
"""Rows of the ledger and of the stages: bytes from flows, CPU time and hardware events from samples. Pure.

The count of an event in a row is the row's share of that event's samples, times the total of the counter.
Only processes have counters. Softirq work charged to other tasks is scaled like the samples of the processes,
so its counts can be added to theirs.

A sampling interrupt causes events itself, which the PMU counts and the interrupted row gets. Each row is
therefore reduced by its samples, times the events of one interrupt (`per_interrupt`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from copyscope.base import stats
from copyscope.ledger.attribution import RowKey, SideTime, Weights, counters_of, row_interval, side_weights
from copyscope.ledger.flows import NO_CLAIM, TO_RELAY, Flow, strategy_gathers, unknown
from copyscope.record.derived import AccountRow, EventEstimate, StageRow
from copyscope.record.instruments import Counter, Event, Sample
from copyscope.record.measured import Measured
from copyscope.record.sections import Reasons, RecordedInterval
from copyscope.record.segments import delivered_bytes, select, sender_sum, why_no_ledger
from copyscope.taxonomy.accounts import ACCOUNTS, STAGES
from copyscope.taxonomy.events import EVENT_COLUMNS, dividing_event_names, event_name

LedgerRow = TypeVar("LedgerRow", AccountRow, StageRow)

# Value of `method` in rows whose values come from samples.
METHOD = "sampled"


# Relative error of the events of an interrupt, because the caches of a run differ from those of test copies.
# In guests with known counts, sampled at 8,000 Hz, interrupts had 0.6 to 1.3 times as many L1D misses and
# cycles.
TEST_ERROR = 0.5


@dataclass(frozen=True)
class Interrupts:
    """Sampling interrupts in the rows of a side, and the events that each causes itself.

    counts: number of interrupts in a row, by samples of all events
    mean, half_width: events of one interrupt in the unit of the weights, and half of the 95 % interval
    """

    counts: Mapping[RowKey, int]
    mean: float
    half_width: float

    def without(self, value: float, interval: stats.Interval, key: RowKey) -> tuple[float, stats.Interval]:
        """Return the weight of the row `key` and its interval, less the events of the row's interrupts."""
        count = self.counts.get(key, 0)
        left = max(0.0, value - count * self.mean)
        low = max(0.0, interval.low - count * (self.mean + self.half_width))
        high = max(left, interval.high - count * max(0.0, self.mean - self.half_width))
        return left, stats.Interval(low, high, interval.level)


@dataclass(frozen=True)
class SideEvent:
    """Samples of one hardware event on one side, and the factor that turns their weights into counts.

    scale: events per unit of weight; None if unknown, for the reason in `reason`
    total_known: True if a counter gives the total of the side, and samples only divide it
    default_weight: weight of a sample, taken from the other sides, if this side has no samples
    interrupts: sampling interrupts of the side; None if their own events are unknown
    """

    weights: Weights
    scale: float | None
    reason: str | None
    total_known: bool = True
    default_weight: float = 0.0
    interrupts: Interrupts | None = None

    def estimate(self, key: RowKey) -> tuple[int, EventEstimate] | None:
        """Return the count of the event in the row `key` with its interval; None if the scale is unknown."""
        if self.scale is None:
            return None
        weight = self.weights.weight.get(key, 0.0)
        interval = self.weights.interval(
            (key,), total_known=self.total_known, default_weight=self.default_weight
        )
        if self.interrupts is not None:
            weight, interval = self.interrupts.without(weight, interval, key)
        interval = interval.scaled(self.scale)
        samples = self.weights.samples.get(key, 0)
        return round(weight * self.scale), EventEstimate(
            round(interval.low), round(interval.high), interval.level, samples, METHOD
        )


# Column of the ledger -> hardware event of one side.
SideEvents = Mapping[str, SideEvent]


def events_by_side(raw: Measured) -> dict[str, SideEvents]:
    """Return {side: {column: hardware event}}."""
    processes: dict[str, SideEvents] = {
        side: {column: _process_event(raw, side, names) for column, names in EVENT_COLUMNS.items()}
        for side in raw.run.sides
    }
    other = {
        column: _other_event(raw, names, [events[column] for events in processes.values()])
        for column, names in EVENT_COLUMNS.items()
    }
    return {**processes, "other": other}


def _process_event(raw: Measured, side: str, names: Sequence[str]) -> SideEvent:
    """Return a hardware event of a process.

    names: names that the event may have, the preferred name first
    """
    weights = _event_weights(raw, side, names)
    counter = counter_of(raw, side, names)
    if counter is None:
        reason = f"{names[0]}: not counted in this run"
    elif counter.value is None:
        reason = counter.reason or f"{names[0]}: {counter.status}"
    elif weights.all_weight <= 0:
        reason = why_not_divided(raw.sampler.events, side, names)
    else:
        interrupts = interrupts_of(raw.sampler.events, raw.samples, side, names)
        return SideEvent(weights, counter.value / weights.all_weight, None, interrupts=interrupts)
    return SideEvent(weights, None, reason)


def interrupts_of(
    events: Sequence[Event], samples: Iterable[Sample], side: str, names: Sequence[str]
) -> Interrupts | None:
    """Return the sampling interrupts of a side; None if the events that each causes itself are unknown.

    events, samples: all sampled events, and the samples of all sides
    names: names that the event may have, the preferred name first
    """
    sampled = dividing_event_names(names, {event.name: event.unit for event in events})
    costs = (event.per_interrupt for event in events if event.name in sampled)
    cost = next((cost for cost in costs if cost is not None), None)
    if cost is None or cost.mean is None or cost.deviation is None:
        return None
    half_width = stats.student_quantile(stats.LEVEL, cost.pairs - 1) * cost.deviation
    half_width += TEST_ERROR * max(0.0, cost.mean)
    counts = side_weights(samples, side, [event.name for event in events]).samples
    return Interrupts(counts, max(0.0, cost.mean), half_width)


def _event_weights(raw: Measured, side: str, names: Sequence[str]) -> Weights:
    units = {event.name: event.unit for event in raw.sampler.events}
    return side_weights(raw.samples, side, dividing_event_names(names, units))


def counter_of(raw: Measured, side: str, names: Sequence[str]) -> Counter | None:
    """Return the counter of an event.

    names: names that the event may have; the first name with a counter is used
    """
    counters = {event_name(name): counter for name, counter in counters_of(raw, side).items()}
    return next((counters[name] for name in names if name in counters), None)


def why_not_divided(events: Iterable[Event], side: str, names: Sequence[str]) -> str:
    """Return why the count of an event on a side could not be divided between the rows of that side.

    events: all events that were to be sampled
    names: names that the event may have, the preferred name first
    """
    event = next((event for event in events if event.name in names), None)
    if event is None:
        # The PMU had no counter left to sample this event.
        return f"{names[0]}: counted for the {side} as a whole, not sampled"
    reason = f": {event.reason}" if event.reason else f", but not sampled on the {side}"
    return f"{names[0]}: counted for the {side} as a whole{reason}"


def _other_event(raw: Measured, names: Sequence[str], process_events: Iterable[SideEvent]) -> SideEvent:
    """Return a hardware event of softirq work charged to other tasks, scaled like the processes' event."""
    weights = _event_weights(raw, "other", names)
    scaled = [event for event in process_events if event.scale is not None]
    scaled_weight = sum(event.weights.all_weight for event in scaled)
    if not scaled_weight:
        return SideEvent(
            weights, None, "softirq work ran in ksoftirqd and in idle, where no counter of a process counts"
        )
    count = sum(event.weights.all_weight * (event.scale or 0.0) for event in scaled)
    default_weight = sum(event.weights.all_squared for event in scaled) / scaled_weight
    return SideEvent(
        *(weights, count / scaled_weight, None),
        total_known=False,
        default_weight=default_weight,
        interrupts=interrupts_of(raw.sampler.events, raw.samples, "other", names),
    )


# Start of the reason why a row has no bytes and no calls. The text continues with the account, side and
# context of the row that has the bytes and calls.
COUNTED_ON = "counted once, on the row "
# Contexts of a row, in the order of the rows.
CONTEXTS = ("user", "process", "softirq")

# Rows (stage, context) that each side shows even without samples, because zero is a finding there.
STAGES_ALWAYS_SHOWN = (("user", "user"), ("unattributed", "process"))


@dataclass(frozen=True)
class RowTime:
    """CPU time of a row, its share of all CPU time, and ns per KiB delivered; None: see `reasons`."""

    cpu_ns: float | None
    share: float | None
    ns_per_kib: float | None
    reasons: Reasons


@dataclass(frozen=True)
class RowCost:
    """CPU time and hardware events of a row.

    method: source of the time: `sampled`, `derived`, `exact`, `exact 1/N`
    samples, ci: number of samples of the row, and the interval of its CPU time
    counts: count of each event column; None: see `reasons`
    estimates: interval of each known count
    reasons: reason for each unknown value, except the values in `time`
    """

    time: RowTime
    method: str
    samples: int | None
    ci: RecordedInterval | None
    counts: Mapping[str, float | None]
    estimates: dict[str, EventEstimate]
    reasons: Reasons


def ledger_rows(raw: Measured, times: Mapping[str, SideTime], flows: Mapping[str, Flow]) -> list[AccountRow]:
    """Return one row for each account, side and context that was sampled, and the home row of each account.

    The home row has the bytes of the account. A relay has two rows with bytes of `copy_out`, because both
    sides copy out of the kernel.

    times: CPU time by side
    flows: bytes and calls by account. Accounts that cannot be measured for a watched program are left out.
    """
    is_target = raw.target is not None
    kib_delivered, events = delivered_kib(raw), events_by_side(raw)
    rows = []
    for account, definition in ACCOUNTS.items():
        if is_target and account not in flows:
            continue
        home = ("target" if is_target else definition.side, definition.context)
        counted_at_home = unknown(f"{COUNTED_ON}{account} {' '.join(home)}")
        account_flows: dict[tuple[str, str], Flow] = {home: flows[account]} if account in flows else {}
        if account == "copy_out" and TO_RELAY in flows:
            account_flows["sender", "process"] = flows[TO_RELAY]
        for side in (*raw.run.sides, "other"):
            for context in CONTEXTS:
                key = RowKey("account", account, context)
                if (side, context) not in account_flows and key not in times[side].weights.samples:
                    continue
                if account == "gather" and not is_target:
                    cost = gather_cost(raw, times[side], kib_delivered)
                else:
                    cost = sampled_cost(times[side], events[side], side, key, kib_delivered)
                flow = account_flows.get((side, context), counted_at_home)
                rows.append(_account_row(side, key, cost, flow))
    return rows


def stage_rows(raw: Measured, times: Mapping[str, SideTime], gather_ns: float | None) -> list[StageRow]:
    """Return one row for each stage, side and context.

    times: CPU time by side
    gather_ns: CPU time of our sender's gather copy, which has a row in the ledger and is therefore subtracted
        from the sender's user time
    """
    kib_delivered, events = delivered_kib(raw), events_by_side(raw)
    rows = []
    for stage in STAGES:
        for side in (*raw.run.sides, "other"):
            for context in CONTEXTS:
                key = RowKey("stage", stage, context)
                always_shown = side != "other" and (stage, context) in STAGES_ALWAYS_SHOWN
                if not always_shown and key not in times[side].weights.samples:
                    continue
                cost = sampled_cost(times[side], events[side], side, key, kib_delivered)
                if (stage, side) == ("user", "sender") and gather_ns:
                    cost = without_gather(cost, gather_ns, times[side], kib_delivered)
                rows.append(_stage_row(side, key, cost))
    return rows


def _account_row(side: str, key: RowKey, cost: RowCost, flow: Flow) -> AccountRow:
    """Return the row of an account on a side.

    key: account and context of the row
    flow: bytes and calls of the account
    """
    bytes_reasons = {
        name: str(reason)
        for name, value, reason in (
            ("bytes", flow.bytes, flow.bytes_reason),
            ("bytes_method", flow.bytes_method, flow.bytes_reason),
            ("calls", flow.calls, flow.calls_reason),
        )
        if value is None
    }
    make = partial(
        AccountRow,
        account=key.category,
        bytes=flow.bytes,
        bytes_method=flow.bytes_method,
        calls=flow.calls,
        bytes_by=None if flow.bytes is None else flow.bytes_by,
        calls_method=None if flow.calls is None else flow.calls_method,
    )
    return _row(make, side, key, cost, bytes_reasons)


def _stage_row(side: str, key: RowKey, cost: RowCost) -> StageRow:
    """Return the row of a stage on a side.

    key: stage and context of the row
    """
    return _row(partial(StageRow, stage=key.category), side, key, cost, {})


def _row(
    make: Callable[..., LedgerRow], side: str, key: RowKey, cost: RowCost, more_reasons: Reasons
) -> LedgerRow:
    """Return a row of the ledger or of the stages.

    make: constructor of the row, which still needs the keys that both kinds of row have
    more_reasons: reasons for unknown values that are not in `cost`
    """
    return make(
        reasons=cost.reasons | cost.time.reasons | more_reasons,
        side=side,
        context=key.context,
        cpu_ns=cost.time.cpu_ns,
        ns_per_kib=cost.time.ns_per_kib,
        share=cost.time.share,
        cycles=cost.counts["cycles"],
        instructions=cost.counts["instructions"],
        l1d_misses=cost.counts["l1d_misses"],
        llc_misses=cost.counts["llc_misses"],
        method=cost.method,
        ci=cost.ci,
        samples=cost.samples,
        events=cost.estimates,
    )


def sampled_cost(time: SideTime, events: SideEvents, side: str, key: RowKey, kib_delivered: float) -> RowCost:
    """Return the CPU time, share and hardware events of a row, as estimated from its samples.

    time, events: CPU time and hardware events of the side
    key: the row
    kib_delivered: payload in the ledger segments
    """
    reasons: Reasons = {}
    samples, interval = None, None
    if time.scale_ns is None:
        reason = time.reason or "not sampled"
        row_time = _unknown_time(reason)
        reasons |= {"samples": reason, "ci": reason}
    else:
        samples = time.weights.samples.get(key, 0)
        row_time = _row_time(time.weights.weight.get(key, 0.0) * time.scale_ns, time, kib_delivered)
        interval = row_interval(time, side, key)
        if interval is None:
            reasons["ci"] = "no sample on this side"
    counts: dict[str, float | None] = {}
    estimates: dict[str, EventEstimate] = {}
    for column, event in events.items():
        estimate = event.estimate(key)
        if estimate is None:
            counts[column], reasons[column] = None, event.reason or "not sampled"
        else:
            counts[column], estimates[column] = estimate
    return RowCost(row_time, METHOD, samples, interval, counts, estimates, reasons)


def _unknown_time(reason: str) -> RowTime:
    return RowTime(None, None, None, dict.fromkeys(("cpu_ns", "share", "ns_per_kib"), reason))


def _row_time(cpu_ns: float, time: SideTime, kib_delivered: float) -> RowTime:
    """Return a row's CPU time in ns, as a share of all CPU time, and per KiB delivered.

    time: CPU time of the row's side
    kib_delivered: payload in the ledger segments
    """
    reasons: Reasons = {}
    share, ns_per_kib = None, None
    if time.cpu_ns and time.all_ns:
        share = round(cpu_ns / time.all_ns, 6)
    else:
        reasons["share"] = "no CPU time on this side"
    if kib_delivered > 0:
        ns_per_kib = round(cpu_ns / kib_delivered, 3)
    else:
        reasons["ns_per_kib"] = "no payload was delivered"
    return RowTime(round(cpu_ns), share, ns_per_kib, reasons)


def gather_cost(raw: Measured, time: SideTime, kib_delivered: float) -> RowCost:
    """Return the cost of the gather copy, timed by the strategy: mean per timed message, times all messages.

    The cost has no interval, because the timer only keeps a sum. It has no hardware events.

    time: CPU time of the sender
    kib_delivered: payload in the ledger segments
    """
    segments = select(raw.run.segments, "ledger")
    every = raw.asked.time_every
    gathers = strategy_gathers(raw)
    timed = sender_sum(segments, lambda sender: sender.gather_timed_messages)
    if gathers is not False and timed == 0:
        row_time = _unknown_time(
            why_no_ledger(raw.run)
            or (
                NO_CLAIM
                if gathers is None
                else "no message was timed: send more messages or time more of them"
            )
        )
    else:
        mean_ns = sender_sum(segments, lambda sender: sender.gather_timed_ns) / timed if timed else 0.0
        messages = sender_sum(segments, lambda sender: sender.messages) if gathers else 0
        row_time = _row_time(mean_ns * messages, time, kib_delivered)
    return RowCost(
        row_time,
        method="exact" if every == 1 or gathers is False else f"exact 1/{every}",
        samples=None,
        ci=None,
        counts=dict.fromkeys(EVENT_COLUMNS),
        estimates={},
        reasons={
            **dict.fromkeys(("samples", "ci"), "timed by the program, not sampled"),
            **dict.fromkeys(EVENT_COLUMNS, "timed by the program: its clock counts no events"),
        },
    )


def without_gather(cost: RowCost, gather_ns: float, time: SideTime, kib_delivered: float) -> RowCost:
    """Return the cost of the sender's user time excluding its gather copy, at least 0.

    If the copy took longer than the sampled user time, the sum of all rows exceeds the CPU time. The check of
    that sum reports the excess.

    cost: cost of all user time
    gather_ns: time of the gather copy, as measured by its timer
    time: CPU time of the sender
    kib_delivered: payload in the ledger segments
    """
    if cost.time.cpu_ns is None:
        return cost
    reason = "samples cannot separate the gather copy from other code of the program"
    ci = cost.ci and RecordedInterval(
        max(0, cost.ci.low_ns - round(gather_ns)), max(0, cost.ci.high_ns - round(gather_ns)), cost.ci.level
    )
    return replace(
        cost,
        time=_row_time(max(0.0, cost.time.cpu_ns - gather_ns), time, kib_delivered),
        method="derived",
        ci=ci,
        counts=dict.fromkeys(EVENT_COLUMNS),
        estimates={},
        reasons=cost.reasons | dict.fromkeys(cost.estimates, reason),
    )


def silent_max_ns(times: Mapping[str, SideTime]) -> float:
    """Return the upper bound of the CPU time of silent copies, in ns, or 0 if there are no samples."""
    total_ns = 0.0
    for side, time in times.items():
        for key, samples in time.weights.samples.items():
            if (key.kind, key.category) == ("account", "silent") and samples:
                interval = row_interval(time, side, key)
                total_ns += interval.high_ns if interval else 0.0
    return total_ns


def delivered_kib(raw: Measured) -> float:
    """Return the payload that arrived in the ledger segments, in KiB (1024 bytes)."""
    return delivered_bytes(select(raw.run.segments, "ledger")) / 1024


def account_bytes(ledger: Iterable[AccountRow], account: str) -> int | None:
    """Return the known bytes of an account over all its rows, or None if no row has known bytes."""
    known_bytes = [row.bytes for row in ledger if row.account == account and row.bytes is not None]
    return sum(known_bytes) if known_bytes else None
