"""How a watched program hands over what it sends: buffers, where they begin, and TCP's rounds. Pure.

Read from the arguments of its system calls in the calls segments; `record["shapes"]` has one row per protocol
and call.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from copyscope.record.program.volume import added
from copyscope.record.segments import Record

Part = tuple[dict[str, Any] | None, str]

NO_SEGMENT = "read in calls segments, and there was none"


def buffers(record: Record) -> Part:
    """(what the arguments of its sends say, or None; then why)."""
    rows = [row for row in record["shapes"] or [] if row["messages"]]
    if not rows:
        return None, absent(record, "shape") or (
            "no send with a buffer of the program's own in the calls segments (sendfile, splice and io_uring "
            "have none in their arguments)"
        )
    messages, looked = added(rows, "messages"), added(rows, "looked")
    at_page, at_line = added(rows, "page_aligned"), added(rows, "line_aligned")
    return {
        "messages": messages,
        "buffers": added(rows, "buffers"),
        "mean_per_message": added(rows, "buffers") / messages,
        "per_message": merged(rows, "buffers_per_message"),
        "unreadable": added(rows, "unreadable"),
        "looked": looked,
        "page_share": at_page / looked if looked else None,
        "line_share": at_line / looked if looked else None,
        "other_share": (looked - at_page - at_line) / looked if looked else None,
        "repeated_share": added(rows, "repeated") / messages,
    }, ""


def rounds(record: Record) -> Part:
    """(how often TCP went round its loop for one send, or None; then why)."""
    rows = [row for row in record["shapes"] or [] if row["sends"]]
    if not rows:
        return None, absent(record, "round") or "no send over TCP in the calls segments"
    sends, passed = added(rows, "sends"), added(rows, "rounds")
    return {
        "sends": sends,
        "rounds": passed,
        "mean_per_send": passed / sends,
        "per_send": merged(rows, "rounds_per_send"),
    }, ""


def absent(record: Record, hook: str) -> str | None:
    """Why nothing can have been counted; None when it could."""
    if record["shapes"] is None:
        return NO_SEGMENT
    row = next((h for h in record["hooks"] if h["id"] == hook), None)
    if row is not None and row["state"] in ("missing", "refused"):
        return f"{row['symbol']}: {row['reason']}"
    return None


def merged(rows: list[dict[str, Any]], key: str) -> list[list[int]]:
    """Histograms added up."""
    counts: Counter[int] = Counter()
    for row in rows:
        for low, count in row[key]:
            counts[int(low)] += int(count)
    return [[low, count] for low, count in sorted(counts.items())]
