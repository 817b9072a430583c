"""How many bytes and calls each account moved in the ledger segments, and who says so.

Kernel counts come from the collector's hooks, the program's own from its totals. Where the hooks have
segments of their own, both count there, and the checks compare them; the ledger's segments, which are others,
then have the program's count. Where the hooks are in the ledger's segments, each account takes its bytes from
one source only, so that the checks compare sources and not a number with itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.ledger import attribution, sends
from copyscope.ledger.sends import Sends, sends_of, why_no_completions
from copyscope.record.hooks import WORKS, find, why_absent
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    delivered_bytes,
    mapped_total,
    select,
    spliced_total,
    taken_total,
    total,
    uncopied_out,
    why_no_calls,
    why_no_ledger,
)
from copyscope.record.watched import SOCKMAP, TAKEN, UserCode, Volume, added, volume

# No core copies faster than this (first-level cache bandwidth of current CPUs, bytes per ns). Samples of a
# silent copy that would need more speed belong to headers and strays, not to the payload.
FASTEST_COPY_BYTES_PER_NS = 100.0
# who counted: the traffic program what its calls returned, or a hook in the kernel
PROGRAM = "program"
KERNEL = "kernel"
NO_SILENT_CALLS = "no hook counts these copies; their time is sampled"
NO_CLAIM = "the sender gave no report: whether it gathers is not known"
OF_OTHERS = (
    "other programs sent these with zero-copy, and the kernel copied on this program's time: no hook counts "
    "their bytes"
)
ITS_OWN = "in the program's own memory: no hook counts what it copies there"
UNTOLD = (
    "io_uring says whether it copied only where a send asks for it (IORING_SEND_ZC_REPORT_USAGE), and these "
    "did not"
)
# Beside the accounts: what is copied out to a relay, whose receiver has `copy_out`.
TO_RELAY = "to_relay"
# Of which the tables always have a row.
ACCOUNTS = ("copy_in", "pin", "deferred", "silent", "completion", "copy_out")


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


NOTHING = Flow(0, "exact", 0)


def unknown(reason: str) -> Flow:
    """Neither bytes nor calls are known."""
    return Flow(bytes_reason=reason, calls_reason=reason)


def flows(raw: Measured, silent_high_ns: float) -> dict[str, Flow]:
    """Bytes and calls of the accounts: `mapped` where somebody may map, what code of the program's own does
    where that can be seen.

    Of a relay also TO_RELAY.

    silent_high_ns: the most time that silent copies can have had.
    """
    absent = why_no_ledger(raw.run)
    first = _gather(raw, absent)
    if absent:
        accounts = ACCOUNTS if raw.target is None else (*ACCOUNTS, "file_read", "mapped", "tun")
        return first | dict.fromkeys(accounts, unknown(absent))
    sent = sends_of(raw, "ledger")
    blind = None if raw.target is None else why_no_completions(raw.hooks)
    late = _deferred(raw, sent, blind)
    pinned = sent.referenced_bytes
    copied = max(0, sent.bytes - pinned)
    if raw.target is not None and late.bytes and attribution.at_call(raw):
        copied, pinned, late = copied + late.bytes, pinned - late.bytes, NOTHING
    return {
        **first,
        "copy_in": _copy_in(raw, sent, copied),
        "pin": Flow(pinned, "exact", sent.zerocopy + sent.pages),
        "deferred": late,
        "silent": _silent(raw, sent, silent_high_ns),
        # completions move no payload; their number is what they cost
        "completion": Flow(0, "exact", None if blind else sent.completions, calls_reason=blind),
        **(_received(raw) if raw.target is None else _received_by_target(raw)),
    }


def gathers(raw: Measured) -> bool | None:
    """Whether a strategy of ours copies in the program first; None when it could not say so any more."""
    claim = raw.reports.sender.claim
    if claim is not None:
        return bool(claim.user_copies)
    return True if total(select(raw.run.segments, "ledger"), "sender", "gather_timed_messages") else None


def _gather(raw: Measured, absent: str | None) -> dict[str, Flow]:
    if raw.target is not None:
        return _of_user_code(raw.user_code)
    copies = gathers(raw)
    if copies is False:
        return {"gather": NOTHING}
    if copies is None or absent:
        return {"gather": unknown(absent or NO_CLAIM)}
    messages = total(select(raw.run.segments, "ledger"), "sender", "messages")
    return {"gather": Flow(messages * raw.asked.size_bytes, "exact", messages)}


def _of_user_code(rows: Sequence[UserCode] | None) -> dict[str, Flow]:
    """A watched program's own copies and ciphers: only their time is known. Older records have no ciphers."""
    looked = {
        "gather": rows is not None,
        "user_encrypt": any(row.cipher_samples is not None for row in rows or []),
    }
    return {account: unknown(ITS_OWN) for account, seen in looked.items() if seen}


