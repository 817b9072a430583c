# SPDX-License-Identifier: GPL-2.0-only
"""Comparisons of runs on a terminal and as Markdown: two sets of runs, rankings, and crossovers by size.

Numbers are formatted here, never computed.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from copyscope.base.spelling import NOT_AVAILABLE, counted, format_size, format_whole_size, one_line, visible
from copyscope.base.stats import grouped
from copyscope.judge.comparison import BEFORE_AFTER, Comparison, Ranking
from copyscope.judge.comparison_sentences import Ranked
from copyscope.judge.crossover import Crossover, spell_setting, where_second_is_better
from copyscope.judge.crossover_sentences import CPU, GOODPUT, QUANTITIES
from copyscope.judge.difference import (
    ALL_COPIES,
    BETTER,
    BYTES,
    CALLS,
    SAME,
    UNKNOWN,
    UNSURE,
    WORSE,
    Difference,
    DifferenceRow,
)
from copyscope.show.layout import TextTable, heading, print_lines, report_width, wrap
from copyscope.taxonomy.accounts import ACCOUNTS, called

# Work other than copies is shown only with -v if its share of all CPU time is below this limit.
SHOWN_SHARE_MIN = 0.05
# Columns of a ranking that compare a strategy with the one above it.
RANKING_COLUMNS = ("goodput", "verdict", "CPU time", "verdict")
# Numbers below this limit are shown as `<0.001`.
SPELLED_MIN = 0.001
# Maximum length of a strategy's name in a column title, in characters.
NAME_MAX = 12
LEGEND = (
    "Geometric means; 95 % intervals. Copies and other work: ns/KiB; pp: percentage points of all CPU time."
    " The verdict rests on goodput, CPU time"
)
# Unit -> name of the row that adds up all counted copies. Copies from the page cache are not counted, and
# neither are calls of memcpy in a watched program.
COUNTED_COPIES = {BYTES: "bytes copied per byte (counted)", CALLS: "copies per MiB (counted)"}


def render_difference(comparison: Comparison | Ranking, *, verbose: bool, console: Console) -> None:
    """Print the answer, a table for each setting, and the caveats.

    verbose: print all settings and rows, not only those with a finding
    """
    width = report_width(console)
    lines = wrap(visible(comparison.sentence), width, indent=2, style="bold")
    if isinstance(comparison, Ranking):
        print_lines([*lines, *_ranking_lines(comparison, width)], console)
        return
    points = comparison.points
    if comparison.overall:
        lines += heading("ALL SETTINGS", "mean change, with equal weight for each setting", width)
        table = TextTable(("what",), "change", "verdict", words=("verdict",))
        for row in comparison.overall:
            cells = difference_cells(row)
            table.add(cells.name, cells.change, cells.verdict, strong=row.verdict != SAME)
        lines += table.lines(width)
    for point in points:
        if not verbose and is_left_out(point, points):
            continue
        lines += heading(setting_text(comparison, point), point.verdict, width)
        table = TextTable(("what",), *column_titles(_column_names(comparison)), words=("verdict",))
        for row in shown_rows(comparison, point, verbose=verbose):
            table.add(*difference_cells(row), strong=row.decides and row.verdict != SAME)
        lines += table.lines(width)
    lines += [Text(), *wrap(legend(comparison), width, style="dim")]
    for text in caveats(comparison):
        lines += wrap(text, width, indent=2)
    print_lines(lines, console)


def _ranking_lines(ranking: Ranking, width: int) -> list[Text]:
    """Return a table of the strategies, the fastest first, each compared with the strategy above it."""
    lines = heading("RANKING", "geometric means; each against the one above; 95 % intervals", width)
    table = TextTable(("strategy",), "Gb/s", "ns/KiB", *RANKING_COLUMNS, words=("verdict",))
    for row in ranking.ranking:
        against_above: tuple[str | None, ...] = ("", "", "", "")
        if row.goodput and row.cpu:
            against_above = (
                *(_change(row.goodput), row.goodput.verdict),
                *(_change(row.cpu), row.cpu.verdict),
            )
        table.add(one_line(row.name, 2 * NAME_MAX), *_ranked_cells(row), *against_above)
    return lines + table.lines(width)


def _ranked_cells(row: Ranked) -> tuple[str | None, str | None]:
    """Return two cells for a strategy: goodput in Gb/s and CPU time in ns/KiB; None where unknown."""
    gbps, ns_per_kib = row.gbps, row.cpu_ns_per_kib
    return None if gbps is None else f"{gbps:.3g}", None if ns_per_kib is None else f"{ns_per_kib:,.0f}"


def markdown(comparison: Comparison | Ranking) -> str:
    """Return a comment for a pull request: the answer, and a table for each setting that differs."""
    lines = [f"**{markdown_text(comparison.sentence)}**", ""]
    if isinstance(comparison, Ranking):
        lines += ["| strategy | Gb/s | ns/KiB |", "|---|--:|--:|"]
        for ranked in comparison.ranking:
            figures = (cell or NOT_AVAILABLE for cell in _ranked_cells(ranked))
            lines.append(f"| {' | '.join((markdown_text(ranked.name), *figures))} |")
        return "\n".join([*lines, ""])
    lines += [f"- {markdown_text(text)}" for text in caveats(comparison)]
    titles = " | ".join(map(markdown_text, column_titles(_column_names(comparison))))
    for point in comparison.points:
        if is_left_out(point, comparison.points):
            continue
        lines += ["", f"#### {markdown_text(setting_text(comparison, point))}", ""]
        lines += [f"| what | {titles} |", f"|---|{'--:|' * 3}---|"]
        for row in shown_rows(comparison, point, verbose=False):
            lines.append(f"| {' | '.join(markdown_text(cell or '') for cell in difference_cells(row))} |")
    return "\n".join([*lines, "", legend(comparison), ""])


def legend(comparison: Comparison) -> str:
    """Return an explanation of the columns, and the rows on which the verdict depends.

    A choice between two strategies does not depend on copy counts, because these differ by design.
    """
    if comparison.is_choice:
        return LEGEND
    return f"{LEGEND}, counted copies (pp: of the bytes sent), sends copied anyway"


def is_left_out(point: Difference, points: Sequence[Difference]) -> bool:
    """Return True if a setting should be left out: it has no finding and there are many settings.

    The verdict gives the number of settings left out.
    """
    return len(points) > 3 and point.verdict in (SAME, UNSURE)


def _column_names(comparison: Comparison) -> Sequence[str]:
    """Return the strategies' names, or `before` and `after` for files, because file names are too long."""
    return comparison.names if comparison.is_choice else BEFORE_AFTER


