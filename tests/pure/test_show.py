"""`copyscope show`: the screen from a saved record is that of the run."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record, write
from builders.simulated import simulated_record
from builders.watched import watched_record
from copyscope.commands import show
from copyscope.ledger.derive import derive
from test_render import report_of


def shown(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> str:
    assert show.main([str(path), *options]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("whole", [True, False], ids=["derived", "raw"])
def test_the_screen_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], whole: bool) -> None:
    raw = raw_record("zero_copy")
    write(derive(raw) if whole else raw, tmp_path / "run.json")
    for name, options in (("zero_copy", ("-v",)), ("zero_copy_explain", ("-v", "--explain"))):
        assert shown(capsys, tmp_path / "run.json", *options) == report_of(name)


def test_a_watched_program_a_simulated_machine_and_several_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(what: Any) -> Path:
        (tmp_path / "run.json").write_text(json.dumps(what))
        return tmp_path / "run.json"

    assert "processes" in shown(capsys, written(derive(watched_record())), "-v")
    assert "SIMULATED" in shown(capsys, written(simulated_record()))
    run = derive(raw_record("one_copy"))
    assert shown(capsys, written([run, run]), "-v").count("verdict") >= 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "no schema number"),
        ("[1]", "not an object"),
        ("[]", "an empty list"),
        ("hi", "not a record, or damaged"),
        ("", "x.json: empty: "),
        ('{"schema": 1', "truncated"),
    ],
)
def test_what_is_no_record_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "x.json").write_text(text)
    assert show.main([str(tmp_path / "x.json")]) == 1
    err = capsys.readouterr().err
    assert said in err and err.startswith("copyscope: record: ") and err.count("\n") == 1


def test_a_directory_is_called_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main([str(tmp_path)]) == 1
    said = f"copyscope: record: {tmp_path}: cannot be read: is a directory: choose a file in it\n"
    assert capsys.readouterr().err == said
