# SPDX-License-Identifier: GPL-2.0-only
"""Bytes and calls of each account in the ledger segments, with their source. Pure.

Kernel counts come from the collector's byte hooks, and a program's counts from its own totals.
If the byte hooks ran in separate segments, both sources count those segments, and the checks compare them.
The ledger segments then use the program's counts. If the byte hooks ran in the ledger segments, each account
takes its bytes from a single source, so that no check compares a number with itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.base.spelling import counted
from copyscope.ledger import attribution, sends
from copyscope.ledger.attribution import COPY_SAMPLES_MIN
from copyscope.ledger.sends import SendTotals, send_totals, why_no_completions, why_place_unknown
from copyscope.ledger.share import SAMPLES_MIN
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    WORKS,
    bytes_received,
    bytes_sent,
    delivered_bytes,
    find_hook,
    mapped_sum,
    relay_input_sum,
    select,
    sender_sum,
    spliced_sum,
    uncopied_out,
    why_absent,
    why_no_calls,
    why_no_ledger,
)
from copyscope.record.watched import SOCKMAP, WITHOUT_RECEIVE_CALL, UserCode, Volume, added, volume
from copyscope.taxonomy.accounts import TABLE, ByteSource

# Maximum speed of a copy: first-level cache bandwidth of current CPUs. If silent copies would have to be
# faster than that to copy the payload in their sampled time, their samples belong to headers and stray work.
FASTEST_COPY_BYTES_PER_NS = 100.0
# Values of `bytes_by`, the source of the number of bytes: PROGRAM if the traffic program added up the return
# values of its calls, KERNEL if a kernel hook counted.
PROGRAM = "program"
KERNEL = "kernel"
# Reasons for unknown bytes or calls.
NO_SILENT_CALLS = "no hook counts these copies; their time is sampled"
NO_FLAG = "the hook on the send path does not see which calls are zero-copy"
NO_CLAIM = "the sender gave no report, so it is not known whether its strategy gathers"
OTHER_PROGRAMS = (
    "other programs sent these bytes with zero-copy, and the kernel copied them in this program's CPU time: "
    "no hook counts such bytes"
)
USER_MEMORY = "copies inside the program's own memory: no hook counts them"
NO_USAGE_REPORT = (
    "io_uring reports copies only for sends with IORING_SEND_ZC_REPORT_USAGE, and these sends did not set it"
)
UNSEEN_READS = "the kernel copied from the page cache without a read call, and no hook counts such a copy"
NOTHING_MOVED = "the program moved bytes only outside of the ledger segments; watch longer, or with --whole"
# Byte source, not an account: bytes copied out to a relay. The account `copy_out` holds bytes copied out to
# the receiver.
TO_RELAY: ByteSource = "copied_to_relay"
# Byte sources of every ledger, and further byte sources of a watched program.
COMMON_SOURCES: tuple[ByteSource, ...] = (
    "copied_in",
    "referenced",
    "copied_late",
    "copied_silently",
    "completions",
    "copied_out",
)
TARGET_SOURCES: tuple[ByteSource, ...] = ("file_reads", "mapped_pages")
Sources = dict[ByteSource, "Flow"]


@dataclass(frozen=True)
class Flow:
    """Bytes and calls that passed through an account, each with its method, or None with a reason.

    bytes_by: who counted the bytes, PROGRAM or KERNEL
    """

    bytes: int | None = None
    bytes_method: str | None = None
    calls: int | None = None
    bytes_reason: str | None = None
    calls_reason: str | None = None
    bytes_by: str = PROGRAM
    calls_method: str = "exact"


NO_BYTES = Flow(0, "exact", 0)


def unknown(reason: str) -> Flow:
    """Return a flow whose bytes and calls are both unknown, for the same reason."""
    return Flow(bytes_reason=reason, calls_reason=reason)


def account_flows(raw: Measured, silent_max_ns: float) -> dict[str, Flow]:
    """Return the flow of each account and, for a relay, of TO_RELAY (bytes copied out to the relay).

    An account whose source is absent is left out: `mapped` if the receiver does not map, the program's own
    copies if they cannot be observed. An account without a byte source is included if it was sampled, or if
    the run watched a program.

    silent_max_ns: upper bound of the CPU time of silent copies
    """
    sources = _plain_sources(raw, silent_max_ns) | _ktls_sources(raw, silent_max_ns)
    no_ledger, sampled_accounts = _why_unmeasured(raw), {row.category for row in raw.samples}
    flows: dict[str, Flow] = {TO_RELAY: sources[TO_RELAY]} if TO_RELAY in sources else {}
    for account in TABLE:
        if account.bytes_from in sources:
            flows[account.name] = sources[account.bytes_from]
        elif account.bytes_from is None and (raw.target is not None or account.name in sampled_accounts):
            flows[account.name] = unknown(no_ledger or account.uncounted)
    return flows


def _plain_sources(raw: Measured, silent_max_ns: float) -> Sources:
    """Return all flows under the assumption that kTLS is not used.

    silent_max_ns: upper bound of the CPU time of silent copies
    """
    no_ledger = _why_unmeasured(raw)
    user_copies = _user_copies(raw, no_ledger)
    if no_ledger:
        sources = COMMON_SOURCES if raw.target is None else (*COMMON_SOURCES, *TARGET_SOURCES)
        return user_copies | dict.fromkeys(sources, unknown(no_ledger))
    sent = send_totals(raw, "ledger")
    no_completions = None if raw.target is None else why_no_completions(raw.hooks)
    late = _copied_late(raw, sent, no_completions)
    referenced_bytes = sent.referenced_bytes
    copied_bytes = max(0, sent.bytes - referenced_bytes)
    if raw.target is not None and late.bytes and attribution.copied_in_call(raw):
        copied_bytes += late.bytes
        referenced_bytes -= late.bytes
        late = NO_BYTES
    return {
        **user_copies,
        "copied_in": _copied_in(raw, sent, copied_bytes),
        "referenced": Flow(referenced_bytes, "exact", sent.referenced_calls),
        "copied_late": late,
        "copied_silently": _copied_silently(raw, sent, silent_max_ns),
        # Reading a completion moves no payload, but each call costs CPU time. So this flow has calls and 0
        # bytes.
        "completions": Flow(
            0, "exact", None if no_completions else sent.completions, calls_reason=no_completions
        ),
        **(_received(raw) if raw.target is None else _received_by_target(raw)),
    }


def _why_unmeasured(raw: Measured) -> str | None:
    """Return why the ledger segments counted no bytes although the run moved some, or None otherwise."""
    if (no_ledger := why_no_ledger(raw.run)) is not None or raw.target is None:
        return no_ledger
    moved = raw.target.sent_bytes + raw.target.received_bytes
    counted_bytes = any(row.bytes for row in raw.volume if "ledger" in row.phase.split("+"))
    return NOTHING_MOVED if moved and not counted_bytes else None


def strategy_gathers(raw: Measured) -> bool | None:
    """Return True if our sender's strategy gathers fields by a copy, or None if the sender gave no report."""
    claim = raw.reports.sender.claim
    if claim is not None:
        return bool(claim.user_copies)
    ledger = select(raw.run.segments, "ledger")
    return True if sender_sum(ledger, lambda sender: sender.gather_timed_messages) else None


