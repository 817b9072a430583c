"""The rows of the ledger and of the stages: bytes from flows, time and hardware events from samples. Pure.

An event of a row is its share of that event's samples, times what was counted. Only a process has a counter:
softirq work on the time of others is scaled as samples are on the sides that have one, and can be added.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copyscope.ledger.attribution import Key, SideTime, Weights, counters_of, interval, weights_of
from copyscope.ledger.flows import NO_CLAIM, NOTHING, TO_RELAY, Flow, gathers
from copyscope.record.derived import AccountRow, EventEstimate, StageRow
from copyscope.record.instruments import Counter, Event
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval
from copyscope.record.segments import delivered_bytes, select, total, why_no_ledger
from copyscope.taxonomy.events import EVENT_COLUMNS, divided_by, event_name
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES

METHOD = "sampled"


@dataclass(frozen=True)
class SideEvent:
    """How the samples of one event become a count of it: `scale` per unit of weight, or why not."""

    weights: Weights
    scale: float | None
    reason: str | None
    # Whether the sum of all rows is a counter's, and only its division is sampled.
    counted: bool = True
    # What a sample weighs, by those of other sides, where this one has none.
    each: float = 0.0

    def estimate(self, key: Key) -> tuple[int, EventEstimate] | None:
        """The count of a row, with the interval that its samples give it; None: `reason`."""
        if self.scale is None:
            return None
        found = self.weights.interval((key,), whole_known=self.counted, each=self.each).scaled(self.scale)
        value = round(self.weights.weight.get(key, 0.0) * self.scale)
        samples = self.weights.samples.get(key, 0)
        return value, EventEstimate(round(found.low), round(found.high), found.level, samples, METHOD)


Events = dict[str, dict[str, SideEvent]]  # side -> column


def events_of(raw: Measured) -> Events:
    """All columns of all sides."""
    sides = raw.run.sides
    found: Events = {
        side: {column: _of_process(raw, side, names) for column, names in EVENT_COLUMNS.items()}
        for side in sides
    }
    beside = {
        column: _of_others(raw, names, [found[side][column] for side in sides])
        for column, names in EVENT_COLUMNS.items()
    }
    return {**found, "other": beside}


def _of_process(raw: Measured, side: str, names: Sequence[str]) -> SideEvent:
    weights = _weights(raw, side, names)
    counter = counter_of(raw, side, names)
    if counter is None:
        reason = f"{names[0]}: not counted in this run"
    elif counter.value is None:
        reason = counter.reason or f"{names[0]}: {counter.status}"
    elif weights.all_weight <= 0:
        reason = why_not_divided(raw.sampler.events, side, names)
    else:
        return SideEvent(weights, counter.value / weights.all_weight, None)
    return SideEvent(weights, None, reason)


def _weights(raw: Measured, side: str, names: Sequence[str]) -> Weights:
    units = {event.name: event.unit for event in raw.sampler.events}
    return weights_of(raw.samples, side, divided_by(names, units))


def counter_of(raw: Measured, side: str, names: Sequence[str]) -> Counter | None:
    """The counter of an event, by the first of its names that was counted."""
    counters = {event_name(name): value for name, value in counters_of(raw, side).items()}
    return next((counters[name] for name in names if name in counters), None)


def why_not_divided(events: Iterable[Event], side: str, names: Sequence[str]) -> str:
    """Why what was counted of a side is not known of its rows."""
    event = next((event for event in events if event.name in names), None)
    if event is None:
        # No counter of the PMU is left for it beside those that are sampled.
        return f"{names[0]}: counted for the {side} as a whole, not sampled"
    why = f": {event.reason}" if event.reason else f", but not sampled on the {side}"
    return f"{names[0]}: counted for the {side} as a whole{why}"


def _of_others(raw: Measured, names: Sequence[str], known: Iterable[SideEvent]) -> SideEvent:
    weights = _weights(raw, "other", names)
    scaled = [event for event in known if event.scale is not None]
    covered = sum(event.weights.all_weight for event in scaled)
    if not covered:
        return SideEvent(weights, None, "no process to count on: ksoftirqd and interrupts of idle")
    events = sum(event.weights.all_weight * (event.scale or 0.0) for event in scaled)
    each = sum(event.weights.all_squared for event in scaled) / covered
    return SideEvent(weights, events / covered, None, counted=False, each=each)


# The fields of a row that is not complete yet.
Cells = dict[str, Any]

# Why a row has no bytes and no calls, before the account, side and context of the row that has them.
COUNTED_ON = "counted once, on the row "
CONTEXTS = ("user", "process", "softirq")

# Where an account belongs: in our own traffic on this side, of a watched program on its own. Its bytes stand
# on this row, once; the row is there even when nothing was sampled.
HOME: dict[str, tuple[str, str]] = {
    "file_read": ("sender", "process"),
    "gather": ("sender", "user"),
    "user_encrypt": ("sender", "user"),
    "copy_in": ("sender", "process"),
    "pin": ("sender", "process"),
    "encrypt": ("sender", "process"),
    "deferred": ("sender", "softirq"),
    "silent": ("sender", "softirq"),
    "completion": ("sender", "process"),
    "decrypt": ("receiver", "process"),
    "copy_out": ("receiver", "process"),
    "mapped": ("receiver", "process"),
    "tun": ("receiver", "process"),
}
# stages that a side always shows: zero there is a finding
ALWAYS = (("user", "user"), ("unattributed", "process"))
SAMPLED_CELLS = ("cpu_ns", "share", "ns_per_kib", "samples", "ci")


def ledger_rows(raw: Measured, times: Mapping[str, SideTime], moved: Mapping[str, Flow]) -> list[AccountRow]:
    """One row per account, side and context that was sampled, and the home row of every account.

    `moved` has no `gather` of a watched program: its memory is its business; `mapped` where somebody maps.
    Of a relay two sides copy out, each with a row that has its bytes.
    """
    program = raw.target is not None
    kib, events = delivered_kib(raw), events_of(raw)
    rows = []
    for account in ACCOUNTS:
        if program and account not in moved:
            continue
        side_at_home, context_at_home = HOME[account]
        at_home = ("target" if program else side_at_home, context_at_home)
        flows = {at_home: moved[account]} if account in moved else {}
        if account == "copy_out" and TO_RELAY in moved:
            flows["sender", "process"] = moved[TO_RELAY]
        for side in (*raw.run.sides, "other"):
            for context in CONTEXTS:
                key = ("account", account, context)
                home = (side, context) in flows
                if not home and key not in times[side].weights.samples:
                    continue
                cells = sampled_cells(times[side], events[side], side, key, kib)
                if account == "gather" and raw.target is None:
                    cells |= gather_cost(raw, times[side], kib)
                flow = flows.get((side, context), NOTHING)
                cells |= flow_cells(cells["reasons"], flow, " ".join((account, *at_home)), home=home)
                rows.append(AccountRow(account=account, **cells))
    return rows


def stage_rows(raw: Measured, times: Mapping[str, SideTime], gather_ns: float | None) -> list[StageRow]:
    """One row per stage, side and context; the sender's user time without what its gather row already has."""
    kib, events = delivered_kib(raw), events_of(raw)
    rows = []
    for stage in STAGES:
        for side in (*raw.run.sides, "other"):
            for context in CONTEXTS:
                key = ("stage", stage, context)
                always = side != "other" and (stage, context) in ALWAYS
                if not always and key not in times[side].weights.samples:
                    continue
                cells = sampled_cells(times[side], events[side], side, key, kib)
                if (stage, side) == ("user", "sender") and gather_ns:
                    cells = without_gather(cells, gather_ns, times[side], kib)
                rows.append(StageRow(stage=stage, **cells))
    return rows


