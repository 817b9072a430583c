# SPDX-License-Identifier: GPL-2.0-only
"""Commands that read sweeps never write into directories of reference results."""

from pathlib import Path

import pytest
from builders.sweep import store, sweep
from copyscope.base import paths
from copyscope.commands import crossover


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return store(sweep(("one_copy", "zero_copy"), sizes=(4096,), threads=(1,)), tmp_path / "demo")


def test_reference_results_are_only_read(
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
    assert f"reference results; {written} was not written; use --out DIR" in capsys.readouterr().err
    assert main([str(directory), "--json", "-", "--out", str(out)]) == 0
    assert [path.name for path in directory.iterdir()] == ["records.jsonl.gz"]
    assert [path.name for path in out.iterdir()] == [written]


def test_an_empty_directory_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert crossover.main([""]) == 2
    assert "copyscope crossover: '': an empty name; give the directory of a sweep" in capsys.readouterr().err


def test_reference_results_are_not_results_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A search for results skips reference results. Each kernel of a machine has its own directory."""
    assert paths.is_reference(paths.RESULTS / "vm") and paths.is_reference(paths.RESULTS / "vm" / "ways")
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / ".reference").write_text("")
    own_results = paths.host_results("vm", "6.18.44-fc-v669")
    assert own_results.name == "vm-6.18.44-fc-v669" != paths.host_results("vm", "6.18.44-fc-v657").name
    own_results.mkdir()
    assert paths.all_results("vm") == [own_results]
