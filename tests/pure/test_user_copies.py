# SPDX-License-Identifier: GPL-2.0-only
"""Copies in the memory of a watched program: copying functions, their addresses, and bounds of their time."""

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
from builders.documents import advise, derive, typed_whole, validate
from builders.watched import watched_record
from copyscope.base.errors import RunError
from copyscope.run.code_file import STATIC_STRIPPED, File, Mapping, parse_mapping
from copyscope.run.elf import (
    NAME_MAX_BYTES,
    NT_GNU_BUILD_ID,
    SHT_DYNSYM,
    SHT_NOTE,
    SHT_SYMTAB,
    STT_FUNC,
    TOO_LARGE,
    ElfFile,
    TableBudget,
)
from copyscope.run.processes import CpuBudget
from copyscope.run.user_code import GENERATED, GONE, TOO_MANY_FILES, UserCodeFinder
from copyscope.show import first_screen, watch
from copyscope.taxonomy.samples import folded_stacks, to_record, user_code, user_functions
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.taxonomy.user_code import copies, is_call, is_repeated_move
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
def test_copying_functions_are_recognised_by_name(name: str) -> None:
    assert copies(name)


@pytest.mark.parametrize(
    "name", ["memset", "memcmp", "strlen", "main", "copy", "my_memcpy_stats", "ngx_cpymem"]
)
def test_functions_that_may_do_more_than_copy_are_not_recognised(name: str) -> None:
    assert not copies(name)


def test_copying_instructions_are_recognised() -> None:
    assert [is_repeated_move(code) for code in (b"\xf3\xa4\xc3", b"\xf3\x48\xa5", b"\xf3\xa5\x90")] == [
        True
    ] * 3
    assert not is_repeated_move(b"\xf3\xaa\xc3")  # rep stosb fills


def address_of(function: str) -> int:
    """Return the address of a libc function in this process: the variant for this processor."""
    address = ctypes.cast(getattr(ctypes.CDLL(None), function), ctypes.c_void_p).value
    assert address is not None
    return address


def sample(pid: int, address: int, count: int = 1) -> Any:
    row: Record = {"side": "target", "event": "cpu-clock", "frames": [], "samples": count, "weight": count}
    row["weight_squared"] = float(count)
    return row | {"pid": pid, "address": address, "back": 0, "framed_back": 0}


@NEEDS_ROOT
def test_the_variant_of_memmove_for_this_processor_is_named() -> None:
    """dlsym(3) gives the beginning of the function, and the unwind table its end."""
    code, rows = (
        UserCodeFinder(),
        [sample(os.getpid(), address_of(name)) for name in ("memmove", "memcpy", "qsort")],
    )
    code.read_mappings([os.getpid()])
    code.name_samples(rows)
    assert [row["unknown"] for row in rows] == [None] * 3
    assert all(
        row["caller"] is None and row["uncalled"] for row in rows if row["copy"]
    )  # the invented samples have no return address
    assert all("libc" in Path(row["code"]).name and len(row["build_id"]) >= 16 for row in rows)
    assert rows[0]["copy"] and copies(rows[0]["copy"]) and copies(rows[1]["copy"] or "")
    assert rows[2]["copy"] is None


def test_a_sample_without_a_mapped_file_has_a_reason() -> None:
    code = UserCodeFinder()
    rows = [sample(2**22 + 1, 0x1000), sample(os.getpid(), 1)]
    code.name_samples(rows)
    assert rows[0]["unknown"] == GONE
    assert rows[1]["unknown"] is not None and rows[1]["copy"] is None
    assert parse_mapping("7f00-7f10 rw-p 00000000 00:00 0 [heap]") is None
    mapping = parse_mapping("7f00-7f10 r-xp 00002000 fe:01 12 /a b (deleted)")
    assert mapping is not None and (mapping.begin, mapping.offset, mapping.inode, mapping.path) == (
        *(0x7F00, 0x2000, 12),
        "/a b (deleted)",
    )


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("options", [(), ("-s",), ("-static",), ("-static", "-s")])
def test_only_a_stripped_static_program_hides_its_memcpy(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    program = tmp_path / "p"
    subprocess.run(["cc", "-O1", *options, "-o", program, tmp_path / "p.c"], check=True, timeout=30)
    child = subprocess.Popen([program], stdin=subprocess.PIPE)
    try:
        while str(program) not in Path(f"/proc/{child.pid}/maps").read_text():
            pass
        code = UserCodeFinder()
        code.read_mappings([child.pid])
        own = next(file for file in code.files() if file.name == str(program))
        assert own.why == (STATIC_STRIPPED if options == ("-static", "-s") else None)
    finally:
        child.communicate(b"")


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(4), b"\x7fELF\x01\x01" + bytes(60)]
)
def test_a_file_that_is_not_elf_is_refused(data: bytes) -> None:
    with pytest.raises(RunError):
        ElfFile(lambda at, count: data[at : at + count])


