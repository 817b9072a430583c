"""Many records in one file: what is whole is read, whatever became of the rest."""

import gzip
import subprocess
import time
from pathlib import Path

import pytest
from builders.sweep import kept, small
from copyscope.record import records_file, store
from copyscope.record.store import RecordError

RECORDS = small()
PARTS = [store.compressed_line(record) for record in RECORDS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / records_file.NAME


def numbers(path: Path) -> list[int]:
    return [line.number for line in records_file.read(path) if line.record is not None]


def test_what_was_appended_is_read_here_and_by_zcat(path: Path) -> None:
    for record in RECORDS:
        records_file.append(path, record)
    assert kept(path.parent) == RECORDS
    shown = subprocess.run(["zcat", str(path)], capture_output=True, check=True).stdout
    assert [store.parse(line.decode(), "") for line in shown.splitlines()] == RECORDS


@pytest.mark.parametrize("cut", [1, 7, 300, len(PARTS[-1]) - 1])
def test_a_torn_end_is_named_and_cut_off_and_nothing_else(path: Path, cut: int) -> None:
    path.write_bytes(b"".join(PARTS)[:-cut])
    *whole, torn = records_file.read(path)
    assert [line.record for line in whole] == RECORDS[:-1]
    assert (torn.record, torn.name) == (None, "line 4") and torn.problem.startswith("truncated")
    assert records_file.resume(path) == whole
    assert path.read_bytes() == b"".join(PARTS[:-1])
    records_file.append(path, RECORDS[-1])
    assert path.read_bytes() == b"".join(PARTS)


@pytest.mark.parametrize("at", range(4))
def test_a_damaged_line_hides_no_other(path: Path, at: int) -> None:
    spoiled = bytearray(PARTS[at])
    spoiled[len(spoiled) // 2] ^= 0x55
    path.write_bytes(b"".join([*PARTS[:at], bytes(spoiled), *PARTS[at + 1 :]]))
    assert numbers(path) == [number for number in (1, 2, 3, 4) if number != at + 1]
    size = path.stat().st_size
    records_file.resume(path)
    assert path.stat().st_size == size or at == 3


def test_many_empty_members_take_no_longer_for_being_many(path: Path) -> None:
    path.write_bytes(gzip.compress(b"", mtime=0) * 100_000 + PARTS[0])
    began = time.process_time()
    assert [line.record for line in records_file.read(path)] == [RECORDS[0]]
    assert time.process_time() - began < 10


def test_what_is_no_file_of_records_is_one_line(path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        records_file.read(path)
    path.write_bytes(b"not compressed")
    (line,) = records_file.read(path)
    assert line.problem.startswith("damaged, or not compressed")
