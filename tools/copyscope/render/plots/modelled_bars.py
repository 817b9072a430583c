"""Misses of simulated machines as stacked bars, with the sizes of the caches as lines."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from copyscope.render.plots.colours import FAINT, FILLS, Fill
from copyscope.render.plots.grid import Box, Grid, draw_boxes, patch, say_not_available, stack
from copyscope.render.plots.matplotlib_settings import look
from copyscope.study.modelled import LEVELS, PAGES, TITLES, ModelPoint
from copyscope.study.table import strategy_order
from copyscope.taxonomy.taxonomy import ACCOUNTS
from copyscope.units import format_whole_size

STACK = (*ACCOUNTS, PAGES)
REST = "all else"
LOOK = {**FILLS, REST: Fill("#E6E6E6", "")}
NAMES = {PAGES: "pages (zeroing)"}
SHORT = {"per_field": "field", "two_copy": "two", "one_copy": "one", "zero_copy": "zero"}
# A bar's width, in doublings of the scale across, for a scale of steps of 2 and of 4.
WIDEST = 0.55
# Small messages miss ten times as much: they may leave the panel, with their number.
FULL_FROM = 16384


@dataclass(frozen=True)
class Across:
    """What is drawn across: a number of bytes of a point."""

    label: str
    of: Callable[[ModelPoint], int]


def draw(points: Sequence[ModelPoint], across: Across, title: str, caption: str) -> Figure:
    """A column of panels for each model of the caches, a row for each level."""
    caches = list(dict.fromkeys(point.setting.cache for point in points))
    if not points:
        grid = Grid(title, caption, 1, panel_in=1.4, legend_lines=0, below_in=0.15)
        with look():
            say_not_available(grid.axes[0], "no valid boot of these settings")
        return grid.figure
    seen = [n for n in STACK if any(p.parts(level).get(n, 0) >= 0.05 for p in points for level in LEVELS)]
    grid = Grid(
        title,
        caption,
        len(LEVELS) * len(caches),
        columns=len(caches),
        panel_in=1.9,
        down_in=0.95,
        below_in=0.8,
    )
    with look():
        for index, axes in enumerate(grid.axes):
            level, cache = LEVELS[index // len(caches)], caches[index % len(caches)]
            _panel(axes, [p for p in points if p.setting.cache == cache], level, across)
            axes.set_title(f"{cache}: {TITLES[level]}", loc="left")
            if index % len(caches) == 0:
                axes.set_ylabel("lines per KiB")
        names = [*seen, REST]
        patches = [patch(LOOK[name].colour, LOOK[name].hatch) for name in names]
        grid.legend(patches, [NAMES.get(name, name) for name in names])
    return grid.figure


def _panel(axes: Axes, points: Sequence[ModelPoint], level: str, across: Across) -> None:
    impls = sorted({point.impl for point in points}, key=strategy_order)
    places = sorted({across.of(point) for point in points})
    width = min([math.log2(b / a) for a, b in pairwise(places)] or [2.0])
    bar = min(WIDEST, 0.82 * width / len(impls))
    wholes = {point: sum(point.parts(level).values()) for point in points}
    usual = [whole for point, whole in wholes.items() if point.size >= FULL_FROM] or list(wholes.values())
    top = max(8.0, 1.3 * max(usual))
    shapes: dict[str, list[Box]] = {name: [] for name in (*STACK, REST)}
    for point, whole in wholes.items():
        middle = math.log2(across.of(point)) + bar * (impls.index(point.impl) - (len(impls) - 1) / 2)
        found = point.parts(level)
        rest = sum(value for name, value in found.items() if name not in STACK)
        parts = (*((name, found.get(name, 0.0)) for name in STACK), (REST, rest))
        stack(parts, middle - 0.46 * bar, middle + 0.46 * bar, shapes)
        if whole > top:
            axes.text(middle, 0.97 * top, f"{whole:,.0f}", rotation=90, ha="center", va="top", fontsize=6,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4}, zorder=5)  # fmt: skip
        axes.text(middle, -0.02 * top, SHORT.get(point.impl, point.impl), rotation=90, ha="center", va="top",
                  fontsize=6)  # fmt: skip
    for name, boxes in shapes.items():
        draw_boxes(axes, boxes, LOOK[name].colour, LOOK[name].hatch, edge=0.3)
    low, high = math.log2(places[0]) - 0.75 * width, math.log2(places[-1]) + 0.75 * width
    _mark_caches(axes, points[0], (low, high), top)
    axes.set_xlim(low, high)
    axes.set_ylim(0, top)
    axes.set_xticks([math.log2(place) for place in places], [format_whole_size(place) for place in places])
    axes.tick_params(axis="x", pad=20, length=0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(False, axis="x")
    axes.set_xlabel(across.label)


def _mark_caches(axes: Axes, point: ModelPoint, seen: tuple[float, float], top: float) -> None:
    for level in LEVELS:
        size = point.model[f"{level}_bytes"]
        if size and seen[0] < math.log2(size) < seen[1]:
            axes.axvline(math.log2(size), color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
            axes.text(math.log2(size), top, f" {TITLES[level]} {format_whole_size(size)}", fontsize=6.5,
                      color=FAINT, ha="left", va="top")  # fmt: skip
