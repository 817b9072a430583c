"""How many bytes and calls each account moved in the ledger segments, and who says so.

Kernel counts come from the collector's hooks, the program's own from its totals. Where the hooks have
segments of their own, both count there, and the identities compare them; the ledger's segments, which are
others, then have the program's count. Where the hooks are in the ledger's segments, each account takes its
bytes from one source only, so that the identities compare sources and not a number with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from copyscope.ledger.zerocopy_cause import device_without_gather
from copyscope.record.hooks import WORKS, why_absent
from copyscope.record.segments import (
    Record,
    Segment,
    byte_segments,
    counted_apart,
    select,
    spliced_total,
    total,
    why_no_bytes,
    why_no_ledger,
    zerocopy_total,
)

# what counts bytes, by the names of the collector's `bytes` rows; a hook whose id begins so fills the row
SEND_HOOK = "send_bytes"
RECEIVE_HOOK = "receive_bytes"
COPY_OUT_HOOK = "copy_out_bytes"
# a hook is attached in its own segments and available in the pauses between them

# No core copies faster than this (first-level cache bandwidth of current CPUs, bytes per ns). Samples of a
# silent copy that would need more speed belong to headers and strays, not to the payload.
FASTEST_COPY_BYTES_PER_NS = 100.0
# who counted: the traffic program what its calls returned, or a hook in the kernel
PROGRAM = "program"
KERNEL = "kernel"
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


@dataclass(frozen=True)
class Counted:
    """What the kernel counted at one place; zero-copy is None where the hook cannot see the flag.

    Spliced are pages of a file; the socket counts a call for each pipe full of them.
    """

    calls: int
    bytes: int
    zerocopy_calls: int | None
    zerocopy_bytes: int | None
    spliced_calls: int = 0
    spliced_bytes: int = 0


def counted(record: Record, side: str, hook: str) -> Counted | None:
    """The kernel's count at a hook; None when no hook for it worked: then the row's zeros mean nothing.

    A working hook without a row saw nothing: that is a true zero. It is of `byte_segments()`.
    """
    if why_no_bytes(record):
        return None
    if not any(h["id"].startswith(hook) and h["state"] in WORKS for h in record["hooks"]):
        return None
    rows = [r for r in record["bytes"] if r["side"] == side and r["hook"] == hook]
    blind = any(r["zerocopy_bytes"] is None for r in rows)
    return Counted(
        sum(int(r["calls"]) for r in rows),
        sum(int(r["bytes"]) for r in rows),
        None if blind else sum(int(r["zerocopy_calls"]) for r in rows),
        None if blind else sum(int(r["zerocopy_bytes"]) for r in rows),
        *(sum(int(r.get(key, 0)) for r in rows) for key in ("spliced_calls", "spliced_bytes")),
    )


def why_uncounted(record: Record, hook: str) -> str:
    """Why the kernel counted nothing there, in the collector's words where it has any."""
    rows = [row for row in record["hooks"] if row["id"].startswith(hook)]
    if rows and not any(row["state"] in WORKS for row in rows):
        return f"{rows[0]['symbol']}: {why_absent(rows[0])}"
    absent = why_no_bytes(record)
    if absent:
        return absent
    return f"{hook}: not among the hooks of this run" if record["hooks"] else "the collector gave no report"


def gathers(record: Record) -> bool | None:
    """Whether the strategy copies in the program first; None when it could not say so any more."""
    claim: dict[str, Any] | None = record["traffic"]["sender"]["claim"]
    if claim is not None:
        return bool(claim.get("user_copies"))
    return True if total(select(record, "ledger"), "sender", "gather_timed_messages") else None


def referenced_bytes(record: Record, segments: list[Segment]) -> int:
    """Bytes that the program sent with zero-copy or from a file and the kernel took by reference (else 0)."""
    sent = zerocopy_total(segments, "bytes_sent") or 0
    if device_without_gather(record) is not None:
        return sent - (zerocopy_total(segments, "bytes_copied") or 0)
    return sent + (spliced_total(segments, "bytes") or 0)


def copied_at_call(record: Record, segments: list[Segment]) -> int:
    """Bytes that were to go by reference and that the send call copied: the device cannot gather."""
    if device_without_gather(record) is None:
        return 0
    return (zerocopy_total(segments, "bytes_copied") or 0) + (spliced_total(segments, "bytes") or 0)


def deferred_bytes(record: Record, segments: list[Segment]) -> int:
    """Bytes of zero-copy sends that the kernel reported as copied later than the call."""
    if device_without_gather(record) is not None:
        return 0
    return zerocopy_total(segments, "bytes_copied") or 0


def uncopied_bytes(record: Record, segments: list[Segment]) -> int:
    """Bytes that were referenced and that no completion reports as copied: silent copies, and none at all."""
    return max(0, referenced_bytes(record, segments) - deferred_bytes(record, segments))


def silent_bytes(record: Record, silent_high_ns: float) -> int:
    """Bytes of zero-copy sends that were copied although their completion says they were not.

    Certain on a path with native XDP (the driver moves every packet into its own page); elsewhere only when
    the time sampled in silent copies, at most `silent_high_ns`, could have moved that many bytes.
    """
    uncopied = uncopied_bytes(record, select(record, "ledger"))
    plausible = silent_high_ns * FASTEST_COPY_BYTES_PER_NS >= uncopied
    return uncopied if record["topology"]["xdp"] == "native" or plausible else 0


