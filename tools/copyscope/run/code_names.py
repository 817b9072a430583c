# SPDX-License-Identifier: GPL-2.0-only
"""Find function names that an ELF symbol table lacks, in Go's table and in perf maps (/tmp/perf-PID.map)."""

import contextlib
import io
import os
import re
import stat
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Self

from copyscope.base.errors import RunError
from copyscope.run.elf import KEPT_FUNCTION_BYTES, ElfFile, ElfSection, TableBudget, text_at
from copyscope.run.processes import PROC, CpuBudget, read_file

# Go's own table of functions and lines, .gopclntab, which no linker strips: https://go.dev/s/go12symtab,
# runtime/symtab.go and debug/gosym. Its layout changed in Go 1.16, 1.18 and 1.20.

SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
MAGIC_GO_1_16, MAGIC_GO_1_18, MAGIC_GO_1_20 = 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
# Section of the module data, and index of the word with the address of the code (moduledata.text). Since Go
# 1.26, only this word has the address.
MODULE, MODULE_TEXT = ".go.module", 22
BROKEN_TABLE = "Go's table of functions is broken"
# Limit against crafted files: most steps to find a line.
STEPS_MAX = 1 << 18


class GoTable:
    """Go's table of functions. If the table is broken, methods raise RunError, struct.error or IndexError."""

    def __init__(self, elf: ElfFile, section: ElfSection) -> None:
        """Read the header and the addresses of the functions. `section`: section that holds the table."""
        data = self._data = elf.bytes_at(section.offset, section.size)
        self._budget = elf.budget
        magic, self._quantum, pointer = struct.unpack_from("<IxxBB", data)
        if magic not in (MAGIC_GO_1_16, MAGIC_GO_1_18, MAGIC_GO_1_20) or pointer != 8:
            raise RunError(f"Go's table of functions has an unknown layout ({magic:#x})")
        is_old = magic == MAGIC_GO_1_16
        count, _, *table_offsets = struct.unpack_from("<8Q", data, 8)
        table_offsets = table_offsets[not is_old :][:5]
        self._names, self._units, self._paths, self._values, self._functions = table_offsets
        # Layouts of a row (start of a function, offset of its description), and of a description.
        pair, self._description_layout = ("<QQ", "<Qi7I") if is_old else ("<II", "<Ii7I")
        size = struct.calcsize(pair)
        if max(table_offsets) > len(data):
            raise RunError(BROKEN_TABLE)
        # Start address of Go's code. The code before this address is C.
        self._text = 0 if is_old else _find_text_begin(elf, section)
        code = elf.section(".text")
        self.has_other_code = not is_old and code is not None and self._text != code.address
        # Views of the table: lists of numbers would take ten times its memory. The last start is an end.
        content = memoryview(data)[self._functions :][: count * size + size // 2]
        if len(content) != count * size + size // 2:
            raise RunError(BROKEN_TABLE)
        pairs = content.cast("Q" if is_old else "I")
        self._begins, self._description_offsets = pairs[::2], pairs[1::2]
        self._budget.spend(kept_bytes=len(data))

    @classmethod
    def of(cls, elf: ElfFile) -> Self | None:
        """Return the table of a Go program, or None if the program is not written in Go."""
        section = next((candidate for name in SECTIONS if (candidate := elf.section(name)) is not None), None)
        return None if section is None else cls(elf, section)

    def functions(self) -> Iterator[tuple[int, int, str]]:
        """Yield (start address, end address, name) of each function."""
        self._budget.spend(rows=len(self._description_offsets))
        for index in range(len(self._description_offsets)):
            begin, end = self._begins[index], self._begins[index + 1]
            name = text_at(self._data, self._names + self._describe(index)[1])
            yield self._text + begin, self._text + end, name

    def line_at(self, address: int) -> str | None:
        """Return `FILE:LINE` of an instruction. For inlined code, this is a line of the inlined function."""
        offset = address - self._text
        index = bisect_right(self._begins, offset) - 1
        if not 0 <= index < len(self._description_offsets):
            return None
        begin, _, _, _, _, files, lines, _, unit = self._describe(index)
        file, line = (self._value(table, begin, offset) for table in (files, lines))
        if file < 0 or line < 0:
            return None
        path = struct.unpack_from("<I", self._data, self._units + 4 * (unit + file))[0]
        return f"{text_at(self._data, self._paths + path)}:{line}"

    def _describe(self, index: int) -> tuple[int, ...]:
        """Return the nine fields of a function's entry (`_func` in Go's runtime2.go).

        The fields are entry, name, args, deferreturn, pcsp, pcfile, pcln, npcdata and cuOffset.
        """
        offset = self._description_offsets[index]
        if offset > len(self._data):
            raise RunError(BROKEN_TABLE)
        return struct.unpack_from(self._description_layout, self._data, self._functions + offset)

    def _value(self, table: int, begin: int, target: int) -> int:
        """Return the value for an address in a table of pairs: (value increment, address increment).

        `table`: offset of the table. `begin`: address of the first pair. `target`: address to find.
        """
        position, value, address = self._values + table, -1, begin
        for step in range(STEPS_MAX):
            change, position = self._number(position)
            if not change and step:
                return -1
            value += ~(change >> 1) if change & 1 else change >> 1
            length, position = self._number(position)
            address += length * self._quantum
            if target < address:
                return value
        raise RunError(BROKEN_TABLE)

    def _number(self, position: int) -> tuple[int, int]:
        """Return the 32-bit varint at a position, and the position after the varint."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise RunError(BROKEN_TABLE)


def _find_text_begin(elf: ElfFile, section: ElfSection) -> int:
    """Return the start address of Go's code, from the table, the module data or the section .text."""
    module, code = elf.section(MODULE), elf.section(".text")
    begin = elf.word_at(section.address + 24)
    if not begin and module is not None:
        begin = elf.word_at(module.address + 8 * MODULE_TEXT)
    if code is None or not 0 <= (begin or code.address) - code.address < code.size:
        raise RunError(f"{BROKEN_TABLE}: the start of the code is unknown")
    return begin or code.address


# Names of generated code come from /tmp/perf-PID.map. Node writes this file with --perf-basic-prof, Java by
# `jcmd PID Compiler.perfmap`, Python with -X perf. The watched user can write the file, so the file is not
# trusted: its size is limited, and it must belong to that user or to root.

# Largest size of a map that is read, and share of one CPU that reading a growing map may use.
MAP_BYTES_MAX, READ_CPU_SHARE = 64 << 20, 0.1
LINE_BYTES_MAX, NAME_BYTES_MAX = 4096, 512
# Number of rows before an address that are searched for ranges with this address: runtimes reuse addresses.
ROWS_BEFORE_MAX = 16
# Pattern of a line of a map: start, size and name.
LINE = re.compile(rb"(?:0x)?([0-9a-f]{1,16}) (?:0x)?([0-9a-f]{1,16}) (.+)")
# Pattern of a name of V8: `JS:*serve /srv/app.js:12:5`, with its kind and degree of optimisation at the
# start.
V8_NAME = re.compile(r"[A-Za-z]+:[~^+*]*(?P<name>.*?) (?P<source>\S+:\d+):\d+")
# Start of a name that Java uses for many functions, of which some copy.
STUBS = "StubRoutines"


class PerfMap:
    """Perf map of generated code, opened while the process lives, but read only if a sample needs it."""

    def __init__(self, opened: FileIO, budget: TableBudget) -> None:
        self._opened, self._budget, self._bytes = opened, budget, 0
        self._reads = CpuBudget(READ_CPU_SHARE)
        # (start address, line number in the file, end address, name) of each function, sorted
        self._rows: list[tuple[int, int, int, str]] = []
        # True if the map does not fit into the budget.
        self.is_too_large = False

    @classmethod
    def of(cls, pid: int, budget: TableBudget) -> Self | None:
        """Open the map of a process. Return None if there is no map, or if it belongs to another user.

        `budget`: limits on what the run reads from such files.
        """
        with contextlib.suppress(OSError, ValueError, KeyError):
            lines = read_file(f"{PROC}/{pid}/status").splitlines()
            status = {name: words for name, *words in map(bytes.split, filter(None, lines))}
            descriptor = _open_map(pid, int(status[b"NSpid:"][-1]))
            try:
                file_status, owners = os.fstat(descriptor), {0, *map(int, status[b"Uid:"])}
                if stat.S_ISREG(file_status.st_mode) and file_status.st_uid in owners:
                    return cls(FileIO(f"{PROC}/self/fd/{descriptor}", "rb"), budget)
            finally:
                os.close(descriptor)
        return None

    def name_at(self, address: int) -> str | None:
        """Return the runtime's name for code at an address. Read the map again if the name is missing."""
        name = self._latest_name(address)
        if name is None and self._reads.allows_use():
            with self._reads:
                self._read()
            name = self._latest_name(address)
        return name

    def _latest_name(self, address: int) -> str | None:
        """Return the name in the last row for an address, because the runtime may have reused the memory."""
        index = bisect_right(self._rows, (address, sys.maxsize))
        covering = [row for row in self._rows[max(0, index - ROWS_BEFORE_MAX) : index] if address < row[2]]
        return max(covering, key=lambda row: row[1])[3] if covering else None

    def _read(self) -> None:
        """Read the map again if its size has changed. A map that exceeds the run's limits gets no rows."""
        size = os.fstat(self._opened.fileno()).st_size
        if size == self._bytes:
            return
        self._budget.spend(rows=-len(self._rows), kept_bytes=-sum(map(_kept_bytes, self._rows)))
        self._bytes, self._rows, self.is_too_large = size, [], False
        try:
            for row in parse(self._lines()):
                self._budget.spend(rows=1, kept_bytes=_kept_bytes(row))
                self._rows.append(row)
        except RunError:
            self.is_too_large = True
        self._rows.sort()

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines of the map, up to its size limit. An overlong line is split into several."""
        self._opened.seek(0)
        stream = io.BufferedReader(self._opened)
        try:
            left = MAP_BYTES_MAX
            while left > 0 and (line := stream.readline(LINE_BYTES_MAX)):
                left -= len(line)
                yield line
        finally:
            stream.detach()


def _kept_bytes(row: tuple[int, int, int, str]) -> int:
    """Return the approximate memory in bytes that a row of a map takes."""
    return KEPT_FUNCTION_BYTES + len(row[3])


def parse(lines: Iterable[bytes]) -> Iterator[tuple[int, int, int, str]]:
    """Yield (start address, line number, end address, name) of each valid line `START SIZE NAME` (hex)."""
    for number, line in enumerate(lines):
        if match := LINE.fullmatch(line.rstrip(b"\n")):
            begin = int(match[1], 16)
            yield begin, number, begin + int(match[2], 16), match[3][:NAME_BYTES_MAX].decode(errors="replace")


def split_name(name: str) -> tuple[str, str | None]:
    """Split V8's text for a function into the function's name and its source, `FILE:LINE` or None."""
    match = V8_NAME.fullmatch(name)
    return (match["name"] or "(anonymous)", match["source"]) if match else (name, None)


def _open_map(pid: int, inner: int) -> int:
    """Return a descriptor (O_PATH) of the map in the /tmp of the process's container. Follows no links.

    `inner`: pid of the process inside its container.
    """
    descriptor = os.open(PROC / str(pid) / "root", os.O_PATH | os.O_CLOEXEC)
    for step in ("tmp", f"perf-{inner}.map"):
        parent = descriptor
        try:
            descriptor = os.open(step, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor
