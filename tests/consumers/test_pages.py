"""The report and the page of a run in a browser: nothing on the console, no finding of axe, nothing cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from browser import look
from builders.sweep import store, sweep
from builders.watched import watched_record
from copyscope.commands import report
from copyscope.exports import FORMATS
from copyscope.judge import advice
from copyscope.ledger.derive import derive
from copyscope.record.check import typed_whole

SCREENS = [(1280, False), (1280, True), (400, False), (400, True)]
# Wider than the screen and without a bar of its own to scroll with: what is cut.
CUT = """
(() => {
  const wide = [document.documentElement.scrollWidth - innerWidth];
  for (const one of document.querySelectorAll('figure, img, svg, p, h1, h2, h3, select, .choice, main > *'))
    if (!one.closest('.wide')) wide.push(Math.round(one.getBoundingClientRect().right - innerWidth));
  return Math.max(...wide);
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = sweep(sizes=(64, 4096, 65_536), threads=(1, 4), repeats=2)
    directory = store(records, tmp_path_factory.mktemp("results") / "host" / "demo")
    assert report.main([str(directory)]) == 0
    return (directory / "report.html").as_uri()


def runs() -> dict[str, dict[str, Any]]:
    watched = derive(watched_record())
    watched["advice"] = advice.advise(watched, None)
    return {"run": made.record(), "watched": watched}


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_the_report(page: str, width: int, dark: bool) -> None:
    name = f"report-{width}-{'dark' if dark else 'light'}"
    found = look(page, width=width, dark=dark, axe=True, ask=CUT, name=name)
    assert (found["messages"], found["findings"]) == ([], [])
    assert found["said"] <= 0


@pytest.mark.parametrize(("width", "dark"), [SCREENS[0], SCREENS[3]])
@pytest.mark.parametrize("kind", ["run", "watched"])
def test_the_page_of_a_run(kind: str, width: int, dark: bool, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_bytes(FORMATS["html"].make(typed_whole(runs()[kind])))
    found = look(file.as_uri(), width=width, dark=dark, axe=True, ask=CUT, name=f"{kind}-{width}")
    assert (found["messages"], found["findings"]) == ([], [])
    assert found["said"] <= 0


def test_a_menu_shows_one_setting(page: str) -> None:
    ask = """
    (() => {
      const box = document.querySelector('.choice'), [size, threads] = box.querySelectorAll('select');
      const seen = () => [...box.querySelectorAll('.view')].filter(one => one.open && !one.hidden)
        .map(one => one.dataset.setting);
      const found = [seen()];
      size.value = '4 KiB'; size.dispatchEvent(new Event('change'));
      threads.value = '4 threads'; threads.dispatchEvent(new Event('change'));
      return [...found, seen()];
    })()
    """
    assert look(page, ask=ask)["said"] == [['["64 KiB", "1 thread"]'], ['["4 KiB", "4 threads"]']]


def test_tables_sort_by_numbers_and_show_rows_with_a_word(page: str) -> None:
    ask = """
    (() => {
      const tables = [...document.querySelectorAll('table')];
      const table = tables.find(one => one.caption?.textContent === 'Results');
      const texts = at => [...table.tBodies[0].rows].filter(one => !one.hidden)
        .map(one => one.cells[at].textContent);
      const head = table.tHead.rows[0].cells[1].querySelector('button');
      head.click(); const up = texts(1); head.click(); const down = texts(1);
      const input = table.parentElement.previousElementSibling.querySelector('input');
      input.value = 'zero_copy'; input.dispatchEvent(new Event('input'));
      return [up, down, texts(0)];
    })()
    """
    up, down, kept = look(page, ask=ask)["said"]
    assert list(dict.fromkeys(up)) == ["64 B", "4 KiB", "64 KiB"] and down == up[::-1]
    assert kept == ["zero_copy"] * 6


def test_a_verdict_leads_to_its_row(page: str) -> None:
    found = look(page, clicks=["#verdict ~ .wide td a"], ask="document.querySelector(':target').textContent")
    assert "zero_copy" in found["said"] or "one_copy" in found["said"]
