"""From what the programs said to the measured half of a record: names and differences, no judgement. Pure."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copyscope import VERSION
from copyscope.record.moved import Past, moved, taken, target_totals, volume_rows
from copyscope.record.segments import PROCESSES, WARM_UP, WATCHED
from copyscope.record.session_result import MeasuredSegment, Raw
from copyscope.record.store import SCHEMA
from copyscope.taxonomy.samples import thread_names, to_record, user_callers, user_code
from copyscope.taxonomy.taxonomy import Taxonomy

Row = dict[str, Any]

# Levels, not totals: a segment has the value at its end, not a difference.
LEVELS = frozenset(("t_ns", "in_flight", "max_in_flight", "first_wrong_offset", "threads"))


@dataclass(frozen=True)
class Identity:
    """Which run this is: the part of the record that no program knows."""

    id: str
    experiment: str | None
    repeat: int
    order: int
    seed: int
    git: str | None
    dirty: bool | None
    factors: Mapping[str, Any] | None = None  # of its point in an experiment


def subtract_totals(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What happened between two marks of one program, key by key."""
    delta: dict[str, Any] = {}
    for key, value in after.items():
        if key in ("event", "role", "pid", "t_ns"):
            continue
        earlier = before.get(key)
        if isinstance(value, Mapping):
            delta[key] = subtract_totals(value, earlier if isinstance(earlier, Mapping) else {})
        elif isinstance(value, int) and not isinstance(value, bool) and key not in LEVELS:
            delta[key] = value - (earlier if isinstance(earlier, int) else 0)
        else:
            delta[key] = value
    return delta


def segment_row(segment: MeasuredSegment | Past) -> Row:
    """One row of run.segments from its marks. Traffic of our own moves nothing outside of a segment."""
    if isinstance(segment, Past):
        return segment.row()
    _, begin, end, _ = segment["marks"]
    first = next(iter(begin))
    row = {key: segment[key] for key in ("index", "block", "phase")}
    row |= {"begin_ns": begin[first]["t_ns"], "end_ns": end[first]["t_ns"]}
    if "target" in begin:
        return row | {
            "sides": {"target": target_totals(*(dict(mark["target"]) for mark in segment["marks"]))}
        }
    return row | {"sides": {side: {"role": side, **subtract_totals(end[side], begin[side])} for side in end}}


def side_report(
    report: Mapping[str, Any] | None, segments: Sequence[MeasuredSegment | Past], side: str
) -> Row:
    """A side's report; of a side that died, the totals of its last mark, marked as such."""
    if report is not None:
        return {key: value for key, value in report.items() if key != "event"}
    last = last_mark(segments, 2, side)
    last.pop("event", None)
    nobody = {"role": side, "impl": "", "pid": 0, "options": {}, "claim": None, "limits": {}}
    nothing = {"threads": [], "histograms": {}, "errors": ["no report: the program had ended"]}
    return {**nobody, **nothing, **last}


def rtt_us(sender: Mapping[str, Any] | None) -> int | None:
    """The least round trip of its connections, which saw an idle path at some time."""
    infos = [thread.get("tcp_info") or {} for thread in (sender or {}).get("threads", [])]
    return min((info["min_rtt_us"] for info in infos if info.get("min_rtt_us") is not None), default=None)


def assemble(
    raw: Raw,
    identity: Identity,
    frequency_hz: int,
    *,
    workload: Row | None = None,
    target: Row | None = None,
) -> Row:
    """What was measured, as a record without its derived half: everything that ledger.derive needs.

    `raw` is what run/session.py left behind; `workload` what our own traffic was to send, or `target` who
    was watched.
    """
    sides = PROCESSES if target is None else WATCHED
    measured = [one for one in raw.segments if one["phase"] != WARM_UP]
    segments = [segment_row(one) for one in raw.segments]
    phases = [segment["phase"] for segment in segments]
    collector = raw.collector or {}
    taxonomy = Taxonomy.load()
    phase_of_calls = next((phase for phase in phases if "calls" in phase), "calls")
    no_sampler = {"events": [], "frequency_hz": frequency_hz, "enabled_ns": 0}
    own = _own_sections(raw, workload) if workload else {}
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
            "measured_s": sum(s["end_ns"] - s["begin_ns"] for s in segments if s["phase"] != WARM_UP) / 1e9,
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
        "samples": to_record(collector.get("samples", []), taxonomy),
        "loss": collector.get("loss", {}),
        "machine_state": readings(raw.loads, sides_cpu_ns(measured)),
        **own,
        **(watched_sections(raw, target) if target else {}),
    }


def _own_sections(raw: Raw, workload: Row) -> Row:
    """What only traffic of our own has."""
    # What the first connection really got; nobody knows before there is one.
    used = (raw.reports.get("sender") or {}).get("options", {}).get("congestion_control")
    made: Row = {
        "workload": {**workload, "congestion_control": used},
        "traffic": {side: side_report(raw.reports.get(side), raw.segments, side) for side in PROCESSES},
    }
    if raw.placement is not None:
        made["placement"] = raw.placement
    if raw.places is not None:
        rtt = rtt_us(raw.reports.get("sender"))
        made |= {"places": raw.places, "topology": {**(raw.topology or {}), "rtt_us": rtt}}
    return made