def column_titles(names: Sequence[str]) -> tuple[str, ...]:
    """Return a table's column titles. `names`: names of the two sets of runs."""
    first, second = (one_line(name, NAME_MAX) for name in _distinct_names(*names))
    return (first, second if second != first else f"{second} again", "change", "verdict")


def _distinct_names(first: str, second: str) -> tuple[str, str]:
    """Return two names without the strategy and options with which both begin.

    A name is not shortened if nothing would be left of it.
    """
    words = first.split(" --"), second.split(" --")
    common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*words, strict=False))))
    if not common:
        return first, second
    left, right = ("".join(f" --{word}" for word in of_name[common:]).strip() for of_name in words)
    return left or first, right or second


def markdown_text(text: str) -> str:
    """Escape text from a record for a cell of a Markdown table."""
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


def caveats(comparison: Comparison) -> Iterator[str]:
    """Yield the saving that `advise` estimated, whatever weakens the comparison, and the next step."""
    if comparison.promise is not None:
        yield visible(comparison.promise.sentence())
    if comparison.noise:
        noise = ", ".join(f"{name} {100 * value:.1f} %" for name, value in sorted(comparison.noise.items()))
        yield f"noise: two equal runs on this host differ by up to {noise}"
    for name, before, after in comparison.also_differs:
        yield f"machine.{name}: {before} before, {after} after"
    for name, *values in comparison.cards_differ:
        old, new = ("unknown" if value is None else value for value in values)
        yield visible(f"{name}: {old} before, {new} after")
    if comparison.pmus:
        before, after = map(visible, comparison.pmus)
        yield f"cycles, cache misses: not compared: the PMUs of {before} and {after} count different events"
    for when, settings in zip(("before", "after"), comparison.only_in, strict=True):
        if settings:
            yield f"only {when}, left out: {len(settings)} settings"
    if comparison.enough_runs:
        runs = comparison.enough_runs
        needed = f"--repeat {runs}" if comparison.is_choice else f"{runs} runs of each"
        yield f"next: to see a change of 5 % in this noise you would need {needed}; use an idle machine"
    for point in comparison.points if comparison.verdict == UNSURE else ():
        sure = [row for row in point.rows if row.sure]
        if sure:
            row = max(sure, key=lambda row: abs(row.change or 0))
            yield f"certain in spite of the noise: {_row_name(row)} {_change(row)}"
    reasons = (row.reason for point in comparison.points for row in point.rows if row.decides)
    yield from dict.fromkeys(filter(None, reasons))


