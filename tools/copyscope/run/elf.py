# SPDX-License-Identifier: GPL-2.0-only
"""Parse 64-bit little-endian ELF files (elf(5)) to find names and addresses of functions.

pyelftools is not used because it creates an object per symbol, which takes seconds for the 100,000 symbols
of a large program.
"""

import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

from copyscope.base.errors import RunError

SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_DYNSYM, SHT_NOBITS = 2, 4, 7, 11, 8
SHF_EXECINSTR = 4
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_SONAME = 1, 14
STT_FUNC, STT_GNU_IFUNC = 2, 10
# Type of the relocation of an IFUNC slot, by e_machine: the dynamic linker calls the resolver at the addend,
# and writes the returned address into the slot.
IRELATIVE = {62: 37, 183: 1032}
# Type of the relocation of an address that moves with the file, by e_machine: the dynamic linker writes the
# moved addend.
RELATIVE = {62: 8, 183: 1027}
NT_GNU_BUILD_ID = 3
DATAREL_SDATA4, SDATA4 = 0x3B, 0x0B
# Sizes of a program header and of a section header in 64-bit files, and most program headers that the kernel
# loads (load_elf_phdrs() in fs/binfmt_elf.c).
PROGRAM_HEADER_BYTES, SECTION_HEADER_BYTES, PROGRAM_HEADERS_MAX = 56, 64, 65536 // 56
# Limits against crafted files: bytes of a read, tables of relocations, IFUNC slots, notes, bytes of a
# build-id, bytes of a name (cut).
READ_MAX_BYTES, RELOCATION_TABLES_MAX, SLOTS_MAX, NOTES_MAX = 64 << 20, 8, 4096, 64
BUILD_ID_MAX_BYTES, NAME_MAX_BYTES = 64, 512
# Number of rows of a table that are read at once.
CHUNK_ROWS = 4096
# Limits of a run for all files of watched programs together: rows of tables, bytes that are read, bytes of
# memory that are kept, and seconds of CPU time. A program with 300,000 functions stays below these limits.
ROWS_MAX, READ_BYTES_MAX, KEPT_BYTES_MAX, CPU_MAX_S = 1 << 22, 256 << 20, 80 << 20, 10.0
# Size of reads that the budget leaves out: the instructions at a sample, of which a long run has many.
FREE_READ_BYTES = 64
# Bytes of memory that a kept function takes besides its name: a tuple, three numbers, the head of a string.
KEPT_FUNCTION_BYTES = 240
TOO_LARGE = "its tables are too large"
Row = TypeVar("Row")


