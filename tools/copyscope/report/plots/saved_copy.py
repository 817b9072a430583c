"""Where the saved copy went: from what one_copy costs to zero_copy, or read to map, step by step."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from copyscope.report.plots.colours import BLUE, FAINT, INK, VERMILLION
from copyscope.report.plots.curves import short_number
from copyscope.report.plots.grid import Box, Grid, box, draw_boxes, draw_intervals, nothing, patch
from copyscope.stats import Missing
from copyscope.study.cost_waterfall import Step, Waterfall, why_no_waterfall
from copyscope.study.facets import describe, varied
from copyscope.study.modelled import LineWaterfall
from copyscope.units import counted

TITLE = "Where the saved copy went"
WHOLE, DEARER, SAVED = "#BBBBBB", VERMILLION, BLUE


def plot(found: Sequence[Waterfall | Missing], caption: str) -> Figure:
    """A waterfall for each setting of the fewest threads: the others are in the table."""
    if why := why_no_waterfall(found):
        return nothing(TITLE, caption, why)
    drawn = [one for one in found if isinstance(one, Waterfall)]
    fewest = drawn[0].after.threads
    swept = {
        by: varied([one.after for one in drawn if one.by == by], without=(by, "threads"))
        for by in {one.by for one in drawn}
    }
    count = counted(fewest, "thread")
    note = f"All sides together, {count}; steps of paired repeats; an interval may leave its panel."
    titles = [describe({n: one.after.factors[n] for n in swept[one.by]}) or "all" for one in drawn]
    grid = Grid(TITLE, f"{note} {caption}", len(drawn), panel_in=2.5, below_in=1.1, down_in=1.45)
    return waterfalls(grid, drawn, titles, "CPU time (ns/KiB)", ("whole cost", "dearer", "saved"))


def waterfalls(
    grid: Grid,
    drawn: Sequence[Waterfall | LineWaterfall],
    titles: Sequence[str],
    unit: str,
    named: tuple[str, str, str],
) -> Figure:
    """One panel for each; `named`: what the whole, what is more and what is less are called."""
    for axes, one, title in zip(grid.axes, drawn, titles, strict=True):
        axes.set_title(title, loc="left")
        draw_steps(axes, one.names, (one.start, one.end), one.steps)
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel(unit)
    faces = ((WHOLE, ""), (DEARER, "\\\\"), (SAVED, "//"))
    grid.legend([patch(colour, hatch) for colour, hatch in faces], named)
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
    for dearer, found in boxes.items():
        draw_boxes(axes, found, DEARER if dearer else SAVED, "\\\\" if dearer else "//", edge=0.5)
    tops = [(place, levels[place], step.change) for place, step in enumerate(steps, start=1)]
    draw_intervals(axes, tops, width=0.8, cap=1.8)
    for place, height in ((0, ends[0]), (last, ends[1])):
        axes.bar(place, height, 0.86, color=WHOLE, edgecolor=INK, linewidth=0.5)
        _number(axes, place, height, "")
    # an interval far above the steps leaves the panel; the topmost fifth is for the numbers
    tips = [at + (step.change.high or 0.0) for at, step in zip(levels, steps, strict=False)]
    axes.set_ylim(min(0.0, *levels), min(max(*levels, *tips), 1.5 * max(levels)) * 1.28)
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7.5)
    axes.grid(False, axis="x")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _number(axes: Axes, place: int, value: float, sign: str) -> None:
    """A number upright in the row above the bars: on them it would stand in the way of the intervals."""
    text = short_number(float(f"{value:.3g}"))
    axes.text(
        place, 0.985, f"{sign if value >= 0 else ''}{text}", transform=axes.get_xaxis_transform(),
        rotation=90, ha="center", va="top", fontsize=7,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, zorder=5,
    )  # fmt: skip
