"""What the commands that read sweeps do with directories: nothing is written unasked."""

from pathlib import Path

import pytest
from builders.sweep import store, sweep
from copyscope import paths
from copyscope.commands import crossover


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return store(sweep(("one_copy", "zero_copy"), sizes=(4096,), threads=(1,)), tmp_path / "demo")


def test_what_is_not_ones_own_is_only_read(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = "crossover.json"
    main = crossover.main
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
    assert "copyscope: DIR: empty: give the directory of a sweep" in capsys.readouterr().err


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