CRAFTED_MAPPING = Mapping(0x1000, 0x2000, 0, "0:0", 1, "/bin/crafted")


def elf_with(sections: list[tuple[int, int, int]], content: bytes, names: bytes | None = None) -> ElfFile:
    """Return an ELF file with sections (kind, offset in the content, size).

    `names`: string table. Without `names`, all content is a string table.
    """
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", 64)
    header = header.ljust(58, b"\0") + struct.pack("<3H", 64, 1 + len(sections), 0)
    begin = 64 + 64 * (1 + len(sections))
    table_of_names = (3, begin, len(content)) if names is None else (3, begin + len(content), len(names))
    rows = [table_of_names, *((kind, begin + offset, size) for kind, offset, size in sections)]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, 0, 0, 0, 0) for kind, offset, size in rows
    )
    return ElfFile.of(header + table + content + (names or b""))


def test_a_forged_elf_file_is_read_within_limits() -> None:
    """The files have names without an end, a hundred symbol tables, or a build id of 4 GiB."""
    symbol = struct.pack("<IBBHQQ", 24, STT_FUNC, 0, 1, 0x1000, 16)
    file = elf_with([(SHT_SYMTAB, 0, 24)] * 100, symbol + b"x" * 10_000)
    names = [function.name for function in file.functions(SHT_SYMTAB)]
    assert names == ["x" * NAME_MAX_BYTES]
    note = struct.pack("<III", 4, 0xFFFFFFFF, NT_GNU_BUILD_ID) + b"GNU\0"
    assert elf_with([(SHT_NOTE, 0, 16)], note).build_id is None


def test_tables_that_would_take_the_memory_of_root_are_refused() -> None:
    """Sixteen tables share the rows of 100,000 copying functions."""
    symbol = struct.pack("<IBBHQQ", 0, STT_FUNC, 0, 1, 0x1000, 16)
    names = b"memcpy\0".ljust(24, b"\0")
    rows = symbol * 100_000
    tables = [(kind, 0, len(rows)) for kind in (SHT_SYMTAB, SHT_DYNSYM) for _ in range(8)]
    file = File("/bin/crafted", 1, CRAFTED_MAPPING, TableBudget())
    file.elf = elf_with(tables, rows, names=names)
    file.read()
    assert file.why == TOO_LARGE and file.copies == []
    file.elf = elf_with([(SHT_SYMTAB, 0, 1 << 40)], rows[:24], names=names)
    assert [function.name for function in file.elf.functions(SHT_SYMTAB)] == ["memcpy"]


def test_all_files_of_a_run_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = struct.pack("<IBBHQQ", 0, STT_FUNC, 0, 1, 0x1000, 16)
    table = elf_with([(SHT_SYMTAB, 0, 2400)], symbol * 100)
    monkeypatch.setattr("copyscope.run.elf.ROWS_MAX", 250)
    budget = TableBudget()
    for number in range(3):
        file = File(f"/bin/{number}", 1, CRAFTED_MAPPING, budget)
        file.elf, table.budget = table, budget
        file.read()
        assert (file.why == TOO_LARGE) == (number == 2)


def test_reading_stops_when_its_cpu_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copyscope.run.elf.CPU_MAX_S", 0.0)
    symbol = struct.pack("<IBBHQQ", 0, STT_FUNC, 0, 1, 0x1000, 16)
    with pytest.raises(RunError, match=TOO_LARGE):
        list(elf_with([(SHT_SYMTAB, 0, 24)], symbol).functions(SHT_SYMTAB))


def test_mappings_are_read_again_soon_after_a_program_starts() -> None:
    """A program of two seconds may load libcrypto after its first segment."""
    budget, spent = CpuBudget(1e-6, free_s=10.0), CpuBudget(1e-6)
    for used in (budget, spent):
        with used:
            sum(range(10_000))
    assert budget.allows_use() and not spent.allows_use()


