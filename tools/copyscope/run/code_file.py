"""A file whose code a watched program runs: which of its functions copy, and what the others are called.

Its functions are those of .symtab, .dynsym, or Go's own table. A libc without .symtab has no name for the
variant of memmove() that it chose for this processor: the slot in its memory has its address, and the unwind
table says where it ends.
"""

import contextlib
import os
import platform
import re
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Self

from copyscope.errors import RunError
from copyscope.run import source_lines
from copyscope.run.elf import DT_NEEDED, DT_SONAME, SHT_DYNSYM, SHT_SYMTAB, ElfFile
from copyscope.run.go_table import GoTable
from copyscope.run.processes import PROC
from copyscope.taxonomy import ciphers
from copyscope.taxonomy.user_copies import REPEATED, copies, is_framed, is_repeated_move

# A file that anybody may have made, and the memory of a process that may be gone.
UNREADABLE = (OSError, RunError, struct.error, IndexError)

# Of a file so many functions have their names, and of one so many bytes are looked at.
FUNCTIONS_MAX, CODE_MAX = 1 << 21, 1 << 18

LIBC = re.compile(r"libc[.-]|ld-musl-")
GO = (".gopclntab", ".go.buildinfo")
STATIC = "static and stripped: without symbols its copies are not known"
GO_AND_C = "Go and C, static and stripped: without symbols the copies of C are not known"


@dataclass(frozen=True)
class Mapping:
    """A stretch of executable memory of a process (proc_pid_maps(5))."""

    begin: int
    end: int
    offset: int
    device: str
    inode: int
    path: str

    @property
    def key(self) -> tuple[str, int]:
        """Of its file."""
        return self.device, self.inode

    @property
    def is_made(self) -> bool:
        """Whether the program has made the code there as it ran; .NET does so in files without a name."""
        return self.path.startswith("/memfd:") or (not self.inode and not self.path.startswith("[v"))


@dataclass
class File:
    """A file that holds code: where copies are, or why that is not known. Read when it is sampled."""

    name: str
    pid: int
    mapping: Mapping
    opened: FileIO | None = None
    elf: ElfFile | None = None
    why: str | None = None
    is_read: bool = False
    # (the function that chooses, the address that it chose) for each slot in the memory of the process.
    chosen: list[tuple[int, int]] | None = None
    begins: list[int] = field(default_factory=list)
    copies: list[tuple[int, str]] = field(default_factory=list)  # end, name
    # Of functions that no name says it of, by where they are: what they encrypt with.
    by_code: dict[tuple[int, int], str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, pid: int, mapping: Mapping) -> Self:
        """What a process has mapped, also in a container, also a file that was replaced. Kept open."""
        made = cls(mapping.path.removesuffix(" (deleted)"), pid, mapping)
        link = PROC / str(pid) / "map_files" / f"{mapping.begin:x}-{mapping.end:x}"
        try:
            made.opened = link.open("rb", buffering=0)
        except OSError as error:
            made.why, made.is_read = f"cannot be read: {error.strerror}", True
        if not made.is_read and LIBC.match(Path(made.name).name):
            # While the process lives. What goes wrong goes wrong in read() again, which says so.
            with contextlib.suppress(*UNREADABLE):
                made.choices()
        return made

    def read(self) -> None:
        """Its functions, once."""
        if self.is_read:
            return
        self.is_read = True
        try:
            self.why = find_copies(self)
        except UNREADABLE as error:
            self.why = why_unreadable(error)

    def header(self) -> ElfFile:
        """Its header and the places of its tables."""
        if self.elf is None:
            assert self.opened is not None  # else it is read already
            descriptor = self.opened.fileno()
            self.elf = ElfFile(lambda at, count: os.pread(descriptor, count, at))
        return self.elf

    def choices(self) -> list[tuple[int, int]]:
        """`chosen`, read from the memory of the process once."""
        if self.chosen is None:
            self.chosen = list(read_choices(self.header(), self.pid, self.mapping))
        return self.chosen

    def add(self, found: Iterable[tuple[int, int, str]]) -> None:
        """(begin, end, name) of functions that copy."""
        rows = sorted(dict.fromkeys(found))
        self.begins = [begin for begin, _, _ in rows]
        self.copies = [(end, name) for _, end, name in rows]

    def copy_at(self, offset: int) -> tuple[str | None, bool]:
        """The function that copies at this place of the file, and whether it has put a frame on the stack."""
        elf = self.header()
        address = elf.address_of(offset)
        place = bisect_right(self.begins, address) - 1 if address is not None else -1
        if address is not None and place >= 0 and address < self.copies[place][0]:
            begin = elf.offset_of(self.begins[place])
            return self.copies[place][1], begin is not None and is_framed(elf.bytes_at(begin, 8))
        is_x86 = platform.machine() == "x86_64"
        return (REPEATED if is_x86 and is_repeated_move(elf.bytes_at(offset, 3)) else None), False

    def cipher_at(self, offset: int) -> str | None:
        """The function that encrypts at this place of the file; of one without a name what it can be."""
        elf = self.header()
        address = elf.address_of(offset)
        if address is None:
            return None
        known = self._known_at(address)
        name = None if known is None else known[2]
        # Go's hash of a table has many of the instructions of a cipher.
        if name is not None and (ciphers.encrypts(name) or self.made_with == "Go"):
            return name if ciphers.encrypts(name) else None
        around = elf.function_around(address) if known is None else known[:2]
        if around is None:
            return None
        if around not in self.by_code:
            code = elf.bytes_at(offset - (address - around[0]), min(around[1] - around[0], CODE_MAX))
            is_x86 = platform.machine() == "x86_64"
            self.by_code[around] = ciphers.of_code(code, name, Path(self.name).name, x86=is_x86)
        return self.by_code[around]

    def function_at(self, address: int) -> str:
        """The function there; where it has no name, the place, as perf writes it."""
        known = self._known_at(address)
        return f"{Path(self.name).name}+0x{address:x}" if known is None else known[2]

    def _known_at(self, address: int) -> tuple[int, int, str] | None:
        place = bisect_right(self._functions, (address, sys.maxsize, "")) - 1
        known = self._functions[place] if place >= 0 else (0, 0, "")
        return known if known[0] <= address < known[1] else None

    @cached_property
    def _functions(self) -> list[tuple[int, int, str]]:
        """(begin, end, name) of all, in order. Read when the first of them calls a copy."""
        symbols = (one for kind in (SHT_SYMTAB, SHT_DYNSYM) for one in self.header().functions(kind))
        found = [
            (one.address, one.address + one.size, one.name.partition("@")[0])
            for one in islice(symbols, FUNCTIONS_MAX)
        ]
        with contextlib.suppress(*UNREADABLE):
            if self.go is not None:
                found += self.go.functions()
        return sorted(found)

    @property
    def made_with(self) -> str | None:
        """The language, where the file says so."""
        is_go = self.elf is not None and any(map(self.elf.section, GO))
        return "Go" if is_go else None

    @cached_property
    def go(self) -> GoTable | None:
        """Go's own table. Raises what is UNREADABLE where that is broken."""
        return GoTable.of(self.header())

    def lines(self, addresses: Sequence[int], limit_s: float) -> dict[int, tuple[str | None, str | None]]:
        """Of each address its function, as the language writes it, and `FILE:LINE`: None is not known."""
        with contextlib.suppress(*UNREADABLE):
            if self.go is not None:
                return {address: (None, self.go.line_at(address)) for address in addresses}
            if self.opened is not None and limit_s > 0:
                return source_lines.find(self.opened, addresses, limit_s)
        return {}


