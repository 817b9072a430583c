"""How fast a watched program went before the hooks came, meanwhile, and after they had gone: raw. Pure."""

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from copyscope.record.program.volume import TAKEN

Row = dict[str, Any]


def pace_section(
    segments: Sequence[Any],
    before: Sequence[Any],
    after: Sequence[Any],
    sockets: Mapping[str, Sequence[int]],
    own_cpu_ns: int | None,
) -> Row:
    """The raw section `pace`, from readings of run/program/pace.py and our own count by inode (`sockets`)."""
    lasting = {int(inode) for inode in sockets}.intersection(
        *(reading.moved_bytes for reading in [*before, *after])
    )
    moved = sum(map(sum, sockets.values()))
    covered = sum(sum(sockets[str(inode)]) for inode in lasting)
    rows = _detached("before", before, lasting) + _attached(segments) + _detached("after", after, lasting)
    return {
        "slices": rows,
        "lasting_connections": len(lasting) if before and after else 0,
        "covered_share": covered / moved if moved and before and after else None,
        "own_cpu_ns": own_cpu_ns,
    }


def _detached(when: str, readings: Sequence[Any], lasting: set[int]) -> list[Row]:
    """Slices by TCP's count of the connections that lasted."""
    sums = [(reading.t_ns, sum(reading.moved_bytes[inode] for inode in lasting)) for reading in readings]
    return _rows(when, sums)


def _attached(segments: Sequence[Any]) -> list[Row]:
    """A slice for each block, with all that is done between its segments, by our own count."""
    firsts = [next(block) for _, block in groupby(segments, key=itemgetter("block"))]
    begins = [getattr(segment, "pace", None) or _pace(segment["marks"][0]) for segment in firsts]
    return _rows("attached", begins + [_pace(segment["marks"][3]) for segment in segments[-1:]])


def _pace(mark: Mapping[str, Row]) -> tuple[int, int]:
    return mark["target"]["t_ns"], tcp_bytes(mark["target"])


def tcp_bytes(volume: Row) -> int:
    return sum(
        int(row["bytes"])
        for row in volume["volume"]
        if row["protocol"] == "tcp"
        and row["direction"] in ("send", "receive")
        and row["syscall"] not in TAKEN
    )


def _rows(when: str, sums: Sequence[tuple[int, int]]) -> list[Row]:
    return [
        {"when": when, "begin_ns": begin, "end_ns": end, "bytes": high - low}
        for (begin, low), (end, high) in pairwise(sums)
    ]
