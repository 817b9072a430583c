"""What a sweep came to: strategy by size, the best in bold, and what to do with it next."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from copyscope.escaping import visible
from copyscope.judge import estimates
from copyscope.judge.metrics import METRICS
from copyscope.show.console import report_width
from copyscope.show.layout import heading, wrap
from copyscope.stats import SAME, Estimate
from copyscope.study.facets import Axis, Panel, arrange, find_axis, spell
from copyscope.study.ratios import places
from copyscope.study.table import Row
from copyscope.study.wording import number

SHOWN = (("GOODPUT", "goodput_gbps"), ("CPU TIME", "system_cpu_ns_per_kib"))
# Settings besides strategy and size that are shown: the report has all.
MOST_SETTINGS = 3
GAP = "  "
# Where nothing is bold, it stands behind the number.
PLAIN_MARK = "*"


def result_lines(rows: Sequence[Row], directory: str, console: Console) -> list[Text]:
    """Both tables of each setting, those of the fewest threads first; then the next command."""
    axis = find_axis(rows, first="size")
    panels = arrange(rows, axis)
    mark = "bold" if console.is_terminal else f"with {PLAIN_MARK}"
    width = report_width(console)
    lines: list[Text] = []
    for panel in panels[:MOST_SETTINGS]:
        for title, metric in SHOWN:
            setting = f", {panel.title}" if panel.title else ""
            note = f"{METRICS[metric].unit}{setting}; {mark} best, or not distinguishable from it"
            lines += heading(title, note, width)
            lines += _table(panel, axis, metric, width, plain=not console.is_terminal)
    if len(panels) > MOST_SETTINGS:
        lines += wrap(f"and {len(panels) - MOST_SETTINGS} more settings: the report has all", width)
    return [*lines, Text(), *next_lines(directory, width)]


def next_lines(directory: str, width: int) -> list[Text]:
    """The command that makes more of it."""
    return wrap(f"next: copyscope report {visible(directory)}", width, indent=2)


def _table(panel: Panel, axis: Axis, metric: str, width: int, *, plain: bool) -> list[Text]:
    members = [row for line in panel.lines.values() for row in line]
    found = {(row.impl, row.factors[axis.factor]): row for row in members}
    first = max(len(impl) for impl in panel.lines)
    lines = []
    each = max(1, (width - first) // (8 + len(GAP)))
    every = places(members, axis)
    for across in (every[at : at + each] for at in range(0, len(every), each)):
        title = Text(" " * first, style="dim")
        for place in across:
            title.append(GAP + spell(axis.factor, place).rjust(8))
        lines.append(title)
        best = {place: _best([found.get((impl, place)) for impl in panel.lines], metric) for place in across}
        for impl in panel.lines:
            line = Text(visible(impl).ljust(first))
            for place in across:
                row = found.get((impl, place))
                value = None if row is None else row.values[metric]
                text = number(value.value) if isinstance(value, Estimate) else "n/a"
                strong = row is not None and impl in best[place]
                text = f"{text}{PLAIN_MARK if strong else ' '}" if plain else text
                line.append(GAP + text.rjust(8), style="bold" if strong else "")
            lines.append(line)
    return lines


def _best(rows: Sequence[Row | None], metric: str) -> set[str]:
    """The strategy that is best by its median, and those of which no difference from it was found."""
    known = [row for row in rows if row is not None and isinstance(row.values[metric], Estimate)]
    if not known:
        return set()
    choose: Callable[..., Row] = max if METRICS[metric].more_is_better else min
    first = choose(known, key=lambda row: row.values[metric].value)
    best = {first.impl}
    for row in known:
        ratio = estimates.ratio(row.point, first.point, metric)
        if isinstance(ratio, Estimate) and ratio.low is not None and ratio.against(1.0) == SAME:
            best.add(row.impl)
    return best
