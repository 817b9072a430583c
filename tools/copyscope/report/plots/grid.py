"""Figures as grids of panels, with a title, a legend and a caption whose sizes are given in inches.

Sizes are laid out by hand: an automatic layout costs more than all of the drawing, and moves with the text.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from copyscope.report.plots.colours import FAINT, INK
from copyscope.stats import Estimate

WIDTH_IN = 10.0
LEFT_IN, RIGHT_IN = 0.75, 0.15
GAP_ACROSS_IN, GAP_DOWN_IN = 0.62, 1.0
LINE_IN = 0.17
MAX_COLUMNS = 3
WRAP_COLUMNS = 178


class Grid:
    """A figure under construction: panels from left to right, then down."""

    def __init__(
        self,
        title: str,
        caption: str,
        count: int,
        *,
        panel_in: float = 2.4,
        columns: int = MAX_COLUMNS,
        legend_lines: int = 1,
        above_in: float = 0.36,
        below_in: float = 0.68,
        down_in: float = GAP_DOWN_IN,
    ) -> None:
        # four panels stand better two by two than three and one
        self.columns = min(count, 2 if count == 4 and columns > 2 else columns)
        rows = math.ceil(count / self.columns)
        self._caption = textwrap.wrap(caption, WRAP_COLUMNS)
        self._title = textwrap.wrap(title, 96)
        top = 0.15 + 0.22 * len(self._title) + 0.24 * legend_lines + above_in
        bottom = below_in + LINE_IN * len(self._caption) + 0.12
        self.height_in = top + bottom + rows * panel_in + (rows - 1) * down_in
        self.figure = Figure(figsize=(WIDTH_IN, self.height_in))
        inner = WIDTH_IN - LEFT_IN - RIGHT_IN
        across = (inner - (self.columns - 1) * GAP_ACROSS_IN) / self.columns
        self.axes: list[Axes] = []
        for index in range(count):
            row, column = divmod(index, self.columns)
            left = LEFT_IN + column * (across + GAP_ACROSS_IN)
            up = self.height_in - top - panel_in - row * (panel_in + down_in)
            box = (left / WIDTH_IN, up / self.height_in, across / WIDTH_IN, panel_in / self.height_in)
            self.axes.append(self.figure.add_axes(box))
        self._write()

    def _write(self) -> None:
        for index, line in enumerate(self._title):
            y = 1 - (0.12 + 0.22 * index) / self.height_in
            self.figure.text(0.012, y, line, fontsize=12, fontweight="bold", va="top")
        for index, line in enumerate(reversed(self._caption)):
            y = (0.1 + LINE_IN * index) / self.height_in
            self.figure.text(0.012, y, line, fontsize=7.5, color=FAINT, va="bottom")

    def legend(self, handles: Sequence[Artist], labels: Sequence[str]) -> None:
        """One legend for all panels, under the title."""
        if not handles:
            return
        top = 0.12 + 0.22 * len(self._title) + 0.04
        self.figure.legend(
            list(handles),
            list(labels),
            loc="upper left",
            bbox_to_anchor=(0.006, 1 - top / self.height_in),
            ncols=legend_columns(labels),
            frameon=False,
            borderaxespad=0,
            handlelength=2.6,
            columnspacing=1.6,
        )


def wrapped(axes: Axes, title: str) -> str:
    """A panel's title in lines that are no wider than the panel."""
    return textwrap.fill(title, int(axes.get_position().width * WIDTH_IN / 0.072))


def legend_columns(labels: Sequence[str]) -> int:
    """In how many columns a legend has room, by its longest label."""
    longest_in = 0.62 + 0.068 * max(map(len, labels))
    return max(1, min(len(labels), int(WIDTH_IN / longest_in)))


def legend_lines(labels: Sequence[str]) -> int:
    return math.ceil(len(labels) / legend_columns(labels)) if labels else 0


def say_not_available(axes: Axes, reason: str) -> None:
    """One panel of several without a value says so, and why: no frame, no scale to be read as zero."""
    axes.set_axis_off()
    width = max(24, int(axes.get_position().width * WIDTH_IN * 11))
    text = "\n".join(["n/a", *textwrap.wrap(reason, width)])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT)


Box = Sequence[tuple[float, float]]


def patch(colour: str, hatch: str) -> Patch:
    """What a legend shows of boxes of one look."""
    return Patch(facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.5)


def box(left: float, right: float, bottom: float, top: float) -> Box:
    return [(left, bottom), (right, bottom), (right, top), (left, top)]


def stack(parts: Iterable[tuple[str, float]], left: float, right: float, into: dict[str, list[Box]]) -> None:
    """The boxes of one bar, each into those of its name."""
    base = 0.0
    for name, height in parts:
        if height > 0:
            into[name].append(box(left, right, base, base + height))
            base += height


def draw_boxes(axes: Axes, boxes: Sequence[Box], colour: str, hatch: str, edge: float) -> None:
    """Boxes of one look as one path: for each path its hatch is painted anew, a large picture at 300 DPI."""
    if boxes:
        path = Path.make_compound_path_from_polys(np.array(boxes))
        axes.add_artist(PathPatch(path, facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=edge))


def draw_intervals(
    axes: Axes, tops: Sequence[tuple[float, float, Estimate]], width: float, cap: float
) -> None:
    """The intervals of many bars at once, (place, height, estimate): one by one takes ten times as long."""
    known = [
        (place, height, value.value - value.low, value.high - value.value)
        for place, height, value in tops
        if value.low is not None and value.high is not None
    ]
    if known:
        places, heights, below, above = zip(*known, strict=True)
        axes.errorbar(
            places, heights, yerr=[below, above], color=INK, fmt="none", elinewidth=width, capsize=cap
        )
