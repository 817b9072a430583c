# SPDX-License-Identifier: GPL-2.0-only
"""With too few samples, no screen, file or export gives a share of CPU time."""

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.record.run import Run
from copyscope.report import openmetrics, page, path_drawing
from copyscope.report.costs import costs, flame_graph, folded, table
from copyscope.report.table_files import as_csv
from copyscope.show import first_screen, live, terminal, watch
from copyscope.show.layout import make_console

FEW = "19 samples: too few for shares"


def with_samples(raw: dict[str, Any], count: int) -> Run:
    """Return a run of which all samples are `count` samples of equal weight, 8 of them in a copy."""
    event = raw["samples"][0]["event"]
    rows = [row for row in raw["samples"] if row["event"] == event and row["side"] != "other"]
    copies = [row for row in rows if row["kind"] == "account"]
    # Own traffic gets a copy of each side, a watched program its copy and a stage.
    second = next((row for row in copies if row["side"] != copies[0]["side"]), None)
    rows = [copies[0], second or next(row for row in rows if row["kind"] == "stage")]
    for row, samples in zip(rows, (8, count - 8), strict=True):
        row |= {"samples": samples, "weight": samples * 1_000_000, "weight_squared": samples * 10**12}
    raw["samples"], raw["stacks"] = rows, None
    return typed_whole(derive(raw))


RECORDS: dict[str, Callable[[], dict[str, Any]]] = {
    "own": lambda: raw_record("one_copy"),
    "watched": watched_record,
}
each_record = pytest.mark.parametrize("kind", RECORDS)


def page_of(run: Run) -> str:
    """Return the page of a run without its last section, which repeats the terminal, and without styles."""
    text = page.write(run).decode()
    start, end = text.index("<main" if "<main" in text else "<body"), text.index('id="all"')
    return re.sub(r'style="[^"]*"', "", text[start:end])


@each_record
@pytest.mark.parametrize("count", [19, 29])
def test_pages_and_drawings_refuse_the_shares_that_the_terminal_refuses(kind: str, count: int) -> None:
    run, few = with_samples(RECORDS[kind](), count), f"{count} samples: too few for shares"
    shown, drawn = page_of(run), path_drawing.draw(run)
    assert f"Not drawn: {few}" in shown and f"n/a: {few}" in drawn
    assert "% of all CPU time" not in drawn and "n/a ns/KiB" in drawn
    assert 'class="bars"' not in shown
    ledger = shown[shown.index('id="ledger"') :]
    assert not re.search(r"<td[^>]*>\d+\.\d%", ledger), "a share in the table of the ledger"
    assert f"n/a: {few}" in ledger


@each_record
def test_thirty_samples_are_enough(kind: str) -> None:
    run = with_samples(RECORDS[kind](), 30)
    shown, drawn = page_of(run), path_drawing.draw(run)
    assert "too few" not in shown + drawn and "% of all CPU time" in drawn
    assert re.search(r"\d+\.\d% \(\d+\.\d to \d+\.\d\)", shown), "bars have intervals"
    assert shown.count("<s ") == 2


@each_record
def test_exports_do_not_divide_the_time_of_too_few_samples(kind: str) -> None:
    run = with_samples(RECORDS[kind](), 19)
    sides = {**run.derived.sides.processes(), "other": run.derived.sides.other}
    known_ns = {side: round(spent.cpu_ns) for side, spent in sides.items() if spent.cpu_ns}
    assert {cost.side: cost.ns for cost in costs(run) if cost.ns} == known_ns
    assert folded(run).decode() == "".join(f"{side};[{FEW}] {ns}\n" for side, ns in sorted(known_ns.items()))
    assert FEW in flame_graph(run).decode()
    rows = list(csv.DictReader(io.StringIO(as_csv(table(run)).decode())))
    assert rows and not any(row[name] for row in rows for name in ("share", "cpu_ns", "ns_per_kib"))
    assert any(row["cpu_ns_high"] for row in rows), "intervals are valid for any number of samples"
    metrics = openmetrics.write(run, openmetrics.OPENMETRICS).decode()
    assert "row_cpu_seconds" not in metrics and "row_bytes" in metrics


def test_screens_refuse_shares_of_too_few_samples() -> None:
    own, watched = (with_samples(make(), 19) for make in RECORDS.values())
    for run, render in ((own, terminal.render), (watched, watch.render)):
        stream = io.StringIO()
        render(run, verbose=True, explain=False, console=make_console(stream))
        first_screen.render(run, make_console(stream))
        shown = stream.getvalue()
        assert shown.count(FEW) >= 3, shown
        assert not re.search(r"^(sum|user|copies) .* %", shown, re.MULTILINE), shown
    assert live.log_line(watched).count(FEW) == 1 and live.shares(watched) == []


def test_the_screen_says_how_to_get_more_samples_of_callers() -> None:
    raw = watched_record()
    row = {"event": "cpu-clock", "copy": "memmove", "file": "/bin/x", "source": None, "reason": None}
    raw["user_callers"] = [{**row, "caller": "fill", "samples": 6}]
    stream = io.StringIO()
    first_screen.render(typed_whole(derive(raw)), make_console(stream))
    text = " ".join(stream.getvalue().split())
    assert "program's own memcpy, callers: 6 samples: too few; --frequency 999" in text
