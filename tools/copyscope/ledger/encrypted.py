"""The flows of traffic of ours that the kernel encrypts (kTLS): all that is sent passes the cipher. Pure."""

from collections.abc import Sequence

from copyscope.ledger import counted
from copyscope.ledger.flows import KERNEL, NOTHING, Flow, none_referred, unknown
from copyscope.record.hooks import WORKS
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import select, spliced_total, total

BY_RECORD = (
    "kTLS pins the plaintext of whole records and copies parts of one: function hooks tell which bytes"
)
NO_RECORDS = "a send was short: where its records end is not known"


def encrypts(raw: Measured) -> bool:
    """Whether the kernel encrypts what traffic of ours sends."""
    return raw.workload is not None and raw.workload.tls not in (None, "off")


def encrypted(raw: Measured, silent_high_ns: float) -> dict[str, Flow]:
    """In place of what flows() says without kTLS: what is encrypted is referred to no more, nor completes."""
    segments = select(raw.run.segments, "ledger")
    if not encrypts(raw) or not segments:
        return {}
    sent, received = total(segments, "sender", "bytes"), total(segments, "receiver", "bytes")
    records = tls_records(segments)
    why = None if records is not None else NO_RECORDS
    return {
        "copy_in": _by_record(raw, "copy_in", segments),
        "pin": _by_record(raw, "pin", segments),
        "encrypt": Flow(sent, "exact", records, calls_reason=why),
        "deferred": NOTHING,
        "silent": none_referred(silent_high_ns),
        "completion": NOTHING,
        "decrypt": Flow(received, "exact", records, calls_reason=why),
        "copy_out": _opened_copied_out(raw, received),
    }


def tls_records(segments: Sequence[Segment]) -> int | None:
    """How many records they sent; None when it is not known."""
    known = [s.sender.tls_records for s in segments if s.sender.tls_records is not None]
    return sum(known) if len(known) == len(segments) else None


def _by_record(raw: Measured, account: str, segments: Sequence[Segment]) -> Flow:
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


def _opened_copied_out(raw: Measured, received: int) -> Flow:
    """What was not decrypted into the receiver's memory: as much of all as where it was counted."""
    hooks = (counted.COPY_OUT_HOOK, counted.RECEIVE_HOOK)
    copied, taken = (counted.counted(raw, "receiver", hook) for hook in hooks)
    if copied is None or taken is None or not taken.bytes:
        return unknown(counted.why_uncounted(raw, hooks[0] if copied is None else hooks[1]))
    if not counted.counted_apart(raw.run):
        return Flow(copied.bytes, "exact", copied.calls, bytes_by=KERNEL)
    bytes_, calls = (round(count * received / taken.bytes) for count in (copied.bytes, copied.calls))
    return Flow(bytes_, "scaled", calls, bytes_by=KERNEL, calls_method="scaled")
