# SPDX-License-Identifier: GPL-2.0-only
"""The report and the page of a run in a browser: no console message, no finding of axe, nothing cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import stack_record
from browser import CUT, SCREENS, look
from builders.documents import advise, derive, typed_whole
from builders.sweep import store, sweep
from builders.watched import watched_record
from copyscope.commands import report
from copyscope.report.exports import FORMATS


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = sweep(sizes=(64, 4096, 65_536), threads=(1, 4), repeats=2)
    directory = store(records, tmp_path_factory.mktemp("results") / "host" / "demo")
    assert report.main([str(directory)]) == 0
    return (directory / "report.html").as_uri()


def runs() -> dict[str, dict[str, Any]]:
    watched = derive(watched_record())
    watched["advice"] = advise(watched, None)
    return {"run": stack_record.record(), "watched": watched}


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_the_report_has_no_console_message_and_nothing_cut_off(page: str, width: int, dark: bool) -> None:
    name = f"report-{width}-{'dark' if dark else 'light'}"
    answer = look(page, width=width, dark=dark, axe=True, ask=CUT, name=name)
    assert (answer["messages"], answer["findings"]) == ([], [])
    assert answer["said"] <= 0


@pytest.mark.parametrize(("width", "dark"), [SCREENS[0], SCREENS[3]])
@pytest.mark.parametrize("kind", ["run", "watched"])
def test_the_page_of_a_run_has_no_console_message_and_nothing_cut_off(
    kind: str, width: int, dark: bool, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    file.write_bytes(FORMATS["html"].write_run(typed_whole(runs()[kind])))
    answer = look(file.as_uri(), width=width, dark=dark, axe=True, ask=CUT, name=f"{kind}-{width}")
    assert (answer["messages"], answer["findings"]) == ([], [])
    assert answer["said"] <= 0


def test_a_menu_of_the_report_shows_one_setting(page: str) -> None:
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


def test_tables_sort_by_number_and_filter_by_a_word(page: str) -> None:
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
    up, down, visible_rows = look(page, ask=ask)["said"]
    assert list(dict.fromkeys(up)) == ["64 B", "4 KiB", "64 KiB"] and down == up[::-1]
    assert visible_rows == ["zero_copy"] * 6


def test_a_verdict_links_to_its_row(page: str) -> None:
    answer = look(page, clicks=["#verdict ~ .wide td a"], ask="document.querySelector(':target').textContent")
    assert "zero_copy" in answer["said"] or "one_copy" in answer["said"]
