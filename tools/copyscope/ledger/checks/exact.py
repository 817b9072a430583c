# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the exact tier: copies counted by function hooks. Pure.

The checks compare the hooks' counts with those of the programs or their sockets. A watched program is not
paused, so the tolerance allows for traffic while the hooks start or stop counting: bytes moved at the start
and end of a segment, one call per thread, and zero-copy sends that have not completed.
"""

from collections.abc import Iterable, Sequence

from copyscope.ledger.checks import compare, unchecked
from copyscope.ledger.checks.target import bytes_in_transit, calls_under_way, largest_call
from copyscope.ledger.exact import PHASE, ZEROCOPY_LIFE_HOOK
from copyscope.ledger.flows import copied_to_relay, memory_bytes_sent, uses_ktls
from copyscope.ledger.sends import send_totals
from copyscope.record.derived import Identity
from copyscope.record.instruments import Functions, Hook
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    bytes_received,
    bytes_sent,
    ended_inside_segment,
    find_hook,
    mapped_sum,
    select,
    sent_by_ring,
    spliced_sum,
    target_sum,
    uncopied_out,
    zerocopy_sum,
)
from copyscope.record.watched import (
    SOCKMAP,
    WITHOUT_RECEIVE_CALL,
    added,
    discarded_rows,
    urgent_rows,
    volume,
)

# Category -> hooks of bpf/hooks.h that can count it, if several hooks can. A single attached hook is enough.
HOOKS_BY_CATEGORY = {
    "copy_in": ("copy_in_call", "copy_in_call_around", "copy_in", "copy_in_check"),
    "mapped": ("map_pages",),
}
# Hooks that count pages of a file in `pin`.
SPLICE_HOOKS = ("splice", "send_pages")
# Hooks that count the plaintext of kTLS.
RECORD_HOOKS = ("copy_in_record", "pin_record")
# Reasons why a check cannot be made.
IN_SOCKMAP = (
    "the program's sockets are in a sockmap: sk_msg copies in and redirects with the same functions, and no "
    "hook sees the copy out"
)
RING_REQUESTS = "the hooks follow the ubuf_info of MSG_ZEROCOPY, not that of io_uring"


def function_checks(raw: Measured) -> list[Identity]:
    """Return the checks of the function hooks: bytes of each kind of copy, and zero-copy sends."""
    if raw.functions is None or ended_inside_segment(raw.run):
        return []
    if raw.target is not None:
        return _target_checks(raw, raw.functions)
    return _own_checks(raw, raw.functions)


def _own_checks(raw: Measured, functions: Functions) -> list[Identity]:
    """Return the checks of function hooks against the counts of our own traffic programs."""
    segments = select(raw.run.segments, PHASE)
    if uses_ktls(raw):
        return [_plaintext_check(raw, functions, memory_bytes_sent(segments))]
    spliced_bytes = spliced_sum(segments, lambda spliced: spliced.bytes)
    referenced = (zerocopy_sum(segments, lambda zerocopy: zerocopy.bytes_sent) or 0) + (spliced_bytes or 0)
    copied_in = bytes_sent(segments) - referenced
    copied_out = bytes_received(segments) - uncopied_out(segments) + (copied_to_relay(segments) or 0)
    late = zerocopy_sum(segments, lambda zerocopy: zerocopy.bytes_copied) or 0
    # The tolerance covers retransmissions, because the kernel copies a retransmitted packet (after a tail
    # loss probe, for instance) a second time.
    resent = retransmitted_bytes(raw)
    pin_hooks = ("pin",) if spliced_bytes is None else SPLICE_HOOKS
    return [
        *_byte_check(raw.hooks, functions, "copy_in", copied_in, "bytes sent without reference"),
        *_byte_check(raw.hooks, functions, "pin", referenced, "bytes sent by reference", hook_ids=pin_hooks),
        *_byte_check(
            raw.hooks,
            functions,
            "deferred",
            late,
            "bytes of sends that were reported as copied",
            tolerance=resent,
        ),
        *_byte_check(raw.hooks, functions, "copy_out", copied_out, "bytes received"),
        *_own_completions_check(raw, functions),
        *_mapped_check(raw.hooks, functions, segments),
    ]


def _plaintext_check(raw: Measured, functions: Functions, expected_bytes: int) -> Identity:
    """Compare the plaintext that kTLS pinned or copied with the bytes that send calls passed from memory.

    kTLS pins the plaintext of a whole record and copies that of a partial one. Pages of a file are neither
    pinned nor copied.
    """
    name, claim = "functions_plaintext", "copy_in and pin by function hooks = bytes passed to send calls"
    missing = [hook for hook in raw.hooks if hook.id in RECORD_HOOKS and hook.state != "attached"]
    if missing:
        reason = "; ".join(f"{hook.symbol}: {hook.reason}" for hook in missing)
        return unchecked(name, claim, "bytes", reason)
    cells = [c for c in functions.cells if c.side == "sender" and c.category in ("copy_in", "pin")]
    return compare(name, claim, added(cells, lambda cell: cell.bytes), expected_bytes, "bytes")


def _mapped_check(hooks: Iterable[Hook], functions: Functions, segments: Sequence[Segment]) -> list[Identity]:
    """Return the check of mapped bytes against the hooks' count, or [] if our receiver does not map pages."""
    mapped_bytes = mapped_sum(segments, lambda mapped: mapped.bytes)
    if mapped_bytes is None:
        return []
    return _byte_check(hooks, functions, "mapped", mapped_bytes, "bytes that the calls reported as mapped")


