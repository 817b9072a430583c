"""The table of a fleet as one HTML page that needs nothing else; what hosts say is text in it."""

from collections import Counter
from collections.abc import Sequence

from copyscope import units
from copyscope.fleet.answers import Row
from copyscope.grouping import grouped
from copyscope.render.fleet import COLUMNS, cells_of, sentences_of
from copyscope.render.report import blocks, html


def fleet_page(rows: Sequence[Row], command: str, began: str) -> str:
    """The same as one HTML page that needs nothing else; `began`: the time in UTC."""
    counts = Counter(row.state for row in rows)
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    sentences = sentences_of(rows)
    hosts: list[list[str | blocks.Cell]] = [[cell or "" for cell in cells_of(row)] for row in rows]
    for row, cells in zip(rows, hosts, strict=True):
        cells[COLUMNS.index("state")] = blocks.Cell(row.state, "" if row.state == "ok" else "bad")
        cells.append(row.cause or "")
    return html.write(
        [
            blocks.Heading(1, f"{command} on {units.counted(len(rows), 'host')}", "top"),
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


def _groups(of: str, rows: Sequence[Row]) -> blocks.Table:
    """How many hosts have it, how many of them are ok, and of how many zero-copy sends were copied."""
    found = grouped(rows, lambda row: cells_of(row)[COLUMNS.index(of)] or "not known")
    lines = []
    for name, alike in sorted(found.items(), key=lambda pair: -len(pair[1])):
        told = [row.copied for row in alike if row.copied is not None]
        copied = f"{sum(share > 0 for share in told)} of {len(told)}" if told else ""
        lines.append([name, str(len(alike)), str(sum(row.state == "ok" for row in alike)), copied])
    return blocks.Table([of, "hosts", "ok", "zero-copy sends copied"], lines, frozenset((1, 2, 3)))
