# SPDX-License-Identifier: GPL-2.0-only
"""Assemble the measured part of a record from the raw results of a session. Pure."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import ValidationError, convert, structs

from copyscope import VERSION
from copyscope.record.measured import SCHEMA, Machine, Measured, Segment
from copyscope.record.messages import HookMessage, TotalsMessage, TrafficReport
from copyscope.record.moved import (
    MeasuredSegment,
    PastSegment,
    as_volume,
    moved,
    received_without_call,
    subtract_volume,
    target_totals,
)
from copyscope.record.sections import MachineLoad, QuotaStops
from copyscope.record.segments import PROCESSES, WARM_UP, WATCHED
from copyscope.record.session_result import LoadReading, Raw
from copyscope.record.store import incomplete
from copyscope.record.watched import SendError
from copyscope.taxonomy.events import MISS_EVENTS
from copyscope.taxonomy.samples import (
    thread_names,
    to_record,
    to_stacks,
    user_callers,
    user_code,
    user_functions,
)
from copyscope.taxonomy.taxonomy import Taxonomy

# Keys of totals for which a segment has the value at its end, not the difference from its start.
LEVELS = frozenset(("t_ns", "in_flight", "max_in_flight", "first_wrong_offset", "threads"))
# Keys of totals that the segments of a record leave out.
NOT_COUNTED = frozenset(("event", "role", "pid", "t_ns"))
# Totals of a watched process before the first reading.
NOTHING_YET: TotalsMessage = {"t_ns": 0, "totals": {"forks": 0, "exits": 0}, "volume": []}


@dataclass(frozen=True)
class RecordIdentity:
    """Identification of a run, which no program reports. `factors`: factor values in an experiment."""

    id: str
    experiment: str | None
    repeat: int
    order: int
    seed: int
    git: str | None
    dirty: bool | None
    factors: Mapping[str, object] | None = None


def assemble(
    raw: Raw,
    identity: RecordIdentity,
    frequency_hz: int,
    *,
    workload: Mapping[str, object] | None = None,
    target: Mapping[str, object] | None = None,
    stacks: bool = False,
) -> Measured:
    """Return the measured part of a run's record.

    `raw`: results of the session. `frequency_hz`: sampling frequency. `workload`: settings of our own
    traffic; or `target`: the watched process. `stacks`: include every stack. Raises RecordError if a message
    from a program has an unexpected key or value.
    """
    try:
        sections = _sections(raw, identity, frequency_hz, workload, target)
        if stacks:
            samples = [] if raw.collector is None else raw.collector.get("samples", [])
            sections["stacks"] = to_stacks(samples, Taxonomy.load())
        return withhold_unusable(convert(sections, Measured))
    except (ValidationError, UnicodeEncodeError) as error:
        raise incomplete(error) from error


def _sections(
    raw: Raw,
    identity: RecordIdentity,
    frequency_hz: int,
    workload: Mapping[str, object] | None,
    target: Mapping[str, object] | None,
) -> dict[str, object]:
    """Return the sections of the record by key, with the programs' messages still as JSON objects."""
    sides = PROCESSES if target is None else WATCHED
    segments = [segment_row(segment) for segment in raw.segments]
    measured = [segment for segment in raw.segments if segment.phase != WARM_UP]
    phases = [segment.phase for segment in raw.segments]
    measured_ns = sum(row.end_ns - row.begin_ns for row in segments if row.phase != WARM_UP)
    collector = raw.collector or {"event": "report"}
    samples = collector.get("samples", [])
    taxonomy = Taxonomy.load()
    phase_of_calls = next((phase for phase in phases if "calls" in phase), "calls")
    no_sampler = {"events": [], "frequency_hz": frequency_hz, "enabled_ns": 0}
    return {
        "schema": SCHEMA,
        "copyscope": {"version": VERSION, "git": identity.git, "dirty": identity.dirty},
        "run": {
            "id": identity.id,
            "experiment": identity.experiment,
            "factors": None if identity.factors is None else dict(identity.factors),
            "repeat": identity.repeat,
            "order": identity.order,
            "seed": identity.seed,
            "started": raw.started,
            "wall_s": raw.wall_s,
            "measured_s": measured_ns / 1e9,
            "interrupted": raw.interrupted,
            "errors": raw.errors,
            "tier": raw.tier.name if raw.tier else None,
            "tier_reason": raw.tier.reason if raw.tier else "the run ended before the collector was ready",
            "sides": list(sides),
            "bytes_phase": raw.bytes_phase if workload else next((p for p in phases if "ledger" in p), None),
            "segments": segments,
        },
        "topology": raw.topology,
        "machine": raw.machine,
        "counters": {side: raw.counters.get(side, {}) for side in sides},
        "bytes": [row for row in collector.get("bytes", []) if row["side"] in sides],
        "calls": [{**call, "phase": phase_of_calls} for call in collector.get("calls", [])],
        "functions": collector.get("functions") if any("functions" in phase for phase in phases) else None,
        "hooks": collector.get("hooks", []),
        "sampler": {**(collector.get("sampler") or no_sampler), "taxonomy_version": taxonomy.version},
        "samples": to_record(samples, taxonomy),
        "loss": collector.get("loss", {}),
        "machine_state": machine_load(raw.loads, sides_cpu_ns(measured)),
        **(_own_sections(raw, workload) if workload else {}),
        **(_watched_sections(raw, target) if target else {}),
    }