def _target_checks(raw: Measured, functions: Functions) -> list[Identity]:
    """Return the checks for a watched program: only for TCP, because the hooked functions are TCP's."""
    if any(row.protocol == SOCKMAP and PHASE in row.phase.split("+") for row in raw.volume):
        copies = ("copy_in", "bytes sent"), ("pin", "bytes sent"), ("copy_out", "bytes received")
        return [
            unchecked(f"functions_{copy}", f"{copy} by function hooks = {counted}", "bytes", IN_SOCKMAP)
            for copy, counted in copies
        ]
    segments = select(raw.run.segments, PHASE)
    sent, received, peeked = (
        [row for row in volume(raw.volume, direction, PHASE) if row.protocol == "tcp"]
        for direction in ("send", "receive", "peek")
    )
    received = [row for row in received if row.syscall not in WITHOUT_RECEIVE_CALL] + peeked
    zerocopy_bytes = added(sent, lambda row: row.zerocopy_bytes)
    pinned = added(sent, lambda row: row.referenced_bytes)
    copied_in = added(sent, lambda row: row.bytes) - pinned
    discarded = [row for row in discarded_rows(raw.volume, PHASE) if row.protocol == "tcp"]
    # No hooked function copies urgent data (tcp_recv_urg()).
    urgent_bytes = added(urgent_rows(raw.volume, PHASE), lambda row: row.bytes)
    copied_out = added(received, lambda row: row.bytes) - added(discarded, lambda row: row.bytes)
    received_claim = "bytes received or peeked at"
    if urgent_bytes:
        received_claim = f"{received_claim}, without urgent bytes"
    sending = bytes_in_transit(segments, "sent", largest_call(sent))
    receiving = bytes_in_transit(segments, "received", largest_call(received))
    return [
        *_byte_check(
            *(raw.hooks, functions, "copy_in", copied_in, "bytes sent without reference"), tolerance=sending
        ),
        *_byte_check(raw.hooks, functions, "pin", pinned, "bytes sent by reference", tolerance=sending),
        *_byte_check(
            *(raw.hooks, functions, "copy_out", copied_out - urgent_bytes, received_claim),
            tolerance=receiving,
        ),
        *(_target_zerocopy_checks(raw, functions, zerocopy_bytes, sending) if zerocopy_bytes else []),
    ]


def _byte_check(
    hooks: Iterable[Hook],
    functions: Functions,
    category: str,
    expected_bytes: int,
    expected_claim: str,
    *,
    tolerance: int = 0,
    hook_ids: tuple[str, ...] = (),
) -> list[Identity]:
    """Compare the bytes of one category, in all contexts, with the bytes that the program counted.

    Copies made in other tasks' time may belong to another program, so they are added only to make up for
    missing bytes. Return [] if nothing was expected and the kernel cannot make such copies.

    expected_claim: description of the program's count
    hook_ids: hooks that count the category, at least one attached; empty: the hooks in HOOKS_BY_CATEGORY
    """
    name, claim = f"functions_{category}", f"{category} by function hooks = {expected_claim}"
    hook_ids = hook_ids or HOOKS_BY_CATEGORY.get(category, (category,))
    needed = [hook for hook in hooks if hook.instrument == PHASE and hook.id in hook_ids]
    if not any(hook.state == "attached" for hook in needed):
        if needed and not expected_bytes and all(hook.state == "unused" for hook in needed):
            return []
        reason = "; ".join(f"{hook.symbol}: {hook.reason}" for hook in needed) or "no such hook"
        return [unchecked(name, claim, "bytes", f"{category}: {reason}")]
    cells = [cell for cell in functions.cells if cell.category == category]
    hooked_bytes = sum(cell.bytes for cell in cells if cell.side != "other")
    other_bytes = sum(cell.bytes for cell in cells if cell.side == "other")
    hooked_bytes += min(other_bytes, max(0, expected_bytes - hooked_bytes))
    return [compare(name, claim, hooked_bytes, expected_bytes, "bytes", tolerance=tolerance)]


