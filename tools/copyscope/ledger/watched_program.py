# SPDX-License-Identifier: GPL-2.0-only
"""Sections that only a watched program has: portrait of its traffic, own copies and ciphers, threads. Pure.

The portrait describes sizes, calls, buffers, options, packets and peers. Buffers are read from the arguments
of system calls in the calls segments. Own copies and ciphers run in user mode, so only samples show them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec import structs

from copyscope.base.stats import LEVEL, grouped
from copyscope.ledger.attribution import SideTime, share_interval, time_event_names
from copyscope.ledger.share import MENTIONED_SHARE_MIN, Share, percent, share_of_samples
from copyscope.record.derived import AccountRow
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.record.portrait import (
    BufferTotal,
    CallTotal,
    Direction,
    MappedTotal,
    PacketTotal,
    Portrait,
    RoundTotal,
)
from copyscope.record.sections import Reasons, RecordedInterval, SizeCounts
from copyscope.record.segments import ABSENT, find_hook, target_sum
from copyscope.record.watched import (
    MAPPED_IN,
    SOCKMAP,
    SPLICED_MEMORY,
    SPLICED_ON,
    SPLICED_WRITTEN,
    UserCode,
    Volume,
    added,
    discarded_rows,
    volume,
)
from copyscope.taxonomy.accounts import ACCOUNTS, IN_USER_MODE
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name
from copyscope.taxonomy.taxonomy import USER_SYMBOL
from copyscope.taxonomy.user_code import is_whole_library

Part = TypeVar("Part")
NO_SEGMENT = "arguments of calls are read in calls segments, and this run has none"


def portrait(raw: Measured) -> Portrait:
    """Return the section `portrait` over all segments. An unknown part is None, with a reason."""
    reasons: Reasons = {}

    def value_or_none(name: str, part: Part | str) -> Part | None:
        if isinstance(part, str):
            reasons[name] = part
            return None
        return part

    no_packets = (
        "no packet of a connected socket left in the program's own time"
        if any(s.phase == "calls" for s in raw.run.segments)
        else "packets are counted in calls segments, and this run has none"
    )
    no_mapping = "TCP_ZEROCOPY_RECEIVE was not called in segments that count such calls"
    return Portrait(
        reasons=reasons,
        connections=len(raw.connections),
        send=value_or_none("send", direction_total(volume(raw.volume, "send"))),
        receive=value_or_none("receive", direction_total(volume(raw.volume, "receive"))),
        packets=value_or_none("packets", packet_total(raw) or no_packets),
        buffers=value_or_none("buffers", buffer_total(raw)),
        rounds=value_or_none("rounds", round_total(raw)),
        mapped=value_or_none("mapped", mapped_total(raw) or no_mapping),
        local_share=value_or_none("local_share", local_share(raw)),
    )


def packet_total(raw: Measured) -> PacketTotal | None:
    """Return the number of packets, their mean size and mean number of segments; None if there are none."""
    sent = raw.packets
    if not sent or not sent.packets:
        return None
    return PacketTotal(sent.packets, sent.bytes / sent.packets, sent.segments / sent.packets, sent.sizes)


def direction_total(rows: Sequence[Volume]) -> Direction | str:
    """Return the sizes and calls of one direction, or why no such call was seen.

    rows: counted calls of that direction
    """
    calls, total_bytes = added(rows, lambda row: row.calls), added(rows, lambda row: row.bytes)
    if not calls:
        return "no call of this direction on a TCP, MPTCP, UDP or UNIX socket"

    def referenced_share(*syscalls: str) -> float:
        part = added([row for row in rows if row.syscall in syscalls], lambda row: row.referenced_bytes)
        return part / total_bytes if total_bytes else 0.0

    sizes = merge_histograms(row.sizes for row in rows)
    by_call = [
        CallTotal(protocol, syscall, added(same, lambda row: row.calls), added(same, lambda row: row.bytes))
        for (protocol, syscall), same in grouped(rows, lambda row: (row.protocol, row.syscall)).items()
    ]
    zerocopy_bytes = added(rows, lambda row: row.zerocopy_bytes)
    ring_bytes = added(rows, lambda row: row.bytes if row.syscall == "io_uring" else row.ring_bytes)
    return Direction(
        calls=calls,
        bytes=total_bytes,
        mean_bytes=total_bytes / calls,
        median_low_bytes=median_bucket(sizes),
        sizes=sizes,
        by_call=sorted(by_call, key=lambda total: -total.bytes),
        zerocopy_share=zerocopy_bytes / total_bytes if total_bytes else 0.0,
        page_share=referenced_share("sendfile", "splice"),
        memory_share=referenced_share(SPLICED_MEMORY),
        socket_share=referenced_share(SPLICED_ON),
        nodelay_share=added(rows, lambda row: row.nodelay_calls) / calls,
        cork_share=added(rows, lambda row: row.cork_calls) / calls,
        io_uring_share=ring_bytes / total_bytes if total_bytes else 0.0,
    )


def mapped_total(raw: Measured) -> MappedTotal | None:
    """Return what TCP_ZEROCOPY_RECEIVE mapped and copied; None if no counted segment called it."""
    rows = volume(raw.volume, "mapped")
    copies = [row for row in volume(raw.volume, "receive") if row.syscall == MAPPED_IN]
    if not rows:
        return None
    mapped_bytes, copied_bytes = added(rows, lambda row: row.bytes), added(copies, lambda row: row.bytes)
    total_bytes = mapped_bytes + copied_bytes
    pages = mapped_bytes // (raw.watched.page_bytes or 1)
    share = mapped_bytes / total_bytes if total_bytes else 0.0
    return MappedTotal(added(rows, lambda row: row.calls), mapped_bytes, pages, copied_bytes, share)


def median_bucket(sizes: SizeCounts) -> int:
    """Return the lower end of the power-of-two bucket that contains a histogram's median.

    sizes: rows of [low, count]
    """
    half, cumulated = sum(count for _, count in sizes) / 2, 0
    for low, count in sizes:
        cumulated += count
        if cumulated >= half:
            return low
    return 0


def local_share(raw: Measured) -> float | str:
    """Return the share of peers that are on this machine, or why no peer is known."""
    is_local = [peer.local for peer in raw.topology.peers if peer.local is not None]
    if not is_local:
        return "no connection was open when the path was read"
    return sum(is_local) / len(is_local)


def buffer_total(raw: Measured) -> BufferTotal | str:
    """Return totals of the buffers in the arguments of send calls, or why no buffer is known."""
    rows = [row for row in raw.shapes or [] if row.messages]
    if not rows:
        return why_no_shapes(raw, "shape") or (
            "no send with a buffer of the program's own in the calls segments (the arguments of sendfile, "
            "splice and io_uring hold no buffer)"
        )
    messages, examined = added(rows, lambda row: row.messages), added(rows, lambda row: row.looked)
    at_page, at_line = added(rows, lambda row: row.page_aligned), added(rows, lambda row: row.line_aligned)
    buffers = added(rows, lambda row: row.buffers)
    return BufferTotal(
        messages=messages,
        buffers=buffers,
        mean_per_message=buffers / messages,
        per_message=merge_histograms(row.buffers_per_message for row in rows),
        unreadable=added(rows, lambda row: row.unreadable),
        looked=examined,
        page_share=at_page / examined if examined else None,
        line_share=at_line / examined if examined else None,
        other_share=(examined - at_page - at_line) / examined if examined else None,
        repeated_share=added(rows, lambda row: row.repeated) / messages,
    )


def round_total(raw: Measured) -> RoundTotal | str:
    """Return how often TCP repeated its send loop for a single send, or why the number is unknown."""
    rows = [row for row in raw.shapes or [] if row.sends]
    if not rows:
        return why_no_shapes(raw, "round") or "no send over TCP in the calls segments"
    sends, rounds = added(rows, lambda row: row.sends), added(rows, lambda row: row.rounds)
    return RoundTotal(sends, rounds, rounds / sends, merge_histograms(row.rounds_per_send for row in rows))


def why_no_shapes(raw: Measured, hook_name: str) -> str | None:
    """Return why there are no counts of the arguments of sends; None if the hook could count.

    hook_name: id of the hook that counts
    """
    if raw.shapes is None:
        return NO_SEGMENT
    hook = find_hook(raw.hooks, hook_name)
    return f"{hook.symbol}: {hook.reason}" if hook is not None and hook.state in ABSENT else None


def merge_histograms(histograms: Iterable[SizeCounts]) -> SizeCounts:
    """Return the sum of histograms with rows of [low, count]."""
    counts: Counter[int] = Counter()
    for low, count in (row for histogram in histograms for row in histogram):
        counts[low] += count
    return [[low, count] for low, count in sorted(counts.items())]


# Copies and ciphers of the program itself, in user mode.

# Maximum part (0..1) of the user-mode samples in code of unknown purpose. Above it, the program's own copies
# are reported as unknown.
UNKNOWN_CODE_MAX = 0.05
# Minimum number of samples that show the callers of copies: with 20 samples, a half means 30 to 70 %.
CALLER_SAMPLES_MIN = 20
UNNAMED = "callers that are not known"
# Reason why a library without symbols may contain ciphers.
STRIPPED = "stripped: ciphers, handshakes and hashes cannot be distinguished"


def user_code_rows(raw: Measured) -> list[UserCode]:
    """Return the rows of sampled user code that belong to the event used to divide CPU time."""
    events = time_event_names(raw) or ()
    return [row for row in raw.user_code or [] if event_name(row.event) in events]


def why_unknown(raw: Measured, account: str) -> str | None:
    """Return why the program's own copies or ciphers are unknown; None if they are known.

    They are unknown if too much of the sampled user code has no function names.
    """
    rows = user_code_rows(raw)
    unnamed = [row for row in rows if row.reason is not None]
    unnamed_samples, all_samples = (sum(row.samples for row in some) for some in (unnamed, rows))
    if unnamed_samples > UNKNOWN_CODE_MAX * all_samples:
        worst = max(unnamed, key=lambda row: row.samples)
        return _unknown_reason(worst.samples / all_samples, worst.file, worst.reason or "")
    user = _user_samples(raw)
    ambiguous = _ambiguous_samples(user, account)
    user_weight = sum(row.weight for row in user)
    share = sum(row.weight for row in ambiguous) / user_weight if user_weight else 0.0
    if share <= UNKNOWN_CODE_MAX:
        return None
    return _unknown_reason(share, max(ambiguous, key=lambda row: row.weight).symbol, STRIPPED)


def _unknown_reason(share: float, file: str, reason: str) -> str:
    return f"{percent(share)} of its time in user mode is in {file}: {reason}"


def _user_samples(raw: Measured) -> list[Sample]:
    """Return the program's samples in user mode, for the event used to divide CPU time."""
    events = time_event_names(raw) or ()
    return [
        row
        for row in raw.samples
        if row.side == "target" and row.context == "user" and event_name(row.event) in events
    ]


