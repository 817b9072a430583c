"""What watching cost a program: the whole watch beside the segments that count nothing but its bytes.

The whole watch is all segments of a block, of every kind in its share of the time, and what moved while hooks
came and went. The hooks that count bytes are there in both: what these cost is not in it. Pure.
"""

from collections.abc import Sequence

from msgspec import UNSET

from copyscope import stats
from copyscope.grouping import grouped
from copyscope.ledger.overhead import FEWEST_PAIRS, NOT_WORKED_OUT_YET, UNKNOWN, loss_of, why_unpaired
from copyscope.record.program.derived import Watching
from copyscope.record.program.raw import ProgramSegment, RawProgramRun
from copyscope.record.program.volume import TAKEN
from copyscope.record.segments import comparable, goodput_gbps

NOT_YET = Watching(reason=NOT_WORKED_OUT_YET, pairs=0, **UNKNOWN)


def cost_of_watching(raw: RawProgramRun) -> Watching:
    """The section `overhead.watching`: null with its reason where there is too little to compare."""
    pairs = block_pairs(raw)
    if len(pairs) < FEWEST_PAIRS:
        segments = raw.run.segments
        control = len(comparable(segments, "unprobed"))
        reason = why_unpaired(raw, len(pairs), {"unprobed": control, "others": len(segments) - control})
        return Watching(reason=reason, pairs=len(pairs), **UNKNOWN)
    ratio = stats.paired_ratio(pairs, seed=raw.run.seed)
    return Watching(reason=None, pairs=len(pairs), **loss_of(ratio.value, ratio.interval))


def block_pairs(raw: RawProgramRun) -> list[tuple[float, float]]:
    """(goodput of all segments, goodput of those that only count bytes) of each block that has both."""
    segments = raw.run.segments
    # What is mapped or spliced out of a socket is counted within a segment only.
    changes = not any(row.syscall in TAKEN for row in raw.volume)
    control = grouped(comparable(segments, "unprobed"), lambda segment: segment.block)
    pairs = []
    for block, rows in grouped(segments, lambda segment: segment.block).items():
        without = goodput_gbps(control.get(block, []))
        watched = goodput_with_changes(rows) if changes else goodput_gbps(rows)
        if watched and without and len(rows) > len(control[block]):
            pairs.append((watched, without))
    return pairs


def goodput_with_changes(segments: Sequence[ProgramSegment]) -> float | None:
    """Bits per nanosecond of these segments, with the time in which their hooks came and went."""
    moved = elapsed_ns = 0
    for one in segments:
        moved, elapsed_ns = moved + one.target.bytes, elapsed_ns + one.end_ns - one.begin_ns
        if one.target.edge_ns is not UNSET:
            moved += one.target.edge_sent_bytes + one.target.edge_received_bytes
            elapsed_ns += one.target.edge_ns
    return moved * 8 / elapsed_ns if elapsed_ns > 0 else None
