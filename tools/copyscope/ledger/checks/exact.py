"""Balances of the exact tier: what function hooks counted against what the program or its sockets said.

A watched program is not paused, so what was under way when the hooks began or ceased to count is the
tolerance: what moved at the edges, one call of each thread, and zero-copy sends that were not completed yet.
"""

from collections.abc import Iterable, Sequence

from copyscope.ledger.checks.balance import compare, unchecked
from copyscope.ledger.checks.target import edges, largest, under_way
from copyscope.ledger.flows import copied_to_relay, encrypts, given
from copyscope.ledger.functions import HOOK, PHASE
from copyscope.ledger.sends import sends_of
from copyscope.record.derived import Identity
from copyscope.record.hooks import find
from copyscope.record.instruments import Functions, Hook
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    cut_short,
    mapped_total,
    select,
    sent_by_ring,
    spliced_total,
    total,
    uncopied_out,
    zerocopy_total,
)
from copyscope.record.watched import BY_REFERENCE, SOCKMAP, TAKEN, added, dropped, urgent, volume

# Categories that more than one row of bpf/hooks.h can count; one of them is enough.
HOOKS_OF = {
    "copy_in": ("copy_in_call", "copy_in_call_around", "copy_in", "copy_in_check"),
    "mapped": ("map_pages",),
}
# and those that count pages of a file in `pin`
SPLICE_HOOKS = ("splice", "send_pages")
# and of kTLS, those of the plaintext
RECORD_HOOKS = ("copy_in_record", "pin_record")
IN_SOCKMAP = (
    "its sockets are in a sockmap: sk_msg copies in and passes on with the same functions, and copies out "
    "with one that is not hooked"
)
OF_REQUESTS = "the hooks follow the ubuf_info of MSG_ZEROCOPY, not io_uring's"


def function_identities(raw: Measured) -> list[Identity]:
    """Bytes of each copy, and the life of zero-copy sends."""
    if raw.functions is None or cut_short(raw.run):
        return []
    if raw.target is not None:
        return _of_program(raw, raw.functions)
    return _of_own(raw, raw.functions)


def _of_own(raw: Measured, functions: Functions) -> list[Identity]:
    segments = select(raw.run.segments, PHASE)
    if encrypts(raw):
        return [_plaintext(raw, functions, given(segments))]
    spliced = spliced_total(segments, "bytes")
    referenced = (zerocopy_total(segments, "bytes_sent") or 0) + (spliced or 0)
    copied_in = total(segments, "sender", "bytes") - referenced
    copied_out = total(segments, "receiver", "bytes") - uncopied_out(segments)
    copied_out += copied_to_relay(segments) or 0
    late = zerocopy_total(segments, "bytes_copied") or 0
    # What is sent a second time (a tail loss probe, for instance) is copied a second time.
    again = retransmitted_bytes(raw)
    pins = ("pin",) if spliced is None else SPLICE_HOOKS
    return [
        *_bytes(raw.hooks, functions, "copy_in", copied_in, "bytes sent without reference"),
        *_bytes(raw.hooks, functions, "pin", referenced, "bytes sent by reference", ids=pins),
        *_bytes(raw.hooks, functions, "deferred", late, "bytes of sends reported copied", tolerance=again),
        *_bytes(raw.hooks, functions, "copy_out", copied_out, "bytes received"),
        *_own_zerocopy(raw, functions),
        *_mapped(raw.hooks, functions, segments),
    ]


def _plaintext(raw: Measured, functions: Functions, expected: int) -> Identity:
    """kTLS pins the plaintext of a whole record and copies a part of one; pages of a file are neither."""
    said = "functions_plaintext", "copy_in and pin by function hooks = bytes that send calls were given"
    missing = [row for row in raw.hooks if row.id in RECORD_HOOKS and row.state != "attached"]
    if missing:
        return unchecked(*said, "bytes", "; ".join(f"{row.symbol}: {row.reason}" for row in missing))
    cells = [c for c in functions.cells if c.side == "sender" and c.category in ("copy_in", "pin")]
    return compare(*said, added(cells, "bytes"), expected, "bytes")


def _mapped(hooks: Iterable[Hook], functions: Functions, segments: Sequence[Segment]) -> list[Identity]:
    """What a receiver maps."""
    moved = mapped_total(segments, "bytes")
    what = "bytes that the calls said were mapped"
    return [] if moved is None else _bytes(hooks, functions, "mapped", moved, what)


def _of_program(raw: Measured, functions: Functions) -> list[Identity]:
    """The hooked functions are TCP's."""
    if any(row.protocol == SOCKMAP and PHASE in row.phase.split("+") for row in raw.volume):
        copies = ("copy_in", "bytes sent"), ("pin", "bytes sent"), ("copy_out", "bytes received")
        return [
            unchecked(f"functions_{copy}", f"{copy} by function hooks = {what}", "bytes", IN_SOCKMAP)
            for copy, what in copies
        ]
    segments = select(raw.run.segments, PHASE)
    sent, received, peeked = (
        [row for row in volume(raw.volume, direction, PHASE) if row.protocol == "tcp"]
        for direction in ("send", "receive", "peek")
    )
    received = [row for row in received if row.syscall not in TAKEN] + peeked
    zerocopy_bytes = added(sent, "zerocopy_bytes")
    pinned = added([row for row in sent if row.syscall in BY_REFERENCE], "bytes") + zerocopy_bytes
    thrown = [row for row in dropped(raw.volume, PHASE) if row.protocol == "tcp"]
    # tcp_recv_urg() copies them without any function that is hooked.
    beside = added(urgent(raw.volume, PHASE), "bytes")
    copied_in = added(sent, "bytes") - pinned
    copied_out = added(received, "bytes") - added(thrown, "bytes") - beside
    sending = edges(segments, "sent", largest(sent))
    receiving = edges(segments, "received", largest(received))
    looked = "bytes received or looked at" + ", but the urgent" * bool(beside)
    return [
        *_bytes(
            *(raw.hooks, functions, "copy_in", copied_in, "bytes sent without reference"), tolerance=sending
        ),
        *_bytes(raw.hooks, functions, "pin", pinned, "bytes sent by reference", tolerance=sending),
        *_bytes(raw.hooks, functions, "copy_out", copied_out, looked, tolerance=receiving),
        *(_program_zerocopy(raw, functions, zerocopy_bytes, sending) if zerocopy_bytes else []),
    ]


