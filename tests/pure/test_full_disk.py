# SPDX-License-Identifier: GPL-2.0-only
"""If the disk is full after a measurement, the record is saved elsewhere, or an error is printed."""

import errno
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import builders
import pytest
from builders.documents import derive, typed, typed_whole
from builders.sweep import SMALL, small
from builders.watched import watched_record
from copyscope.base import files
from copyscope.base.errors import RunError
from copyscope.commands import outcome, output_files
from copyscope.commands import run as run_command
from copyscope.record import store
from copyscope.record.run import Run
from copyscope.run.session import SilentProgress
from copyscope.show.watch import render as render_watch
from copyscope.sweep.experiment import load as load_experiment
from copyscope.sweep.sweep import perform

Record = dict[str, Any]


class Disks:
    """Replacement for os.write() that fails for files in the directories `full`."""

    def __init__(self) -> None:
        self.full: list[str] = []
        self._write = os.write

    def write(self, handle: int, data: Any) -> int:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(tuple(self.full) or "\0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(handle, data)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disks:
    disks = Disks()
    monkeypatch.setattr(os, "write", disks.write)
    (tmp_path / "spare").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spare"))
    monkeypatch.setattr(files, "RESCUE_DIRECTORIES", (str(tmp_path / "spare"),))
    monkeypatch.chdir(tmp_path / "spare")
    return disks


def kept_in(line: str) -> Path:
    """Return the directory in which an error message says that the measurement is saved."""
    assert "No space left on device" in line
    assert len(line.splitlines()) <= 2
    match = re.search(r"the measurement is saved in ([^\s:;]+)", line)
    assert match, line
    return Path(match[1])


def test_record_is_saved_in_another_directory_if_the_disk_is_full(
    disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = derive(builders.raw_record())
    disks.full = [str(tmp_path / "out")]
    assert not output_files.save_run(typed_whole(document), [], tmp_path / "out")
    directory = next((tmp_path / "spare").iterdir())
    assert "saved in" in capsys.readouterr().err
    assert directory.stat().st_mode & 0o777 == 0o700
    (file,) = directory.glob("*.json")
    assert typed_whole(store.read_document(file)) == typed_whole(document)
    assert len(list(directory.iterdir())) == 2
    assert not output_files.write_runs([typed_whole(document)] * 2, str(tmp_path / "out" / "both.json"))
    assert "saved in" in capsys.readouterr().err
    (both,) = (tmp_path / "spare").glob("*/record.json")
    assert list(map(typed_whole, json.loads(both.read_text()))) == [typed_whole(document)] * 2
    assert list((tmp_path / "out").iterdir()) == []


def test_failure_to_save_on_any_disk_is_reported(
    disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disks.full = [str(tmp_path)]
    assert not output_files.save_run(typed_whole(derive(builders.raw_record())), [], tmp_path / "out")
    assert "could not be saved" in capsys.readouterr().err
    assert list((tmp_path / "spare").iterdir()) == []


class Runs:
    """Replacement for Session whose runs return nothing. After `good_runs` runs, the next run fails."""

    def __init__(self, good_runs: int | None = None) -> None:
        self.left = good_runs

    def __call__(self, *_: object) -> Self:
        return self

    def perform(self, _hold: object = None) -> SimpleNamespace:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise RunError("sender: was killed by SIGKILL")
        return SimpleNamespace(collector=None, interrupted=False, kept=None)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Make `copyscope run` return an invented record without measuring."""
    if os.geteuid() != 0:
        pytest.skip("the options are checked as the invoking user, whom only root becomes")
    runs = Runs()
    monkeypatch.setattr(run_command, "Session", runs)
    monkeypatch.setattr(run_command, "start_git_revision", lambda: lambda: (None, None))
    monkeypatch.setattr(outcome, "assemble", lambda *_, **__: typed(builders.raw_record()))
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return runs


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "options", [("--out", "{}"), ("--json", "{}/a.json"), ("--repeat=2", "--json", "{}/a.json")]
)
def test_run_that_cannot_be_saved_where_requested_exits_with_1(
    options: tuple[str, ...], disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["-q", "-v", *(option.format(tmp_path / "out") for option in options)]
    assert run_command.main(argv) == 0
    disks.full = [str(tmp_path / "out")]
    capsys.readouterr()
    assert run_command.main(argv) == 1
    out, err = capsys.readouterr()
    assert "COPY LEDGER" in out
    assert list(kept_in(err).glob("*.json"))


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("step", ["assemble", "derive", "print_run"])
def test_measurement_is_saved_despite_a_bug_in_copyscope(
    step: str,
    disks: Disks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The saved measurement can be derived by a corrected copyscope."""
    assert disks.full == []

    def fails(*_: object, **__: object) -> None:
        raise AssertionError("of a pause")

    monkeypatch.setattr(outcome, step, fails)
    assert run_command.main(["-q"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("copyscope run: a bug in copyscope: commands/outcome.py:")
    assert "AssertionError: of a pause" in line and "the measurement is saved in" in line
    (kept,) = (tmp_path / "spare").glob("*/*")
    assert kept.name == ("raw.pickle" if step == "assemble" else "record.json")
    if step != "assemble":
        assert ("verdict" in store.read_document(kept)) == (step == "print_run")


def test_runs_before_a_failed_run_are_written(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.left = 2
    assert run_command.main(["-q", "--repeat=3", "--json", str(tmp_path / "a.json")]) == 1
    assert len(json.loads((tmp_path / "a.json").read_text())) == 2
    assert "killed by SIGKILL" in capsys.readouterr().err


def test_watched_run_is_saved_in_another_directory_if_the_disk_is_full(
    disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = typed_whole(derive(watched_record()))
    disks.full = [str(tmp_path / "out")]
    nothing: Any = SimpleNamespace(collector=None)
    args: Any = SimpleNamespace(json=None, verbose=False, explain=False)
    assert not outcome.report_run(run, nothing, args, tmp_path / "out", render_watch)
    assert list(kept_in(capsys.readouterr().err).glob("*.json"))
    args.json = str(tmp_path / "out" / "a.json")
    assert not outcome.report_run(run, nothing, args, None, render_watch)
    assert list(kept_in(capsys.readouterr().err).glob("record.json"))


def test_sweep_saves_the_last_run_elsewhere_if_the_disk_is_full(disks: Disks, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SMALL)
    experiment = load_experiment(tmp_path / "x.toml")
    records = {record["run"]["id"]: record for record in small()}
    count = 0

    def run(point: Any) -> Run:
        nonlocal count
        count += 1
        if count == 2:
            disks.full = [str(tmp_path / "out")]
        record = next(record for record in records.values() if record["run"]["factors"] == point.factors)
        return typed_whole({**record, "run": {**record["run"], "id": point.run_id, "repeat": point.repeat}})

    class IgnoredProgress(SilentProgress):
        start = begin = end = add = lambda *_: None

    outcome = perform(experiment, tmp_path / "out", progress=IgnoredProgress(), run=run)
    assert outcome.stopped is not None
    assert not outcome.complete
    (kept,) = kept_in(outcome.stopped).glob("*.json.gz")
    assert store.read_document(kept)["run"]["id"] == kept.name.removesuffix(".json.gz")
    assert outcome.done == 1
    disks.full = []
    again = perform(experiment, tmp_path / "out", progress=IgnoredProgress(), run=run)
    assert again.complete
