# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope report --derive` derives records of older versions again, and leaves measurements unchanged."""

import json
from pathlib import Path

import pytest
from builders.documents import derive
from builders.sweep import kept, store, sweep
from copyscope.commands import report
from copyscope.record.derived import Derived
from copyscope.record.measured import Measured
from copyscope.record.store import RECORDS_NAME
from copyscope.sweep import results


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the report, because the records are written before it."""
    monkeypatch.setattr(report, "make_report", lambda *_: None)


def test_stale_verdict_is_derived_again_and_nothing_else_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [derive(record) for record in sweep(sizes=(4096,), threads=(1,), repeats=2)]
    truth = records[0]["verdict"]
    records[0] = records[0] | {"verdict": truth | {"valid": False, "reasons": ["identity sender_rows: old"]}}
    directory = store(records, tmp_path / "host" / "demo")
    before = kept(directory)
    (stale,) = [record["run"]["id"] for record in before if not record["verdict"]["valid"]]

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


def test_file_with_a_damaged_line_is_not_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store(sweep(sizes=(4096,), threads=(1,), repeats=1), tmp_path / "demo") / RECORDS_NAME
    path.write_bytes(path.read_bytes()[:-7])
    before = path.read_bytes()
    assert report.main([str(path.parent), "--strip"]) == 2
    assert f"copyscope report: {path}: a line is damaged" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_stripped_records_read_the_same_and_stay_stripped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = sweep(sizes=(4096,), threads=(1,), repeats=2)
    directory = store(records, tmp_path / "host" / "demo")
    before = results.load(directory).records
    assert report.main([str(directory), "--strip"]) == 0
    assert f"{len(records)} of {len(records)} records were changed" in capsys.readouterr().err
    assert results.load(directory).records == before
    for record in kept(directory):
        assert record.keys() & set(Derived.__struct_fields__) == {"loss", "machine_state", "placement"}
    assert report.main([str(directory), "--derive"]) == 0
    assert f"0 of {len(records)} records were changed" in capsys.readouterr().err
