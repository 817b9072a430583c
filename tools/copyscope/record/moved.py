# SPDX-License-Identifier: GPL-2.0-only
"""Compute the data that a watched process moved in each segment. Old segments keep only sums. Pure."""

from array import array
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass

from msgspec import convert, structs

from copyscope.record.measured import Segment
from copyscope.record.messages import Mark, TotalsMessage, VolumeMessage
from copyscope.record.traffic import TargetTotals
from copyscope.record.watched import WITHOUT_RECEIVE_CALL, Volume

# Number of blocks at the end of a run that keep all readings, because the live view shows these blocks.
BLOCKS_KEPT = 5


@dataclass(frozen=True)
class MeasuredSegment:
    """A complete segment with all readings.

    marks: totals before attaching the instruments, at the start, at the end, and after detaching
    """

    index: int
    block: int
    phase: str
    marks: tuple[Mark, Mark, Mark, Mark]


class VolumeSums:
    """Sums of the data that moved in the segments of each phase, by protocol, direction and system call."""

    def __init__(self) -> None:
        # Sums by (phase, protocol, direction, system call).
        self._rows: dict[tuple[str, ...], Volume] = {}

    def copy(self) -> "VolumeSums":
        copied = VolumeSums()
        copied._rows = dict(self._rows)  # add() replaces rows and changes none
        return copied

    def clear(self) -> None:
        self._rows.clear()

    def add(self, segment: MeasuredSegment) -> None:
        """Add the data that moved in a segment."""
        _, begin, end, _ = segment.marks
        for row in subtract_volume(end["target"]["volume"], begin["target"]["volume"], segment.phase):
            key = (segment.phase, *_key(row))
            self._rows[key] = _added(self._rows[key], row) if key in self._rows else row

    def rows(self) -> list[Volume]:
        """Return the sums, sorted by phase, protocol, direction and system call, and their sizes sorted."""
        return [structs.replace(row, sizes=sorted(row.sizes)) for _, row in sorted(self._rows.items())]


def subtract_volume(
    after: Iterable[VolumeMessage], before: Iterable[VolumeMessage], phase: str = ""
) -> list[Volume]:
    """Return the data that moved between two readings, without empty rows.

    `phase`: phase of the rows. `largest_bytes` of a row is the later value.
    """
    earlier_rows = {_key(row): row for row in as_volume(before, phase)}
    differences = []
    for row in as_volume(after, phase):
        earlier = earlier_rows.get(_key(row))
        difference = row if earlier is None else _subtracted(row, earlier)
        if difference.calls or difference.bytes:
            differences.append(difference)
    return differences


def as_volume(messages: Iterable[VolumeMessage], phase: str = "") -> list[Volume]:
    """Convert the rows of a reading into rows of the record's `volume`. `phase`: phase of the rows."""
    return convert([{"phase": phase, **message} for message in messages], list[Volume])


def _key(row: Volume) -> tuple[str, str, str]:
    return row.protocol, row.direction, row.syscall


def _subtracted(row: Volume, earlier: Volume) -> Volume:
    """Return the difference of two readings of a row."""
    earlier_sizes = {low: count for low, count in earlier.sizes}
    sizes = [[low, count - earlier_sizes.get(low, 0)] for low, count in row.sizes]
    return structs.replace(
        row,
        calls=row.calls - earlier.calls,
        bytes=row.bytes - earlier.bytes,
        zerocopy_calls=row.zerocopy_calls - earlier.zerocopy_calls,
        zerocopy_bytes=row.zerocopy_bytes - earlier.zerocopy_bytes,
        nodelay_calls=row.nodelay_calls - earlier.nodelay_calls,
        cork_calls=row.cork_calls - earlier.cork_calls,
        copied_calls=(row.copied_calls or 0) - (earlier.copied_calls or 0),
        copied_bytes=(row.copied_bytes or 0) - (earlier.copied_bytes or 0),
        ring_calls=row.ring_calls - earlier.ring_calls,
        ring_bytes=row.ring_bytes - earlier.ring_bytes,
        sizes=[[low, count] for low, count in sizes if count],
    )


def _added(total: Volume, row: Volume) -> Volume:
    """Return the sum of two rows of the same key."""
    sizes = {low: count for low, count in total.sizes}
    for low, count in row.sizes:
        sizes[low] = sizes.get(low, 0) + count
    return structs.replace(
        total,
        calls=total.calls + row.calls,
        bytes=total.bytes + row.bytes,
        zerocopy_calls=total.zerocopy_calls + row.zerocopy_calls,
        zerocopy_bytes=total.zerocopy_bytes + row.zerocopy_bytes,
        nodelay_calls=total.nodelay_calls + row.nodelay_calls,
        cork_calls=total.cork_calls + row.cork_calls,
        copied_calls=(total.copied_calls or 0) + (row.copied_calls or 0),
        copied_bytes=(total.copied_bytes or 0) + (row.copied_bytes or 0),
        ring_calls=total.ring_calls + row.ring_calls,
        ring_bytes=total.ring_bytes + row.ring_bytes,
        largest_bytes=max(total.largest_bytes, row.largest_bytes),
        sizes=[[low, count] for low, count in sizes.items()],
    )


