# SPDX-License-Identifier: GPL-2.0-only
"""The exact tier: copies counted by function hooks, and the fate of zero-copy sends. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from copyscope.base import stats
from copyscope.base.spelling import parse_cpu_list
from copyscope.record.derived import CopyRun, ExactRow, Notified, OwnerLife, ZerocopyLife
from copyscope.record.instruments import CopyOwner, CountedEvent, FunctionCell, Functions
from copyscope.record.measured import Measured
from copyscope.record.sections import Buckets, Reasons, RecordedInterval
from copyscope.record.segments import (
    delivered_bytes,
    select,
    side_sum,
)
from copyscope.record.watched import (
    added,
)
from copyscope.taxonomy.events import EVENT_COLUMNS

# Phase of the segments in which function hooks count.
PHASE = "functions"
# Id of one of the hooks that follow zero-copy sends. It stands for all of them, because either all or none
# are attached.
ZEROCOPY_LIFE_HOOK = "zerocopy_use"
# Column of a row that comes from a counter -> name of the counted event.
COUNTED = {key: names[0] for key, names in EVENT_COLUMNS.items()} | {
    "cpu_clock_ns": "cpu-clock",
    "page_faults": "page-faults",
    "dtlb_load_misses": "dTLB-load-misses",
    "dtlb_store_misses": "dTLB-store-misses",
    "itlb_load_misses": "iTLB-load-misses",
}
Events = Mapping[str, CountedEvent]
# Column -> maximum overstatement by the hooks' own work, as a fraction (0..1) of the true count. It was
# measured with known counts. In real traffic the overstatement is unknown, because the measured programs
# differ (decision 004).
OVERSTATED_MAX = {"l1d_misses": 0.3, "cycles": 0.6, "instructions": 24.0}


def exact_rows(raw: Measured) -> list[ExactRow]:
    """Return one row for each copy, side and context in the functions segments.

    CPU time and counters cover all calls. If only some calls were timed, both are estimated from the timed
    calls: the method is `exact 1/N`, and the time has an interval. Copies in other tasks' time have no row,
    because the hooks do not know which program these copies belong to.
    """
    functions = raw.functions
    if functions is None:
        return []
    segments = select(raw.run.segments, PHASE)
    kib_delivered = delivered_bytes(segments) / 1024
    cells = [cell for cell in functions.cells if cell.side != "other"]
    sides = {cell.side for cell in cells}
    events = {side: _events_on(functions.events, cpus_of(raw, side)) for side in sides}
    sides_ns = {side: side_sum(segments, side, lambda totals: totals.process_cpu_ns) for side in sides}
    return [
        _exact_row(cell, functions.gate, events[cell.side], kib_delivered, sides_ns[cell.side])
        for cell in cells
    ]


def why_nothing_exact(raw: Measured) -> str | None:
    """Return why a watched program has no exact costs, although its kernel allows the requested hooks.

    The result is None if the hooks counted, or if they were not requested.
    """
    if raw.target is None or raw.run.tier != "exact" or select(raw.run.segments, PHASE):
        return None
    return (
        f"nothing exact was measured: {raw.target.ended} before functions were hooked, in the last quarter "
        "of --duration; choose a shorter --duration, or --whole"
    )


def cpus_of(raw: Measured, side: str) -> Sequence[int]:
    """Return the CPUs that a side was pinned to; empty if it was not pinned."""
    if raw.traffic is None:
        return ()
    cpus = (raw.traffic.sender if side == "sender" else raw.traffic.receiver).options.get("cpus")
    return [cpu for cpu in cpus if isinstance(cpu, int)] if isinstance(cpus, list) else ()


def _events_on(events: Sequence[CountedEvent], cpus: Sequence[int]) -> Events:
    """Return the events by name, as they were counted on some CPUs.

    cpus: CPUs that a side ran on. A `partial` event, which was counted on some CPUs only, becomes `scaled` if
        it covers all CPUs of the side, else `unsupported`.
    """
    return {
        event.name: structs.replace(event, status="scaled" if covers(event.cpus, cpus) else "unsupported")
        if event.status == "partial"
        else event
        for event in events
    }


def covers(cpu_list: str | None, cpus: Sequence[int]) -> bool:
    """Return True if a list such as `0-3,8` contains all CPUs in `cpus`, and `cpus` is not empty."""
    return bool(cpus) and set(cpus) <= set(parse_cpu_list(cpu_list or ""))


def _exact_row(cell: FunctionCell, gate: int, events: Events, kib_delivered: float, side_ns: int) -> ExactRow:
    """Return the row of a cell, which holds the hooks' counts for one copy, side and context.

    gate: N if the hooks timed one in N copies
    events: events that the hooks counted on this side
    kib_delivered: payload in the functions segments
    side_ns: CPU time of the side in the functions segments
    """
    untimed = f"none of these {cell.calls:,} calls was timed: run longer or use a smaller --gate"
    cpu_ns = round(cell.self_ns * (cell.calls / cell.timed_calls)) if cell.timed_calls else None
    reasons: Reasons = {}
    if cpu_ns is None:
        reasons |= dict.fromkeys(("cpu_ns", "ns_per_kib", "share"), untimed)
    elif not kib_delivered:
        reasons["ns_per_kib"] = "nothing was delivered in the functions segments"
    if cpu_ns is not None and not side_ns:
        reasons["share"] = "no CPU time on this side in the functions segments"
    ci, no_interval = calls_interval(cell) if cell.timed_calls else (None, untimed)
    if no_interval:
        reasons["ci"] = no_interval
    raw_events = {name: name for name in sorted(events.keys() - COUNTED.values())}
    counters = _Counters({}, reasons)
    for column, event in (raw_events | COUNTED).items():
        counters.add(column, event, cell, events)
    counts = counters.counts
    return ExactRow(
        reasons=reasons,
        side=cell.side,
        context=cell.context,
        cpu_ns=cpu_ns,
        ns_per_kib=cpu_ns / kib_delivered if kib_delivered and cpu_ns is not None else None,
        share=cpu_ns / side_ns if side_ns and cpu_ns is not None else None,
        cycles=counts["cycles"],
        instructions=counts["instructions"],
        l1d_misses=counts["l1d_misses"],
        llc_misses=counts["llc_misses"],
        method="exact" if gate == 1 else f"exact 1/{gate}",
        ci=ci,
        category=cell.category,
        calls=cell.calls,
        bytes=cell.bytes,
        timed_calls=cell.timed_calls,
        self_ns=cell.self_ns,
        cpu_clock_ns=counts["cpu_clock_ns"],
        page_faults=counts["page_faults"],
        dtlb_load_misses=counts["dtlb_load_misses"],
        dtlb_store_misses=counts["dtlb_store_misses"],
        itlb_load_misses=counts["itlb_load_misses"],
        raw={name: counts[name] for name in raw_events},
    )


@dataclass(frozen=True)
class _Counters:
    """Counter columns of a row.

    counts: column -> count, None if unknown
    reasons: column -> why its count is unknown
    """

    counts: dict[str, float | None]
    reasons: Reasons

    def add(self, column: str, event_name: str, cell: FunctionCell, events: Events) -> None:
        """Add a column: the count of an event for all calls of a cell, or the reason why it is unknown."""
        event = events.get(event_name)
        reason = _why_overstated(column) or _why_uncounted(cell, event, event_name)
        if event is None or reason:
            self.counts[column], self.reasons[column] = None, reason or "not counted"
        else:
            self.counts[column] = round(_all_calls(cell, event))


def _why_overstated(column: str) -> str | None:
    """Return why the count of a column is withheld: it would include the hooks' own work."""
    if column not in OVERSTATED_MAX:
        return None
    largest = f"{OVERSTATED_MAX[column]:+,.0%}"
    return f"the count includes the hooks' own work, up to {largest} as measured (docs/reference/pmu.md)"


