"""What a watched program's traffic looks like: sizes, calls, options, packets, peers. Pure."""

from collections.abc import Sequence

from copyscope.ledger.send_shape import buffers, merged, rounds
from copyscope.record.measured import Measured
from copyscope.record.portrait import CallTotal, Direction, MappedTotal, PacketTotal, Portrait
from copyscope.record.sections import Rows
from copyscope.record.volume import MAPPED_IN, SPLICED_MEMORY, SPLICED_ON, added, volume
from copyscope.record.watched import Volume


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
        return "no connection was there to be looked at when the path was read"
    return sum(known) / len(known)
