"""Balances of our own traffic, which is paused at both ends of a segment: exact.

Each has two counters that can disagree: what a program counts, and what a hook in the kernel, TCP itself, or
the program at the other end does. That a program agrees with itself is tested with the program
(tests/pure/test_traffic_loopback.py).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from copyscope.ledger.checks.balance import Balance, Unknown
from copyscope.ledger.flows import NO_RECORDS, encrypts
from copyscope.ledger.sends import (
    COPY_OUT_HOOK,
    RECEIVE_HOOK,
    SEND_HOOK,
    Counted,
    counted,
    own_sends,
    why_uncounted,
)
from copyscope.ledger.verdict import lost
from copyscope.record.instruments import Call
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    byte_segments,
    mapped_total,
    measured,
    relays,
    reported,
    select,
    spliced_out,
    spliced_total,
    taken_total,
    total,
    uncopied_out,
    why_no_calls,
    zerocopy_total,
)
from copyscope.record.traffic import Encryption, ReceiverReport, SenderReport

BLIND = "the hook on the send path does not see which calls are zero-copy"
# TCP states after the peer's FIN, include/net/tcp_states.h: CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT, CLOSE
CLOSED_BY_PEER = frozenset((8, 9, 11, 6, 7))


def whole(raw: Measured) -> list[Segment]:
    """All that was measured."""
    return measured(raw.run.segments)


def counting(raw: Measured) -> list[Segment]:
    """Those in which the kernel counted bytes."""
    return byte_segments(raw.run)


def sends(raw: Measured) -> bool:
    """Whether the strategy makes a send call at all: else messages count turns of its loop."""
    return any(s.sender.calls for s in raw.run.segments)


def kernel(raw: Measured, side: str, hook: str) -> Counted:
    """The kernel's count at a hook."""
    found = counted(raw, side, hook)
    if found is None:
        raise Unknown(why_uncounted(raw, hook))
    return found


def sent(raw: Measured) -> Counted:
    return kernel(raw, "sender", SEND_HOOK)


def received(raw: Measured) -> Counted:
    return kernel(raw, "receiver", RECEIVE_HOOK)


def known(value: int | None) -> int:
    if value is None:
        raise Unknown(BLIND)
    return value


def sent_by(segments: Sequence[Segment]) -> int:
    return total(segments, "sender", "bytes")


def received_by(segments: Sequence[Segment]) -> int:
    return total(segments, "receiver", "bytes")


def without_a_call(segments: Sequence[Segment]) -> int:
    """Bytes that passed no receive call, as the program counts them: mapped, copied beside that, spliced."""
    mapped = (mapped_total(segments, "bytes") or 0) + (mapped_total(segments, "copied_bytes") or 0)
    return mapped + (spliced_out(segments, "bytes") or 0)


def receive_calls(segments: Sequence[Segment]) -> int:
    """Those that pass the socket layer."""
    others = (mapped_total(segments, "calls") or 0) + (spliced_out(segments, "calls") or 0)
    return total(segments, "receiver", "calls") - others


def received_of_tcp(raw: Measured) -> int:
    """Every way out of the socket, without a hook. The end of a stream counts as one byte (RFC 9293)."""
    connections = tcp_infos(raw, "receiver", "bytes_received", "state")
    return sum(received - (state in CLOSED_BY_PEER) for received, state in connections)


def report_of(raw: Measured, side: str) -> SenderReport | ReceiverReport:
    report = raw.reports.sender if side == "sender" else raw.reports.receiver
    if not reported(report):
        raise Unknown(f"the {side} gave no report")
    return report


def tcp_infos(raw: Measured, side: str, *keys: str) -> list[list[int]]:
    """These of TCP_INFO, of each connection of one end. Raises Unknown where one does not say them."""
    infos = [thread.tcp_info or {} for thread in report_of(raw, side).threads]
    found = [[value for key in keys if (value := tcp.get(key)) is not None] for tcp in infos]
    if not found or any(len(one) < len(keys) for one in found):
        raise Unknown("TCP_INFO of a connection does not say it")
    return found


def referenced_seen(raw: Measured) -> int:
    """What the kernel saw sent by reference."""
    return known(sent(raw).zerocopy_bytes) + sent(raw).spliced_bytes


def overhead(raw: Measured) -> int:
    """What kTLS added to the plaintext of the whole run: the same for each record."""
    sender = raw.reports.sender
    if not encrypts(raw):
        return 0
    if not isinstance(sender.tls_records, int) or not isinstance(sender.tls, Encryption):
        raise Unknown(NO_RECORDS)
    return sender.tls_records * sender.tls.record_overhead_bytes


def taken(raw: Measured, key: str) -> int:
    """What a relay says that it took, where the kernel counted it."""
    return taken_total(counting(raw), key) or 0


def sends_at_socket(raw: Measured) -> bool:
    """Of sendfile and splice the socket sees one for each pipe full of pages: both sides are without them."""
    spliced = spliced_total(counting(raw), "calls") or 0
    return not spliced or spliced != total(counting(raw), "sender", "calls")


def made_while_timed(raw: Measured) -> Counter[str]:
    """Send calls of the segments that time each of them, by name."""
    segments = select(raw.run.segments, "calls")
    if not segments:
        raise Unknown(why_no_calls(raw.hooks))
    made = sends_made(one.sender.send_syscalls for one in segments)
    if not any(row.side == "sender" for row in raw.calls) and any(made.values()):
        raise Unknown("the sender's calls were not counted: see the hooks")
    return made


