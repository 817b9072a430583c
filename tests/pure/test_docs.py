"""Links and names in all pages lead somewhere."""

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
    for place in (".", "docs", "experiments", "results")
    for path in (ROOT / place).glob("**/*.md" if place in ("docs", "results") else "*.md")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_links_lead_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", text):
        file, _, heading = (target[0] or target[1]).partition("#")
        if ":" in file:
            continue
        found = page.parent / file if file else page
        assert found.exists(), f"{file}: not there"
        if heading:
            assert heading in anchors(found), f"{file}#{heading}: no such heading"


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    return {anchor(title) for title in re.findall(r"^#+ .*$", page.read_text(encoding="utf-8"), re.MULTILINE)}


def test_pages_that_have_moved_are_named_nowhere() -> None:
    """A message that sends its reader to a page which is not there helps nobody."""
    moved = re.compile(r"\b(?:METHOD|RECORD|RESULTS|VERDICTS|KERNELS|MACHINES|BPFTRACE)\.md")
    root = DOCS.parent
    places = [root / name for name in ("tools", "src", "bpf", "tests", "experiments", "docs", ".ci")]
    files = [path for place in places for path in place.rglob("*") if path.suffix in SOURCES]
    files += [root / "README.md", root / "Makefile"]
    named = [str(path) for path in files if path != Path(__file__) and moved.search(path.read_text("utf-8"))]
    assert named == []


def test_files_that_are_named_by_path_are_there() -> None:
    """`docs/...` in sources, messages and pages, and committed results in pages."""
    root = DOCS.parent
    places = [root / name for name in ("tools", "src", "bpf", "tests", "experiments", "docs", ".ci")]
    files = [path for place in places for path in place.rglob("*") if path.suffix in SOURCES]
    for path in [*files, root / "README.md", root / "Makefile"]:
        for named in re.findall(r"\bdocs/[\w./-]*\w", path.read_text("utf-8")):
            assert (root / named).exists(), f"{path}: {named}"
    for page in PAGES:
        for named in re.findall(
            r"\b(?:docs|results/vm|tools|src|tests|bpf)/[\w./-]*\w", page.read_text("utf-8")
        ):
            missing = not (root / named).exists() and "NAME" not in named
            assert not missing, f"{page}: {named}"


def anchor(title: str) -> str:
    """A heading as GitHub names it in a link."""
    return re.sub(r"[^\w\- ]", "", title.lstrip("# ").lower()).replace(" ", "-")


def test_the_readme_is_read_in_a_minute() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110 and len(text.split()) <= 900
    assert "sudo make profile" in text and "sudo make test" in text


def test_each_command_has_a_page_of_examples_and_the_citation_names_this_version() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/examples").glob("*.md"))
    elsewhere = {"fleet"}  # docs/reference/fleet.md: its hosts are not here
    shown = {verb.name for verb in VERBS if f"`copyscope {verb.name}`" in pages or f"`{verb.name}`" in pages}
    assert {verb.name for verb in VERBS} - shown == elsewhere
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
