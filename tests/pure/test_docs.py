# SPDX-License-Identifier: GPL-2.0-only
"""Links, paths and names in all pages exist."""

import re
from pathlib import Path

import pytest
from copyscope import VERSION
from copyscope.commands.verbs import VERBS

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCES = {".py", ".c", ".h", ".md", ".toml", ".sh", ".mk"}
ROOT = DOCS.parent
PAGES = sorted(
    path
    for folder in (".", "docs", "experiments", "results")
    for path in (ROOT / folder).glob("**/*.md" if folder in ("docs", "results") else "*.md")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_links_lead_to_existing_files_and_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", text):
        file, _, heading = (target[0] or target[1]).partition("#")
        if ":" in file:
            continue
        linked_page = page.parent / file if file else page
        assert linked_page.exists(), f"{file}: not there"
        if heading:
            assert heading in anchors(linked_page), f"{file}#{heading}: no such heading"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from the headings of a page."""
    return {anchor(title) for title in re.findall(r"^#+ .*$", page.read_text(encoding="utf-8"), re.MULTILINE)}


def test_no_file_names_a_page_that_was_moved() -> None:
    """Neither sources nor pages refer to a page that was moved."""
    moved = re.compile(r"\b(?:METHOD|RECORD|RESULTS|VERDICTS|KERNELS|MACHINES|BPFTRACE)\.md")
    root = DOCS.parent
    places = [root / name for name in ("tools", "src", "bpf", "tests", "experiments", "docs", ".ci")]
    files = [path for folder in places for path in folder.rglob("*") if path.suffix in SOURCES]
    files += [root / "README.md", root / "Makefile"]
    named = [str(path) for path in files if path != Path(__file__) and moved.search(path.read_text("utf-8"))]
    assert named == []


def test_paths_in_sources_and_pages_exist() -> None:
    """Sources may name `docs/...`. Pages may also name sources and committed results."""
    root = DOCS.parent
    places = [root / name for name in ("tools", "src", "bpf", "tests", "experiments", "docs", ".ci")]
    files = [path for folder in places for path in folder.rglob("*") if path.suffix in SOURCES]
    for path in [*files, root / "README.md", root / "Makefile"]:
        for named in re.findall(r"\bdocs/[\w./-]*\w", path.read_text("utf-8")):
            assert (root / named).exists(), f"{path}: {named}"
    for page in PAGES:
        for named in re.findall(
            r"\b(?:docs|results/vm|tools|src|tests|bpf)/[\w./-]*\w", page.read_text("utf-8")
        ):
            missing = not (root / named).exists() and "NAME" not in named
            assert not missing, f"{page}: {named}"


def test_names_in_contributing_exist_in_the_files_of_their_row() -> None:
    """Each `NAME` or `function()` in a row of CONTRIBUTING.md is in a file that the row names."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## How to add")[2]
    for row in re.findall(r"^\| .*$", table, re.MULTILINE):
        files = re.findall(r"`([\w./]+\.\w+)`", row)
        paths = [ROOT / room / file for file in files for room in ("", "tools/copyscope")]
        text = "".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
        for name in re.findall(r"`([A-Z][A-Z_]{3,}|\w+(?=\(\)))(?:\(\))?`", row):
            assert re.search(rf"\b{name}\b", text), f"CONTRIBUTING.md: {name}: not in {', '.join(files)}"


def anchor(title: str) -> str:
    """Return the anchor that GitHub makes from a heading."""
    return re.sub(r"[^\w\- ]", "", title.lstrip("# ").lower()).replace(" ", "-")


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130 and len(text.split()) <= 900
    assert "sudo make profile" in text and "sudo make test" in text


def test_each_command_has_a_page_of_examples() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/examples").glob("*.md"))
    elsewhere = {"fleet"}  # its page is docs/reference/fleet.md, because examples need more hosts
    shown = {verb.name for verb in VERBS if f"`copyscope {verb.name}`" in pages or f"`{verb.name}`" in pages}
    hint = "write a page below docs/examples, with `copyscope VERB` in its title"
    assert {verb.name for verb in VERBS} - shown == elsewhere, hint


def test_version_citation_and_changes_name_one_release() -> None:
    """The workflow compares the tag of a release with VERSION (.github/workflows/ci.yml)."""
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None and first[1] == VERSION


def test_actions_are_pinned_by_hash() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    uses = re.findall(r"uses: (\S+)", text)
    assert uses and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in uses)
