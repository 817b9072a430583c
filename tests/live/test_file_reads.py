"""Reading a file is a copy from the page cache, counted to the byte; sending it by reference is none."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from profiling import is_root
from programs import Record, bytes_of, hook_state, share_of, watch

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

Reads = dict[str, tuple[int, int]]  # direction -> calls, bytes

SENDS = paths.OUTPUT / "tests" / "sends"
BYTES = 1 << 16
READS = 4_000
# Reads a file again and again, and sends a little, as a run of nothing is invalid.
PROGRAM = """
import mmap, os, socket, sys
how, path, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sender, receiver = socket.socketpair()
direct = os.O_DIRECT if how == "direct" else 0
file, buffer = os.open(path, os.O_RDONLY | direct), mmap.mmap(-1, size)
whole = os.fstat(file).st_size // size
moved = 0
for number in range(count):
    at = number % whole * size
    if how == "read":
        os.lseek(file, at, 0)
        moved += len(os.read(file, size))
    elif how == "pread":
        moved += len(os.pread(file, size, at))
    elif how == "readv":
        os.lseek(file, at, 0)
        moved += os.readv(file, [buffer])
    elif how in ("preadv", "direct"):
        moved += os.preadv(file, [buffer], at)
    elif how == "mapped":
        with mmap.mmap(file, size, offset=at, prot=mmap.PROT_READ) as pages:
            moved += len(pages[:])
    else:
        moved += os.sendfile(sender.fileno(), file, at, size)
        left = size
        while left:
            left -= len(receiver.recv(left))
    if number % 16 == 0:
        sender.send(b"x")
        receiver.recv(1)
assert moved == count * size
"""


@pytest.fixture(scope="module")
def file() -> Path:
    """In the page cache, but for what is read past it."""
    path = Path.cwd() / ".output" / "tests" / "read"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * (64 * BYTES))
    return path


def read(how: str, file: Path, size: int = BYTES, count: int = READS) -> tuple[Record, Reads]:
    """The record of such a program, and its reads: Python makes some for itself."""
    words = ("--", sys.executable, "-S", "-E", "-c", PROGRAM, how, str(file), str(count), str(size))
    record = watch("--whole", *words)
    found: Reads = {}
    for row in record["volume"]:
        if row["protocol"] == "file":
            calls, moved = found.get(row["direction"], (0, 0))
            found[row["direction"]] = calls + row["calls"], moved + row["bytes"]
    return record, found


def rarely(how: str) -> Any:
    """One of several that decide the same."""
    return pytest.param(how, marks=pytest.mark.all)


@pytest.fixture(scope="module")
def by_python(file: Path) -> tuple[int, int]:
    """What Python reads for itself to run the same program."""
    return read("mapped", file, count=1)[1].get("file_read", (0, 0))


@pytest.mark.parametrize("how", [*map(rarely, ("read", "pread", "readv")), "preadv"])
def test_each_way_to_read_is_counted_to_the_byte(how: str, file: Path, by_python: tuple[int, int]) -> None:
    record, found = read(how, file)
    calls, moved = found["file_read"]
    assert (calls - by_python[0], moved - by_python[1]) == (READS, READS * BYTES)
    assert bytes_of(record, "file_read") == moved


@pytest.mark.parametrize("how", [rarely("mapped"), "sendfile"])
def test_what_is_mapped_or_sent_by_reference_is_no_read(
    how: str, file: Path, by_python: tuple[int, int]
) -> None:
    assert read(how, file)[1].get("file_read", (0, 0)) == by_python


@pytest.mark.all
def test_what_passes_the_cache_is_told_apart(file: Path, by_python: tuple[int, int]) -> None:
    try:
        record, found = read("direct", file, count=200)
    except AssertionError:
        pytest.skip("this file system has no O_DIRECT")
    assert found["direct_read"] == (200, 200 * BYTES)
    assert bytes_of(record, "file_read") == by_python[1]


def by(how: str, directory: Path) -> tuple[Record, dict[str, Any]]:
    """The record of a program that reads a file without calls of read, and what it says it did."""
    told = directory / how
    record = watch("--whole", "--", str(SENDS), how, "1", str(told))
    return record, json.loads(told.read_text())


def test_what_io_uring_reads_is_counted_to_the_byte(tmp_path: Path) -> None:
    record, told = by("uring_read", tmp_path)
    rows = [row for row in record["volume"] if row["direction"] == "file_read"]
    if hook_state(record, "uring_complete") != "attached":
        (row,) = (row for row in record["ledger"] if row["account"] == "file_read")
        assert row["bytes"] is None and "io_uring" in row["reasons"]["bytes"]
    else:
        found = [(row["calls"], row["bytes"]) for row in rows if row["syscall"] == "io_uring"]
        assert found == [(told["calls"], told["bytes"])]
        assert bytes_of(record, "file_read") == sum(row["bytes"] for row in rows) >= told["bytes"]


@pytest.mark.all
def test_what_aio_reads_is_not_known(tmp_path: Path) -> None:
    record, told = by("aio_read", tmp_path)
    (unseen,) = (row for row in record["volume"] if row["syscall"] == "io_submit")
    assert (unseen["direction"], unseen["calls"]) == ("unseen_read", told["calls"])
    (row,) = (row for row in record["ledger"] if row["account"] == "file_read")
    assert row["bytes"] is None and "AIO" in row["reasons"]["bytes"] and row["cpu_ns"] > 0


def test_a_program_that_does_nothing_else_has_its_time_there(file: Path) -> None:
    """Large reads: Python itself takes little."""
    record, _ = read("preadv", file, size=1 << 22, count=3_000)
    assert share_of(record, "file_read") > 0.6
