"""Double entry: sums that must agree because they count the same thing in two places.

Each identity is a pure function of a record whose ledger and stages are filled in. A missing input makes it
`holds: null` with the reason, never true; one that makes no sense for a strategy is left out (None). Nothing
is adjusted to make one hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from copyscope.ledger import flows
from copyscope.record.segments import (
    Record,
    Segment,
    byte_segments,
    cut_short,
    measured,
    reported,
    select,
    spliced_total,
    total,
    why_no_ledger,
    zerocopy_total,
)

Identity = dict[str, Any]
NO_CELL = "{}: bytes not known, see the ledger"


def compare(name: str, what: str, left: float, right: float, unit: str, *, tolerance: float = 0) -> Identity:
    """An identity with both sides known; the tolerance is absolute, in the same unit."""
    return {
        "name": name,
        "what": what,
        "left": left,
        "right": right,
        "unit": unit,
        "tolerance": tolerance,
        "holds": abs(left - right) <= tolerance,
        "reason": None,
    }


def unchecked(name: str, what: str, unit: str, reason: str) -> Identity:
    """An identity one side of which is unknown in this run."""
    return {
        "name": name,
        "what": what,
        "left": None,
        "right": None,
        "unit": unit,
        "tolerance": 0,
        "holds": None,
        "reason": reason,
    }


# compared with what the instruments or a report counted; the others compare segments with segments
AGAINST_OTHERS = frozenset(
    (
        *("sent_bytes", "sent_split", "referenced_split", "received_bytes", "received_split", "sent_calls"),
        *("received_calls", "timed_calls", "zerocopy_calls", "sender_time", "receiver_time"),
        *("acked_bytes", "sent_rows", "received_rows"),
        *(f"{s}_{k}_of_run" for s in ("sender", "receiver") for k in ("bytes", "messages", "calls")),
    )
)


def excused(record: Record, identity: Identity) -> Identity:
    """The identity; unchecked where a run that ended inside a segment cannot be expected to balance."""
    if identity["holds"] is not False or not cut_short(record) or identity["name"] not in AGAINST_OTHERS:
        return identity
    reason = "the run ended inside a segment, of which the instruments saw a part that no segment here holds"
    return unchecked(identity["name"], identity["what"], identity["unit"], reason)


def cell(ledger: list[dict[str, Any]], account: str, key: str) -> int | None:
    """Sum of an account's known bytes or calls over its rows; None when its home row does not know."""
    values = [row[key] for row in ledger if row["account"] == account and row[key] is not None]
    return sum(values) if values else None


def sent_bytes(record: Record) -> Identity:
    """The program's send return values against the kernel's count at the socket."""
    name, what = "sent_bytes", "bytes sent by the program = bytes into the socket"
    kernel = flows.counted(record, "sender", flows.SEND_HOOK)
    if kernel is None:
        return unchecked(name, what, "bytes", flows.why_uncounted(record, flows.SEND_HOOK))
    return compare(name, what, total(byte_segments(record), "sender", "bytes"), kernel.bytes, "bytes")


def received_bytes(record: Record) -> Identity:
    """The receiver's return values against the kernel's count at the socket."""
    name, what = "received_bytes", "bytes received by the program = bytes out of the socket"
    kernel = flows.counted(record, "receiver", flows.RECEIVE_HOOK)
    if kernel is None:
        return unchecked(name, what, "bytes", flows.why_uncounted(record, flows.RECEIVE_HOOK))
    return compare(name, what, total(byte_segments(record), "receiver", "bytes"), kernel.bytes, "bytes")


def sent_split(record: Record) -> Identity:
    """Each byte sent was copied in or referenced; the kernel counts the one, the program the other."""
    name, what = "sent_split", "bytes sent by the program = copy_in + referenced (pin)"
    copied = flows.kernel_copied_in(record)
    if copied is None:
        kernel = flows.counted(record, "sender", flows.SEND_HOOK)
        return unchecked(name, what, "bytes", why_blind(record, kernel))
    segments = byte_segments(record)
    pinned = flows.referenced_bytes(record, segments)
    return compare(name, what, total(segments, "sender", "bytes"), copied + pinned, "bytes")


def referenced_split(record: Record) -> Identity | None:
    """Every byte that the kernel saw sent by reference ended in one of three ways, say the completions.

    Pages of a file have no completions; what the program gave as such then stands on the right.
    """
    name, what = "referenced_split", "bytes sent by reference = deferred + silent + zero-copy"
    if not gives_references(measured(record)):
        return None
    segments = byte_segments(record)
    kernel = flows.counted(record, "sender", flows.SEND_HOOK)
    if kernel is None or kernel.zerocopy_bytes is None:
        return unchecked(name, what, "bytes", why_blind(record, kernel))
    ended = flows.deferred_bytes(record, segments) + flows.uncopied_bytes(record, segments)
    seen = kernel.zerocopy_bytes + kernel.spliced_bytes - flows.copied_at_call(record, segments)
    return compare(name, what, seen, ended, "bytes")


def received_split(record: Record) -> Identity:
    """Every byte received was copied out or, with MSG_TRUNC, thrown away."""
    name, what = "received_split", "bytes received by the program = copy_out + truncated"
    kernel = flows.counted(record, "receiver", flows.COPY_OUT_HOOK)
    if kernel is None:
        return unchecked(name, what, "bytes", flows.why_uncounted(record, flows.COPY_OUT_HOOK))
    segments = byte_segments(record)
    out = kernel.bytes + total(segments, "receiver", "truncated_bytes")
    return compare(name, what, total(segments, "receiver", "bytes"), out, "bytes")


