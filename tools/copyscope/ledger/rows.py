"""The rows of the ledger and of the stages: bytes from payload, time and events from attribution."""

from __future__ import annotations

from typing import Any

from copyscope.ledger.attribution import SIDES, Key, SideTime, event_value, interval
from copyscope.ledger.flows import NO_CLAIM, Flow, flows, gathers
from copyscope.record.segments import Record, delivered_bytes, select, total, why_no_ledger
from copyscope.taxonomy.events import EVENT_COLUMNS
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES

Row = dict[str, Any]

CONTEXTS = ("user", "process", "softirq")

# Where an account belongs. Its bytes stand on this row, once; the row is there even when nothing was sampled.
HOME: dict[str, tuple[str, str]] = {
    "gather": ("sender", "user"),
    "copy_in": ("sender", "process"),
    "pin": ("sender", "process"),
    "deferred": ("sender", "softirq"),
    "silent": ("sender", "softirq"),
    "completion": ("sender", "process"),
    "copy_out": ("receiver", "process"),
    "mapped": ("receiver", "process"),
}
# stages that a side always shows: zero there is a finding
ALWAYS = (("user", "user"), ("unattributed", "process"))


def ledger_rows(record: Record, times: dict[str, SideTime]) -> list[Row]:
    """One row per account, side and context that was sampled, and the home row of every account."""
    payload = flows(record, silent_high_ns(times))
    kib = delivered_kib(record)
    rows = []
    for account in ACCOUNTS:
        for side in SIDES:
            for context in CONTEXTS:
                key = ("account", account, context)
                # Our own receiver maps nothing.
                home = account in payload and HOME[account] == (side, context)
                if not home and key not in times[side].weights.samples:
                    continue
                row = {"account": account} | sampled_row(record, times[side], side, key, kib)
                if account == "gather":
                    row |= gather_cost(record, times[side], kib)
                flow = payload.get(account, Flow(0, "exact", 0))
                rows.append(with_flow(row, flow, f"{account} {' '.join(HOME[account])}", home=home))
    return rows


def stage_rows(record: Record, times: dict[str, SideTime], gather_ns: float | None) -> list[Row]:
    """One row per stage, side and context; the sender's user time without what its gather row already has."""
    kib = delivered_kib(record)
    rows = []
    for stage in STAGES:
        for side in SIDES:
            for context in CONTEXTS:
                key = ("stage", stage, context)
                always = side != "other" and (stage, context) in ALWAYS
                if not always and key not in times[side].weights.samples:
                    continue
                row = {"stage": stage} | sampled_row(record, times[side], side, key, kib)
                if (stage, side) == ("user", "sender") and gather_ns:
                    row = without_gather(row, gather_ns, times[side], kib)
                rows.append(row)
    return rows


def sampled_row(record: Record, time: SideTime, side: str, key: Key, kib: float) -> Row:
    """What the samples say about one category on one side: time, share, events, interval."""
    row: Row = {"side": side, "context": key[2], "method": "sampled", "reasons": {}}
    if time.scale_ns is None:
        reason = time.reason or "not sampled"
        row |= {"cpu_ns": None, "share": None, "ns_per_kib": None, "samples": None, "ci": None}
        row["reasons"] = {name: reason for name in ("cpu_ns", "share", "ns_per_kib", "samples", "ci")}
    else:
        samples = time.weights.samples.get(key, 0)
        cpu_ns = time.weights.weight.get(key, 0.0) * time.scale_ns
        row |= {"samples": samples, "ci": interval(time, side, samples)}
        row |= _time_cells(row["reasons"], cpu_ns, time, kib)
        if row["ci"] is None:
            row["reasons"]["ci"] = "no sample on this side"
    for column in EVENT_COLUMNS:
        row[column], reason_or_none = event_value(record, side, column, key)
        if reason_or_none is not None:
            row["reasons"][column] = reason_or_none
    return row


def _time_cells(reasons: dict[str, str], cpu_ns: float, time: SideTime, kib: float) -> Row:
    cells: Row = {"cpu_ns": round(cpu_ns), "share": None, "ns_per_kib": None}
    if time.cpu_ns:
        cells["share"] = round(cpu_ns / time.cpu_ns, 6)
    else:
        reasons["share"] = "no CPU time on this side"
    if kib > 0:
        cells["ns_per_kib"] = round(cpu_ns / kib, 3)
    else:
        reasons["ns_per_kib"] = "no payload was delivered"
    return cells


