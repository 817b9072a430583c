"""A disk that is full in the end: what was measured is kept elsewhere, or it is said that it could not be."""

import errno
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import builders
import pytest
from builders.sweep import SMALL, small
from builders.watched import watched_record
from copyscope.commands import keeping, outcome
from copyscope.commands import run as run_command
from copyscope.errors import RunError
from copyscope.files import rescuing
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.run.session import Silent
from copyscope.show.watch import render as render_watch
from copyscope.sweep.experiment import load as load_experiment
from copyscope.sweep.sweep import perform

Record = dict[str, Any]


class Disks:
    """Directories whose disk is full from now on."""

    def __init__(self) -> None:
        self.full: list[str] = []
        self._write = os.write

    def write(self, handle: int, data: Any) -> int:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(tuple(self.full) or "\0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(handle, data)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disks:
    made = Disks()
    monkeypatch.setattr(os, "write", made.write)
    (tmp_path / "spare").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spare"))
    monkeypatch.setattr(rescuing, "PLACES", (str(tmp_path / "spare"),))
    monkeypatch.chdir(tmp_path / "spare")
    return made


def kept_in(said: str) -> Path:
    """The directory that a line names."""
    assert "No space left on device" in said
    assert len(said.splitlines()) <= 2
    found = re.search(r"the measurement is saved in ([^\s:]+)", said)
    assert found, said
    return Path(found[1])


def test_a_record_whose_disk_is_full_is_kept_elsewhere(
    disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = derive(builders.raw_record())
    disks.full = [str(tmp_path / "out")]
    assert not keeping.keep(made, [], tmp_path / "out")
    directory = next((tmp_path / "spare").iterdir())
    assert "saved in" in capsys.readouterr().err
    assert directory.stat().st_mode & 0o777 == 0o700
    (found,) = directory.glob("*.json")
    assert store.read(found) == made
    assert len(list(directory.iterdir())) == 2
    assert not keeping.write_json([made, made], str(tmp_path / "out" / "both.json"))
    assert "saved in" in capsys.readouterr().err
    (both,) = (tmp_path / "spare").glob("*/record.json")
    assert json.loads(both.read_text()) == [made, made]
    assert list((tmp_path / "out").iterdir()) == []


def test_where_all_disks_are_full_it_is_said(
    disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disks.full = [str(tmp_path)]
    assert not keeping.keep(derive(builders.raw_record()), [], tmp_path / "out")
    assert "could not be saved" in capsys.readouterr().err
    assert list((tmp_path / "spare").iterdir()) == []


class Runs:
    """Session.perform() of traffic that was measured elsewhere; the run of number `fails` fails."""

    def __init__(self, fails: int | None = None) -> None:
        self.left = fails

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
    """copyscope run without the kernel: its options, its files, its exit status."""
    if os.geteuid() != 0:
        pytest.skip("the options are checked as the invoking user, whom only root becomes")
    made = Runs()
    monkeypatch.setattr(run_command, "Session", made)
    monkeypatch.setattr(run_command, "ask_revision", lambda: lambda: (None, None))
    monkeypatch.setattr(outcome, "assemble", lambda *_, **__: builders.raw_record())
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "options", [("--out", "{}"), ("--json", "{}/a.json"), ("--repeat=2", "--json", "{}/a.json")]
)
def test_a_run_that_could_not_be_kept_has_status_1(
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
@pytest.mark.parametrize("step", ["assemble", "derive", "show"])
def test_what_a_fault_of_ours_may_not_take_with_it_is_kept(
    step: str,
    disks: Disks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever a derivation meets: what was measured is there, to be derived by another copyscope."""
    assert disks.full == []

    def fails(*_: object, **__: object) -> None:
        raise AssertionError("of a pause")

    monkeypatch.setattr(outcome, step, fails)
    assert run_command.main(["-q"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("copyscope: a fault of copyscope: commands/outcome.py:")
    assert "AssertionError: of a pause" in line and "the measurement is saved in" in line
    (kept,) = (tmp_path / "spare").glob("*/*")
    assert kept.name == ("raw.pickle" if step == "assemble" else "record.json")
    if step != "assemble":
        assert ("verdict" in store.read(kept)) == (step == "show")


def test_of_several_runs_the_first_are_written_when_one_fails(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.left = 2
    assert run_command.main(["-q", "--repeat=3", "--json", str(tmp_path / "a.json")]) == 1
    assert len(json.loads((tmp_path / "a.json").read_text())) == 2
    assert "killed by SIGKILL" in capsys.readouterr().err


def test_a_watched_run_is_kept_elsewhere_too(
    disks: Disks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = derive(watched_record())
    disks.full = [str(tmp_path / "out")]
    nothing: Any = SimpleNamespace(collector=None)
    args: Any = SimpleNamespace(json=None, verbose=False, explain=False)
    assert not outcome.report(made, nothing, args, tmp_path / "out", render_watch)
    assert list(kept_in(capsys.readouterr().err).glob("*.json"))
    args.json = str(tmp_path / "out" / "a.json")
    assert not outcome.report(made, nothing, args, None, render_watch)
    assert list(kept_in(capsys.readouterr().err).glob("record.json"))


def test_a_sweep_keeps_the_run_for_which_there_was_no_room(disks: Disks, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SMALL)
    experiment = load_experiment(tmp_path / "x.toml")
    found = {made["run"]["id"]: made for made in small()}
    count = 0

    def run(point: Any) -> Record:
        nonlocal count
        count += 1
        if count == 2:
            disks.full = [str(tmp_path / "out")]
        made = next(one for one in found.values() if one["run"]["factors"] == point.factors)
        return {**made, "run": {**made["run"], "id": point.run_id, "repeat": point.repeat}}

    class Told(Silent):
        start = begin = end = add = lambda *_: None

    outcome = perform(experiment, tmp_path / "out", progress=Told(), run=run)
    assert outcome.stopped is not None
    assert not outcome.complete
    (kept,) = kept_in(outcome.stopped).glob("*.json.gz")
    assert store.read(kept)["run"]["id"] == kept.name.removesuffix(".json.gz")
    assert outcome.done == 1
    disks.full = []
    again = perform(experiment, tmp_path / "out", progress=Told(), run=run)
    assert again.complete