def _copy_in(raw: Measured, sent: Sends, copied: int) -> Flow:
    # io_uring says that a send was zero-copy when it ends: at an edge that is after its bytes were counted.
    calls = max(0, sent.calls - sent.zerocopy - sent.pages)
    if raw.target is not None:
        return Flow(copied, "exact", calls)
    kernel = sends.counted(raw, "sender", sends.SEND_HOOK)
    if kernel is None or kernel.zerocopy_bytes is None or kernel.zerocopy_calls is None:
        blind = "the hook does not see which calls are zero-copy"
        why = sends.why_uncounted(raw, sends.SEND_HOOK) if kernel is None else blind
        return Flow(copied, "derived", calls_reason=why)
    if sends.counted_apart(raw.run):
        return Flow(copied, "exact", calls)
    calls = kernel.calls - kernel.zerocopy_calls - kernel.spliced_calls
    return Flow(kernel.bytes - kernel.zerocopy_bytes - kernel.spliced_bytes, "exact", calls, bytes_by=KERNEL)


def _deferred(raw: Measured, sent: Sends, blind: str | None) -> Flow:
    late = sent.reported_bytes
    if late is None:
        why = "no completion of a zero-copy send was seen" + (f": {blind}" if blind else "")
        return unknown(UNTOLD if sent.untold else why)
    if raw.target is None:
        return Flow(late, "reported", sent.copied)
    if not sent.zerocopy:
        return unknown(OF_OTHERS) if attribution.sampled(raw, "deferred") else NOTHING
    return Flow(late, "derived", sent.copied)


def silent_bytes(raw: Measured, sent: Sends, silent_high_ns: float) -> int:
    """Bytes sent by reference that were copied although no completion says so.

    Certain on a path with native XDP (the driver moves every packet into its own page); elsewhere only when
    the time sampled in silent copies, at most `silent_high_ns`, could have moved that many bytes.
    """
    plausible = silent_high_ns * FASTEST_COPY_BYTES_PER_NS >= sent.uncopied_bytes
    return sent.uncopied_bytes if raw.topology.xdp == "native" or plausible else 0


def _silent(raw: Measured, sent: Sends, silent_high_ns: float) -> Flow:
    if sent.referenced_bytes:
        return Flow(silent_bytes(raw, sent, silent_high_ns), "derived", calls_reason=NO_SILENT_CALLS)
    return none_referred(silent_high_ns)


def none_referred(silent_high_ns: float) -> Flow:
    """Nothing that went by reference; copies of something else may have been sampled."""
    return unknown(NO_SILENT_CALLS) if silent_high_ns else Flow(0, "derived", 0)


def _received(raw: Measured) -> dict[str, Flow]:
    """By our own receiver: `mapped` only where it maps."""
    segments = select(raw.run.segments, "ledger")
    mapped = mapped_total(segments, "bytes")
    pages = {} if mapped is None else {"mapped": Flow(mapped, "exact", mapped_total(segments, "calls"))}
    copied = total(segments, "receiver", "bytes") - uncopied_out(segments)
    taken = copied_to_relay(segments)
    relay = {} if taken is None else {TO_RELAY: _copy_out(raw, "sender", taken)}
    return {**pages, **relay, "copy_out": _copy_out(raw, "receiver", copied)}


def copied_to_relay(segments: Sequence[Segment]) -> int | None:
    """Bytes that a relay took and did not splice; None of a sender that is none."""
    taken = taken_total(segments, "bytes")
    return None if taken is None else taken - (taken_total(segments, "spliced_bytes") or 0)


