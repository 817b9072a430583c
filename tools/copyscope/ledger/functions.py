"""The exact tier: what the hooks of copies counted, per KiB, and the life of zero-copy sends. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from copyscope import stats
from copyscope.machine.cpu import parse_cpu_list
from copyscope.record.derived import CopyRun, ExactRow, Notified, OwnerLife, ZerocopyLife
from copyscope.record.instruments import CopyOwner, CountedEvent, FunctionCell, Functions
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval, Rows
from copyscope.record.segments import delivered_bytes, select, total
from copyscope.record.watched import added
from copyscope.taxonomy.events import EVENT_COLUMNS

PHASE = "functions"
# Of each hook on that life; they are attached together, or not at all.
HOOK = "zerocopy_use"
# The columns of a row that come from counters: key of the row -> the event.
COUNTED = {key: names[0] for key, names in EVENT_COLUMNS.items()} | {
    "cpu_clock_ns": "cpu-clock",
    "page_faults": "page-faults",
    "dtlb_load_misses": "dTLB-load-misses",
    "dtlb_store_misses": "dTLB-store-misses",
    "itlb_load_misses": "iTLB-load-misses",
}
Events = Mapping[str, CountedEvent]
# By how much the laboratory found a column too large, at most, for the hooks' own work in it. How much that
# is in a copy nobody knows: what was made to measure it is not like the traffic (decision 004).
OWN_WORK = {"l1d_misses": 0.2, "cycles": 0.6, "instructions": 24.0}


def exact_rows(raw: Measured) -> list[ExactRow]:
    """One row per copy, side and context, over the functions segments.

    cpu_ns is CPU time of all calls, and so are the counters. Where only some were timed, they are estimated
    from these: method `exact 1/N`, with an interval of the time. Copies on the time of others have no row:
    whose they were these hooks do not know.
    """
    functions = raw.functions
    if functions is None:
        return []
    segments = select(raw.run.segments, PHASE)
    kib = delivered_bytes(segments) / 1024
    cells = [cell for cell in functions.cells if cell.side != "other"]
    of_side = {side: _counting(functions.events, cpus_of(raw, side)) for side in {c.side for c in cells}}
    return [
        _row(cell, functions, of_side[cell.side], kib, total(segments, cell.side, "process_cpu_ns"))
        for cell in cells
    ]


def cpus_of(raw: Measured, side: str) -> Sequence[int]:
    """The CPUs to which a side was bound; none where it ran on any."""
    if raw.traffic is None:
        return ()
    cpus = (raw.traffic.sender if side == "sender" else raw.traffic.receiver).options.get("cpus")
    return [cpu for cpu in cpus if isinstance(cpu, int)] if isinstance(cpus, list) else ()


def _counting(events: Sequence[CountedEvent], cpus: Sequence[int]) -> Events:
    """The events as they were for a side on these CPUs: a partial one counted all of it, or nobody knows."""
    return {
        event.name: structs.replace(event, status="scaled" if covers(event.cpus, cpus) else "unsupported")
        if event.status == "partial"
        else event
        for event in events
    }


def covers(listed: str | None, cpus: Sequence[int]) -> bool:
    """Whether a list such as `0-3,8` has all of some CPUs."""
    return bool(cpus) and set(cpus) <= set(parse_cpu_list(listed or ""))


def _row(cell: FunctionCell, functions: Functions, events: Events, kib: float, side_ns: int) -> ExactRow:
    untimed = f"none of these {cell.calls:,} calls was timed: run longer or use a smaller --gate"
    scale = cell.calls / cell.timed_calls if cell.timed_calls else None
    cpu_ns = None if scale is None else round(cell.self_ns * scale)
    reasons: dict[str, str] = {}
    if cpu_ns is None:
        reasons |= dict.fromkeys(("cpu_ns", "ns_per_kib", "share"), untimed)
    elif not kib:
        reasons["ns_per_kib"] = "nothing was delivered in the functions segments"
    if cpu_ns is not None and not side_ns:
        reasons["share"] = "no CPU time on this side in the functions segments"
    ci, reason = interval(cell) if scale else (None, untimed)
    if reason:
        reasons["ci"] = reason
    names = {name: name for name in sorted(events.keys() - COUNTED.values())}
    raw = _counters(cell, events, names, reasons)
    return ExactRow(
        *(reasons, cell.side, cell.context),
        cpu_ns=cpu_ns,
        ns_per_kib=cpu_ns / kib if kib and cpu_ns is not None else None,
        share=cpu_ns / side_ns if side_ns and cpu_ns is not None else None,
        method="exact" if functions.gate == 1 else f"exact 1/{functions.gate}",
        ci=ci,
        category=cell.category,
        calls=cell.calls,
        bytes=cell.bytes,
        timed_calls=cell.timed_calls,
        self_ns=cell.self_ns,
        raw=raw,
        **_counters(cell, events, COUNTED, reasons),
    )


def _counters(
    cell: FunctionCell, events: Events, columns: Mapping[str, str], reasons: dict[str, str]
) -> dict[str, Any]:
    """Each column that comes from a counter; a reason for each that is not known."""
    found: dict[str, float | None] = {}
    for key, name in columns.items():
        reason = _why_unknown(key) or _why_uncounted(cell, events.get(name), name)
        found[key] = None if reason else round(_whole(cell, events[name]))
        if reason:
            reasons[key] = reason
    return found


def _why_unknown(column: str) -> str | None:
    if column not in OWN_WORK:
        return None
    most = f"{OWN_WORK[column]:+,.0%}"
    return f"the hooks' own work is in it: up to {most} where we measured it (docs/reference/pmu.md)"


def _why_uncounted(cell: FunctionCell, event: CountedEvent | None, name: str) -> str | None:
    if event is None:
        return f"{name}: not counted in this run"
    if event.status == "unsupported" or name not in cell.counters:
        return f"{name}: {event.reason}"
    if not cell.timed_calls:
        return f"{name}: no call was timed"
    return None if event.running else f"{name}: it never got a counter of the PMU"


def _whole(cell: FunctionCell, event: CountedEvent) -> float:
    """As if each call had been timed, and the event had counted all the time."""
    counted = cell.counters[event.name] * cell.calls / cell.timed_calls
    return counted / (event.running or 1.0) if event.status == "scaled" else counted


def interval(cell: FunctionCell) -> tuple[Interval | None, str | None]:
    """95 % interval of the time of all calls, from the spread of the timed ones; or (None, why none).

    The timed copies are a random part of all, so this is the interval of a total from a simple random sample
    without replacement (Cochran, Sampling Techniques, 1977, 2.6).
    """
    timed, calls = cell.timed_calls, cell.calls
    if timed == calls:
        return None, "each call was timed"
    if timed < 2:
        return None, "fewer than two calls were timed: their spread is not known"
    mean = cell.self_ns / timed
    variance = max(0.0, (cell.self_ns_squared - timed * mean * mean) / (timed - 1))
    error = calls * math.sqrt((1 - timed / calls) * variance / timed)
    half = stats.normal_quantile() * error
    # What was timed has happened; the rest cannot be less than nothing.
    low = max(float(cell.self_ns), calls * mean - half)
    return Interval(round(low), round(calls * mean + half), stats.LEVEL), None


def zerocopy_life(functions: Functions | None) -> ZerocopyLife | None:
    """The section zerocopy_life; None without the hooks."""
    if functions is None or functions.owners is None:
        return None
    owners = [
        _owned(functions.owners, side) for side in dict.fromkeys(row.owner_side for row in functions.owners)
    ]
    ended = {row.side: row for row in functions.completions or []}
    notified = [
        Notified(
            *(row.side, ended[row.side].copied, ended[row.side].zerocopied, row.count, row.before_return),
            p50_ns=at_most(row.histogram.buckets, 0.5),
            p99_ns=at_most(row.histogram.buckets, 0.99),
        )
        for row in functions.completion_latency or []
    ]
    return ZerocopyLife(sorted(owners, key=lambda owner: -owner.bytes), notified)


def _owned(owners: Sequence[CopyOwner], side: str | None) -> OwnerLife:
    """Deferred copies of one owner's memory, and who ran them, the most frequent first."""
    rows = [row for row in owners if row.owner_side == side]
    runs = [
        CopyRun(row.current_side, row.context, row.calls, row.bytes)
        for row in sorted(rows, key=lambda row: -row.calls)
    ]
    return OwnerLife(side, added(rows, "calls"), added(rows, "bytes"), runs)


def at_most(buckets: Rows, share: float) -> int | None:
    """The largest whole value of the bucket that holds the quantile; None of no values."""
    wanted = share * sum(count for _, _, count in buckets)
    seen = 0
    for _, high, count in buckets:
        seen += count
        if count and seen >= wanted:
            return high - 1
    return None
