# SPDX-License-Identifier: GPL-2.0-only
"""The table of a crosscheck: quantity, ours, theirs, ratio with interval, agreement."""

from collections.abc import Mapping, Sequence

from agreement import Row
from copyscope.base.stats import grouped
from copyscope.show.layout import TextTable, heading, print_lines, report_width, wrap
from copyscope.taxonomy.accounts import called
from rich.console import Console


def render(
    title: str, rows: Sequence[Row], absent: Mapping[str, str], invalid: Sequence[str], console: Console
) -> None:
    """Print the table. `absent`: why a tool did not run; `invalid`: why copyscope's own run is invalid."""
    width = report_width(console)
    lines = heading("SECOND OPINION", title, width)
    titles = ("ours", "theirs", "ratio", "interval", "agree")
    table = TextTable(("quantity", "by"), *titles, words=("agree",))
    for row in rows:
        verdict = {True: "yes", False: "NO", None: None}[row.agrees]
        interval = None if row.low is None else f"{row.low:.3f} to {row.high:.3f}"
        ratio = None if row.ratio is None else f"{row.ratio:.3f}"
        figures = (_figure(row.ours), _figure(row.theirs), ratio, interval, verdict)
        label = f"{row.quantity}, {row.unit}" if row.category is None else _name(row)
        table.add(label, row.peer, *figures)
    lines += table.lines(width)
    for (peer, reason), same in grouped(rows, lambda row: (row.peer, row.reason)).items():
        if reason:
            names = "; ".join(_name(row) for row in same)
            lines += wrap(f"{peer}, {names}: {reason}", width, indent=2, style="dim")
    for name, reason in absent.items():
        lines += wrap(f"{name} did not run: {reason}", width, indent=2, style="dim")
    for reason in invalid:
        lines += wrap(f"our run is invalid: {reason}", width, indent=2, style="red")
    print_lines(lines, console)


def _name(row: Row) -> str:
    name = row.category
    return row.quantity if name is None else f"{row.quantity}: {called(name, watched=False)}"


def _figure(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
