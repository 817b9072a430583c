"""Doctor's findings as a table: what is not simply fine, with what to do about it; everything with -v."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from copyscope.doctor.findings import Diagnosis, Finding
from copyscope.grouping import grouped
from copyscope.show.console import REPORT_WIDTH

STYLES = {"ok": "green", "limited": "yellow", "missing": "bold red", "confounder": "cyan"}


def render(diagnosis: Diagnosis, *, verbose: bool, console: Console) -> None:
    """Print one block per area, at most 100 columns wide; the answer last: above it a screen may scroll."""
    width = min(console.width, REPORT_WIDTH)
    areas = grouped(diagnosis.findings, lambda row: row.area)
    fine = [] if verbose else [area for area, rows in areas.items() if not any(map(_is_told, rows))]
    for area, rows in areas.items():
        if area not in fine:
            console.print(Text(area.upper(), style="bold"))
            console.print(_table(rows, verbose), width=width)
            console.print()
    if fine:
        console.print(Text.assemble(("ok", STYLES["ok"]), f"  {', '.join(fine)}"), width=width)
    if not verbose:
        console.print("every fact: -v; as data: --json -", width=width)
    console.print(Text(diagnosis.sentence, style="bold"), width=width)


def _is_told(row: Finding) -> bool:
    """What is not simply fine, unless another row says why."""
    return row.status != "ok" and not row.cause


def _table(rows: Sequence[Finding], verbose: bool) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(min_width=12, max_width=34)
    table.add_column()
    fine = [row for row in rows if row.status == "ok"]
    # Neighbours that say the same are one row: a machine without a PMU lacks six counters for one reason.
    shown = rows if verbose else list(filter(_is_told, rows))
    for _, group in groupby(shown, key=lambda row: (row.status, row.fact, row.advice)):
        first, *_ = alike = list(group)
        names = ", ".join(row.name for row in alike)
        text = Text(first.fact)
        if first.advice is not None:
            text.append(f"\n→ {first.advice}", style="dim")
        table.add_row(Text(first.status, STYLES[first.status]), Text(names), text)
    if fine and not verbose:
        names = ", ".join(row.name.partition(" (")[0] for row in fine)
        table.add_row(Text("ok", STYLES["ok"]), Text(f"{len(fine)} of {len(rows)}"), Text(names))
    return table