def _copy_out(raw: Measured, side: str, copied: int) -> Flow:
    kernel = sends.counted(raw, side, sends.COPY_OUT_HOOK)
    if kernel is None:
        return Flow(copied, "derived", calls_reason=sends.why_uncounted(raw, sends.COPY_OUT_HOOK))
    if not sends.counted_apart(raw.run):
        return Flow(kernel.bytes, "exact", kernel.calls, bytes_by=KERNEL)
    if not copied:
        return NOTHING
    if not kernel.bytes:
        return Flow(copied, "exact", calls_reason="nothing was copied out in the segments that count it")
    # one for each packet buffer, which no program sees: as many for each byte as where they were counted
    return Flow(copied, "exact", round(copied * kernel.calls / kernel.bytes), calls_method="scaled")


def _received_by_target(raw: Measured) -> dict[str, Flow]:
    if any(row.protocol == "udp" for row in volume(raw.volume, "truncated", "ledger")):
        asked = "its calls with MSG_TRUNC returned the length of UDP datagrams, not the bytes copied"
        out = unknown(asked)
    else:
        out = _counted(copied_out_rows(raw.volume))
    return {
        "file_read": _file_read(raw),
        "copy_out": out,
        "mapped": _counted(volume(raw.volume, "mapped", "ledger")),
        "tun": unknown("the bytes of packets that go through a tun device are not counted"),
    }


def _file_read(raw: Measured) -> Flow:
    """Counted where calls are timed, and scaled by what moved through sockets in both."""
    calls, ledger = (select(raw.run.segments, phase) for phase in ("calls", "ledger"))
    if not calls:
        return unknown(why_no_calls(raw.hooks))
    hook = find(raw.hooks, "file_read")
    if hook is None or hook.state not in WORKS:
        return unknown(why_absent(hook) if hook else "this record was made before file reads were counted")
    unseen = _unseen_reads(raw)
    if unseen:
        return unknown(unseen)
    rows = volume(raw.volume, "file_read", "calls")
    if calls == ledger or not rows:
        return _counted(rows)
    moved = delivered_bytes(calls)
    if not moved:
        return unknown("nothing moved in the segments that count what is read")
    scale = delivered_bytes(ledger) / moved
    count, read = round(added(rows, "calls") * scale), round(added(rows, "bytes") * scale)
    return Flow(read, "scaled", count, calls_method="scaled")


def _unseen_reads(raw: Measured) -> str | None:
    """Why some reads of files are not counted; None: all are."""
    calls = {row.syscall for row in volume(raw.volume, "unseen_read", "calls")}
    if "io_submit" in calls:
        return "it reads files by io_submit (AIO), which tells nobody how much"
    hook = find(raw.hooks, "uring_complete")
    if "io_uring" in calls and (hook is None or hook.state not in WORKS):
        why = why_absent(hook) if hook else "no hook"
        return f"what io_uring reads out of files is not counted: {why}"
    return None


def copied_out_rows(rows: Sequence[Volume]) -> list[Volume]:
    """What was copied to its memory. Where no hook sees that, it is what its calls returned: of a datagram of
    UDP in one piece (copy_linear_skb(), net/ipv4/udp.c), of a message that came through a sockmap
    (sk_msg_recvmsg(), net/core/skmsg.c)."""
    unseen = ("udp", SOCKMAP)
    hooked = [row for row in volume(rows, "copy_out", "ledger") if row.protocol not in unseen]
    looked = volume(rows, "receive", "ledger") + volume(rows, "peek", "ledger")
    return hooked + [row for row in looked if row.protocol in unseen and row.syscall not in TAKEN]


def _counted(rows: Sequence[Volume]) -> Flow:
    return Flow(added(rows, "bytes"), "exact", added(rows, "calls"))


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
    hooks = (sends.COPY_OUT_HOOK, sends.RECEIVE_HOOK)
    copied, taken = (sends.counted(raw, "receiver", hook) for hook in hooks)
    if copied is None or taken is None or not taken.bytes:
        return unknown(sends.why_uncounted(raw, hooks[0] if copied is None else hooks[1]))
    if not sends.counted_apart(raw.run):
        return Flow(copied.bytes, "exact", copied.calls, bytes_by=KERNEL)
    bytes_, calls = (round(count * received / taken.bytes) for count in (copied.bytes, copied.calls))
    return Flow(bytes_, "scaled", calls, bytes_by=KERNEL, calls_method="scaled")