def _ambiguous_samples(user: Sequence[Sample], account: str) -> list[Sample]:
    """Return the user samples that may be cipher time: those in crypto libraries that have no symbols."""
    return [row for row in user if account == "user_encrypt" and is_whole_library(row.symbol)]


class CopyCaller(NamedTuple):
    """A caller of the program's own copies.

    name: function that calls the copy
    source: its `FILE:LINE`, empty if unknown
    share: part (0..1) of the samples of the program's own copies
    """

    name: str
    source: str
    share: float


def copy_callers(raw: Measured) -> list[CopyCaller] | int:
    """Return the callers of the program's own copies, most samples first.

    With fewer than CALLER_SAMPLES_MIN samples, return the number of samples.
    """
    events = time_event_names(raw) or ()
    samples: Counter[tuple[str, str]] = Counter()
    for row in raw.user_callers or []:
        if event_name(row.event) in events:
            samples[row.caller or UNNAMED, (row.source or "").rpartition("/")[2]] += row.samples
    all_samples = samples.total()
    if all_samples < CALLER_SAMPLES_MIN:
        return all_samples
    return [CopyCaller(*caller, count / all_samples) for caller, count in samples.most_common()]


def copy_bounds(raw: Measured, time: SideTime, account: str) -> Share | None:
    """Return bounds for the CPU-time share of the program's own copies or ciphers; None if unsampled.

    The lower bound is the sampled share. The upper bound adds all code that may copy or encrypt.

    raw: the run as measured, without reclassify_unknown()
    time: CPU time of the program
    """
    user, code = _user_samples(raw), user_code_rows(raw)
    all_weight, code_samples = time.weights.all_weight, sum(row.samples for row in code)
    if not all_weight or not code_samples:
        return None
    least = sum(row.weight for row in user if row.category == account) / all_weight
    unnamed_samples = sum(row.samples - row.copy_samples for row in code if row.reason is not None)
    most = least + unnamed_samples / code_samples * sum(row.weight for row in user) / all_weight
    most += sum(row.weight for row in _ambiguous_samples(user, account)) / all_weight
    return Share(None, share_of_samples(time, least).low, share_of_samples(time, most).high)