def gather_cost(record: Record, time: SideTime, kib: float) -> Row:
    """The gather copy from the strategy's own timer: mean of the timed messages times all messages.

    No interval: the timer keeps a sum, not a spread. No events: it counts nanoseconds.
    """
    segments = select(record, "ledger")
    every = int(record["workload"]["time_every"])
    copies = gathers(record)
    timed = total(segments, "sender", "gather_timed_messages")
    cell: Row = {
        "method": "exact" if every == 1 or copies is False else f"exact 1/{every}",
        "samples": None,
        "ci": None,
    }
    reasons = {"samples": "timed by the program, not sampled", "ci": "timed by the program, not sampled"}
    reasons |= {name: "timed by the program: its clock counts no events" for name in EVENT_COLUMNS}
    cell |= dict.fromkeys(EVENT_COLUMNS)
    if copies is not False and timed == 0:
        cell |= {"cpu_ns": None, "share": None, "ns_per_kib": None}
        unknown = why_no_ledger(record) or (
            NO_CLAIM if copies is None else "no message was timed: send more messages or time more of them"
        )
        reasons |= {name: unknown for name in ("cpu_ns", "share", "ns_per_kib")}
    else:
        mean_ns = total(segments, "sender", "gather_timed_ns") / timed if timed else 0.0
        messages = total(segments, "sender", "messages") if copies else 0
        cell |= _time_cells(reasons, mean_ns * messages, time, kib)
    return cell | {"reasons": reasons}


def without_gather(row: Row, gather_ns: float, time: SideTime, kib: float) -> Row:
    """The sender's user row after its gather copy is taken out: what is left, never less than nothing.

    When the timer says more than was sampled, the sum of the rows exceeds the CPU time, and that identity
    says so.
    """
    if row["cpu_ns"] is None:
        return row
    reasons = dict(row["reasons"])
    shared = "the samples cannot tell the gather copy from the rest of the program"
    reasons |= {name: shared for name in EVENT_COLUMNS if row[name] is not None}
    cells = _time_cells(reasons, max(0.0, row["cpu_ns"] - gather_ns), time, kib)
    ci = row["ci"] and {
        **row["ci"],
        "low_ns": max(0, row["ci"]["low_ns"] - round(gather_ns)),
        "high_ns": max(0, row["ci"]["high_ns"] - round(gather_ns)),
    }
    return row | cells | dict.fromkeys(EVENT_COLUMNS) | {"method": "derived", "ci": ci, "reasons": reasons}


def with_flow(row: Row, flow: Flow, home_row: str, *, home: bool) -> Row:
    """A row with its account's bytes and calls, or with the name of the row that has them."""
    reasons = dict(row["reasons"])
    if home:
        found = {"bytes": flow.bytes, "bytes_method": flow.bytes_method, "calls": flow.calls}
        by = {
            "bytes_by": None if flow.bytes is None else flow.bytes_by,
            "calls_method": None if flow.calls is None else flow.calls_method,
        }
        why = {"bytes": flow.bytes_reason, "bytes_method": flow.bytes_reason, "calls": flow.calls_reason}
        reasons |= {name: str(why[name]) for name, value in found.items() if value is None}
    else:
        found = dict.fromkeys(("bytes", "bytes_method", "calls"))
        by = dict.fromkeys(("bytes_by", "calls_method"))
        reasons |= {name: f"counted once, on the row {home_row}" for name in found}
    return row | found | by | {"reasons": reasons}


def silent_high_ns(times: dict[str, SideTime]) -> float:
    """The most time that silent copies can have had: upper ends of all their rows; 0 without a sample."""
    high = 0.0
    for side, time in times.items():
        for key, samples in time.weights.samples.items():
            found = interval(time, side, samples) if key[:2] == ("account", "silent") and samples else None
            high += found["high_ns"] if found else 0.0
    return high


def delivered_kib(record: Record) -> float:
    """Payload that arrived in the ledger segments, in KiB (1024 B)."""
    return delivered_bytes(select(record, "ledger")) / 1024
