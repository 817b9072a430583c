"""The exact tier: what the function hooks counted, per KiB, and the identities that it must satisfy. Pure."""

from __future__ import annotations

import math
from typing import Any

from copyscope import stats
from copyscope.ledger.identities.bytes import Identity, compare, unchecked
from copyscope.ledger.zerocopy_life import life_identities
from copyscope.record.segments import (
    Record,
    cut_short,
    delivered_bytes,
    select,
    spliced_total,
    total,
    zerocopy_total,
)
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
# Categories that more than one row of bpf/hooks.h can count; one of them is enough.
HOOKS_OF = {"copy_in": ("copy_in_call", "copy_in_call_around", "copy_in", "copy_in_check")}
# and those that count pages of a file in `pin`
SPLICE_HOOKS = ("splice", "send_pages")
# The columns of a row that come from counters: key of the row -> the event.
COUNTED = {key: names[0] for key, names in EVENT_COLUMNS.items()} | {
    "cpu_clock_ns": "cpu-clock",
    "page_faults": "page-faults",
    "dtlb_load_misses": "dTLB-load-misses",
    "dtlb_store_misses": "dTLB-store-misses",
    "itlb_load_misses": "iTLB-load-misses",
}
# Calls whose charges do not add up are left out and counted (bpf/shadow.bpf.h): what differs is a fault.
SELF_TOLERANCE = 0.01
# Of rare events (page faults) one percent is less than one.
COUNT_TOLERANCE = 2


def exact_rows(record: Record) -> list[dict[str, Any]]:
    """One row per function category, side and context, over the functions segments.

    cpu_ns is CPU time (softirq work and hooked callees have rows of their own) of all calls, and so are the
    counters. Where only some calls were timed, they are estimated from these: method `exact 1/N`, with an
    interval of the time. Softirq work on the time of others has no row: whose it was these hooks do not know.
    """
    functions = record["functions"]
    if functions is None:
        return []
    delivered_kib = delivered_bytes(select(record, ARM)) / 1024
    roots = {root["side"]: root for root in functions["roots"]}
    events = {event["name"]: event for event in functions["events"]}
    gate = functions["gate"]
    rows = []
    for cell in functions["cells"]:
        if cell["side"] == "other":
            continue
        root = roots[cell["side"]]
        unseen = not cell["timed_calls"] and not cell["self_ns"]
        scale = root["calls"] / root["timed_calls"] if root["timed_calls"] and not unseen else None
        row: dict[str, Any] = {
            **{key: cell[key] for key in ("side", "context", "category", "calls", "bytes", "timed_calls")},
            "ledger_name": LEDGER_NAME.get(cell["category"], cell["category"]),
            "self_ns": cell["self_ns"],
            "cpu_ns": None if scale is None else round(cell["self_ns"] * scale),
            "method": "exact" if gate == 1 else f"exact 1/{gate}",
            "reasons": {},
        }
        reasons = row["reasons"]
        row["ns_per_kib"] = row["cpu_ns"] / delivered_kib if delivered_kib and scale else None
        row["share"] = cell["self_ns"] / root["inclusive_ns"] if root["inclusive_ns"] and scale else None
        untimed = f"none of these {cell['calls']:,} calls was timed: run longer or use a smaller --gate"
        if scale and row["share"] is None:
            reasons["share"] = "no timed send, receive or softirq of this side took any time"
        if scale is None:
            reasons |= dict.fromkeys(("cpu_ns", "ns_per_kib", "share"), untimed)
        elif not delivered_kib:
            reasons["ns_per_kib"] = "nothing was delivered in the functions segments"
        for key, name in COUNTED.items():
            row[key], reason = _counted(cell, events.get(name), name, scale)
            if reason:
                reasons[key] = reason
        row["ci"], reason = (None, untimed) if unseen else interval(cell, root)
        if reason:
            reasons["ci"] = reason
        rows.append(row)
    return rows


def _counted(
    cell: Record, event: Record | None, name: str, scale: float | None
) -> tuple[float | None, str | None]:
    """A counter of all calls of a cell, as if it had counted all the time; or (None, why not)."""
    if event is None:
        return None, f"{name}: not counted in this run"
    if event["status"] == "unsupported" or name not in cell["counters"]:
        return None, f"{name}: {event['reason']}"
    if scale is None:
        return None, f"{name}: no call was timed"
    if not event["running"]:
        return None, f"{name}: it never got a counter of the PMU"
    running = event["running"] if event["status"] == "scaled" else 1.0
    return round(cell["counters"][name] * scale / running), None


