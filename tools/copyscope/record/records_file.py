"""Many records in one file, `NAME.jsonl.gz`: a line of JSON for each run, each line a gzip member of its own.

Who appends has a record on the disk (fsync) before going on. What a kill or a full disk leaves of the last
member is cut off by whoever appends next; nothing before it is written again. Members that stand one behind
the other are one text (RFC 1952, 2.2): zcat and pandas read the file as it is.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from copyscope.files import regular_file, saving
from copyscope.record import store
from copyscope.record.store import Record, RecordError

NAME = "records.jsonl.gz"
SUFFIX = ".jsonl.gz"
# A sweep of some 50,000 runs.
FILE_BYTES_MAX = 512 << 20
# How every member begins here: no name, no time (store.py). What is damaged ends where the next one begins.
BEGIN = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class Line:
    """One run: its record, or why there is none."""

    number: int
    record: Record | None
    problem: str = ""

    @property
    def name(self) -> str:
        """What it is called where it cannot be read."""
        return f"line {self.number}"


@dataclass(frozen=True)
class Member:
    """What one gzip member holds; `text` is None where it cannot be had. `torn`: the file ends inside it."""

    end: int
    text: bytes | None
    problem: str = ""
    torn: bool = False


def append(path: Path, record: Record) -> None:
    """One more record, on the disk when this returns. Raises RecordError; the file is then as it was."""
    try:
        saving.append(path, store.compressed_line(record))
    except OSError as error:
        raise RecordError(f"record: {path}: cannot be written: {error.strerror}") from error


def write(path: Path, records: Iterable[Record]) -> None:
    """A whole file anew. Raises RecordError."""
    try:
        saving.save(path, b"".join(map(store.compressed_line, records)))
    except OSError as error:
        raise RecordError(f"record: {path}: cannot be written: {error.strerror}") from error


def read(path: Path) -> list[Line]:
    """Every line. One that is no record of this schema has its reason. Raises RecordError for the file."""
    return list(lines(path))


def lines(path: Path) -> Iterator[Line]:
    """As read(), one after the other: who wants the first parses no other."""
    try:
        data = _read(path)
    except OSError as error:
        why = f"cannot be read: {error.strerror}: check its name and rights"
        raise RecordError(f"record: {path}: {why}") from error
    number = 0
    for member in _members(data):
        for line in _lines_of(member, number, path):
            number = line.number
            yield line


def resume(path: Path) -> list[Line]:
    """As read(), for whoever appends: what a kill has left of the last record is cut off. Raises OSError."""
    found: list[Line] = []
    whole = 0
    for member in _members(_read(path)):
        if not member.torn:
            found += _lines_of(member, len(found), path)
            whole = member.end
    with saving.open_to_append(path) as stream:
        if whole < stream.seek(0, os.SEEK_END):
            os.truncate(stream.fileno(), whole)
    return found


def _read(path: Path) -> bytes:
    return regular_file.read(path, FILE_BYTES_MAX)


def _lines_of(member: Member, before: int, path: Path) -> Iterator[Line]:
    """Those that a member holds, `before` of which are in front of it."""
    if member.text is None:
        yield Line(before + 1, None, member.problem)
        return
    for number, text in enumerate(member.text.splitlines(), before + 1):
        yield _line(number, text, path)


def _line(number: int, text: bytes, path: Path) -> Line:
    where = f"{path}: line {number}"
    try:
        return Line(number, store.parse(text.decode(), where))
    except store.SchemaError:
        raise
    except UnicodeDecodeError:
        return Line(number, None, "not UTF-8: not a record, or damaged")
    except RecordError as error:
        return Line(number, None, str(error).removeprefix(f"record: {where}: "))


def _members(data: bytes) -> Iterator[Member]:
    """One after the other, in linear time whatever is in it."""
    at = 0
    while at < len(data):
        member = _member(data, at)
        if member.text is None:
            again = data.find(BEGIN, at + 1)
            torn = member.torn and again < 0
            member = Member(len(data) if again < 0 else again, None, member.problem, torn)
        yield member
        at = member.end


def _member(data: bytes, at: int) -> Member:
    try:
        text, end = regular_file.member(memoryview(data), at)
    except EOFError:
        return Member(at, None, "truncated: the compressed data end early: run it again", torn=True)
    except zlib.error as error:
        return Member(at, None, f"damaged, or not compressed: {error}: run it again")
    except OverflowError:
        return Member(at, None, "larger than any record: not one")
    return Member(end, text)
