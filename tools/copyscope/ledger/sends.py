"""What was sent, how, and what came back: by our sender, by a program's sockets, by byte hooks. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from copyscope.record.hooks import ABSENT, WORKS, find, hooks_of, why_absent
from copyscope.record.instruments import Hook
from copyscope.record.measured import Measured, Run, Segment
from copyscope.record.segments import (
    byte_segments,
    measured,
    select,
    sent_by_ring,
    spliced_total,
    total,
    why_no_ledger,
    zerocopy_total,
)
from copyscope.record.watched import BY_REFERENCE, added, volume


@dataclass(frozen=True)
class Sends:
    """Of some segments. Pages are those of files, pipes and vmsplice(2), which nobody gives back.

    calls: that took something; of pages the socket sees one for each pipe full of them
    completions: zero-copy sends that were given back, of these `copied` with the flag
    copied_bytes: None: the flag is of sends, nobody counts their bytes
    untold: of io_uring, which says whether it copied only where a send asks for it
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

    @property
    def referenced_bytes(self) -> int:
        """With zero-copy or as pages. Of TCP the kernel takes them by reference whatever the device can do
        (sk_setup_caps(), net/core/sock.c)."""
        return self.zerocopy_bytes + self.page_bytes

    @property
    def reported_bytes(self) -> int | None:
        """Copied later than the call, as the kernel reported; None: no report says it.

        The flag is per send: bytes follow exactly where all sends or none carried it.
        """
        if self.copied_bytes is not None or not self.zerocopy:
            return self.copied_bytes or 0
        if not self.completions or self.untold > self.completions:
            return None
        # The two totals are read one after the other: a completion may come in between.
        return round(min(1.0, self.copied / self.completions) * self.zerocopy_bytes)

    @property
    def uncopied_bytes(self) -> int:
        """Referenced, and no completion reports them as copied: silent copies, and none at all."""
        return max(0, self.referenced_bytes - (self.reported_bytes or 0))


def sends_of(raw: Measured, phase: str | None = None) -> Sends:
    """Of one phase, or of all that was measured."""
    if raw.target is None:
        segments = raw.run.segments
        return own_sends(measured(segments) if phase is None else select(segments, phase))
    sent = volume(raw.volume, "send", phase)
    pages = [row for row in sent if row.syscall in BY_REFERENCE]
    segments = raw.run.segments if phase is None else select(raw.run.segments, phase)
    return Sends(
        bytes=added(sent, "bytes"),
        calls=added(sent, "calls"),
        zerocopy=added(sent, "zerocopy_calls"),
        zerocopy_bytes=added(sent, "zerocopy_bytes"),
        pages=added(pages, "calls"),
        page_bytes=added(pages, "bytes"),
        copied_bytes=None,
        **{
            key: total(segments, "target", key)
            for key in ("completions", "copied", "notifications", "unseen", "untold")
        },
    )


def own_sends(segments: list[Segment]) -> Sends:
    """By the totals of our own sender."""
    pages, refused = spliced_total(segments, "calls") or 0, zerocopy_total(segments, "enobufs") or 0
    return Sends(
        bytes=total(segments, "sender", "bytes"),
        calls=total(segments, "sender", "calls") - total(segments, "sender", "eagain") - refused,
        zerocopy=zerocopy_total(segments, "sends") or 0,
        zerocopy_bytes=zerocopy_total(segments, "bytes_sent") or 0,
        pages=pages,
        page_bytes=spliced_total(segments, "bytes") or 0,
        completions=zerocopy_total(segments, "completions") or 0,
        copied=zerocopy_total(segments, "copied") or 0,
        copied_bytes=zerocopy_total(segments, "bytes_copied") or 0,
        notifications=zerocopy_total(segments, "notifications") or 0,
    )


def why_no_completions(hooks: Iterable[Hook]) -> str | None:
    """Why the error queues of a watched program's sockets were not looked at; None where they were."""
    hook = find(hooks, "completion")
    if hook is None:
        return "no such hook"
    return f"{hook.symbol}: {hook.reason}" if hook.state in ABSENT else None


# what counts bytes, by the names of the collector's `bytes` rows; a hook whose id begins so fills the row
SEND_HOOK = "send_bytes"
RECEIVE_HOOK = "receive_bytes"
COPY_OUT_HOOK = "copy_out_bytes"
RING_HOOK = "uring_bytes"


@dataclass(frozen=True)
class Counted:
    """What the kernel counted at one place, by the names of the collector's rows.

    Zero-copy is None where the hook cannot see the flag.

    Spliced are pages of a file or of a pipe; the socket counts a call for each pipe full of them.
    """

    calls: int
    bytes: int
    zerocopy_calls: int | None
    zerocopy_bytes: int | None
    spliced_calls: int = 0
    spliced_bytes: int = 0


COUNTS = tuple(field.name for field in fields(Counted))


def counted(raw: Measured, side: str, hook: str) -> Counted | None:
    """The kernel's count at a hook; None when no hook for it worked: then the row's zeros mean nothing.

    A working hook without a row saw nothing: that is a true zero. It is of `byte_segments()`.
    """
    if hook == SEND_HOOK and uses_ring(raw):
        return _counted_by_request(raw, side)
    return _counted_at(raw, side, hook)


def uses_ring(raw: Measured) -> bool:
    """Whether the requests of an io_uring are what is counted."""
    return sent_by_ring(byte_segments(raw.run))


def _counted_by_request(raw: Measured, side: str) -> Counted | None:
    """A request may pass the socket in parts, and there is no telling whether it copies: its end says both.

    Its bytes are those that the socket took, where the kernel has a hook for them.
    """
    requests = _counted_at(raw, side, RING_HOOK)
    socket = _counted_at(raw, side, SEND_HOOK) if _works(raw, side, SEND_HOOK, exactly=True) else None
    return requests if requests is None or socket is None else replace(requests, bytes=socket.bytes)


def _works(raw: Measured, side: str, hook: str, *, exactly: bool = False) -> bool:
    rows = [h for h in hooks_of(raw.hooks, side) if (h.id == hook if exactly else h.id.startswith(hook))]
    return any(h.state in WORKS for h in rows)


def _counted_at(raw: Measured, side: str, hook: str) -> Counted | None:
    if not byte_segments(raw.run) or not _works(raw, side, hook):
        return None
    rows = [r for r in raw.bytes if r.side == side and r.hook == hook]
    sums = {key: sum(getattr(row, key) or 0 for row in rows) for key in COUNTS}
    blind = any(row.zerocopy_bytes is None for row in rows)
    return Counted(**sums | (dict.fromkeys(("zerocopy_calls", "zerocopy_bytes")) if blind else {}))


def why_uncounted(raw: Measured, hook: str) -> str:
    """Why the kernel counted nothing there, in the collector's words where it has any."""
    if hook == SEND_HOOK and uses_ring(raw):
        hook = RING_HOOK
    side = "receiver" if hook in (RECEIVE_HOOK, COPY_OUT_HOOK) else "sender"
    rows = [row for row in hooks_of(raw.hooks, side) if row.id.startswith(hook)]
    if rows and not any(row.state in WORKS for row in rows):
        return f"{rows[0].symbol}: {why_absent(rows[0])}"
    if not byte_segments(raw.run):
        return why_no_ledger(raw.run) or "no bytes segment in this run"
    return f"{hook}: not among the hooks of this run" if raw.hooks else "the collector gave no report"


def counted_apart(run: Run) -> bool:
    """Whether the ledger's own segments have no count of bytes but the programs'."""
    return run.bytes_phase == "bytes"