def _user_copies(raw: Measured, no_ledger: str | None) -> Sources:
    """Return the flow of each account for copies inside the program's own memory.

    no_ledger: why the run has no ledger; None if it has a ledger
    """
    if raw.target is not None:
        return _target_user_code(raw.user_code)
    gathers = strategy_gathers(raw)
    if gathers is False:
        return {"own_copies": NO_BYTES}
    if gathers is None or no_ledger:
        return {"own_copies": unknown(no_ledger or NO_CLAIM)}
    messages = sender_sum(select(raw.run.segments, "ledger"), lambda sender: sender.messages)
    return {"own_copies": Flow(messages * raw.asked.size_bytes, "exact", messages)}


def _target_user_code(rows: Sequence[UserCode] | None) -> Sources:
    """Return the flows of a watched program's own copies and ciphers, whose bytes are unknown.

    rows: sampled user code; None if the user code was not examined. Rows of old records have no ciphers.
    """
    examined: dict[ByteSource, bool] = {
        "own_copies": rows is not None,
        "own_ciphers": any(row.cipher_samples is not None for row in rows or []),
    }
    return {source: unknown(USER_MEMORY) for source, is_examined in examined.items() if is_examined}


def _copied_in(raw: Measured, sent: SendTotals, copied_bytes: int) -> Flow:
    """Return the flow of copies into the kernel.

    sent: totals of the sends
    copied_bytes: bytes copied in, as counted by the program
    """
    # max(), because io_uring reports a send as zero-copy when the send ends, which may be in a later segment
    # than the segment that counted its bytes.
    calls = max(0, sent.calls - sent.referenced_calls)
    if raw.target is not None:
        return Flow(copied_bytes, "exact", calls)
    kernel = sends.hook_counts(raw, "sender", sends.SEND_HOOK)
    if kernel is None:
        return Flow(copied_bytes, "derived", calls_reason=sends.why_uncounted(raw, sends.SEND_HOOK))
    if kernel.zerocopy_bytes is None or kernel.zerocopy_calls is None:
        return Flow(copied_bytes, "derived", calls_reason=NO_FLAG)
    if sends.has_bytes_segments(raw.run):
        return Flow(copied_bytes, "exact", calls)
    calls = kernel.calls - kernel.zerocopy_calls - kernel.spliced_calls
    return Flow(kernel.bytes - kernel.zerocopy_bytes - kernel.spliced_bytes, "exact", calls, bytes_by=KERNEL)