def test_code_in_a_memfd_is_named_by_the_perf_map_of_its_runtime() -> None:
    """.NET writes its code to a memfd. Without a perf map, the code has no names."""
    path, file = Path(f"/tmp/perf-{os.getpid()}.map"), os.memfd_create("doublemapper")
    os.ftruncate(file, mmap.PAGESIZE)
    memory = mmap.mmap(file, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    maps = Path("/proc/self/maps").read_text().splitlines()
    begin = int(next(line for line in maps if "doublemapper" in line).partition("-")[0], 16)
    try:
        unnamed, named = sample(os.getpid(), begin), sample(os.getpid(), begin)
        UserCodeFinder().name_samples([unnamed])
        path.write_text(f"{begin:x} 10 memmove\n")
        UserCodeFinder().name_samples([named])
    finally:
        path.unlink(missing_ok=True)
        memory.close()
        os.close(file)
    assert unnamed["copy"] is None and unnamed["unknown"] == GENERATED
    assert named["copy"] == "memmove" and named["unknown"] is None


def test_files_above_the_limit_are_reported_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copyscope.run.user_code.FILES_MAX", 0)
    row = sample(os.getpid(), address_of("memmove"))
    UserCodeFinder().name_samples([row])
    assert row["copy"] is None and row["unknown"] == TOO_MANY_FILES and "libc" in row["code"]


NAMED: Record = {"code": "/lib/libc.so.6", "build_id": "ab", "unknown": None}


def test_samples_in_copying_functions_belong_to_the_account_gather() -> None:
    rows: Any = [
        {**sample(7, 1, 30), **NAMED, "copy": "memmove"},
        {**sample(7, 2, 60), **NAMED, "copy": None},
        {**sample(7, 3, 10), "code": "memory", "build_id": None, "copy": None, "unknown": GENERATED},
    ]
    record_rows = to_record(rows, Taxonomy.load())
    assert [(row["category"], row["kind"], row["symbol"], row["samples"]) for row in record_rows] == [
        ("gather", "account", "memmove", 30),
        ("user", "stage", "[user]", 70),
    ]
    assert folded_stacks(rows) == "target;[user] 70\ntarget;[user];memmove 30\n"
    assert [(row["file"], row["reason"], row["samples"], row["copy_samples"]) for row in user_code(rows)] == [
        ("/lib/libc.so.6", None, 90, 30),
        ("memory", GENERATED, 10, 0),
    ]


def with_user_code(unknown: int) -> Record:
    """Return a program with a quarter of its time in user mode, half of it in copying functions."""
    record = watched_record()
    (user,) = (row for row in record["samples"] if row["category"] == "user")
    half = {**user, **{key: user[key] / 2 for key in ("weight", "weight_squared")}}
    half["samples"] = user["samples"] // 2
    copy = {**half, "kind": "account", "category": "gather", "symbol": "memmove"}
    record["samples"] = [*(row for row in record["samples"] if row is not user), half, copy]
    row = {"event": user["event"], "build_id": None, "reason": None, "file": "/bin/x"}
    record["user_code"] = [
        {**row, "samples": user["samples"] - unknown, "copy_samples": half["samples"]},
        {**row, "samples": unknown, "copy_samples": 0, "reason": STATIC_STRIPPED, "file": "/bin/y"},
    ]
    return record


def gather_of(full: Record) -> Record:
    (row,) = (row for row in full["ledger"] if row["account"] == "gather")
    return dict(row)


def test_copies_in_the_programs_memory_have_a_row_without_bytes() -> None:
    full = derive(with_user_code(0))
    row = gather_of(full)
    assert row["share"] == pytest.approx(0.125, abs=0.01) and row["ci"]["low_ns"] < row["cpu_ns"]
    assert row["bytes"] is None and "own memory" in row["reasons"]["bytes"]
    assert [check["name"] for check in full["identities"] if check["holds"] is False] == []
    assert "memcpy inside the program takes 1" in full["verdict"]["sentence"]


def test_much_code_without_names_gives_bounds_and_all_sums_still_agree() -> None:
    """Copying functions have an eighth of the samples, and code without names has another eighth."""
    user_samples = sum(row["samples"] for row in with_user_code(0)["user_code"])
    full = derive(with_user_code(user_samples // 2))
    row = gather_of(full)
    assert row["share"] is None and row["cpu_ns"] is None
    reason = f"50 % of its time in user mode is in /bin/y: {STATIC_STRIPPED}"
    assert row["reasons"]["share"] == f"10 to 29 % of its CPU time: {reason}"
    ends = [row["ci"][end] / full["sides"]["target"]["cpu_ns"] for end in ("low_ns", "high_ns")]
    assert ends == pytest.approx([0.101, 0.286], abs=0.002)
    assert "memcpy inside the program takes 10 to 29 %" in full["verdict"]["sentence"]
    user = sum(row_of_list["share"] for row_of_list in full["stages"] if row_of_list["stage"] == "user")
    assert user == pytest.approx(0.25, abs=0.01)
    assert (
        next(
            row_of_list["holds"] for row_of_list in full["identities"] if row_of_list["name"] == "target_rows"
        )
        is True
    )
    console = Console(width=100, color_system=None, record=True)
    watch.render(typed_whole(full), verbose=True, console=console)
    shown = console.export_text()
    assert re.search(r"^sum +100.0 %", shown, re.MULTILINE)
    assert "(program's own memcpy: part of user, only bounds are known)" in " ".join(shown.split())


def test_the_first_screen_names_callers_and_their_lines() -> None:
    record = with_user_code(0)
    row = {"event": "cpu-clock", "copy": "memmove", "file": "/bin/x", "reason": None}
    record["user_callers"] = [
        {**row, "caller": "http2.writeData", "source": "/go/src/h2_bundle.go:4711", "samples": 62},
        {**row, "caller": "main.\x1b[2Jfill", "source": None, "samples": 33},
        {**row, "caller": None, "source": None, "reason": "no return address", "samples": 5},
    ]
    shown = Console(width=100, height=40, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(record)), shown)
    callers = (
        "62 % by http2.writeData (h2_bundle.go:4711), 33 % by main.\u241b[2Jfill, 5 % by callers that are"
    )
    assert f"program's own memcpy: {callers} not known" in " ".join(shown.export_text().split())


def test_the_first_screen_names_three_functions_of_the_program() -> None:
    """Functions that copy are left out, because they have rows. At most three functions are named."""
    record = with_user_code(0)
    samples = sum(row["samples"] for row in record["samples"] if row["side"] == "target")
    counts = {
        "parse": samples // 4,
        "main.\x1b[2Jhash": samples // 10,
        "log": samples // 20,
        "idle": samples // 25,
    }
    rows: list[Any] = [
        {"event": "cpu-clock", "code": "/bin/x", "function": name, "samples": count}
        for name, count in counts.items()
    ]
    memcpy: Any = {**rows[0], "function": "memcpy", "copy": "memcpy", "samples": samples}
    nameless: Any = {**rows[0], "function": None}
    record["user_functions"] = user_functions([memcpy, nameless, *reversed(rows)])
    shown = Console(width=100, height=40, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(record)), shown)
    assert "own code: parse 25 %, main.\u241b[2Jhash 10 %, log 5 % of its CPU time" in shown.export_text()


def test_an_older_record_without_user_code_has_no_row_of_user_copies() -> None:
    record = watched_record()
    record.pop("user_code", None)
    assert [row for row in derive(record)["ledger"] if row["account"] == "gather"] == []


def with_ten_thousand_samples(copies: int, nameless: int, user: int) -> Record:
    """Return a program with 10,000 samples. `nameless`: samples in code without names."""
    record = watched_record()
    row = next(row for row in record["samples"] if row["category"] == "user")
    other = next(row for row in record["samples"] if row["category"] == "tcp_ip")
    copy_in = next(row for row in record["samples"] if row["category"] == "copy_in")

    def scaled(template: Record, count: int, **changes: Any) -> Record:
        weight = count * 60_000
        squared = {"weight_squared": float(count * 60_000**2)}
        return {**template, "samples": count, "weight": weight, **squared, **changes}

    gather = {"kind": "account", "category": "gather", "symbol": "rep movs"}
    # The copy of the sent bytes takes some time, too.
    sent = 300
    kernel_rows = [scaled(copy_in, sent), scaled(other, 10_000 - user - sent)]
    record["samples"] = [scaled(row, copies, **gather), scaled(row, user - copies), *kernel_rows]
    record["samples"] = [sample_row for sample_row in record["samples"] if sample_row["samples"]]
    code = {"event": row["event"], "build_id": None, "reason": None, "file": "/bin/x"}
    record["user_code"] = [
        {**code, "samples": user - nameless, "copy_samples": copies},
        {**code, "samples": nameless, "copy_samples": 0, "reason": STATIC_STRIPPED, "file": "/bin/y"},
    ]
    return record


@pytest.mark.parametrize(
    ("copies", "nameless", "user", "words", "remedy"),
    [
        # A stripped static program with musl: a third of its time is in `rep movs`, little lacks a name.
        (3300, 210, 3510, "32 to 36 %", ("maybe", "`sendmsg(2)` of several buffers saves at most 37 %")),
        # Node, Java, Go: nothing in user mode has a name, but user mode takes little time.
        (0, 300, 300, "at most 4 %", ("no", "its own copies take at most 4 %")),
        # The samples neither show nor exclude copies.
        (
            *(0, 1000, 1000, "at most 11 %"),
            ("n/a", "its own copies take at most 11 %: much of its code has no names"),
        ),
    ],
)
def test_known_bounds_of_user_copies_are_shown(
    copies: int, nameless: int, user: int, words: str, remedy: tuple[str, str]
) -> None:
    full = derive(with_ten_thousand_samples(copies, nameless, user))
    assert [row["name"] for row in full["identities"] if row["holds"] is False] == []
    assert gather_of(full)["reasons"]["share"].startswith(f"{words} of its CPU time: ")
    sentence = full["verdict"]["sentence"]
    assert f"memcpy inside the program takes {words}" in sentence
    assert "not sampled" not in sentence and "n/a" not in sentence
    advice = advise(full, None)
    (user_copies,) = (row for row in advice["remedies"] if row["name"] == "fewer user copies")
    assert (user_copies["answer"], user_copies["why"]) == remedy
    # A saving of which only the bounds are known is an answer, too.
    helps = "`sendmsg(2)` of several buffers may save at most 37 % of its CPU time"
    assert (helps in advice["answer"]) == (remedy[0] == "maybe"), advice["answer"]
    assert validate(full | {"advice": advice}) == []
    shown = Console(width=100, height=40, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(full), shown)
    assert f"program's own memcpy {words} of its CPU time: " in " ".join(shown.export_text().split())


def test_a_known_server_without_a_setting_gets_no_remedy() -> None:
    """Bounds of 32 to 36 % are known, but Redis has no setting for fewer copies."""
    raw = with_ten_thousand_samples(3300, 210, 3510)
    raw["target"] |= {"pids": [{"pid": 4711, "comm": "redis-server"}], "comm": "redis-server"}
    rows = {row["name"]: row for row in advise(derive(raw), None)["remedies"]}
    remedy = rows["fewer user copies"]
    assert (remedy["answer"], remedy["how"]) == ("no", None)
    assert remedy["why"] == "Redis has no such setting (in its code: at most 37 %)"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")
@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("9090 e8 01020304", True),  # call with a 32-bit offset
        ("90 ff15 01020304", True),  # call *0x4030201(%rip), into a library
        ("9090909090 ffd0", True),  # call *%rax
        ("9090909090 ffe0", False),  # jmp *%rax
        ("9090 e9 01020304", False),  # jmp
        ("90909090909090", False),
        ("e8010203", False),  # cut off at the end of the file
    ],
)
def test_the_instruction_before_a_return_address_must_be_a_call(code: str, call: bool) -> None:
    assert is_call(bytes.fromhex(code)) is call


@NEEDS_ROOT
def test_unreadable_symbols_leave_the_caller_unknown_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RunError("a broken ELF file: a table of symbols without their names")

    code, row = UserCodeFinder(), sample(os.getpid(), address_of("memmove"))
    row["back"] = address_of("qsort")
    monkeypatch.setattr("copyscope.run.user_code.is_call", lambda _: True)
    monkeypatch.setattr("copyscope.run.code_file.File.function_at", broken)
    code.read_mappings([os.getpid()])
    code.name_samples([row])
    assert row["copy"] is not None and row["caller"] is None and "a broken ELF file" in row["uncalled"]
