"""The exact tier: what the function hooks counted, per KiB, and the life of zero-copy sends. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UnsetType, structs

from copyscope import stats
from copyscope.record.derived import CopyRun, ExactRow, Notified, OwnerLife, ZerocopyLife
from copyscope.record.instruments import CopyOwner, CountedEvent, FunctionCell, FunctionRoot, Functions
from copyscope.record.program.volume import added
from copyscope.record.raw import Measured, RawRun
from copyscope.record.sections import Interval, Rows
from copyscope.record.segments import delivered_bytes, select
from copyscope.taxonomy.events import EVENT_COLUMNS

ARM = "functions"
# Categories of the hooks -> account or stage of the ledger (bpf/abi.h has the categories).
LEDGER_NAME = {
    "send": "tcp_ip",
    "receive": "tcp_ip",
    "transmit": "tcp_ip",
    "tsq": "tcp_ip",
    "pin_pages": "pin",
}
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


def exact_rows(raw: Measured) -> list[ExactRow]:
    """One row per function category, side and context, over the functions segments.

    cpu_ns is CPU time (softirq work and hooked callees have rows of their own) of all calls, and so are the
    counters. Where only some calls were timed, they are estimated from these: method `exact 1/N`, with an
    interval of the time. Softirq work on the time of others has no row: whose it was these hooks do not know.
    """
    functions = raw.functions
    if functions is None:
        return []
    kib = delivered_bytes(select(raw.run.segments, ARM)) / 1024
    roots = {root.side: root for root in functions.roots}
    events = {event.name: event for event in functions.events}
    method = "exact" if functions.gate == 1 else f"exact 1/{functions.gate}"
    cells = [cell for cell in functions.cells if cell.side != "other"]
    of_side = {side: _counting(events, cpus_of(raw, side)) for side in roots}
    return [_row(cell, roots[cell.side], of_side[cell.side], kib, method) for cell in cells]


def cpus_of(raw: Measured, side: str) -> Sequence[int]:
    """The CPUs to which a side was bound; none where it ran on any."""
    report = getattr(raw.traffic, side, None) if isinstance(raw, RawRun) else None
    return (report.options.get("cpus") if report else None) or ()


def _counting(events: Mapping[str, CountedEvent], cpus: Sequence[int]) -> dict[str, CountedEvent]:
    """The events as they were for a side on these CPUs: a partial one counted all of it, or nobody knows."""
    return {
        name: structs.replace(event, status="scaled" if covers(event.cpus, cpus) else "unsupported")
        if event.status == "partial"
        else event
        for name, event in events.items()
    }


def covers(listed: str | UnsetType, cpus: Sequence[int]) -> bool:
    """Whether a list such as `0-3,8` has all of some CPUs."""
    spans = [span.partition("-") for span in (listed or "").split(",") if span]
    held = [any(int(first) <= cpu <= int(last or first) for first, _, last in spans) for cpu in cpus]
    return bool(held) and all(held)


def _row(
    cell: FunctionCell, root: FunctionRoot, events: dict[str, CountedEvent], kib: float, method: str
) -> ExactRow:
    untimed = f"none of these {cell.calls:,} calls was timed: run longer or use a smaller --gate"
    unseen = not cell.timed_calls and not cell.self_ns
    scale = root.calls / root.timed_calls if root.timed_calls and not unseen else None
    cpu_ns = None if scale is None else round(cell.self_ns * scale)
    share = cell.self_ns / root.inclusive_ns if root.inclusive_ns and scale else None
    reasons: dict[str, str] = {}
    if scale and share is None:
        reasons["share"] = "no timed send, receive or softirq of this side took any time"
    if scale is None:
        reasons |= dict.fromkeys(("cpu_ns", "ns_per_kib", "share"), untimed)
    elif not kib:
        reasons["ns_per_kib"] = "nothing was delivered in the functions segments"
    counters: dict[str, Any] = {}
    for key, name in COUNTED.items():
        counters[key], reason = _counted(cell, events.get(name), name, scale)
        if reason:
            reasons[key] = reason
    raw: dict[str, float | None] = {}
    for name in sorted(events.keys() - COUNTED.values()):
        raw[name], reason = _counted(cell, events[name], name, scale)
        if reason:
            reasons[name] = reason
    ci, reason = (None, untimed) if unseen else interval(cell, root)
    if reason:
        reasons["ci"] = reason
    return ExactRow(
        *(reasons, cell.side, cell.context),
        cpu_ns=cpu_ns,
        ns_per_kib=cpu_ns / kib if kib and cpu_ns is not None else None,
        share=share,
        method=method,
        ci=ci,
        category=cell.category,
        ledger_name=LEDGER_NAME.get(cell.category, cell.category),
        calls=cell.calls,
        bytes=cell.bytes,
        timed_calls=cell.timed_calls,
        self_ns=cell.self_ns,
        raw=raw,
        **counters,
    )


def _counted(
    cell: FunctionCell, event: CountedEvent | None, name: str, scale: float | None
) -> tuple[float | None, str | None]:
    """A counter of all calls of a cell, as if it had counted all the time; or (None, why not)."""
    if event is None:
        return None, f"{name}: not counted in this run"
    if event.status == "unsupported" or name not in cell.counters:
        return None, f"{name}: {event.reason}"
    if scale is None:
        return None, f"{name}: no call was timed"
    if not event.running:
        return None, f"{name}: it never got a counter of the PMU"
    running = event.running if event.status == "scaled" else 1.0
    return round(cell.counters[name] * scale / running), None


def interval(cell: FunctionCell, root: FunctionRoot) -> tuple[Interval | None, str | None]:
    """95 % interval of the time of all calls, from the spread of the timed ones; or (None, why none).

    The timed roots are a random part of all, so this is the interval of a total from a simple random sample
    without replacement (Cochran, Sampling Techniques, 1977, 2.6): what each of them spent in this cell is one
    observation, and calls in which it spent nothing are zeros.
    """
    timed, calls = root.timed_calls, root.calls
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