def _copied_late(raw: Measured, sent: SendTotals, no_completions: str | None) -> Flow:
    """Return the flow of late copies.

    sent: totals of the sends
    no_completions: why completions could not be read, None if they could
    """
    undecided = why_place_unknown(raw, sent)
    if undecided is not None:
        return unknown(undecided)
    late_bytes = sent.reported_bytes
    if late_bytes is None:
        reason = "no completion of a zero-copy send was seen" + (
            f": {no_completions}" if no_completions else ""
        )
        return unknown(NO_USAGE_REPORT if sent.untold else reason)
    if raw.target is None:
        return Flow(late_bytes, "reported", sent.copied)
    if not sent.zerocopy:
        return unknown(OTHER_PROGRAMS) if attribution.has_samples(raw, "deferred") else NO_BYTES
    return Flow(late_bytes, "derived", max(0, sent.copied - sent.copied_in_call))


def _copied_silently(raw: Measured, sent: SendTotals, silent_max_ns: float) -> Flow:
    """Return the flow of silent copies: bytes sent by reference that no completion reports as copied.

    On a path with native XDP the copy is certain, because the driver moves every packet into a page of its
    own. On any other path the sampled time of silent copies must be enough to copy these bytes.

    silent_max_ns: upper bound of the CPU time of silent copies
    """
    if not sent.referenced_bytes:
        return silent_without_references(raw, silent_max_ns)
    if raw.topology.xdp == "native":
        return Flow(sent.uncopied_bytes, "derived", calls_reason=NO_SILENT_CALLS)
    plausible = silent_max_ns * FASTEST_COPY_BYTES_PER_NS >= sent.uncopied_bytes
    reason = _why_too_few(raw, "silent" if plausible and sent.uncopied_bytes else None)
    if reason is not None:
        return unknown(reason)
    return Flow(sent.uncopied_bytes if plausible else 0, "derived", calls_reason=NO_SILENT_CALLS)


