"""The names that a runtime gives to the code that it makes as it runs: /tmp/perf-PID.map.

Of Node by --perf-basic-prof, of Java by `jcmd PID Compiler.perfmap`, of Python by -X perf. The watched user
writes it: it is read as any text of a stranger, up to a size, and only if it is his or root's.
"""

import contextlib
import io
import os
import re
import stat
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from io import FileIO
from itertools import islice
from typing import Self

from copyscope.run.processes import PROC, Seldom, read_file

# Read at most so much, and of a map that grows so seldom that it takes this part of one CPU.
BYTES_MAX, ROWS_MAX, READ_SHARE = 64 << 20, 1 << 20, 0.1
NAME_MAX = 512
# Of what was at one place one after the other so many are looked at.
NEAR = 16
LINE = re.compile(rb"(?:0x)?([0-9a-f]{1,16}) (?:0x)?([0-9a-f]{1,16}) (.+)")
# V8: `JS:*serve /srv/app.js:12:5`, its kind and how well it is compiled before the name.
V8 = re.compile(r"[A-Za-z]+:[~^+*]*(?P<name>.*?) (?P<source>\S+:\d+):\d+")
# Java's name for many functions, of which some copy.
STUBS = "StubRoutines"


class PerfMap:
    """Opened while the process lives; read when it is sampled in code that is in no file."""

    def __init__(self, opened: FileIO) -> None:
        self._opened, self._bytes = opened, 0
        self._reads = Seldom(READ_SHARE)
        # begin, which line of the file, end, name
        self._rows: list[tuple[int, int, int, str]] = []

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None where there is none, or one that is not to be trusted."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            lines = read_file(f"{PROC}/{pid}/status").splitlines()
            status = {name: words for name, *words in map(bytes.split, filter(None, lines))}
            place = _find(pid, int(status[b"NSpid:"][-1]))
            try:
                found, owners = os.fstat(place), {0, *map(int, status[b"Uid:"])}
                if stat.S_ISREG(found.st_mode) and found.st_uid in owners:
                    return cls(FileIO(f"{PROC}/self/fd/{place}", "rb"))
            finally:
                os.close(place)
        return None

    def name_at(self, address: int) -> str | None:
        """As the runtime calls the code there; it may have made more since the last look."""
        found = self._found(address)
        if found is None and self._reads.are_cheap():
            with self._reads:
                self._read()
            found = self._found(address)
        return found

    def _found(self, address: int) -> str | None:
        """What was made last of all that is there: something else may have stood there before."""
        place = bisect_right(self._rows, (address, sys.maxsize))
        near = [row for row in self._rows[max(0, place - NEAR) : place] if address < row[2]]
        return max(near, key=lambda row: row[1])[3] if near else None

    def _read(self) -> None:
        size = os.fstat(self._opened.fileno()).st_size
        if size != self._bytes:
            self._bytes = size
            rows = parse(io.BytesIO(os.pread(self._opened.fileno(), BYTES_MAX, 0)))
            self._rows = sorted(islice(rows, ROWS_MAX))


def parse(lines: Iterable[bytes]) -> Iterator[tuple[int, int, int, str]]:
    """(begin, number, end, name) of each line that is one: `START SIZE NAME`, numbers in hex."""
    for number, line in enumerate(lines):
        if found := LINE.fullmatch(line.rstrip(b"\n")):
            begin = int(found[1], 16)
            yield begin, number, begin + int(found[2], 16), found[3][:NAME_MAX].decode(errors="replace")


def told(name: str) -> tuple[str, str | None]:
    """What people call it, and where it is written as `FILE:LINE`, if the name has that."""
    found = V8.fullmatch(name)
    return (found["name"] or "(anonymous)", found["source"]) if found else (name, None)


def _find(pid: int, inner: int) -> int:
    """As the program sees it: its number, the /tmp of its container. Follows no link, opens nothing."""
    place = os.open(PROC / str(pid) / "root", os.O_PATH | os.O_CLOEXEC)
    for step in ("tmp", f"perf-{inner}.map"):
        before = place
        try:
            place = os.open(step, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=before)
        finally:
            os.close(before)
    return place
