# SPDX-License-Identifier: GPL-2.0-only
"""Reading a file copies from the page cache, counted to the byte. Sending a file by reference does not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import is_root
from programs import Record, bytes_of, hook_state, share_of, watch

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

Reads = dict[str, tuple[int, int]]  # direction of a read -> (calls, bytes)

SENDS = paths.OUTPUT / "tests" / "sends"
BYTES = 1 << 16
READS = 4_000
# Reads a file again and again. It also sends a little, because a run in which nothing moves is invalid.
PROGRAM = """
import mmap, os, socket, sys
how, path, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sender, receiver = socket.socketpair()
direct = os.O_DIRECT if how == "direct" else 0
file, buffer = os.open(path, os.O_RDONLY | direct), mmap.mmap(-1, size)
blocks = os.fstat(file).st_size // size
moved = 0
for number in range(count):
    at = number % blocks * size
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
    """File whose bytes are in the page cache."""
    path = Path.cwd() / ".output" / "tests" / "read"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * (64 * BYTES))
    return path


def read(how: str, file: Path, size: int = BYTES, count: int = READS) -> tuple[Record, Reads]:
    """Watch PROGRAM. Return the record and the reads, which include some by Python itself."""
    command = ("--", sys.executable, "-S", "-E", "-c", PROGRAM, how, str(file), str(count), str(size))
    record = watch("--whole", *command)
    reads: Reads = {}
    for row in record["volume"]:
        if row["protocol"] == "file":
            calls, moved = reads.get(row["direction"], (0, 0))
            reads[row["direction"]] = calls + row["calls"], moved + row["bytes"]
    return record, reads


def in_all_only(how: str) -> Any:
    """Mark a parameter as `all`, because another one proves the same."""
    return pytest.param(how, marks=pytest.mark.all)


@pytest.fixture(scope="module")
def by_python(file: Path) -> tuple[int, int]:
    """Calls and bytes that Python itself reads while it runs PROGRAM."""
    return read("mapped", file, count=1)[1].get("file_read", (0, 0))


@pytest.mark.parametrize("how", [*map(in_all_only, ("read", "pread", "readv")), "preadv"])
def test_each_way_to_read_is_counted_to_the_byte(how: str, file: Path, by_python: tuple[int, int]) -> None:
    record, reads = read(how, file)
    calls, moved = reads["file_read"]
    assert (calls - by_python[0], moved - by_python[1]) == (READS, READS * BYTES)
    assert bytes_of(record, "file_read") == moved


@pytest.mark.all
@pytest.mark.parametrize("how", ["mapped", "sendfile"])
def test_a_mapped_file_or_sendfile_does_not_count_as_a_read(
    how: str, file: Path, by_python: tuple[int, int]
) -> None:
    assert read(how, file)[1].get("file_read", (0, 0)) == by_python


@pytest.mark.all
def test_direct_reads_are_counted_separately(file: Path, by_python: tuple[int, int]) -> None:
    try:
        record, reads = read("direct", file, count=200)
    except AssertionError:
        pytest.skip("this file system has no O_DIRECT")
    assert reads["direct_read"] == (200, 200 * BYTES)
    assert bytes_of(record, "file_read") == by_python[1]


def watch_sends(how: str, directory: Path) -> tuple[Record, dict[str, Any]]:
    """Watch `sends HOW`, which reads a file without calls of read.

    Return the record and the program's own counts.
    """
    report_path = directory / how
    record = watch("--whole", "--", str(SENDS), how, "1", str(report_path))
    return record, json.loads(report_path.read_text())


def test_reads_by_io_uring_are_counted_to_the_byte(tmp_path: Path) -> None:
    record, counts = watch_sends("uring_read", tmp_path)
    rows = [row for row in record["volume"] if row["direction"] == "file_read"]
    if hook_state(record, "uring_complete") != "attached":
        (row,) = (row for row in record["ledger"] if row["account"] == "file_read")
        assert row["bytes"] is None and "io_uring" in row["reasons"]["bytes"]
    else:
        ring_rows = [(row["calls"], row["bytes"]) for row in rows if row["syscall"] == "io_uring"]
        assert ring_rows == [(counts["calls"], counts["bytes"])]
        assert bytes_of(record, "file_read") == sum(row["bytes"] for row in rows) >= counts["bytes"]


@pytest.mark.all
def test_bytes_read_by_aio_are_unknown(tmp_path: Path) -> None:
    record, counts = watch_sends("aio_read", tmp_path)
    (unseen,) = (row for row in record["volume"] if row["syscall"] == "io_submit")
    assert (unseen["direction"], unseen["calls"]) == ("unseen_read", counts["calls"])
    (row,) = (row for row in record["ledger"] if row["account"] == "file_read")
    assert row["bytes"] is None and "AIO" in row["reasons"]["bytes"] and row["cpu_ns"] > 0


@pytest.mark.all
def test_a_program_that_only_reads_files_spends_its_time_in_file_read(file: Path) -> None:
    """Reads are large, so that Python itself takes little time."""
    record, _ = read("preadv", file, size=1 << 22, count=3_000)
    assert share_of(record, "file_read") > 0.6
