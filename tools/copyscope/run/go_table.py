"""Go's own table of its functions and their lines, .gopclntab, which no linker strips.

https://go.dev/s/go12symtab, runtime/symtab.go and debug/gosym: the layouts of Go 1.16, 1.18, and 1.20 on.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Self

from copyscope.errors import RunError
from copyscope.run.elf import ElfFile, Section, text_at

SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
GO_1_16, GO_1_18, GO_1_20 = 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
# Where Go's code begins is, since 1.26, in the module's data only (moduledata.text): its word of this number.
MODULE, MODULE_TEXT = ".go.module", 22
BROKEN = "Go's table of functions is broken"
# Anybody may have made the table: no program has as many functions, no function as many lines.
FUNCTIONS_MAX, STEPS_MAX = 1 << 20, 1 << 18


class GoTable:
    """Of a broken one each method raises RunError, struct.error or IndexError."""

    def __init__(self, elf: ElfFile, section: Section) -> None:
        data = self._data = elf.bytes_at(section.offset, section.size)
        magic, self._quantum, pointer = struct.unpack_from("<IxxBB", data)
        if magic not in (GO_1_16, GO_1_18, GO_1_20) or pointer != 8:
            raise RunError(f"Go's table of functions is in a layout that is not known ({magic:#x})")
        is_old = magic == GO_1_16
        count, _, *places = struct.unpack_from("<8Q", data, 8)
        places = places[not is_old :][:5]
        self._names, self._units, self._paths, self._values, self._functions = places
        # of each function where it begins, and where in the table it is described: entry, name, six more
        pair, self._about = ("<QQ", "<Qi7I") if is_old else ("<II", "<Ii7I")
        size = struct.calcsize(pair)
        if count > FUNCTIONS_MAX or max(places) + count * size + size // 2 > len(data):
            raise RunError(BROKEN)
        # Where its code begins; before it is that of C.
        self._text = 0 if is_old else _text(elf, section)
        code = elf.section(".text")
        self.has_other_code = not is_old and code is not None and self._text != code.address
        rows = struct.iter_unpack(pair, data[self._functions :][: count * size])
        self._begins, self._places = map(list, zip(*rows, strict=True)) if count else ([], [])
        if max(self._places, default=0) > len(data):
            raise RunError(BROKEN)
        self._begins += struct.unpack_from(pair[:2], data, self._functions + count * size)

    @classmethod
    def of(cls, elf: ElfFile) -> Self | None:
        """None of a program that is not Go's."""
        section = next((one for name in SECTIONS if (one := elf.section(name)) is not None), None)
        return None if section is None else cls(elf, section)

    def functions(self) -> Iterator[tuple[int, int, str]]:
        """(begin, end, name) of each."""
        for number in range(len(self._places)):
            begin, end = self._begins[number : number + 2]
            name = text_at(self._data, self._names + self._described(number)[1])
            yield self._text + begin, self._text + end, name

    def line_at(self, address: int) -> str | None:
        """`FILE:LINE` of an instruction: of a function that was inlined there its own."""
        at = address - self._text
        number = bisect_right(self._begins, at) - 1
        if not 0 <= number < len(self._places):
            return None
        begin, _, _, _, _, files, lines, _, unit = self._described(number)
        file, line = (self._value(table, begin, at) for table in (files, lines))
        if file < 0 or line < 0:
            return None
        path = struct.unpack_from("<I", self._data, self._units + 4 * (unit + file))[0]
        return f"{text_at(self._data, self._paths + path)}:{line}"

    def _described(self, number: int) -> tuple[int, ...]:
        """runtime2.go's _func: entry, name, args, deferreturn, pcsp, pcfile, pcln, npcdata, cuOffset."""
        return struct.unpack_from(self._about, self._data, self._functions + self._places[number])

    def _value(self, table: int, begin: int, target: int) -> int:
        """What a table says of an address: pairs of how much the value, and then the address, goes up."""
        at, value, address = self._values + table, -1, begin
        for step in range(STEPS_MAX):
            change, at = self._number(at)
            if not change and step:
                return -1
            value += ~(change >> 1) if change & 1 else change >> 1
            length, at = self._number(at)
            address += length * self._quantum
            if target < address:
                return value
        raise RunError(BROKEN)

    def _number(self, at: int) -> tuple[int, int]:
        """A varint of 32 bits, and where the next one begins."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise RunError(BROKEN)


def _text(elf: ElfFile, section: Section) -> int:
    """Where Go's code begins: in the table, in the module's data, else where all code begins."""
    module, code = elf.section(MODULE), elf.section(".text")
    found = elf.word_at(section.address + 24)
    if not found and module is not None:
        found = elf.word_at(module.address + 8 * MODULE_TEXT)
    if code is None or not 0 <= (found or code.address) - code.address < code.size:
        raise RunError(f"{BROKEN}: where its code begins is not known")
    return found or code.address
