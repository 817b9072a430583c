"""How many bytes and calls each account moved in the ledger segments, and who says so.

Kernel counts come from the collector's hooks, the program's own from its totals. Where the hooks have
segments of their own, both count there, and the identities compare them; the ledger's segments, which are
others, then have the program's count. Where the hooks are in the ledger's segments, each account takes its
bytes from one source only, so that the identities compare sources and not a number with itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from msgspec import UNSET

from copyscope.record.hooks import WORKS, hooks_of, why_absent
from copyscope.record.raw import RawRun, Run, Segment, Topology
from copyscope.record.segments import (
    byte_segments,
    mapped_total,
    select,
    sent_by_ring,
    spliced_total,
    total,
    uncopied_out,
    why_no_ledger,
    zerocopy_total,
)

# what counts bytes, by the names of the collector's `bytes` rows; a hook whose id begins so fills the row
SEND_HOOK = "send_bytes"
RECEIVE_HOOK = "receive_bytes"
COPY_OUT_HOOK = "copy_out_bytes"
RING_HOOK = "uring_bytes"
# No core copies faster than this (first-level cache bandwidth of current CPUs, bytes per ns). Samples of a
# silent copy that would need more speed belong to headers and strays, not to the payload.
FASTEST_COPY_BYTES_PER_NS = 100.0
# who counted: the traffic program what its calls returned, or a hook in the kernel
PROGRAM = "program"
KERNEL = "kernel"
NO_SILENT_CALLS = "no hook counts these copies; their time is sampled"
BY_RECORD = (
    "kTLS pins the plaintext of whole records and copies parts of one: function hooks tell which bytes"
)
NO_RECORDS = "a send was short: where its records end is not known"
NO_CLAIM = "the sender gave no report: whether it gathers is not known"


@dataclass(frozen=True)
class Flow:
    """What passed through an account: bytes and calls, each with a method or a reason why it is unknown."""

    bytes: int | None = None
    bytes_method: str | None = None
    calls: int | None = None
    bytes_reason: str | None = None
    calls_reason: str | None = None
    bytes_by: str = PROGRAM
    calls_method: str = "exact"


def unknown(reason: str) -> Flow:
    """Neither bytes nor calls are known."""
    return Flow(bytes_reason=reason, calls_reason=reason)


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


NOTHING = Flow(0, "exact", 0)
COUNTS = tuple(field.name for field in fields(Counted))


def counted(raw: RawRun, side: str, hook: str) -> Counted | None:
    """The kernel's count at a hook; None when no hook for it worked: then the row's zeros mean nothing.

    A working hook without a row saw nothing: that is a true zero. It is of `byte_segments()`.
    """
    if hook == SEND_HOOK and uses_ring(raw):
        return _counted_by_request(raw, side)
    return _counted_at(raw, side, hook)


def uses_ring(raw: RawRun) -> bool:
    """Whether the requests of an io_uring are what is counted."""
    return sent_by_ring(byte_segments(raw.run))


def _counted_by_request(raw: RawRun, side: str) -> Counted | None:
    """A request may pass the socket in parts, and there is no telling whether it copies: its end says both.

    Its bytes are those that the socket took, where the kernel has a hook for them.
    """
    requests = _counted_at(raw, side, RING_HOOK)
    socket = _counted_at(raw, side, SEND_HOOK) if _works(raw, side, SEND_HOOK, exactly=True) else None
    return requests if requests is None or socket is None else replace(requests, bytes=socket.bytes)


def _works(raw: RawRun, side: str, hook: str, *, exactly: bool = False) -> bool:
    rows = [h for h in hooks_of(raw.hooks, side) if (h.id == hook if exactly else h.id.startswith(hook))]
    return any(h.state in WORKS for h in rows)


def _counted_at(raw: RawRun, side: str, hook: str) -> Counted | None:
    if not byte_segments(raw.run) or not _works(raw, side, hook):
        return None
    rows = [r for r in raw.bytes if r.side == side and r.hook == hook]
    sums = {key: sum(getattr(row, key) or 0 for row in rows) for key in COUNTS}
    blind = any(row.zerocopy_bytes is None for row in rows)
    return Counted(**sums | (dict.fromkeys(("zerocopy_calls", "zerocopy_bytes")) if blind else {}))


def why_uncounted(raw: RawRun, hook: str) -> str:
    """Why the kernel counted nothing there, in the collector's words where it has any."""
    if hook == SEND_HOOK and uses_ring(raw):
        hook = RING_HOOK
    side = "receiver" if hook in (RECEIVE_HOOK, COPY_OUT_HOOK) else "sender"
    rows = [row for row in hooks_of(raw.hooks, side) if row.id.startswith(hook)]
    if rows and not any(row.state in WORKS for row in rows):
        return f"{rows[0].symbol}: {why_absent(rows[0])}"
    if not byte_segments(raw.run):
        return why_no_ledger(raw.run) or "no segment of the arm bytes in this run"
    return f"{hook}: not among the hooks of this run" if raw.hooks else "the collector gave no report"


