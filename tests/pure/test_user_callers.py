# SPDX-License-Identifier: GPL-2.0-only
"""Names of functions that call copies, from tables and files that the owner of a program may have forged."""

import os
import random
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, cast

import pytest
from copyscope.base.errors import RunError
from copyscope.run import code_file, code_names
from copyscope.run.code_names import MAGIC_GO_1_16, MAGIC_GO_1_18, MAGIC_GO_1_20, GoTable, PerfMap
from copyscope.run.elf import ElfFile, ElfSection, TableBudget
from copyscope.run.user_code import UserCodeFinder
from copyscope.taxonomy.user_code import copies, is_framed

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
TEXT = 0x401000
BROKEN = (RunError, struct.error, IndexError)


class Program:
    """The part of the interface of ElfFile that the table of Go is read through."""

    def __init__(self, table: bytes) -> None:
        self.table, self.budget = table, TableBudget()

    def section(self, name: str) -> ElfSection | None:
        sizes = {".gopclntab": len(self.table), ".text": 0x1000}
        return ElfSection(name, 1, 0, TEXT, 0, sizes[name], 0) if name in sizes else None

    def bytes_at(self, offset: int, count: int) -> bytes:
        return self.table[offset : offset + count]

    def word_at(self, _: int) -> int:
        return TEXT


def go_table(magic: int) -> bytes:
    """Return a table of main.a (0x20 bytes: lines 7 and, from byte 16, 9) and main.b (0x10 bytes: 11)."""
    is_go_1_16 = magic == MAGIC_GO_1_16
    names, paths = b"main.a\0main.b\0", b"/src/a.go\0/src/b.go\0"
    units = struct.pack("<3I", 0, 0xFFFFFFFF, 10)
    # Value tables: main.a has file 0 and its lines; main.b has 2 and 11. Values start at -1, in zigzag steps.
    values = b"\0" + b"\2\x20\0" + b"\x10\x10\4\x10\0" + b"\6\x10\0" + b"\x18\x10\0"
    offsets = [8 + 8 * (8 - is_go_1_16)]
    for part in (names, units, paths, values):
        offsets.append(offsets[-1] + len(part))
    entry, head = ("<QQ", "<Qi7I") if is_go_1_16 else ("<II", "<Ii7I")
    base = TEXT if is_go_1_16 else 0
    size, head_size = struct.calcsize(entry), struct.calcsize(head)
    begin = 2 * size + size // 2
    functions = struct.pack(entry, base, begin) + struct.pack(entry, base + 0x20, begin + head_size)
    functions += struct.pack(entry[:2], base + 0x30)
    functions += struct.pack(head, base, 0, 0, 0, 0, 1, 4, 0, 0)
    functions += struct.pack(head, base + 0x20, 7, 0, 0, 0, 9, 12, 0, 0)
    start = () if is_go_1_16 else (TEXT,)
    header = struct.pack(f"<IxxBB{8 - is_go_1_16}Q", magic, 1, 8, 2, 3, *start, *offsets)
    return header + names + units + paths + values + functions


def read_table(data: bytes) -> GoTable:
    table = GoTable.of(cast(ElfFile, Program(data)))
    assert table is not None
    return table


@pytest.mark.parametrize("magic", [MAGIC_GO_1_16, MAGIC_GO_1_18, MAGIC_GO_1_20])
def test_functions_and_lines_of_go_are_read(magic: int) -> None:
    table = read_table(go_table(magic))
    assert list(table.functions()) == [
        (TEXT, TEXT + 0x20, "main.a"),
        (TEXT + 0x20, TEXT + 0x30, "main.b"),
    ]
    lines = [table.line_at(TEXT + offset) for offset in (0, 15, 16, 31, 32, 47, 48, -1)]
    first, second, third = "/src/a.go:7", "/src/a.go:9", "/src/b.go:11"
    assert lines == [first, first, second, second, third, third, None, None]


@pytest.mark.parametrize("magic", [MAGIC_GO_1_16, MAGIC_GO_1_18, MAGIC_GO_1_20])
def test_a_broken_table_of_go_raises_only_expected_errors(magic: int) -> None:
    valid, generator = go_table(magic), random.Random(magic)

    def read_all(data: bytes) -> None:
        table = read_table(data)
        for begin, _, name in table.functions():
            assert len(name) < 5000
            table.line_at(begin)

    for length in range(len(valid) - 1):
        with pytest.raises(BROKEN):
            read_all(valid[:length])
    for _ in range(3000):
        data = bytearray(valid)
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(len(data))] = generator.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            read_all(bytes(data))
        except BROKEN:
            continue


