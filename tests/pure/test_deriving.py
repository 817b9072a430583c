"""report.py --derive: what an older copyscope derived is corrected, and what was measured is not touched."""

import json
from pathlib import Path

import pytest
from builders.sweep import kept, store, sweep
from copyscope.commands import report
from copyscope.ledger.derive import derive
from copyscope.record import records_file
from copyscope.record.derived import Derived
from copyscope.record.measured import Measured
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
    before = kept(directory)
    (stale,) = [one["run"]["id"] for one in before if not one["verdict"]["valid"]]

    assert report.main([str(directory), "--derive"]) == 0
    assert f"1 of {len(before)} records were changed: {stale}" in capsys.readouterr().err
    for old, new in zip(before, kept(directory), strict=True):
        if old["run"]["id"] == stale:
            assert new["verdict"] == truth
        else:
            assert new == old
        assert all(
            json.dumps(new[key]) == json.dumps(old[key]) for key in Measured.__struct_fields__ if key in old
        )

    assert report.main([str(directory), "--derive"]) == 0
    assert f"0 of {len(before)} records were changed\n" in capsys.readouterr().err


def test_a_file_with_a_damaged_line_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store(sweep(sizes=(4096,), threads=(1,), repeats=1), tmp_path / "demo") / records_file.NAME
    path.write_bytes(path.read_bytes()[:-7])
    before = path.read_bytes()
    assert report.main([str(path.parent), "--strip"]) == 2
    assert f"copyscope: {path}: a line of it is damaged" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_stripped_records_are_read_as_before_and_stay_stripped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sweep(sizes=(4096,), threads=(1,), repeats=2)
    directory = store(made, tmp_path / "host" / "demo")
    before = results.load(directory).records
    assert report.main([str(directory), "--strip"]) == 0
    assert f"{len(made)} of {len(made)} records were changed" in capsys.readouterr().err
    assert results.load(directory).records == before
    for one in kept(directory):
        assert one.keys() & set(Derived.__struct_fields__) == {"loss", "machine_state", "placement"}
    assert report.main([str(directory), "--derive"]) == 0
    assert f"0 of {len(made)} records were changed" in capsys.readouterr().err
