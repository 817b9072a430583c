# SPDX-License-Identifier: GPL-2.0-only
"""Rules for problems that keep zero-copy from making a watched program faster (`why`). Pure.

A problem is reported only if counters or samples show that problem, never because it is likely.
"""

from collections.abc import Iterator
from functools import partial

from copyscope.base.spelling import counted, format_bytes, format_ns, format_size
from copyscope.judge.evidence import PRICE_OF_ZEROCOPY, Evidence, Facts
from copyscope.judge.findings import FindingRule
from copyscope.judge.obstacles import (
    OVER_A_NETWORK,
    PACKET_REFERENCES,
    PROTOCOLS_WITHOUT_ZEROCOPY,
    SMALL_BYTES,
    main_protocol,
)
from copyscope.ledger.exact import quantile_at_most
from copyscope.ledger.rows import account_bytes
from copyscope.ledger.share import percent
from copyscope.record.segments import target_sum
from copyscope.record.watched import Buffers
from copyscope.taxonomy.accounts import SEND_COPIES, ZEROCOPY_PRICE

# Minimum part (0..1) of the sends or of the time for which a problem is reported.
WORTH_NAMING = 0.05
# Minimum part (0..1) of refused sends that is reported. The limit is low, because a refused send must be
# repeated.
REFUSED_WORTH_NAMING = 0.01
# Minimum number of unread notifications that is reported. A program that reads in batches leaves some unread.
UNREAD_SENDS = 100
# Time in ns after which a released buffer counts as late: such a buffer waited for a delayed acknowledgement
# (40 ms or more).
LATE_NS = 20_000_000
# Minimum mean number of buffers in flight per connection that counts as a queue.
QUEUE_BUFFERS = 2
# Size of a buffer in bytes below which pinning costs more than a copy.
SMALL_FIELD_BYTES = 4096
# Mean number of sends per notification, or of buffers per message, below which the number counts as one.
ABOUT_ONE = 1.5
# Protocols whose sockets have the option SO_ZEROCOPY.
PROTOCOLS_WITH_OPTION = ("tcp", "udp")
LATE_COPY = ("deferred",)
LOCAL_DELIVERY = "its peers are on this machine: on delivery the kernel copies zero-copy sends"
WITHOUT_ZEROCOPY = "send without MSG_ZEROCOPY on this path"
XDP_CHANGE = "detach the XDP program of the receiving device, or send without MSG_ZEROCOPY"
# Cause of a copy -> change that avoids the copy.
CHANGES = {
    "local_delivery": "send without MSG_ZEROCOPY to peers on this machine, or use sendfile; "
    f"to test zero-copy over a network, run {OVER_A_NETWORK}",
    "received": "send without MSG_ZEROCOPY through this veth, or use Linux 6.17 or newer",
    "packet_socket": "stop the program that captures every packet",
    "no_offload": "turn on scatter-gather and checksum offload of the device: ethtool -K DEV sg on tx on",
    "xdp_native": XDP_CHANGE,
    "xdp": XDP_CHANGE,
}


def cause_of_copies(evidence: Evidence) -> Facts:
    """Return the reason why the kernel copies zero-copy sends, and the change that avoids it."""
    zerocopy = evidence.run.derived.zerocopy
    cause = zerocopy.cause if zerocopy else None
    if cause is None:
        return {"cause": "the cause is not known", "change": WITHOUT_ZEROCOPY}
    return {"cause": cause.sentence, "change": CHANGES.get(cause.code, WITHOUT_ZEROCOPY)}


def copied_sends(evidence: Evidence) -> Iterator[Facts]:
    """Check if the kernel copied a relevant part of the zero-copy sends."""
    if evidence.copied_part is not None and evidence.copied_part >= WORTH_NAMING:
        yield {"part": percent(evidence.copied_part), **cause_of_copies(evidence)}


def late_copies(evidence: Evidence) -> Iterator[Facts]:
    """Check for late copies that samples show, although no notification reports that a send was copied.

    SEND_ZC reports copies only with IORING_SEND_ZC_REPORT_USAGE.
    """
    cost = evidence.share(LATE_COPY)
    is_reported = evidence.copied_part is not None and evidence.copied_part >= WORTH_NAMING
    if is_reported or cost is None or cost.low < WORTH_NAMING:
        return
    zerocopy = evidence.run.derived.zerocopy
    if evidence.has_local_peers and (zerocopy is None or zerocopy.cause is None):
        yield {"cause": LOCAL_DELIVERY, "change": CHANGES["local_delivery"]}
    else:
        yield cause_of_copies(evidence)