def withhold_unusable(measured: Measured) -> Measured:
    """Return the record without counts of misses by events that counted known misses wrong."""
    unusable = {
        check.event: f"{check.event}: {check.verdict} (copyscope doctor --measure)"
        for check in measured.machine.pmu_checks or ()
        if check.usable is False and check.event in MISS_EVENTS
    }
    for counters in measured.counters.values():
        for name in counters.keys() & unusable.keys():
            counters[name] = structs.replace(
                counters[name], value=None, status="unsupported", reason=unusable[name], parts=None
            )
    for event in [] if measured.functions is None else measured.functions.events:
        if event.name in unusable:
            event.status, event.reason = "unsupported", unusable[event.name]
    return measured


def segment_row(segment: MeasuredSegment | PastSegment) -> Segment:
    """Return the row of `run.segments` for a segment. Raises ValidationError.

    Our own traffic needs no readings before and after the segment, because it is paused then.
    """
    if isinstance(segment, PastSegment):
        return segment.row()
    before, begin, end, after = segment.marks
    sides: dict[str, object]
    if "target" in begin:
        totals = target_totals(before["target"], begin["target"], end["target"], after["target"])
        sides = {"target": totals}
    else:
        sides = {side: {"role": side, **subtract_totals(end[side], begin[side])} for side in end}
    first = next(iter(begin))
    row = {"index": segment.index, "block": segment.block, "phase": segment.phase, "sides": sides}
    return convert({**row, "begin_ns": begin[first]["t_ns"], "end_ns": end[first]["t_ns"]}, Segment)


def subtract_totals(after: Mapping[str, object], before: Mapping[str, object]) -> dict[str, object]:
    """Return the difference between two totals of a program, by key. Keys in LEVELS keep the later value."""
    difference: dict[str, object] = {}
    for key, value in after.items():
        if key in NOT_COUNTED:
            continue
        earlier = before.get(key)
        if isinstance(value, Mapping):
            difference[key] = subtract_totals(value, earlier if isinstance(earlier, Mapping) else {})
        elif isinstance(value, int) and not isinstance(value, bool) and key not in LEVELS:
            difference[key] = value - (earlier if isinstance(earlier, int) else 0)
        else:
            difference[key] = value
    return difference


def _own_sections(raw: Raw, workload: Mapping[str, object]) -> dict[str, object]:
    """Return the sections that only the record of our own traffic has."""
    sender = raw.reports.get("sender")
    # The congestion control of the first connection is known only once the connection exists.
    congestion_control = None if sender is None else sender.get("options", {}).get("congestion_control")
    sections: dict[str, object] = {
        "workload": {**workload, "congestion_control": congestion_control},
        "traffic": {side: side_report(raw.reports.get(side), raw.segments, side) for side in PROCESSES},
    }
    if raw.placement is not None:
        sections["placement"] = raw.placement
    if raw.places is not None:
        sections["places"] = raw.places
        if raw.topology is not None:
            sections["topology"] = structs.replace(raw.topology, rtt_us=smallest_rtt_us(sender))
    return sections


