"""What the commands that read sweeps do with directories: each run once, and nothing written unasked."""

import json
import shutil
from pathlib import Path

import pytest
from builders.sweep import store, sweep
from copyscope.commands import claims, reading


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return store(sweep(("one_copy", "zero_copy"), sizes=(4096,), threads=(1,)), tmp_path / "demo")


def judged(directories: list[Path], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, object], str]:
    assert claims.main([*map(str, directories), "--json", "-"]) == 0
    shown = capsys.readouterr()
    return json.loads(shown.out), shown.err


@pytest.mark.parametrize("how", ["twice", "link", "copy"])
def test_a_run_counts_once_however_it_is_reached(
    how: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = directory
    if how == "link":
        again = directory.with_name("link")
        again.symlink_to(directory)
    elif how == "copy":
        again = directory.with_name("copy")
        shutil.copytree(directory, again)
    once, _ = judged([directory], capsys)
    twice, said = judged([directory, again], capsys)
    assert twice == once
    assert f"claims: counted once: {again}: 6 runs of 6 are in {directory}, too" in said


def test_another_sweep_of_the_same_experiment_is_evidence_of_its_own(directory: Path) -> None:
    """Its runs have the same names, and another time."""
    later = sweep(("one_copy", "zero_copy"), sizes=(4096,), threads=(1,))
    for record in later:
        record["run"]["started"] = "2031-01-01T00:00:00+00:00"
    found = reading.load([directory, store(later, directory.with_name("later"))], "claims")
    assert [len(one.records) for one in found] == [6, 6]