def interval(cell: Record, root: Record) -> tuple[dict[str, Any] | None, str | None]:
    """95 % interval of the time of all calls, from the spread of the timed ones; or (None, why none).

    The timed roots are a random part of all, so this is the interval of a total from a simple random sample
    without replacement (Cochran, Sampling Techniques, 1977, 2.6): what each of them spent in this cell is one
    observation, and calls in which it spent nothing are zeros.
    """
    timed, calls = root["timed_calls"], root["calls"]
    if timed == calls:
        return None, "each call was timed"
    if timed < 2:
        return None, "fewer than two calls were timed: nothing is known of their spread"
    mean = cell["self_ns"] / timed
    variance = max(0.0, (cell["self_ns_squared"] - timed * mean * mean) / (timed - 1))
    error = calls * math.sqrt((1 - timed / calls) * variance / timed)
    half = stats.normal_quantile() * error
    # What was timed has happened; the rest cannot be less than nothing.
    low = max(float(cell["self_ns"]), calls * mean - half)
    return {"low_ns": round(low), "high_ns": round(calls * mean + half), "level": stats.LEVEL}, None


def function_identities(record: Record) -> list[Identity]:
    """Bytes of each copy against the program's totals, and self times against inclusive time."""
    functions = record["functions"]
    if functions is None or cut_short(record):
        return []
    segments = select(record, ARM)
    sent = total(segments, "sender", "bytes")
    spliced = spliced_total(segments, "bytes")
    referenced = (zerocopy_total(segments, "bytes_sent") or 0) + (spliced or 0)
    copied = zerocopy_total(segments, "bytes_copied") or 0
    received = total(segments, "receiver", "bytes") - total(segments, "receiver", "truncated_bytes")
    # What is sent a second time (a tail loss probe, for instance) is copied a second time.
    again = retransmitted_bytes(record)
    found = [
        bytes_identity(
            record, "functions_copy_in", "copy_in", sent - referenced, "bytes sent without reference"
        ),
        bytes_identity(
            record,
            "functions_pin",
            "pin",
            referenced,
            "bytes sent by reference",
            ids=("pin",) if spliced is None else SPLICE_HOOKS,
        ),
        bytes_identity(
            record,
            "functions_deferred",
            "deferred",
            copied,
            "bytes of sends reported copied",
            tolerance=again,
        ),
        bytes_identity(record, "functions_copy_out", "copy_out", received, "bytes received"),
        *life_identities(record, again),
    ]
    return found + self_identities(record)


def self_identities(record: Record) -> list[Identity]:
    """Self times against inclusive time, of each process's side."""
    functions = record["functions"]
    found = []
    for root in functions["roots"]:
        if root["inclusive_ns"] and root["side"] != "other":
            cells = [cell for cell in functions["cells"] if cell["side"] == root["side"]]
            found += _self_identities(root, cells, functions["events"])
    return found


def _self_identities(root: Record, cells: list[Record], events: list[Record]) -> list[Identity]:
    """Self times against inclusive time, both of the timed calls of one side; and so for each counter."""
    side = root["side"]
    pairs = [("self", "self times", "ns", [cell["self_ns"] for cell in cells], root["inclusive_ns"])]
    for event in events:
        name = event["name"]
        if name in root["counters"]:
            parts = [cell["counters"][name] for cell in cells]
            pairs.append((name, f"{name}, self", event["unit"], parts, root["counters"][name]))
    found = []
    for name, what, unit, parts, inclusive in pairs:
        text = f"{side}: {what}, of all functions = of the roots from entry to exit (timed calls)"
        tolerance = max(COUNT_TOLERANCE, round(SELF_TOLERANCE * inclusive))
        found.append(
            compare(f"functions_{side}_{name}", text, sum(parts), inclusive, unit, tolerance=tolerance)
        )
    return found


def retransmitted_bytes(record: Record) -> int:
    """Bytes that the connections of the whole run sent again (TCP_INFO)."""
    threads = record["traffic"]["sender"]["threads"]
    return sum(int((thread.get("tcp_info") or {}).get("bytes_retrans") or 0) for thread in threads)


def bytes_identity(
    record: Record,
    name: str,
    category: str,
    expected: int,
    what: str,
    *,
    tolerance: int = 0,
    ids: tuple[str, ...] = (),
) -> Identity:
    """Bytes of one category, all contexts, against what the program says.

    Of what was done on the time of others, no more is taken than what is missing: it may be somebody else's.
    """
    text = f"{category} by function hooks = {what}"
    ids = ids or HOOKS_OF.get(category, (category,))
    hooks = [row for row in record["hooks"] if row["instrument"] == ARM and row["id"] in ids]
    if not any(hook["state"] == "attached" for hook in hooks):
        reason = "; ".join(f"{hook['symbol']}: {hook['reason']}" for hook in hooks) or "no such hook"
        return unchecked(name, text, "bytes", f"{category}: {reason}")
    cells = record["functions"]["cells"]
    counted = sum(c["bytes"] for c in cells if c["category"] == category and c["side"] != "other")
    beside = sum(c["bytes"] for c in cells if c["category"] == category and c["side"] == "other")
    counted += min(beside, max(0, expected - counted))
    return compare(name, text, counted, expected, "bytes", tolerance=tolerance)