def silent_copies(evidence: Evidence) -> Iterator[Facts]:
    """Check for copies that samples show but no notification reports."""
    cost = evidence.share(("silent",))
    copied_bytes = account_bytes(evidence.run.derived.ledger, "silent")
    if copied_bytes and cost is not None and (cost.share or 0) >= WORTH_NAMING:
        yield cause_of_copies(evidence)


def sends_without_option(evidence: Evidence) -> Iterator[Facts]:
    """Check for sends with MSG_ZEROCOPY on a socket without SO_ZEROCOPY."""
    calls = sum(row.flag_only_calls for row in evidence.buffers if row.protocol in PROTOCOLS_WITH_OPTION)
    if calls and calls >= WORTH_NAMING * (calls + evidence.zerocopy_sends):
        yield {"sends": counted(calls, "send")}


def encrypted_bytes(evidence: Evidence) -> Iterator[Facts]:
    if any(row.account == "encrypt" and (row.bytes or row.cpu_ns) for row in evidence.run.derived.ledger):
        yield {}


def refused_sends(evidence: Evidence) -> Iterator[Facts]:
    """Check if the kernel refused zero-copy sends with ENOBUFS."""
    # Both numbers, of refused and of accepted sends, cover the whole watch.
    refused, sent = (sum(row.enobufs for row in evidence.buffers), sum(row.sends for row in evidence.buffers))
    part = refused / (refused + sent) if refused else 0.0
    if part < REFUSED_WORTH_NAMING:
        return
    watched = evidence.run.raw.watched
    # A send that exceeds either of these limits fails with ENOBUFS (msg_zerocopy.rst).
    limits = {
        "RLIMIT_MEMLOCK": watched.memlock_limit_bytes,
        "net.core.optmem_max": watched.optmem_limit_bytes,
    }
    texts = [f"{name} is {format_bytes(limit)}" for name, limit in limits.items() if limit is not None]
    waiting = (
        f"it then waits for a notification, in all {percent(evidence.waiting_share)} of the elapsed time"
    )
    yield {
        "part": percent(part),
        "refused": f"{refused:,}",
        "in_flight": format_bytes(max(row.most_in_flight_bytes for row in evidence.buffers)),
        "limits": "; " + ", ".join(texts) if texts else "",
        "waiting": f"; {waiting}" if evidence.waits_when_refused else "",
    }


def waits_for_notifications(evidence: Evidence) -> Iterator[Facts]:
    """Check if threads sleep a relevant part of the time until a notification comes."""
    if evidence.waiting_share < WORTH_NAMING or evidence.waits_when_refused:
        return
    waits = sum(row.waits for row in evidence.buffers)
    waited_ns = sum(row.waited_ns for row in evidence.buffers)
    yield {
        "part": percent(evidence.waiting_share),
        "each": format_ns(waited_ns / waits) if waits else "n/a",
        "times": counted(waits, "time"),
        "change": "keep several requests in flight, each with its own buffer"
        if evidence.ring_sends
        else "continue sending from other buffers, and read notifications in batches",
    }


def late_buffers(evidence: Evidence, *, of_slow_peer: bool) -> Iterator[Facts]:
    """Check if the kernel releases half of the buffers late.

    of_slow_peer: True to report a peer that reads slowly, False to report delayed acknowledgements

    Acknowledgements are not to blame if buffers only wait in a queue for earlier buffers.
    """
    late = (row for row in evidence.buffers if (quantile_at_most(row.latency.buckets, 0.5) or 0) >= LATE_NS)
    row, is_slow = next(late, None), evidence.run.derived.verdict.limit.who == "peer"
    if row is None or is_slow is not of_slow_peer or (not is_slow and is_queue(evidence, row)):
        return
    p50, p99 = (format_ns(quantile_at_most(row.latency.buckets, part) or 0) for part in (0.5, 0.99))
    yield {"p50": p50, "p99": p99}


def is_queue(evidence: Evidence, row: Buffers) -> bool:
    """Return True if buffers wait in a queue for earlier buffers.

    By Little's law the mean number of buffers in flight is the rate of sends times the latency of a buffer.

    row: buffers of a protocol
    """
    latency_ns = quantile_at_most(row.latency.buckets, 0.5) or 0
    connections = max(1, evidence.run.portrait.connections)
    return row.sends * latency_ns >= QUEUE_BUFFERS * evidence.elapsed_ns * connections