def silent_without_references(raw: Measured, silent_max_ns: float) -> Flow:
    """Return the silent copies of a run without sends by reference: 0 bytes, or unknown if any were sampled.

    silent_max_ns: upper bound of the CPU time of silent copies
    """
    reason = NO_SILENT_CALLS if silent_max_ns else _why_too_few(raw, None)
    return Flow(0, "derived", 0) if reason is None else unknown(reason)


def _why_too_few(raw: Measured, account: str | None) -> str | None:
    """Return why there are too few samples to derive bytes from, or None if there are enough.

    account: an account that must have enough samples of its own, too
    """
    samples = attribution.sample_count(raw)
    if samples < SAMPLES_MIN:
        return f"{counted(samples, 'sample')} of CPU time: too few to derive bytes"
    if account is None or (samples := attribution.sample_count(raw, account)) >= COPY_SAMPLES_MIN:
        return None
    return f"{counted(samples, 'sample')} of these copies: too few to derive bytes"


def _received(raw: Measured) -> Sources:
    """Return the flows of bytes that our own receiver received; `mapped_pages` only if the receiver maps."""
    segments = select(raw.run.segments, "ledger")
    received: Sources = {
        "copied_out": _copied_out(raw, "receiver", bytes_received(segments) - uncopied_out(segments))
    }
    mapped_bytes = mapped_sum(segments, lambda mapped: mapped.bytes)
    if mapped_bytes is not None:
        calls = mapped_sum(segments, lambda mapped: mapped.calls)
        received["mapped_pages"] = Flow(mapped_bytes, "exact", calls)
    relay_bytes = copied_to_relay(segments)
    if relay_bytes is not None:
        received[TO_RELAY] = _copied_out(raw, "sender", relay_bytes)
    return received


def copied_to_relay(segments: Sequence[Segment]) -> int | None:
    """Return the bytes that a relay received without splice(2), or None if the sender is not a relay."""
    received_bytes = relay_input_sum(segments, lambda relayed: relayed.bytes)
    spliced_bytes = relay_input_sum(segments, lambda relayed: relayed.spliced_bytes) or 0
    return None if received_bytes is None else received_bytes - spliced_bytes


def _copied_out(raw: Measured, side: str, copied_bytes: int) -> Flow:
    """Return the flow of copies out of the kernel to a side.

    copied_bytes: bytes copied out, as counted by the program
    """
    kernel = sends.hook_counts(raw, side, sends.COPY_OUT_HOOK)
    if kernel is None:
        return Flow(copied_bytes, "derived", calls_reason=sends.why_uncounted(raw, sends.COPY_OUT_HOOK))
    if not sends.has_bytes_segments(raw.run):
        return Flow(kernel.bytes, "exact", kernel.calls, bytes_by=KERNEL)
    if not copied_bytes:
        return NO_BYTES
    if not kernel.bytes:
        reason = "nothing was copied out in the segments that count such copies"
        return Flow(copied_bytes, "exact", calls_reason=reason)
    # The kernel makes one copy per packet buffer, but no program sees the buffers. Assume as many copies per
    # byte as in the segments that count bytes.
    calls = round(copied_bytes * kernel.calls / kernel.bytes)
    return Flow(copied_bytes, "exact", calls, calls_method="scaled")


def _received_by_target(raw: Measured) -> Sources:
    """Return the flows of bytes that a watched program received, mapped, or read from files."""
    if any(row.protocol == "udp" for row in volume(raw.volume, "truncated", "ledger")):
        copied_out = unknown(
            "the program's calls with MSG_TRUNC returned the length of UDP datagrams, not the bytes copied"
        )
    else:
        copied_out = _counted(copied_out_rows(raw.volume))
    return {
        "file_reads": _file_reads(raw),
        "copied_out": copied_out,
        "mapped_pages": _counted(volume(raw.volume, "mapped", "ledger")),
    }


