"""The exact tier: what the hooks of copies counted, per KiB, and the life of zero-copy sends. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from copyscope import stats
from copyscope.machine.cpu import parse_cpu_list
from copyscope.record.derived import CopyRun, ExactRow, Notified, OwnerLife, TakenOff, ZerocopyLife
from copyscope.record.instruments import (
    AddedCount,
    CopyOwner,
    CountedEvent,
    FunctionCell,
    Functions,
    ReadCost,
)
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval, Rows
from copyscope.record.segments import delivered_bytes, select, total
from copyscope.record.watched import added
from copyscope.taxonomy.events import EVENT_COLUMNS

PHASE = "functions"
# Of each hook on that life; they are attached together, or not at all.
HOOK = "zerocopy_use"
# What stands for a copy and moves no byte through the caches.
UNCOPIED = ("pin", "mapped")
# The columns of a row that come from counters: key of the row -> the event.
COUNTED = {key: names[0] for key, names in EVENT_COLUMNS.items()} | {
    "cpu_clock_ns": "cpu-clock",
    "page_faults": "page-faults",
    "dtlb_load_misses": "dTLB-load-misses",
    "dtlb_store_misses": "dTLB-store-misses",
    "itlb_load_misses": "iTLB-load-misses",
}
Events = Mapping[str, CountedEvent]
# A number whose own looks are not known better than this part of it is none.
HELD = 0.05
# What the looks of the traffic's copies add may be that much more or less than those of the copies by which
# looks are measured: caches are in another state. Instructions are the same, if the way into a hook was
# measured, too.
UNLIKE = 0.10
UNLIKE_INSTRUCTIONS = 0.02


def exact_rows(raw: Measured) -> list[ExactRow]:
    """One row per copy, side and context, over the functions segments.

    cpu_ns is CPU time of all calls, and so are the counters. Where only some were timed, they are estimated
    from these: method `exact 1/N`, with an interval of the time. What the looks of a copy add to its counters
    is taken off. Copies on the time of others have no row: whose they were these hooks do not know.
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
    report = getattr(raw.traffic, side, None) if raw.target is None else None
    return (report.options.get("cpus") if report else None) or ()


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
    counters, taken = _counters(cell, functions, events, COUNTED, reasons)
    raw, taken_of_raw = _counters(cell, functions, events, names, reasons)
    taken += taken_of_raw
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
        taken_off=taken,
        **counters,
    )


def _counters(
    cell: FunctionCell,
    functions: Functions,
    events: Events,
    columns: Mapping[str, str],
    reasons: dict[str, str],
) -> tuple[dict[str, Any], list[TakenOff]]:
    """Each column that comes from a counter, and what was taken off; a reason for each that is not known."""
    found: dict[str, float | None] = {}
    taken: list[TakenOff] = []
    cost = functions.read_cost
    for key, name in columns.items():
        found[key], reason = None, _why_uncounted(cell, events.get(name), name)
        if reason is None:
            off = None if cost is None else taken_off(cell, cost, key, name)
            known = name == "instructions" and cost is not None and cost.hooked
            unlike = UNLIKE_INSTRUCTIONS if known else UNLIKE
            counted = cell.counters[name] * cell.calls / cell.timed_calls
            found[key], reason = _without(counted, events[name], off, unlike)
            taken += [off] if off is not None else []
        if reason is not None:
            reasons[key] = reason
    return found, taken


def _why_uncounted(cell: FunctionCell, event: CountedEvent | None, name: str) -> str | None:
    if event is None:
        return f"{name}: not counted in this run"
    if event.status == "unsupported" or name not in cell.counters:
        return f"{name}: {event.reason}"
    if not cell.timed_calls:
        return f"{name}: no call was timed"
    return None if event.running else f"{name}: it never got a counter of the PMU"


def _without(
    counted: float, event: CountedEvent, off: TakenOff | None, unlike: float
) -> tuple[float | None, str | None]:
    """A counter as if it had counted all the time, without what the looks added; or (None, why not)."""
    whole = counted / (event.running or 1.0) if event.status == "scaled" else counted
    if off is None:
        return None, f"{event.name}: what the looks at it add could not be measured on this kernel"
    left = whole - off.count
    unsure = max((off.high - off.low) / 2, unlike * abs(off.count))
    if unsure > HELD * left:
        part = f"{off.count / whole:.0%} of it is" if whole else "it is"
        return None, f"{event.name}: {part} the looks' own: the rest is not known within {HELD:.0%}"
    return round(left), None


def taken_off(cell: FunctionCell, cost: ReadCost, column: str, name: str) -> TakenOff | None:
    """What looks would add to a counter if all calls of a cell were timed; None: it was not measured."""
    rows = [row for row in cost.added if row.name == name]
    if not rows:
        return None
    bytes_ = 0.0 if cell.category in UNCOPIED else cell.bytes / cell.calls
    count, low, high = (cell.calls * between(rows, bytes_, end) for end in ("count", "low", "high"))
    return TakenOff(column, count, low, high)


def between(rows: Sequence[AddedCount], bytes_: float, name: str) -> float:
    """What looks add to a copy of so many bytes: linear between the sizes that were measured."""
    rows = sorted(rows, key=lambda row: row.copy_bytes)
    one = [row for row in rows if row.copy_bytes <= bytes_][-1]
    other = next((row for row in rows if row.copy_bytes > bytes_), one)
    width = other.copy_bytes - one.copy_bytes
    part = (bytes_ - one.copy_bytes) / width if width else 0.0
    low, high = float(getattr(one, name)), float(getattr(other, name))
    return low + part * (high - low)


def interval(cell: FunctionCell) -> tuple[Interval | None, str | None]:
    """95 % interval of the time of all calls, from the spread of the timed ones; or (None, why none).

    The timed copies are a random part of all, so this is the interval of a total from a simple random sample
    without replacement (Cochran, Sampling Techniques, 1977, 2.6).
    """
    timed, calls = cell.timed_calls, cell.calls
    if timed == calls:
        return None, "each call was timed"
    if timed < 2:
        return None, "fewer than two calls were timed: nothing is known of their spread"
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
