# SPDX-License-Identifier: GPL-2.0-only
"""Balances of a watched program: its calls, its sockets and TCP's own counts, compared in pairs. Pure.

Traffic of a watched program is never paused. Bytes that moved while hooks were attached or detached are known
(the `edge_` totals of each segment). At the start or end of a segment, each thread may also be inside a call
that only one of two counters has counted. The tolerance is the sum of these bytes and of the bytes of such
calls.
"""

from collections.abc import Callable, Iterable, Sequence

from copyscope.base.stats import grouped
from copyscope.ledger.checks import Balance, UnknownCount
from copyscope.ledger.losses import lost_count
from copyscope.record.instruments import Call
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import NO_LEDGER, measured, select, target_sum, wall_ns
from copyscope.record.watched import (
    BY_REFERENCE,
    MAPPED_IN,
    SOCKMAP,
    SPLICED_IN,
    SPLICED_ON,
    WITHOUT_RECEIVE_CALL,
    Connection,
    Volume,
    added,
    discarded_rows,
    volume,
)

# System calls whose return value is not a number of bytes.
NOT_BYTES = ("sendmmsg", "recvmmsg", "io_uring", "other", MAPPED_IN)
RECEIVE_CALLS = ("recvfrom", "recvmsg", "recvmmsg", "read", "readv", *WITHOUT_RECEIVE_CALL)
# Time in ns that another task may use a CPU before the scheduler preempts it (base_slice_ns of EEVDF, Linux
# 6.6 and newer).
SLICE_NS = 3_000_000
UNHOOKED = "datagrams and messages through a sockmap"
PAST_TENSE = {"send": "sent", "receive": "received"}


def receives_without_copy(raw: Measured) -> bool:
    """Return True if the program is known to have received bytes by mapping or splice(2)."""
    return any(row.syscall in WITHOUT_RECEIVE_CALL for row in raw.volume)


def largest_call(rows: Iterable[Volume | Call]) -> int:
    """Return the size in bytes of the largest call in some rows, or 0 if there are no calls."""
    return max((row.largest_bytes or 0 for row in rows), default=0)


def calls_under_way(segments: Iterable[Segment], call_bytes: int) -> int:
    """Return the largest number of bytes by which two counters may differ because calls are in progress.

    At the start and at the end of each segment, each thread may be inside a call.

    call_bytes: size of the largest call
    """
    return sum(2 * s.target.threads * call_bytes for s in segments)


def bytes_in_transit(segments: Sequence[Segment], done: str, call_bytes: int) -> int:
    """Return the maximum number of bytes that were in transit at the start and end of segments.

    The sum includes bytes that moved while hooks were attached or detached, and bytes of calls in progress.

    done: `sent` or `received`
    call_bytes: size of the largest call
    """
    if done == "sent":
        edge_bytes = target_sum(segments, lambda target: target.edge_sent_bytes)
    else:
        edge_bytes = target_sum(segments, lambda target: target.edge_received_bytes)
    return edge_bytes + calls_under_way(segments, call_bytes)


def lasting_connections(raw: Measured) -> Sequence[Connection]:
    """Return the connections that were open at two snapshots: TCP's own counts need both."""
    if not raw.connections:
        has_sockmap = any(row.protocol == SOCKMAP for row in raw.volume)
        in_sockmap = "the program's connections are in a sockmap: BPF programs may redirect bytes past TCP"
        raise UnknownCount(
            in_sockmap if has_sockmap else "no connection lasted from one snapshot to the next"
        )
    return raw.connections


def tcp_bytes(rows: Sequence[Connection], done: str) -> tuple[float, float]:
    """Return the number of bytes that TCP itself counted, and the maximum error of that number.

    TCP is queried before and after each of our two readings, which gives a smallest and a largest difference.

    done: `sent` or `received`
    """
    inner = sum(row.moved(done).inner_bytes for row in rows)
    outer = sum(row.moved(done).outer_bytes for row in rows)
    return (inner + outer) / 2, abs(outer - inner) / 2


