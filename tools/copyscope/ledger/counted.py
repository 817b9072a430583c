"""What the kernel counted of traffic of our own, at the hooks that count bytes. Pure."""

from dataclasses import dataclass, fields, replace

from copyscope.record.hooks import WORKS, hooks_of, why_absent
from copyscope.record.measured import Measured, Run
from copyscope.record.segments import byte_segments, sent_by_ring, why_no_ledger

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
