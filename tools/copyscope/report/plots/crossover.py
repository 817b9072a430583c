"""Where one strategy overtakes another: their ratio along the size, the crossover with its interval."""

from collections.abc import Iterable, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from copyscope.grouping import grouped
from copyscope.judge.crossover import PAIRS, Crossover
from copyscope.report.plots.colours import INK, Mark, mark_of
from copyscope.report.plots.curves import draw_line, scale_across, scale_upwards
from copyscope.report.plots.grid import Grid, say_not_available
from copyscope.report.tables import where_better
from copyscope.stats import Missing
from copyscope.study.facets import AXES, describe
from copyscope.study.questions import SHORT
from copyscope.study.wording import listed
from copyscope.units import counted

TITLE = "Where one strategy overtakes another"
BETTER = {"goodput_gbps": "above 1: better", "system_cpu_ns_per_kib": "below 1: better"}
BAND = 0.16  # how opaque


Rows = dict[tuple[int, str], list[Crossover]]  # place of the pair in PAIRS, setting -> by quantity


def plot(found: Sequence[Crossover], caption: str) -> Figure | Missing:
    """A row for each pair, of the fewest threads: goodput and CPU time. The others are in the table."""
    fewest = min((one.threads for one in found), default=1)
    known = _rows([one for one in found if one.threads == fewest])
    if not known:
        return Missing("no two strategies were measured at several sizes")
    decided = {key: of for key, of in known.items() if any(one.verdict != "undetermined" for one in of)}
    drawn = decided or known
    impls = list(dict.fromkeys(PAIRS[index][1] for index, _ in drawn))
    note = f"{counted(fewest, 'thread')}. {_left_out(known, drawn)}{caption}"
    count = len(drawn) * len(SHORT)
    grid = Grid(TITLE, note, count, columns=len(SHORT), panel_in=1.7, above_in=0.55, down_in=1.1)
    panels = iter(grid.axes)
    for (index, where), of in drawn.items():
        for quantity in SHORT:
            axes, (first, second) = next(panels), PAIRS[index]
            title = f"{second} / {first}: {SHORT[quantity]}" + (f", {where}" if where else "")
            one = next((one for one in of if one.quantity == quantity), None)
            _panel(axes, one, mark_of(second, impls), title)
            axes.set_ylabel(f"ratio ({BETTER[quantity]})")
    looks = _legend(one for of in drawn.values() for one in of)
    grid.legend(list(looks.values()), list(looks))
    return grid.figure


def _rows(found: Sequence[Crossover]) -> Rows:
    """By pair and setting, in the order of the pairs: of those that were measured at several sizes."""
    wanted = [one for one in found if one.quantity in SHORT]
    rows = grouped(wanted, lambda one: (PAIRS.index(one.pair), describe(one.where)))
    return {key: of for key, of in sorted(rows.items()) if any(len(one.measured) > 1 for one in of)}


def _left_out(known: Rows, drawn: Rows) -> str:
    names = [" / ".join(reversed(PAIRS[index])) for index, where in known if (index, where) not in drawn]
    return f"Undetermined, not drawn: {listed(list(dict.fromkeys(names)))}. " if names else ""


def _legend(found: Iterable[Crossover]) -> dict[str, Artist]:
    looks: dict[str, Artist] = {"equal": Line2D([], [], color=INK, linewidth=1)}
    if any(one.verdict == "crosses" for one in found):
        looks["size of the crossover"] = Line2D([], [], color=INK, marker="D", markersize=5, linestyle="")
        looks["its 95 % interval"] = Patch(facecolor=INK, alpha=BAND)
    return looks


def _panel(axes: Axes, found: Crossover | None, mark: Mark, title: str) -> None:
    verdict = "" if found is None else f"\n{found.pair[1]}: {where_better(found)}"
    axes.set_title(f"{title}{verdict}", loc="left", fontsize=9)
    if found is None or not found.measured:
        say_not_available(axes, "not measured at the same sizes")
        return
    points = [(float(one.size_bytes), one.ratio) for one in found.measured]
    draw_line(axes, points, mark)
    scale_upwards(axes, [ratio for _, ratio in points], floor=False, around=1.0)
    scale_across(axes, [size for size, _ in points], AXES["size"])
    axes.axhline(1, color=INK, linewidth=1)
    if found.verdict == "crosses" and found.size_bytes is not None:
        _mark_crossing(axes, found, found.size_bytes, mark)


def _mark_crossing(axes: Axes, found: Crossover, size: float, mark: Mark) -> None:
    """A band over its interval, to the edge of the panel where an end is beyond what was measured."""
    left, right = axes.get_xlim()
    low, high = found.low or left, found.high or right
    axes.axvspan(low, high, color=mark.colour, alpha=BAND, linewidth=0)
    axes.plot([low, high], [1, 1], color=mark.colour, linewidth=3.5, solid_capstyle="butt")
    axes.plot([size], [1], color=INK, marker="D", markersize=5)