def _own_completions_check(raw: Measured, functions: Functions) -> list[Identity]:
    """Compare completed sends in the kernel's notifications with the completions that our sender read."""
    segments = select(raw.run.segments, PHASE)
    completions = zerocopy_sum(segments, lambda zerocopy: zerocopy.completions)
    if completions is None:
        return []
    name, claim = "functions_completions", "sends in the kernel's notifications = completions read"
    uses_ring = sent_by_ring(segments)
    if functions.owners is None or uses_ring:
        reason = RING_REQUESTS if uses_ring else _why_no_life(raw.hooks)
        return [unchecked(name, claim, "sends", reason)]
    return [compare(name, claim, _notified_sends(functions, "sender"), completions, "sends")]


def _target_zerocopy_checks(
    raw: Measured, functions: Functions, zerocopy_bytes: int, sending_bytes: int
) -> list[Identity]:
    """Compare the hooks' late copies and completed sends with the error queues of a program's sockets.

    zerocopy_bytes: bytes sent with zero-copy
    sending_bytes: bytes that were in transit at the start and end of segments
    """
    segments, sent = select(raw.run.segments, PHASE), send_totals(raw, PHASE)
    owner = (
        "functions_owner",
        "late copies of the target's memory = bytes of sends that were reported as copied",
    )
    completed = (
        "functions_completions",
        "sends in the kernel's notifications = completions in the error queues",
    )
    reason = None
    if functions.owners is None:
        reason = _why_no_life(raw.hooks)
    elif not sent.completions:
        reason = "no completion of a zero-copy send was seen"
    if reason is not None:
        return [unchecked(*owner, "bytes", reason), unchecked(*completed, "sends", reason)]
    open_sends = target_sum(segments, lambda target: target.open_zerocopy_sends)
    # At both ends of a segment each thread may be in a send that only the hooks or only the sockets counted.
    edge_sends = target_sum(segments, lambda target: target.edge_send_calls) + calls_under_way(segments, 1)
    completions_check = compare(
        *completed,
        _notified_sends(functions, "target"),
        sent.completions + sent.unseen,
        "sends",
        tolerance=open_sends + edge_sends,
    )
    if sent.copied not in (0, sent.completions):
        mixed = "only some sends were copied: the flag tells which sends, not how many bytes"
        return [unchecked(*owner, "bytes", mixed), completions_check]
    owners = [row for row in functions.owners or [] if row.owner_side == "target"]
    # A retransmission is copied a second time.
    resent = added(raw.connections, lambda row: row.retransmitted_bytes)
    largest_send = largest_call(volume(raw.volume, "send", PHASE))
    owner_check = compare(
        *owner,
        added(owners, lambda row: row.bytes),
        zerocopy_bytes if sent.copied else 0,
        "bytes",
        tolerance=sending_bytes + resent + open_sends * largest_send,
    )
    return [owner_check, completions_check]


def _why_no_life(hooks: Iterable[Hook]) -> str:
    """Return why hooks could not follow zero-copy sends to their completion."""
    hook = find_hook(hooks, ZEROCOPY_LIFE_HOOK)
    return f"hooks of zero-copy sends: {(hook.reason if hook else None) or 'none'}"


def _notified_sends(functions: Functions, side: str) -> int:
    """Return the number of a side's sends that the kernel's notifications report, copied or not."""
    rows = [row for row in functions.completions or [] if row.side == side]
    return added(rows, lambda row: row.copied) + added(rows, lambda row: row.zerocopied)


def retransmitted_bytes(raw: Measured) -> int:
    """Return the bytes that the connections of our sender retransmitted in the whole run (TCP_INFO)."""
    threads = raw.reports.sender.threads
    return sum((thread.tcp_info or {}).get("bytes_retrans") or 0 for thread in threads)
