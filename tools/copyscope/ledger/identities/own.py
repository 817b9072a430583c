"""Balances of our own traffic, which is paused at both ends of a segment: exact.

Each has two counters that can disagree: what a program counts, and what a hook in the kernel, TCP itself, or
the program at the other end does. That a program agrees with itself is tested with the program
(tests/pure/test_traffic_loopback.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec import UNSET

from copyscope.ledger import flows
from copyscope.ledger.identities.balance import Balance, Unknown
from copyscope.ledger.losses import lost
from copyscope.record.call_totals import kernel_name, sends_made
from copyscope.record.instruments import Call
from copyscope.record.raw import RawRun, Segment
from copyscope.record.segments import (
    byte_segments,
    mapped_total,
    measured,
    reported,
    select,
    spliced_out,
    spliced_total,
    total,
    uncopied_out,
    why_no_calls,
    zerocopy_total,
)
from copyscope.record.traffic import Encryption, ReceiverReport, SenderReport

BLIND = "the hook on the send path does not see which calls are zero-copy"
# TCP states after the peer's FIN, include/net/tcp_states.h: CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT, CLOSE
CLOSED_BY_PEER = frozenset((8, 9, 11, 6, 7))


@dataclass(frozen=True)
class Books:
    """What is compared: the program's totals by arm, and the kernel's counts."""

    raw: RawRun

    @cached_property
    def whole(self) -> list[Segment]:
        """All that was measured."""
        return measured(self.raw.run.segments)

    @cached_property
    def counting(self) -> list[Segment]:
        """Those in which the kernel counted bytes."""
        return byte_segments(self.raw.run)

    @cached_property
    def sends(self) -> bool:
        """Whether the strategy makes a send call at all: else messages count turns of its loop."""
        return any(s.sender.calls for s in self.raw.run.segments)

    def kernel(self, side: str, hook: str) -> flows.Counted:
        """The kernel's count at a hook."""
        found = flows.counted(self.raw, side, hook)
        if found is None:
            raise Unknown(flows.why_uncounted(self.raw, hook))
        return found

    @property
    def sent(self) -> flows.Counted:
        return self.kernel("sender", flows.SEND_HOOK)

    @property
    def received(self) -> flows.Counted:
        return self.kernel("receiver", flows.RECEIVE_HOOK)


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


def received_of_tcp(b: Books) -> int:
    """Every way out of the socket, without a hook. The end of a stream counts as one byte (RFC 9293)."""
    connections = tcp_infos(b, "receiver", "bytes_received")
    return sum(int(tcp["bytes_received"]) - (tcp["state"] in CLOSED_BY_PEER) for tcp in connections)


def report_of(b: Books, side: str) -> SenderReport | ReceiverReport:
    report = b.raw.traffic.sender if side == "sender" else b.raw.traffic.receiver
    if not reported(report):
        raise Unknown(f"the {side} gave no report")
    return report


def tcp_infos(b: Books, side: str, key: str) -> list[Mapping[str, Any]]:
    """TCP_INFO of each connection of one end. Raises Unknown where one of them does not say this."""
    connections = [thread.get("tcp_info") or {} for thread in report_of(b, side).threads]
    if not connections or any(tcp.get(key) is None for tcp in connections):
        raise Unknown("TCP_INFO of a connection does not say it")
    return connections


def referenced_seen(b: Books) -> int:
    """What the kernel saw sent by reference."""
    return known(b.sent.zerocopy_bytes) + b.sent.spliced_bytes


def overhead(b: Books) -> int:
    """What kTLS added to the plaintext of the whole run: the same for each record."""
    sender = b.raw.traffic.sender
    if not flows.encrypts(b.raw):
        return 0
    if not isinstance(sender.tls_records, int) or not isinstance(sender.tls, Encryption):
        raise Unknown(flows.NO_RECORDS)
    return sender.tls_records * sender.tls.record_overhead_bytes


def sends_at_socket(b: Books) -> bool:
    """Of sendfile and splice the socket sees one for each pipe full of pages: both sides are without them."""
    spliced = spliced_total(b.counting, "calls") or 0
    return not spliced or spliced != total(b.counting, "sender", "calls")


