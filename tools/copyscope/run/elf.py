"""An ELF file (elf(5)), as far as naming functions needs it: 64-bit, little-endian.

Own code: pyelftools makes an object of each symbol, which takes seconds for the 100,000 of a large program.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from copyscope.errors import RunError

SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_DYNSYM, SHT_NOBITS = 2, 4, 7, 11, 8
SHF_EXECINSTR = 4
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_SONAME = 1, 14
STT_FUNC, STT_GNU_IFUNC = 2, 10
# What the dynamic linker writes into a slot: the address that the function at the addend chose. By e_machine.
IRELATIVE = {62: 37, 183: 1032}
# And what it writes where an address stands that moves with the file: the addend.
RELATIVE = {62: 8, 183: 1027}
NT_GNU_BUILD_ID = 3
DATAREL_SDATA4, SDATA4 = 0x3B, 0x0B
# Anybody may have made the file: no linker makes more tables of a kind, no longer ids; names are cut.
PIECE_MAX, TABLES_MAX, ID_MAX, NAME_MAX = 1 << 28, 8, 64, 512


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Symbol:
    name: str
    address: int
    size: int
    section: int
    is_chosen: bool  # an IFUNC: at its address is the function that chooses one


class ElfFile:
    """Addresses are those of the file, before it is loaded anywhere. Raises RunError for what is none.

    It is read piece by piece, and no piece is larger than PIECE_MAX.
    """

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        """`read`: so many bytes (the second) from a place of the file on, fewer at its end."""
        self._read = read
        if self.bytes_at(0, 6) != b"\x7fELF\x02\x01":
            raise RunError("not a 64-bit ELF file")
        try:
            self._read_header()
        except (struct.error, IndexError) as error:
            raise RunError(f"a broken ELF file: {error}") from error

    @classmethod
    def of(cls, content: bytes) -> Self:
        return cls(lambda at, count: content[at : at + count])

    def bytes_at(self, offset: int, count: int) -> bytes:
        if count > PIECE_MAX:
            raise RunError(f"a table of more than {PIECE_MAX >> 20} MiB")
        if offset >= 1 << 63:
            raise RunError("a broken ELF file: a table beyond its end")
        return self._read(offset, count)

    def _read_header(self) -> None:
        header = self.bytes_at(0, 64)
        self.kind, self.machine = struct.unpack_from("<HH", header, 16)
        program_at, sections_at = struct.unpack_from("<QQ", header, 32)
        program_size, programs, section_size, sections, names = struct.unpack_from("<5H", header, 54)
        data = self.bytes_at(program_at, programs * program_size)
        # kind, flags, offset, address, physical address, size in the file, in memory, alignment
        rows = [struct.unpack_from("<IIQQQQQQ", data, i * program_size) for i in range(programs)]
        self.parts = frozenset(row[0] for row in rows)
        self._loads = [(row[2], row[3], row[5]) for row in rows if row[0] == PT_LOAD]
        self._dynamic = next(((row[2], row[5]) for row in rows if row[0] == PT_DYNAMIC), None)
        data = self.bytes_at(sections_at, sections * section_size)
        # name, kind, flags, address, offset, size, link, ...
        rows = [struct.unpack_from("<IIQQQQII", data, i * section_size) for i in range(sections)]
        texts = self.bytes_at(rows[names][4], rows[names][5]) if rows else b""
        self.sections = [Section(text_at(texts, r[0]), *r[1:7]) for r in rows]

    def section(self, name: str) -> Section | None:
        """The first of this name that is in the file."""
        return next((one for one in self.sections if one.name == name and one.kind != SHT_NOBITS), None)

    def address_of(self, offset: int) -> int | None:
        """Where a byte of the file is loaded."""
        return next((offset - at + to for at, to, size in self._loads if at <= offset < at + size), None)

    def offset_of(self, address: int) -> int | None:
        return next((address - to + at for at, to, size in self._loads if to <= address < to + size), None)

    def _tables(self, kind: int) -> list[Section]:
        return [one for one in self.sections if one.kind == kind][:TABLES_MAX]

    def _rows(self, table: Section, row_bytes: int) -> bytes:
        return self.bytes_at(table.offset, table.size - table.size % row_bytes)

    @cached_property
    def dynamic(self) -> frozenset[int]:
        """Which tags of the dynamic section there are; none of a static program."""
        if self._dynamic is None:
            return frozenset()
        at, size = self._dynamic
        return frozenset(tag for tag, _ in struct.iter_unpack("<qQ", self.bytes_at(at, size - size % 16)))

    @cached_property
    def build_id(self) -> str | None:
        for one in self.sections:
            if one.kind == SHT_NOTE and one.size >= 16:
                name_size, size, kind = struct.unpack("<III", self.bytes_at(one.offset, 12))
                if kind == NT_GNU_BUILD_ID and size <= ID_MAX:
                    return self.bytes_at(one.offset + 12 + (name_size + 3) // 4 * 4, size).hex()
        return None

    def functions(self, kind: int) -> Iterator[Symbol]:
        """The functions in its tables of this kind, without those of other files."""
        for table in self._tables(kind):
            if table.link >= len(self.sections):
                raise RunError("a broken ELF file: a table of symbols without their names")
            texts = self.bytes_at(self.sections[table.link].offset, self.sections[table.link].size)
            for name, info, _, section, address, size in struct.iter_unpack("<IBBHQQ", self._rows(table, 24)):
                if section and info & 15 in (STT_FUNC, STT_GNU_IFUNC):
                    is_chosen = info & 15 == STT_GNU_IFUNC
                    yield Symbol(text_at(texts, name), address, size, section, is_chosen)

    def code(self) -> list[tuple[str, int, str]]:
        """(section, address, name) of each function of .symtab that is code of this file, in order."""
        return sorted(
            (self.sections[one.section].name, one.address, one.name)
            for one in self.functions(SHT_SYMTAB)
            if not one.is_chosen
            and one.section < len(self.sections)
            and self.sections[one.section].flags & SHF_EXECINSTR
        )

    def chosen(self) -> Iterator[tuple[int, int]]:
        """(the function that chooses, the slot where the address that it chose stands) of this file."""
        return self._relocated(IRELATIVE)

    def _relocated(self, kinds: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """(addend, slot) of this kind, by e_machine."""
        for table in self._tables(SHT_RELA):
            for slot, info, addend in struct.iter_unpack("<QQq", self._rows(table, 24)):
                if info & 0xFFFFFFFF == kinds.get(self.machine):
                    yield addend, slot

    def word_at(self, address: int) -> int | None:
        """The eight bytes that stand there once the file is loaded, but for how far it is moved."""
        for addend, slot in self._relocated(RELATIVE):
            if slot == address:
                return addend
        offset = self.offset_of(address)
        return None if offset is None else int(struct.unpack("<Q", self.bytes_at(offset, 8))[0])

    def function_around(self, address: int) -> tuple[int, int] | None:
        """Where the function around an address begins and ends, by its unwind table: that is never stripped.

        https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html
        """
        starts, entries = self._unwinding
        place = bisect_right(starts, address) - 1
        if place < 0:
            return None
        at = self.offset_of(entries[place])
        if at is None:
            return None
        # length, where its CIE is, where the function begins (relative), its length
        size = struct.unpack("<IIiI", self.bytes_at(at, 16))[3]
        return (starts[place], starts[place] + size) if address < starts[place] + size else None

    @cached_property
    def _unwinding(self) -> tuple[list[int], list[int]]:
        """Where each function begins, and where its entry is, both in order."""
        table = self.section(".eh_frame_hdr")
        if table is None:
            return [], []
        data = self.bytes_at(table.offset, table.size)
        # version, how the three that follow are written: here all in four bytes
        if len(data) < 12 or data[1] & 15 != SDATA4 or data[3] != DATAREL_SDATA4:
            return [], []
        count = struct.unpack_from("<I", data, 8)[0]
        rows = list(struct.iter_unpack("<ii", data[12 : 12 + min(8 * count, (len(data) - 12) // 8 * 8)]))
        return [row[0] + table.address for row in rows], [row[1] + table.address for row in rows]


def text_at(texts: bytes, at: int) -> str:
    """What stands there, to its end or to NAME_MAX."""
    return texts[at : at + NAME_MAX].partition(b"\0")[0].decode(errors="replace")