def counted_apart(run: Run) -> bool:
    """Whether the ledger's own segments have no count of bytes but the programs'."""
    return run.bytes_arm == "bytes"


def gathers(raw: RawRun) -> bool | None:
    """Whether the strategy copies in the program first; None when it could not say so any more."""
    claim = raw.traffic.sender.claim
    if claim is not None:
        return bool(claim.get("user_copies"))
    return True if total(select(raw.run.segments, "ledger"), "sender", "gather_timed_messages") else None


def referenced_bytes(segments: Sequence[Segment]) -> int:
    """Bytes that the program sent with zero-copy or as pages. Of TCP the kernel takes them by reference
    whatever the device can do (sk_setup_caps(), net/core/sock.c)."""
    return (zerocopy_total(segments, "bytes_sent") or 0) + (spliced_total(segments, "bytes") or 0)


def deferred_bytes(segments: Sequence[Segment]) -> int:
    """Bytes of zero-copy sends that the kernel reported as copied later than the call."""
    return zerocopy_total(segments, "bytes_copied") or 0


def uncopied_bytes(segments: Sequence[Segment]) -> int:
    """Bytes that were referenced and that no completion reports as copied: silent copies, and none at all."""
    return max(0, referenced_bytes(segments) - deferred_bytes(segments))


def silent_bytes(path: Topology, segments: Sequence[Segment], silent_high_ns: float) -> int:
    """Bytes of zero-copy sends that were copied although their completion says they were not.

    Certain on a path with native XDP (the driver moves every packet into its own page); elsewhere only when
    the time sampled in silent copies, at most `silent_high_ns`, could have moved that many bytes.
    """
    uncopied = uncopied_bytes(segments)
    plausible = silent_high_ns * FASTEST_COPY_BYTES_PER_NS >= uncopied
    return uncopied if path.xdp == "native" or plausible else 0


def zero_copy_bytes(raw: RawRun, silent: int) -> int:
    """Bytes that were referenced and never copied on the way that this record sees."""
    return max(0, uncopied_bytes(select(raw.run.segments, "ledger")) - silent)


def copied_in(segments: Sequence[Segment]) -> int:
    """Bytes that the send calls copied, as the program added up what they returned."""
    return total(segments, "sender", "bytes") - referenced_bytes(segments)


def kernel_copied_in(kernel: Counted) -> int | None:
    """The same by the kernel's count, of its own segments; None where it does not know which were copied."""
    if kernel.zerocopy_bytes is None:
        return None
    return kernel.bytes - kernel.zerocopy_bytes - kernel.spliced_bytes


def accepted_sends(segments: Sequence[Segment]) -> int:
    """Send calls that took something, without those that give pages, which pass the socket in pieces."""
    refused = total(segments, "sender", "eagain") + (zerocopy_total(segments, "enobufs") or 0)
    return total(segments, "sender", "calls") - refused - (spliced_total(segments, "calls") or 0)


def flows(raw: RawRun, silent_high_ns: float) -> dict[str, Flow]:
    """Bytes and calls of the accounts in the ledger segments: `mapped` only where the receiver maps."""
    segments, path = select(raw.run.segments, "ledger"), raw.topology
    absent = why_no_ledger(raw.run)
    if absent:
        accounts = ("gather", "copy_in", "pin", "deferred", "silent", "completion", "copy_out")
        found = dict.fromkeys(accounts, unknown(absent))
        return found | ({"gather": NOTHING} if gathers(raw) is False else {})
    copied = zerocopy_total(segments, "copied") or 0
    referenced = (zerocopy_total(segments, "sends") or 0) + (spliced_total(segments, "calls") or 0)
    if encrypts(raw):
        return _encrypted(raw, segments, silent_high_ns)
    mapped = mapped_total(segments, "bytes")
    pages = {} if mapped is None else {"mapped": Flow(mapped, "exact", mapped_total(segments, "calls"))}
    return pages | {
        "gather": _gather(raw, segments),
        "copy_in": _copy_in(raw, segments),
        "pin": Flow(referenced_bytes(segments), "exact", referenced),
        "deferred": Flow(deferred_bytes(segments), "reported", copied),
        "silent": _silent(path, segments, silent_high_ns),
        # completions move no payload; their number is what they cost
        "completion": Flow(0, "exact", zerocopy_total(segments, "completions") or 0),
        "copy_out": _copy_out(raw, segments),
    }


def encrypts(raw: RawRun) -> bool:
    """Whether the kernel encrypts what this run sends."""
    return raw.workload.tls not in (UNSET, "off")


def tls_records(segments: Sequence[Segment]) -> int | None:
    """How many records they sent; None when it is not known."""
    found = [s.sender.tls_records for s in segments]
    known = [records for records in found if isinstance(records, int)]
    return sum(known) if len(known) == len(found) else None