@dataclass(frozen=True)
class ElfSection:
    """Section of an ELF file. `kind`: sh_type. `link`: sh_link, the index of a related section."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Symbol:
    """Function in a symbol table. `section`: index of its section."""

    name: str
    address: int
    size: int
    section: int
    is_ifunc: bool  # True if the address is that of a resolver, which chooses the function


class TableBudget:
    """Limits on what a run reads from files of watched programs, which may be crafted to do harm."""

    def __init__(self) -> None:
        self._rows, self._read_bytes, self._kept_bytes = ROWS_MAX, READ_BYTES_MAX, KEPT_BYTES_MAX
        self._cpu_s = CPU_MAX_S

    def spend(self, *, rows: int = 0, read_bytes: int = 0, kept_bytes: int = 0) -> None:
        """Charge data that is about to be read or kept. Raises RunError, and charges nothing, above a limit.

        Negative numbers give back memory that was freed.
        """
        if rows > self._rows or read_bytes > self._read_bytes or kept_bytes > self._kept_bytes:
            raise RunError(TOO_LARGE)
        self._rows -= rows
        self._read_bytes -= read_bytes
        self._kept_bytes -= kept_bytes

    def spend_time(self, began_s: float) -> None:
        """Charge this thread's CPU time since `began_s`, a value of time.thread_time().

        Raises RunError at the limit.
        """
        self._cpu_s -= time.thread_time() - began_s
        if self._cpu_s <= 0:
            raise RunError(TOO_LARGE)


class ElfFile:
    """ELF file that is read in pieces of at most READ_MAX_BYTES.

    Addresses are those in the file, before loading.
    """

    def __init__(self, read: Callable[[int, int], bytes], budget: TableBudget | None = None) -> None:
        """Read the header. Raises RunError if the file is not a valid ELF file.

        `read(offset, count)` returns bytes of the file, or fewer at its end. `budget`: limits of the run; if
        None, the file has limits of its own.
        """
        self._read, self.budget = read, budget or TableBudget()
        if self.bytes_at(0, 6) != b"\x7fELF\x02\x01":
            raise RunError("not a 64-bit ELF file")
        try:
            self._read_header()
        except (struct.error, IndexError) as error:
            raise RunError(f"a broken ELF file: {error}") from error

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the ELF file for content that is already in memory."""
        return cls(lambda offset, count: content[offset : offset + count])

    def bytes_at(self, offset: int, count: int) -> bytes:
        """Return bytes of the file. Raises RunError for too many bytes, or an impossible offset."""
        if offset < 0 or offset >= 1 << 63:
            raise RunError("a broken ELF file: a table is beyond the end")
        if count > READ_MAX_BYTES:
            raise RunError(TOO_LARGE)
        if count > FREE_READ_BYTES:
            self.budget.spend(read_bytes=count)
        return self._read(offset, count)

    def _read_header(self) -> None:
        """Read the file's tables of segments and sections."""
        header = self.bytes_at(0, 64)
        self.kind, self.machine = struct.unpack_from("<HH", header, 16)
        program_offset, sections_offset = struct.unpack_from("<QQ", header, 32)
        program_size, programs, section_size, sections, names_index = struct.unpack_from("<5H", header, 54)
        if programs > PROGRAM_HEADERS_MAX or (programs and program_size != PROGRAM_HEADER_BYTES):
            raise RunError("a broken ELF file: the kernel would not load its segments")
        if sections and section_size != SECTION_HEADER_BYTES:
            raise RunError("a broken ELF file: its sections have an unknown layout")
        self.budget.spend(rows=programs + sections)
        data = self.bytes_at(program_offset, programs * program_size)
        # type, flags, offset, address, physical address, size in the file, in memory, alignment
        rows = [struct.unpack_from("<IIQQQQQQ", data, i * program_size) for i in range(programs)]
        self.segment_types = frozenset(row[0] for row in rows)
        self._loads: list[tuple[int, int, int]] = [
            (row[2], row[3], row[5]) for row in rows if row[0] == PT_LOAD
        ]
        self._dynamic = next(((row[2], row[5]) for row in rows if row[0] == PT_DYNAMIC), None)
        data = self.bytes_at(sections_offset, sections * section_size)
        # name, kind, flags, address, offset, size, link, ...
        rows = [struct.unpack_from("<IIQQQQII", data, i * section_size) for i in range(sections)]
        names = self.bytes_at(rows[names_index][4], rows[names_index][5]) if rows else b""
        self.sections = [ElfSection(text_at(names, row[0]), *row[1:7]) for row in rows]
        # The first section of each name that has content in the file.
        self._section_by_name = {
            section.name: section for section in reversed(self.sections) if section.kind != SHT_NOBITS
        }

    def section(self, name: str) -> ElfSection | None:
        """Return the first section with this name that has content in the file, or None."""
        return self._section_by_name.get(name)

    def address_of(self, offset: int) -> int | None:
        """Return the address at which the byte at a file offset is loaded, or None."""
        for begin, load_address, size in self._loads:
            if begin <= offset < begin + size:
                return offset - begin + load_address
        return None

    def offset_of(self, address: int) -> int | None:
        """Return the file offset of the byte that is loaded at an address, or None."""
        for begin, load_address, size in self._loads:
            if load_address <= address < load_address + size:
                return address - load_address + begin
        return None

    def _rows(self, table: ElfSection, layout: str) -> Iterator[tuple[int, ...]]:
        """Yield the complete rows of a table. `layout`: struct format of a row."""
        row_bytes = struct.calcsize(layout)
        end = table.offset + table.size - table.size % row_bytes
        for offset in range(table.offset, end, CHUNK_ROWS * row_bytes):
            began_s = time.thread_time()
            data = self.bytes_at(offset, min(CHUNK_ROWS * row_bytes, end - offset))
            rows = len(data) // row_bytes
            if not rows:  # the file ends before the table
                return
            self.budget.spend(rows=rows)
            yield from struct.iter_unpack(layout, data[: rows * row_bytes])
            self.budget.spend_time(began_s)

    @cached_property
    def is_dynamic(self) -> bool:
        """True if the file needs shared libraries, or is a shared library."""
        if self._dynamic is None:
            return False
        table = ElfSection("", 0, 0, 0, *self._dynamic, 0)
        return any(tag in (DT_NEEDED, DT_SONAME) for tag, _ in self._rows(table, "<qQ"))

    @cached_property
    def build_id(self) -> str | None:
        """Build-id of the file in hex, or None."""
        notes = [section for section in self.sections if section.kind == SHT_NOTE and section.size >= 16]
        for section in notes[:NOTES_MAX]:
            name_size, size, kind = struct.unpack("<III", self.bytes_at(section.offset, 12))
            if kind == NT_GNU_BUILD_ID and size <= BUILD_ID_MAX_BYTES:
                return self.bytes_at(section.offset + 12 + (name_size + 3) // 4 * 4, size).hex()
        return None

    def functions(self, kind: int) -> Iterator[Symbol]:
        """Yield the functions that the file defines, from its symbol table of the type `kind`.

        A file has at most one table of each type (gABI, "Sections"); further tables are not read.
        """
        table = next((section for section in self.sections if section.kind == kind), None)
        if table is None:
            return
        if table.link >= len(self.sections):
            raise RunError("a broken ELF file: a table of symbols has no names")
        names = self.bytes_at(self.sections[table.link].offset, self.sections[table.link].size)
        for name, info, _, section, address, size in self._rows(table, "<IBBHQQ"):
            if section and info & 15 in (STT_FUNC, STT_GNU_IFUNC):
                yield Symbol(text_at(names, name), address, size, section, info & 15 == STT_GNU_IFUNC)

    def code(self) -> list[tuple[str, int, str]]:
        """Return sorted (section, address, name) of the functions in .symtab whose code is in this file."""
        return sorted(
            (self.sections[symbol.section].name, symbol.address, symbol.name)
            for symbol in self.functions(SHT_SYMTAB)
            if not symbol.is_ifunc
            and symbol.section < len(self.sections)
            and self.sections[symbol.section].flags & SHF_EXECINSTR
        )

    def resolved_slots(self) -> Iterator[tuple[int, int]]:
        """Yield (resolver, slot) of each IFUNC. The loader puts the chosen function's address in the slot."""
        return limited(self._relocated(IRELATIVE), SLOTS_MAX)

    def _relocated(self, kinds: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield (addend, slot) of each relocation of one type. `kinds`: type number by e_machine."""
        tables = [section for section in self.sections if section.kind == SHT_RELA]
        for table in tables[:RELOCATION_TABLES_MAX]:
            for slot, info, addend in self._rows(table, "<QQq"):
                if info & 0xFFFFFFFF == kinds.get(self.machine):
                    yield addend, slot

    def word_at(self, address: int) -> int | None:
        """Return the 64-bit word at an address after relocation, with a load bias of 0, or None."""
        for addend, slot in self._relocated(RELATIVE):
            if slot == address:
                return addend
        offset = self.offset_of(address)
        return None if offset is None else int(struct.unpack("<Q", self.bytes_at(offset, 8))[0])

    def function_around(self, address: int) -> tuple[int, int] | None:
        """Return the start and end of the function that contains an address, from the unwind table, or None.

        The unwind table is never stripped:

        https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html
        """
        starts, entries, base = self._unwind_table
        index = bisect_right(starts, address - base) - 1
        if index < 0:
            return None
        offset = self.offset_of(entries[index] + base)
        if offset is None:
            return None
        # Fields: length, offset of the CIE, start of the function (relative), length of the function.
        size = struct.unpack("<IIiI", self.bytes_at(offset, 16))[3]
        begin = starts[index] + base
        return (begin, begin + size) if address < begin + size else None

    @cached_property
    def _unwind_table(self) -> tuple[Sequence[int], Sequence[int], int]:
        """Starts of functions, their unwind entries in the same order, and the base address for both."""
        table = self.section(".eh_frame_hdr")
        if table is None:
            return [], [], 0
        data = self.bytes_at(table.offset, table.size)
        self.budget.spend(kept_bytes=len(data))
        # Version, then the encodings of the three fields that follow. Only four-byte fields are supported.
        if len(data) < 12 or data[1] & 15 != SDATA4 or data[3] != DATAREL_SDATA4:
            return [], [], 0
        count = min(struct.unpack_from("<I", data, 8)[0], (len(data) - 12) // 8)
        # Views of the bytes: lists of numbers would take ten times their memory.
        fields = memoryview(data)[12 : 12 + 8 * count].cast("i")
        return fields[::2], fields[1::2], table.address


def limited(rows: Iterable[Row], most: int) -> Iterator[Row]:
    """Yield at most `most` rows. Raises RunError if there are more, as only a crafted file has."""
    for count, row in enumerate(rows):
        if count >= most:
            raise RunError(TOO_LARGE)
        yield row


def text_at(strings: bytes, offset: int) -> str:
    """Return the NUL-terminated string at an offset of a string table, cut at NAME_MAX_BYTES."""
    return strings[offset : offset + NAME_MAX_BYTES].partition(b"\0")[0].decode(errors="replace")
