# SPDX-License-Identifier: GPL-2.0-only
"""Least and most that each remedy saves, as shares of a watched program's CPU time. Pure.

The least is the work that is certainly saved. The most is all work that scales with the calls, packets or
bytes that the remedy removes, minus the least work that the remedy adds. Samples cannot separate work per
call from other work in the same function, so the bounds are wide. They bound the saving; they are not
confidence intervals.

The likely saving is between them: the sampled value of the most, of which work per call counts only as far as
calls can grow to LARGE_BYTES.
"""

from collections.abc import Callable
from dataclasses import dataclass

from copyscope.judge.evidence import Evidence
from copyscope.judge.roles import sends_per_answer
from copyscope.ledger.headline import share_of_parts
from copyscope.ledger.share import NARROW_WIDTH, Share, percent
from copyscope.record.portrait import Direction
from copyscope.taxonomy.accounts import (
    COPIES,
    PACKET_STAGES,
    RECEIVE_COPIES,
    SEND_COPIES,
    STAGES,
    ZEROCOPY_PRICE,
    saved_by,
)

# Account or stage -> fraction (0..1) of its time.
Parts = dict[str, float]

# Size in bytes to which larger calls likely grow. Larger ones gain almost nothing, because the cost of a call
# is spread over many bytes.
LARGE_BYTES = 65_536
# Number of requests that a client with pipelining likely sends together.
BATCH = 16
# Largest packet that the kernel passes to a device: GSO_LEGACY_MAX_SIZE, include/linux/netdevice.h.
PACKET_BYTES_MAX = 65_536
# Size of a call in bytes at which half the cost of its copy is fixed. A copy into the kernel takes 302 ns/KiB
# in calls of 1 KiB, 215 of 4 KiB and 110 of 64 KiB and more (results/vm/ways).
COPY_FIXED_BYTES = 4_096
# Minimum cost of the page look-up of sendfile, as a part of the copy into the kernel. It takes 0.4 of that
# copy at 64 KiB and 1.2 at 1 KiB (results/vm/ways).
SENDFILE_COST_LEAST = 0.25
# Fraction of the calls of a program that reads and sends which are reads.
READS_OF_CALLS = 0.5
# Fraction of the calls that a remedy certainly saves if it makes calls larger: each call at least doubles.
CALLS_GONE_LEAST = 0.5
# Size in bytes to which small calls certainly grow.
SMALL_CALL_BYTES = 4_096
# Stages with a cost that does not depend on the number of calls.
CONSTANT_STAGES = ("other_packets",)


@dataclass(frozen=True)
class SavingBounds(Share):
    """Bounds of a saving.

    most_low: lower end of the upper bound's own sampled interval
    likely: the likely saving, or None if the work that the remedy adds is unknown
    """

    most_low: float
    likely: float | None

    @property
    def decisive_low(self) -> float:
        return max(self.low, self.most_low)

    def spoken(self) -> str:
        return saving_words(self.low, self.high, self.likely)


def saving_words(low: float, high: float, likely: float | None) -> str:
    """Return a saving as text: `about 54 % (3 to 72)`, or only its bounds if the likely saving is unknown.

    low, high, likely: shares (0..1) of the CPU time
    """
    bounds = Share(None, low, high)
    if likely is None or high - low <= NARROW_WIDTH:
        return bounds.spoken()
    return f"about {percent(likely)} ({low * 100:.0f} to {bounds.at_most().removesuffix(' %')})"


def gone(evidence: Evidence, parts: Parts) -> Share | None:
    """Return the share of CPU time in parts of accounts and stages, or None if there are too few samples."""
    if evidence.is_thin:
        return None
    return share_of_parts([*evidence.run.derived.ledger, *evidence.run.derived.stages], parts, evidence.time)


def between(
    least: Share | None, most: Share | None, part: float = 1.0, likely: Share | None = None
) -> Share | None:
    """Return the bounds of a saving: the lower end of `least` and the upper end of `most`.

    least: share of the work that is certainly saved; None if no work is
    part: fraction (0..1) of `most` and `likely` that the remedy removes
    likely: share of the work that is likely saved; None if unknown
    """
    if most is None:
        return None
    low = 0.0 if least is None else least.low
    high = max(part * min(1.0, most.high), low)
    value = None if likely is None or likely.share is None else min(max(part * likely.share, low), high)
    return SavingBounds(None, low, high, part * most.low, value)


def call_parts(evidence: Evidence, calls: Direction) -> Parts:
    """Return the parts of the work that may be saved if calls become much larger.

    All work per call may be saved. Of the work per packet, a sender may save only what packets of the largest
    size save, but a receiver all of it: its window limits the packets of a peer.

    calls: the calls that become larger
    """
    packets = evidence.run.portrait.packets if calls is evidence.sent else None
    packet_bytes = packets.mean_bytes if packets is not None and packets.packets else 0.0
    fixed = COPY_FIXED_BYTES / (COPY_FIXED_BYTES + calls.mean_bytes)
    return {
        **dict.fromkeys(STAGES, 1.0),
        **dict.fromkeys(CONSTANT_STAGES, 0.0),
        **dict.fromkeys(PACKET_STAGES, 1 - min(1.0, packet_bytes / PACKET_BYTES_MAX)),
        **dict.fromkeys(ZEROCOPY_PRICE, 1.0),
        **dict.fromkeys(COPIES, fixed),
    }


