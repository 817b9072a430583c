# SPDX-License-Identifier: GPL-2.0-only
"""Layout of figures: matplotlib settings, and grids of panels with a title, a legend and a caption.

The layout is computed here, in inches. matplotlib's automatic layout takes longer than the drawing itself,
and its result depends on the text.
"""

import math
import pathlib
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from copyscope.base.stats import Estimate
from copyscope.report.plots.catalogue import FAINT, GRID, INK, Fill

matplotlib.use("Agg")
# Ignore matplotlibrc and the fonts of this machine, so that the same records give the same bytes.
matplotlib.rcdefaults()
# Host names can contain letters that the font lacks. matplotlib draws a box and warns.
warnings.filterwarnings("ignore", message="Glyph .* missing")
_BUNDLED = pathlib.Path(matplotlib.get_data_path())
fontManager.ttflist = [
    font for font in fontManager.ttflist if pathlib.Path(font.fname).is_relative_to(_BUNDLED)
]

# Settings of matplotlib (rcParams) for all plots.
SETTINGS: Mapping[str, Any] = {
    # Text in SVG files stays text, so that it can be searched and coloured. It may appear in another font.
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": [
        "DejaVu Sans"
    ],  # this font is bundled with matplotlib, so that PNG files are the same on every machine
    "font.size": 9,
    "axes.titlesize": 9.5,
    # Set the default position explicitly. Otherwise matplotlib measures all tick labels to place titles.
    "axes.titley": 1.0,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "path.simplify": True,
    "text.parse_math": False,  # names can contain $, which would start a formula
}


def drawing_settings(name: str) -> AbstractContextManager[None]:
    """Return a context in which matplotlib uses SETTINGS.

    name: salt for the hashes that serve as ids in the SVG, so that ids are reproducible and differ between a
        page's pictures
    """
    settings = {**SETTINGS, "svg.hashsalt": f"copyscope {name}"}
    # The type of rc_context() enumerates all valid keys.
    return matplotlib.rc_context(settings)  # type: ignore[arg-type]


# Sizes in inches: width of a figure, margins, gaps between panels, height of a line of the caption.
WIDTH_IN = 10.0
LEFT_IN, RIGHT_IN = 0.75, 0.15
GAP_ACROSS_IN, GAP_DOWN_IN = 0.62, 1.0
LINE_IN = 0.17
# Maximum number of panels next to each other, and width of the caption in letters.
MAX_COLUMNS = 3
WRAP_COLUMNS = 178


class Grid:
    """A figure with panels of equal size, filled from left to right, then downwards. Sizes are in inches."""

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
        """Create the figure with its title, caption and empty panels.

        count: number of panels
        panel_in: height of a panel
        columns: maximum number of panels next to each other
        legend_lines: number of lines in the legend below the title
        above_in, below_in: space above the first row of panels and below the last row
        down_in: space between two rows of panels
        """
        # Four panels are arranged two by two rather than three and one.
        self.columns = min(count, 2 if count == 4 and columns > 2 else columns)
        rows = math.ceil(count / self.columns)
        self._caption = textwrap.wrap(caption, WRAP_COLUMNS)
        self._title = textwrap.wrap(title, 96)
        top = 0.15 + 0.22 * len(self._title) + 0.24 * legend_lines + above_in
        bottom = below_in + LINE_IN * len(self._caption) + 0.12
        self.height_in = top + bottom + rows * panel_in + (rows - 1) * down_in
        self.figure = Figure(figsize=(WIDTH_IN, self.height_in))
        panels_in = WIDTH_IN - LEFT_IN - RIGHT_IN
        width_in = (panels_in - (self.columns - 1) * GAP_ACROSS_IN) / self.columns
        self.axes: list[Axes] = []
        for index in range(count):
            row, column = divmod(index, self.columns)
            left_edge = LEFT_IN + column * (width_in + GAP_ACROSS_IN)
            bottom_edge = self.height_in - top - panel_in - row * (panel_in + down_in)
            left_bottom = (left_edge / WIDTH_IN, bottom_edge / self.height_in)
            size = (width_in / WIDTH_IN, panel_in / self.height_in)
            self.axes.append(self.figure.add_axes((*left_bottom, *size)))
        self._write_title_and_caption()

    def _write_title_and_caption(self) -> None:
        for index, line in enumerate(self._title):
            y = 1 - (0.12 + 0.22 * index) / self.height_in
            self.figure.text(0.012, y, line, fontsize=12, fontweight="bold", va="top")
        for index, line in enumerate(reversed(self._caption)):
            y = (0.1 + LINE_IN * index) / self.height_in
            self.figure.text(0.012, y, line, fontsize=7.5, color=FAINT, va="bottom")

    def legend(self, handles: Sequence[Artist], labels: Sequence[str]) -> None:
        """Draw one legend for all panels, below the title. `handles`: lines or patches that `labels` name."""
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


