# SPDX-License-Identifier: GPL-2.0-only
"""Reading the directory of a sweep: records of two machines are refused, unusable records are named."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.documents import derive
from builders.sweep import SMALL, kept, small, store
from builders.watched import watched_record
from copyscope.base import paths
from copyscope.base.errors import UsageError
from copyscope.record.store import (
    RECORDS_NAME,
    SAME_MACHINE,
    append_record,
    iterate_lines,
    without_derived,
    write_records,
)
from copyscope.sweep import results
from copyscope.sweep.results import rewrite

Record = dict[str, Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return store(small(), tmp_path / "host" / "demo")


def file_of(directory: Path) -> Path:
    return directory / RECORDS_NAME


def change(directory: Path, **sections: Any) -> str:
    """Change keys of the first record, and return its id."""
    first, *others = kept(directory)
    for name, keys in sections.items():
        first[name] = first[name] | keys if isinstance(keys, dict) else keys
    write_records(file_of(directory), [first, *others])
    return str(first["run"]["id"])


def test_all_records_are_read_in_the_order_of_the_sweep(directory: Path, tmp_path: Path) -> None:
    loaded = results.load(directory)
    assert [run.raw.run.order for run in loaded.records] == [0, 1, 2, 3]
    assert loaded.experiment is None
    assert loaded.left_out == ()
    assert results.find(tmp_path) == [directory]


def test_a_watched_program_among_the_records_is_left_out_and_named(directory: Path) -> None:
    append_record(file_of(directory), derive(watched_record()))
    loaded = results.load(directory)
    assert len(loaded.records) == 4
    (left_out,) = loaded.left_out
    assert left_out.name == "line 5" and left_out.reason.startswith("a watched program")


@pytest.mark.parametrize("key", SAME_MACHINE)
def test_records_of_two_machines_are_refused_with_the_key_that_differs(directory: Path, key: str) -> None:
    other = {"pmu": ["other"], "cpus_online": 96}.get(key, "other")
    run_id = change(directory, machine={key: other})
    with pytest.raises(UsageError, match=rf"machine\.{key} differs: .*(other|96)") as error:
        results.load(directory)
    assert run_id in str(error.value)


def test_a_newer_schema_is_refused_and_not_left_out(directory: Path) -> None:
    change(directory, schema=99)
    with pytest.raises(UsageError, match=r"schema 99, but this copyscope reads up to 2"):
        results.load(directory)


def test_a_truncated_record_is_named_and_left_out(directory: Path) -> None:
    path = file_of(directory)
    path.write_bytes(path.read_bytes()[:-500])
    loaded = results.load(directory)
    assert len(loaded.records) == 3
    (entry,) = loaded.left_out
    assert (entry.name, entry.reason.split(":")[0]) == ("line 4", "truncated")


def test_a_record_without_a_section_is_named_and_left_out(directory: Path) -> None:
    broken, *others = kept(directory)
    del broken["ledger"]
    write_records(file_of(directory), [broken, *others])
    (entry,) = results.load(directory).left_out
    assert entry.reason.startswith("damaged: incomplete record (Object missing required field `ledger`")


def test_a_repeated_record_counts_once(directory: Path) -> None:
    append_record(file_of(directory), kept(directory)[0])
    loaded = results.load(directory)
    assert len(loaded.records) == 4
    assert [(entry.name, entry.reason) for entry in loaded.left_out] == [
        ("line 5", "the same run as line 1: counted once")
    ]


def test_a_planned_run_without_a_record_is_missing(directory: Path) -> None:
    (directory / "experiment.toml").write_text(SMALL)
    gone, *others = kept(directory)
    run_id = gone["run"]["id"]
    write_records(file_of(directory), others)
    assert [entry.name for entry in results.load(directory).left_out] == [run_id]
    attempt = {"run_id": run_id, "factors": {}, "repeat": 0, "reason": "sender: ended by SIGKILL"}
    torn = '{"run_id": "demo-'
    (directory / "failures.jsonl").write_text(f"{json.dumps(attempt)}\n{torn}")
    (entry,) = results.load(directory).left_out
    assert entry.reason == "missing: sender: ended by SIGKILL"


def test_an_invalid_run_is_kept(directory: Path) -> None:
    change(directory, verdict={"valid": False, "reasons": ["too short"]})
    loaded = results.load(directory)
    assert len(loaded.records) == 4
    assert len(loaded.invalid) == 1
    assert loaded.left_out == ()


def test_errors_without_a_sweep_or_a_record_name_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no records.jsonl.gz in it; give the directory of a sweep"):
        results.load(tmp_path)
    file_of(tmp_path).write_bytes(gzip.compress(b"{\n"))
    with pytest.raises(UsageError, match=r"no readable record; .*\(line 1: truncated"):
        results.load(tmp_path)


def test_a_record_with_only_raw_sections_is_derived_while_it_is_read(directory: Path) -> None:
    before = results.load(directory).records
    path = file_of(directory)
    size = path.stat().st_size
    full_records = kept(directory)
    assert rewrite(directory, without_derived) == (4, [record["run"]["id"] for record in full_records])
    assert {"verdict", "ledger", "identities"} <= full_records[0].keys() - kept(directory)[0].keys()
    assert results.load(directory).records == before
    assert path.stat().st_size < 0.8 * size


def test_committed_results_hold_raw_sections_and_few_generated_files() -> None:
    """Git holds only the plan, raw records, README and pictures of a reference sweep."""
    for sweep in results.find(paths.RESULTS):
        if paths.is_reference(sweep):
            files = subprocess.run(
                ["git", "-C", str(paths.ROOT), "ls-files", str(sweep)],
                capture_output=True,
                text=True,
                check=False,
            ).stdout.split()
            names = {Path(name).name for name in files if not name.endswith(".png")}
            assert names <= {"experiment.toml", RECORDS_NAME, "README.md"}
            first_record = next(iterate_lines(sweep / RECORDS_NAME)).record
            assert first_record is not None
            assert "simulated" in first_record or not first_record.keys() & {
                "verdict",
                "ledger",
                "stages",
                "identities",
            }
