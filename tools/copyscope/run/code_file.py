# SPDX-License-Identifier: GPL-2.0-only
"""Read a file with code of a watched process: function names, and which functions copy or encrypt.

Functions are read from .symtab, .dynsym, or Go's own table. A libc without .symtab does not name the
memmove() variant that it chose for this processor. Such a variant's address is read from an IFUNC slot in
memory, and the end of the function from the unwind table.
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
from pathlib import Path
from typing import Self

from copyscope.base.errors import RunError
from copyscope.base.programs import run_program
from copyscope.machine.topology.namespace import WorkloadUser
from copyscope.run.code_names import GoTable
from copyscope.run.elf import (
    KEPT_FUNCTION_BYTES,
    SHT_DYNSYM,
    SHT_SYMTAB,
    TOO_LARGE,
    ElfFile,
    Symbol,
    TableBudget,
    limited,
)
from copyscope.run.processes import PROC
from copyscope.taxonomy import user_code
from copyscope.taxonomy.user_code import REPEATED, copies, is_framed, is_repeated_move

# Exceptions of reading a file that may be crafted, or the memory of a process that may be gone.
UNREADABLE = (OSError, RunError, struct.error, IndexError)

# Maximum number of copying functions of a file, and of bytes of a function that are searched for ciphers.
COPIES_MAX, CODE_BYTES_MAX = 4096, 1 << 18

# Start of the file name of a libc.
LIBC = re.compile(r"libc[.-]|ld-musl-")
GO_SECTIONS = (".gopclntab", ".go.buildinfo")
STATIC_STRIPPED = "static and stripped: without symbols, the copies of the program are unknown"
GO_AND_C_STRIPPED = "Go and C, static and stripped: without symbols, the copies of the C code are unknown"


@dataclass(frozen=True)
class Mapping:
    """Range of executable memory in a process, from a line of /proc/PID/maps (proc_pid_maps(5))."""

    begin: int
    end: int
    offset: int
    device: str
    inode: int
    path: str

    @property
    def key(self) -> tuple[str, int]:
        """Device and inode of the mapped file."""
        return self.device, self.inode

    @property
    def is_generated(self) -> bool:
        """True for code that was generated at run time. .NET puts such code into files without a name."""
        return self.path.startswith("/memfd:") or (not self.inode and not self.path.startswith("[v"))


@dataclass
class File:
    """File with code that a process has mapped. Its copying functions are read when needed.

    name: path of the file. pid, mapping: a process that has mapped the file, and the mapping
    budget: limits on what the run reads from such files
    why: reason why the copying functions are unknown, or None
    begins: start address of each copying function, sorted
    copies: end address and name of each copying function, in the same order
    """

    name: str
    pid: int
    mapping: Mapping
    budget: TableBudget
    handle: FileIO | None = None
    elf: ElfFile | None = None
    why: str | None = None
    is_read: bool = False
    # Why the functions cannot be named. They are read only once, because other files need the budget, too.
    nameless: Exception | None = None
    # Resolved IFUNC slots of the process: pairs of (resolver, address of the chosen function).
    resolved: list[tuple[int, int]] | None = None
    begins: list[int] = field(default_factory=list)
    copies: list[tuple[int, str]] = field(default_factory=list)
    # Cipher that the instructions of a function show, by start and end of the function.
    cipher_by_extent: dict[tuple[int, int], str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, pid: int, mapping: Mapping, budget: TableBudget) -> Self:
        """Open a mapped file, even inside a container, and even if the path now names another file."""
        file = cls(mapping.path.removesuffix(" (deleted)"), pid, mapping, budget)
        link = PROC / str(pid) / "map_files" / f"{mapping.begin:x}-{mapping.end:x}"
        try:
            file.handle = link.open("rb", buffering=0)
        except OSError as error:
            file.why, file.is_read = f"cannot be read: {error.strerror}", True
        if not file.is_read and LIBC.match(Path(file.name).name):
            # Read the slots while the process lives. After an error, read() fails again and notes the reason.
            with contextlib.suppress(*UNREADABLE):
                file.resolved_slots()
        return file

    def read(self) -> None:
        """Find the copying functions of the file, unless they are known already."""
        if self.is_read:
            return
        self.is_read = True
        try:
            self.why = find_copies(self)
        except UNREADABLE as error:
            self.why = why_unreadable(error)

    def header(self) -> ElfFile:
        """Return the parsed ELF file."""
        if self.elf is None:
            assert self.handle is not None  # otherwise is_read is set
            descriptor = self.handle.fileno()
            # pread() allocates all bytes that it is asked for, so the count is cut at the end of the file.
            size = os.fstat(descriptor).st_size
            self.elf = ElfFile(
                lambda at, count: os.pread(descriptor, max(0, min(count, size - at)), at), self.budget
            )
        return self.elf

    def resolved_slots(self) -> list[tuple[int, int]]:
        """Return the resolved IFUNC slots, which are read from the process's memory only once."""
        if self.resolved is None:
            self.resolved = list(read_resolved_slots(self.header(), self.pid, self.mapping))
        return self.resolved

    def set_copies(self, functions: Iterable[tuple[int, int, str]]) -> None:
        """Store the copying functions. `functions`: (start address, end address, name) of each.

        Raises RunError if there are implausibly many functions.
        """
        rows = sorted(set(limited(functions, COPIES_MAX)))
        self.begins = [begin for begin, _, _ in rows]
        self.copies = [(end, name) for _, end, name in rows]

    def copy_at(self, offset: int) -> tuple[str | None, bool]:
        """Return the copying function at a file offset (or None), and True if it has pushed a frame."""
        elf = self.header()
        address = elf.address_of(offset)
        index = bisect_right(self.begins, address) - 1 if address is not None else -1
        if address is not None and index >= 0 and address < self.copies[index][0]:
            begin = elf.offset_of(self.begins[index])
            return self.copies[index][1], begin is not None and is_framed(elf.bytes_at(begin, 8))
        is_x86 = platform.machine() == "x86_64"
        return (REPEATED if is_x86 and is_repeated_move(elf.bytes_at(offset, 3)) else None), False

    def cipher_at(self, offset: int) -> str | None:
        """Return the name of the encrypting function at a file offset, else its cipher, or None."""
        elf = self.header()
        address = elf.address_of(offset)
        if address is None:
            return None
        function = self._function_around(address)
        name = None if function is None else function[2]
        # Go's hash function for maps contains many of the instructions of a cipher.
        if name is not None and (user_code.encrypts(name) or self.language == "Go"):
            return name if user_code.encrypts(name) else None
        extent = elf.function_around(address) if function is None else function[:2]
        if extent is None:
            return None
        if extent not in self.cipher_by_extent:
            code = elf.bytes_at(offset - (address - extent[0]), min(extent[1] - extent[0], CODE_BYTES_MAX))
            is_x86 = platform.machine() == "x86_64"
            self.cipher_by_extent[extent] = user_code.recognise_cipher(
                code, name, Path(self.name).name, x86=is_x86
            )
        return self.cipher_by_extent[extent]

    def name_at(self, offset: int) -> str | None:
        """Return the name of the function at a file offset, or None."""
        address = self.header().address_of(offset)
        function = None if address is None else self._function_around(address)
        return None if function is None else function[2]

    def function_at(self, address: int) -> str:
        """Return the name of the function at an address, or FILE+0xADDRESS as perf writes it."""
        function = self._function_around(address)
        return f"{Path(self.name).name}+0x{address:x}" if function is None else function[2]

    def _function_around(self, address: int) -> tuple[int, int, str] | None:
        if self.nameless is not None:
            raise self.nameless
        try:
            functions = self._functions
        except UNREADABLE as error:
            self.nameless = error
            raise
        index = bisect_right(functions, (address, sys.maxsize, "")) - 1
        function = functions[index] if index >= 0 else (0, 0, "")
        return function if function[0] <= address < function[1] else None

    @cached_property
    def _functions(self) -> list[tuple[int, int, str]]:
        """All functions as sorted (start address, end address, name), for naming the callers of copies."""
        functions = self._kept(
            (symbol.address, symbol.address + symbol.size, symbol.name.partition("@")[0])
            for kind in (SHT_SYMTAB, SHT_DYNSYM)
            for symbol in self.header().functions(kind)
        )
        with contextlib.suppress(*UNREADABLE):
            if self.go is not None:
                functions += self._kept(self.go.functions())
        return sorted(functions)

    def _kept(self, functions: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """Return functions as a list, charging its memory to the budget.

        Raises RunError at the limit, and then gives the memory back.
        """
        kept, kept_bytes = [], 0
        try:
            for function in functions:
                function_bytes = KEPT_FUNCTION_BYTES + len(function[2])
                self.budget.spend(kept_bytes=function_bytes)
                kept_bytes += function_bytes
                kept.append(function)
        except UNREADABLE:
            self.budget.spend(kept_bytes=-kept_bytes)
            raise
        return kept

    @property
    def language(self) -> str | None:
        """Programming language, if the file shows it, else None."""
        is_go = self.elf is not None and any(map(self.elf.section, GO_SECTIONS))
        return "Go" if is_go else None

    @cached_property
    def go(self) -> GoTable | None:
        """Go's table of functions, or None. Raises an exception of UNREADABLE for a broken table."""
        return GoTable.of(self.header())

    def find_lines(
        self, addresses: Sequence[int], limit_s: float
    ) -> dict[int, tuple[str | None, str | None]]:
        """Map addresses to (function name, `FILE:LINE`) of the source. Unknown parts are None.

        `limit_s`: time limit in seconds.
        """
        with contextlib.suppress(*UNREADABLE):
            if self.go is not None:
                return {address: (None, self.go.line_at(address)) for address in addresses}
            if self.handle is not None and limit_s > 0:
                return find_lines(self.handle, addresses, limit_s)
        return {}


def why_unreadable(error: Exception) -> str:
    """Describe an exception of a type in UNREADABLE."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error) if isinstance(error, RunError) else "the tables of symbols are broken"


def parse_mapping(line: str) -> Mapping | None:
    """Parse a line of /proc/PID/maps. Return None for memory that is not executable."""
    extent, permissions, offset, device, inode, *path = line.split(maxsplit=5)
    if "x" not in permissions:
        return None
    begin, end = (int(word, 16) for word in extent.split("-"))
    return Mapping(begin, end, int(offset, 16), device, int(inode), path[0] if path else "")


def find_copies(file: File) -> str | None:
    """Find and store a file's copying functions. Return the reason if they are unknown, else None."""
    elf = file.header()
    symbols, has_symbols = read_copying_symbols(elf, SHT_SYMTAB)
    exported, _ = read_copying_symbols(elf, SHT_DYNSYM)
    functions = [
        (symbol.address, symbol.address + symbol.size, symbol.name)
        for symbol in (*symbols, *exported)
        if symbol.size and not symbol.is_ifunc
    ]
    file.set_copies(functions)
    if has_symbols:
        return None
    if file.go is not None:
        file.set_copies(
            [*functions, *limited((row for row in file.go.functions() if copies(row[2])), COPIES_MAX)]
        )
        return GO_AND_C_STRIPPED if file.go.has_other_code and not elf.is_dynamic else None
    resolver_names = {symbol.address: symbol.name for symbol in exported if symbol.is_ifunc}
    if resolver_names:
        variants = [
            (*extent, resolver_names[resolver])
            for resolver, address in file.resolved_slots()
            if resolver in resolver_names and (extent := elf.function_around(address)) is not None
        ]
        file.set_copies([*functions, *variants])
        return None if variants else "stripped, and the chosen variant of memmove() was not found"
    # A program that uses shared libraries calls memcpy() of libc. Only a static program has its own memcpy().
    return None if elf.is_dynamic else STATIC_STRIPPED


def read_copying_symbols(elf: ElfFile, kind: int) -> tuple[list[Symbol], bool]:
    """Return the copying functions in a symbol table, and True if the table has any function at all."""
    found: list[Symbol] = []
    has_functions = False
    for symbol in elf.functions(kind):
        has_functions = True
        if copies(symbol.name):
            found.append(symbol)
        if len(found) > COPIES_MAX:
            raise RunError(TOO_LARGE)
    return found, has_functions


def read_resolved_slots(elf: ElfFile, pid: int, mapping: Mapping) -> Iterator[tuple[int, int]]:
    """Yield the resolved IFUNC slots of a process: pairs (resolver, address of the chosen function).

    `mapping`: where the process has mapped the file.
    """
    address = elf.address_of(mapping.offset)
    if address is None:
        return
    load_bias = mapping.begin - address
    memory = os.open(PROC / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for resolver, slot in elf.resolved_slots():
            if not 0 <= slot + load_bias < 1 << 63:
                raise RunError("a broken ELF file: a slot is outside the memory of a process")
            yield resolver, struct.unpack("<Q", os.pread(memory, 8, slot + load_bias))[0] - load_bias
    finally:
        os.close(memory)


# Source lines of addresses come from addr2line of binutils, if there is debug information. The file may be
# crafted and its debug information is large, so an unprivileged process reads the file, with limits of time
# and memory.

# Maximum memory in bytes that addr2line may use.
MEMORY_MAX_BYTES = 1 << 31
UNPRIVILEGED_USER = WorkloadUser(65534, 65534, has_passwd_entry=False)
UNKNOWN_NAME = "??"
# Pattern of a line of addr2line, such as `main.c:12 (discriminator 3)`.
SOURCE_LINE = re.compile(r"(?P<source>.+:[1-9]\d*)(?: \(discriminator \d+\))?")


def find_lines(
    file: FileIO, addresses: Sequence[int], limit_s: float
) -> dict[int, tuple[str | None, str | None]]:
    """Map addresses to (function, `FILE:LINE`), as far as addr2line knows them.

    Inlined code is reported under the function that contains it. `limit_s`: time limit in seconds.
    """
    addr2line = ("prlimit", f"--as={MEMORY_MAX_BYTES}", "addr2line", "-aCfi", "-e", "/proc/self/fd/0")
    try:
        answer = run_program(
            (*UNPRIVILEGED_USER.argv(), *addr2line, *map(hex, addresses)),
            stdin_descriptor=file.fileno(),
            limit_s=limit_s,
        )
    except (OSError, RunError):  # without addr2line, the caller keeps its symbol name
        return {}
    return dict(parse(answer.text))


def parse(text: str) -> Iterator[tuple[int, tuple[str | None, str | None]]]:
    """Yield the address and (function, `FILE:LINE`) of each block in the output of addr2line.

    A block has two lines per function, from the innermost inlined function out to the one that is not
    inlined.
    """
    for block in re.split(r"^(?=0x[0-9a-f]+$)", text, flags=re.MULTILINE)[1:]:
        address, *lines = block.splitlines()
        if len(lines) >= 2:
            name, match = lines[-2], SOURCE_LINE.fullmatch(lines[-1])
            source = None if match is None or match["source"].startswith(UNKNOWN_NAME) else match["source"]
            # Without a source line, the name is that of the nearest symbol, which may end before the address.
            is_known = source is not None and name != UNKNOWN_NAME
            yield int(address, 16), (name if is_known else None, source)