def _calls_gone(calls: Direction) -> float:
    """Return the fraction (0..1) of some calls that is certainly saved if calls become larger."""
    return max(CALLS_GONE_LEAST, 1 - calls.mean_bytes / SMALL_CALL_BYTES)


def _calls_saved(calls: Direction, large_bytes: float, calls_each: int = 1) -> float:
    """Return the fraction (0..1) of some calls that is likely saved.

    large_bytes: size to which calls grow
    calls_each: number of calls that replace one larger call
    """
    return max(0.0, 1 - calls_each * calls.mean_bytes / large_bytes)


def _times(parts: Parts, part: float) -> Parts:
    return {name: part * value for name, value in parts.items()}


def _entry(evidence: Evidence, calls: Direction, part: float) -> Share | None:
    """Return the share of the CPU time in entering and leaving some calls.

    System calls of both directions are assumed to cost the same.

    part: fraction (0..1) of these calls
    """
    portrait = evidence.run.portrait
    all_calls = sum(row.calls for row in (portrait.send, portrait.receive) if row)
    return gone(evidence, {"syscall": part * calls.calls / all_calls}) if all_calls else None


def _larger(evidence: Evidence, calls: Direction | None) -> Share | None:
    """Bounds for larger calls, which save system calls, packets, wake-ups and loop iterations."""
    if calls is None:
        return None
    parts = call_parts(evidence, calls)
    is_answer = calls is evidence.sent and evidence.sends_answers
    saved = _calls_saved(calls, BATCH * calls.mean_bytes if is_answer else LARGE_BYTES)
    likely = gone(evidence, _times(parts, saved))
    return between(_entry(evidence, calls, _calls_gone(calls)), gone(evidence, parts), likely=likely)


def larger_sends(evidence: Evidence) -> Share | None:
    """Bounds for larger sends."""
    return _larger(evidence, evidence.sent)


def larger_receives(evidence: Evidence) -> Share | None:
    """Bounds for larger receive calls."""
    return _larger(evidence, evidence.run.portrait.receive)


def one_send_per_answer(evidence: Evidence) -> Share | None:
    """Bounds for sending each answer in a single call rather than several."""
    sends, sent = sends_per_answer(evidence.run), evidence.sent
    if sent is None or sends is None:
        return None
    part, most = 1 - 1 / sends, gone(evidence, call_parts(evidence, sent))
    return between(_entry(evidence, sent, part), most, part, likely=most)


def sendfile(evidence: Evidence) -> Share | None:
    """Bounds for sendfile: at most both copies and the calls, less the least cost of its page look-up.

    The likely saving is both copies, the reads, and the work for each call that is no longer made: the kernel
    itself sends a file in pieces of LARGE_BYTES (16 pages of a pipe, fs/splice.c). A program that sends each
    answer in one call still makes one for each.

    No saving is certain: with `sendfile on` nginx took 10 % more CPU time on a busy virtual machine, because
    TCP took longer, and 42 % less elsewhere.
    """
    leaves_files_open = evidence.reads is None and evidence.few_samples is not None
    if evidence.sent is None or leaves_files_open:
        return None
    cost = file_part_of_sent(evidence) * (1 - SENDFILE_COST_LEAST)
    parts = call_parts(evidence, evidence.sent) | {"file_read": 1.0}
    saved = 0.0 if evidence.sends_answers else _calls_saved(evidence.sent, LARGE_BYTES)
    fewer = _times(parts, saved) | {"file_read": 1.0, "syscall": max(saved, READS_OF_CALLS)}
    most, likely = (
        gone(evidence, row | {name: max(row[name], cost) for name in SEND_COPIES}) for row in (parts, fewer)
    )
    return between(None, most, likely=likely)


def file_part_of_sent(evidence: Evidence) -> float:
    """Return the upper limit of the fraction (0..1) of the copied bytes that came from files."""
    read, copied = (
        sum(row.bytes or 0 for row in evidence.run.derived.ledger if row.account in accounts)
        for accounts in (("file_read",), SEND_COPIES)
    )
    return min(1.0, read / copied) if read and copied else 1.0


def splice(evidence: Evidence) -> Share | None:
    """Bounds for splice(2) in a relay: at most both copies and the calls.

    Bytes pass a pipe, so two calls replace a larger one.
    """
    if evidence.sent is None:
        return None
    parts, copies = call_parts(evidence, evidence.sent), dict.fromkeys(saved_by("splice"), 1.0)
    saved = _calls_saved(evidence.sent, LARGE_BYTES, calls_each=2)
    likely = gone(evidence, _times(parts, saved) | copies)
    return between(None, gone(evidence, parts | copies), likely=likely)


def fewer_user_copies(evidence: Evidence) -> Share | None:
    """Bounds for fewer copies in the program itself. Samples may only bound the time of these copies."""
    return between(None, evidence.share(saved_by("fewer user copies")))


def at_most(parts: Parts) -> Callable[[Evidence], Share | None]:
    """Return a function that bounds a remedy: nothing is certainly saved, and at most these parts are."""
    return lambda evidence: between(None, gone(evidence, parts))


zerocopy = at_most(dict.fromkeys((*SEND_COPIES, "memory"), 1.0))
io_uring = at_most({"syscall": 1.0, "wakeup_sched": 1.0})
mapped_receives = at_most(dict.fromkeys((*RECEIVE_COPIES, "memory"), 1.0))
