"""Copies in a watched program's own memory: which functions copy, where these are, and what is not known."""

import ctypes
import mmap
import os
import platform
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.watched import watched_record
from copyscope.errors import RunError
from copyscope.judge import advice
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.run.code_file import STATIC, parse_mapping
from copyscope.run.elf import NAME_MAX, NT_GNU_BUILD_ID, SHT_NOTE, SHT_SYMTAB, STT_FUNC, TABLES_MAX, ElfFile
from copyscope.run.user_code import GENERATED, GONE, ONE_OF_MANY, UserCode
from copyscope.show import first_screen, watch
from copyscope.taxonomy.samples import folded_stacks, to_record, user_code
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.taxonomy.user_copies import copies, is_call, is_repeated_move
from rich.console import Console

Record = dict[str, Any]

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to open /proc/PID/map_files")
PROGRAM = """
#include <string.h>
#include <unistd.h>
static char from[64], to[64];
int main(void) { volatile size_t n = 64; memcpy(to, from, n); return read(0, to, 1) < 0; }
"""


@pytest.mark.parametrize(
    "name",
    [
        *("memcpy", "memmove", "mempcpy", "bcopy", "wmemcpy", "strcpy", "stpncpy", "memcpy@@GLIBC_2.14"),
        *("__memmove_avx_unaligned_erms", "__memcpy_chk", "__mempcpy_evex_unaligned", "__memcpy_generic"),
        *("runtime.memmove", "_ZN17compiler_builtins3mem6memcpy17h0123456789abcdefE", "__intel_memcpy"),
    ],
)
def test_functions_that_copy(name: str) -> None:
    assert copies(name)


@pytest.mark.parametrize(
    "name", ["memset", "memcmp", "strlen", "main", "copy", "my_memcpy_stats", "ngx_cpymem"]
)
def test_functions_of_which_nobody_knows_that_they_only_copy(name: str) -> None:
    assert not copies(name)


def test_the_instruction_that_copies() -> None:
    assert [is_repeated_move(code) for code in (b"\xf3\xa4\xc3", b"\xf3\x48\xa5", b"\xf3\xa5\x90")] == [
        True
    ] * 3
    assert not is_repeated_move(b"\xf3\xaa\xc3")  # rep stosb fills


def address_of(function: str) -> int:
    """Where this process would go if it called a function of libc: the variant for this processor."""
    found = ctypes.cast(getattr(ctypes.CDLL(None), function), ctypes.c_void_p).value
    assert found is not None
    return found


def sample(pid: int, address: int, count: int = 1) -> Record:
    row: Record = {"side": "target", "event": "cpu-clock", "frames": [], "samples": count, "weight": count}
    row["weight_squared"] = float(count)
    return row | {"pid": pid, "address": address, "back": 0, "framed_back": 0}


@NEEDS_ROOT
def test_the_variant_of_memmove_that_this_process_uses_is_found() -> None:
    """dlsym(3) says where that is: the end of the function is where the unwind table has it."""
    code, rows = (
        UserCode(),
        [sample(os.getpid(), address_of(name)) for name in ("memmove", "memcpy", "qsort")],
    )
    code.look([os.getpid()])
    code.name(rows)
    assert [row["unknown"] for row in rows] == [None] * 3
    assert all(row["caller"] is None and row["uncalled"] for row in rows if row["copy"])  # from nowhere
    assert all("libc" in Path(row["code"]).name and len(row["build_id"]) >= 16 for row in rows)
    assert rows[0]["copy"] and copies(rows[0]["copy"]) and copies(rows[1]["copy"] or "")
    assert rows[2]["copy"] is None