def zero_copy_bytes(record: Record, silent: int) -> int:
    """Bytes that were referenced and never copied on the way that this record sees."""
    return max(0, uncopied_bytes(record, select(record, "ledger")) - silent)


def copied_in(record: Record, segments: list[Segment]) -> int:
    """Bytes that the send calls copied, as the program added up what they returned."""
    by_reference = (zerocopy_total(segments, "bytes_sent") or 0) + (spliced_total(segments, "bytes") or 0)
    return total(segments, "sender", "bytes") - by_reference + copied_at_call(record, segments)


def kernel_copied_in(record: Record) -> int | None:
    """The same by the kernel's count, of its own segments; None where it does not know which were copied."""
    kernel = counted(record, "sender", SEND_HOOK)
    if kernel is None or kernel.zerocopy_bytes is None:
        return None
    at_call = copied_at_call(record, byte_segments(record))
    return kernel.bytes - kernel.zerocopy_bytes - kernel.spliced_bytes + at_call


def accepted_sends(segments: list[Segment]) -> int:
    """Send calls that took something, without those of sendfile(2), which pass the socket in pieces."""
    refused = total(segments, "sender", "eagain") + (zerocopy_total(segments, "enobufs") or 0)
    return total(segments, "sender", "calls") - refused - (spliced_total(segments, "calls") or 0)


def flows(record: Record, silent_high_ns: float) -> dict[str, Flow]:
    """Bytes and calls of the seven accounts in the ledger segments."""
    segments = select(record, "ledger")
    absent = why_no_ledger(record)
    if absent:
        unknown = Flow(bytes_reason=absent, calls_reason=absent)
        accounts = ("copy_in", "pin", "deferred", "silent", "completion", "copy_out")
        none = Flow(0, "exact", 0) if gathers(record) is False else unknown
        return {"gather": none} | dict.fromkeys(accounts, unknown)
    completions = zerocopy_total(segments, "completions")
    return {
        "gather": _gather(record),
        "copy_in": _copy_in(record),
        "pin": Flow(
            referenced_bytes(record, segments),
            "exact",
            (zerocopy_total(segments, "sends") or 0) + (spliced_total(segments, "calls") or 0),
        ),
        "deferred": Flow(
            deferred_bytes(record, segments),
            "reported",
            0 if device_without_gather(record) else zerocopy_total(segments, "copied") or 0,
        ),
        "silent": _silent(record, silent_high_ns),
        # completions move no payload; their number is what they cost
        "completion": Flow(0, "exact", completions or 0),
        "copy_out": _copy_out(record),
    }


def _gather(record: Record) -> Flow:
    segments = select(record, "ledger")
    copies = gathers(record)
    if copies is None:
        return Flow(bytes_reason=NO_CLAIM, calls_reason=NO_CLAIM)
    if not copies:
        return Flow(0, "exact", 0)
    messages = total(segments, "sender", "messages")
    return Flow(messages * int(record["workload"]["size_bytes"]), "exact", messages)


def _copy_in(record: Record) -> Flow:
    segments = select(record, "ledger")
    at_call = copied_at_call(record, segments)
    kernel = counted(record, "sender", SEND_HOOK)
    if kernel is None or kernel.zerocopy_bytes is None or kernel.zerocopy_calls is None:
        blind = "the hook does not see which calls are zero-copy"
        return Flow(
            copied_in(record, segments),
            "derived",
            calls_reason=why_uncounted(record, SEND_HOOK) if kernel is None else blind,
        )
    method = "reported" if at_call else "exact"
    if counted_apart(record):
        calls = accepted_sends(segments) - (zerocopy_total(segments, "sends") or 0)
        return Flow(copied_in(record, segments), method, calls)
    calls = kernel.calls - kernel.zerocopy_calls - kernel.spliced_calls
    return Flow(kernel_copied_in(record), method, calls, bytes_by=KERNEL)


def _silent(record: Record, silent_high_ns: float) -> Flow:
    no_calls = "no hook counts these copies; their time is sampled"
    if referenced_bytes(record, select(record, "ledger")):
        return Flow(silent_bytes(record, silent_high_ns), "derived", calls_reason=no_calls)
    if silent_high_ns == 0:
        return Flow(0, "derived", 0)
    return Flow(bytes_reason=no_calls, calls_reason=no_calls)


def _copy_out(record: Record) -> Flow:
    segments = select(record, "ledger")
    copied = total(segments, "receiver", "bytes") - total(segments, "receiver", "truncated_bytes")
    kernel = counted(record, "receiver", COPY_OUT_HOOK)
    if kernel is None:
        return Flow(copied, "derived", calls_reason=why_uncounted(record, COPY_OUT_HOOK))
    if not counted_apart(record):
        return Flow(kernel.bytes, "exact", kernel.calls, bytes_by=KERNEL)
    if not copied:
        return Flow(0, "exact", 0)
    if not kernel.bytes:
        return Flow(copied, "exact", calls_reason="nothing was copied out in the segments that count it")
    # one for each packet buffer, which no program sees: as many for each byte as where they were counted
    return Flow(copied, "exact", round(copied * kernel.calls / kernel.bytes), calls_method="scaled")
