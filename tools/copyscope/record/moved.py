"""What a watched program moved in each segment, and of a run of hours no more than that. Pure."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from copyscope.record.watched import TAKEN

Row = dict[str, Any]
# (phase, protocol, direction, system call) -> a row of `volume`, its sizes as a table.
Sums = dict[tuple[str, ...], Row]
SUMMED = ("calls", "bytes", "zerocopy_calls", "zerocopy_bytes", "nodelay_calls", "cork_calls")
KEY = ("protocol", "direction", "syscall")
TOTALS = ("completions", "copied", "notifications", "unseen", "untold", "unregistered")
# Of so many blocks all that was read is kept: the live view shows the last ones.
BLOCKS_KEPT = 5


def subtract_volume(after: Iterable[Row], before: Iterable[Row]) -> list[Row]:
    """What moved between two readings, row by row; `largest_bytes` is a level, that of the later one."""
    earlier = {key_of(row): row for row in before}
    nothing: Row = {**dict.fromkeys(SUMMED, 0), "sizes": []}
    rows = []
    for row in after:
        old = earlier.get(key_of(row), nothing)
        sizes = dict(map(tuple, row["sizes"]))
        for low, count in old["sizes"]:
            sizes[low] -= count
        made = {key: row[key] for key in (*KEY, "largest_bytes")}
        made |= {key: row[key] - old[key] for key in SUMMED}
        made["sizes"] = [[low, count] for low, count in sizes.items() if count]
        if made["calls"] or made["bytes"]:
            rows.append(made)
    return rows


def key_of(row: Row) -> tuple[str, ...]:
    return tuple(row[key] for key in KEY)


def moved(rows: Iterable[Row], direction: str) -> tuple[int, int]:
    """(bytes, calls) of one direction, of calls that are always counted."""
    found = [row for row in rows if row["direction"] == direction and row["syscall"] not in TAKEN]
    return sum(row["bytes"] for row in found), sum(row["calls"] for row in found)


def taken(rows: Iterable[Row]) -> int:
    """Bytes that were received by mapping or splice(2), while that was counted."""
    return sum(row["bytes"] for row in rows if row["syscall"] in TAKEN and row["direction"] != "send")


def target_totals(before: Row, begin: Row, end: Row, after: Row) -> Row:
    """What a program moved inside a segment, and how much more while hooks came and went."""
    inner = subtract_volume(end["volume"], begin["volume"])
    outer = subtract_volume(after["volume"], before["volume"])
    sent, sends = moved(inner, "send")
    received, receives = moved(inner, "receive")
    outer_sent, outer_sends = moved(outer, "send")
    outer_received, outer_receives = moved(outer, "receive")
    received_otherwise = taken(inner)
    totals = {key: end["totals"][key] - begin["totals"][key] for key in end["totals"]}
    return {
        "role": "target",
        "bytes": sent + received + received_otherwise,
        "bytes_sent": sent,
        "bytes_received": received + received_otherwise,
        # Of a segment whose hook for it had just come, all that was counted: no rate is of it (comparable()).
        "counts_taken": bool(begin.get("counts_taken", False)),
        "send_calls": sends,
        "receive_calls": receives,
        "edge_sent_bytes": outer_sent - sent,
        "edge_received_bytes": outer_received - received,
        "edge_send_calls": outer_sends - sends,
        "edge_receive_calls": outer_receives - receives,
        "edge_ns": after["t_ns"] - before["t_ns"] - (end["t_ns"] - begin["t_ns"]),
        "process_cpu_ns": end["process_cpu_ns"] - begin["process_cpu_ns"],
        "voluntary_switches": end["voluntary_switches"] - begin["voluntary_switches"],
        "involuntary_switches": end["involuntary_switches"] - begin["involuntary_switches"],
        "processes": len(end["processes"]),
        "threads": end["threads"],
        "open_zerocopy_sends": open_sends(begin) + open_sends(end),
        **{key: totals[key] for key in TOTALS},
    }


def open_sends(volume: Row) -> int:
    """Zero-copy sends so far of which no completion has come."""
    sent: int = sum(row["zerocopy_calls"] for row in volume["volume"])
    seen: int = volume["totals"]["completions"] + volume["totals"]["unseen"]
    return max(0, sent - seen)


def add_volume(sums: Sums, segment: Row) -> None:
    """What moved in a segment, on top of what has moved in others of its phase."""
    _, begin, end, _ = (mark["target"] for mark in segment["marks"])
    for row in subtract_volume(end["volume"], begin["volume"]):
        key = (segment["phase"], *key_of(row))
        if key not in sums:
            sums[key] = {"phase": segment["phase"], **row, "sizes": dict(map(tuple, row["sizes"]))}
            continue
        into = sums[key]
        for name in SUMMED:
            into[name] += row[name]
        into["largest_bytes"] = max(into["largest_bytes"], row["largest_bytes"])
        for low, count in row["sizes"]:
            into["sizes"][low] = into["sizes"].get(low, 0) + count


def volume_rows(segments: Sequence[Any], past: Sums) -> list[Row]:
    """What moved through the sockets in all segments of each phase, by protocol, direction and call."""
    sums = {key: {**row, "sizes": dict(row["sizes"])} for key, row in past.items()}
    for segment in segments:
        if not isinstance(segment, Past):
            add_volume(sums, segment)
    return [
        {**row, "sizes": [list(x) for x in sorted(row["sizes"].items())]} for _, row in sorted(sums.items())
    ]


class Past:
    """A segment of which only its row is left: in an hour there are six thousand.

    All numbers stand in one array: objects of their own, for a few of them, took a fifth more.
    """

    __slots__ = ("_numbers", "marks", "phase")
    keys: tuple[str, ...] = ()

    def __init__(self, segment: Row) -> None:
        marks = [mark["target"] for mark in segment["marks"]]
        totals = target_totals(*marks)
        totals.pop("role")
        Past.keys = tuple(totals)
        self.phase = segment["phase"]
        _, begin, end, _ = marks
        own = (segment["block"], segment["index"], begin["t_ns"], end["t_ns"])
        self._numbers: array[int] = array("q", (*own, *map(int, totals.values())))
        # Of the very first the CPU time at its begin is asked for.
        self.marks = (
            ({}, {"target": {"process_cpu_ns": begin["process_cpu_ns"]}}) if segment["index"] == 0 else ()
        )

    @property
    def block(self) -> int:
        return self._numbers[0]

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def row(self) -> Row:
        """As assemble.segment_row() makes one."""
        block, index, begin_ns, end_ns, *numbers = self._numbers
        target: Row = {"role": "target", **dict(zip(Past.keys, numbers, strict=True))}
        target["counts_taken"] = bool(target["counts_taken"])
        named = {"index": index, "block": block, "phase": self.phase}
        return {**named, "begin_ns": begin_ns, "end_ns": end_ns, "sides": {"target": target}}


def forget(segments: list[Any], sums: Sums) -> None:
    """Leave of segments that are BLOCKS_KEPT blocks old their rows and sums; the others stay as they are."""
    oldest = segments[-1]["block"] - BLOCKS_KEPT
    for number in range(len(segments) - 1, -1, -1):
        segment = segments[number]
        if isinstance(segment, Past):
            break
        if segment["block"] <= oldest:
            add_volume(sums, segment)
            segments[number] = Past(segment)