def tcp_tolerance(raw: Measured, direction: str) -> int:
    """Return the maximum difference in bytes between our count and TCP's count.

    TCP's queue and acknowledged bytes are read one after the other, so their sum may decrease by the bytes of
    a call.

    direction: `send` or `receive`
    """
    connections, done = lasting_connections(raw), PAST_TENSE[direction]
    call_bytes = largest_call(volume(raw.volume, direction))
    if direction == "receive":
        call_bytes += largest_call(volume(raw.volume, "mapped"))
    _, error = tcp_bytes(connections, done)
    tolerance = error + 2 * len(connections) * call_bytes
    if direction == "receive" and receives_without_copy(raw):
        # The kernel reads the queue before the bytes that passed through it, without the socket's lock
        # (tcp_diag_get_info()). If a snapshot loses the CPU in between, it misses bytes that arrive
        # meanwhile.
        elapsed_ns = max(wall_ns(measured(raw.run.segments)), SLICE_NS)
        outer_bytes = sum(row.moved(done).outer_bytes for row in connections)
        tolerance += 2 * outer_bytes * SLICE_NS / elapsed_ns
    return round(tolerance)


def socket_rows(raw: Measured, direction: str) -> list[Volume]:
    """Return the rows that the socket layer counted in the calls segments."""
    return [row for row in volume(raw.volume, direction, "calls") if row.syscall not in WITHOUT_RECEIVE_CALL]


def byte_calls(raw: Measured, direction: str) -> list[Call]:
    """Return the system calls of the calls segments whose return values are numbers of bytes."""
    if not select(raw.run.segments, "calls"):
        raise UnknownCount("no segment followed the system calls")
    rows = socket_rows(raw, direction)
    without_bytes = sorted({row.syscall for row in rows if row.syscall in NOT_BYTES and row.bytes})
    if without_bytes:
        raise UnknownCount(f"{', '.join(without_bytes)}: its return value is not a number of bytes")
    return [
        row
        for row in raw.calls
        if (row.syscall in RECEIVE_CALLS) == (direction == "receive")
        and row.syscall not in (*NOT_BYTES, SPLICED_IN)
    ]


def unhooked_protocols(raw: Measured) -> set[str]:
    """Return the protocols with copies that no hook sees.

    Such copies are made for UDP, for messages through a sockmap, and for local datagrams if the program asked
    only for their length.
    """
    truncated = volume(raw.volume, "truncated", "ledger")
    return {"udp", SOCKMAP, *(row.protocol for row in truncated if row.protocol == "unix_dgram")}


def received_rows(raw: Measured) -> list[Volume]:
    """Return the rows for the bytes returned by receive calls in ledger segments, including peeked bytes."""
    rows = volume(raw.volume, "receive", "ledger") + volume(raw.volume, "peek", "ledger")
    return [row for row in rows if row.syscall != SPLICED_IN]


def received_hooked(raw: Measured) -> list[Volume]:
    """Return the received rows of protocols for which hooks see every copy."""
    if not select(raw.run.segments, "ledger"):
        raise UnknownCount(NO_LEDGER)
    rows, unhooked = received_rows(raw), unhooked_protocols(raw)
    hooked = [row for row in rows if row.protocol not in unhooked]
    if rows and not hooked:
        raise UnknownCount(f"the program received only {UNHOOKED}, whose copies no hook sees")
    return hooked


def copied_out_bytes(raw: Measured) -> int:
    """Return the bytes copied out of the kernel in the ledger segments, for protocols with hooks."""
    unhooked = unhooked_protocols(raw)
    rows = [row for row in volume(raw.volume, "copy_out", "ledger") if row.protocol not in unhooked]
    return added(rows, lambda row: row.bytes)


def _received_unhooked(raw: Measured) -> bool:
    return not unhooked_protocols(raw).isdisjoint(row.protocol for row in received_rows(raw))