def setting_text(comparison: Comparison, point: Difference) -> str:
    """Format a point's setting: strategy, size and all varied settings, with the number of runs."""
    setting, points = point.setting, comparison.points
    varied = [name for name in setting if len({str(other.setting.get(name)) for other in points}) > 1]
    names = dict.fromkeys((*("impl", "size", "threads", "topology"), *varied))
    if isinstance(size_bytes := setting.get("size"), int):
        setting = {**setting, "size": format_whole_size(size_bytes)}
    texts = [f"{name} {setting[name]}" for name in names if name in setting]
    before, after = point.runs
    runs = f"{counted(before, 'run')} of each"
    if not comparison.is_choice:
        runs = ", ".join(
            f"{counted(count, 'run')} {when}" + ("" if name == when else f" ({name})")
            for count, when, name in zip((before, after), BEFORE_AFTER, comparison.names, strict=True)
        )
    return ", ".join([*texts, runs])


def shown_rows(comparison: Comparison, point: Difference, *, verbose: bool) -> Iterator[DifferenceRow]:
    """Yield the rows of a table: first the copies that newly appeared, then the point's notable rows.

    Notable are copies, rows on which the verdict depends, and large other work that clearly changed.

    verbose: show all rows of the point
    """
    for copy in () if comparison.is_choice else point.appeared:
        yield DifferenceRow(
            what=copy.copy,
            side=None,
            unit="appeared",
            before=copy.before,
            after=copy.after,
            base="payload",
            change=copy.after - copy.before,
            verdict=WORSE,
            decides=True,
        )
    all_cpu = next((row.before for row in point.rows if row.what == "CPU time"), None) or 0
    for row in point.rows:
        is_nonzero = bool(row.before or row.after)
        is_large = max(row.before or 0, row.after or 0) >= SHOWN_SHARE_MIN * all_cpu
        is_copy = row.base == "cpu" and row.what in ACCOUNTS and is_nonzero
        is_changed_work = row.base == "cpu" and is_large and row.verdict in (WORSE, BETTER)
        is_deciding = row.base != "cpu" and row.decides and is_nonzero
        if verbose or is_copy or is_changed_work or is_deciding:
            yield row


class DifferenceCells(NamedTuple):
    """Cells of a comparison row: name, value in each set of runs, change, and verdict."""

    name: str
    before: str | None
    after: str | None
    change: str | None
    verdict: str


def difference_cells(row: DifferenceRow) -> DifferenceCells:
    """Return the cells of a row. The cell for the change also contains its interval."""
    before, after = _number(row.before, row.unit), _number(row.after, row.unit)
    verdict = "" if row.verdict == UNKNOWN and not row.decides else row.verdict
    return DifferenceCells(_row_name(row), before, after, _change(row), verdict)


def _change(row: DifferenceRow) -> str | None:
    """Format a change with its interval, such as `+3.0 % (+1 to +5)`.

    The change is relative, or in percentage points (`pp`) of CPU time or payload. A change whose interval is
    far too wide is `unknown`.
    """
    if row.is_unknown and row.change is not None:
        return "unknown"
    text = _signed(row.change, "%" if row.base == "itself" else "pp")
    if row.low is None or row.high is None or row.low == row.high:
        return text
    return f"{text} ({100 * row.low:+.0f} to {100 * row.high:+.0f})"


def _signed(change: float | None, unit: str) -> str | None:
    return None if change is None else f"{100 * change:+.1f} {unit}"


def _row_name(row: DifferenceRow) -> str:
    """Return a row's name as the screen of a single run shows it, followed by the row's unit."""
    if row.what == ALL_COPIES:
        return COUNTED_COPIES[row.unit]
    name = called(row.what, watched=row.side == "target", side=row.side)
    name = "sends copied anyway" if row.what == "flagged" else name
    if row.unit == "appeared":
        return f"{name} APPEARED"
    # Names of CPU times need no unit, because the legend states it.
    has_plain_name = row.unit == "of sends" or row.base == "cpu"
    return name if has_plain_name else f"{name}, {row.unit}"


