"""From what was seen of a watched program to the raw sections of a record: names and differences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from copyscope import VERSION, machine_state
from copyscope.assemble import Identity, no_sampler
from copyscope.attached import pace_section
from copyscope.samples import to_record
from copyscope.taxonomy import Taxonomy
from copyscope.watch_flows import TAKEN

Row = dict[str, Any]
SUMMED = ("calls", "bytes", "zerocopy_calls", "zerocopy_bytes", "nodelay_calls", "cork_calls")
KEY = ("protocol", "direction", "syscall")
TOTALS = ("births", "completions", "copied", "notifications", "unseen", "untold")
NOTHING_YET: Row = {"totals": {"forks": 0, "exits": 0}, "volume": []}


def assemble(seen: Any, workload: Row, target: Row, identity: Identity, frequency_hz: int) -> Row:
    """The raw record of a watched program (see record.py). `seen` is what watch/conductor.py left behind."""
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
            "page_bytes": last.get("page_bytes"),
            "ended": seen.ended,
            "status": seen.status,
        },
        "topology": seen.topology,
        "machine": seen.machine,
        "traffic": None,
        "counters": {"target": seen.counters},
        "volume": volume_rows(seen.segments),
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
        "machine_state": machine_state.readings(seen.loads, _target_cpu_ns(seen.segments)),
    }


def _target_cpu_ns(segments: list[Row]) -> int:
    """CPU time of the program from the first segment's beginning to the last one's end."""
    return int(segments[-1]["clocks"][1][0] - segments[0]["clocks"][0][0]) if segments else 0


def _bursts(sampler: Mapping[str, Any]) -> Row | None:
    bursts = sampler.get("bursts")
    return None if bursts is None else {side: row for side, row in bursts.items() if side != "receiver"}


def subtract_volume(after: Iterable[Row], before: Iterable[Row]) -> list[Row]:
    """What moved between two readings, row by row; `largest_bytes` is a level, that of the later one."""
    earlier = {tuple(row[k] for k in KEY): row for row in before}
    rows = []
    for row in after:
        old = earlier.get(tuple(row[k] for k in KEY))
        sizes = dict(map(tuple, row["sizes"]))
        if old is not None:
            for low, count in old["sizes"]:
                sizes[low] -= count
        made = {k: row[k] for k in KEY}
        made |= {k: row[k] - (old[k] if old is not None else 0) for k in SUMMED}
        made["largest_bytes"] = row["largest_bytes"]
        made["sizes"] = [[low, count] for low, count in sizes.items() if count]
        if made["calls"]:
            rows.append(made)
    return rows


def moved(after: Row, before: Row, direction: str) -> tuple[int, int]:
    """(bytes, calls) of one direction between two readings, of calls that are always counted."""
    rows = [
        row
        for row in subtract_volume(after["volume"], before["volume"])
        if row["direction"] == direction and row["syscall"] not in TAKEN
    ]
    return sum(row["bytes"] for row in rows), sum(row["calls"] for row in rows)


def taken(after: Row, before: Row) -> int:
    """Bytes that were received by mapping or splice(2) between two readings, while that was counted."""
    rows = subtract_volume(after["volume"], before["volume"])
    return sum(row["bytes"] for row in rows if row["syscall"] in TAKEN and row["direction"] != "send")


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


def segment_row(segment: Row) -> Row:
    """One row of run.segments: what moved inside, and how much more while hooks came and went."""
    before, begin, end, after = segment["volumes"]
    (cpu_before, switches_before), (cpu_after, switches_after) = segment["clocks"]
    sent, sends = moved(end, begin, "send")
    received, receives = moved(end, begin, "receive")
    outer_sent, outer_sends = moved(after, before, "send")
    outer_received, outer_receives = moved(after, before, "receive")
    # What was counted only because a hook had just come is no rate of the segment.
    counts_taken = bool(begin.get("counts_taken", False))
    received_otherwise = taken(end, begin) if counts_taken else 0
    totals = {key: end["totals"][key] - begin["totals"][key] for key in end["totals"]}
    return {
        "index": segment["index"],
        "block": segment["block"],
        "arm": segment["arm"],
        "begin_ns": begin["t_ns"],
        "end_ns": end["t_ns"],
        "target": {
            "bytes": sent + received + received_otherwise,
            "bytes_sent": sent,
            "bytes_received": received + received_otherwise,
            "counts_taken": counts_taken,
            "send_calls": sends,
            "receive_calls": receives,
            "edge_sent_bytes": outer_sent - sent,
            "edge_received_bytes": outer_received - received,
            "edge_send_calls": outer_sends - sends,
            "edge_receive_calls": outer_receives - receives,
            "process_cpu_ns": cpu_after - cpu_before,
            "voluntary_switches": switches_after - switches_before,
            "processes": segment["processes"],
            "threads": segment["threads"],
            "open_zerocopy_sends": open_sends(begin) + open_sends(end),
            **{key: totals[key] for key in TOTALS},
        },
    }


def open_sends(volume: Row) -> int:
    """Zero-copy sends so far of which no completion has come."""
    sent: int = sum(row["zerocopy_calls"] for row in volume["volume"])
    seen: int = volume["totals"]["completions"] + volume["totals"]["unseen"]
    return max(0, sent - seen)


def volume_rows(segments: list[Row]) -> list[Row]:
    """What moved through the sockets in all segments of each arm, by protocol, direction and call."""
    sums: dict[tuple[str, ...], Row] = {}
    for segment in segments:
        _, begin, end, _ = segment["volumes"]
        for row in subtract_volume(end["volume"], begin["volume"]):
            key = (segment["arm"], *(row[k] for k in KEY))
            if key not in sums:
                sums[key] = {"arm": segment["arm"], **row, "sizes": dict(map(tuple, row["sizes"]))}
                continue
            into = sums[key]
            for name in SUMMED:
                into[name] += row[name]
            into["largest_bytes"] = max(into["largest_bytes"], row["largest_bytes"])
            for low, count in row["sizes"]:
                into["sizes"][low] = into["sizes"].get(low, 0) + count
    return [
        {**row, "sizes": [list(x) for x in sorted(row["sizes"].items())]} for _, row in sorted(sums.items())
    ]


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