def test_lines_of_a_perf_map_are_parsed() -> None:
    text = [
        b"7f00 20 JS:*serve /srv/my app.js:12:5",
        b"0x0000000000007f20 0x0000000000000010 void Copies.fill(int)",  # Java
        *(b"", b"7f00", b"zz 10 name", b"7f00 10", b"-1 10 name", b"7f40 10 \xff\xfe"),
        b"10000000000000000 10 too far",
    ]
    rows = list(code_names.parse(text))
    assert [(begin, end) for begin, _, end, _ in rows] == [
        (0x7F00, 0x7F20),
        (0x7F20, 0x7F30),
        (0x7F40, 0x7F50),
    ]
    assert rows[1][3] == "void Copies.fill(int)"


@pytest.mark.parametrize(
    ("name", "function_and_line"),
    [
        ("JS:*serve /srv/app.js:12:5", ("serve", "/srv/app.js:12")),
        ("LazyCompile:~get a b /srv/app.js:12:5", ("get a b", "/srv/app.js:12")),
        ("JS:^ /srv/app.js:1:1", ("(anonymous)", "/srv/app.js:1")),
        ("Builtin:ArrayPush", ("Builtin:ArrayPush", None)),
        ("py::fill:/srv/a.py", ("py::fill:/srv/a.py", None)),
    ],
)
def test_names_of_runtimes_are_split_into_function_and_line(
    name: str, function_and_line: tuple[str, str | None]
) -> None:
    assert code_names.split_name(name) == function_and_line


@pytest.fixture
def own_map() -> Iterator[Path]:
    """Write a perf map for this process, which has none because it generates no code."""
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.write_text("10000000000 100 before\n10000000000 100 after\n10000000080 10 inside\n")
    yield path
    path.unlink()


@pytest.mark.usefixtures("own_map")
def test_the_last_line_for_an_address_decides() -> None:
    names = PerfMap.of(os.getpid(), TableBudget())
    assert names is not None
    assert [names.name_at(0x10000000000 + offset) for offset in (0, 0x7F, 0x80, 0x90, 0x100)] == [
        *("after", "after", "inside", "after", None)
    ]


@NEEDS_ROOT
def test_a_perf_map_of_another_user_is_ignored(own_map: Path) -> None:
    os.chown(own_map, 12345, 12345)
    assert PerfMap.of(os.getpid(), TableBudget()) is None


def test_a_perf_map_that_is_a_fifo_or_a_link_is_ignored(own_map: Path, tmp_path: Path) -> None:
    own_map.unlink()
    os.mkfifo(own_map)  # opening a FIFO would wait for a writer
    assert PerfMap.of(os.getpid(), TableBudget()) is None
    own_map.unlink()
    (tmp_path / "secret").write_text("10000000000 100 secret\n")
    own_map.symlink_to(tmp_path / "secret")
    assert PerfMap.of(os.getpid(), TableBudget()) is None


def test_output_of_addr2line_is_parsed() -> None:
    """The last function printed for an address contains the others, which are inlined."""
    text = (
        "0x0000000000001139\ncopy\n/src/inlined.h:3\nmain\n/src/main.c:12 (discriminator 3)\n"
        "0x000000000000113a\nmain\n??:?\n0x0000000000000001\n??\n??:0\n0x02\n"
    )
    assert dict(code_file.parse(text)) == {
        0x1139: ("main", "/src/main.c:12"),
        0x113A: (None, None),  # the nearest symbol may end before the address
        1: (None, None),
    }
    assert dict(code_file.parse("addr2line: broken")) == {}


@NEEDS_ROOT
def test_a_file_that_is_not_a_program_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\x7fELF\x02\x01" + random.Random(1).randbytes(5000))
    with FileIO(tmp_path / "noise") as file:
        assert code_file.find_lines(file, [1, 2], 5.0) == {}


@pytest.mark.parametrize(
    ("code", "framed"),
    [
        ("f30f1efa554889e5", True),
        ("554889e541574156", True),
        ("55488bec", True),
        ("4889f8c3", False),
        ("", False),
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="instructions of x86")
def test_a_function_with_a_stack_frame_is_recognised(code: str, framed: bool) -> None:
    assert is_framed(bytes.fromhex(code)) is framed


def test_copies_of_java_and_cloned_functions_are_recognised() -> None:
    assert copies("jbyte_disjoint_arraycopy_avx3") and copies("memcpy_own.constprop.0")
    assert not copies("generic_arraycopy") and not copies("StubRoutines (2)")


def test_samples_without_a_site_need_no_lines() -> None:
    samples: Any = [{"samples": 1}, {"samples": 1, "site": None}]
    UserCodeFinder().find_lines(samples)
