"""pprof's profile.proto, written by hand: https://github.com/google/pprof/blob/main/proto/profile.proto

A message is a row of fields, each a number, a kind and a value; whole numbers are varints, all else has its
length before it. Nothing more of protocol buffers is needed.
"""

import gzip
import io
from collections.abc import Iterable
from datetime import datetime

from copyscope.exports.costs import costs
from copyscope.record.check import Whole
from copyscope.taxonomy.samples import frame_name


class Strings:
    """The string table: the first is empty."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow. Below zero: 64 bits."""
    made = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes) -> bytes:
    """A message, a text, or packed numbers."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed(field: int, values: Iterable[int]) -> bytes:
    return block(field, b"".join(map(varint, values)))


def write(run: Whole) -> bytes:
    """Two values a sample, CPU time and bytes, with the labels account, side and where."""
    strings = Strings()
    functions: dict[str, int] = {}
    samples = []
    for cost in costs(run):
        # leaf first; location N is function N
        frames = [functions.setdefault(name, len(functions) + 1) for name in (*cost.frames[::-1], cost.side)]
        labels = {"account": cost.account, "side": cost.side, "where": cost.where}
        made = packed(1, frames) + packed(2, (cost.ns, cost.bytes))
        for key, value in labels.items():
            made += block(3, number(1, strings[key]) + number(2, strings[value]))
        samples.append(made)
    kinds = [("cpu", "nanoseconds"), ("payload", "bytes")]
    whole = b"".join(block(1, number(1, strings[kind]) + number(2, strings[unit])) for kind, unit in kinds)
    whole += b"".join(block(2, one) for one in samples)
    written = _sources(run)
    for name, place in functions.items():
        path, line = written.get(name, ("", 0))
        whole += block(4, number(1, place) + block(4, number(1, place) + number(2, line)))
        called = number(2, strings[name]) + number(3, strings[name]) + number(4, strings[path])
        whole += block(5, number(1, place) + called)
    began = datetime.fromisoformat(run.raw.run.started).timestamp()
    comment, default = strings[f"copyscope {run.raw.run.id}"], strings["cpu"]
    whole += b"".join(block(6, text.encode(errors="replace")) for text in strings.places)
    whole += number(9, int(began) * 10**9) + number(10, int(run.raw.run.measured_s * 1e9))
    whole += number(13, comment) + number(14, default)
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as out:
        out.write(whole)
    return stream.getvalue()


def _sources(run: Whole) -> dict[str, tuple[str, int]]:
    """Where who calls the program's own copies is written: of several lines the one that calls most."""
    found: dict[str, tuple[str, int]] = {}
    for row in sorted(run.raw.user_callers or [], key=lambda row: row.samples):
        path, _, line = (row.source or "").rpartition(":")
        if row.caller is not None and line.isdecimal():
            found[frame_name(row.caller)] = (path, int(line))
    return found
