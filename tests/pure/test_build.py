"""What is compiled is brought up to date before a run: quietly, unless it takes a while or fails."""

import os
import subprocess
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.errors import RunError
from copyscope.run import build


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", False)
    monkeypatch.setattr(build, "SILENT_S", 0.5)
    return tmp_path


@pytest.mark.parametrize(("recipe", "lines"), [("true", 0), ("sleep 1", 1)])
def test_a_build_that_takes_a_while_says_so(tree: Path, recipe: str, lines: int) -> None:
    said: list[str] = []
    (tree / "Makefile").write_text(f"artifacts:\n\t{recipe} && touch made\n")
    build.build_if_stale(said.append)
    assert (tree / "made").exists() and len(said) == lines


def test_what_make_complains_of_is_the_reason(tree: Path) -> None:
    (tree / "Makefile").write_text("artifacts:\n\t@echo 'x.c:1: error: no such thing' >&2; exit 1\n")
    with pytest.raises(RunError, match=r"build: x\.c:1: error: no such thing: run make to see it all"):
        build.build_if_stale()


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_what_is_built_is_not_built_again(language: str) -> None:
    """Others may start it meanwhile."""
    programs = [paths.OUTPUT / name for name in ("traffic", "collector")]
    before = [program.stat().st_mtime_ns for program in programs]
    make = ["make", "--silent", "-C", str(paths.ROOT), "artifacts"]
    environment = {"PATH": os.environ["PATH"], "LANG": language}
    done = subprocess.run(make, env=environment, capture_output=True, text=True, check=True, timeout=50)
    assert (done.stdout, [program.stat().st_mtime_ns for program in programs]) == ("", before)