def unread_notifications(evidence: Evidence) -> Iterator[Facts]:
    """Check if the program leaves many of its notifications unread."""
    returned = sum(row.given_back_sends or 0 for row in evidence.buffers)
    read = sum(row.read_sends for row in evidence.buffers)
    if returned - read >= max(UNREAD_SENDS, WORTH_NAMING * returned):
        yield {"part": percent((returned - read) / returned)}


def notifications_read_one_by_one(evidence: Evidence) -> Iterator[Facts]:
    """Check if the program reads each notification with a separate call, at a relevant cost."""
    readings = sum(row.readings for row in evidence.buffers)
    read = sum(row.read_sends for row in evidence.buffers)
    cost = evidence.share(("completion",))
    if readings and read / readings < ABOUT_ONE and cost is not None and cost.low >= WORTH_NAMING:
        yield {
            "sends_each": f"{read / readings:.1f}",
            "calls": counted(readings, "call"),
            "cost": cost.spoken(),
        }


def uses_zerocopy(evidence: Evidence) -> bool:
    """Return True if the program sends a relevant part of its bytes with zero-copy."""
    return evidence.sent is not None and evidence.sent.zerocopy_share >= WORTH_NAMING


def small_sends(evidence: Evidence) -> Iterator[Facts]:
    """Check if half of the bytes are sent in calls that are too small for zero-copy."""
    if evidence.zerocopy_sends and uses_zerocopy(evidence) and evidence.size_bytes < SMALL_BYTES:
        yield {"size": format_size(2 * evidence.size_bytes)}


def small_fields(evidence: Evidence) -> Iterator[Facts]:
    """Check if zero-copy messages consist of several buffers that are too small to be pinned."""
    shapes = [row for row in evidence.sent_shapes if row.syscall in ("sendmsg", "sendmmsg")]
    buffers, messages = sum(row.buffers for row in shapes), sum(row.messages for row in shapes)
    if evidence.sent is None or not uses_zerocopy(evidence) or not messages or buffers / messages < ABOUT_ONE:
        return
    field_bytes = evidence.sent.mean_bytes * messages / buffers
    if field_bytes < SMALL_FIELD_BYTES:
        yield {"buffers": f"{buffers / messages:.1f}", "size": format_bytes(round(field_bytes))}


def small_beside_large(evidence: Evidence) -> Iterator[Facts]:
    """Check for messages with a small buffer, such as a header, beside a large buffer."""
    shapes = evidence.sent_shapes
    mixed, messages = sum(row.mixed for row in shapes), sum(row.messages for row in shapes)
    if mixed and mixed >= WORTH_NAMING * messages:
        yield {"part": percent(mixed / messages)}


def unregistered_memory(evidence: Evidence) -> Iterator[Facts]:
    """Check for SEND_ZC requests with memory that is not registered, so that pages are pinned each time."""
    unregistered = target_sum(evidence.run.raw.run.segments, lambda target: target.unregistered)
    part = min(1.0, unregistered / evidence.ring_sends) if evidence.ring_sends else 0.0
    cost = evidence.share(("pin",))
    if part >= WORTH_NAMING and cost is not None and (cost.share or 0) >= WORTH_NAMING:
        yield {"part": percent(part), "requests": counted(unregistered, "request")}


