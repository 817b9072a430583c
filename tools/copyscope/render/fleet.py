"""One command on many hosts, as a table and as a page: a host a row, whatever came of it, and who is unlike.

What hosts say of themselves is text and nothing else: the table makes it visible, the page escapes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from copyscope import units
from copyscope.escaping import visible
from copyscope.fleet import outliers
from copyscope.fleet.answers import Row
from copyscope.grouping import grouped
from copyscope.render.layout import Table, heading, wrap
from copyscope.render.report import blocks, html

COLUMNS = ("host", "kernel", "NIC", "state", "valid", "zero-copy sends copied", "seconds")
WORDS = ("kernel", "NIC", "state", "valid")
SENTENCES_MAX = 20


def fleet_lines(rows: Sequence[Row], command: str, width: int) -> list[Text]:
    """The table, in the order of the inventory, and below it what is to be looked at."""
    table = Table(COLUMNS[:1], *COLUMNS[1:], words=WORDS)
    for row in rows:
        cells = (None if cell is None else visible(cell) for cell in _cells(row))
        table.add(*cells, strong=row.state != "ok")
    good = sum(row.state == "ok" for row in rows)
    lines = heading(f"{command} on {len(rows)} hosts", f"{good} ok", width)[1:] + table.lines(width)
    sentences = _sentences(rows)
    if sentences:
        lines += heading("TO LOOK AT", "", width)
    return [*lines, *(line for sentence in sentences for line in wrap(sentence, width, indent=2))]


def fleet_page(rows: Sequence[Row], command: str, began: str) -> str:
    """The same as one HTML page that needs nothing else; `began`: the time in UTC."""
    counts = Counter(row.state for row in rows)
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    sentences = _sentences(rows)
    hosts: list[list[str | blocks.Cell]] = [[cell or "" for cell in _cells(row)] for row in rows]
    for row, cells in zip(rows, hosts, strict=True):
        cells[COLUMNS.index("state")] = blocks.Cell(row.state, "" if row.state == "ok" else "bad")
        cells.append(row.cause or "")
    return html.write(
        [
            blocks.Heading(1, f"{command} on {len(rows)} hosts", "top"),
            blocks.Paragraph(f"Begun {began[:16].replace('T', ' ')} UTC: {told}."),
            blocks.Heading(2, "To look at", "differ"),
            blocks.Bullets(sentences) if sentences else blocks.Paragraph("All hosts are alike."),
            blocks.Heading(2, "By kernel, by NIC", "groups"),
            _groups("kernel", rows),
            _groups("NIC", rows),
            blocks.Heading(2, "Hosts", "hosts"),
            blocks.Table([*COLUMNS, "why"], hosts, frozenset((5, 6)), whole=True),
        ],
        {},
    )


def _cells(row: Row) -> list[str | None]:
    return [
        row.host,
        None if row.facts is None else row.facts.kernel,
        None if row.facts is None else " ".join(row.facts.nics) or "none",
        row.state,
        None if row.valid is None else "yes" if row.valid else "no",
        units.format_percent(row.copied),
        None if row.seconds is None else f"{row.seconds:.1f}",
    ]


def _sentences(rows: Sequence[Row]) -> list[str]:
    found = outliers.find(rows)
    more = len(found) - SENTENCES_MAX
    told = [f"and {more} more differences: they are in the records"] if more > 0 else []
    return [*found[:SENTENCES_MAX], *told]


def _groups(of: str, rows: Sequence[Row]) -> blocks.Table:
    """How many hosts have it, how many of them are ok, and of how many zero-copy sends were copied."""
    found = grouped(rows, lambda row: _cells(row)[COLUMNS.index(of)] or "not known")
    lines = []
    for name, alike in sorted(found.items(), key=lambda pair: -len(pair[1])):
        told = [row.copied for row in alike if row.copied is not None]
        copied = f"{sum(share > 0 for share in told)} of {len(told)}" if told else ""
        lines.append([name, str(len(alike)), str(sum(row.state == "ok" for row in alike)), copied])
    return blocks.Table([of, "hosts", "ok", "zero-copy sends copied"], lines, frozenset((1, 2, 3)))
