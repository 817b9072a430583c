"""Plots of simulated machines: misses as stacked bars beside the sizes of the caches, and step by step."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from copyscope.report.plots.colours import FAINT, FILLS, Fill
from copyscope.report.plots.grid import Box, Grid, draw_boxes, legend_lines, patch, stack
from copyscope.report.plots.saved_copy import waterfalls
from copyscope.show.account_words import COPIES
from copyscope.stats import Missing
from copyscope.study.modelled import (
    LEVELS,
    PAGES,
    TITLES,
    ModelPoint,
    line_waterfall,
    pairs,
    size_of,
    usual_setting,
)
from copyscope.study.table import strategy_order
from copyscope.taxonomy.taxonomy import ACCOUNTS
from copyscope.units import format_whole_size

STACK = (*ACCOUNTS, PAGES)
REST = "other work"
LOOK = {**FILLS, REST: Fill("#E6E6E6", "")}
NAMES = {**COPIES, PAGES: "pages (zeroing)"}
SHORT = {"per_field": "field", "two_copy": "two", "one_copy": "one", "zero_copy": "zero"}
# A bar's width, in doublings of the scale across, for a scale of steps of 2 and of 4.
WIDEST = 0.55
# Small messages miss ten times as much: they may leave the panel, with their number.
FULL_FROM = 16384
SMALLEST = 1024
# Of which the steps are drawn.
SIZES = (4096, 65536, 1 << 20)


def by_size(points: Sequence[ModelPoint], caption: str) -> Figure | Missing:
    """Misses along the size of a message, over veth, with the ring that most sizes were counted with."""
    kept = usual_setting([point for point in points if point.size >= SMALLEST])
    ring = kept[0].setting.working_set_messages if kept else 0
    title = "Where the lines of each copy miss, by the size of a message (modelled)"
    note = (
        f"Misses of loads and stores, all sides, veth, {ring} messages in the ring; a copy of 1 KiB reads 16"
        " lines and writes 16. Dashed: the size of a cache. A number in a bar: it leaves the panel."
    )
    across = Across("size of a message", lambda point: point.size)
    return _draw(kept, across, title, f"{note} {caption}")


def by_working_set(points: Sequence[ModelPoint], caption: str) -> Figure | Missing:
    """Along the memory that the sender goes round in: at the size of which most rings were counted."""
    veth = [point for point in points if point.setting.path == "veth"]
    rings = Counter(point.size for point in {(p.size, p.setting): p for p in veth}.values())
    size = max(rings, key=lambda one: (rings[one], one), default=0)
    kept = [point for point in veth if point.size == size]
    title = "Where the lines of each copy miss, by the working set of the sender (modelled)"
    note = f"Messages of {format_whole_size(size)} over veth; misses of loads and stores, all sides."
    across = Across("messages in turn, together", lambda point: point.working_set_bytes)
    return _draw(kept, across, title, f"{note} {caption}")


def lines(points: Sequence[ModelPoint], caption: str) -> Figure | Missing:
    """From the L1D misses of one_copy to those of zero_copy: of the first model and the smallest ring."""
    ring = min((point.setting.working_set_messages for point in points), default=0)
    cache = points[0].setting.cache if points else ""
    found = [
        line_waterfall(one, zero)
        for path in ("veth", "nics")
        for one, zero in pairs(points, "one_copy", "zero_copy")
        if (one.setting.path, one.setting.cache, one.setting.working_set_messages) == (path, cache, ring)
        and one.size in SIZES
    ]
    title = "Where the lines of the saved copy went: from one_copy to zero_copy (modelled)"
    if not found:
        return Missing("one_copy and zero_copy were not both counted at 4 KiB and more")
    note = (
        f"L1D misses per KiB, all sides, model {cache}, {ring} messages in the ring; steps of paired boots."
    )
    titles = [f"{one.after.setting.path}, {format_whole_size(one.after.size)}" for one in found]
    return waterfalls(title, f"{note} {caption}", found, titles, "lines per KiB")


@dataclass(frozen=True)
class Across:
    """What is drawn across: a number of bytes of a point."""

    label: str
    of: Callable[[ModelPoint], int]


def _draw(points: Sequence[ModelPoint], across: Across, title: str, caption: str) -> Figure | Missing:
    """A column of panels for each model of the caches, a row for each level."""
    caches = list(dict.fromkeys(point.setting.cache for point in points))
    if not points:
        return Missing("no valid boot of these settings")
    seen = [n for n in STACK if any(p.parts(level).get(n, 0) >= 0.05 for p in points for level in LEVELS)]
    count, columns = len(LEVELS) * len(caches), len(caches)
    names = [*seen, REST]
    labels = [NAMES.get(name, name) for name in names]
    grid = Grid(
        title,
        caption,
        count,
        columns=columns,
        panel_in=1.9,
        down_in=0.95,
        below_in=0.8,
        legend_lines=legend_lines(labels),
    )
    for index, axes in enumerate(grid.axes):
        level, cache = LEVELS[index // len(caches)], caches[index % len(caches)]
        _panel(axes, [p for p in points if p.setting.cache == cache], level, across)
        axes.set_title(f"{cache}: {TITLES[level]}", loc="left")
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel("lines per KiB")
    patches = [patch(LOOK[name].colour, LOOK[name].hatch) for name in names]
    grid.legend(patches, labels)
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
        size = size_of(point.model, level)
        if size and seen[0] < math.log2(size) < seen[1]:
            axes.axvline(math.log2(size), color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
            axes.text(math.log2(size), top, f" {TITLES[level]} {format_whole_size(size)}", fontsize=6.5,
                      color=FAINT, ha="left", va="top")  # fmt: skip
