"""Pages that are made of the code are up to date, and say something of keys that exist."""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from copyscope.paths import ROOT
from copyscope.record.sections import Section

sys.path.append(str(ROOT / "tests" / "pages"))
record_page: Any = importlib.import_module("record_page")
write: Any = importlib.import_module("write")


# All runs of a sweep are derived for it.
SLOW = "crossovers"


@pytest.mark.parametrize("path", write.PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_says(path: Path) -> None:
    made = write.with_outputs(path, SLOW) if path in write.outputs.PAGES else write.PAGES[path]()
    assert path.read_bytes() == made, f"{path.name}: stale: `make pages` writes it anew"


@pytest.mark.all
@pytest.mark.parametrize("path", write.outputs.PAGES, ids=lambda path: path.name)
def test_a_page_with_what_takes_long_is_what_the_code_says(path: Path) -> None:
    assert path.read_bytes() == write.PAGES[path](), f"{path.name}: stale: `make pages` writes it anew"


@pytest.mark.parametrize("struct", record_page.places(), ids=lambda struct: struct.__name__)
def test_a_docstring_explains_keys_of_its_struct(struct: type[Section]) -> None:
    """A line that is no `key: meaning` of it would be lost without a word."""
    said = record_page.meanings(struct)
    assert set(said) <= set(struct.__struct_fields__)
    body = inspect.cleandoc(struct.__dict__.get("__doc__") or "").partition("\n\n")[2]
    assert len([line for line in body.splitlines() if not line.startswith(" ")]) == len(said)


def test_no_two_structs_share_a_heading() -> None:
    names = [struct.__name__.lower() for struct in record_page.places()]
    assert sorted(names) == sorted(set(names))