@dataclass(frozen=True)
class Moved:
    """Bytes and calls of one direction, counted at system calls that are always hooked."""

    bytes: int
    calls: int


def moved(rows: Sequence[Volume], direction: str) -> Moved:
    """Return the sums of bytes and calls over the rows of one direction, except WITHOUT_RECEIVE_CALL."""
    counted = [row for row in rows if row.direction == direction and row.syscall not in WITHOUT_RECEIVE_CALL]
    return Moved(sum(row.bytes for row in counted), sum(row.calls for row in counted))


def received_without_call(rows: Iterable[Volume]) -> int:
    """Return the bytes received by mapping or splice(2), as far as they were counted."""
    return sum(row.bytes for row in rows if row.syscall in WITHOUT_RECEIVE_CALL and row.direction != "send")


def target_totals(
    before: TotalsMessage, begin: TotalsMessage, end: TotalsMessage, after: TotalsMessage
) -> TargetTotals:
    """Return the totals of a watched process in a segment, and during attaching and detaching of hooks.

    `before`, `begin`, `end`, `after`: readings at the four marks of the segment.
    """
    inner = subtract_volume(end["volume"], begin["volume"])
    outer = subtract_volume(after["volume"], before["volume"])
    sent, received = moved(inner, "send"), moved(inner, "receive")
    outer_sent, outer_received = moved(outer, "send"), moved(outer, "receive")
    uncopied_bytes = received_without_call(inner)
    totals = {key: end["totals"][key] - begin["totals"][key] for key in end["totals"]}
    return TargetTotals(
        bytes=sent.bytes + received.bytes + uncopied_bytes,
        bytes_sent=sent.bytes,
        bytes_received=received.bytes + uncopied_bytes,
        # False for a segment in which this counting began: comparable() leaves out the goodput of the
        # segment.
        counts_taken=begin.get("counts_taken", False),
        send_calls=sent.calls,
        receive_calls=received.calls,
        edge_sent_bytes=outer_sent.bytes - sent.bytes,
        edge_received_bytes=outer_received.bytes - received.bytes,
        edge_send_calls=outer_sent.calls - sent.calls,
        edge_receive_calls=outer_received.calls - received.calls,
        edge_ns=after["t_ns"] - before["t_ns"] - (end["t_ns"] - begin["t_ns"]),
        process_cpu_ns=end["process_cpu_ns"] - begin["process_cpu_ns"],
        voluntary_switches=end["voluntary_switches"] - begin["voluntary_switches"],
        involuntary_switches=end["involuntary_switches"] - begin["involuntary_switches"],
        processes=len(end["processes"]),
        threads=end["threads"],
        open_zerocopy_sends=open_sends(begin) + open_sends(end),
        completions=totals["completions"],
        copied=totals["copied"],
        notifications=totals["notifications"],
        unseen=totals["unseen"],
        untold=totals["untold"],
        unregistered=totals["unregistered"],
    )


def open_sends(reading: TotalsMessage) -> int:
    """Return the number of zero-copy sends so far that have no completion yet."""
    sent = sum(row["zerocopy_calls"] for row in reading["volume"])
    return max(0, sent - reading["totals"]["completions"] - reading["totals"]["unseen"])


class PastSegment:
    """A segment of a watched process without readings, to save memory: an hour has six thousand segments.

    All numbers are in one array, because separate objects for a few numbers take a fifth more memory.
    """

    __slots__ = ("_numbers", "first_cpu_ns", "phase")

    def __init__(self, segment: MeasuredSegment) -> None:
        """Keep the totals of a segment, and drop its readings."""
        before, begin, end, after = (mark["target"] for mark in segment.marks)
        totals = structs.asdict(target_totals(before, begin, end, after))
        self.phase = segment.phase
        own_numbers = (segment.block, segment.index, begin["t_ns"], end["t_ns"])
        self._numbers: array[int] = array("q", (*own_numbers, *map(int, totals.values())))
        # CPU time of the process at the start of the run; None in all segments except the first.
        self.first_cpu_ns = begin["process_cpu_ns"] if segment.index == 0 else None

    @property
    def block(self) -> int:
        return self._numbers[0]

    def row(self) -> Segment:
        """Return the row of `run.segments` for this segment."""
        block, index, begin_ns, end_ns, *numbers = self._numbers
        values = dict(zip(TargetTotals.__struct_fields__, numbers, strict=True))
        totals = convert(
            {"role": "target", **values, "counts_taken": bool(values["counts_taken"])}, TargetTotals
        )
        return Segment(index, block, self.phase, begin_ns, end_ns, {"target": totals})


def forget(segments: MutableSequence[MeasuredSegment | PastSegment], sums: VolumeSums) -> None:
    """Replace segments that are BLOCKS_KEPT blocks old by PastSegment, and add their data to `sums`."""
    oldest = segments[-1].block - BLOCKS_KEPT
    for number in range(len(segments) - 1, -1, -1):
        segment = segments[number]
        if isinstance(segment, PastSegment):
            break
        if segment.block <= oldest:
            sums.add(segment)
            segments[number] = PastSegment(segment)
