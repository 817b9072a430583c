# SPDX-License-Identifier: GPL-2.0-only
"""copyscope crossover on the records of a sweep: tables, files, bad input."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from builders.sweep import store, sweep
from copyscope.base import paths
from copyscope.commands import crossover as crossover_command
from copyscope.commands import entry
from copyscope.commands import sweep as sweep_command


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results") / "host" / "demo"
    store(sweep(threads=(1,)), directory)
    return directory


def test_crossover_prints_and_writes_its_result(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crossover_command.main([str(swept)]) == 0
    out = capsys.readouterr().out
    assert "On this path zero-copy takes more CPU time than one-copy at every size" in " ".join(out.split())
    assert "CROSSOVERS" in out
    assert out.startswith("On this path zero-copy takes more CPU time")
    written = json.loads((swept / "crossover.json").read_text())
    assert written["kind"] == "crossover"
    assert {tuple(row["pair"]) for row in written["crossovers"]} >= {("one_copy", "zero_copy")}
    first = (swept / "crossover.json").read_bytes()
    assert crossover_command.main([str(swept), "-v"]) == 0
    assert (swept / "crossover.json").read_bytes() == first
    assert "one_copy is better at every size" in " ".join(capsys.readouterr().out.split())
    assert crossover_command.main([str(swept), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == written
    assert crossover_command.main([str(swept), "--json", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text()) == written


def keys(value: Any) -> set[str]:
    """Return every key of a JSON document, except names of factors, which are data."""
    if isinstance(value, list):
        return {name for item in value for name in keys(item)}
    if not isinstance(value, dict):
        return set()
    data = {"where"}
    return set(value) | {name for key, item in value.items() if key not in data for name in keys(item)}


def test_every_key_of_crossover_json_is_documented(swept: Path) -> None:
    text = (paths.ROOT / "docs" / "reference" / "verdicts.md").read_text()
    assert crossover_command.main([str(swept), "--json", "-"]) == 0
    written_keys = keys(json.loads((swept / "crossover.json").read_text()))
    assert {key for key in written_keys if not re.search(rf"[`.]{key}`|[`.]{key}[.\[]", text)} == set()


def test_invalid_runs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = sweep(threads=(1,), sizes=(4096, 65_536))
    records[3]["verdict"] |= {"valid": False, "reasons": ["identity bytes: 1 is not 2"]}
    store(records, tmp_path / "host" / "demo")
    assert crossover_command.main([str(tmp_path / "host" / "demo")]) == 0
    error = capsys.readouterr().err
    assert (
        f"copyscope crossover: invalid, not used: {records[3]['run']['id']}: identity bytes: 1 is not 2"
        in error
    )


def test_a_directory_without_records_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crossover_command.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert len(error.splitlines()) == 1


def test_measuring_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert crossover_command.main([]) == 1
    assert f"sudo {paths.command()} crossover" in capsys.readouterr().err


def test_crossover_runs_a_sweep_and_reads_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replaced sweep writes records and reports a failed run."""
    calls: list[list[str]] = []

    def write_records(argv: list[str]) -> int:
        calls.append(argv)
        store(sweep(threads=(1,), sizes=(4096, 65_536)), tmp_path / "out")
        return entry.FAILED

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sweep_command, "main", write_records)
    status = crossover_command.main(["--out", str(tmp_path / "out")])
    assert status == entry.FAILED
    assert calls == [["crossover", "--out", str(tmp_path / "out")]]
    assert capsys.readouterr().out.startswith("On this path")
    monkeypatch.setattr(sweep_command, "main", lambda _: entry.INTERRUPTED)
    assert crossover_command.main(["--out", str(tmp_path / "none")]) == entry.INTERRUPTED
    monkeypatch.setattr(sweep_command, "main", lambda _: entry.FAILED)
    assert crossover_command.main(["--out", str(tmp_path / "none")]) == 1
    assert "no run succeeded" in capsys.readouterr().err
