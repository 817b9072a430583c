"""Balances of a watched program, which does not cooperate: the kernel's own books against each other.

Its traffic is never paused. What moved while hooks came and went is known (the `edge_` totals of each
segment), and so is what may be under way at an edge: each thread inside one call, which counts at one place
before and at the other after it. That, and nothing else, is the tolerance.
"""

from collections.abc import Callable, Iterable, Sequence

from copyscope.ledger.checks.balance import Balance, Unknown
from copyscope.record.instruments import Call
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import NO_LEDGER, measured, select, total, wall_ns
from copyscope.record.watched import (
    MAPPED_IN,
    SOCKMAP,
    SPLICED_IN,
    TAKEN,
    Connection,
    Volume,
    added,
    dropped,
    volume,
)

# Their return values are no bytes.
NOT_BYTES = ("sendmmsg", "recvmmsg", "io_uring", "other", MAPPED_IN)
RECEIVING = ("recvfrom", "recvmsg", "recvmmsg", "read", "readv", *TAKEN)
# How long another task keeps a CPU before the scheduler looks again (base_slice_ns of EEVDF, 6.6 and newer).
SLICE_NS = 3_000_000
UNSEEN = "what no hook sees the copies of (datagrams, messages through a sockmap)"
NAMES = {"send": "sent", "receive": "received"}


def takes(raw: Measured) -> bool:
    """Whether it received anything by mapping or splice(2), as far as is known."""
    return any(row.syscall in TAKEN for row in raw.volume)


def largest(rows: Iterable[Volume | Call]) -> int:
    return max((row.largest_bytes or 0 for row in rows), default=0)


def under_way(segments: Iterable[Segment], largest_bytes: int) -> int:
    """At both ends of a segment every thread may be inside one call."""
    return sum(2 * s.target.threads * largest_bytes for s in segments)


def edges(segments: Sequence[Segment], done: str, largest_bytes: int) -> int:
    """What moved while hooks came and went, and what was under way."""
    return total(segments, "target", f"edge_{done}_bytes") + under_way(segments, largest_bytes)


def looked_twice(raw: Measured) -> Sequence[Connection]:
    """The connections that could be looked at twice."""
    if not raw.connections:
        redirected = any(row.protocol == SOCKMAP for row in raw.volume)
        in_sockmap = "its connections are in a sockmap: its BPF programs may pass bytes on past TCP"
        raise Unknown(in_sockmap if redirected else "no connection lasted from one look to the next")
    return raw.connections


def by_tcp(rows: Sequence[Connection], done: str) -> tuple[float, float]:
    """TCP's count, and how far it may be off: it was asked on both sides of each of our two looks."""
    inner, outer = added(rows, f"{done}_inner_bytes"), added(rows, f"{done}_outer_bytes")
    return (inner + outer) / 2, abs(outer - inner) / 2


def beside_tcp(raw: Measured, direction: str) -> int:
    """Queue and acknowledged bytes are read one after the other: their sum may run back a little."""
    rows, done = looked_twice(raw), NAMES[direction]
    one_call = largest(volume(raw.volume, direction))
    if direction == "receive":
        one_call += largest(volume(raw.volume, "mapped"))
    tolerance = by_tcp(rows, done)[1] + 2 * len(rows) * one_call
    if takes(raw) and direction == "receive":
        # The kernel reads the queue before the bytes that passed through it, and without the socket's lock
        # (tcp_diag_get_info()): a look that loses the CPU in between is wrong by what arrives meanwhile.
        elapsed_ns = max(wall_ns(measured(raw.run.segments)), SLICE_NS)
        tolerance += 2 * added(rows, f"{done}_outer_bytes") * SLICE_NS / elapsed_ns
    return round(tolerance)


def at_socket(raw: Measured, direction: str) -> list[Volume]:
    """What the socket layer counted in the calls segments."""
    return [row for row in volume(raw.volume, direction, "calls") if row.syscall not in TAKEN]


