"""One command on many hosts, as a table: a host a row, whatever came of it; then who is unlike the others."""

from collections.abc import Sequence

from rich.text import Text

from copyscope import units
from copyscope.escaping import visible
from copyscope.fleet import outliers
from copyscope.fleet.answers import Row
from copyscope.render.layout import Table, heading, wrap

SENTENCES_MAX = 20


def fleet_lines(rows: Sequence[Row], command: str, width: int) -> list[Text]:
    """The table, in the order of the inventory, and below it what is to be looked at."""
    table = Table.of(
        ("host",),
        *("kernel", "NIC", "state", "valid", "zero-copy sends copied", "seconds"),
        words=("kernel", "NIC", "state", "valid"),
    )
    for row in rows:
        kernel = None if row.facts is None else visible(row.facts.kernel)
        nics = None if row.facts is None else visible(" ".join(row.facts.nics)) or "none"
        valid = None if row.valid is None else "yes" if row.valid else "no"
        copied = units.format_percent(row.copied)
        took = None if row.seconds is None else f"{row.seconds:.1f}"
        table.add(row.host, kernel, nics, row.state, valid, copied, took, strong=row.state != "ok")
    good = sum(row.state == "ok" for row in rows)
    lines = heading(f"{command} on {len(rows)} hosts", f"{good} ok", width)[1:] + table.lines(width)
    sentences = outliers.find(rows)
    if sentences:
        lines += heading("TO LOOK AT", "", width)
    for sentence in sentences[:SENTENCES_MAX]:
        lines += wrap(sentence, width, indent=2)
    if len(sentences) > SENTENCES_MAX:
        lines += wrap(
            f"and {len(sentences) - SENTENCES_MAX} differences more: they are in the records", width
        )
    return lines
