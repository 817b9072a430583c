# SPDX-License-Identifier: GPL-2.0-only
"""Fuzz the readers of files that a watched program's owner may craft, under a memory limit of 200 MB.

    .venv/bin/python tests/fuzz_tables.py SECONDS

Readers: ELF headers and tables of symbols, Go's table of functions, the table of `.eh_frame_hdr`, perf maps,
and the DWARF line table (addr2line, as root only). Valid inputs are mutated, always with the same seeds. Each
reader gets an equal part of the time. A reader may refuse an input only with an exception of UNREADABLE.
"""

import io
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from copyscope.run import code_file, code_names
from copyscope.run.code_file import UNREADABLE, File, Mapping, find_lines
from copyscope.run.code_names import MAGIC_GO_1_16, MAGIC_GO_1_20, PerfMap
from copyscope.run.elf import SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, ElfFile, TableBudget

MEMORY_MAX_BYTES = 200_000_000
# CPU time in seconds that one input may take: the limit of a run, and a margin for the rest of the reader.
INPUT_MAX_S = 15.0
TEXT = 0x401000
PROGRAM = "#include <string.h>\nint main(int n, char **v) { char b[64]; memcpy(b, v[0], n); return b[0]; }\n"
# Values at which parsers fail: ends of integer ranges, signs, and sizes of tables.
NUMBERS = (
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    1 << 16,
    1 << 26,
    1 << 31,
    (1 << 32) - 1,
    1 << 63,
    (1 << 64) - 1,
)

Reader = Callable[[bytes], None]
Input = Callable[[], bytes]


def mutate(content: bytes, source: random.Random) -> bytes:
    """Return a copy with some numbers or ranges of bytes replaced, copied or cut off."""
    data = bytearray(content)
    for _ in range(source.choice((1, 1, 2, 4, 16))):
        # Headers stand at the beginning or at the end, so these get half of the changes.
        edge = source.choice((len(data), min(512, len(data))))
        at = source.randrange(edge) if edge else 0
        at = len(data) - 1 - at if source.random() < 0.3 else at
        match source.randrange(5):
            case 0 | 1:
                layout = source.choice("BHIQ")
                number = source.choice(NUMBERS) & ((1 << 8 * struct.calcsize(layout)) - 1)
                packed = struct.pack(f"<{layout}", number)
                data[at : at + len(packed)] = packed
            case 2:
                data[at : at + 8] = source.randbytes(8)
            case 3:
                begin, size = source.randrange(max(1, len(data))), source.choice((1, 8, 24, 64, 4096))
                data[at : at + size] = data[begin : begin + size]
            case 4 if source.random() < 0.2:
                del data[at:]
    return bytes(data)


def elf_of(sections: dict[str, tuple[int, bytes]]) -> bytes:
    """Return an ELF file with sections (type, content) by name, and a segment that loads the file at TEXT."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in sections)
    contents = [(0, 0, b""), (names.index(b".shstrtab"), 3, names)]
    contents += [(names.index(name.encode() + b"\0"), kind, body) for name, (kind, body) in sections.items()]
    at = 64 + 56 + 64 * len(contents)
    rows, bodies = b"", b""
    for name, kind, body in contents:
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 6, TEXT + at, at, len(body), 2, 0, 0, 0)
        at, bodies = at + len(body), bodies + body
    header = b"\x7fELF\x02\x01".ljust(16, b"\0") + struct.pack("<HHIQQQ", 2, 62, 1, TEXT, 64, 64 + 56)
    header += struct.pack("<I6H", 0, 64, 56, 1, 64, len(contents), 1)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, TEXT, TEXT, 1 << 32, 1 << 32, 4096)
    return header + load + rows + bodies


def crafted_elf(functions: int) -> bytes:
    """Return an ELF file with tables of every kind that is read. `functions`: number of rows in each."""
    strings = b"memcpy\0" + b"n" * 512 + b"\0"
    symbols = b"".join(
        struct.pack("<IBBHQQ", 7 * (i % 2), 2 + 8 * (i % 7 == 6), 0, 1, TEXT + 16 * i, 16)
        for i in range(functions)
    )
    slots = b"".join(
        struct.pack("<QQq", TEXT + 8 * i, (8, 37)[i % 2], TEXT + 16 * i) for i in range(functions)
    )
    unwind = struct.pack("<BBBBII", 1, 0x1B, 3, 0x3B, 0, functions)
    unwind += b"".join(struct.pack("<ii", 16 * i, 16) for i in range(functions))
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(20)
    return elf_of({
        ".strtab": (3, strings), ".shstrtab": (3, b""), ".symtab": (SHT_SYMTAB, symbols),
        ".dynsym": (SHT_DYNSYM, symbols), ".rela.dyn": (SHT_RELA, slots), ".eh_frame_hdr": (1, unwind),
        ".note": (7, note), ".text": (1, bytes(64)),
    })  # fmt: skip


def go_program(magic: int, functions: int) -> bytes:
    """Return an ELF file with Go's table of functions, all of the same name."""
    pair, description = ("<QQ", "<Qi7I") if magic == MAGIC_GO_1_16 else ("<II", "<Ii7I")
    names, units, paths, values = b"runtime.memmove\0", bytes(16), b"/a.go\0", b"\0\2\x20\0\2\x20\0"
    first = 8 + 8 * (7 if magic == MAGIC_GO_1_16 else 8)
    offsets = [first]
    for part in (names, units, paths, values):
        offsets.append(offsets[-1] + len(part))
    base = TEXT if magic == MAGIC_GO_1_16 else 0
    begin = (functions + 1) * struct.calcsize(pair)
    rows = b"".join(struct.pack(pair, base + i, begin) for i in range(functions + 1))
    body = names + units + paths + values + rows + struct.pack(description, base, 0, 0, 0, 0, 1, 1, 0, 0)
    start = () if magic == MAGIC_GO_1_16 else (0,)
    head = struct.pack(f"<IxxBB{2 + len(start) + 5}Q", magic, 1, 8, functions, 1, *start, *offsets)
    return elf_of({".shstrtab": (3, b""), ".text": (1, bytes(64)), ".gopclntab": (1, head + body)})