def _connection_balance(direction: str, claim: str, applies: Callable[[Measured], bool]) -> Balance:
    """Return a balance that compares the bytes that hooks counted on connections with TCP's own count.

    direction: `send` or `receive`
    claim: the equation in words
    applies: True for runs that have both counts
    """
    done = PAST_TENSE[direction]
    return Balance(
        name=f"connection_{done}_bytes",
        claim=claim,
        unit="bytes",
        left=lambda raw: added(lasting_connections(raw), lambda row: row.moved(done).bytes),
        right=lambda raw: tcp_bytes(lasting_connections(raw), done)[0],
        tolerance=lambda raw: tcp_tolerance(raw, direction),
        applies=applies,
    )


def _call_balance(direction: str) -> Balance:
    """Return a balance between calls' return values and the socket layer's count, in the calls segments."""
    done = PAST_TENSE[direction]
    return Balance(
        name=f"call_{done}_bytes",
        claim=f"bytes {done} by return values = bytes {done} at the socket (calls segments)",
        unit="bytes",
        left=lambda raw: added(byte_calls(raw, direction), lambda row: row.bytes),
        right=lambda raw: added(socket_rows(raw, direction), lambda row: row.bytes - row.ring_bytes),
        tolerance=lambda raw: bytes_in_transit(
            select(raw.run.segments, "calls"),
            done,
            largest_call([*byte_calls(raw, direction), *socket_rows(raw, direction)]),
        ),
    )


def _copy_out_balance(claim: str, applies: Callable[[Measured], bool]) -> Balance:
    """Return a balance between bytes received (and not dropped) and bytes copied out of the kernel.

    claim: the equation in words
    applies: True for runs that have both counts
    """
    return Balance(
        name="received_split",
        claim=claim,
        unit="bytes",
        left=lambda raw: (
            added(received_hooked(raw), lambda row: row.bytes)
            - added(discarded_rows(raw.volume, "ledger"), lambda row: row.bytes)
        ),
        right=copied_out_bytes,
        tolerance=lambda raw: bytes_in_transit(
            select(raw.run.segments, "ledger"), "received", largest_call(received_hooked(raw))
        ),
        applies=applies,
    )


# Ways of sending. Each byte is sent in exactly one way, so a part never exceeds its whole.

# Largest content in bytes of a pipe without privileges (/proc/sys/fs/pipe-max-size).
PIPE_MAX_BYTES = 1 << 20


def _sent_by_call(raw: Measured) -> Iterable[list[Volume]]:
    """Return the sends of all segments, grouped by protocol and system call."""
    return grouped(volume(raw.volume, "send"), lambda row: (row.protocol, row.syscall)).values()


def _zerocopy_bytes(rows: Iterable[Volume]) -> int:
    return added(rows, lambda row: row.zerocopy_bytes)


def _page_bytes(rows: Iterable[Volume]) -> int:
    """Return the bytes of calls that send pages by reference."""
    return added([row for row in rows if row.syscall in BY_REFERENCE], lambda row: row.bytes)


def _by_reference_bytes(rows: Sequence[Volume]) -> int:
    return _zerocopy_bytes(rows) + _page_bytes(rows)


def _sent_part(part: Callable[[Sequence[Volume]], int], rows: Sequence[Volume]) -> int:
    """Return the bytes of one part of some sends, at most the bytes of all these sends."""
    return min(part(rows), added(rows, lambda row: row.bytes))


def _ways_tolerance(raw: Measured) -> int:
    """Return the maximum difference in bytes between the sum over all ways of sending and the sends.

    io_uring shows only at the end of a request whether the request was zero-copy, and that end may fall in a
    later segment than the bytes.
    """
    segments, call_bytes = measured(raw.run.segments), largest_call(volume(raw.volume, "send"))
    open_sends = target_sum(segments, lambda target: target.open_zerocopy_sends)
    return bytes_in_transit(segments, "sent", call_bytes) + open_sends * call_bytes


def spliced_between(raw: Measured, direction: str) -> list[Volume]:
    """Return the rows of splice(2) from a socket or into another socket, in the ledger segments."""
    syscall = SPLICED_ON if direction == "send" else SPLICED_IN
    return [row for row in volume(raw.volume, direction, "ledger") if row.syscall == syscall]


