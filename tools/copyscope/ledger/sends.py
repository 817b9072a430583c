# SPDX-License-Identifier: GPL-2.0-only
"""Totals of sends: counted by our sender, at the sockets of a watched program, or by kernel hooks. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from copyscope.ledger.attribution import copied_in_call, copied_late
from copyscope.record.instruments import Hook
from copyscope.record.measured import Measured, RunSection, Segment
from copyscope.record.segments import (
    ABSENT,
    WORKS,
    byte_segments,
    bytes_sent,
    find_hook,
    hooks_of,
    measured,
    select,
    sender_sum,
    sent_by_ring,
    spliced_sum,
    target_sum,
    why_absent,
    why_no_ledger,
    zerocopy_sum,
)
from copyscope.record.watched import BY_REFERENCE, added, volume


@dataclass(frozen=True)
class SendTotals:
    """Totals of the sends in some segments. Pages of files, of pipes and of vmsplice(2) have no completions.

    calls: send calls that sent something; for pages the socket sees one call for each full pipe
    zerocopy, zerocopy_bytes: calls with MSG_ZEROCOPY or SEND_ZC, and the bytes of these calls
    pages: calls that sent pages which the socket did not copy in the call
    page_bytes: bytes of pages that the socket did not copy in the call
    copied_in_call, copied_in_call_bytes: zero-copy sends that the socket copied in the call, and their bytes
    completions: completed zero-copy sends
    copied: completed zero-copy sends that are flagged as copied
    copied_bytes: bytes of flagged sends; None if unknown, because the flag covers sends and not bytes
    notifications: notifications of the kernel, each for a range of sends
    unseen: completions that the watched program read before the hook did
    untold: io_uring sends without IORING_SEND_ZC_REPORT_USAGE, which do not report copies
    """

    bytes: int
    calls: int
    zerocopy: int
    zerocopy_bytes: int
    pages: int
    page_bytes: int
    completions: int
    copied: int
    copied_bytes: int | None
    notifications: int
    unseen: int = 0
    untold: int = 0
    copied_in_call: int = 0
    copied_in_call_bytes: int = 0

    @property
    def referenced_bytes(self) -> int:
        """Bytes that the socket took by reference, with zero-copy or as pages."""
        return self.zerocopy_bytes - self.copied_in_call_bytes + self.page_bytes

    @property
    def referenced_calls(self) -> int:
        """Number of calls whose bytes the socket took by reference."""
        return self.zerocopy - self.copied_in_call + self.pages

    @property
    def reported_bytes(self) -> int | None:
        """Bytes that the kernel reported as copied after the send call; None if it reported nothing.

        The flag covers whole sends, so the number of bytes is exact only if all sends have it, or none.
        """
        if self.copied_bytes is not None or not self.zerocopy:
            return self.copied_bytes or 0
        if not self.completions or self.untold > self.completions:
            return None
        # min(), because a completion may arrive between the readings of the two totals.
        reported_bytes = round(min(1.0, self.copied / self.completions) * self.zerocopy_bytes)
        return max(0, reported_bytes - self.copied_in_call_bytes)

    @property
    def uncopied_bytes(self) -> int:
        """Bytes sent by reference and not reported as copied: copied silently, or not at all."""
        return max(0, self.referenced_bytes - (self.reported_bytes or 0))


def send_totals(raw: Measured, phase: str | None = None) -> SendTotals:
    """Return the sends of one phase, or of all measured segments."""
    if raw.target is None:
        segments = raw.run.segments
        return own_send_totals(measured(segments) if phase is None else select(segments, phase))
    sent = volume(raw.volume, "send", phase)
    pages = [row for row in sent if row.syscall in BY_REFERENCE]
    messages = [row for row in sent if row.syscall not in BY_REFERENCE]
    segments = raw.run.segments if phase is None else select(raw.run.segments, phase)
    return SendTotals(
        bytes=added(sent, lambda row: row.bytes),
        calls=added(sent, lambda row: row.calls),
        zerocopy=added(sent, lambda row: row.zerocopy_calls),
        zerocopy_bytes=added(sent, lambda row: row.zerocopy_bytes),
        pages=added(pages, lambda row: row.calls - (row.copied_calls or 0)),
        page_bytes=added(pages, lambda row: row.referenced_bytes),
        copied_in_call=added(messages, lambda row: row.copied_calls or 0),
        copied_in_call_bytes=added(messages, lambda row: row.copied_bytes or 0),
        copied_bytes=None,
        completions=target_sum(segments, lambda target: target.completions),
        copied=target_sum(segments, lambda target: target.copied),
        notifications=target_sum(segments, lambda target: target.notifications),
        unseen=target_sum(segments, lambda target: target.unseen),
        untold=target_sum(segments, lambda target: target.untold),
    )


def own_send_totals(segments: list[Segment]) -> SendTotals:
    """Return the sends of our own sender, from its own totals."""
    refused_calls = sender_sum(segments, lambda sender: sender.eagain)
    refused_calls += zerocopy_sum(segments, lambda zerocopy: zerocopy.enobufs) or 0
    return SendTotals(
        bytes=bytes_sent(segments),
        calls=sender_sum(segments, lambda sender: sender.calls) - refused_calls,
        zerocopy=zerocopy_sum(segments, lambda zerocopy: zerocopy.sends) or 0,
        zerocopy_bytes=zerocopy_sum(segments, lambda zerocopy: zerocopy.bytes_sent) or 0,
        pages=spliced_sum(segments, lambda spliced: spliced.calls) or 0,
        page_bytes=spliced_sum(segments, lambda spliced: spliced.bytes) or 0,
        completions=zerocopy_sum(segments, lambda zerocopy: zerocopy.completions) or 0,
        copied=zerocopy_sum(segments, lambda zerocopy: zerocopy.copied) or 0,
        copied_bytes=zerocopy_sum(segments, lambda zerocopy: zerocopy.bytes_copied) or 0,
        notifications=zerocopy_sum(segments, lambda zerocopy: zerocopy.notifications) or 0,
    )


def why_no_completions(hooks: Iterable[Hook]) -> str | None:
    """Return why completions of a watched program were not read from its sockets, or None if they were."""
    hook = find_hook(hooks, "completion")
    if hook is None:
        return "no such hook"
    return f"{hook.symbol}: {hook.reason}" if hook.state in ABSENT else None


# Reason for unknown bytes of late copies.
PLACE_UNKNOWN = (
    "notifications of UDP sends report copies, but no sample shows whether the kernel copied in the send "
    "call or later"
)


def why_place_unknown(raw: Measured, sent: SendTotals) -> str | None:
    """Return why the place of the copies of zero-copy sends is unknown, or None if it is known.

    TCP's socket shows whether it copies in the call. UDP without a connection has no route at its socket, so
    only samples show whether a flagged send was copied in the call or later.

    sent: totals of the sends; those of our own traffic always use TCP
    """
    uses_udp = any(row.protocol == "udp" and row.zerocopy_calls for row in volume(raw.volume, "send"))
    if raw.target is None or not uses_udp or sent.copied <= sent.copied_in_call:
        return None
    return None if copied_late(raw) or copied_in_call(raw) else PLACE_UNKNOWN


# Names of byte hooks in the `bytes` rows of a record. Every hook with an id that begins with the name adds to
# the row.
SEND_HOOK = "send_bytes"
RECEIVE_HOOK = "receive_bytes"
COPY_OUT_HOOK = "copy_out_bytes"
RING_HOOK = "uring_bytes"


@dataclass(frozen=True)
class HookCounts:
    """Calls and bytes that the kernel counted at one hook.

    zerocopy_calls, zerocopy_bytes: None if the hook cannot see the zero-copy flag
    spliced_calls, spliced_bytes: pages of files or pipes; the socket sees one call for each full pipe
    """

    calls: int
    bytes: int
    zerocopy_calls: int | None
    zerocopy_bytes: int | None
    spliced_calls: int = 0
    spliced_bytes: int = 0


def hook_counts(raw: Measured, side: str, hook: str) -> HookCounts | None:
    """Return the kernel's counts of a byte hook in `byte_segments()`, or None if no such hook worked.

    A working hook without a row counted nothing, so its counts are 0.

    hook: name of the hook in the `bytes` rows of a record
    """
    if hook == SEND_HOOK and sends_by_ring(raw):
        return _request_counts(raw, side)
    return _counts_at(raw, side, hook)


def sends_by_ring(raw: Measured) -> bool:
    """Return True if our sender uses io_uring: then its requests are counted, not its calls."""
    return sent_by_ring(byte_segments(raw.run))


def _request_counts(raw: Measured, side: str) -> HookCounts | None:
    """Return the counts of io_uring requests.

    A request may pass the socket in parts, and only the end of the request shows if it was zero-copy. Bytes
    are counted where they enter the socket, if the kernel has a hook at that place.
    """
    requests = _counts_at(raw, side, RING_HOOK)
    socket_hook_works = any(
        hook.id == SEND_HOOK and hook.state in WORKS for hook in hooks_of(raw.hooks, side)
    )
    socket = _counts_at(raw, side, SEND_HOOK) if socket_hook_works else None
    return requests if requests is None or socket is None else replace(requests, bytes=socket.bytes)


def _counts_at(raw: Measured, side: str, hook_name: str) -> HookCounts | None:
    """Return the summed counts of the hooks whose id begins with `hook_name`, or None if no hook worked."""
    works = any(hook.id.startswith(hook_name) and hook.state in WORKS for hook in hooks_of(raw.hooks, side))
    if not byte_segments(raw.run) or not works:
        return None
    rows = [row for row in raw.bytes if row.side == side and row.hook == hook_name]
    sees_zerocopy = all(row.zerocopy_bytes is not None for row in rows)
    return HookCounts(
        calls=sum(row.calls for row in rows),
        bytes=sum(row.bytes for row in rows),
        zerocopy_calls=sum(row.zerocopy_calls or 0 for row in rows) if sees_zerocopy else None,
        zerocopy_bytes=sum(row.zerocopy_bytes or 0 for row in rows) if sees_zerocopy else None,
        spliced_calls=sum(row.spliced_calls or 0 for row in rows),
        spliced_bytes=sum(row.spliced_bytes or 0 for row in rows),
    )


def why_uncounted(raw: Measured, hook_name: str) -> str:
    """Return why the kernel has no counts for a byte hook, in the collector's words if it gave a reason."""
    if hook_name == SEND_HOOK and sends_by_ring(raw):
        hook_name = RING_HOOK
    side = "receiver" if hook_name in (RECEIVE_HOOK, COPY_OUT_HOOK) else "sender"
    hooks = [hook for hook in hooks_of(raw.hooks, side) if hook.id.startswith(hook_name)]
    if hooks and not any(hook.state in WORKS for hook in hooks):
        return f"{hooks[0].symbol}: {why_absent(hooks[0])}"
    if not byte_segments(raw.run):
        return why_no_ledger(raw.run) or "this run has no segment that counted bytes"
    return f"this run has no hook {hook_name}" if raw.hooks else "the collector gave no report"


def has_bytes_segments(run: RunSection) -> bool:
    """Return True if the kernel counted bytes in segments of their own, and not in the ledger segments."""
    return run.bytes_phase == "bytes"