def sampled_cells(time: SideTime, events: Mapping[str, SideEvent], side: str, key: Key, kib: float) -> Cells:
    """What the samples say about one category on one side: time, share, events, intervals."""
    cells: Cells = {"side": side, "context": key[2], "method": "sampled", "reasons": {}}
    if time.scale_ns is None:
        cells |= dict.fromkeys(SAMPLED_CELLS)
        cells["reasons"] = dict.fromkeys(SAMPLED_CELLS, time.reason or "not sampled")
    else:
        samples = time.weights.samples.get(key, 0)
        cpu_ns = time.weights.weight.get(key, 0.0) * time.scale_ns
        cells |= {"samples": samples, "ci": interval(time, side, key)}
        cells |= _time_cells(cells["reasons"], cpu_ns, time, kib)
        if cells["ci"] is None:
            cells["reasons"]["ci"] = "no sample on this side"
    cells["events"] = {}
    for column, event in events.items():
        found = event.estimate(key)
        if found is None:
            cells[column], cells["reasons"][column] = None, event.reason or "not sampled"
        else:
            cells[column], cells["events"][column] = found
    return cells


def _time_cells(reasons: dict[str, str], cpu_ns: float, time: SideTime, kib: float) -> Cells:
    cells: Cells = {"cpu_ns": round(cpu_ns), "share": None, "ns_per_kib": None}
    if time.cpu_ns and time.all_ns:
        cells["share"] = round(cpu_ns / time.all_ns, 6)
    else:
        reasons["share"] = "no CPU time on this side"
    if kib > 0:
        cells["ns_per_kib"] = round(cpu_ns / kib, 3)
    else:
        reasons["ns_per_kib"] = "no payload was delivered"
    return cells


