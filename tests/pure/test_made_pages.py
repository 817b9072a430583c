# SPDX-License-Identifier: GPL-2.0-only
"""Generated pages are up to date, complete and short."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from copyscope.base.paths import ROOT
from copyscope.record.sections import Section

sys.path.append(str(ROOT / "tests" / "pages"))
record_page: Any = importlib.import_module("record_page")
write: Any = importlib.import_module("write")


# The slow output: all runs of a sweep are derived for it.
SLOW = "crossovers"
# Page -> its largest number of words, as `wc -w` counts them.
WORDS_MAX = {"record.md": 5000, "command-line.md": 2200}


@pytest.mark.parametrize("path", write.PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    expected = write.with_outputs(path, SLOW) if path in write.outputs.PAGES else write.PAGES[path]()
    assert path.read_bytes() == expected, f"{path.name}: stale: `make pages` writes it anew"


@pytest.mark.all
@pytest.mark.parametrize("path", write.outputs.PAGES, ids=lambda path: path.name)
def test_a_generated_page_with_slow_outputs_is_up_to_date(path: Path) -> None:
    assert path.read_bytes() == write.PAGES[path](), f"{path.name}: stale: `make pages` writes it anew"


@pytest.mark.parametrize("struct", record_page.places(), ids=lambda struct: struct.__name__)
def test_a_docstring_explains_only_keys_of_its_struct(struct: type[Section]) -> None:
    """The page would silently leave out a line that is not `key: meaning` or `key, key: meaning`."""
    meanings = record_page.meanings(struct)
    explained = [key for keys in meanings for key in keys]
    assert set(explained) <= set(struct.__struct_fields__) and len(explained) == len(set(explained))
    body = inspect.cleandoc(struct.__dict__.get("__doc__") or "").partition("\n\n")[2]
    assert len([line for line in body.splitlines() if not line.startswith(" ")]) == len(meanings)


def test_the_page_names_every_key_and_links_only_to_its_own_headings() -> None:
    text = record_page.page()
    keys = {
        record_page.name_of(field)
        for struct in record_page.places()
        for field in record_page.fields_of(struct)
        if not record_page.is_half_width(field.name, struct)
    }
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= set(map(record_page.anchor, headings))


@pytest.mark.parametrize("page, words_max", WORDS_MAX.items())
def test_a_generated_page_stays_short(page: str, words_max: int) -> None:
    """A key whose name and unit say everything needs no line; options of several commands are listed once."""
    assert len(write.PAGES[write.REFERENCE / page]().split()) <= words_max