READINGS = ("busy_ns", "softirq_ns", "steal_ns", "own_ns")


def readings(loads: Sequence[Mapping[str, Any]], sides_ns: int) -> Row:
    """The raw section, from what machine.read_load() said at both ends and the sides' CPU time in between."""
    if len(loads) != 2:
        return unread("the run is not over")
    before, after = loads
    spent = {key: after[key] - before[key] if key in before and key in after else None for key in READINGS}
    span = {"wall_ns": after["t_ns"] - before["t_ns"], "cpus": after["cpus"]}
    peers_ns = _spent_ns(before.get("peers", {}), after.get("peers", {}))
    section = {**span, **spent, "sides_ns": sides_ns, "peers_ns": peers_ns}
    why = before["reason"] or after["reason"]
    reasons = {key: why for key, value in section.items() if value is None}
    return {
        **section,
        "reasons": reasons,
        "clock_before": before.get("clock"),
        "clock_after": after.get("clock"),
    }


def _spent_ns(begun: Mapping[int, int | None], ended: Mapping[int, int | None]) -> int:
    """By those that were there from begin to end."""
    both = [(begun[pid], ended[pid]) for pid in begun if pid in ended]
    return sum(end - begin for begin, end in both if begin is not None and end is not None)


def unread(why: str) -> Row:
    section = dict.fromkeys(("wall_ns", "cpus", *READINGS, "sides_ns"))
    return section | {"reasons": dict.fromkeys(section, why)}


def sides_cpu_ns(segments: Sequence[Any]) -> int:
    """CPU time of all sides from the begin of the first measured segment to the end of the last."""
    if not segments:
        return 0
    first, last = segments[0]["marks"][1], segments[-1]["marks"][2]
    return sum(int(last[side]["process_cpu_ns"] - first[side]["process_cpu_ns"]) for side in last)


NOTHING_YET: Row = {"totals": {"forks": 0, "exits": 0}, "volume": []}


def last_mark(segments: Sequence[MeasuredSegment | Past], at: int, side: str) -> Row:
    """What a side had said in one of the marks of the last segment; of that one it is always kept."""
    if not segments or isinstance(segments[-1], Past):
        return {}
    return dict(segments[-1]["marks"][at].get(side, {}))


def watched_sections(raw: Raw, target: Row) -> Row:
    """Those of what run/session.py left behind; `target`: who was watched."""
    last = last_mark(raw.segments, 3, "target") or NOTHING_YET
    phases = [segment["phase"] for segment in raw.segments]
    timed = any("calls" in phase.split("+") for phase in phases)
    return buffers(last, (raw.collector or {}).get("hooks", [])) | {
        "target": {
            **target,
            "pids": [{"pid": pid, "comm": comm} for pid, comm in sorted(raw.pids.items())],
            "forks": last["totals"]["forks"],
            "exits": last["totals"]["exits"],
            **whole(last),
            "page_bytes": last.get("page_bytes"),
            "uncounted": sorted(raw.uncounted),
            **zerocopy_limits(raw.machine or {}),
            "ended": raw.ended,
            "status": raw.status,
        },
        "volume": volume_rows(raw.segments, raw.sums),
        "packets": dict(last["packets"]) if timed else None,
        "shapes": [dict(row) for row in last["shapes"]] if "calls" in phases else None,
        "send_errors": send_error_rows(last),
        "relays": dict(last["relays"]) if timed else None,
        "connections": raw.connections.rows(),
        "user_code": user_code((raw.collector or {}).get("samples", [])),
        "user_callers": user_callers((raw.collector or {}).get("samples", [])),
        "threads": thread_names((raw.collector or {}).get("samples", []), Taxonomy.load()),
    }


def zerocopy_limits(machine: Row) -> Row:
    """What ENOBUFS comes from (msg_zerocopy.rst); why one is not known is in the machine's reasons."""
    optmem = machine.get("sysctls", {}).get("net.core.optmem_max")
    return {
        "memlock_limit_bytes": machine.get("limits", {}).get("memlock_bytes"),
        "optmem_limit_bytes": int(optmem) if optmem is not None else None,
    }


def whole(last: Row) -> Row:
    """All that moved from the first moment to the last reading, whether a segment was under way or not."""
    sent, sends = moved(last["volume"], "send")
    received, receives = moved(last["volume"], "receive")
    return {
        "sent_bytes": sent,
        "send_calls": sends,
        "received_bytes": received + taken(last["volume"]),
        "receive_calls": receives,
    }


def send_error_rows(last: Row) -> list[Row]:
    """Send calls that were refused, over the whole run."""
    return [
        {
            "syscall": row["syscall"],
            "error": errno.errorcode.get(row["errno"], str(row["errno"])),
            "calls": row["calls"],
        }
        for row in last.get("send_errors", [])
    ]


def buffers(last: Row, hooks: list[Row]) -> Row:
    """The section of that name; without a hook on notices nobody knows what was given back."""
    hook = next((row for row in hooks if row["id"] == "completion"), {})
    attached = hook.get("state") == "attached"
    reason = None if attached else f"inet_sk_error_report: {hook.get('reason') or 'not attached'}"
    unknown = {"given_back_sends": None} if reason else {}
    rows = [{**row, "side": "target", "reason": reason, **unknown} for row in last.get("buffers", [])]
    return {"buffers": rows} if rows else {}
