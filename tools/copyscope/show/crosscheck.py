"""The table of a cross-check: quantity, ours, theirs, ratio with interval, agree or not."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from copyscope.crosscheck.compare import Row
from copyscope.grouping import grouped
from copyscope.show.account_words import called
from copyscope.show.console import print_lines, report_width
from copyscope.show.layout import Table, heading, wrap


def render_crosscheck(
    title: str, rows: Sequence[Row], absent: Mapping[str, str], loss: Sequence[str], console: Console
) -> None:
    """`absent`: tools that could not be asked, with the reason; `loss`: why the run itself is invalid."""
    width = report_width(console)
    lines = heading("SECOND OPINION", title, width)
    titles = ("ours", "theirs", "ratio", "interval", "agree")
    table = Table(("quantity", "by"), *titles, words=("agree",))
    for row in rows:
        verdict = {True: "yes", False: "NO", None: None}[row.agrees]
        interval = None if row.low is None else f"{row.low:.3f} to {row.high:.3f}"
        ratio = None if row.ratio is None else f"{row.ratio:.3f}"
        figures = (_figure(row.ours), _figure(row.theirs), ratio, interval, verdict)
        label = f"{row.quantity}, {row.unit}" if row.category is None else _name(row)
        table.add(label, row.peer, *figures)
    lines += table.lines(width)
    for (peer, reason), told in grouped(rows, lambda row: (row.peer, row.reason)).items():
        if reason:
            names = "; ".join(_name(row) for row in told)
            lines += wrap(f"{peer}, {names}: {reason}", width, indent=2, style="dim")
    for name, reason in absent.items():
        lines += wrap(f"{name} could not be asked: {reason}", width, indent=2, style="dim")
    for reason in loss:
        lines += wrap(f"our run is invalid: {reason}", width, indent=2, style="red")
    print_lines(lines, console)


def _name(row: Row) -> str:
    name = row.category
    return row.quantity if name is None else f"{row.quantity}: {called(name, watched=False)}"


def _figure(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