def test_what_nobody_can_name() -> None:
    code = UserCode()
    rows = [sample(2**22 + 1, 0x1000), sample(os.getpid(), 1)]
    code.name(rows)
    assert rows[0]["unknown"] == GONE
    assert rows[1]["unknown"] is not None and rows[1]["copy"] is None
    assert parse_mapping("7f00-7f10 rw-p 00000000 00:00 0 [heap]") is None
    made = parse_mapping("7f00-7f10 r-xp 00002000 fe:01 12 /a b (deleted)")
    assert made is not None and (made.begin, made.offset, made.inode, made.path) == (
        *(0x7F00, 0x2000, 12),
        "/a b (deleted)",
    )


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("options", [(), ("-s",), ("-static",), ("-static", "-s")])
def test_a_stripped_program_is_known_if_its_memcpy_is_that_of_libc(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    program = tmp_path / "p"
    subprocess.run(["cc", "-O1", *options, "-o", program, tmp_path / "p.c"], check=True, timeout=30)
    child = subprocess.Popen([program], stdin=subprocess.PIPE)
    try:
        while str(program) not in Path(f"/proc/{child.pid}/maps").read_text():
            pass
        code = UserCode()
        code.look([child.pid])
        own = next(file for file in code.files() if file.name == str(program))
        assert own.why == (STATIC if options == ("-static", "-s") else None)
    finally:
        child.communicate(b"")


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(4), b"\x7fELF\x01\x01" + bytes(60)]
)
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(RunError):
        ElfFile(lambda at, count: data[at : at + count])


def test_a_table_that_claims_to_be_huge_is_refused() -> None:
    header = bytearray(Path("/proc/self/exe").read_bytes()[:64])
    header[54:62] = b"\x38\x00\x00\x00\xff\xff\xff\xff"  # no segments, 65,535 sections of 65,535 bytes
    with pytest.raises(RunError, match="MiB"):
        ElfFile(lambda at, count: bytes(header[at : at + count]))


def elf_with(sections: list[tuple[int, int, int]], content: bytes) -> ElfFile:
    """Of sections (kind, place in the content, size), and a first one whose names are all of it."""
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", 64)
    header = header.ljust(58, b"\0") + struct.pack("<3H", 64, 1 + len(sections), 0)
    begin = 64 + 64 * (1 + len(sections))
    rows = [(3, begin, len(content)), *((kind, begin + at, size) for kind, at, size in sections)]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, size, 0, 0, 0, 0) for kind, at, size in rows
    )
    return ElfFile.of(header + table + content)


def test_an_elf_file_that_claims_what_no_linker_makes_is_read_in_bounds() -> None:
    """Names without an end, the same table many times, an id of 4 GiB: that ended the run, or never ended."""
    symbol = struct.pack("<IBBHQQ", 24, STT_FUNC, 0, 1, 0x1000, 16)
    made = elf_with([(SHT_SYMTAB, 0, 24)] * 100, symbol + b"x" * 10_000)
    names = [one.name for one in made.functions(SHT_SYMTAB)]
    assert names == ["x" * NAME_MAX] * TABLES_MAX
    note = struct.pack("<III", 4, 0xFFFFFFFF, NT_GNU_BUILD_ID) + b"GNU\0"
    assert elf_with([(SHT_NOTE, 0, 16)], note).build_id is None


