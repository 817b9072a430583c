"""The portrait of a program's traffic, as lines of a report."""

from rich.text import Text

from copyscope import units
from copyscope.record.check import Whole
from copyscope.record.portrait import BufferTotal, Direction, MappedTotal, PacketTotal, RoundTotal
from copyscope.show.layout import heading, labelled, wrap

BAR_WIDTH = 24
SLOTS_SHOWN = 8
COUNTS_SHOWN = 4
COUNTS_EXACT = 16
# Behind the name of a call: what is not TCP.
PROTOCOLS = {
    "tcp": "",
    "udp": " (UDP)",
    "mptcp": " (MPTCP)",
    "unix_stream": " (UNIX stream)",
    "unix_dgram": " (UNIX datagram)",
    "sockmap": " (in a sockmap)",
}


def portrait_lines(run: Whole, width: int) -> list[Text]:
    """How it sends and receives: sizes, calls, options, packets, peers."""
    portrait = run.portrait
    lines = heading("PORTRAIT", "all segments; sizes are those of one call at the socket", width)
    for direction in ("send", "receive"):
        part = getattr(portrait, direction)
        if part is None:
            lines += labelled(direction, f"none: {portrait.reasons[direction]}", width, style="dim")
            continue
        lines += labelled(direction, _direction_text(part, direction), width)
        lines += histogram_lines(part.sizes, width)
    if portrait.mapped is not None:
        lines += labelled("mapped", _mapped_text(portrait.mapped), width)
    for label, said in (("buffers", _buffer_text), ("rounds", _round_text), ("packets", _packet_text)):
        part = getattr(portrait, label)
        text = f"n/a: {portrait.reasons[label]}" if part is None else said(part)
        lines += labelled(label, text, width)
    return lines + labelled("peers", _peer_text(run), width)


def _protocol(name: str) -> str:
    return PROTOCOLS.get(name, f" ({name})")


def _direction_text(part: Direction, direction: str) -> str:
    calls = ", ".join(
        f"{row.syscall}{_protocol(row.protocol)} {units.format_percent(row.calls / part.calls)}"
        for row in part.by_call
    )
    mean = units.format_bytes(round(part.mean_bytes))
    text = f"{units.format_count(part.calls)} calls of {mean} on average; {calls}"
    if direction == "send":
        text += (
            f"; by reference: MSG_ZEROCOPY {units.format_percent(part.zerocopy_share)}, "
            f"file pages {units.format_percent(part.page_share)}, "
            f"from a socket (splice) {units.format_percent(part.socket_share)}, "
            f"its own memory (vmsplice) {units.format_percent(part.memory_share)} of the bytes; "
            f"io_uring {units.format_percent(part.io_uring_share)} of the bytes; "
            f"TCP_NODELAY {units.format_percent(part.nodelay_share)}, "
            f"cork {units.format_percent(part.cork_share)} of the calls"
        )
    return text


def histogram_lines(sizes: list[list[int]], width: int) -> list[Text]:
    """The most frequent powers of two, as bars; the rest in one word."""
    whole = sum(count for _, count in sizes)
    shown = sorted(sorted(sizes, key=lambda slot: -slot[1])[:SLOTS_SHOWN])
    longest = max(count for _, count in shown) / whole
    lines = []
    for low, count in shown:
        text = f"{units.format_bytes(low)}..".rjust(14) + f" {units.format_percent(count / whole) or '':>8} "
        lines.append(Text((text + units.format_bar(count / whole, longest, BAR_WIDTH)).rstrip()[:width]))
    left = whole - sum(count for _, count in shown)
    if left:
        lines += wrap(
            f"and {units.format_percent(left / whole)} of other sizes", width, indent=2, style="dim"
        )
    return lines


def _mapped_text(mapped: MappedTotal) -> str:
    """What was received without a copy, and what went with it."""
    return (
        f"{units.format_bytes(mapped.bytes)}, {units.format_count(mapped.pages)} pages, in "
        f"{units.format_count(mapped.calls)} calls of TCP_ZEROCOPY_RECEIVE, which copied "
        f"{units.format_bytes(mapped.copied_bytes)} that were no whole pages"
    )


def _buffer_text(buffers: BufferTotal) -> str:
    """How many buffers a message has, and where they begin."""
    text = f"{buffers.mean_per_message:.1f} per message ({_counts_text(buffers.per_message)})"
    if buffers.looked:
        page, line, other = (
            units.format_percent(getattr(buffers, f"{place}_share")) for place in ("page", "line", "other")
        )
        text += f"; page-aligned {page}, cache-line-aligned (64 B) {line}, unaligned {other}"
    text += f"; same address as the message read before {units.format_percent(buffers.repeated_share)}"
    if buffers.unreadable:
        text += f"; {units.format_count(buffers.unreadable)} could not be read"
    return text


def _round_text(rounds: RoundTotal) -> str:
    """How often TCP goes round its copy loop for one send."""
    return (
        f"{rounds.mean_per_send:.1f} rounds of TCP's copy loop per send ({_counts_text(rounds.per_send)}); "
        "each fills a packet or a page fragment, or waits for room"
    )


def _counts_text(counts: list[list[int]]) -> str:
    """The most frequent numbers, in their order, with their shares."""
    whole = sum(count for _, count in counts)
    shown = sorted(sorted(counts, key=lambda slot: -slot[1])[:COUNTS_SHOWN])
    # Up to 15 each number has a slot of its own; from 16 on a slot is a power of two.
    slots = ((f"{low} to {2 * low - 1}" if low >= COUNTS_EXACT else str(low), count) for low, count in shown)
    parts = [f"{slot}: {units.format_percent(count / whole)}" for slot, count in slots]
    return ", ".join(parts + ["..."] * (len(counts) > len(shown)))


def _packet_text(packets: PacketTotal) -> str:
    return (
        f"{units.format_count(packets.packets)} sent by its own threads, "
        f"{units.format_bytes(round(packets.mean_bytes))} and {packets.mean_segments:.1f} segments "
        "on average"
    )


def _peer_text(run: Whole) -> str:
    peers = run.raw.topology.peers
    if not peers:
        return f"n/a: {run.portrait.reasons.get('local_share', 'none seen')}"
    shown = []
    for peer in peers[:6]:
        where = "this machine" if peer.local else "remote" if peer.local is not None else "unknown"
        shown.append(f"{peer.address} ({where}, {peer.device or 'no route'})")
    more = f" and {len(peers) - 6} more" if len(peers) > 6 else ""
    return ", ".join(shown) + more
