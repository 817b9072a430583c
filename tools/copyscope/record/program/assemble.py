"""From what was seen of a watched program to the raw sections of a record: names and differences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from copyscope import VERSION
from copyscope.record import machine_load
from copyscope.record.assemble import Identity, no_sampler
from copyscope.record.program.pace import pace_section
from copyscope.record.program.segments import moved, segment_row, spared_section, taken, volume_rows
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy

Row = dict[str, Any]
NOTHING_YET: Row = {"totals": {"forks": 0, "exits": 0}, "volume": []}


def assemble(seen: Any, workload: Row, target: Row, identity: Identity, frequency_hz: int) -> Row:
    """The raw record of a watched program. `seen` is what run/program/watcher.py left behind."""
    collector = seen.collector or {}
    taxonomy = Taxonomy.load()
    sampler = collector.get("sampler") or no_sampler(frequency_hz)
    segments = [segment_row(segment) for segment in seen.segments]
    arm_of_calls = next((s["arm"] for s in segments if "calls" in s["arm"]), "calls")
    last = seen.segments[-1]["volumes"][3] if seen.segments else NOTHING_YET
    return {
        "schema": 1,
        "copyscope": {"version": VERSION, "git": identity.git, "dirty": identity.dirty},
        "run": {
            "id": identity.id,
            "experiment": identity.experiment,
            "repeat": identity.repeat,
            "factors": identity.factors,
            "order": identity.order,
            "seed": identity.seed,
            "started": seen.started,
            "wall_s": seen.wall_s,
            "measured_s": sum(s["end_ns"] - s["begin_ns"] for s in segments) / 1e9,
            "interrupted": False,
            "errors": seen.errors,
            "tier": seen.tier.name if seen.tier else None,
            "tier_reason": seen.tier.reason if seen.tier else "the run ended before the collector was ready",
            "segments": segments,
        },
        "workload": workload,
        "target": {
            **target,
            "pids": [{"pid": pid, "comm": comm} for pid, comm in sorted(seen.pids.items())],
            "forks": last["totals"]["forks"],
            "exits": last["totals"]["exits"],
            **whole(last),
            "spared": spared_section(seen, last.get("estimate")),
            "page_bytes": last.get("page_bytes"),
            "ended": seen.ended,
            "status": seen.status,
        },
        "topology": seen.topology,
        "machine": seen.machine,
        "traffic": None,
        "counters": {"target": seen.counters},
        "volume": volume_rows(seen.segments, seen.sums),
        "packets": packet_rows(seen.segments),
        "shapes": shape_rows(seen.segments),
        "connections": seen.connections.rows(),
        "pace": pace_section(
            seen.segments,
            seen.before,
            seen.after,
            seen.connections.ours,
            seen.own_cpu_ns,
        ),
        "bytes": [row for row in collector.get("bytes", []) if row["side"] == "target"],
        "calls": [{**call, "arm": arm_of_calls} for call in collector.get("calls", [])],
        "functions": collector.get("functions") if any("functions" in s["arm"] for s in segments) else None,
        "hooks": collector.get("hooks", []),
        "sampler": {**sampler, "taxonomy_version": taxonomy.version, "bursts": _bursts(sampler)},
        "samples": to_record(collector.get("samples", []), taxonomy),
        "loss": collector.get("loss", {}),
        "machine_state": machine_load.readings(seen.loads, _target_cpu_ns(seen.segments)),
    }


def _target_cpu_ns(segments: list[Row]) -> int:
    """CPU time of the program from the first segment's beginning to the last one's end."""
    return int(segments[-1]["clocks"][1][0] - segments[0]["clocks"][0][0]) if segments else 0


def _bursts(sampler: Mapping[str, Any]) -> Row | None:
    bursts = sampler.get("bursts")
    return None if bursts is None else {side: row for side, row in bursts.items() if side != "receiver"}


def whole(last: Row) -> Row:
    """All that moved from the first moment to the last reading, whether a segment was under way or not."""
    sent, sends = moved(last, NOTHING_YET, "send")
    received, receives = moved(last, NOTHING_YET, "receive")
    return {
        "sent_bytes": sent,
        "send_calls": sends,
        "received_bytes": received + taken(last, NOTHING_YET),
        "receive_calls": receives,
    }


def packet_rows(segments: list[Row]) -> Row | None:
    """Packets of the segments in which they were counted; None when there was none."""
    if not any("calls" in segment["arm"].split("+") for segment in segments):
        return None
    return dict(segments[-1]["volumes"][3]["packets"])


def shape_rows(segments: list[Row]) -> list[Row] | None:
    """How messages were handed over, in the segments in which that was read; None when there was none."""
    if not segments or not any(segment["arm"] == "calls" for segment in segments):
        return None
    return [dict(row) for row in segments[-1]["volumes"][3]["shapes"]]