def _encrypted(raw: RawRun, segments: Sequence[Segment], silent_high_ns: float) -> dict[str, Flow]:
    """With kTLS: all that is sent passes the cipher, nothing is referred to when it has, nor completes."""
    sent, received = total(segments, "sender", "bytes"), total(segments, "receiver", "bytes")
    records = tls_records(segments)
    why = None if records is not None else NO_RECORDS
    return {
        "gather": _gather(raw, segments),
        "copy_in": _by_record(raw, "copy_in", segments),
        "pin": _by_record(raw, "pin", segments),
        "encrypt": Flow(sent, "exact", records, calls_reason=why),
        "deferred": NOTHING,
        "silent": _none_referred(silent_high_ns),
        "completion": NOTHING,
        "decrypt": Flow(received, "exact", records, calls_reason=why),
        "copy_out": _opened_copied_out(raw, received),
    }


def _by_record(raw: RawRun, account: str, segments: Sequence[Segment]) -> Flow:
    """How much of the plaintext was copied, or pinned: as much of all as where functions were hooked."""
    hooked = given(select(raw.run.segments, "functions"))
    works = any(hook.id == f"{account}_record" and hook.state in WORKS for hook in raw.hooks)
    if raw.functions is None or not works:
        return unknown(BY_RECORD)
    cells = [cell for cell in raw.functions.cells if cell.category == account and cell.side == "sender"]
    scale = given(segments) / hooked if hooked else 0
    pages = (spliced_total(segments, "bytes") or 0) if account == "pin" else 0
    bytes_, calls = (round(sum(getattr(cell, key) for cell in cells) * scale) for key in ("bytes", "calls"))
    return Flow(bytes_ + pages, "scaled", calls, bytes_by=KERNEL, calls_method="scaled")


def given(segments: Sequence[Segment]) -> int:
    """Bytes that were in the sender's memory, and no pages of a file."""
    return total(segments, "sender", "bytes") - (spliced_total(segments, "bytes") or 0)


def _opened_copied_out(raw: RawRun, received: int) -> Flow:
    """What was not decrypted into the receiver's memory: as much of all as where it was counted."""
    copied, taken = (counted(raw, "receiver", hook) for hook in (COPY_OUT_HOOK, RECEIVE_HOOK))
    if copied is None or taken is None or not taken.bytes:
        return unknown(why_uncounted(raw, COPY_OUT_HOOK if copied is None else RECEIVE_HOOK))
    if not counted_apart(raw.run):
        return Flow(copied.bytes, "exact", copied.calls, bytes_by=KERNEL)
    bytes_, calls = (round(count * received / taken.bytes) for count in (copied.bytes, copied.calls))
    return Flow(bytes_, "scaled", calls, bytes_by=KERNEL, calls_method="scaled")


def _gather(raw: RawRun, segments: Sequence[Segment]) -> Flow:
    copies = gathers(raw)
    if copies is None:
        return unknown(NO_CLAIM)
    if not copies:
        return NOTHING
    messages = total(segments, "sender", "messages")
    return Flow(messages * raw.workload.size_bytes, "exact", messages)


def _copy_in(raw: RawRun, segments: Sequence[Segment]) -> Flow:
    kernel = counted(raw, "sender", SEND_HOOK)
    copied = copied_in(segments)
    if kernel is None or kernel.zerocopy_bytes is None or kernel.zerocopy_calls is None:
        blind = "the hook does not see which calls are zero-copy"
        why = why_uncounted(raw, SEND_HOOK) if kernel is None else blind
        return Flow(copied, "derived", calls_reason=why)
    if counted_apart(raw.run):
        return Flow(copied, "exact", accepted_sends(segments) - (zerocopy_total(segments, "sends") or 0))
    calls = kernel.calls - kernel.zerocopy_calls - kernel.spliced_calls
    return Flow(kernel_copied_in(kernel), "exact", calls, bytes_by=KERNEL)


def _silent(path: Topology, segments: Sequence[Segment], silent_high_ns: float) -> Flow:
    if referenced_bytes(segments):
        return Flow(silent_bytes(path, segments, silent_high_ns), "derived", calls_reason=NO_SILENT_CALLS)
    return _none_referred(silent_high_ns)


def _none_referred(silent_high_ns: float) -> Flow:
    """Nothing that went by reference; copies of something else may have been sampled."""
    return unknown(NO_SILENT_CALLS) if silent_high_ns else Flow(0, "derived", 0)


def _copy_out(raw: RawRun, segments: Sequence[Segment]) -> Flow:
    copied = total(segments, "receiver", "bytes") - uncopied_out(segments)
    kernel = counted(raw, "receiver", COPY_OUT_HOOK)
    if kernel is None:
        return Flow(copied, "derived", calls_reason=why_uncounted(raw, COPY_OUT_HOOK))
    if not counted_apart(raw.run):
        return Flow(kernel.bytes, "exact", kernel.calls, bytes_by=KERNEL)
    if not copied:
        return NOTHING
    if not kernel.bytes:
        return Flow(copied, "exact", calls_reason="nothing was copied out in the segments that count it")
    # one for each packet buffer, which no program sees: as many for each byte as where they were counted
    return Flow(copied, "exact", round(copied * kernel.calls / kernel.bytes), calls_method="scaled")
