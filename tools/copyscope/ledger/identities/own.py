"""Balances of our own traffic: bytes, calls, completions and totals, exact by construction."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from msgspec import UNSET

from copyscope.ledger import flows
from copyscope.ledger.identities.balance import Balance, Unknown
from copyscope.ledger.losses import lost
from copyscope.record.call_totals import PROGRAM, kernel_name, sends_made
from copyscope.record.derived import AccountRow
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
    why_no_ledger,
    zerocopy_total,
)
from copyscope.record.traffic import Encryption, ReceiverReport, SenderReport

BLIND = "the hook on the send path does not see which calls are zero-copy"
# TCP states after the peer's FIN, include/net/tcp_states.h: CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT, CLOSE
CLOSED_BY_PEER = frozenset((8, 9, 11, 6, 7))
# Where all calls are counted (`calls[].counted_at`) -> the hook of the sends.
COUNTING = {"socket": "call_sent", "return": "syscall_exit"}


@dataclass(frozen=True)
class Books:
    """What is compared: the program's totals by arm, the kernel's counts, the rows of the ledger."""

    raw: RawRun
    ledger: Sequence[AccountRow]

    @cached_property
    def whole(self) -> list[Segment]:
        """All that was measured."""
        return measured(self.raw.run.segments)

    @cached_property
    def probed(self) -> list[Segment]:
        """The ledger's segments."""
        return select(self.raw.run.segments, "ledger")

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

    def rows(self, *accounts: str) -> list[int]:
        """The bytes of accounts as the ledger's rows have them."""
        found = [cell(self.ledger, account) for account in accounts]
        named = " or ".join(filter(None, (", ".join(accounts[:-1]), accounts[-1])))
        if None in found:
            raise Unknown(why_no_ledger(self.raw.run) or f"{named}: bytes not known, see the ledger")
        return [one for one in found if one is not None]


def cell(ledger: Iterable[AccountRow], account: str) -> int | None:
    """Sum of an account's known bytes over its rows; None when its home row does not know."""
    values = [row.bytes for row in ledger if row.account == account and row.bytes is not None]
    return sum(values) if values else None


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


def gives_references(segments: Sequence[Segment]) -> bool:
    """Whether the strategy sends with MSG_ZEROCOPY, or gives pages."""
    return zerocopy_total(segments, "sends") is not None or spliced_total(segments, "calls") is not None


def sent_split(b: Books) -> int:
    """Copied in, which the kernel counts, and referenced, which the program does."""
    copied = known(flows.kernel_copied_in(b.raw, b.sent))
    return copied + flows.referenced_bytes(b.raw.topology, b.counting)


def referenced_seen(b: Books) -> int:
    """What the kernel saw sent by reference, and did not copy at the call."""
    seen = b.sent
    at_call = flows.copied_at_call(b.raw.topology, b.counting)
    return known(seen.zerocopy_bytes) + seen.spliced_bytes - at_call


def referenced_ended(b: Books) -> int:
    """Pages of a file or a pipe have no completions: what the program gave as such."""
    path = b.raw.topology
    return flows.deferred_bytes(path, b.counting) + flows.uncopied_bytes(path, b.counting)


def references_in_rows(b: Books) -> int:
    _, deferred, silent = b.rows("pin", "deferred", "silent")
    return deferred + silent + flows.zero_copy_bytes(b.raw, silent)


def overhead(b: Books) -> int:
    """What kTLS added to the plaintext of the whole run: the same for each record."""
    sender = b.raw.traffic.sender
    if not flows.encrypts(b.raw):
        return 0
    if not isinstance(sender.tls_records, int) or not isinstance(sender.tls, Encryption):
        raise Unknown(flows.NO_RECORDS)
    return sender.tls_records * sender.tls.record_overhead_bytes


def messages_received(b: Books) -> int:
    """The receiver counts messages by their size, the sender by its calls."""
    if any(s.receiver.messages is None for s in b.whole):
        raise Unknown("the receiver was not told the size of a message")
    return total(b.whole, "receiver", "messages")


def copied_in_messages(b: Books) -> int:
    """Copied completions and copied bytes are counted apart; with whole messages they must agree."""
    short = total(b.whole, "sender", "short_sends")
    if short or zerocopy_total(b.whole, "sends") != total(b.whole, "sender", "messages"):
        raise Unknown("some sends carried only a part of a message")
    return (zerocopy_total(b.whole, "copied") or 0) * b.raw.workload.size_bytes


def sends_at_socket(b: Books) -> bool:
    """Of sendfile and splice the socket sees one for each pipe full of pages: both sides are without them."""
    spliced = spliced_total(b.counting, "calls") or 0
    return not spliced or spliced != total(b.counting, "sender", "calls")


def made_while_timed(b: Books) -> Counter[str]:
    """Send calls of the segments with the call timer, which times one in so many and counts all, by name."""
    segments = select(b.raw.run.segments, "calls")
    if not segments:
        raise Unknown(why_no_calls(b.raw.hooks))
    if any(row.counted_at == PROGRAM for row in b.raw.calls):
        raise Unknown(
            "only the timed calls are counted in these: all of them are in segments of the arm bytes"
        )
    made = sends_made(one.sender.send_syscalls for one in segments)
    if not any(row.side == "sender" for row in b.raw.calls) and any(made.values()):
        raise Unknown("the sender's calls were not counted: see the hooks")
    return made


