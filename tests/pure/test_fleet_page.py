"""The fleet's page: every host once, who differs, and what hosts say of themselves as text alone."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from copyscope.fleet.answers import Facts, Row
from copyscope.render.fleet_page import fleet_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"' \x1b[2J\n../"


class Page(HTMLParser):
    """The tags, the attributes and the texts of the cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def test_every_host_is_a_row_and_who_differs_is_named() -> None:
    facts = Facts("6.12.1", "x86_64", ["mlx5_core"])
    rows = [Row(f"h{n}", "ok", facts, True, 0.0, traits={"zero-copy sends": "not copied"}) for n in range(40)]
    copied = {"zero-copy sends": "copied after all: a packet socket of lldpd"}
    rows += [Row("odd", "ok", Facts("6.1.0", "x86_64", ["e1000"]), True, 1.0, traits=copied)]
    rows += [Row("gone", "unreachable", cause="connect to gone: refused")]
    page = fleet_page(rows, "run --impl zero_copy", "2026-11-23T03:00:00.000000+00:00")
    found = Page(page)
    # A title and a row for each host, for each of three kernels, for each of three NICs.
    assert found.tags.count("tr") == 43 + 4 + 4
    assert "1 of 41: zero-copy sends: copied after all: a packet socket of lldpd: odd" in page
    assert "1 of 42 unreachable: gone: connect to gone: refused" in page
    cells = [cell.strip() for cell in found.cells]
    for group in (["6.12.1", "40", "40", "0 of 40"], ["e1000", "1", "1", "1 of 1"], ["not known", "1"]):
        assert any(cells[at : at + len(group)] == group for at in range(len(cells))), group
    assert "Begun 2026-11-23 03:00 UTC: 41 ok, 1 unreachable." in page


def test_what_a_host_says_is_text_and_nothing_else() -> None:
    rows = [
        Row(EVIL, "failed", Facts(EVIL, EVIL, [EVIL]), None, None, EVIL, {EVIL: EVIL}),
        Row("h", "ok", traits={EVIL: "else"}),
    ]
    page = fleet_page(rows, EVIL, EVIL)
    plain = fleet_page(
        [Row("a", "failed", Facts("k", "a", ["n"]), cause="c", traits={"t": "v"})] * 2, "c", "b"
    )
    # The tags and attributes are those of a page of plain words: nothing of it has become markup.
    assert set(Page(page).tags) <= set(Page(plain).tags) and Page(page).names == Page(plain).names
    assert page.count("<script>") == page.count("</script>") == 1 and "\x1b" not in page
    assert any("alert(1)" in cell for cell in Page(page).cells)


def test_the_page_runs_one_script_and_fetches_nothing() -> None:
    page = fleet_page([Row("h", "ok")], "doctor", "2026-11-23T03:00:00")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy and f"script-src 'sha256-{digest}'" in policy
    assert "http://" not in page and "https://" not in page