def returned(raw: Measured, direction: str) -> list[Call]:
    """The system calls of the calls segments whose return values say how much they moved."""
    if not select(raw.run.segments, "calls"):
        raise Unknown("no segment followed the system calls")
    rows = at_socket(raw, direction)
    blind = sorted({row.syscall for row in rows if row.syscall in NOT_BYTES and row.bytes})
    if blind:
        raise Unknown(f"{', '.join(blind)}: what it returns is no number of bytes")
    return [
        row
        for row in raw.calls
        if (row.syscall in RECEIVING) == (direction == "receive")
        and row.syscall not in (*NOT_BYTES, SPLICED_IN)
    ]


def uncopied(raw: Measured) -> set[str]:
    """Protocols of which no hook sees all copies: UDP; what comes through a sockmap; local datagrams whose
    length alone was asked for."""
    asked = volume(raw.volume, "truncated", "ledger")
    return {"udp", SOCKMAP, *(row.protocol for row in asked if row.protocol == "unix_dgram")}


def looked_at(raw: Measured) -> list[Volume]:
    """What its receive calls returned, of all protocols, with what stayed in the queue."""
    rows = volume(raw.volume, "receive", "ledger") + volume(raw.volume, "peek", "ledger")
    return [row for row in rows if row.syscall != SPLICED_IN]


def taken_by_calls(raw: Measured) -> list[Volume]:
    """The part of it whose copies are seen."""
    if not select(raw.run.segments, "ledger"):
        raise Unknown(NO_LEDGER)
    rows, unseen = looked_at(raw), uncopied(raw)
    found = [row for row in rows if row.protocol not in unseen]
    if rows and not found:
        raise Unknown(f"it received nothing but {UNSEEN}")
    return found


def copied_out(raw: Measured) -> int:
    unseen = uncopied(raw)
    rows = [row for row in volume(raw.volume, "copy_out", "ledger") if row.protocol not in unseen]
    return added(rows, "bytes")


def _received_unseen(raw: Measured) -> bool:
    return not uncopied(raw).isdisjoint(row.protocol for row in looked_at(raw))


def _by_connection(direction: str, what: str, applies: Callable[[Measured], bool]) -> Balance:
    done = NAMES[direction]
    return Balance(
        *(f"connection_{done}_bytes", what, "bytes"),
        lambda raw: added(looked_twice(raw), f"{done}_bytes"),
        lambda raw: by_tcp(looked_twice(raw), done)[0],
        lambda raw: beside_tcp(raw, direction),
        applies,
    )


def _by_system_call(direction: str) -> Balance:
    """Return values of the system calls against the socket layer's count, in the calls segments."""
    done = NAMES[direction]
    what = f"bytes {done} by return values = bytes {done} at the socket (calls segments)"
    return Balance(
        *(f"call_{done}_bytes", what, "bytes"),
        lambda raw: added(returned(raw, direction), "bytes"),
        lambda raw: added(at_socket(raw, direction), "bytes"),
        lambda raw: edges(
            *(select(raw.run.segments, "calls"), done),
            largest([*returned(raw, direction), *at_socket(raw, direction)]),
        ),
    )


def _copied_out(what: str, applies: Callable[[Measured], bool]) -> Balance:
    return Balance(
        *("received_split", what, "bytes"),
        lambda raw: added(taken_by_calls(raw), "bytes") - added(dropped(raw.volume, "ledger"), "bytes"),
        copied_out,
        lambda raw: edges(select(raw.run.segments, "ledger"), "received", largest(taken_by_calls(raw))),
        applies,
    )


SPLIT = "bytes received, or looked at (MSG_PEEK), but not dropped (MSG_TRUNC) = copy_out ({} segments)"
ROWS: tuple[Balance, ...] = (
    _by_connection("send", "bytes sent by socket calls = bytes sent by TCP's own count", lambda _: True),
    _by_connection(
        *("receive", "bytes received by socket calls = bytes received by TCP's own count"),
        lambda raw: not takes(raw),
    ),
    _by_connection(
        "receive",
        "bytes received by calls + mapped + copied with them + spliced = bytes by TCP's own count",
        takes,
    ),
    _by_system_call("send"),
    _by_system_call("receive"),
    _copied_out(SPLIT.format("ledger"), lambda raw: not _received_unseen(raw)),
    _copied_out(f"{SPLIT.format('ledger')}, but for {UNSEEN}", _received_unseen),
)
