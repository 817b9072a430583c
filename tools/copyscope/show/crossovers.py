"""The answers of crossover.json on a terminal. Nothing is computed here but the form of a number."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from copyscope.judge.crossover import spelled
from copyscope.judge.crossover_file import CPU, QUANTITIES
from copyscope.show.console import print_lines, report_width
from copyscope.show.layout import Table, heading, labelled, without_gap, wrap
from copyscope.units import counted, format_size

Row = Mapping[str, Any]

SPLIT = ("copies", "pin", "completion", "mapped", "cipher", "packets", "rest", "sum")
# Shown where something has them.
SELDOM = ("mapped", "cipher")


def render(made: Row, *, verbose: bool, console: Console) -> None:
    """Print a crossover.json: where strategies overtake, what makes the difference; last the verdict."""
    width = report_width(console)
    rows = [row for row in made["crossovers"] if verbose or row["quantity"] in (CPU, "goodput_gbps")]
    lines = overtaking_lines(rows, width)
    lines += split_lines([row for row in rows if row["quantity"] == CPU], width)
    if verbose:
        lines.append(Text())
        for row in rows:
            who = f"{' -> '.join(row['pair'])}, {counted(row['threads'], 'thread')}"
            lines += wrap(f"{who}, {QUANTITIES[row['quantity']]}: {row['evidence']}", width, indent=2)
    lines += [Text(), *labelled("verdict", made["sentence"], width)]
    print_lines(without_gap(lines), console)


def overtaking_lines(rows: Sequence[Row], width: int) -> list[Text]:
    """One row per pair, number of threads and quantity."""
    lines = heading("CROSSOVERS", "the size at which the second overtakes the first; 95 % interval", width)
    if not rows:
        return lines + wrap("no two strategies were measured in the same setting", width)
    words = ("setting", "verdict")
    keys = ("first", "second", "threads", "quantity")
    table = Table(keys, *words, "second wins", "interval", words=words, numbers=("threads",))
    for row in rows:
        ends = (row["low_bytes"], row["high_bytes"])
        known = row["size_bytes"] is not None and ends != (None, None)
        table.add(
            *row["pair"],
            str(row["threads"]),
            QUANTITIES[row["quantity"]],
            ", ".join(f"{name} {spelled(value)}" for name, value in sorted(row["where"].items())) or None,
            row["verdict"],
            _place(row),
            f"{format_size(ends[0])}..{format_size(ends[1])}" if known else "-",
        )
    return lines + table.lines(width)


def split_lines(rows: Sequence[Row], width: int) -> list[Text]:
    """What the second strategy costs more than the first, at each size, by what costs it."""
    lines = heading(
        "THE DIFFERENCE", "second less first, ns/KiB of all CPU time; negative: the second saves it", width
    )
    splits = [at for row in rows for at in row["split_ns_per_kib"]]
    parts = [name for name in SPLIT if name not in SELDOM or any(at[name] for at in splits)]
    table = Table(("pair", "threads", "size"), *parts, numbers=("threads", "size"))
    for row in rows:
        for at in row["split_ns_per_kib"]:
            cells = [f"{at[name]:+.1f}" for name in parts]
            table.add(" -> ".join(row["pair"]), str(row["threads"]), format_size(at["size_bytes"]), *cells)
    return lines + table.lines(width) if table.rows else []


def _place(row: Row) -> str:
    """On which side of which size the second is better."""
    if row["size_bytes"] is None:
        return "-"
    return f"{'above' if row['above'] == row['pair'][1] else 'below'} {format_size(row['size_bytes'])}"