def _bytes(
    hooks: Iterable[Hook],
    functions: Functions,
    category: str,
    expected: int,
    what: str,
    *,
    tolerance: int = 0,
    ids: tuple[str, ...] = (),
) -> list[Identity]:
    """Bytes of one category, all contexts, against what the program says; none of what cannot be and was not.

    Of what was done on the time of others, no more is taken than what is missing: it may be somebody else's.
    """
    name, text = f"functions_{category}", f"{category} by function hooks = {what}"
    ids = ids or HOOKS_OF.get(category, (category,))
    wanted = [row for row in hooks if row.instrument == PHASE and row.id in ids]
    if not any(hook.state == "attached" for hook in wanted):
        if wanted and not expected and all(hook.state == "unused" for hook in wanted):
            return []
        reason = "; ".join(f"{hook.symbol}: {hook.reason}" for hook in wanted) or "no such hook"
        return [unchecked(name, text, "bytes", f"{category}: {reason}")]
    cells = [cell for cell in functions.cells if cell.category == category]
    counted = sum(cell.bytes for cell in cells if cell.side != "other")
    beside = sum(cell.bytes for cell in cells if cell.side == "other")
    counted += min(beside, max(0, expected - counted))
    return [compare(name, text, counted, expected, "bytes", tolerance=tolerance)]


def _own_zerocopy(raw: Measured, functions: Functions) -> list[Identity]:
    """The sends that the kernel gave back, against what the program was told."""
    segments = select(raw.run.segments, PHASE)
    completions = zerocopy_total(segments, "completions")
    if completions is None:
        return []
    ended = "functions_completions", "sends in the kernel's notifications = completions read"
    requests = sent_by_ring(segments)
    if functions.owners is None or requests:
        reason = OF_REQUESTS if requests else f"its hooks: {_why_none(raw.hooks)}"
        return [unchecked(*ended, "sends", reason)]
    return [compare(*ended, _kernel_zerocopy(functions, "sender")[1], completions, "sends")]


def _program_zerocopy(
    raw: Measured, functions: Functions, zerocopy_bytes: int, sending: int
) -> list[Identity]:
    """Whose memory was copied late, and which sends the kernel gave back, against the error queues."""
    segments, sent = select(raw.run.segments, PHASE), sends_of(raw, PHASE)
    owned = "functions_owner", "late copies of the target's memory = bytes of sends reported copied"
    ended = "functions_completions", "sends in the kernel's notifications = completions in the error queues"
    reason = None
    if functions.owners is None:
        reason = f"its hooks: {_why_none(raw.hooks)}"
    elif not sent.completions:
        reason = "no completion of a zero-copy send was seen"
    if reason is not None:
        return [unchecked(*owned, "bytes", reason), unchecked(*ended, "sends", reason)]
    open_sends = total(segments, "target", "open_zerocopy_sends")
    owned_bytes, notified = _kernel_zerocopy(functions, "target")
    seen = sent.completions + sent.unseen
    # Every thread may be inside one send, which the hooks count and the sockets do not yet, or the reverse.
    edge_sends = total(segments, "target", "edge_send_calls") + under_way(segments, 1)
    returned = compare(*ended, notified, seen, "sends", tolerance=open_sends + edge_sends)
    if sent.copied not in (0, sent.completions):
        mixed = "some sends were copied and some not: the flag says of which, not of how many bytes"
        return [unchecked(*owned, "bytes", mixed), returned]
    expected = zerocopy_bytes if sent.copied else 0
    # What is sent a second time is copied a second time.
    again = added(raw.connections, "retransmitted_bytes")
    tolerance = sending + again + open_sends * largest(volume(raw.volume, "send", PHASE))
    return [compare(*owned, owned_bytes, expected, "bytes", tolerance=tolerance), returned]


def _why_none(hooks: Iterable[Hook]) -> str:
    hook = find(hooks, HOOK)
    return (hook.reason if hook else None) or "none"


def _kernel_zerocopy(functions: Functions, side: str) -> tuple[int, int]:
    """(bytes of a side's memory that were copied late, its sends that were given back)."""
    owned = added([row for row in functions.owners or [] if row.owner_side == side], "bytes")
    ended = [row for row in functions.completions or [] if row.side == side]
    return owned, added(ended, "copied") + added(ended, "zerocopied")


def retransmitted_bytes(raw: Measured) -> int:
    """Bytes that the connections of the whole run sent again (TCP_INFO)."""
    threads = raw.reports.sender.threads
    return sum((thread.tcp_info or {}).get("bytes_retrans") or 0 for thread in threads)
