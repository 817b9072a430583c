"""One command on many hosts, as a table: a host a row, whatever came of it; then who is unlike the others."""

from collections.abc import Sequence

from rich.text import Text

from copyscope import units
from copyscope.escaping import visible
from copyscope.fleet import outliers
from copyscope.fleet.answers import Row
from copyscope.show.layout import Table, heading, wrap

COLUMNS = ("host", "kernel", "NIC", "state", "valid", "zero-copy sends copied", "ns/KiB")
WORDS = ("kernel", "NIC", "state", "valid")
SENTENCES_MAX = 20


def fleet_lines(rows: Sequence[Row], command: str, width: int) -> list[Text]:
    """The table, in the order of the inventory, and below it what is to be looked at."""
    table = Table(COLUMNS[:1], *COLUMNS[1:], words=WORDS)
    for row in rows:
        cells = (None if cell is None else visible(cell) for cell in cells_of(row))
        table.add(*cells, strong=row.state != "ok")
    good = sum(row.state == "ok" for row in rows)
    title = f"{command} on {units.counted(len(rows), 'host')}"
    lines = heading(title, f"{good} ok", width)[1:] + table.lines(width)
    sentences = sentences_of(rows)
    if sentences:
        lines += heading("TO LOOK AT", "", width)
    return [*lines, *(line for sentence in sentences for line in wrap(sentence, width, indent=2))]


def cells_of(row: Row) -> list[str | None]:
    return [
        row.host,
        None if row.facts is None else row.facts.kernel,
        None if row.facts is None else " ".join(row.facts.nics) or "none",
        row.state,
        None if row.valid is None else "yes" if row.valid else "no",
        units.format_percent(row.copied),
        units.format_tenths(row.ns_per_kib),
    ]


def sentences_of(rows: Sequence[Row]) -> list[str]:
    found = outliers.find(rows)
    more = len(found) - SENTENCES_MAX
    told = [f"and {more} more differences: they are in the records"] if more > 0 else []
    return [*found[:SENTENCES_MAX], *told]