def side_report(
    report: TrafficReport | None, segments: Sequence[MeasuredSegment | PastSegment], side: str
) -> dict[str, object]:
    """Return the report of the program on `side`; if it died, its last totals with an error."""
    if report is not None:
        return {key: value for key, value in report.items() if key != "event"}
    last: Mapping[str, object] = last_totals(segments, 2, side) or {}
    empty = {"role": side, "impl": "", "pid": 0, "options": {}, "claim": None, "limits": {}}
    empty |= {"threads": [], "histograms": {}, "errors": ["no report: the program had ended"]}
    return {**empty, **{key: value for key, value in last.items() if key != "event"}}


def smallest_rtt_us(sender: TrafficReport | None) -> int | None:
    """Return the smallest round-trip time of the sender's connections, which is that of an idle path."""
    threads = [] if sender is None else sender.get("threads", [])
    times_us = [(thread.get("tcp_info") or {}).get("min_rtt_us") for thread in threads]
    return min((time_us for time_us in times_us if time_us is not None), default=None)


def machine_load(loads: Sequence[LoadReading], sides_ns: int) -> MachineLoad:
    """Return the load of the machine between two readings. `sides_ns`: CPU time of the measured processes."""
    if len(loads) != 2:
        why = "the run is not over"
        unknown = dict.fromkeys(
            ("wall_ns", "cpus", "busy_ns", "softirq_ns", "steal_ns", "own_ns", "sides_ns"), why
        )
        return MachineLoad(None, None, None, None, None, None, unknown, None)
    before, after = loads
    load = MachineLoad(
        wall_ns=after.t_ns - before.t_ns,
        busy_ns=_difference(before.busy_ns, after.busy_ns),
        softirq_ns=_difference(before.softirq_ns, after.softirq_ns),
        steal_ns=_difference(before.steal_ns, after.steal_ns),
        own_ns=_difference(before.own_ns, after.own_ns),
        sides_ns=sides_ns,
        reasons={},
        cpus=after.cpus,
        clock_before=before.clock,
        clock_after=after.clock,
        peers_ns=sum(
            _difference(before.peers[pid], after.peers[pid]) or 0
            for pid in before.peers
            if pid in after.peers
        ),
        siblings=after.siblings,
        siblings_ns=_difference(before.siblings_ns, after.siblings_ns),
        quotas=_quota_stops(before, after),
    )
    why = before.reason or after.reason or "unknown"
    values = structs.asdict(load)
    # For values that are null by default, the ledger adds the reasons.
    by_default = ("clock_", "siblings", "quotas")
    load.reasons = {
        key: why for key, value in values.items() if value is None and not key.startswith(by_default)
    }
    return load


def _quota_stops(before: LoadReading, after: LoadReading) -> list[QuotaStops] | None:
    """Return the cgroups that their quotas stopped between two readings, longest first; None if unknown."""
    if before.quotas is None or after.quotas is None:
        return None
    rows = [
        QuotaStops(cgroup, now.stops, now.stopped_ns)
        if (then := before.quotas.get(cgroup)) is None
        else QuotaStops(cgroup, now.stops - then.stops, now.stopped_ns - then.stopped_ns)
        for cgroup, now in after.quotas.items()
    ]
    return sorted((row for row in rows if row.stops > 0), key=lambda row: -row.stopped_ns)


def _difference(before: int | None, after: int | None) -> int | None:
    """Return `after` - `before`, or None if a value is unknown."""
    return None if before is None or after is None else after - before


def sides_cpu_ns(segments: Sequence[MeasuredSegment | PastSegment]) -> int:
    """Return the CPU time of all measured processes from the first segment's start to the last one's end."""
    if not segments:
        return 0
    first, last = segments[0], segments[-1]
    assert isinstance(last, MeasuredSegment)  # forget() keeps the last segments
    if isinstance(first, PastSegment):
        assert first.first_cpu_ns is not None
        return last.marks[2]["target"]["process_cpu_ns"] - first.first_cpu_ns
    begin, end = first.marks[1], last.marks[2]
    return sum(end[side]["process_cpu_ns"] - begin[side]["process_cpu_ns"] for side in end)