def made_while_timed(b: Books) -> Counter[str]:
    """Send calls of the segments that time each of them, by name."""
    segments = select(b.raw.run.segments, "calls")
    if not segments:
        raise Unknown(why_no_calls(b.raw.hooks))
    made = sends_made(one.sender.send_syscalls for one in segments)
    if not any(row.side == "sender" for row in b.raw.calls) and any(made.values()):
        raise Unknown("the sender's calls were not counted: see the hooks")
    return made


def seen_by_timer(b: Books) -> list[Call]:
    made = made_while_timed(b)
    return [row for row in b.raw.calls if row.side == "sender" and kernel_name(row.syscall) in made]


def missed_by_timer(b: Books) -> int:
    """What the counting program missed because it met itself is known, and marks the run by itself."""
    return lost(b.raw.loss, "recursion_syscall_exit") or 0


BALANCES: tuple[Balance[Books], ...] = (
    Balance(
        *("sent_bytes", "bytes sent by the program = bytes into the socket", "bytes"),
        lambda b: sent_by(b.counting),
        lambda b: b.sent.bytes,
    ),
    Balance(
        *("referenced_bytes", "bytes sent by reference = bytes by reference into the socket", "bytes"),
        lambda b: flows.referenced_bytes(b.counting),
        referenced_seen,
        applies=lambda b: not flows.encrypts(b.raw),
    ),
    Balance(
        *("received_bytes", "bytes received by the program = bytes out of the socket", "bytes"),
        lambda b: received_by(b.counting),
        lambda b: b.received.bytes + without_a_call(b.counting),
    ),
    Balance(
        *("received_split", "bytes received by the program = copy_out + not copied", "bytes"),
        lambda b: received_by(b.counting),
        lambda b: b.kernel("receiver", flows.COPY_OUT_HOOK).bytes + uncopied_out(b.counting),
        applies=lambda b: not flows.encrypts(b.raw),
    ),
    Balance(
        *("acked_bytes", "bytes sent in the whole run = bytes acknowledged, by TCP's own count", "bytes"),
        # No hook counts that: it covers the segments in which only the program counts bytes, too.
        lambda b: b.raw.traffic.sender.bytes + overhead(b),
        lambda b: sum(tcp["bytes_acked"] for tcp in tcp_infos(b, "sender", "bytes_acked")),
        applies=lambda b: b.sends,
    ),
    Balance(
        *("received_of_tcp", "bytes received in the whole run = bytes received, by TCP's own count", "bytes"),
        lambda b: b.raw.traffic.receiver.bytes + overhead(b),
        received_of_tcp,
        applies=lambda b: b.sends and b.raw.traffic.receiver.mapped is not UNSET,
    ),
    Balance(
        *("delivered", "bytes sent = bytes received, all measured segments", "bytes"),
        lambda b: sent_by(b.whole),
        lambda b: received_by(b.whole),
    ),
    Balance(
        *("sent_calls", "send calls made, less those refused = send calls counted", "calls"),
        lambda b: flows.accepted_sends(b.counting),
        lambda b: b.sent.calls - b.sent.spliced_calls,
        applies=sends_at_socket,
    ),
    Balance(
        *("received_calls", "receive calls made = receive calls counted", "calls"),
        lambda b: receive_calls(b.counting),
        lambda b: b.received.calls,
    ),
    Balance(
        *("timed_calls", "send calls made = send calls seen by the call timer (calls segments)", "calls"),
        lambda b: sum(made_while_timed(b).values()),
        lambda b: sum(row.calls for row in seen_by_timer(b)),
        missed_by_timer,
    ),
    Balance(
        *("zerocopy_calls", "zero-copy sends made = zero-copy sends counted", "calls"),
        lambda b: zerocopy_total(b.counting, "sends") or 0,
        lambda b: known(b.sent.zerocopy_calls),
        applies=lambda b: zerocopy_total(b.whole, "sends") is not None,
    ),
    # A segment ends drained.
    Balance(
        *("completions", "zero-copy sends = completions", "sends"),
        lambda b: zerocopy_total(b.whole, "sends") or 0,
        lambda b: zerocopy_total(b.whole, "completions") or 0,
        applies=lambda b: zerocopy_total(b.whole, "sends") is not None,
    ),
)