problem = partial(FindingRule, "problem")
# A problem of sends that the kernel copied in spite of zero-copy.
copied_after_all = partial(
    problem,
    evidence="{cause}",
    change="{change}",
    cost=PRICE_OF_ZEROCOPY,
    cost_note=" with pinning and notifications",
)
# All problems. Problems of equal cost, or of unknown cost, are reported in this order.
PROBLEMS = (
    problem(
        "no_option",
        sends_without_option,
        "{sends} had MSG_ZEROCOPY on a socket without SO_ZEROCOPY: plain copies",
        "without the option the kernel ignores the flag, and reports no error",
        "call setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) after socket() or accept()",
        cost=SEND_COPIES,
    ),
    problem(
        "ktls",
        encrypted_bytes,
        "kTLS: the kernel's cipher copies every byte that it encrypts",
        "MSG_ZEROCOPY has no effect on a socket with kTLS",
        "use a network card that encrypts (tls-hw-tx-offload), or sendfile with TLS_TX_ZEROCOPY_RO",
        cost=("encrypt",),
    ),
    problem(
        "protocol",
        partial(main_protocol, groups=PROTOCOLS_WITHOUT_ZEROCOPY),
        "most of its traffic is {protocol}",
        "most of its traffic is {protocol}, {why}",
        "send without MSG_ZEROCOPY, which only adds cost here",
    ),
    problem(
        "enobufs",
        refused_sends,
        "ENOBUFS: the kernel refused {part} of its sends with the flag ({refused})",
        "at most {in_flight} were in flight at once{limits}{waiting}",
        "raise RLIMIT_MEMLOCK or net.core.optmem_max, and read notifications earlier",
        # Many programs repeat a refused send without the flag.
        cost=SEND_COPIES,
        cost_least=WORTH_NAMING,
        wall=lambda evidence: evidence.waiting_share if evidence.waits_when_refused else None,
    ),
    problem(
        "waits",
        waits_for_notifications,
        "it waits for notifications: {part} of the elapsed time, {each} each",
        "it slept {times} until a notification came, and sent nothing meanwhile",
        "{change}",
        wall=lambda evidence: evidence.waiting_share,
    ),
    copied_after_all(
        "copied",
        copied_sends,
        "the kernel copied {part} of its zero-copy sends after all",
    ),
    copied_after_all(
        "late",
        late_copies,
        "the kernel copies its zero-copy sends later, and notifications do not report it",
    ),
    problem(
        "silent",
        silent_copies,
        "its zero-copy sends are copied on the way, and notifications do not report it",
        "{cause}",
        "{change}",
        cost=("silent",),
    ),
    problem(
        "slow_peer",
        partial(late_buffers, of_slow_peer=True),
        "the kernel releases buffers late: {p50} after the send (p99 {p99})",
        "the peer reads slowly, so connections wait for its receive window",
        "use more buffers, so that the program does not wait; make the peer read faster",
    ),
    problem(
        "late_ack",
        partial(late_buffers, of_slow_peer=False),
        "the kernel releases buffers late: {p50} after the send (p99 {p99})",
        "the kernel holds a buffer until the peer acknowledges it, and the peer delays acknowledgements",
        "use more buffers, so that the program does not wait; set TCP_QUICKACK on the peer",
    ),
    problem(
        "never_read",
        unread_notifications,
        "it never read the notifications of {part} of its sends",
        "each unread notification stays in the socket and counts against net.core.optmem_max, until sends "
        "fail with ENOBUFS",
        "regularly call recvmsg(fd, MSG_ERRQUEUE) until EAGAIN",
    ),
    problem(
        "one_by_one",
        notifications_read_one_by_one,
        "it reads notifications one by one: {sends_each} sends each",
        "{calls} of recvmsg(MSG_ERRQUEUE); notifications take {cost} of its CPU time",
        "read notifications less often: the kernel merges waiting notifications",
        cost=("completion",),
    ),
    problem(
        "small",
        small_sends,
        "its sends are small: half of its bytes are sent in calls of {size} or less",
        "pinning and a notification cost about the same for any size; below about 10 KB a copy is cheaper "
        "(msg_zerocopy.rst)",
        "use MSG_ZEROCOPY for large sends only; copyscope crossover finds the size from which it pays off",
        cost=ZEROCOPY_PRICE,
    ),
    problem(
        "fields",
        small_fields,
        "each send has {buffers} buffers of {size} on average",
        "the kernel pins each buffer separately, in whole pages even if it is small",
        "gather small fields in one buffer, or send small fields without MSG_ZEROCOPY (but with MSG_MORE)",
        cost=("pin",),
    ),
    problem(
        "header_body",
        small_beside_large,
        "{part} of its sends have a small buffer beside a large one",
        "the kernel pins a small buffer, such as a header, separately, and a packet has room for only "
        f"{PACKET_REFERENCES} buffers",
        "send the header first, with MSG_MORE and without MSG_ZEROCOPY, then the body with MSG_ZEROCOPY",
    ),
    problem(
        "unregistered",
        unregistered_memory,
        "{part} of its SEND_ZC requests use memory that is not registered",
        "the kernel pins the pages again for each request ({requests})",
        "call io_uring_register_buffers() once, then io_uring_prep_send_zc_fixed() "
        "(IORING_RECVSEND_FIXED_BUF)",
        cost=("pin",),
    ),
)
