# SPDX-License-Identifier: GPL-2.0-only
"""Balances of copyscope's own traffic: exact, because it is paused as each segment starts or ends. Pure.

Each balance compares two independent counters: one in a program, and one in a kernel hook, in TCP itself, or
in the program at the other end. Whether a program's own totals agree is tested elsewhere
(tests/pure/test_traffic_loopback.py).
"""

from collections import Counter
from collections.abc import Sequence

from copyscope.ledger.checks import Balance, UnknownCount
from copyscope.ledger.flows import NO_FLAG, NO_RECORDS, uses_ktls
from copyscope.ledger.losses import lost_count
from copyscope.ledger.sends import (
    COPY_OUT_HOOK,
    RECEIVE_HOOK,
    SEND_HOOK,
    HookCounts,
    hook_counts,
    own_send_totals,
    why_uncounted,
)
from copyscope.record.instruments import Call
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    byte_segments,
    bytes_received,
    bytes_sent,
    has_report,
    is_relay,
    mapped_sum,
    measured,
    receiver_sum,
    relay_input_sum,
    select,
    sender_sum,
    spliced_out_sum,
    spliced_sum,
    uncopied_out,
    why_no_calls,
    zerocopy_sum,
)
from copyscope.record.traffic import Encryption, ReceiverReport, SenderReport

# TCP states after the peer's FIN, include/net/tcp_states.h: CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT, CLOSE
CLOSED_BY_PEER = frozenset((8, 9, 11, 6, 7))


def all_segments(raw: Measured) -> list[Segment]:
    """Return all measured segments."""
    return measured(raw.run.segments)


def hooked_segments(raw: Measured) -> list[Segment]:
    """Return the segments in which the byte hooks were counting."""
    return byte_segments(raw.run)


def sends(raw: Measured) -> bool:
    """Return True if the strategy makes send calls. Otherwise `messages` counts iterations of its loop."""
    return any(s.sender.calls for s in raw.run.segments)


def hook_counts_of(raw: Measured, side: str, hook: str) -> HookCounts:
    """Return the kernel's counts of a byte hook on a side, or raise UnknownCount."""
    counts = hook_counts(raw, side, hook)
    if counts is None:
        raise UnknownCount(why_uncounted(raw, hook))
    return counts


def sent(raw: Measured) -> HookCounts:
    """Return the kernel's counts at the place where bytes enter the sender's socket."""
    return hook_counts_of(raw, "sender", SEND_HOOK)


def received(raw: Measured) -> HookCounts:
    """Return the kernel's counts at the place where bytes leave the receiver's socket."""
    return hook_counts_of(raw, "receiver", RECEIVE_HOOK)


def zerocopy_count(count: int | None) -> int:
    """Return a count of zero-copy sends, or raise UnknownCount if the hook could not see the flag."""
    if count is None:
        raise UnknownCount(NO_FLAG)
    return count


def received_without_call(segments: Sequence[Segment]) -> int:
    """Return the bytes that the receiver mapped, that mapping calls copied, or that the receiver spliced."""
    mapped_bytes = mapped_sum(segments, lambda mapped: mapped.bytes) or 0
    copied_bytes = mapped_sum(segments, lambda mapped: mapped.copied_bytes) or 0
    return mapped_bytes + copied_bytes + (spliced_out_sum(segments, lambda spliced: spliced.bytes) or 0)


def receive_calls(segments: Sequence[Segment]) -> int:
    """Return the number of the receiver's calls that pass through the socket layer."""
    mapped_calls = mapped_sum(segments, lambda mapped: mapped.calls) or 0
    spliced_calls = spliced_out_sum(segments, lambda spliced: spliced.calls) or 0
    return receiver_sum(segments, lambda receiver: receiver.calls) - mapped_calls - spliced_calls


def tcp_received_bytes(raw: Measured) -> int:
    """Return the number of received bytes that TCP itself counted, however they left the socket.

    TCP counts the end of a stream as a byte (RFC 9293), which is subtracted.
    """
    connections = tcp_infos(raw, "receiver", "bytes_received", "state")
    return sum(bytes_received - (state in CLOSED_BY_PEER) for bytes_received, state in connections)