def test_code_in_a_file_without_a_name_is_named_by_the_map_of_its_runtime() -> None:
    """.NET writes its code to a memfd. Without a map nothing is known."""
    path, file = Path(f"/tmp/perf-{os.getpid()}.map"), os.memfd_create("doublemapper")
    os.ftruncate(file, mmap.PAGESIZE)
    memory = mmap.mmap(file, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    maps = Path("/proc/self/maps").read_text().splitlines()
    begin = int(next(line for line in maps if "doublemapper" in line).partition("-")[0], 16)
    try:
        unnamed, named = sample(os.getpid(), begin), sample(os.getpid(), begin)
        UserCode().name([unnamed])
        path.write_text(f"{begin:x} 10 memmove\n")
        UserCode().name([named])
    finally:
        path.unlink(missing_ok=True)
        memory.close()
        os.close(file)
    assert unnamed["copy"] is None and unnamed["unknown"] == GENERATED
    assert named["copy"] == "memmove" and named["unknown"] is None


def test_of_more_files_than_are_looked_at_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copyscope.run.user_code.FILES_MAX", 0)
    row = sample(os.getpid(), address_of("memmove"))
    UserCode().name([row])
    assert row["copy"] is None and row["unknown"] == ONE_OF_MANY and "libc" in row["code"]


NAMED: Record = {"code": "/lib/libc.so.6", "build_id": "ab", "unknown": None}


def test_samples_in_functions_that_copy_are_the_account() -> None:
    rows = [
        {**sample(7, 1, 30), **NAMED, "copy": "memmove"},
        {**sample(7, 2, 60), **NAMED, "copy": None},
        {**sample(7, 3, 10), "code": "memory", "build_id": None, "copy": None, "unknown": GENERATED},
    ]
    made = to_record(rows, Taxonomy.load())
    assert [(row["category"], row["kind"], row["symbol"], row["samples"]) for row in made] == [
        ("gather", "account", "memmove", 30),
        ("user", "stage", "[user]", 70),
    ]
    assert folded_stacks(rows) == "target;[user] 70\ntarget;[user];memmove 30\n"
    assert [(row["file"], row["reason"], row["samples"], row["copy_samples"]) for row in user_code(rows)] == [
        ("/lib/libc.so.6", None, 90, 30),
        ("memory", GENERATED, 10, 0),
    ]


def with_user_code(unknown: int) -> Record:
    """A program a quarter of whose time is its own code: half of that copies, as far as it is known."""
    record = watched_record()
    (user,) = (row for row in record["samples"] if row["category"] == "user")
    half = {**user, **{key: user[key] / 2 for key in ("weight", "weight_squared")}}
    half["samples"] = user["samples"] // 2
    copy = {**half, "kind": "account", "category": "gather", "symbol": "memmove"}
    record["samples"] = [*(row for row in record["samples"] if row is not user), half, copy]
    row = {"event": user["event"], "build_id": None, "reason": None, "file": "/bin/x"}
    record["user_code"] = [
        {**row, "samples": user["samples"] - unknown, "copy_samples": half["samples"]},
        {**row, "samples": unknown, "copy_samples": 0, "reason": STATIC, "file": "/bin/y"},
    ]
    return record


def gather_of(record: Record) -> Record:
    (row,) = (row for row in record["ledger"] if row["account"] == "gather")
    return dict(row)


def test_the_row_of_its_own_copies() -> None:
    made = derive(with_user_code(0))
    row = gather_of(made)
    assert row["share"] == pytest.approx(0.125, abs=0.01) and row["ci"]["low_ns"] < row["cpu_ns"]
    assert row["bytes"] is None and "own memory" in row["reasons"]["bytes"]
    assert [one["name"] for one in made["identities"] if one["holds"] is False] == []
    assert "its own memcpy takes 1" in made["verdict"]["sentence"]


def test_with_much_that_nobody_can_name_the_row_has_its_bounds_and_the_books_balance() -> None:
    """An eighth of its time was seen to copy, another eighth is without a name: 75 and 150 of 600 samples."""
    everything = sum(row["samples"] for row in with_user_code(0)["user_code"])
    made = derive(with_user_code(everything // 2))
    row = gather_of(made)
    assert row["share"] is None and row["cpu_ns"] is None
    why = f"50 % of its time in user mode is in /bin/y: {STATIC}"
    assert row["reasons"]["share"] == f"10 to 29 % of its CPU time: {why}"
    ends = [row["ci"][end] / made["sides"]["target"]["cpu_ns"] for end in ("low_ns", "high_ns")]
    assert ends == pytest.approx([0.101, 0.286], abs=0.002)
    assert "its own memcpy takes 10 to 29 %" in made["verdict"]["sentence"]
    user = sum(one["share"] for one in made["stages"] if one["stage"] == "user")
    assert user == pytest.approx(0.25, abs=0.01)
    assert next(one["holds"] for one in made["identities"] if one["name"] == "target_rows") is True
    console = Console(width=100, color_system=None, record=True)
    watch.render(typed_whole(made), verbose=True, console=console)
    shown = console.export_text()
    assert re.search(r"^sum +100.0 %", shown, re.MULTILINE)
    assert "(program's own memcpy, of which only bounds are known, is in user)" in " ".join(shown.split())


def test_the_first_screen_says_who_calls_and_where() -> None:
    made = with_user_code(0)
    row = {"event": "cpu-clock", "copy": "memmove", "file": "/bin/x", "reason": None}
    made["user_callers"] = [
        {**row, "caller": "http2.writeData", "source": "/go/src/h2_bundle.go:4711", "samples": 62},
        {**row, "caller": "main.\x1b[2Jfill", "source": None, "samples": 33},
        {**row, "caller": None, "source": None, "reason": "no return address", "samples": 5},
    ]
    shown = Console(width=100, height=40, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(made)), shown)
    said = "62 % by http2.writeData (h2_bundle.go:4711), 33 % by main.\u241b[2Jfill, 5 % by callers that are"
    assert f"program's own memcpy: {said} not known" in " ".join(shown.export_text().split())


def test_a_record_of_before_has_no_such_row() -> None:
    record = watched_record()
    record.pop("user_code", None)
    assert [row for row in derive(record)["ledger"] if row["account"] == "gather"] == []


def of_ten_thousand(copies: int, nameless: int, user: int) -> Record:
    """10,000 samples: so many in code that copies, in code without a name, and in user mode at all."""
    record = watched_record()
    row = next(row for row in record["samples"] if row["category"] == "user")
    other = next(row for row in record["samples"] if row["category"] == "tcp_ip")
    into_kernel = next(row for row in record["samples"] if row["category"] == "copy_in")

    def part(of: Record, count: int, **more: Any) -> Record:
        weight = count * 60_000
        squared = {"weight_squared": float(count * 60_000**2)}
        return {**of, "samples": count, "weight": weight, **squared, **more}

    gather = {"kind": "account", "category": "gather", "symbol": "rep movs"}
    # The bytes that it sent take some time, too.
    sent = 300
    of_kernel = [part(into_kernel, sent), part(other, 10_000 - user - sent)]
    record["samples"] = [part(row, copies, **gather), part(row, user - copies), *of_kernel]
    record["samples"] = [one for one in record["samples"] if one["samples"]]
    code = {"event": row["event"], "build_id": None, "reason": None, "file": "/bin/x"}
    record["user_code"] = [
        {**code, "samples": user - nameless, "copy_samples": copies},
        {**code, "samples": nameless, "copy_samples": 0, "reason": STATIC, "file": "/bin/y"},
    ]
    return record


@pytest.mark.parametrize(
    ("copies", "nameless", "user", "words", "remedy"),
    [
        # A stripped static program of musl: a third of its time in `rep movs`, little without a name.
        (3300, 210, 3510, "32 to 36 %", ("maybe", "`sendmsg(2)` of several buffers saves up to 32 to 36 %")),
        # Node, Java, Go: nothing in user mode has a name, and there is not much of it.
        (0, 300, 300, "at most 4 %", ("no", "its own copies take at most 4 %")),
        # No sign of it, and no sign that there is none.
        (
            *(0, 1000, 1000, "at most 11 %"),
            ("n/a", "its own copies take at most 11 %: much of its code has no names"),
        ),
    ],
)
def test_a_bound_that_is_known_is_said(
    copies: int, nameless: int, user: int, words: str, remedy: tuple[str, str]
) -> None:
    full = derive(of_ten_thousand(copies, nameless, user))
    assert [one["name"] for one in full["identities"] if one["holds"] is False] == []
    assert gather_of(full)["reasons"]["share"].startswith(f"{words} of its CPU time: ")
    sentence = full["verdict"]["sentence"]
    assert f"its own memcpy takes {words}" in sentence
    assert "not sampled" not in sentence and "n/a" not in sentence
    made = advice.advise(full, None)
    (found,) = (one for one in made["remedies"] if one["name"] == "fewer user copies")
    assert (found["answer"], found["why"]) == remedy
    assert store.validate(full | {"advice": made}) == []
    shown = Console(width=100, height=40, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(full), shown)
    assert f"program's own memcpy {words} of its CPU time: " in " ".join(shown.export_text().split())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")
@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("9090 e8 01020304", True),  # call, 32 bits from here
        ("90 ff15 01020304", True),  # call *0x4030201(%rip): of a library
        ("9090909090 ffd0", True),  # call *%rax
        ("9090909090 ffe0", False),  # jmp *%rax
        ("9090 e9 01020304", False),  # jmp
        ("90909090909090", False),
        ("e8010203", False),  # the file ends
    ],
)
def test_before_a_return_address_stands_a_call(code: str, call: bool) -> None:
    assert is_call(bytes.fromhex(code)) is call


@NEEDS_ROOT
def test_a_file_whose_symbols_cannot_be_read_names_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RunError("a broken ELF file: a table of symbols without their names")

    code, row = UserCode(), sample(os.getpid(), address_of("memmove"))
    row["back"] = address_of("qsort")
    monkeypatch.setattr("copyscope.run.user_code.is_call", lambda _: True)
    monkeypatch.setattr("copyscope.run.code_file.File.function_at", broken)
    code.look([os.getpid()])
    code.name([row])
    assert row["copy"] is not None and row["caller"] is None and "a broken ELF file" in row["uncalled"]
