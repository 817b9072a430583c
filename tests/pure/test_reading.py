"""What the commands that read sweeps do with directories: each run once, and nothing written unasked."""

import json
import shutil
from pathlib import Path

import pytest
from builders.sweep import store, sweep
from copyscope import paths
from copyscope.commands import claims, crossover, reading


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
    assert f"copyscope: counted once: {again}: 6 runs of 6 are in {directory}, too" in said


def test_another_sweep_of_the_same_experiment_is_evidence_of_its_own(directory: Path) -> None:
    """Its runs have the same names, and another time."""
    later = sweep(("one_copy", "zero_copy"), sizes=(4096,), threads=(1,))
    for record in later:
        record["run"]["started"] = "2031-01-01T00:00:00+00:00"
    found = reading.load([directory, store(later, directory.with_name("later"))])
    assert [len(one.records) for one in found] == [6, 6]


@pytest.mark.parametrize("command", ["claims", "crossover"])
def test_what_is_not_ones_own_is_only_read(
    command: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = {"claims": claims.main, "crossover": crossover.main}[command]
    written = f"{command}.json"
    assert main([str(directory), "--json", "-"]) == 0
    assert (directory / written).exists()
    (directory / written).unlink()
    (directory.parent / ".reference").write_text("of another machine")
    out = tmp_path / "out" / "below"
    capsys.readouterr()
    assert main([str(directory), "--json", "-"]) == 0
    assert f"reference results: {written} was not written: --out DIR writes it" in capsys.readouterr().err
    assert main([str(directory), "--json", "-", "--out", str(out)]) == 0
    assert [path.name for path in directory.iterdir()] == ["records.jsonl.gz"]
    assert [path.name for path in out.iterdir()] == [written]


def test_an_empty_name_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert crossover.main([""]) == 2
    assert "copyscope: DIR: nothing: give the directory of a sweep" in capsys.readouterr().err


def test_what_came_with_the_tree_is_nobodys_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reference results are left out where results are looked for; machines are apart by kernel."""
    assert paths.is_reference(paths.RESULTS / "vm") and paths.is_reference(paths.RESULTS / "vm" / "published")
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / ".reference").write_text("")
    mine = paths.host_results("vm", "6.18.44-fc-v669")
    assert mine.name == "vm-6.18.44-fc-v669" != paths.host_results("vm", "6.18.44-fc-v657").name
    mine.mkdir()
    assert paths.all_results("vm") == [mine]