def reclassify_unknown(raw: Measured) -> Measured:
    """Return the run with its own copies and ciphers counted as other user time, if not all are known."""
    unknown = [account for account in IN_USER_MODE if why_unknown(raw, account) is not None]
    if not unknown:
        return raw
    samples = [
        structs.replace(row, kind="stage", category="user", symbol=USER_SYMBOL)
        if row.category in unknown and row.context == "user"
        else row
        for row in raw.samples
    ]
    return structs.replace(raw, samples=samples)


def with_unknown_rows(
    raw: Measured, ledger: Sequence[AccountRow], times: Mapping[str, SideTime]
) -> list[AccountRow]:
    """Return the ledger, with values of own copies and ciphers set to None if they are unknown.

    The interval of such a row holds the bounds of the share. The row of ciphers is left out if nothing shows
    that the program has ciphers.

    raw: the run as measured, without reclassify_unknown()
    """
    reasons = {account: why_unknown(raw, account) for account in IN_USER_MODE}
    has_ciphers = any(row.category == "user_encrypt" for row in raw.samples) or bool(
        _ambiguous_samples(_user_samples(raw), "user_encrypt")
    )
    if not has_ciphers:
        ledger = [row for row in ledger if row.account != "user_encrypt" or reasons[row.account] is None]
    return [
        row
        if (reason := reasons.get(row.account)) is None
        else _unknown_row(row, raw, times["target"], reason)
        for row in ledger
    ]