def gather_cost(raw: Measured, time: SideTime, kib: float) -> Cells:
    """The gather copy from the strategy's own timer: mean of the timed messages times all messages.

    No interval: the timer keeps a sum, not a spread. No events: it counts nanoseconds.
    """
    segments = select(raw.run.segments, "ledger")
    every = raw.asked.time_every
    copies = gathers(raw)
    timed = total(segments, "sender", "gather_timed_messages")
    method = "exact" if every == 1 or copies is False else f"exact 1/{every}"
    reasons = dict.fromkeys(("samples", "ci"), "timed by the program, not sampled")
    reasons |= dict.fromkeys(EVENT_COLUMNS, "timed by the program: its clock counts no events")
    cells: Cells = {"method": method, "events": {}, **dict.fromkeys(reasons)}
    if copies is not False and timed == 0:
        unknown = why_no_ledger(raw.run) or (
            NO_CLAIM if copies is None else "no message was timed: send more messages or time more of them"
        )
        cells |= dict.fromkeys(("cpu_ns", "share", "ns_per_kib"))
        reasons |= dict.fromkeys(("cpu_ns", "share", "ns_per_kib"), unknown)
    else:
        mean_ns = total(segments, "sender", "gather_timed_ns") / timed if timed else 0.0
        messages = total(segments, "sender", "messages") if copies else 0
        cells |= _time_cells(reasons, mean_ns * messages, time, kib)
    return cells | {"reasons": reasons}


def without_gather(cells: Cells, gather_ns: float, time: SideTime, kib: float) -> Cells:
    """The sender's user row after its gather copy is taken out: what is left, never less than nothing.

    When the timer says more than was sampled, the sum of the rows exceeds the CPU time, and that identity
    says so.
    """
    if cells["cpu_ns"] is None:
        return cells
    shared = "the samples cannot tell the gather copy from the rest of the program"
    reasons = cells["reasons"] | {name: shared for name in EVENT_COLUMNS if cells[name] is not None}
    left = _time_cells(reasons, max(0.0, cells["cpu_ns"] - gather_ns), time, kib)
    ci = cells["ci"] and Interval(
        max(0, cells["ci"].low_ns - round(gather_ns)),
        max(0, cells["ci"].high_ns - round(gather_ns)),
        cells["ci"].level,
    )
    left |= {**dict.fromkeys(EVENT_COLUMNS), "events": {}}
    return cells | left | {"method": "derived", "ci": ci, "reasons": reasons}


def flow_cells(reasons: dict[str, str], flow: Flow, home_row: str, *, home: bool) -> Cells:
    """An account's bytes and calls, on its home row; on another the name of the row that has them."""
    if home:
        found: Cells = {"bytes": flow.bytes, "bytes_method": flow.bytes_method, "calls": flow.calls}
        by = {
            "bytes_by": None if flow.bytes is None else flow.bytes_by,
            "calls_method": None if flow.calls is None else flow.calls_method,
        }
        why = {"bytes": flow.bytes_reason, "bytes_method": flow.bytes_reason, "calls": flow.calls_reason}
        reasons = reasons | {name: str(why[name]) for name, value in found.items() if value is None}
    else:
        found = dict.fromkeys(("bytes", "bytes_method", "calls"))
        by = dict.fromkeys(("bytes_by", "calls_method"))
        reasons = reasons | dict.fromkeys(found, COUNTED_ON + home_row)
    return found | by | {"reasons": reasons}


def silent_high_ns(times: Mapping[str, SideTime]) -> float:
    """The most time that silent copies can have had: upper ends of all their rows; 0 without a sample."""
    high = 0.0
    for side, time in times.items():
        for key, samples in time.weights.samples.items():
            found = interval(time, side, key) if key[:2] == ("account", "silent") and samples else None
            high += found.high_ns if found else 0.0
    return high


def delivered_kib(raw: Measured) -> float:
    """Payload that arrived in the ledger segments, in KiB (1024 B)."""
    return delivered_bytes(select(raw.run.segments, "ledger")) / 1024


def cell(ledger: Iterable[AccountRow], account: str) -> int | None:
    """Sum of an account's known bytes over its rows; None when its home row does not know."""
    values = [row.bytes for row in ledger if row.account == account and row.bytes is not None]
    return sum(values) if values else None
