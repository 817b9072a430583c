"""Crossovers on a terminal. Nothing is computed here but the form of a number."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from copyscope.grouping import grouped
from copyscope.judge.crossover import Crossover, spelled
from copyscope.judge.crossover_file import CPU, QUANTITIES
from copyscope.show.console import print_lines, report_width
from copyscope.show.layout import Table, heading, wrap
from copyscope.units import counted, format_size

SPLIT = ("copies", "pin", "completion", "mapped", "cipher", "packets", "rest", "sum")
# Shown where something has them.
SELDOM = ("mapped", "cipher")
# Verdicts that are not those of a reader.
WORDS = {"undetermined": "not clear"}
OF_TIME, OF_GOODPUT = CPU, "goodput_gbps"


def render(sentence: str, rows: Sequence[Crossover], *, verbose: bool, console: Console) -> None:
    """The answer, where strategies overtake, and with -v what the difference is."""
    width = report_width(console)
    lines = wrap(sentence, width, indent=2, style="bold")
    lines += overtaking_lines(rows, width)
    if not verbose:
        lines += [Text(), *wrap("-v: other quantities, the evidence, and what makes the difference", width)]
        print_lines(lines, console)
        return
    lines += split_lines([row for row in rows if row.quantity == CPU], width)
    lines.append(Text())
    for row in rows:
        who = f"{' -> '.join(row.pair)}, {counted(row.threads, 'thread')}"
        place = f"{_answer(row)}: {row.evidence}"
        lines += wrap(f"{who}, {QUANTITIES[row.quantity]}: {place}", width, indent=2)
    print_lines(lines, console)


def overtaking_lines(rows: Sequence[Crossover], width: int) -> list[Text]:
    """One row per pair: where the second is better. Numbers of threads with the same answer share it."""
    lines = heading("CROSSOVERS", "where the second is better (95 % interval); CPU time of both sides", width)
    if not rows:
        return lines + wrap("no two strategies were measured in the same setting", width)
    table = Table(
        ("first", "second", "threads"),
        *("setting", "goodput", "CPU time"),
        words=("setting", "goodput", "CPU time"),
        numbers=("threads",),
    )
    found = {
        setting: tuple({row.quantity: _answer(row) for row in some}.get(of) for of in (OF_GOODPUT, OF_TIME))
        for setting, some in grouped(rows, _setting).items()
    }
    pairs = list(grouped(found, lambda setting: (setting[0], setting[2])))
    by_pair = sorted(found, key=lambda setting: pairs.index((setting[0], setting[2])))
    alike = grouped(by_pair, lambda setting: (setting[0], setting[2], found[setting]))
    for (pair, where, answers), some in alike.items():
        threads = ", ".join(str(threads) for _, threads, _ in some)
        table.add(*pair, threads, where or None, *answers)
    return lines + table.lines(width)


def _setting(row: Crossover) -> tuple[tuple[str, str], int, str]:
    where = ", ".join(f"{name} {spelled(value)}" for name, value in sorted(row.where.items()))
    return row.pair, row.threads, where


def _answer(row: Crossover) -> str:
    """`from 24 KiB (16 KiB to 40 KiB)`, `up to ...`, `never`, `always`, `not clear`."""
    verdict = str(WORDS.get(row.verdict, row.verdict))
    # What is not sure has no size.
    if row.size_bytes is None or row.verdict != "crosses":
        return verdict
    side = "from" if row.above == row.pair[1] else "up to"
    text = f"{side} {format_size(row.size_bytes)}"
    return f"{text} ({format_size(row.low)} to {format_size(row.high)})"


def split_lines(rows: Sequence[Crossover], width: int) -> list[Text]:
    """What the second strategy costs more than the first, at each size, by what costs it."""
    lines = heading(
        "THE DIFFERENCE", "second minus first, ns/KiB of all CPU time; negative: the second is cheaper", width
    )
    splits = [at for row in rows for at in row.split.values()]
    parts = [name for name in SPLIT if name not in SELDOM or any(at[name] for at in splits)]
    table = Table(("pair", "threads", "size"), *parts, numbers=("threads", "size"))
    for row in rows:
        for size, at in row.split.items():
            cells = [f"{at[name]:+.1f}" for name in parts]
            table.add(" -> ".join(row.pair), str(row.threads), format_size(size), *cells)
    return lines + table.lines(width) if table.rows else []