def _unknown_row(row: AccountRow, raw: Measured, time: SideTime, reason: str) -> AccountRow:
    """Return a row without its sampled values, and with the bounds of its CPU time as interval.

    raw: the run as measured
    time: CPU time of the program
    reason: why the account is unknown
    """
    bounds = copy_bounds(raw, time, row.account)
    interval = None
    if bounds is not None and time.all_ns:
        interval = RecordedInterval(round(bounds.low * time.all_ns), round(bounds.high * time.all_ns), LEVEL)
        reason = f"{bounds.spoken()} of its CPU time: {reason}"
    unknown = ["cpu_ns", "share", "ns_per_kib", "samples", *EVENT_COLUMNS]
    unknown += ["ci"] if interval is None else []
    return structs.replace(
        row,
        cpu_ns=None,
        share=None,
        ns_per_kib=None,
        samples=None,
        ci=interval,
        cycles=None,
        instructions=None,
        l1d_misses=None,
        llc_misses=None,
        events={},
        reasons=row.reasons | dict.fromkeys(unknown, reason),
    )


# Threads of the program by name, with the CPU time and the copies of the threads.


@dataclass(frozen=True)
class ThreadShare:
    """CPU time of all threads with the same name, excluding softirq work charged to other tasks.

    name: empty for all threads that the record does not name
    share: share of the CPU time of the program's own processes
    copies: account -> share of the threads' CPU time; None: unknown, as in the ledger
    """

    name: str
    samples: int
    share: Share
    copies: dict[str, float | None]


