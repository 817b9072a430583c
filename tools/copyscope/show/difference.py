"""A comparison of two sets of runs on a terminal, and as Markdown: only forms of numbers are made here."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from rich.console import Console
from rich.text import Text

from copyscope.escaping import one_line, visible
from copyscope.judge.comparison import Comparison, Ranked, Ranking
from copyscope.judge.difference import ALL, BETTER, SAME, UNKNOWN, UNSURE, WORSE, Difference, Row
from copyscope.show.account_words import called
from copyscope.show.console import print_lines, report_width
from copyscope.show.layout import Table, heading, wrap
from copyscope.taxonomy.taxonomy import ACCOUNTS
from copyscope.units import NOT_AVAILABLE, counted, format_whole_size

# Of all CPU time: smaller rows are shown when they differ, and with -v.
WORTH = 0.05
# Columns of a ranking.
RANKED = ("goodput", "verdict", "CPU time")
LEAST = 0.001  # smaller numbers are not spelled out
NAME_MAX = 12  # columns of the name of one that is compared
LEGEND = (
    "Geometric means; 95 % intervals. Copies and other work: ns/KiB; pp: percentage points of all CPU time."
    " The verdict rests on goodput, CPU time"
)
# Of a watched program the bytes of copies from the page cache, and of its own, are not counted.
COUNTED = "counted copies"


def render(made: Comparison | Ranking, *, verbose: bool, console: Console) -> None:
    """The answer, then a table for each setting, and what else is to be known."""
    width = report_width(console)
    lines = wrap(visible(made.sentence), width, indent=2, style="bold")
    if isinstance(made, Ranking):
        print_lines([*lines, *_ranking_lines(made, width)], console)
        return
    points = made.points
    if made.overall:
        lines += heading("ALL SETTINGS", "mean change, each setting once", width)
        table = Table(("what",), "change", "verdict", words=("verdict",))
        for row in made.overall:
            what, *_, change, verdict = cells(row)
            table.add(what, change, verdict, strong=row.verdict != SAME)
        lines += table.lines(width)
    for point in points:
        if not verbose and left_out(point, points):
            continue
        lines += heading(setting_text(made, point), point.verdict, width)
        table = Table(("what",), *titles(made.names), words=("verdict",))
        for row in shown_rows(made, point, verbose=verbose):
            table.add(*cells(row), strong=row.decides and row.verdict != SAME)
        lines += table.lines(width)
    lines += [Text(), *wrap(legend(made), width, style="dim")]
    for text in notes(made):
        lines += wrap(text, width, indent=2)
    print_lines(lines, console)


def _ranking_lines(made: Ranking, width: int) -> list[Text]:
    """The fastest first, each against the one above it."""
    lines = heading("RANKING", "geometric means; each against the one above; 95 % intervals", width)
    table = Table(("strategy",), "Gb/s", "ns/KiB", *RANKED, words=("verdict",))
    for row in made.ranking:
        above: tuple[str | None, ...] = ("", "", "")
        if row.goodput and row.cpu:
            above = _change(row.goodput), row.goodput.verdict, _signed(row.cpu.change, "%")
        table.add(one_line(row.name, 2 * NAME_MAX), *_ranked_figures(row), *above)
    return lines + table.lines(width)


def _ranked_figures(row: Ranked) -> tuple[str | None, str | None]:
    """Gb/s, and ns/KiB of CPU time; None: not known."""
    gbps, cpu = row.gbps, row.cpu_ns_per_kib
    return None if gbps is None else f"{gbps:.3g}", None if cpu is None else f"{cpu:,.0f}"


def markdown(made: Comparison | Ranking) -> str:
    """For a pull request: the answer, and a table for each setting that differs."""
    lines = [f"**{cell(made.sentence)}**", ""]
    if isinstance(made, Ranking):
        lines += ["| strategy | Gb/s | ns/KiB |", "|---|--:|--:|"]
        for way in made.ranking:
            figures = (NOT_AVAILABLE if one is None else one for one in _ranked_figures(way))
            lines.append(f"| {' | '.join((cell(way.name), *figures))} |")
        return "\n".join([*lines, ""])
    lines += [f"- {cell(text)}" for text in notes(made)]
    for point in made.points:
        if left_out(point, made.points):
            continue
        lines += ["", f"#### {cell(setting_text(made, point))}", ""]
        lines += [f"| what | {' | '.join(map(cell, titles(made.names)))} |", f"|---|{'--:|' * 3}---|"]
        for row in shown_rows(made, point, verbose=False):
            lines.append(f"| {' | '.join(cell(one or '') for one in cells(row))} |")
    return "\n".join([*lines, "", legend(made), ""])


def legend(made: Comparison) -> str:
    """What `change` is of, and which rows decide: of two ways to choose between, not how they copy."""
    return LEGEND if made.is_choice else f"{LEGEND}, {COUNTED} (pp: of the bytes sent), sends copied anyway"


def left_out(point: Difference, points: Sequence[Difference]) -> bool:
    """Of many settings those that are no finding are a number in the verdict."""
    return len(points) > 3 and point.verdict in (SAME, UNSURE)


def titles(names: Sequence[str]) -> tuple[str, ...]:
    """Of the columns; two that took turns have names."""
    first, second = (one_line(name, NAME_MAX) for name in _apart(*names))
    return (first, second if second != first else f"{second} again", "change", "verdict")


def _apart(first: str, second: str) -> tuple[str, str]:
    """Two names without the strategy and the options that both begin with, where something is left."""
    words = first.split(" --"), second.split(" --")
    alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*words, strict=False))))
    left, right = ("".join(f" --{word}" for word in one[alike:]).strip() for one in words)
    return (left or first, right or second) if alike else (first, second)


def cell(text: str) -> str:
    """Foreign text in a table of Markdown."""
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


def notes(made: Comparison) -> Iterator[str]:
    """What else is to be known before the numbers are believed."""
    noise = made.noise
    if noise:
        told = ", ".join(f"{name} {100 * value:.1f} %" for name, value in sorted(noise.items()))
        yield f"noise: two equal runs on this host differ by up to {told}"
    for name, before, after in made.also_differs:
        yield f"machine.{name}: {before} before, {after} after"
    if made.pmus:
        before, after = map(visible, made.pmus)
        yield f"cycles, cache misses: not compared: the PMUs of {before} and {after} count different events"
    for where, keys in zip(("before", "after"), made.only_in, strict=True):
        if keys:
            yield f"only {where}, left out: {len(keys)} settings"
    if made.enough_runs:
        repeat = f"--repeat {made.enough_runs}" if made.is_choice else f"{made.enough_runs} runs of each"
        yield f"next: at this noise, a change of 5 % needs {repeat} (90 % power)"
    for point in made.points if made.verdict == UNSURE else ():
        sure = [row for row in point.rows if row.sure]
        if sure:
            row = max(sure, key=lambda one: abs(one.change or 0))
            yield f"clear anyway: {_name(row)} {_change(row)}"
    reasons = dict.fromkeys(
        row.reason for point in made.points for row in point.rows if row.reason and row.decides
    )
    yield from reasons


def setting_text(made: Comparison, point: Difference) -> str:
    """What was measured: strategy, size, and in what settings differ; and how often."""
    known, points = point.setting, made.points
    varied = [name for name in known if len({str(one.setting.get(name)) for one in points}) > 1]
    names = dict.fromkeys((*("impl", "size", "threads", "topology"), *varied))
    if isinstance(size := known.get("size"), int):
        known = {**known, "size": format_whole_size(size)}
    texts = [f"{name} {known[name]}" for name in names if name in known]
    before, after = point.runs
    runs = counted(before, "run")
    runs += " of each" if made.is_choice else f" before, {after} after"
    return ", ".join([*texts, runs])


def shown_rows(made: Comparison, point: Difference, *, verbose: bool) -> Iterator[Row]:
    """Copies that appeared first; then what decides, each copy, and other work that is large and differs."""
    for one in () if made.is_choice else point.appeared:
        change = one.after - one.before
        yield Row(
            one.copy, None, "appeared", one.before, one.after, "payload", change, verdict=WORSE, decides=True
        )
    whole = next((row.before for row in point.rows if row.what == "CPU time"), None) or 0
    for row in point.rows:
        large = max(row.before or 0, row.after or 0) >= WORTH * whole
        copy = row.base == "cpu" and row.what in ACCOUNTS and (row.before or row.after)
        work = row.base == "cpu" and large and row.verdict in (WORSE, BETTER)
        counts = row.base != "cpu" and row.decides and (row.before or row.after)
        if verbose or copy or work or counts:
            yield row


def cells(row: Row) -> list[str | None]:
    """One line of the table: A, B, the change of A with its interval, and what that is."""
    return [
        _name(row),
        *(_number(value, row.unit) for value in (row.before, row.after)),
        _change(row),
        "" if row.verdict == UNKNOWN else row.verdict,
    ]


def _change(row: Row) -> str | None:
    text = _signed(row.change, "%" if row.base == "itself" else "pp")
    if row.low is None or row.high is None or row.low == row.high:
        return text
    return f"{text} ({100 * row.low:+.0f} to {100 * row.high:+.0f})"


def _signed(change: float | None, unit: str) -> str | None:
    return None if change is None else f"{100 * change:+.1f} {unit}"


def _name(row: Row) -> str:
    """As the screen of a run calls an account or a stage, and its unit."""
    what, unit, side = row.what, row.unit, row.side
    name = "sends copied anyway" if what == "flagged" else called(what, watched=side == "target", side=side)
    name = COUNTED if what == ALL else name
    if unit == "appeared":
        return f"{name} APPEARED"
    # What is in ns/KiB says so in the legend.
    plain = unit == "of sends" or row.base == "cpu"
    return name if plain else f"{name}, {unit}"


def _number(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit in ("appeared", "of sends"):
        return f"{100 * value:.3g} %"
    if 0 < value < LEAST:
        return f"<{LEAST}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
