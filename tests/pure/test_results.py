"""A sweep's directory: what belongs together is read, what does not is refused or named."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.sweep import SMALL, small, store
from copyscope import paths
from copyscope.errors import UsageError
from copyscope.record import store as record
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.sweep import results
from copyscope.sweep.rewriting import strip

Record = dict[str, Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return store(small(), tmp_path / "host" / "demo")


def first(directory: Path) -> Path:
    return min((directory / "raw").iterdir())


def change(path: Path, **sections: Any) -> None:
    """Rewrite one record with other keys."""
    found = record.read(path)
    for name, keys in sections.items():
        found[name] = found[name] | keys if isinstance(keys, dict) else keys
    path.write_bytes(gzip.compress(record.serialise(found), mtime=0))


def test_everything_is_read_in_the_order_of_the_sweep(directory: Path, tmp_path: Path) -> None:
    found = results.load(directory)
    assert [r["run"]["order"] for r in found.records] == [0, 1, 2, 3]
    assert found.experiment is None
    assert found.left_out == ()
    assert results.find(tmp_path) == [directory]


@pytest.mark.parametrize("key", SAME_MACHINE)
def test_records_of_two_machines_are_refused_by_the_key(directory: Path, key: str) -> None:
    other = {"pmu": ["other"], "cpus_online": 96}.get(key, "other")
    change(first(directory), machine={key: other})
    with pytest.raises(UsageError, match=rf"machine\.{key} differs: .*(other|96)") as error:
        results.load(directory)
    assert first(directory).name in str(error.value)


def test_a_newer_schema_is_refused_and_not_left_out(directory: Path) -> None:
    change(first(directory), schema=99)
    with pytest.raises(UsageError, match=r"schema 99, this copyscope reads up to 1"):
        results.load(directory)


def test_a_truncated_record_is_named_and_left_out(directory: Path) -> None:
    path = first(directory)
    path.write_bytes(path.read_bytes()[:500])
    found = results.load(directory)
    assert len(found.records) == 3
    assert [entry.path for entry in found.left_out] == [path]
    assert found.left_out[0].reason


def test_a_record_without_a_section_is_named_and_left_out(directory: Path) -> None:
    path = first(directory)
    broken = record.read(path)
    del broken["ledger"]
    path.write_bytes(gzip.compress(record.serialise(broken), mtime=0))
    (entry,) = results.load(directory).left_out
    assert entry.reason.startswith("damaged: ledger: missing")


def test_the_same_run_twice_counts_once(directory: Path) -> None:
    path = first(directory)
    path.with_name("zz.json").write_bytes(gzip.decompress(path.read_bytes()))
    found = results.load(directory)
    assert len(found.records) == 4
    assert [entry.path.name for entry in found.left_out] == ["zz.json"]


def test_a_run_that_the_experiment_wants_and_nobody_made_is_missing(directory: Path) -> None:
    (directory / "experiment.toml").write_text(SMALL)
    gone = first(directory)
    run_id = gone.name.removesuffix(".json.gz")
    gone.unlink()
    assert [entry.path.name for entry in results.load(directory).left_out] == [gone.name]
    attempt = {"run_id": run_id, "factors": {}, "repeat": 0, "reason": "sender: ended by SIGKILL"}
    torn = '{"run_id": "demo-'
    (directory / "failures.jsonl").write_text(f"{json.dumps(attempt)}\n{torn}")
    (entry,) = results.load(directory).left_out
    assert entry.reason == "missing: sender: ended by SIGKILL"


def test_an_invalid_run_is_kept(directory: Path) -> None:
    change(first(directory), verdict={"valid": False, "reasons": ["too short"]})
    found = results.load(directory)
    assert len(found.records) == 4
    assert len(found.invalid) == 1
    assert found.left_out == ()


def test_no_sweep_and_no_record_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no raw/ in it: give the directory of a sweep"):
        results.load(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.json").write_text("{")
    with pytest.raises(UsageError, match=r"no record that can be read: .*\(a.json: truncated"):
        results.load(tmp_path)


def test_a_record_of_raw_sections_alone_is_derived_as_it_is_read(directory: Path) -> None:
    before = results.load(directory).records
    path = first(directory)
    data = path.read_bytes()
    whole = record.read(path)
    path.write_bytes(gzip.compress(record.serialise(strip(whole)), mtime=0))
    assert {"verdict", "ledger", "identities"} <= whole.keys() - record.read(path).keys()
    assert results.load(directory).records == before
    assert len(path.read_bytes()) < 0.8 * len(data)


def test_what_came_with_the_tree_is_measured_not_made() -> None:
    """Reference results: raw sections, and nothing that `make report` makes of them."""
    for sweep in results.find(paths.RESULTS):
        if paths.is_reference(sweep):
            files = subprocess.run(
                ["git", "-C", str(paths.ROOT), "ls-files", str(sweep)],
                capture_output=True,
                text=True,
                check=False,
            ).stdout.split()
            assert {Path(name).name for name in files if "/raw/" not in name} <= {"experiment.toml"}
            found = record.read(first(sweep))
            assert "simulated" in found or not found.keys() & {"verdict", "ledger", "stages", "identities"}