def read_code(content: bytes) -> None:
    """Read an ELF file as a run does for a mapped file with samples."""
    file = File(
        "/lib/libc.so", os.getpid(), Mapping(TEXT, TEXT + 4096, 0, "0:0", 1, "/lib/libc.so"), TableBudget()
    )
    try:
        file.elf = ElfFile.of(content)
        file.budget = file.elf.budget
    except UNREADABLE:
        return
    file.read()
    for offset in (0, 64, 200, len(content) - 1):
        for read in (file.copy_at, file.cipher_at, file.function_at, lambda _: file.header().build_id):
            try:
                read(offset + TEXT if read == file.function_at else offset)
            except UNREADABLE:
                continue
    file.find_lines([TEXT, TEXT + 1], 0.0)


def read_map(content: bytes) -> None:
    """Read a perf map, also after it has grown."""
    with tempfile.TemporaryFile(buffering=0) as stream:
        stream.write(content)
        names = PerfMap(io.FileIO(os.dup(stream.fileno())), TableBudget())
        names.name_at(0x7F0000000008)
        stream.write(content[: len(content) // 2])
        names.name_at(0x10)
    for line in content[:4096].splitlines():
        code_names.split_name(line.decode(errors="replace"))


def read_lines(content: bytes) -> None:
    """Read DWARF line tables by addr2line."""
    with tempfile.TemporaryFile(buffering=0) as stream:
        stream.write(content)
        find_lines(io.FileIO(os.dup(stream.fileno())), [TEXT, 0x1139, 0x1150], 5.0)
        dict(code_file.parse(content[:4096].decode(errors="replace")))


def perf_map(rows: int) -> bytes:
    """Return a perf map with names as V8 writes them."""
    return b"".join(
        b"%x 10 JS:*f%d /srv/app.js:%d:5\n" % (0x7F0000000000 + 16 * i, i, i) for i in range(rows)
    )


def program_with_lines(directory: Path) -> bytes:
    """Return a small program with debug information, built by the system's C compiler."""
    (directory / "p.c").write_text(PROGRAM)
    subprocess.run(["cc", "-g", "-o", directory / "p", directory / "p.c"], check=True, timeout=60)
    return (directory / "p").read_bytes()


def readers() -> dict[str, tuple[Reader, list[Input]]]:
    """Return the reader and the valid inputs of each kind. The last inputs are as large as an attacker's."""
    kinds: dict[str, tuple[Reader, list[Input]]] = {
        "ELF": (read_code, [partial(crafted_elf, count) for count in (20, 2_000, 300_000)]),
        "Go": (
            read_code,
            [
                partial(go_program, magic, n)
                for n in (20, 400_000)
                for magic in (MAGIC_GO_1_16, MAGIC_GO_1_20)
            ],
        ),
        "perf map": (read_map, [partial(perf_map, count) for count in (50, 500_000)]),
    }
    if shutil.which("cc"):
        with tempfile.TemporaryDirectory() as directory:
            program = program_with_lines(Path(directory))
        kinds["program"] = (read_code, [lambda: program])
        if os.geteuid() == 0 and shutil.which("addr2line"):
            kinds["DWARF"] = (read_lines, [lambda: program])
    return kinds


def fuzz(name: str, read: Reader, inputs: list[Input], seconds: float) -> None:
    """Read mutated inputs for some seconds. Ends the program at the first fault, with the seed."""
    end_s = time.monotonic() + seconds
    seed, small = 0, inputs[0]()
    while time.monotonic() < end_s:
        source = random.Random(f"{name} {seed}")
        # Large inputs take seconds, so only few are mutated; each is read once as it is.
        large = seed < len(inputs) or source.random() < 0.01
        content = inputs[seed % len(inputs)]() if large else small
        content = content if seed < len(inputs) else mutate(content, source)
        began_s = time.process_time()
        try:
            read(content)
        except BaseException:
            print(f"{name}: seed {seed}:", file=sys.stderr)
            raise
        if (spent_s := time.process_time() - began_s) > INPUT_MAX_S:
            sys.exit(f"{name}: seed {seed}: {spent_s:.1f} s")
        seed += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name}: {seed} inputs, peak {peak} MiB")


def main(seconds: float) -> None:
    """Fuzz all readers, under the memory limit."""
    kinds = readers()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    for name, (read, inputs) in kinds.items():
        fuzz(name, read, inputs, seconds / len(kinds))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