def _spliced_on_bytes(raw: Measured) -> int:
    return added(spliced_between(raw, "send"), lambda row: row.bytes)


def _teed_bytes(raw: Measured) -> int:
    """Return the bytes that tee(2) doubled in pipes, so that a relay may send each of them once more."""
    return added(volume(raw.volume, "teed", "ledger"), lambda row: row.bytes)


def _packet_bytes(raw: Measured) -> int:
    """Return the bytes that a relay can splice into sockets: those that it took, and their doubles."""
    return added(spliced_between(raw, "receive"), lambda row: row.bytes) + _teed_bytes(raw)


def _splice_tolerance(raw: Measured) -> int:
    """Return the maximum number of bytes spliced into a socket but received outside the ledger segments.

    Such bytes were in a pipe at the start of a segment, moved at its start or end, or were received before
    splice(2) was hooked (counted as a loss). tee(2) was not hooked either, so each of these may be doubled.
    """
    segments = select(raw.run.segments, "ledger")
    call_bytes = {direction: largest_call(spliced_between(raw, direction)) for direction in PAST_TENSE}
    in_transit = sum(
        bytes_in_transit(segments, done, call_bytes[direction]) for direction, done in PAST_TENSE.items()
    )
    doubles = 2 if _teed_bytes(raw) else 1
    missed_bytes = doubles * (lost_count(raw, "splices_before_their_hook") or 0) * max(call_bytes.values())
    pipes = sum(max(s.target.threads, len(raw.connections)) for s in segments)
    return in_transit + missed_bytes + PIPE_MAX_BYTES * pipes


COPY_OUT_CLAIM = (
    "bytes received or peeked at (MSG_PEEK), less dropped bytes (MSG_TRUNC) = copy_out (ledger segments)"
)
SPLICED_ON_CLAIM = (
    "bytes spliced from socket to socket = the part of them within the bytes spliced from a socket or "
    "doubled by tee(2)"
)
ROWS: tuple[Balance, ...] = (
    _connection_balance("send", "bytes sent by socket calls = bytes sent by TCP's own count", lambda _: True),
    _connection_balance(
        "receive",
        "bytes received by socket calls = bytes received by TCP's own count",
        lambda raw: not receives_without_copy(raw),
    ),
    _connection_balance(
        "receive",
        "bytes received by calls + mapped + copied with them + spliced = bytes by TCP's own count",
        receives_without_copy,
    ),
    _call_balance("send"),
    _call_balance("receive"),
    _copy_out_balance(COPY_OUT_CLAIM, lambda raw: not _received_unhooked(raw)),
    _copy_out_balance(f"{COPY_OUT_CLAIM}, without {UNHOOKED}", _received_unhooked),
    Balance(
        name="zerocopy_bytes",
        claim="zero-copy bytes of each call = the part of them within the bytes of the call",
        unit="bytes",
        left=lambda raw: _zerocopy_bytes(volume(raw.volume, "send")),
        right=lambda raw: sum(_sent_part(_zerocopy_bytes, rows) for rows in _sent_by_call(raw)),
        tolerance=_ways_tolerance,
        applies=lambda raw: bool(_zerocopy_bytes(raw.volume)),
    ),
    Balance(
        name="ways_of_sending",
        claim="bytes with zero-copy + bytes of pages = the part of them within all bytes sent",
        unit="bytes",
        left=lambda raw: _by_reference_bytes(volume(raw.volume, "send")),
        right=lambda raw: _sent_part(_by_reference_bytes, volume(raw.volume, "send")),
        tolerance=_ways_tolerance,
        applies=lambda raw: bool(_by_reference_bytes(volume(raw.volume, "send"))),
    ),
    Balance(
        name="spliced_on",
        claim=SPLICED_ON_CLAIM,
        unit="bytes",
        left=_spliced_on_bytes,
        right=lambda raw: min(_spliced_on_bytes(raw), _packet_bytes(raw)),
        tolerance=_splice_tolerance,
        applies=lambda raw: bool(spliced_between(raw, "send")),
    ),
)
