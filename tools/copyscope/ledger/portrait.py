"""What a watched program's traffic looks like: sizes, calls, buffers, options, packets, peers. Pure.

Buffers are read from the arguments of its system calls in the calls segments.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from copyscope.record.hooks import ABSENT, find
from copyscope.record.measured import Measured
from copyscope.record.portrait import (
    BufferTotal,
    CallTotal,
    Direction,
    MappedTotal,
    PacketTotal,
    Portrait,
    RoundTotal,
)
from copyscope.record.sections import Rows
from copyscope.record.watched import MAPPED_IN, SPLICED_MEMORY, SPLICED_ON, Volume, added, volume


def portrait(raw: Measured) -> Portrait:
    """The portrait section, over all segments; what is null has its reason."""
    no_packet = (
        "no packet of a connected socket left in the program's own time"
        if any(s.phase == "calls" for s in raw.run.segments)
        else "packets are counted in calls segments, and there was none"
    )
    parts = {
        "send": direction(volume(raw.volume, "send")),
        "receive": direction(volume(raw.volume, "receive")),
        "packets": packets(raw) or no_packet,
        "buffers": buffers(raw),
        "rounds": rounds(raw),
        "mapped": mapped(raw) or "TCP_ZEROCOPY_RECEIVE was not called where that is counted",
        "local_share": local_share(raw),
    }
    reasons = {name: part for name, part in parts.items() if isinstance(part, str)}
    known = {name: None if name in reasons else part for name, part in parts.items()}
    return Portrait(reasons=reasons, connections=len(raw.connections), **known)  # type: ignore[arg-type]


def packets(raw: Measured) -> PacketTotal | None:
    seen = raw.packets
    if not seen or not seen.packets:
        return None
    return PacketTotal(seen.packets, seen.bytes / seen.packets, seen.segments / seen.packets, seen.sizes)


def direction(rows: Sequence[Volume]) -> Direction | str:
    """Sizes and calls of one direction."""
    calls, moved = added(rows, "calls"), added(rows, "bytes")
    if not calls:
        return "no such call on a TCP, MPTCP, UDP or UNIX socket"
    sizes = merged(row.sizes for row in rows)
    by_call: dict[tuple[str, str], list[Volume]] = {}
    for row in rows:
        by_call.setdefault((row.protocol, row.syscall), []).append(row)
    totals = [CallTotal(*key, added(same, "calls"), added(same, "bytes")) for key, same in by_call.items()]
    memory = added([row for row in rows if row.syscall == SPLICED_MEMORY], "bytes")
    pages = added([row for row in rows if row.syscall in ("sendfile", "splice")], "bytes")
    relayed = added([row for row in rows if row.syscall == SPLICED_ON], "bytes")
    by_ring = added([row for row in rows if row.syscall == "io_uring"], "bytes")
    return Direction(
        calls=calls,
        bytes=moved,
        mean_bytes=moved / calls,
        median_low_bytes=median_slot(sizes),
        sizes=sizes,
        by_call=sorted(totals, key=lambda total: -total.bytes),
        zerocopy_share=added(rows, "zerocopy_bytes") / moved if moved else 0.0,
        page_share=pages / moved if moved else 0.0,
        memory_share=memory / moved if moved else 0.0,
        socket_share=relayed / moved if moved else 0.0,
        nodelay_share=added(rows, "nodelay_calls") / calls,
        cork_share=added(rows, "cork_calls") / calls,
        io_uring_share=by_ring / moved if moved else 0.0,
    )


def mapped(raw: Measured) -> MappedTotal | None:
    """What TCP_ZEROCOPY_RECEIVE took, where that was counted; None when it was never called."""
    rows = volume(raw.volume, "mapped")
    beside = [row for row in volume(raw.volume, "receive") if row.syscall == MAPPED_IN]
    moved, copied = added(rows, "bytes"), added(beside, "bytes")
    if not rows:
        return None
    whole = moved + copied
    pages = moved // (raw.watched.page_bytes or 1)
    return MappedTotal(added(rows, "calls"), moved, pages, copied, moved / whole if whole else 0.0)


def median_slot(sizes: Rows) -> int:
    """The lower end of the power of two that holds the median."""
    half, seen = sum(count for _, count in sizes) / 2, 0
    for low, count in sizes:
        seen += count
        if seen >= half:
            return low
    return 0


def local_share(raw: Measured) -> float | str:
    """The part of the peers that are on this machine, or why no path could be looked at."""
    known = [peer.local for peer in raw.topology.peers if peer.local is not None]
    if not known:
        return "no connection was open when the path was read"
    return sum(known) / len(known)


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
