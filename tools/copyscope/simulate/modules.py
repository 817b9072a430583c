"""The functions of a kernel module, by section and offset: what its ELF file says. Pure.

Where the kernel put the sections is known in the guest only, which adds the two (src/guest/symbols.c).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
SYMTAB, FUNCTION, EXECUTABLE = 2, 2, 4


@dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


def functions(content: bytes) -> bytes:
    """`SECTION OFFSET NAME` for each function, ordered. Raises ValueError for what is no such file."""
    if not content.startswith(MAGIC):
        raise ValueError("not a kernel module for x86-64")
    try:
        return _functions(content)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a damaged kernel module: {error}") from error


def _functions(content: bytes) -> bytes:
    (start,) = struct.unpack_from("<Q", content, 40)
    count, names_at = struct.unpack_from("<HH", content, 60)
    sections = [
        _Section(*SECTION.unpack_from(content, start + number * SECTION.size)) for number in range(count)
    ]
    names = sections[names_at]
    table = next((section for section in sections if section.kind == SYMTAB), None)
    if table is None:
        return b""
    strings = sections[table.link]
    found = []
    for at in range(table.offset, table.offset + table.size, SYMBOL.size):
        name, info, _, index, value, _ = SYMBOL.unpack_from(content, at)
        if info & 15 == FUNCTION and index < count and sections[index].flags & EXECUTABLE:
            place = _text(content, names.offset + sections[index].name)
            found.append((place, value, _text(content, strings.offset + name)))
    return b"".join(b"%s %x %s\n" % one for one in sorted(found))


def _text(content: bytes, at: int) -> bytes:
    return content[at : content.index(b"\0", at)]
