"""The judgements of claims.json on a terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from copyscope.escaping import visible

STYLES = {"holds": "green", "refuted": "red", "undetermined here": "yellow"}
BESIDE = {"io_uring": "through io_uring", "modelled": "in the model"}
SHORT = 240  # characters of evidence without --verbose; claims.json has all of it


def render(made: Mapping[str, Any], *, verbose: bool, console: Console) -> None:
    """One row per claim: what was claimed, the verdict, and the numbers that it rests on."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=False, width=min(console.width, 100))
    table.add_column("id", no_wrap=True)
    table.add_column("claim, and who made it", ratio=2)
    table.add_column("verdict", no_wrap=True)
    table.add_column("evidence", ratio=3)
    for row in made["claims"]:
        said = [((row["id"], f"{row['claim']} ({row['source']})"), row)]
        for key, name in BESIDE.items():
            if row.get(key) is not None:
                said.append((("", name), row[key]))
        for names, one in said:
            evidence = one["evidence"]
            if not verbose and len(evidence) > SHORT:
                evidence = f"{evidence[:SHORT].rsplit(' ', 1)[0]} ... (-v)"
            cells = (*names, one["verdict"], evidence)
            # text, not markup: evidence may hold brackets
            styles = ("", "", STYLES[one["verdict"]], "")
            table.add_row(*(Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)))
        table.add_section()
    console.print(table)
    tally = ", ".join(f"{count} {verdict}" for verdict, count in made["tally"].items())
    if any(row.get("modelled") is not None for row in made["claims"]):
        console.print("in the model: misses counted in a simulated machine, beside the verdict of this one")
    if any(row.get("io_uring") is not None for row in made["claims"]):
        console.print("through io_uring: uring_send in the place of one_copy, uring_zc in that of zero_copy")
    host = made["machine"].get("hostname")
    console.print(visible(f"{tally}; {made['valid_runs']} valid runs" + (f" of {host}" if host else "")))