def report_of(raw: Measured, side: str) -> SenderReport | ReceiverReport:
    """Return the final report of a side, or raise UnknownCount."""
    report = raw.reports.sender if side == "sender" else raw.reports.receiver
    if not has_report(report):
        raise UnknownCount(f"the {side} gave no report")
    return report


def tcp_infos(raw: Measured, side: str, *keys: str) -> list[list[int]]:
    """Return the TCP_INFO of each connection of a side, or raise UnknownCount if a value is missing."""
    infos = [thread.tcp_info or {} for thread in report_of(raw, side).threads]
    values = [[value for key in keys if (value := info.get(key)) is not None] for info in infos]
    if not values or any(len(connection) < len(keys) for connection in values):
        raise UnknownCount("TCP_INFO of a connection lacks this value")
    return values


def hooked_references(raw: Measured) -> int:
    """Return the bytes sent by reference, as the kernel counted them."""
    return zerocopy_count(sent(raw).zerocopy_bytes) + sent(raw).spliced_bytes


def tls_overhead_bytes(raw: Measured) -> int:
    """Return the bytes that kTLS added to the plaintext in the whole run: a fixed number for each record."""
    sender = raw.reports.sender
    if not uses_ktls(raw):
        return 0
    if not isinstance(sender.tls_records, int) or not isinstance(sender.tls, Encryption):
        raise UnknownCount(NO_RECORDS)
    return sender.tls_records * sender.tls.record_overhead_bytes


def relay_received_bytes(raw: Measured) -> int:
    """Return the number of bytes that a relay itself counted as received, in segments with byte hooks."""
    return relay_input_sum(hooked_segments(raw), lambda relayed: relayed.bytes) or 0


def relay_spliced_bytes(raw: Measured) -> int:
    """Return the number of bytes that a relay received with splice(2), in segments with byte hooks."""
    return relay_input_sum(hooked_segments(raw), lambda relayed: relayed.spliced_bytes) or 0


def calls_reach_socket(raw: Measured) -> bool:
    """Return False for a sender that only uses sendfile or splice.

    The socket sees one call per full pipe. Both counts leave out such calls, so nothing remains to compare.
    """
    spliced = spliced_sum(hooked_segments(raw), lambda spliced: spliced.calls) or 0
    return not spliced or spliced != sender_sum(hooked_segments(raw), lambda sender: sender.calls)


def sends_while_timed(raw: Measured) -> Counter[str]:
    """Return {system call: number of send calls} for the calls segments, as counted by the sender."""
    segments = select(raw.run.segments, "calls")
    if not segments:
        raise UnknownCount(why_no_calls(raw.hooks))
    calls: Counter[str] = Counter()
    for segment in segments:
        for function, count in segment.sender.send_syscalls.items():
            calls[system_call(function)] += count
    if not any(row.side == "sender" for row in raw.calls) and any(calls.values()):
        raise UnknownCount("the sender's calls were not counted: see the hooks")
    return calls


def system_call(function: str) -> str:
    """Return the system call that a C function makes: send() makes sendto, recv() makes recvfrom."""
    return {"send": "sendto", "recv": "recvfrom"}.get(function, function)


def timed_sends(raw: Measured) -> list[Call]:
    """Return the timed system calls of the sender that are among its send calls."""
    names = sends_while_timed(raw)
    return [row for row in raw.calls if row.side == "sender" and system_call(row.syscall) in names]


