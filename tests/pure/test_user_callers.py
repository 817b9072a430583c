"""Who calls the copies of a program: names from tables and files that its owner may have made up."""

import os
import random
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import cast

import pytest
from copyscope.errors import RunError
from copyscope.run import perf_map, source_lines
from copyscope.run.elf import ElfFile, Section
from copyscope.run.go_table import GO_1_16, GO_1_18, GO_1_20, GoTable
from copyscope.run.perf_map import PerfMap
from copyscope.run.user_code import UserCode
from copyscope.taxonomy.user_copies import copies, is_framed

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
TEXT = 0x401000
BROKEN = (RunError, struct.error, IndexError)


class Program:
    """The parts of an ELF file that the table of Go is read from."""

    def __init__(self, table: bytes) -> None:
        self.table = table

    def section(self, name: str) -> Section | None:
        sizes = {".gopclntab": len(self.table), ".text": 0x1000}
        return Section(name, 1, 0, TEXT, 0, sizes[name], 0) if name in sizes else None

    def bytes_at(self, offset: int, count: int) -> bytes:
        return self.table[offset : offset + count]

    def word_at(self, _: int) -> int:
        return TEXT


def go_table(magic: int) -> bytes:
    """main.a, 0x20 bytes: line 7 and, from the sixteenth on, line 9; main.b, 0x10 bytes of line 11."""
    old = magic == GO_1_16
    names, paths = b"main.a\0main.b\0", b"/src/a.go\0/src/b.go\0"
    units = struct.pack("<3I", 0, 0xFFFFFFFF, 10)
    # Of main.a its file, 0, and its lines; of main.b, 2 and 11. A value begins at -1 and goes up by half.
    values = b"\0" + b"\2\x20\0" + b"\x10\x10\4\x10\0" + b"\6\x10\0" + b"\x18\x10\0"
    places = [8 + 8 * (8 - old)]
    for part in (names, units, paths, values):
        places.append(places[-1] + len(part))
    entry, head = ("<QQ", "<Qi7I") if old else ("<II", "<Ii7I")
    base = TEXT if old else 0
    size, head_size = struct.calcsize(entry), struct.calcsize(head)
    begin = 2 * size + size // 2
    functions = struct.pack(entry, base, begin) + struct.pack(entry, base + 0x20, begin + head_size)
    functions += struct.pack(entry[:2], base + 0x30)
    functions += struct.pack(head, base, 0, 0, 0, 0, 1, 4, 0, 0)
    functions += struct.pack(head, base + 0x20, 7, 0, 0, 0, 9, 12, 0, 0)
    start = () if old else (TEXT,)
    header = struct.pack(f"<IxxBB{8 - old}Q", magic, 1, 8, 2, 3, *start, *places)
    return header + names + units + paths + values + functions


def read_table(table: bytes) -> GoTable:
    found = GoTable.of(cast(ElfFile, Program(table)))
    assert found is not None
    return found


@pytest.mark.parametrize("magic", [GO_1_16, GO_1_18, GO_1_20])
def test_functions_and_lines_of_go(magic: int) -> None:
    table = read_table(go_table(magic))
    assert list(table.functions()) == [
        (TEXT, TEXT + 0x20, "main.a"),
        (TEXT + 0x20, TEXT + 0x30, "main.b"),
    ]
    lines = [table.line_at(TEXT + at) for at in (0, 15, 16, 31, 32, 47, 48, -1)]
    first, second, third = "/src/a.go:7", "/src/a.go:9", "/src/b.go:11"
    assert lines == [first, first, second, second, third, third, None, None]


@pytest.mark.parametrize("magic", [GO_1_16, GO_1_18, GO_1_20])
def test_a_broken_table_of_go_is_refused_and_never_a_traceback(magic: int) -> None:
    whole, chance = go_table(magic), random.Random(magic)

    def read_all(data: bytes) -> None:
        table = read_table(data)
        for begin, _, name in table.functions():
            assert len(name) < 5000
            table.line_at(begin)

    for length in range(len(whole) - 1):
        with pytest.raises(BROKEN):
            read_all(whole[:length])
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            read_all(bytes(data))
        except BROKEN:
            continue