def _why_uncounted(cell: FunctionCell, event: CountedEvent | None, name: str) -> str | None:
    """Return why an event has no count in a cell, or None if it has a count.

    event: the event as the hooks counted it; None if the hooks did not count it
    name: name of the event
    """
    if event is None:
        return f"{name}: not counted in this run"
    if event.status == "unsupported" or name not in cell.counters:
        return f"{name}: {event.reason}"
    if not cell.timed_calls:
        return f"{name}: no call was timed"
    return None if event.running else f"{name}: the event never got a counter of the PMU"


def _all_calls(cell: FunctionCell, event: CountedEvent) -> float:
    """Return the count of an event for all calls in a cell, scaled up from the timed calls.

    If the PMU counted the event only part of the time, the count is also divided by that fraction.
    """
    count = cell.counters[event.name] * cell.calls / cell.timed_calls
    return count / (event.running or 1.0) if event.status == "scaled" else count


def calls_interval(cell: FunctionCell) -> tuple[RecordedInterval | None, str | None]:
    """Return the 95 % interval of the time of all calls, or (None, reason).

    The timed calls are a random part of all calls, so this is the interval of a total from a simple random
    sample without replacement (Cochran, Sampling Techniques, 1977, 2.6).
    """
    timed, calls = cell.timed_calls, cell.calls
    if timed == calls:
        return None, "each call was timed"
    if timed < 2:
        return None, "fewer than two calls were timed: the spread of their times is not known"
    mean = cell.self_ns / timed
    variance = max(0.0, (cell.self_ns_squared - timed * mean * mean) / (timed - 1))
    error = calls * math.sqrt((1 - timed / calls) * variance / timed)
    half = stats.normal_quantile() * error
    # The timed calls are a part of all calls, so the total is at least their sum.
    low = max(float(cell.self_ns), calls * mean - half)
    return RecordedInterval(round(low), round(calls * mean + half), stats.LEVEL), None