def wrap_title(axes: Axes, title: str) -> str:
    """Break a panel's title into lines that are not wider than the panel."""
    return textwrap.fill(title, int(axes.get_position().width * WIDTH_IN / 0.072))


def legend_columns(labels: Sequence[str]) -> int:
    """Return the number of columns for a legend, from its longest label."""
    longest_in = 0.62 + 0.068 * max(map(len, labels))
    return max(1, min(len(labels), int(WIDTH_IN / longest_in)))


def legend_lines(labels: Sequence[str]) -> int:
    """Return the number of lines in a legend."""
    return math.ceil(len(labels) / legend_columns(labels)) if labels else 0


def write_not_available(axes: Axes, reason: str) -> None:
    """Write `n/a` and the reason in a panel without values.

    The axes of the panel are hidden, because an empty scale would suggest values of zero.
    """
    axes.set_axis_off()
    width = max(24, int(axes.get_position().width * WIDTH_IN * 11))
    text = "\n".join(["n/a", *textwrap.wrap(reason, width)])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT)


Corners = Sequence[tuple[float, float]]


def legend_patch(fill: Fill) -> Patch:
    """Return the legend's patch for boxes with this fill."""
    return Patch(facecolor=fill.colour, hatch=fill.hatch, edgecolor=INK, linewidth=0.5)


def box_corners(left: float, right: float, bottom: float, top: float) -> Corners:
    """Return the four corners of a box."""
    return [(left, bottom), (right, bottom), (right, top), (left, top)]


def stack_boxes(
    parts: Iterable[tuple[str, float]], left: float, right: float, boxes: dict[str, list[Corners]]
) -> None:
    """Stack the parts of one bar, and add each part's box to the list for its name in `boxes`.

    parts: names and heights of the parts, from the bottom to the top
    left, right: edges of the bar
    """
    base = 0.0
    for name, height in parts:
        if height > 0:
            boxes[name].append(box_corners(left, right, base, base + height))
            base += height


def draw_boxes(axes: Axes, boxes: Sequence[Corners], fill: Fill, border_width: float) -> None:
    """Draw boxes of the same fill as a single path, because each hatched path enlarges the PNG."""
    if boxes:
        path = Path.make_compound_path_from_polys(np.array(boxes))
        axes.add_artist(
            PathPatch(path, facecolor=fill.colour, hatch=fill.hatch, edgecolor=INK, linewidth=border_width)
        )


class BarTop(NamedTuple):
    """Top of a bar: its position, its height, and the estimate whose interval is drawn there."""

    x: float
    height: float
    estimate: Estimate


def draw_intervals(axes: Axes, tops: Sequence[BarTop], width: float, cap: float) -> None:
    """Draw the intervals of many bars in one call, which is ten times as fast as one call for each bar."""
    bars = [
        (top.x, top.height, top.estimate.value - top.estimate.low, top.estimate.high - top.estimate.value)
        for top in tops
        if top.estimate.low is not None and top.estimate.high is not None
    ]
    if bars:
        xs, heights, below, above = zip(*bars, strict=True)
        axes.errorbar(xs, heights, yerr=[below, above], color=INK, fmt="none", elinewidth=width, capsize=cap)
