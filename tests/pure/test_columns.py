# SPDX-License-Identifier: GPL-2.0-only
"""Columns of the ledger: an invented column appears on every screen and displaces no other."""

import csv
import io
import re
from dataclasses import replace

import pytest
from builders import raw_record
from builders.documents import derive, typed_whole
from copyscope.report.exports import FORMATS
from copyscope.show import columns
from copyscope.show.columns import COLUMNS, InTable, LedgerColumn, OnFirstScreen, OnPage
from copyscope.show.ledger_cells import LedgerPart
from copyscope.show.path_table import path_lines
from test_first_screen import MODELLED, screen
from test_render import Record, report


def bytes_per_call(part: LedgerPart) -> float | None:
    """Divide the bytes of a copy by its calls."""
    sizes = [row.bytes / row.calls for row in part.copies if row.bytes is not None and row.calls]
    return sizes[0] if sizes else None


TITLE = "bytes for each call"
INVENTED = LedgerColumn(
    name="bytes_per_call",
    unit="bytes",
    value=bytes_per_call,
    first=OnFirstScreen(TITLE, missing=""),
    table=InTable(TITLE),
    page=OnPage(TITLE),
    in_files=True,
    reason="bytes",
)
# Columns in the order in which a narrow terminal drops them, and columns that are never dropped.
DROPPED = ["mostly in", "calls", "bytes", "CPU time", "L1D miss", "L1D sim"]
KEPT = ["what", "where", "ns/KiB", "±", "share", "cycles", "LLC miss", "LLC sim"]


def measured(*, pmu: bool = False) -> Record:
    """Return a record in which 1,000 calls copied 4,321,000 bytes into the kernel.

    pmu: also with hardware events and a cache model, so that no common terminal has room for all columns
    """
    record = derive(raw_record("one_copy", pmu=pmu))
    for row in record["ledger"]:
        if row["account"] == "copy_in":
            row |= {"bytes": 4_321_000, "calls": 1_000}
        else:
            row |= {"bytes": None, "reasons": {**row["reasons"], "bytes": "the hook was refused"}}
    return {**record, "modelled": MODELLED} if pmu else record


def titles(record: Record, width: int) -> list[str]:
    """Return the titles of the first screen's table at a width, in the order of KEPT and DROPPED."""
    lines = [line.plain for line in path_lines(typed_whole(record), width, 8, explain=False)]
    head = next(line for line in lines if line.startswith("what"))
    return [title for title in (*KEPT, *DROPPED, TITLE) if re.search(rf"(?<!\S){title}(?!\S)", head)]


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "COLUMNS", (INVENTED, *COLUMNS))


@pytest.mark.usefixtures("invented")
def test_an_invented_column_is_on_the_screens() -> None:
    wide = screen(measured(), 160, 50)
    (copy,) = [line for line in wide.splitlines() if line.startswith("copy into the kernel")]
    assert TITLE in wide and " 4,321 " in copy
    tables = report(measured())
    (shown,) = re.findall(rf"^copy +side +where.* {TITLE}\b.*\n(.*)$", tables, re.MULTILINE)
    assert shown.startswith("copy into the kernel") and "4,321" in shown.split()


@pytest.mark.usefixtures("invented")
def test_an_invented_column_is_in_the_page_and_behind_the_others_in_the_files() -> None:
    run = typed_whole(measured())
    page = FORMATS["html"].write_run(run).decode()
    assert re.search(rf"<th[^>]*>{TITLE}</th>", page) and re.search(r"<td[^>]*>4,321</td>", page)
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"].write_run(run).decode())))
    assert [*lines[0]][-1] == "bytes_per_call"
    assert [line["bytes_per_call"] for line in lines if line["name"] == "copy_in"] == ["4321"]
    assert {line["bytes_per_call"] for line in lines if line["name"] != "copy_in"} == {""}


@pytest.mark.usefixtures("invented")
def test_a_missing_value_keeps_its_reason() -> None:
    tables = " ".join(report(measured()).split())
    assert f"n/a: {TITLE}, bytes of copy to the receiver: the hook was refused" in tables
    assert "n/a: the hook was refused." in FORMATS["html"].write_run(typed_whole(measured())).decode()


@pytest.mark.parametrize("width", [80, 100, 120, 140, 160])
def test_an_invented_column_displaces_no_other(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns there is no room for it."""
    record = measured(pmu=True)
    before = titles(record, width)
    monkeypatch.setattr(columns, "COLUMNS", (INVENTED, *COLUMNS))
    after = titles(record, width)
    assert [title for title in after if title != TITLE] == before
    assert width > 80 or after == before


def test_columns_without_room_are_dropped_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    at_every_width = [
        replace(column, first=column.first and replace(column.first, from_width=0)) for column in COLUMNS
    ]
    monkeypatch.setattr(columns, "COLUMNS", at_every_width)
    record = measured(pmu=True)
    counts = set()
    for width in range(76, 200, 3):
        shown = titles(record, width)
        dropped = [title for title in DROPPED if title not in shown]
        assert dropped == DROPPED[: len(dropped)]
        assert shown[: len(KEPT)] == KEPT
        counts.add(len(dropped))
    assert counts == {*range(len(DROPPED) + 1)}


def test_names_are_unique_and_every_listed_name_is_a_column() -> None:
    names = [column.name for column in COLUMNS]
    assert len({*names}) == len(names)
    assert {*columns.FIRST_SCREEN_ORDER} == {column.name for column in COLUMNS if column.first}
    assert [column.name for column in columns.file_columns()] == [*columns.FILE_ORDER]