def seen_by_timer(raw: Measured) -> list[Call]:
    made = made_while_timed(raw)
    return [row for row in raw.calls if row.side == "sender" and kernel_name(row.syscall) in made]


def missed_by_timer(raw: Measured) -> int:
    """What the counting program missed because it met itself is known, and marks the run by itself."""
    return lost(raw, "recursion_syscall_exit") or 0


ROWS: tuple[Balance, ...] = (
    Balance(
        *("sent_bytes", "bytes sent by the program = bytes into the socket", "bytes"),
        lambda raw: sent_by(counting(raw)),
        lambda raw: sent(raw).bytes,
    ),
    Balance(
        *("referenced_bytes", "bytes sent by reference = bytes by reference into the socket", "bytes"),
        lambda raw: own_sends(counting(raw)).referenced_bytes,
        referenced_seen,
        applies=lambda raw: not encrypts(raw),
    ),
    Balance(
        *("received_bytes", "bytes received by the program = bytes out of the socket", "bytes"),
        lambda raw: received_by(counting(raw)),
        lambda raw: received(raw).bytes + without_a_call(counting(raw)),
    ),
    Balance(
        *("received_split", "bytes received by the program = copy_out + not copied", "bytes"),
        lambda raw: received_by(counting(raw)),
        lambda raw: kernel(raw, "receiver", COPY_OUT_HOOK).bytes + uncopied_out(counting(raw)),
        applies=lambda raw: not encrypts(raw),
    ),
    Balance(
        *("taken_bytes", "bytes taken by the relay = bytes out of its socket + spliced", "bytes"),
        lambda raw: taken(raw, "bytes"),
        lambda raw: kernel(raw, "sender", RECEIVE_HOOK).bytes + taken(raw, "spliced_bytes"),
        applies=lambda raw: relays(raw.run),
    ),
    Balance(
        *("taken_split", "bytes taken by the relay = copied to it + spliced", "bytes"),
        lambda raw: taken(raw, "bytes"),
        lambda raw: kernel(raw, "sender", COPY_OUT_HOOK).bytes + taken(raw, "spliced_bytes"),
        applies=lambda raw: relays(raw.run),
    ),
    Balance(
        *("relayed_bytes", "bytes taken by the relay = bytes into its other socket", "bytes"),
        lambda raw: taken(raw, "bytes"),
        lambda raw: sent(raw).bytes,
        applies=lambda raw: relays(raw.run),
    ),
    Balance(
        *("acked_bytes", "bytes sent in the whole run = bytes acknowledged, by TCP's own count", "bytes"),
        # No hook counts that: it covers the segments in which only the program counts bytes, too.
        lambda raw: raw.reports.sender.bytes + overhead(raw),
        lambda raw: sum(acked for (acked,) in tcp_infos(raw, "sender", "bytes_acked")),
        applies=sends,
    ),
    Balance(
        *("received_of_tcp", "bytes received in the whole run = bytes received, by TCP's own count", "bytes"),
        lambda raw: raw.reports.receiver.bytes + overhead(raw),
        received_of_tcp,
        applies=sends,
    ),
    Balance(
        *("delivered", "bytes sent = bytes received, all measured segments", "bytes"),
        lambda raw: sent_by(whole(raw)),
        lambda raw: received_by(whole(raw)),
    ),
    Balance(
        *("sent_calls", "send calls made, less those refused = send calls counted", "calls"),
        lambda raw: own_sends(counting(raw)).calls - own_sends(counting(raw)).pages,
        lambda raw: sent(raw).calls - sent(raw).spliced_calls,
        applies=sends_at_socket,
    ),
    Balance(
        *("received_calls", "receive calls made = receive calls counted", "calls"),
        lambda raw: receive_calls(counting(raw)),
        lambda raw: received(raw).calls,
    ),
    Balance(
        *("timed_calls", "send calls made = send calls seen by the call timer (calls segments)", "calls"),
        lambda raw: sum(made_while_timed(raw).values()),
        lambda raw: sum(row.calls for row in seen_by_timer(raw)),
        missed_by_timer,
    ),
    Balance(
        *("zerocopy_calls", "zero-copy sends made = zero-copy sends counted", "calls"),
        lambda raw: zerocopy_total(counting(raw), "sends") or 0,
        lambda raw: known(sent(raw).zerocopy_calls),
        applies=lambda raw: zerocopy_total(whole(raw), "sends") is not None,
    ),
    # A segment ends drained.
    Balance(
        *("completions", "zero-copy sends = completions", "sends"),
        lambda raw: zerocopy_total(whole(raw), "sends") or 0,
        lambda raw: zerocopy_total(whole(raw), "completions") or 0,
        applies=lambda raw: zerocopy_total(whole(raw), "sends") is not None,
    ),
)


def kernel_name(syscall: str) -> str:
    """The C library's send() and recv() are the system calls sendto and recvfrom."""
    return {"send": "sendto", "recv": "recvfrom"}.get(syscall, syscall)


def sends_made(totals: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The `send_syscalls` of several segments, added up by the kernel's names."""
    made: Counter[str] = Counter()
    for syscall, calls in (pair for made_in in totals for pair in made_in.items()):
        made[kernel_name(syscall)] += calls
    return made
