# SPDX-License-Identifier: GPL-2.0-only
"""Roles of a watched program, derived from the sizes, number and timing of its sends and receives. Pure."""

from copyscope.judge.evidence import MOSTLY, SEVERAL_SENDS
from copyscope.record.portrait import Direction
from copyscope.record.run import Run
from copyscope.record.watched import added, volume

# Payload of a TCP segment in bytes on Ethernet with timestamps. A smaller send does not fill a packet.
SEGMENT_BYTES = 1_448
# Largest number of sends that may belong to one answer. A file of many blocks has more.
SENDS_PER_ANSWER_MAX = 16
# Time of an answer in ns that a delayed acknowledgement explains: TCP_DELACK_MIN is 40 ms and TCP_DELACK_MAX
# 200 ms (include/net/tcp.h).
PAUSE_LEAST_NS, PAUSE_MOST_NS = 35_000_000, 250_000_000
# Traffic in bytes per second below which no change is worth the trouble.
TRAFFIC_MIN = 1_024
# Mean size of a receive call in bytes below which calls are small, and the rate (1/s) that matters.
SMALL_RECEIVE_BYTES, RECEIVES_PER_S_MIN = 4_096, 1_000
# A receiver makes this many receive calls for each send.
RECEIVES_PER_SEND = 4


def is_idle(run: Run) -> bool:
    """Return True if the program moves too few bytes for any advice."""
    rows = (run.portrait.send, run.portrait.receive)
    return sum(row.bytes for row in rows if row) < TRAFFIC_MIN * run.raw.run.measured_s


def sends_per_answer(run: Run) -> float | None:
    """Return the mean number of small sends per receive, or None if an answer takes one send, or many."""
    sent, received = run.portrait.send, run.portrait.receive
    if sent is None or received is None or not received.calls or _is_large(sent) or sends_datagrams(run):
        return None
    sends = sent.calls / received.calls
    return sends if SEVERAL_SENDS <= sends <= SENDS_PER_ANSWER_MAX else None


def _is_large(sent: Direction) -> bool:
    return sent.mean_bytes >= 4 * SEGMENT_BYTES


def pause_ns(run: Run) -> float | None:
    """Return the time of an answer in ns if Nagle's algorithm and delayed acknowledgements explain it.

    The program sends each answer in several pieces without TCP_NODELAY, and an answer takes 35 to 250 ms.
    """
    sent, received = run.portrait.send, run.portrait.receive
    if sent is None or received is None or sends_per_answer(run) is None:
        return None
    answer_ns = run.raw.run.measured_s * 1e9 * max(1, run.portrait.connections) / received.calls
    is_held = sent.nodelay_share < MOSTLY and sent.cork_share < MOSTLY
    return answer_ns if is_held and PAUSE_LEAST_NS <= answer_ns <= PAUSE_MOST_NS else None


def sends_datagrams(run: Run) -> bool:
    """Return True if the program sends most bytes over UDP in datagrams that one packet holds."""
    sent = run.portrait.send
    if sent is None or sent.mean_bytes > 2 * SEGMENT_BYTES:
        return False
    datagram_bytes = added(
        [row for row in volume(run.raw.volume, "send") if row.protocol == "udp"], lambda row: row.bytes
    )
    return datagram_bytes > MOSTLY * sent.bytes


def is_receiver(run: Run) -> bool:
    """Return True if the program receives more bytes than it sends, by many more calls than it sends."""
    sent, received = run.portrait.send, run.portrait.receive
    if received is None or is_idle(run):
        return False
    return sent is None or (sent.bytes < received.bytes and RECEIVES_PER_SEND * sent.calls <= received.calls)


def has_small_receives(run: Run) -> bool:
    """Return True if the program is a receiver and receives its bytes in many small calls."""
    received = run.portrait.receive
    if received is None or not is_receiver(run):
        return False
    is_often = received.calls >= RECEIVES_PER_S_MIN * run.raw.run.measured_s
    return is_often and received.mean_bytes < SMALL_RECEIVE_BYTES