ROWS: tuple[Balance, ...] = (
    Balance(
        *("sent_bytes", "bytes sent by the program = bytes into the socket", "bytes"),
        left=lambda raw: bytes_sent(hooked_segments(raw)),
        right=lambda raw: sent(raw).bytes,
    ),
    Balance(
        *("referenced_bytes", "bytes sent by reference = bytes by reference into the socket", "bytes"),
        left=lambda raw: own_send_totals(hooked_segments(raw)).referenced_bytes,
        right=hooked_references,
        applies=lambda raw: not uses_ktls(raw),
    ),
    Balance(
        *("received_bytes", "bytes received by the program = bytes out of the socket", "bytes"),
        left=lambda raw: bytes_received(hooked_segments(raw)),
        right=lambda raw: received(raw).bytes + received_without_call(hooked_segments(raw)),
    ),
    Balance(
        *("received_split", "bytes received by the program = copy_out + not copied", "bytes"),
        left=lambda raw: bytes_received(hooked_segments(raw)),
        right=lambda raw: (
            hook_counts_of(raw, "receiver", COPY_OUT_HOOK).bytes + uncopied_out(hooked_segments(raw))
        ),
        applies=lambda raw: not uses_ktls(raw),
    ),
    Balance(
        *("taken_bytes", "bytes received by the relay = bytes out of its socket + spliced", "bytes"),
        left=relay_received_bytes,
        right=lambda raw: hook_counts_of(raw, "sender", RECEIVE_HOOK).bytes + relay_spliced_bytes(raw),
        applies=lambda raw: is_relay(raw.run),
    ),
    Balance(
        *("taken_split", "bytes received by the relay = copied to it + spliced", "bytes"),
        left=relay_received_bytes,
        right=lambda raw: hook_counts_of(raw, "sender", COPY_OUT_HOOK).bytes + relay_spliced_bytes(raw),
        applies=lambda raw: is_relay(raw.run),
    ),
    Balance(
        *("relayed_bytes", "bytes received by the relay = bytes into its other socket", "bytes"),
        left=relay_received_bytes,
        right=lambda raw: sent(raw).bytes,
        applies=lambda raw: is_relay(raw.run),
    ),
    # TCP's own counts need no hook, so they cover the whole run.
    Balance(
        *("acked_bytes", "bytes sent in the whole run = bytes acknowledged, by TCP's own count", "bytes"),
        left=lambda raw: raw.reports.sender.bytes + tls_overhead_bytes(raw),
        right=lambda raw: sum(acked for (acked,) in tcp_infos(raw, "sender", "bytes_acked")),
        applies=sends,
    ),
    Balance(
        *("received_of_tcp", "bytes received in the whole run = bytes received, by TCP's own count", "bytes"),
        left=lambda raw: raw.reports.receiver.bytes + tls_overhead_bytes(raw),
        right=tcp_received_bytes,
        applies=sends,
    ),
    Balance(
        *("delivered", "bytes sent = bytes received, all measured segments", "bytes"),
        left=lambda raw: bytes_sent(all_segments(raw)),
        right=lambda raw: bytes_received(all_segments(raw)),
    ),
    Balance(
        *("sent_calls", "send calls made, less refused calls = send calls counted", "calls"),
        left=lambda raw: (
            own_send_totals(hooked_segments(raw)).calls - own_send_totals(hooked_segments(raw)).pages
        ),
        right=lambda raw: sent(raw).calls - sent(raw).spliced_calls,
        applies=calls_reach_socket,
    ),
    Balance(
        *("received_calls", "receive calls made = receive calls counted", "calls"),
        left=lambda raw: receive_calls(hooked_segments(raw)),
        right=lambda raw: received(raw).calls,
    ),
    Balance(
        *("timed_calls", "send calls made = send calls seen by the call timer (calls segments)", "calls"),
        left=lambda raw: sum(sends_while_timed(raw).values()),
        right=lambda raw: sum(row.calls for row in timed_sends(raw)),
        # Calls that the timer is known to have missed because of recursion are reported as a loss.
        tolerance=lambda raw: lost_count(raw, "recursion_syscall_exit") or 0,
    ),
    Balance(
        *("zerocopy_calls", "zero-copy sends made = zero-copy sends counted", "calls"),
        left=lambda raw: zerocopy_sum(hooked_segments(raw), lambda zerocopy: zerocopy.sends) or 0,
        right=lambda raw: zerocopy_count(sent(raw).zerocopy_calls),
        applies=lambda raw: zerocopy_sum(all_segments(raw), lambda zerocopy: zerocopy.sends) is not None,
    ),
    # A segment ends when all completions have been read.
    Balance(
        *("completions", "zero-copy sends = completions", "sends"),
        left=lambda raw: zerocopy_sum(all_segments(raw), lambda zerocopy: zerocopy.sends) or 0,
        right=lambda raw: zerocopy_sum(all_segments(raw), lambda zerocopy: zerocopy.completions) or 0,
        applies=lambda raw: zerocopy_sum(all_segments(raw), lambda zerocopy: zerocopy.sends) is not None,
    ),
)
