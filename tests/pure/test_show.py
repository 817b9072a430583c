# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope show` prints the screen of the run from a saved record."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record, write
from builders.documents import derive
from builders.simulated import simulated_record
from builders.watched import watched_record
from copyscope.commands import show
from test_render import report_of


def shown(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> str:
    assert show.main([str(path), *options]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("derived", [True, False], ids=["derived", "raw"])
def test_a_saved_record_is_shown_like_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], derived: bool
) -> None:
    raw = raw_record("zero_copy")
    write(derive(raw) if derived else raw, tmp_path / "run.json")
    for name, options in (("zero_copy", ("-v",)), ("zero_copy_explain", ("-v", "--explain"))):
        assert shown(capsys, tmp_path / "run.json", *options) == report_of(name)


def test_watched_programs_simulated_machines_and_lists_of_runs_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(document: Any) -> Path:
        (tmp_path / "run.json").write_text(json.dumps(document))
        return tmp_path / "run.json"

    assert "processes" in shown(capsys, written(derive(watched_record())), "-v")
    assert "SIMULATED" in shown(capsys, written(simulated_record()))
    run = derive(raw_record("one_copy"))
    assert shown(capsys, written([run, run]), "-v").count("verdict") >= 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no schema number"),
        ("[1]", "not an object"),
        ("[]", "an empty list"),
        ("hi", "it is damaged, or not a record"),
        ("", "x.json: empty; "),
        ('{"schema": 1', "truncated"),
    ],
)
def test_a_file_without_a_record_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "x.json").write_text(text)
    assert show.main([str(tmp_path / "x.json")]) == 1
    err = capsys.readouterr().err
    assert words in err and err.startswith("copyscope show: ") and err.count("\n") == 1


def test_a_directory_is_refused_with_a_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main([str(tmp_path)]) == 1
    message = f"copyscope show: {tmp_path}: cannot be read: is a directory; choose a file in the directory\n"
    assert capsys.readouterr().err == message