def _file_reads(raw: Measured) -> Flow:
    """Return the flow of file reads: counted in calls segments, scaled to ledger segments by socket bytes."""
    calls, ledger = (select(raw.run.segments, phase) for phase in ("calls", "ledger"))
    rows = volume(raw.volume, "file_read", "calls")
    uncounted = _why_reads_uncounted(raw)
    if uncounted is None and calls != ledger:
        uncounted = _why_reads_unscaled(raw, rows, delivered_bytes(calls), delivered_bytes(ledger))
    if uncounted is not None:
        return unknown(uncounted)
    if calls == ledger:
        samples = attribution.sample_count(raw, "file_read")
        return unknown(UNSEEN_READS) if not rows and samples >= COPY_SAMPLES_MIN else _counted(rows)
    scale = delivered_bytes(ledger) / delivered_bytes(calls) if rows else 0.0
    return Flow(
        round(added(rows, lambda row: row.bytes) * scale),
        "scaled",
        round(added(rows, lambda row: row.calls) * scale),
        calls_method="scaled",
    )


def _why_reads_unscaled(
    raw: Measured, rows: Sequence[Volume], counted_bytes: int, ledger_bytes: int
) -> str | None:
    """Return why file reads in the calls segments cannot be scaled to the ledger segments, or None.

    rows: file reads; counted_bytes, ledger_bytes: bytes that moved through sockets in both kinds of segments
    """
    if not counted_bytes and (rows or ledger_bytes):
        return "nothing moved in the segments that count file reads; watch with --whole"
    if not rows and attribution.has_samples(raw, "file_read"):
        return "it read files only outside of the segments that count file reads; watch with --whole"
    # A program reads its libraries once, when it starts.
    if rows and (calls := added(rows, lambda row: row.calls)) < SAMPLES_MIN:
        return f"{counted(calls, 'file read')} in the segments that count them: too few; watch with --whole"
    return None


def _why_reads_uncounted(raw: Measured) -> str | None:
    """Return why some file reads are not counted, or None if all of them are."""
    if not select(raw.run.segments, "calls"):
        return why_no_calls(raw.hooks)
    file_hook = find_hook(raw.hooks, "file_read")
    if file_hook is None or file_hook.state not in WORKS:
        return why_absent(file_hook) if file_hook else "this record was made before file reads were counted"
    calls = {row.syscall for row in volume(raw.volume, "unseen_read", "calls")}
    if "io_submit" in calls:
        return "the program reads files with io_submit (AIO), which does not report the number of bytes"
    hook = find_hook(raw.hooks, "uring_complete")
    if "io_uring" in calls and (hook is None or hook.state not in WORKS):
        return f"file reads through io_uring are not counted: {why_absent(hook) if hook else 'no hook'}"
    return None


def copied_out_rows(rows: Sequence[Volume]) -> list[Volume]:
    """Return the rows of bytes that were copied to the program's memory in the ledger segments.

    No hook sees two kinds of copies: a UDP datagram in one piece (copy_linear_skb(), net/ipv4/udp.c), and a
    message that came through a sockmap (sk_msg_recvmsg(), net/core/skmsg.c). For these protocols the return
    values of the receive calls are used.
    """
    unhooked = ("udp", SOCKMAP)
    hooked = [row for row in volume(rows, "copy_out", "ledger") if row.protocol not in unhooked]
    returned = volume(rows, "receive", "ledger") + volume(rows, "peek", "ledger")
    return hooked + [
        row for row in returned if row.protocol in unhooked and row.syscall not in WITHOUT_RECEIVE_CALL
    ]


def _counted(rows: Sequence[Volume]) -> Flow:
    """Return a flow with the summed bytes and calls of counted rows."""
    return Flow(added(rows, lambda row: row.bytes), "exact", added(rows, lambda row: row.calls))


# Reasons for unknown bytes or records of kTLS.
RECORDS_UNHOOKED = (
    "kTLS pins the plaintext of whole records and copies parts of records: only function hooks count the "
    "bytes of either"
)
NO_RECORDS = "a send was short, so the number of TLS records is not known"


