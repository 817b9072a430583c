# SPDX-License-Identifier: GPL-2.0-only
"""docs/ARCHITECTURE.md: a row for each room, and walks through files that call each other."""

import ast
import re
from pathlib import Path

import pytest
from copyscope.base import paths

ROOT = paths.ROOT
PACKAGE = ROOT / "tools" / "copyscope"
ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
WORDS_MAX = 1200


def walk(number: int) -> list[Path]:
    """Return the files of a walk, in the order of its steps."""
    text = ARCHITECTURE.split(f"## Walk {number}:")[1].split("\n## ")[0]
    return [ROOT / name for name in re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)]


def module(path: Path) -> str:
    return ".".join(("copyscope", *path.relative_to(PACKAGE).with_suffix("").parts))


def imported(path: Path) -> set[str]:
    """Return the dotted names that a Python file imports: modules, and names inside modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names


@pytest.mark.parametrize(("number", "files_max"), [(1, 8), (2, 8)])
def test_a_walk_is_short_and_its_files_exist(number: int, files_max: int) -> None:
    files = walk(number)
    assert 6 <= len(files) <= files_max
    assert [path for path in files if not path.is_file()] == []


@pytest.mark.parametrize("number", [1, 2])
def test_each_python_file_of_a_walk_is_linked_to_another(number: int) -> None:
    """Two files are linked if one imports the other or contains its name."""
    files = [path for path in walk(number) if path.suffix == ".py"]
    inside = [path for path in files if path.is_relative_to(PACKAGE)]
    for path in inside:
        others = [other for other in files if other != path]
        linked = [
            *(other for other in others if module(path) in imported(other)),
            *(other for other in others if other in inside and module(other) in imported(path)),
            *(other for other in others if path.name in other.read_text(encoding="utf-8")),
        ]
        assert linked, f"{path.name}: imports nothing of the walk, and nothing of it imports this"


def test_the_page_is_read_in_five_minutes() -> None:
    assert len(ARCHITECTURE.split()) <= WORDS_MAX


def test_the_files_of_the_first_walk_handle_the_size() -> None:
    for path in (ROOT / "src" / "traffic" / "option_table.c", PACKAGE / "show" / "first_screen.py"):
        assert path in walk(1)
        assert "size_bytes" in path.read_text(encoding="utf-8")
    assert "resolve_traffic" in (PACKAGE / "plan" / "options.py").read_text(encoding="utf-8")
    assert "quantity__size(row->name" in (ROOT / "src" / "traffic" / "options.c").read_text(encoding="utf-8")


def test_each_room_has_a_row() -> None:
    folders = [path.name for path in PACKAGE.iterdir() if list(path.glob("*.py")) and path.is_dir()]
    files = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    c_folders = [
        str(path.relative_to(ROOT))
        for program in ("collector", "traffic", "simulator", "guest")
        for path in (ROOT / "src" / program, *(ROOT / "src" / program).iterdir())
        if path.is_dir() and path.name not in ("strategies", "readings")
    ]
    names = [*(f"`{name}/`" for name in [*folders, *c_folders]), *(f"`{name}`" for name in files)]
    rows = [line for line in ARCHITECTURE.splitlines() if line.startswith("| `")]
    assert [name for name in names if not any(name in row.split("|")[1] for row in rows)] == []


def test_paths_named_on_the_page_exist() -> None:
    named = re.findall(r"`((?:src|bpf|tools|tests|experiments)/[\w./-]+)`", ARCHITECTURE)
    assert len(named) > 20 and [name for name in named if not (ROOT / name).exists()] == []