def sent_rows(record: Record) -> Identity:
    """The ledger's rows as they stand, against what the program sent in these segments."""
    name, what = "sent_rows", "ledger rows: bytes sent by the program = copy_in + pin"
    copied, pinned = cell(record["ledger"], "copy_in", "bytes"), cell(record["ledger"], "pin", "bytes")
    if copied is None or pinned is None:
        return unchecked(name, what, "bytes", why_no_ledger(record) or NO_CELL.format("copy_in or pin"))
    return compare(name, what, total(select(record, "ledger"), "sender", "bytes"), copied + pinned, "bytes")


def referenced_rows(record: Record) -> Identity | None:
    """The same of what went by reference: `pin` and what became of it."""
    name, what = "referenced_rows", "ledger rows: pin = deferred + silent + zero-copy"
    if not gives_references(select(record, "ledger")):
        return None
    pinned, deferred, silent = (
        cell(record["ledger"], account, "bytes") for account in ("pin", "deferred", "silent")
    )
    if pinned is None or deferred is None or silent is None:
        return unchecked(name, what, "bytes", NO_CELL.format("pin, deferred or silent"))
    ended = deferred + silent + flows.zero_copy_bytes(record, silent)
    return compare(name, what, pinned, ended, "bytes")


def received_rows(record: Record) -> Identity:
    """The same of what the receiver took out."""
    name, what = "received_rows", "ledger rows: bytes received by the program = copy_out + truncated"
    copied = cell(record["ledger"], "copy_out", "bytes")
    if copied is None:
        return unchecked(name, what, "bytes", why_no_ledger(record) or NO_CELL.format("copy_out"))
    segments = select(record, "ledger")
    out = copied + total(segments, "receiver", "truncated_bytes")
    return compare(name, what, total(segments, "receiver", "bytes"), out, "bytes")


def acked_bytes(record: Record) -> Identity | None:
    """What the program says that it sent, warm-up and all, against what TCP saw acknowledged.

    No hook counts that: it covers the segments in which nobody but the program counts bytes, too.
    """
    name, what = "acked_bytes", "bytes sent in the whole run = bytes acknowledged, by TCP's own count"
    if sends_nothing(record):
        return None
    if not reported(record, "sender"):
        return unchecked(name, what, "bytes", "the sender gave no report")
    sender = record["traffic"]["sender"]
    connections = [thread.get("tcp_info") or {} for thread in sender["threads"]]
    if not connections or any(tcp.get("bytes_acked") is None for tcp in connections):
        return unchecked(name, what, "bytes", "TCP_INFO of a connection does not say it")
    acked = sum(int(tcp["bytes_acked"]) for tcp in connections)
    return compare(name, what, int(sender["bytes"]), acked, "bytes")


def delivered(record: Record) -> Identity:
    """What one program sent the other received, in all measured segments."""
    segments = measured(record)
    return compare(
        "delivered",
        "bytes sent = bytes received, all measured segments",
        total(segments, "sender", "bytes"),
        total(segments, "receiver", "bytes"),
        "bytes",
    )


def message_bytes(record: Record) -> Identity | None:
    """Segments end between messages, so bytes are a whole number of them."""
    name, what = "message_bytes", "messages x message size = bytes sent"
    if sends_nothing(record):
        return None
    segments = measured(record)
    messages = total(segments, "sender", "messages") * int(record["workload"]["size_bytes"])
    return compare(name, what, messages, total(segments, "sender", "bytes"), "bytes")


def received_messages(record: Record) -> Identity | None:
    """The receiver counts messages by their size, the sender by its calls."""
    name, what = "received_messages", "messages sent = messages received"
    if sends_nothing(record):
        return None
    segments = measured(record)
    if any(s["receiver"]["messages"] is None for s in segments):
        return unchecked(name, what, "messages", "the receiver was not told the size of a message")
    received = total(segments, "receiver", "messages")
    return compare(name, what, total(segments, "sender", "messages"), received, "messages")


def copied_bytes(record: Record) -> Identity | None:
    """Copied completions and copied bytes are counted apart; with whole messages they must agree."""
    name, what = "copied_bytes", "copied sends x message size = bytes of copied sends"
    segments = measured(record)
    copied, bytes_copied = zerocopy_total(segments, "copied"), zerocopy_total(segments, "bytes_copied")
    if copied is None or bytes_copied is None:
        return None
    if total(segments, "sender", "short_sends") or zerocopy_total(segments, "sends") != total(
        segments, "sender", "messages"
    ):
        return unchecked(name, what, "bytes", "some sends carried only a part of a message")
    return compare(name, what, copied * int(record["workload"]["size_bytes"]), bytes_copied, "bytes")


def gives_references(segments: list[Segment]) -> bool:
    """Whether the strategy sends with MSG_ZEROCOPY, or pages of a file."""
    return zerocopy_total(segments, "sends") is not None or spliced_total(segments, "calls") is not None


def sends_nothing(record: Record) -> bool:
    """Whether the strategy makes no send call at all: messages then count turns of its loop."""
    return not any(s["sender"]["calls"] for s in record["run"]["segments"])


def why_blind(record: Record, kernel: flows.Counted | None) -> str:
    """Why the kernel's count of zero-copy sends is not known."""
    if kernel is None:
        return flows.why_uncounted(record, flows.SEND_HOOK)
    return "the hook on the send path does not see which calls are zero-copy"


IDENTITIES: tuple[Callable[[Record], Identity | None], ...] = (
    sent_bytes,
    sent_split,
    referenced_split,
    received_bytes,
    received_split,
    sent_rows,
    referenced_rows,
    received_rows,
    acked_bytes,
    delivered,
    message_bytes,
    received_messages,
    copied_bytes,
)


def byte_identities(record: Record) -> list[Identity]:
    """All identities of bytes that this strategy has."""
    found = [identity(record) for identity in IDENTITIES]
    return [identity for identity in found if identity is not None]