def test_lines_of_a_perf_map() -> None:
    text = [
        b"7f00 20 JS:*serve /srv/my app.js:12:5",
        b"0x0000000000007f20 0x0000000000000010 void Copies.fill(int)",  # Java
        *(b"", b"7f00", b"zz 10 name", b"7f00 10", b"-1 10 name", b"7f40 10 \xff\xfe"),
        b"10000000000000000 10 too far",
    ]
    rows = list(perf_map.parse(text))
    assert [(begin, end) for begin, _, end, _ in rows] == [
        (0x7F00, 0x7F20),
        (0x7F20, 0x7F30),
        (0x7F40, 0x7F50),
    ]
    assert rows[1][3] == "void Copies.fill(int)"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("JS:*serve /srv/app.js:12:5", ("serve", "/srv/app.js:12")),
        ("LazyCompile:~get a b /srv/app.js:12:5", ("get a b", "/srv/app.js:12")),
        ("JS:^ /srv/app.js:1:1", ("(anonymous)", "/srv/app.js:1")),
        ("Builtin:ArrayPush", ("Builtin:ArrayPush", None)),
        ("py::fill:/srv/a.py", ("py::fill:/srv/a.py", None)),
    ],
)
def test_names_of_runtimes(name: str, told: tuple[str, str | None]) -> None:
    assert perf_map.told(name) == told


@pytest.fixture
def own_map() -> Iterator[Path]:
    """Of this process, which makes no code as it runs."""
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.write_text("10000000000 100 before\n10000000000 100 after\n10000000080 10 inside\n")
    yield path
    path.unlink()


@pytest.mark.usefixtures("own_map")
def test_what_was_made_last_is_there() -> None:
    names = PerfMap.of(os.getpid())
    assert names is not None
    assert [names.name_at(0x10000000000 + at) for at in (0, 0x7F, 0x80, 0x90, 0x100)] == [
        *("after", "after", "inside", "after", None)
    ]


@NEEDS_ROOT
def test_a_map_that_somebody_else_has_made_is_not_believed(own_map: Path) -> None:
    os.chown(own_map, 12345, 12345)
    assert PerfMap.of(os.getpid()) is None


def test_a_map_that_is_no_file_is_not_opened(own_map: Path, tmp_path: Path) -> None:
    own_map.unlink()
    os.mkfifo(own_map)  # and nobody waits for who writes there
    assert PerfMap.of(os.getpid()) is None
    own_map.unlink()
    (tmp_path / "secret").write_text("10000000000 100 secret\n")
    own_map.symlink_to(tmp_path / "secret")
    assert PerfMap.of(os.getpid()) is None


def test_what_addr2line_says() -> None:
    """The last function of an address is the one that the others are inlined in."""
    text = (
        "0x0000000000001139\ncopy\n/src/inlined.h:3\nmain\n/src/main.c:12 (discriminator 3)\n"
        "0x000000000000113a\nmain\n??:?\n0x0000000000000001\n??\n??:0\n0x02\n"
    )
    assert dict(source_lines.parse(text)) == {
        0x1139: ("main", "/src/main.c:12"),
        0x113A: ("main", None),
        1: (None, None),
    }
    assert dict(source_lines.parse("addr2line: broken")) == {}


@NEEDS_ROOT
def test_of_a_file_that_is_no_program_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\x7fELF\x02\x01" + random.Random(1).randbytes(5000))
    with FileIO(tmp_path / "noise") as file:
        assert source_lines.find(file, [1, 2], 5.0) == {}


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
def test_a_function_that_puts_a_frame_on_the_stack(code: str, framed: bool) -> None:
    assert is_framed(bytes.fromhex(code)) is framed


def test_copies_of_java_and_clones_of_a_compiler() -> None:
    assert copies("jbyte_disjoint_arraycopy_avx3") and copies("memcpy_own.constprop.0")
    assert not copies("generic_arraycopy") and not copies("StubRoutines (2)")


def test_lines_are_looked_up_for_no_sample() -> None:
    UserCode().find_lines([{"samples": 1}, {"samples": 1, "site": None}])