# Fate of zero-copy sends: the kernel copied the data late, or completed the send without a copy.


def zerocopy_life(functions: Functions | None) -> ZerocopyLife | None:
    """Return the section `zerocopy_life`, or None if its hooks were not attached."""
    if functions is None or functions.owners is None:
        return None
    sides = dict.fromkeys(row.owner_side for row in functions.owners)
    owners = [_owner_life(functions.owners, side) for side in sides]
    completions = {row.side: row for row in functions.completions or []}
    notified = [
        Notified(
            side=latency.side,
            copied=completions[latency.side].copied,
            zerocopied=completions[latency.side].zerocopied,
            count=latency.count,
            before_return=latency.before_return,
            p50_ns=quantile_at_most(latency.histogram.buckets, 0.5),
            p99_ns=quantile_at_most(latency.histogram.buckets, 0.99),
        )
        for latency in functions.completion_latency or []
    ]
    return ZerocopyLife(sorted(owners, key=lambda owner: -owner.bytes), notified)


def _owner_life(owners: Sequence[CopyOwner], side: str | None) -> OwnerLife:
    """Return the late copies of one side's memory, and the sides that spent CPU time on these copies."""
    rows = [row for row in owners if row.owner_side == side]
    runs = [
        CopyRun(row.current_side, row.context, row.calls, row.bytes)
        for row in sorted(rows, key=lambda row: -row.calls)
    ]
    return OwnerLife(side, added(rows, lambda row: row.calls), added(rows, lambda row: row.bytes), runs)


def quantile_at_most(buckets: Buckets, share: float) -> int | None:
    """Return the largest integer in the bucket that contains a quantile, or None if nothing was counted.

    buckets: rows of [low, high (exclusive), count]
    share: the quantile, 0..1
    """
    rank = share * sum(count for _, _, count in buckets)
    cumulated = 0
    for _, high, count in buckets:
        cumulated += count
        if count and cumulated >= rank:
            return high - 1
    return None
