# SPDX-License-Identifier: GPL-2.0-only
"""Many records in one file: complete records are read even if others are damaged."""

import gzip
import subprocess
import time
from pathlib import Path

import pytest
from builders.sweep import kept, small
from copyscope.base.errors import RecordError
from copyscope.record import store

RECORDS = small()
COMPRESSED = [store.compressed_line(record) for record in RECORDS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / store.RECORDS_NAME


def numbers(path: Path) -> list[int]:
    return [line.number for line in store.read_lines(path) if line.record is not None]


def test_appended_records_are_read_by_copyscope_and_by_zcat(path: Path) -> None:
    for record in RECORDS:
        store.append_record(path, record)
    assert kept(path.parent) == RECORDS
    shown = subprocess.run(["zcat", str(path)], capture_output=True, check=True).stdout
    assert [store.parse(line.decode(), "") for line in shown.splitlines()] == RECORDS


@pytest.mark.parametrize("cut", [1, 7, 300, len(COMPRESSED[-1]) - 1])
def test_only_an_incomplete_last_record_is_named_and_cut_off(path: Path, cut: int) -> None:
    path.write_bytes(b"".join(COMPRESSED)[:-cut])
    *complete, torn = store.read_lines(path)
    assert [line.record for line in complete] == RECORDS[:-1]
    assert (torn.record, torn.name) == (None, "line 4") and torn.problem.startswith("truncated")
    assert store.resume_records(path) == complete
    assert path.read_bytes() == b"".join(COMPRESSED[:-1])
    store.append_record(path, RECORDS[-1])
    assert path.read_bytes() == b"".join(COMPRESSED)


@pytest.mark.parametrize("damaged_index", range(4))
def test_a_damaged_record_does_not_hide_other_records(path: Path, damaged_index: int) -> None:
    spoiled = bytearray(COMPRESSED[damaged_index])
    spoiled[len(spoiled) // 2] ^= 0x55
    path.write_bytes(
        b"".join([*COMPRESSED[:damaged_index], bytes(spoiled), *COMPRESSED[damaged_index + 1 :]])
    )
    assert numbers(path) == [number for number in (1, 2, 3, 4) if number != damaged_index + 1]
    size = path.stat().st_size
    store.resume_records(path)
    assert path.stat().st_size == size or damaged_index == 3


def test_many_empty_gzip_members_are_skipped_quickly(path: Path) -> None:
    path.write_bytes(gzip.compress(b"", mtime=0) * 100_000 + COMPRESSED[0])
    began = time.process_time()
    assert [line.record for line in store.read_lines(path)] == [RECORDS[0]]
    assert time.process_time() - began < 10


def test_a_missing_file_is_an_error_and_a_foreign_file_a_damaged_line(path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        store.read_lines(path)
    path.write_bytes(b"not compressed")
    (line,) = store.read_lines(path)
    assert line.problem.startswith("damaged, or not compressed")