def _number(value: float | None, unit: str) -> str | None:
    """Format a cell's value: a share in percent, any other unit with three digits. None means unknown."""
    if value is None:
        return None
    if unit in ("appeared", "of sends"):
        return f"{100 * value:.3g} %"
    if 0 < value < SPELLED_MIN:
        return f"<{SPELLED_MIN}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


# Crossovers: the message sizes above which one strategy of a pair is better than the other.

# Kinds of work into which the difference in CPU time between two strategies is divided.
DIFFERENCE_TERMS = ("copies", "pin", "completion", "mapped", "cipher", "packets", "rest", "sum")
# Kinds of work that are shown only if a strategy does such work.
RARE_TERMS = ("mapped", "cipher")


class CrossoverSetting(NamedTuple):
    """Setting that a row in the table of crossovers describes.

    pair: names of the two strategies
    threads: number of connections
    where: text for the settings that vary besides size and number of threads
    """

    pair: tuple[str, str]
    threads: int
    where: str


def render_crossovers(sentence: str, rows: Sequence[Crossover], *, verbose: bool, console: Console) -> None:
    """Print the answer and the table of crossovers.

    sentence: the answer
    verbose: also print the evidence, and the kinds of work that cause the difference in CPU time
    """
    width = report_width(console)
    lines = wrap(sentence, width, indent=2, style="bold")
    lines += crossover_lines(rows, width)
    if not verbose:
        lines += [Text(), *wrap("-v: other quantities, the evidence, and what makes the difference", width)]
        print_lines(lines, console)
        return
    lines += difference_lines([row for row in rows if row.quantity == CPU], width)
    lines.append(Text())
    for row in rows:
        pair = f"{' -> '.join(row.pair)}, {counted(row.threads, 'thread')}"
        text = f"{pair}, {QUANTITIES[row.quantity]}: {row.evidence}"
        lines += wrap(text, width, indent=2)
    print_lines(lines, console)


def crossover_lines(rows: Sequence[Crossover], width: int) -> list[Text]:
    """Return a table of the sizes at which a pair's second strategy is better.

    Numbers of threads with the same answer share a row.
    """
    basis = "where the second is better or worse; elsewhere no difference was found"
    lines = heading("CROSSOVERS", basis, width)
    if not rows:
        return lines + wrap("no two strategies were measured in the same setting", width)
    table = TextTable(
        ("first", "second", "threads"),
        *("setting", "goodput", "CPU time"),
        words=("setting", "goodput", "CPU time"),
        numbers=("threads",),
    )
    answers = {}
    for setting, crossovers in grouped(rows, _setting).items():
        by_quantity = {row.quantity: where_second_is_better(row) for row in crossovers}
        answers[setting] = by_quantity.get(GOODPUT), by_quantity.get(CPU)
    # Settings of a pair stand together, in the order in which the pairs first appear.
    pairs = list(grouped(answers, lambda setting: (setting.pair, setting.where)))
    by_pair = sorted(answers, key=lambda setting: pairs.index((setting.pair, setting.where)))
    table_rows = grouped(by_pair, lambda setting: (setting.pair, setting.where, answers[setting]))
    for (pair, where, (goodput, cpu)), settings in table_rows.items():
        threads = ", ".join(str(setting.threads) for setting in settings)
        table.add(*pair, threads, where or None, goodput, cpu)
    return lines + table.lines(width)


def _setting(row: Crossover) -> CrossoverSetting:
    where = ", ".join(f"{name} {spell_setting(value)}" for name, value in sorted(row.where.items()))
    return CrossoverSetting(row.pair, row.threads, where)


def difference_lines(rows: Sequence[Crossover], width: int) -> list[Text]:
    """Return a table of the second strategy's additional CPU time, by message size and kind of work."""
    lines = heading(
        "THE DIFFERENCE", "second minus first, ns/KiB of all CPU time; negative: the second is cheaper", width
    )
    splits = [terms for row in rows for terms in row.split.values()]
    shown = [name for name in DIFFERENCE_TERMS if name not in RARE_TERMS or any(at[name] for at in splits)]
    table = TextTable(("pair", "threads", "size"), *shown, numbers=("threads", "size"))
    for row in rows:
        for size_bytes, terms in row.split.items():
            cells = [f"{terms[name]:+.1f}" for name in shown]
            table.add(" -> ".join(row.pair), str(row.threads), format_size(size_bytes), *cells)
    return lines + table.lines(width) if table.rows else []
