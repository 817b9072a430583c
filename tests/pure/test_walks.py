"""docs/ARCHITECTURE.md: walks through files that call each other. docs/dev/HOUSE.md: a row for each room."""

import ast
import re
from pathlib import Path

import pytest
from copyscope import paths

ROOT = paths.ROOT
PACKAGE = ROOT / "tools" / "copyscope"
HOUSE = (ROOT / "docs" / "dev" / "HOUSE.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
WORDS_MAX = 1200


def walk(number: int) -> list[Path]:
    """The files of a walk, in its order."""
    text = ARCHITECTURE.split(f"## Walk {number}:")[1].split("\n## ")[0]
    return [ROOT / name for name in re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)]


def module(path: Path) -> str:
    return ".".join(("copyscope", *path.relative_to(PACKAGE).with_suffix("").parts))


def imported(path: Path) -> set[str]:
    """Dotted names that a Python file imports, of a module or of what is in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@pytest.mark.parametrize(("number", "most"), [(1, 8), (2, 8)])
def test_a_walk_is_short_and_its_files_are_there(number: int, most: int) -> None:
    files = walk(number)
    assert 6 <= len(files) <= most
    assert [path for path in files if not path.is_file()] == []


@pytest.mark.parametrize("number", [1, 2])
def test_each_python_file_of_a_walk_is_joined_to_another_of_it(number: int) -> None:
    """One imports the other, or names it."""
    files = [path for path in walk(number) if path.suffix == ".py"]
    inside = [path for path in files if path.is_relative_to(PACKAGE)]
    for path in inside:
        others = [other for other in files if other != path]
        joined = [
            *(other for other in others if module(path) in imported(other)),
            *(other for other in others if other in inside and module(other) in imported(path)),
            *(other for other in others if path.name in other.read_text(encoding="utf-8")),
        ]
        assert joined, f"{path.name}: imports nothing of the walk, and nothing of it imports this"


def test_the_page_is_read_in_five_minutes() -> None:
    assert len(ARCHITECTURE.split()) <= WORDS_MAX


def test_the_number_of_a_size_is_where_the_first_walk_says() -> None:
    for name in ("plan/options.py", "show/first_screen.py"):
        assert PACKAGE / name in walk(1)
        assert "size_bytes" in (PACKAGE / name).read_text(encoding="utf-8")
    assert '"--size"' in (PACKAGE / "plan" / "arguments.py").read_text(encoding="utf-8")
    assert 'quantity__size("size"' in (ROOT / "src" / "traffic" / "options.c").read_text(encoding="utf-8")


def test_each_room_has_a_row() -> None:
    folders = [path.name for path in PACKAGE.iterdir() if list(path.glob("*.py")) and path.is_dir()]
    files = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    of_c = [
        str(path.relative_to(ROOT))
        for place in ("collector", "traffic", "simulator", "guest")
        for path in (ROOT / "src" / place, *(ROOT / "src" / place).iterdir())
        if path.is_dir() and path.name not in ("strategies", "readings")
    ]
    wanted = [*(f"`{name}/`" for name in [*folders, *of_c]), *(f"`{name}`" for name in files)]
    rows = [line for line in HOUSE.splitlines() if line.startswith("| `")]
    assert [name for name in wanted if not any(name in row.split("|")[1] for row in rows)] == []


def test_paths_that_the_page_names_are_there() -> None:
    named = re.findall(r"`((?:src|bpf|tools|tests|experiments)/[\w./-]+)`", HOUSE)
    assert len(named) > 20 and [name for name in named if not (ROOT / name).exists()] == []