def why_unreadable(error: Exception) -> str:
    """For people."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error) if isinstance(error, RunError) else "its tables of symbols are broken"


def parse_mapping(line: str) -> Mapping | None:
    """One line of /proc/PID/maps; None for memory without code."""
    where, rights, offset, device, inode, *path = line.split(maxsplit=5)
    if "x" not in rights:
        return None
    begin, end = (int(word, 16) for word in where.split("-"))
    return Mapping(begin, end, int(offset, 16), device, int(inode), path[0] if path else "")


def find_copies(made: File) -> str | None:
    """Fill in where its copies are; why that is not known, if so."""
    elf = made.header()
    found = [
        (symbol.address, symbol.address + symbol.size, symbol.name)
        for kind in (SHT_SYMTAB, SHT_DYNSYM)
        for symbol in elf.functions(kind)
        if symbol.size and not symbol.is_chosen and copies(symbol.name)
    ]
    made.add(found)
    if any(True for _ in elf.functions(SHT_SYMTAB)):
        return None
    if made.go is not None:
        made.add([*found, *(row for row in made.go.functions() if copies(row[2]))])
        return GO_AND_C if made.go.has_other_code and not elf.dynamic & {DT_NEEDED} else None
    chosen = {
        one.address: one.name for one in elf.functions(SHT_DYNSYM) if one.is_chosen and copies(one.name)
    }
    if chosen:
        variants = [
            (*around, chosen[chooser])
            for chooser, address in made.choices()
            if chooser in chosen and (around := elf.function_around(address)) is not None
        ]
        made.add([*found, *variants])
        return None if variants else "stripped, and which variant of memmove() it chose was not found"
    # What is linked to others has its memcpy() from libc, and what is made for others is no program.
    return None if elf.dynamic & {DT_NEEDED, DT_SONAME} else STATIC


def read_choices(elf: ElfFile, pid: int, mapping: Mapping) -> Iterator[tuple[int, int]]:
    """(the function that chooses, the address of the function that it chose) of each slot of a process."""
    at = elf.address_of(mapping.offset)
    if at is None:
        return
    moved = mapping.begin - at
    memory = os.open(PROC / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for chooser, slot in elf.chosen():
            yield chooser, struct.unpack("<Q", os.pread(memory, 8, slot + moved))[0] - moved
    finally:
        os.close(memory)
