"""report.py --derive: what an older copyscope derived is corrected, and what was measured is not touched."""

import json
from pathlib import Path

import pytest
from builders.sweep import store, sweep
from copyscope.commands import report
from copyscope.ledger.derive import derive
from copyscope.paths import RESULTS
from copyscope.record import store as record
from copyscope.record.derived import Derived
from copyscope.record.raw import RawRun
from copyscope.sweep import results


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written to the records is done before the report is made."""
    monkeypatch.setattr(report, "make", lambda *_: None)


def test_a_stale_verdict_is_worked_out_again_and_nothing_else_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [derive(made) for made in sweep(sizes=(4096,), threads=(1,), repeats=2)]
    truth = records[0]["verdict"]
    records[0] = records[0] | {"verdict": truth | {"valid": False, "reasons": ["identity sender_rows: old"]}}
    directory = store(records, tmp_path / "host" / "demo")
    cut = directory / "raw" / "cut.json"
    cut.write_text('{"schema": 1')
    paths = sorted(path for path in (directory / "raw").iterdir() if path != cut)
    before = {path: (path.read_bytes(), record.read(path)) for path in paths}
    (stale,) = [path for path in paths if not before[path][1]["verdict"]["valid"]]

    assert report.main([str(directory), "--derive"]) == 0
    assert f"1 of {len(paths)} records were changed: {stale.name}" in capsys.readouterr().err
    assert record.read(stale)["verdict"] == truth
    for path, (data, old) in before.items():
        new = record.read(path)
        assert path == stale or path.read_bytes() == data
        assert all(
            json.dumps(new[key]) == json.dumps(old[key]) for key in RawRun.__struct_fields__ if key in old
        )
    assert cut.read_text() == '{"schema": 1'

    assert report.main([str(directory), "--derive"]) == 0
    assert f"0 of {len(paths)} records were changed\n" in capsys.readouterr().err


# Of a time when a record had not yet what others took of the CPUs.
OLDER = sorted(RESULTS.glob("vm/p*/raw/*.json.gz"))


@pytest.mark.parametrize("path", OLDER[::200], ids=lambda path: path.name)
def test_records_of_an_older_copyscope_can_be_derived(path: Path) -> None:
    new = derive(record.read(path))
    assert record.validate(new) == []
    assert new["machine_state"]["cpus"] is None and new["machine_state"]["reasons"]["cpus"]


def test_stripped_records_are_read_as_before_and_stay_stripped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sweep(sizes=(4096,), threads=(1,), repeats=2)
    directory = store(made, tmp_path / "host" / "demo")
    before = results.load(directory).records
    assert report.main([str(directory), "--strip"]) == 0
    assert f"{len(made)} of {len(made)} records were changed" in capsys.readouterr().err
    assert results.load(directory).records == before
    for path in (directory / "raw").iterdir():
        assert record.read(path).keys() & set(Derived.__struct_fields__) == {"loss", "machine_state"}
    assert report.main([str(directory), "--derive"]) == 0
    assert f"0 of {len(made)} records were changed" in capsys.readouterr().err
