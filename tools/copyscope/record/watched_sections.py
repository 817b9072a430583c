"""The sections that only a watched program has, made: names and differences. Pure."""

import errno
from typing import Any

from copyscope.record.moved import moved, taken, volume_rows
from copyscope.taxonomy.samples import user_code

Row = dict[str, Any]
NOTHING_YET: Row = {"totals": {"forks": 0, "exits": 0}, "volume": []}


def watched_sections(raw: Any, target: Row) -> Row:
    """Those of what run/session.py left behind; `target`: who was watched."""
    last = raw.segments[-1]["marks"][3]["target"] if raw.segments else NOTHING_YET
    return {
        "target": {
            **target,
            "pids": [{"pid": pid, "comm": comm} for pid, comm in sorted(raw.pids.items())],
            "forks": last["totals"]["forks"],
            "exits": last["totals"]["exits"],
            **whole(last),
            "page_bytes": last.get("page_bytes"),
            "uncounted": sorted(raw.uncounted),
            "ended": raw.ended,
            "status": raw.status,
        },
        "volume": volume_rows(raw.segments, raw.sums),
        "packets": packet_rows(raw.segments),
        "shapes": shape_rows(raw.segments),
        "send_errors": send_error_rows(last),
        "relays": relays(raw.segments),
        "connections": raw.connections.rows(),
        "user_code": user_code((raw.collector or {}).get("samples", [])),
    }


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


def relays(segments: list[Row]) -> Row | None:
    """Threads that received and sent like amounts, of the segments that timed calls; None: there was none."""
    if not segments or not any("calls" in segment["phase"].split("+") for segment in segments):
        return None
    return dict(segments[-1]["marks"][3]["target"]["relays"])


def packet_rows(segments: list[Row]) -> Row | None:
    """Packets of the segments in which they were counted; None when there was none."""
    if not any("calls" in segment["phase"].split("+") for segment in segments):
        return None
    return dict(segments[-1]["marks"][3]["target"]["packets"])


def shape_rows(segments: list[Row]) -> list[Row] | None:
    """How messages were handed over, in the segments in which that was read; None when there was none."""
    if not segments or not any(segment["phase"] == "calls" for segment in segments):
        return None
    return [dict(row) for row in segments[-1]["marks"][3]["target"]["shapes"]]
