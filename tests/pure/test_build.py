# SPDX-License-Identifier: GPL-2.0-only
"""Stale programs are compiled before a run. A message appears only if that is slow or fails."""

import os
import subprocess
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.run import build


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", False)
    monkeypatch.setattr(build, "SILENT_TIME_S", 0.5)
    return tmp_path


@pytest.mark.parametrize(("recipe", "lines"), [("true", 0), ("sleep 1", 1)])
def test_only_a_slow_build_prints_a_message(tree: Path, recipe: str, lines: int) -> None:
    messages: list[str] = []
    (tree / "Makefile").write_text(f"artifacts:\n\t{recipe} && touch made\n")
    build.build_if_stale(messages.append)
    assert (tree / "made").exists() and len(messages) == lines


def test_error_message_of_make_is_the_reason(tree: Path) -> None:
    (tree / "Makefile").write_text("artifacts:\n\t@echo 'x.c:1: error: no such thing' >&2; exit 1\n")
    with pytest.raises(RunError, match=r"build: x\.c:1: error: no such thing; run make for all messages"):
        build.build_if_stale()


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_programs_that_are_up_to_date_are_not_rebuilt(language: str) -> None:
    """A rebuild would replace the programs while another command starts them."""
    programs = [paths.OUTPUT / name for name in ("traffic", "collector")]
    before = [program.stat().st_mtime_ns for program in programs]
    make = ["make", "--silent", "-C", str(paths.ROOT), "artifacts"]
    environment = {"PATH": os.environ["PATH"], "LANG": language}
    done = subprocess.run(make, env=environment, capture_output=True, text=True, check=True, timeout=50)
    assert (done.stdout, [program.stat().st_mtime_ns for program in programs]) == ("", before)