def last_totals(
    segments: Sequence[MeasuredSegment | PastSegment], mark: int, side: str
) -> TotalsMessage | None:
    """Return the totals of the process `side` at a mark of the last segment, or None if there is none.

    `mark`: index in MeasuredSegment.marks.
    """
    if not segments or isinstance(segments[-1], PastSegment):
        return None
    return segments[-1].marks[mark].get(side)


def _watched_sections(raw: Raw, target: Mapping[str, object]) -> dict[str, object]:
    """Return the sections that only the record of a watched process has. `target`: its identity."""
    last = last_totals(raw.segments, 3, "target") or NOTHING_YET
    phases = [segment.phase for segment in raw.segments]
    timed = any("calls" in phase.split("+") for phase in phases)
    collector = raw.collector or {"event": "report"}
    samples = collector.get("samples", [])
    sums = raw.sums.copy()
    for segment in raw.segments:
        if isinstance(segment, MeasuredSegment):
            sums.add(segment)
    # Everything that moved from the first reading to the last one, also between segments.
    first = raw.first_reading
    volume = as_volume(last["volume"]) if first is None else subtract_volume(last["volume"], first["volume"])
    sent, received = moved(volume, "send"), moved(volume, "receive")
    return {
        "buffers": buffer_rows(last, collector.get("hooks", [])),
        "target": {
            **target,
            "pids": [{"pid": pid, "comm": comm} for pid, comm in sorted(raw.pids.items())],
            "forks": last["totals"]["forks"],
            "exits": last["totals"]["exits"],
            "sent_bytes": sent.bytes,
            "send_calls": sent.calls,
            "received_bytes": received.bytes + received_without_call(volume),
            "span_s": None if first is None else (last["t_ns"] - first["t_ns"]) / 1e9,
            "receive_calls": received.calls,
            "page_bytes": last.get("page_bytes"),
            "uncounted": sorted(raw.uncounted),
            **zerocopy_limits(raw.machine),
            "ended": raw.ended,
            "status": raw.status,
        },
        "volume": sums.rows(),
        "packets": last["packets"] if timed else None,
        "shapes": last["shapes"] if "calls" in phases else None,
        "send_errors": [
            SendError(row["syscall"], errno.errorcode.get(row["errno"], str(row["errno"])), row["calls"])
            for row in last.get("send_errors", [])
        ],
        "relays": last["relays"] if timed else None,
        "connections": raw.connections.rows(),
        "waits": raw.waits,
        "user_code": user_code(samples),
        "user_callers": user_callers(samples),
        "user_functions": user_functions(samples),
        "threads": thread_names(samples, Taxonomy.load()),
    }


def zerocopy_limits(machine: Machine | None) -> dict[str, int | None]:
    """Return the limits that make sends fail with ENOBUFS (Documentation/networking/msg_zerocopy.rst)."""
    optmem = None if machine is None else machine.sysctls.get("net.core.optmem_max")
    return {
        "memlock_limit_bytes": None if machine is None else machine.limits.get("memlock_bytes"),
        "optmem_limit_bytes": None if optmem is None else int(optmem),
    }


def buffer_rows(last: TotalsMessage, hooks: Sequence[HookMessage]) -> list[dict[str, object]]:
    """Return the rows of `buffers`. If the hook on notifications is missing, memory releases are unknown.

    `last`: last totals of the watched process. `hooks`: hooks of the collector.
    """
    hook = next((row for row in hooks if row["id"] == "completion"), None)
    reason = None
    if hook is None or hook["state"] != "attached":
        reason = f"inet_sk_error_report: {(hook and hook['reason']) or 'not attached'}"
    unknown = {} if reason is None else {"given_back_sends": None}
    return [{**row, "side": "target", "reason": reason, **unknown} for row in last.get("buffers", [])]