def seen_by_timer(b: Books) -> list[Call]:
    made = made_while_timed(b)
    return [row for row in b.raw.calls if row.side == "sender" and kernel_name(row.syscall) in made]


def missed_by_timer(b: Books) -> int:
    """What the counting program missed because it met itself is known, and marks the run by itself."""
    hooks = {COUNTING[row.counted_at] for row in seen_by_timer(b) if row.counted_at in COUNTING}
    return sum(lost(b.raw.loss, f"recursion_{hook}") or 0 for hook in hooks)


def of_report(b: Books, side: str, key: str) -> int:
    """Of the final report, when the segments cover the whole run."""
    report = report_of(b, side)
    value: int | None = getattr(report, key)
    if value is None:
        raise Unknown(f"the {side} did not report its {key}")
    spans = [_span(segment, side) for segment in b.raw.run.segments]
    moved_ns = [slice_ns for slice_ns, moved in report.slices if moved]
    outside = [
        slice_ns
        for slice_ns in moved_ns
        if not any(slice_ns < end_ns and slice_ns + 100_000_000 > begin_ns for begin_ns, end_ns in spans)
    ]
    if outside:
        raise Unknown(f"{len(outside)} slices of 100 ms lie outside of every segment")
    return value


def _span(segment: Segment, side: str) -> tuple[int, int]:
    """From when to when, by the clock of the machine that a side ran on."""
    begin_ns, end_ns = segment.receiver_begin_ns, segment.receiver_end_ns
    if side == "sender" or begin_ns is UNSET or end_ns is UNSET:
        return segment.begin_ns, segment.end_ns
    return begin_ns, end_ns


def of_segments(b: Books, side: str, key: str) -> int:
    return total(b.raw.run.segments, side, key)


OF_RUN = tuple(
    Balance(
        f"{side}_{key}_of_run",
        f"{side}: {key} of all segments = {key} of its report",
        key,
        partial(of_segments, side=side, key=key),
        partial(of_report, side=side, key=key),
    )
    for side in ("sender", "receiver")
    for key in ("bytes", "messages", "calls")
)

BALANCES: tuple[Balance[Books], ...] = (
    Balance(
        *("sent_bytes", "bytes sent by the program = bytes into the socket", "bytes"),
        lambda b: sent_by(b.counting),
        lambda b: b.sent.bytes,
    ),
    Balance(
        *("sent_split", "bytes sent by the program = copy_in + referenced (pin)", "bytes"),
        lambda b: sent_by(b.counting),
        sent_split,
        applies=lambda b: not flows.encrypts(b.raw),
    ),
    Balance(
        *("referenced_split", "bytes sent by reference = deferred + silent + zero-copy", "bytes"),
        referenced_seen,
        referenced_ended,
        applies=lambda b: gives_references(b.whole) and not flows.encrypts(b.raw),
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
        *("sent_rows", "ledger rows: bytes sent by the program = copy_in + pin", "bytes"),
        lambda b: sent_by(b.probed),
        lambda b: sum(b.rows("copy_in", "pin")),
        applies=lambda b: not flows.encrypts(b.raw),
    ),
    Balance(
        *("referenced_rows", "ledger rows: pin = deferred + silent + zero-copy", "bytes"),
        lambda b: b.rows("pin", "deferred", "silent")[0],
        references_in_rows,
        applies=lambda b: gives_references(b.probed) and not flows.encrypts(b.raw),
    ),
    Balance(
        *("received_rows", "ledger rows: bytes received by the program = copy_out + not copied", "bytes"),
        lambda b: received_by(b.probed),
        lambda b: sum(b.rows("copy_out")) + uncopied_out(b.probed),
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
        *("encrypted_rows", "ledger rows: bytes encrypted = bytes decrypted", "bytes"),
        lambda b: b.rows("encrypt")[0],
        lambda b: b.rows("decrypt")[0],
        applies=lambda b: flows.encrypts(b.raw),
    ),
    Balance(
        *("delivered", "bytes sent = bytes received, all measured segments", "bytes"),
        lambda b: sent_by(b.whole),
        lambda b: received_by(b.whole),
    ),
    # Segments end between messages.
    Balance(
        *("message_bytes", "messages x message size = bytes sent", "bytes"),
        lambda b: total(b.whole, "sender", "messages") * b.raw.workload.size_bytes,
        lambda b: sent_by(b.whole),
        applies=lambda b: b.sends,
    ),
    Balance(
        *("received_messages", "messages sent = messages received", "messages"),
        lambda b: total(b.whole, "sender", "messages"),
        messages_received,
        applies=lambda b: b.sends,
    ),
    Balance(
        *("copied_bytes", "copied sends x message size = bytes of copied sends", "bytes"),
        copied_in_messages,
        lambda b: zerocopy_total(b.whole, "bytes_copied") or 0,
        applies=lambda b: zerocopy_total(b.whole, "copied") is not None,
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
    *OF_RUN,
)
