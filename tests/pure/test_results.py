"""A sweep's directory: what belongs together is read, what does not is refused or named."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.sweep import SMALL, kept, small, store
from copyscope import paths
from copyscope.errors import UsageError
from copyscope.record import records_file
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.sweep import results
from copyscope.sweep.rewriting import rewrite, strip

Record = dict[str, Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return store(small(), tmp_path / "host" / "demo")


def file_of(directory: Path) -> Path:
    return directory / records_file.NAME


def change(directory: Path, **sections: Any) -> str:
    """Rewrite the first record with other keys: its id."""
    first, *others = kept(directory)
    for name, keys in sections.items():
        first[name] = first[name] | keys if isinstance(keys, dict) else keys
    records_file.write(file_of(directory), [first, *others])
    return str(first["run"]["id"])


def test_everything_is_read_in_the_order_of_the_sweep(directory: Path, tmp_path: Path) -> None:
    found = results.load(directory)
    assert [one.raw.run.order for one in found.records] == [0, 1, 2, 3]
    assert found.experiment is None
    assert found.left_out == ()
    assert results.find(tmp_path) == [directory]


@pytest.mark.parametrize("key", SAME_MACHINE)
def test_records_of_two_machines_are_refused_by_the_key(directory: Path, key: str) -> None:
    other = {"pmu": ["other"], "cpus_online": 96}.get(key, "other")
    run_id = change(directory, machine={key: other})
    with pytest.raises(UsageError, match=rf"machine\.{key} differs: .*(other|96)") as error:
        results.load(directory)
    assert run_id in str(error.value)


def test_a_newer_schema_is_refused_and_not_left_out(directory: Path) -> None:
    change(directory, schema=99)
    with pytest.raises(UsageError, match=r"schema 99, this copyscope reads up to 2"):
        results.load(directory)


def test_a_truncated_record_is_named_and_left_out(directory: Path) -> None:
    path = file_of(directory)
    path.write_bytes(path.read_bytes()[:-500])
    found = results.load(directory)
    assert len(found.records) == 3
    (entry,) = found.left_out
    assert (entry.name, entry.reason.split(":")[0]) == ("line 4", "truncated")


def test_a_record_without_a_section_is_named_and_left_out(directory: Path) -> None:
    broken, *others = kept(directory)
    del broken["ledger"]
    records_file.write(file_of(directory), [broken, *others])
    (entry,) = results.load(directory).left_out
    assert entry.reason.startswith("damaged: not a whole record: Object missing required field `ledger`")


def test_the_same_run_twice_counts_once(directory: Path) -> None:
    records_file.append(file_of(directory), kept(directory)[0])
    found = results.load(directory)
    assert len(found.records) == 4
    assert [(entry.name, entry.reason) for entry in found.left_out] == [
        ("line 5", "the same run as line 1: counted once")
    ]


def test_a_run_that_the_experiment_wants_and_nobody_made_is_missing(directory: Path) -> None:
    (directory / "experiment.toml").write_text(SMALL)
    gone, *others = kept(directory)
    run_id = gone["run"]["id"]
    records_file.write(file_of(directory), others)
    assert [entry.name for entry in results.load(directory).left_out] == [run_id]
    attempt = {"run_id": run_id, "factors": {}, "repeat": 0, "reason": "sender: ended by SIGKILL"}
    torn = '{"run_id": "demo-'
    (directory / "failures.jsonl").write_text(f"{json.dumps(attempt)}\n{torn}")
    (entry,) = results.load(directory).left_out
    assert entry.reason == "missing: sender: ended by SIGKILL"


def test_an_invalid_run_is_kept(directory: Path) -> None:
    change(directory, verdict={"valid": False, "reasons": ["too short"]})
    found = results.load(directory)
    assert len(found.records) == 4
    assert len(found.invalid) == 1
    assert found.left_out == ()


def test_no_sweep_and_no_record_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no records.jsonl.gz in it: give the directory of a sweep"):
        results.load(tmp_path)
    file_of(tmp_path).write_bytes(gzip.compress(b"{\n"))
    with pytest.raises(UsageError, match=r"no record that can be read: .*\(line 1: truncated"):
        results.load(tmp_path)


def test_a_record_of_raw_sections_alone_is_derived_as_it_is_read(directory: Path) -> None:
    before = results.load(directory).records
    path = file_of(directory)
    size = path.stat().st_size
    whole = kept(directory)
    assert rewrite(directory, strip) == (4, [one["run"]["id"] for one in whole])
    assert {"verdict", "ledger", "identities"} <= whole[0].keys() - kept(directory)[0].keys()
    assert results.load(directory).records == before
    assert path.stat().st_size < 0.8 * size


def test_what_came_with_the_tree_is_measured_not_made() -> None:
    """Reference results: raw sections, and of what `make report` makes of them what a browser shows."""
    shown = {"README.md", "results.csv", "ledger.csv", "modelled.csv"}
    for sweep in results.find(paths.RESULTS):
        if paths.is_reference(sweep):
            files = subprocess.run(
                ["git", "-C", str(paths.ROOT), "ls-files", str(sweep)],
                capture_output=True,
                text=True,
                check=False,
            ).stdout.split()
            names = {Path(name).name for name in files if not name.endswith(".png")}
            assert names <= {"experiment.toml", records_file.NAME, *shown}
            found = next(records_file.lines(sweep / records_file.NAME)).record
            assert found is not None
            assert "simulated" in found or not found.keys() & {"verdict", "ledger", "stages", "identities"}
