"""Identities of a watched program: nobody cooperates, so the kernel's own books are compared with each other.

Its traffic is never paused. What moved while hooks came and went is known (the `edge_` totals of each
segment), and so is what may be under way at an edge: each thread inside one call, which counts at one place
before and at the other after it. That, and nothing else, is the tolerance.
"""

from __future__ import annotations

from typing import Any

from copyscope.ledger.identities.bytes import Identity, compare, unchecked
from copyscope.record.program.volume import MAPPED_IN, SPLICED_IN, TAKEN, added, counted_calls, volume
from copyscope.record.segments import Record, measured, select, total, wall_ns

# Their return values are no bytes.
NOT_BYTES = ("sendmmsg", "recvmmsg", "io_uring", "other", MAPPED_IN)
RECEIVING = ("recvfrom", "recvmsg", "recvmmsg", "read", "readv", *TAKEN)
# How long another task keeps a CPU before the scheduler looks again (base_slice_ns of EEVDF, 6.6 and newer).
SLICE_NS = 3_000_000
UNCOUNTED = "no segment counted each call, and TCP's count beside it"
NAMES = {"send": "sent", "receive": "received"}


def watch_identities(record: Record) -> list[Identity]:
    """All identities of bytes."""
    return [
        by_connection(record, "send"),
        by_connection(record, "receive"),
        by_system_call(record, "send"),
        by_system_call(record, "receive"),
        copied_out(record),
    ]


def by_connection(record: Record, direction: str) -> Identity:
    """Our count of each connection against TCP's own, for those that could be looked at twice."""
    done = NAMES[direction]
    name, what = f"connection_{done}_bytes", f"bytes {done} by socket calls = bytes {done} by TCP's own count"
    if record["target"].get("spared"):
        return where_counted(record, direction, name, f"{what} (calls segments)")
    if takes(record) and direction == "receive":
        what = "bytes received by calls + mapped + copied beside + spliced = bytes by TCP's own count"
    if not record["connections"]:
        return unchecked(name, what, "bytes", "no connection lasted from one look to the next")
    rows = record["connections"]
    inner, outer = added(rows, f"{done}_inner_bytes"), added(rows, f"{done}_outer_bytes")
    # Queue and acknowledged bytes are read one after the other: their sum may run back a little.
    one_call = largest(volume(record, direction))
    if direction == "receive":
        one_call += largest(volume(record, "mapped"))
    tolerance = abs(outer - inner) / 2 + 2 * len(rows) * one_call
    if takes(record) and direction == "receive":
        # The kernel reads the queue before the bytes that passed through it, and without the socket's lock
        # (tcp_diag_get_info()): a look that loses the CPU in between is wrong by what arrives meanwhile.
        tolerance += 2 * outer * SLICE_NS / max(wall_ns(measured(record)), SLICE_NS)
    return compare(
        name, what, added(rows, f"{done}_bytes"), (inner + outer) / 2, "bytes", tolerance=round(tolerance)
    )


def where_counted(record: Record, direction: str, name: str, what: str) -> Identity:
    """Of a program whose calls are not counted all the time: where they are, by TCP's counts around that."""
    done, counted = NAMES[direction], counted_calls(record)
    if not counted:
        return unchecked(name, what, "bytes", UNCOUNTED)
    inner, outer = added(counted, f"{done}_inner_bytes"), added(counted, f"{done}_outer_bytes")
    tolerance = abs(outer - inner) / 2 + len(counted) * under_way(
        select(record, "calls")[:1], largest(volume(record, direction))
    )
    left = added(counted, f"{done}_bytes")
    return compare(name, what, left, (inner + outer) / 2, "bytes", tolerance=round(tolerance))


def by_system_call(record: Record, direction: str) -> Identity:
    """Return values of the system calls against the socket layer's count, in the calls segments."""
    done = NAMES[direction]
    name, what = (
        f"call_{done}_bytes",
        f"bytes {done} by return values = bytes {done} at the socket (calls segments)",
    )
    segments = select(record, "calls")
    if not segments:
        return unchecked(name, what, "bytes", "no segment followed the system calls")
    at_socket = [row for row in volume(record, direction, "calls") if row["syscall"] not in TAKEN]
    blind = sorted({row["syscall"] for row in at_socket if row["syscall"] in NOT_BYTES and row["bytes"]})
    if blind:
        return unchecked(name, what, "bytes", f"{', '.join(blind)}: what it returns is no number of bytes")
    returned = [
        row
        for row in record["calls"]
        if (row["syscall"] in RECEIVING) == (direction == "receive")
        and row["syscall"] not in (*NOT_BYTES, SPLICED_IN)
    ]
    way = under_way(segments, max(largest(returned), largest(at_socket)))
    tolerance = total(segments, "target", f"edge_{done}_bytes") + way
    return compare(
        name, what, added(returned, "bytes"), added(at_socket, "bytes"), "bytes", tolerance=tolerance
    )


def copied_out(record: Record) -> Identity:
    """What was copied to the program's memory against what its receive calls returned."""
    name, what = "received_split", "bytes received, or looked at (MSG_PEEK) = copy_out (ledger segments)"
    segments = select(record, "ledger")
    if not segments:
        return unchecked(name, what, "bytes", "no segment of the arm ledger in this run")
    if record["target"].get("spared"):
        if not (counted := counted_calls(record)):
            return unchecked(name, what, "bytes", UNCOUNTED)
        what = what.replace("ledger", "calls")
        way = len(counted) * under_way(segments[:1], largest(volume(record, "receive")))
        left, right = added(counted, "received_bytes"), added(counted, "copied_out_bytes")
        return compare(name, what, left, right, "bytes", tolerance=way)
    received = [row for row in volume(record, "receive", "ledger") if row["syscall"] != SPLICED_IN]
    received += volume(record, "peek", "ledger")
    copied = volume(record, "copy_out", "ledger")
    if any(row["protocol"] == "udp" for row in received):
        what += ", but for UDP: no hook sees all of its copies"
        received, copied = ([row for row in rows if row["protocol"] != "udp"] for rows in (received, copied))
        if not received:
            return unchecked(name, what, "bytes", "it received nothing but datagrams of UDP")
    tolerance = total(segments, "target", "edge_received_bytes") + under_way(segments, largest(received))
    return compare(name, what, added(received, "bytes"), added(copied, "bytes"), "bytes", tolerance=tolerance)


def takes(record: Record) -> bool:
    """Whether it received anything by mapping or splice(2), as far as is known."""
    return any(row["syscall"] in TAKEN for row in record["volume"])


def largest(rows: list[dict[str, Any]]) -> int:
    return max((int(row["largest_bytes"]) for row in rows), default=0)


def under_way(segments: list[dict[str, Any]], largest_bytes: int) -> int:
    """At both ends of a segment every thread may be inside one call."""
    return sum(2 * int(s["target"]["threads"]) * largest_bytes for s in segments)