def uses_ktls(raw: Measured) -> bool:
    """Return True if the kernel encrypts what our own traffic sends (kTLS)."""
    return raw.workload is not None and raw.workload.tls not in (None, "off")


def _ktls_sources(raw: Measured, silent_max_ns: float) -> Sources:
    """Return the flows that kTLS changes: encrypted bytes are not sent by reference and have no completions.

    silent_max_ns: upper bound of the CPU time of silent copies
    """
    segments = select(raw.run.segments, "ledger")
    if not uses_ktls(raw) or not segments:
        return {}
    records = tls_records(segments)
    no_records = None if records is not None else NO_RECORDS
    return {
        "copied_in": _plaintext(raw, "copy_in", segments),
        "referenced": _plaintext(raw, "pin", segments),
        "encrypted": Flow(bytes_sent(segments), "exact", records, calls_reason=no_records),
        "copied_late": NO_BYTES,
        "copied_silently": silent_without_references(raw, silent_max_ns),
        "completions": NO_BYTES,
        "decrypted": Flow(bytes_received(segments), "exact", records, calls_reason=no_records),
        "copied_out": _decrypted_copied_out(raw, bytes_received(segments)),
    }


def tls_records(segments: Sequence[Segment]) -> int | None:
    """Return the number of TLS records that the sender sent in some segments, or None if unknown."""
    counts = [s.sender.tls_records for s in segments if s.sender.tls_records is not None]
    return sum(counts) if len(counts) == len(segments) else None


def _plaintext(raw: Measured, account: str, segments: Sequence[Segment]) -> Flow:
    """Return the flow of plaintext that kTLS copied or pinned, scaled from the functions segments.

    account: `copy_in` for copied plaintext, `pin` for pinned plaintext
    segments: the ledger segments
    """
    hooked_bytes = memory_bytes_sent(select(raw.run.segments, "functions"))
    works = any(hook.id == f"{account}_record" and hook.state in WORKS for hook in raw.hooks)
    if raw.functions is None or not works:
        return unknown(RECORDS_UNHOOKED)
    cells = [cell for cell in raw.functions.cells if cell.category == account and cell.side == "sender"]
    scale = memory_bytes_sent(segments) / hooked_bytes if hooked_bytes else 0
    page_bytes = (spliced_sum(segments, lambda spliced: spliced.bytes) or 0) if account == "pin" else 0
    plaintext_bytes = round(sum(cell.bytes for cell in cells) * scale)
    calls = round(sum(cell.calls for cell in cells) * scale)
    return Flow(plaintext_bytes + page_bytes, "scaled", calls, bytes_by=KERNEL, calls_method="scaled")


def memory_bytes_sent(segments: Sequence[Segment]) -> int:
    """Return the bytes that our sender sent from its own memory, not as pages of a file."""
    return bytes_sent(segments) - (spliced_sum(segments, lambda spliced: spliced.bytes) or 0)


def _decrypted_copied_out(raw: Measured, received_bytes: int) -> Flow:
    """Return the flow of kTLS bytes copied to the receiver: those not decrypted directly into its memory.

    The copies are counted in the bytes segments, and scaled to the ledger segments.

    received_bytes: bytes received in the ledger segments
    """
    copied, received = (
        sends.hook_counts(raw, "receiver", hook) for hook in (sends.COPY_OUT_HOOK, sends.RECEIVE_HOOK)
    )
    if copied is None:
        return unknown(sends.why_uncounted(raw, sends.COPY_OUT_HOOK))
    if received is None or not received.bytes:
        return unknown(sends.why_uncounted(raw, sends.RECEIVE_HOOK))
    if not sends.has_bytes_segments(raw.run):
        return Flow(copied.bytes, "exact", copied.calls, bytes_by=KERNEL)
    copied_bytes, calls = (
        round(count * received_bytes / received.bytes) for count in (copied.bytes, copied.calls)
    )
    return Flow(copied_bytes, "scaled", calls, bytes_by=KERNEL, calls_method="scaled")
