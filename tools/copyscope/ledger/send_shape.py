"""How a watched program hands over what it sends: buffers, where they begin, and TCP's rounds. Pure.

Read from the arguments of its system calls in the calls segments; `shapes` has one row per protocol and call.
"""

from collections import Counter
from collections.abc import Iterable

from copyscope.record.hooks import ABSENT, find
from copyscope.record.measured import Measured
from copyscope.record.portrait import BufferTotal, RoundTotal
from copyscope.record.sections import Rows
from copyscope.record.volume import added

NO_SEGMENT = "read in calls segments, and there was none"


def buffers(raw: Measured) -> BufferTotal | str:
    """What the arguments of its sends say, or why nothing is known of them."""
    rows = [row for row in raw.shapes or [] if row.messages]
    if not rows:
        return absent(raw, "shape") or (
            "no send with a buffer of the program's own in the calls segments (sendfile, splice and io_uring "
            "have none in their arguments)"
        )
    messages, looked = added(rows, "messages"), added(rows, "looked")
    at_page, at_line = added(rows, "page_aligned"), added(rows, "line_aligned")
    return BufferTotal(
        messages=messages,
        buffers=added(rows, "buffers"),
        mean_per_message=added(rows, "buffers") / messages,
        per_message=merged(row.buffers_per_message for row in rows),
        unreadable=added(rows, "unreadable"),
        looked=looked,
        page_share=at_page / looked if looked else None,
        line_share=at_line / looked if looked else None,
        other_share=(looked - at_page - at_line) / looked if looked else None,
        repeated_share=added(rows, "repeated") / messages,
    )


def rounds(raw: Measured) -> RoundTotal | str:
    """How often TCP went round its loop for one send, or why that is not known."""
    rows = [row for row in raw.shapes or [] if row.sends]
    if not rows:
        return absent(raw, "round") or "no send over TCP in the calls segments"
    sends, passed = added(rows, "sends"), added(rows, "rounds")
    return RoundTotal(sends, passed, passed / sends, merged(row.rounds_per_send for row in rows))


def absent(raw: Measured, name: str) -> str | None:
    """Why nothing can have been counted; None when it could."""
    if raw.shapes is None:
        return NO_SEGMENT
    hook = find(raw.hooks, name)
    return f"{hook.symbol}: {hook.reason}" if hook is not None and hook.state in ABSENT else None


def merged(histograms: Iterable[Rows]) -> Rows:
    """Histograms added up."""
    counts: Counter[int] = Counter()
    for low, count in (row for histogram in histograms for row in histogram):
        counts[low] += count
    return [[low, count] for low, count in sorted(counts.items())]
