"""Where a watched program was in user mode, by name: whether that is code that copies, or not known.

The kernel gives process and address. What is mapped there is looked up while the process lives: a file, which
is kept open, and found by its build-id later, too. Its functions are those of .symtab or .dynsym. A libc
without .symtab has no name for the variant of memmove() that it chose for this processor: the slot in its
memory has its address, and the unwind table says where it ends.

Tables of symbols are read when measuring is over: that takes 10 ms and more, for which a program on the same
CPU would wait.
"""

import contextlib
import os
import platform
import re
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Self

from copyscope.errors import RunError
from copyscope.record.session_result import Record
from copyscope.run.elf import DT_NEEDED, DT_SONAME, SHT_DYNSYM, SHT_SYMTAB, ElfFile
from copyscope.run.processes import PROC, Seldom, read_file
from copyscope.taxonomy.user_copies import REPEATED, copies, is_call, is_repeated_move

# A file that anybody may have made, and the memory of a process that may be gone.
UNREADABLE = (OSError, RunError, struct.error, IndexError)

# Of one CPU, what reading the mappings takes at most.
LOOKS_SHARE = 0.001
# Of the processes of a program so many are looked at: workers have the same files.
PROCESSES_MAX = 64
FILES_MAX = 256
LIBC = re.compile(r"libc[.-]|ld-musl-")
GO = (".gopclntab", ".go.buildinfo")
GONE = "its processes had ended before their mappings were read"
GENERATED = "JIT-compiled code without symbols"
STATIC = "static and stripped: without symbols its copies are not known"
NOT_A_CALL = "what is on top of the stack is no return address"
STRIPPED_GO = "Go, stripped: without symbols its copies are not known"


@dataclass(frozen=True)
class Mapping:
    """A stretch of executable memory of a process (proc_pid_maps(5))."""

    begin: int
    end: int
    offset: int
    device: str
    inode: int
    path: str


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
    # (begin, end, name) of all its functions, in order. Read when the first of them calls a copy.
    functions: list[tuple[int, int, str]] | None = None

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
            self.why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)

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

    def copy_at(self, offset: int) -> str | None:
        """The function that copies at this place of the file."""
        assert self.elf is not None
        address = self.elf.address_of(offset)
        place = bisect_right(self.begins, address) - 1 if address is not None else -1
        if address is not None and place >= 0 and address < self.copies[place][0]:
            return self.copies[place][1]
        is_x86 = platform.machine() == "x86_64"
        return REPEATED if is_x86 and is_repeated_move(self.elf.bytes_at(offset, 3)) else None

    def function_at(self, offset: int) -> str:
        """The function at this place of the file; where it has no name, the place, as perf writes it."""
        assert self.elf is not None
        address = self.elf.address_of(offset)
        if address is None:
            return f"{Path(self.name).name}+0x{offset:x}"
        if self.functions is None:
            self.functions = sorted(self._all_functions(self.elf))
        place = bisect_right(self.functions, (address, sys.maxsize, "")) - 1
        begin, end, name = self.functions[place] if place >= 0 else (0, 0, "")
        return name if begin <= address < end else f"{Path(self.name).name}+0x{address:x}"

    @staticmethod
    def _all_functions(elf: ElfFile) -> Iterator[tuple[int, int, str]]:
        for kind in (SHT_SYMTAB, SHT_DYNSYM):
            for one in elf.functions(kind):
                yield one.address, one.address + one.size, one.name.partition("@")[0]


class UserCode:
    """look() while the processes live, then name()."""

    def __init__(self) -> None:
        self._mapped: dict[int, list[Mapping]] = {}
        self._files: dict[tuple[str, int], File] = {}
        self._looks = Seldom(LOOKS_SHARE)

    def files(self) -> Iterable[File]:
        """All that were seen so far, read."""
        for file in self._files.values():
            file.read()
        return self._files.values()

    def look(self, pids: Iterable[int]) -> None:
        """What they have mapped now; so seldom that it costs next to nothing."""
        if not self._looks.are_cheap():
            return
        with self._looks:
            for pid in sorted(pids)[:PROCESSES_MAX]:
                self._look_at(pid)

    def _look_at(self, pid: int) -> None:
        try:
            text = read_file(f"{PROC}/{pid}/maps").decode(errors="surrogateescape")
        except OSError:
            return
        found = [one for line in text.splitlines() if (one := parse_mapping(line)) is not None]
        if found:
            self._mapped[pid] = found
        for one in found:
            key = one.device, one.inode
            if one.inode and key not in self._files and len(self._files) < FILES_MAX:
                self._files[key] = File.of(pid, one)

    def name(self, samples: Iterable[Record]) -> None:
        """To each row in user mode: `code`, its file; `copy`, the function if it copies; `unknown`: why.

        To each that copies: `caller`, who called that function, or why it is not known as `uncalled`.
        """
        for row in samples:
            if "pid" in row:
                row.update(self._found(row["pid"], row["address"]))
                if row["copy"] is not None:
                    row.update(self._caller(row))

    def _caller(self, row: Record) -> Record:
        """By what is on top of the stack: a function that calls none and pushes nothing goes back there."""
        inline = row["copy"] == REPEATED
        address = row["address"] if inline else row["back"]
        mapping, file = self._place(row["pid"], address)
        try:
            if mapping is not None and file is not None and file.elf is not None:
                offset = address - mapping.begin + mapping.offset
                # a call has two to seven bytes, or four
                if inline or is_call(file.elf.bytes_at(offset - 7, 7)):
                    name = file.function_at(offset if inline else offset - 1)
                    return {"caller": name, "caller_file": file.name, "uncalled": None}
        except UNREADABLE as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            return {"caller": None, "caller_file": None, "uncalled": f"cannot be read: {why}"}
        return {"caller": None, "caller_file": None, "uncalled": NOT_A_CALL}

    def _place(self, pid: int, address: int) -> tuple[Mapping | None, File | None]:
        """What is mapped there, and its file, read."""
        mapped = self._mapped.get(pid, ())
        mapping = next((one for one in mapped if one.begin <= address < one.end), None)
        file = None if mapping is None else self._files.get((mapping.device, mapping.inode))
        if file is not None:
            file.read()
        return mapping, file

    def _found(self, pid: int, address: int) -> Record:
        found: Record = {"copy": None, "code": "?", "build_id": None, "unknown": None}
        if pid not in self._mapped:
            self._look_at(pid)
        if pid not in self._mapped:
            return found | {"unknown": GONE}
        mapping, file = self._place(pid, address)
        if mapping is None:
            # Read after code was loaded or thrown away.
            return found | {"unknown": "it was not mapped when the mappings were read"}
        if file is None:
            own = mapping.path.startswith("[v")  # [vdso] reads clocks
            return found | {"code": mapping.path or "memory", "unknown": None if own else GENERATED}
        found |= {"code": file.name, "unknown": file.why}
        if file.elf is not None:
            found["build_id"] = file.elf.build_id
            found["copy"] = file.copy_at(address - mapping.begin + mapping.offset)
        return found | ({"unknown": None} if found["copy"] else {})


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
    if any(elf.section(name) is not None for name in GO):
        return STRIPPED_GO
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