def thread_shares(raw: Measured, time: SideTime) -> list[ThreadShare]:
    """Return the threads of a watched program, most CPU time first; empty if there are no samples."""
    events = time_event_names(raw) or ()
    rows = [row for row in raw.threads or [] if event_name(row.event) in events]
    all_weight = sum(sum(row.weights.values()) for row in rows)
    if not all_weight:
        return []
    unknown = {account for account in IN_USER_MODE if why_unknown(raw, account)}
    shares = []
    for row in rows:
        share = sum(row.weights.values()) / all_weight
        interval = share_interval(time, share)
        copies = {
            account: None if account in unknown else row.weights.get(account, 0) / all_weight
            for account in ACCOUNTS
        }
        thread_share = Share(share, interval.low, interval.high)
        shares.append(ThreadShare(row.thread, row.samples, thread_share, copies))
    return sorted(shares, key=lambda thread: (not thread.name, -(thread.share.share or 0.0)))


def path_remarks(raw: Measured) -> list[str]:
    """Return remarks on bytes that took a path not visible in the shares of CPU time."""
    sent = volume(raw.volume, "send")
    both = [*sent, *volume(raw.volume, "receive")]
    sent_bytes = target_sum(raw.run.segments, lambda target: target.bytes_sent)
    received_bytes = target_sum(raw.run.segments, lambda target: target.bytes_received)
    all_bytes = sent_bytes + received_bytes

    def sent_by(*syscalls: str) -> float:
        rows = [row for row in sent if row.syscall in syscalls]
        referenced_bytes = added(rows, lambda row: row.referenced_bytes)
        return referenced_bytes / sent_bytes if referenced_bytes else 0.0

    copied_in_call_bytes = added(sent, lambda row: row.copied_bytes or 0)

    def moved_over(*protocols: str) -> float:
        return bytes_share([row for row in both if row.protocol in protocols], all_bytes)

    remarks = (
        (sent_by("sendfile", "splice"), "{share} of its bytes went out by reference to pages"),
        (sent_by(SPLICED_ON), "{share} of its bytes it spliced from socket to socket, by reference"),
        (
            sent_by(SPLICED_WRITTEN),
            "{share} of its bytes it wrote into a pipe, which copied them once, and spliced them from there",
        ),
        (
            sent_by(SPLICED_MEMORY),
            "{share} of its bytes went out by reference to its own memory (vmsplice), and it gets no notice "
            "when that memory may be rewritten",
        ),
        (
            copied_in_call_bytes / sent_bytes if copied_in_call_bytes else 0.0,
            "{share} of its bytes were passed by reference, but the socket copied them in the send call",
        ),
        (
            # min(), because some of these bytes may have been peeked at before.
            min(1.0, bytes_share(discarded_rows(raw.volume), received_bytes)),
            "{share} of what it received was dropped without a copy (MSG_TRUNC)",
        ),
        (moved_over("unix_stream", "unix_dgram"), "{share} of its bytes went through UNIX sockets"),
        (
            moved_over(SOCKMAP),
            "{share} of its bytes went through sockets in a sockmap: its BPF programs may redirect them "
            "past TCP",
        ),
        (
            moved_over("mptcp"),
            "{share} of its bytes went over MPTCP, where the kernel ignores MSG_ZEROCOPY (it refuses "
            "SO_ZEROCOPY)",
        ),
    )
    texts = [remark.format(share=percent(share)) for share, remark in remarks if share >= MENTIONED_SHARE_MIN]
    if raw.watched.uncounted:
        texts.append(f"traffic of its {', '.join(raw.watched.uncounted)} sockets is not counted")
    return texts


def bytes_share(rows: Sequence[Volume], total_bytes: int) -> float:
    """Return the bytes of some rows as a share (0..1) of `total_bytes`; 0 if the rows have no bytes."""
    rows_bytes = added(rows, lambda row: row.bytes)
    return rows_bytes / total_bytes if rows_bytes else 0.0
