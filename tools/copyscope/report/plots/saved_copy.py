"""Where the saved copy went: from what one_copy costs to zero_copy, or read to map, step by step."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from copyscope.report.plots.colours import BLUE, FAINT, INK, VERMILLION
from copyscope.report.plots.curves import short_number
from copyscope.report.plots.grid import Box, Grid, box, draw_boxes, draw_intervals, patch, wrapped
from copyscope.stats import Missing
from copyscope.study.cost_waterfall import Step, Waterfall, why_no_waterfall
from copyscope.study.facets import describe, varied
from copyscope.study.modelled import LineWaterfall
from copyscope.units import counted

TITLE = "Where the saved copy went"
WHOLE, ADDED, SAVED = "#BBBBBB", VERMILLION, BLUE
LONG_TITLE = 34  # letters: it has two lines
MOST = 12  # panels: more are no picture
NUMBERS_PT = 30  # of the row of numbers between a panel and its title


def plot(found: Sequence[Waterfall | Missing], caption: str) -> Figure | Missing:
    """A waterfall for each setting of the fewest threads: the others are in the table."""
    if why := why_no_waterfall(found):
        return Missing(why)
    known = [one for one in found if isinstance(one, Waterfall)]
    drawn = known[:MOST]
    fewest = drawn[0].after.threads
    swept = {
        by: varied([one.after for one in known if one.by == by], without=(by, "threads"))
        for by in {one.by for one in known}
    }
    count = counted(fewest, "thread")
    note = f"All sides together, {count}; steps of paired repeats; an interval may leave its panel."
    if len(known) > MOST:
        note += f" The first {MOST} of {len(known)} settings: the table has all."
    titles = [describe({n: one.after.factors[n] for n in swept[one.by]}) or "all" for one in drawn]
    return waterfalls(TITLE, f"{note} {caption}", drawn, titles, "CPU time (ns/KiB)")


def waterfalls(
    title: str, caption: str, drawn: Sequence[Waterfall | LineWaterfall], titles: Sequence[str], unit: str
) -> Figure:
    """One panel for each."""
    lines = 2 if max(map(len, titles)) > LONG_TITLE else 1
    above_in = 0.58 + 0.17 * lines
    down_in = 1.83 + 0.17 * lines
    grid = Grid(title, caption, len(drawn), panel_in=2.2, above_in=above_in, below_in=1.4, down_in=down_in)
    for axes, one, of in zip(grid.axes, drawn, titles, strict=True):
        axes.set_title(wrapped(axes, of), loc="left", pad=NUMBERS_PT)
        draw_steps(axes, one.names, (one.start, one.end), one.steps)
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel(unit)
    faces = ((WHOLE, ""), (ADDED, "\\\\"), (SAVED, "//"))
    grid.legend([patch(colour, hatch) for colour, hatch in faces], ("total", "added", "saved"))
    return grid.figure


def draw_steps(axes: Axes, names: tuple[str, str], ends: tuple[float, float], steps: Sequence[Step]) -> None:
    """One panel: from the first strategy to the second, with what each end is as a whole."""
    labels = [names[0], *(step.name for step in steps), names[1]]
    last = len(labels) - 1
    level, levels = ends[0], [ends[0]]
    boxes: dict[bool, list[Box]] = {True: [], False: []}
    for place, step in enumerate(steps, start=1):
        change = box(place - 0.43, place + 0.43, level, level + step.change.value)
        boxes[step.change.value >= 0].append(change)
        _number(axes, place, step.change.value, "+")
        axes.plot([place - 1.43, place + 0.43], [level, level], color=FAINT, linewidth=0.6)
        level += step.change.value
        levels.append(level)
    axes.plot([last - 1.43, last + 0.43], [level, level], color=FAINT, linewidth=0.6)
    for added, found in boxes.items():
        draw_boxes(axes, found, ADDED if added else SAVED, "\\\\" if added else "//", edge=0.5)
    tops = [(place, levels[place], step.change) for place, step in enumerate(steps, start=1)]
    draw_intervals(axes, tops, width=0.8, cap=1.8)
    for place, height in ((0, ends[0]), (last, ends[1])):
        axes.bar(place, height, 0.86, color=WHOLE, edgecolor=INK, linewidth=0.5)
        _number(axes, place, height, "")
    # an interval far above the steps leaves the panel
    tips = [at + (step.change.high or 0.0) for at, step in zip(levels, steps, strict=False)]
    axes.set_ylim(min(0.0, *levels), min(max(*levels, *tips), 1.5 * max(levels)) * 1.04)
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7.5)
    axes.grid(False, axis="x")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _number(axes: Axes, place: int, value: float, sign: str) -> None:
    """A number upright above the panel: in it, it would stand in the way of the intervals."""
    text = short_number(float(f"{value:.3g}")) if abs(value) >= 1 else f"{value:.1f}"
    axes.text(
        place, 1.03, f"{sign if value >= 0 else ''}{text}", transform=axes.get_xaxis_transform(),
        rotation=90, ha="center", va="bottom", fontsize=7,
    )  # fmt: skip
