# SPDX-License-Identifier: GPL-2.0-only
"""Plots of stacked bars: the ledger at measured points, and the cache misses of simulated machines."""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from copyscope.base.spelling import format_whole_size, visible
from copyscope.base.stats import Estimate, Missing, grouped
from copyscope.report.model_points import (
    LEVELS,
    PAGES,
    TITLES,
    LineWaterfall,
    ModelPoint,
    cache_bytes,
    line_waterfall,
    pairs,
    usual_setting,
)
from copyscope.report.plots.catalogue import BLUE, FAINT, FILLS, INK, VERMILLION, Fill
from copyscope.report.plots.curves import short_number
from copyscope.report.plots.grid import (
    BarTop,
    Corners,
    Grid,
    box_corners,
    draw_boxes,
    draw_intervals,
    legend_lines,
    legend_patch,
    stack_boxes,
    wrap_title,
)
from copyscope.report.study_table import (
    StudyRow,
    WaterfallStep,
    comparable,
    describe,
    find_axis,
    spell_factor,
    strategy_order,
    varied,
)
from copyscope.taxonomy.accounts import ACCOUNTS, PACKET_STAGES, called

# Plot of the ledger: groups of stages, because more greys cannot be told apart, and their fills.
STAGE_GROUPS = {
    "network stack": (*PACKET_STAGES, "irq"),
    "system calls, waking, memory": ("syscall", "wakeup_sched", "lock", "memory"),
}
REST = "rest"
LEDGER_FILLS = {
    **{name: FILLS[name] for name in ACCOUNTS},
    **dict(
        zip(
            (*STAGE_GROUPS, REST),
            (Fill("#B3B3B3", ""), Fill("#6E6E6E", ""), Fill("#F4F4F4", "")),
            strict=True,
        )
    ),
}
GROUP_OF = {stage: group for group, stages in STAGE_GROUPS.items() for stage in stages}
# Maximum height of a panel, in heights of its highest bar: intervals of few repeats may be 30 times as long.
INTERVALS_MAX = 2.0
GROUP_GAP = 0.7  # gap between groups, in widths of a bar
GROUP_LINE_IN = 0.145  # height of a line of a group's name, in inches
LETTERS_PER_BAR = 4.0  # letters per line in the name of a group, for each bar of the group

# Plots of misses: their categories, from the bottom of a bar to the top.
STACKED = (*ACCOUNTS, PAGES)
OTHER_WORK = "other work"
MISS_FILLS = {**FILLS, OTHER_WORK: Fill("#E6E6E6", "")}
LEGEND_NAMES = {**{name: ACCOUNTS[name].title for name in ACCOUNTS}, PAGES: "pages (zeroing)"}
SHORT_STRATEGIES = {"per_field": "field", "two_copy": "two", "one_copy": "one", "zero_copy": "zero"}
# Maximum width of a bar, as a part of the distance between a size and its double. Neighbouring sizes differ
# by a factor of 2 or 4.
BAR_WIDTH_MAX = 0.55
# Minimum message size whose bars fit into the panel. Smaller messages have ten times as many misses per KiB:
# their bars are cut off at the top of the panel, and show their height as a number.
FULL_BARS_FROM_BYTES = 16384
# Minimum message size in the plots.
SIZE_MIN_BYTES = 1024

# Plot of the saved lines: message sizes, and fills of the bars.
STEP_SIZES_BYTES = (4096, 65536, 1 << 20)
TOTAL_FILL, ADDED_FILL, SAVED_FILL = Fill("#BBBBBB", ""), Fill(VERMILLION, "\\\\"), Fill(BLUE, "//")
NUMBERS_PT = 30  # height in points of the row of numbers between a panel and its title


def ledger_stack(rows: Sequence[StudyRow], caption: str) -> Figure | Missing:
    """Draw the CPU time per KiB as a stacked bar for each strategy.

    Each value of the axis has a panel with its own scale, because small messages cost 100 times more per KiB.
    """
    axis = find_axis(rows, first="size")
    ordered = sorted(rows, key=lambda row: comparable(row.factors[axis.factor]))
    panels = {
        value: members
        for value, members in grouped(ordered, lambda row: row.factors[axis.factor]).items()
        if any(row.parts for row in members)
    }
    if not panels:
        reasons = [cost.reason for row in rows if isinstance(cost := _system_cost(row), Missing)]
        return Missing(reasons[0] if reasons else "no sample was taken")
    drawn = {name for row in rows for name, part in _ledger_parts(row).items() if part}
    categories = [name for name in LEDGER_FILLS if name in drawn]
    bars_max = max(map(len, panels.values()))
    swept = varied(rows, without=("impl", axis.factor))
    names = [called(name, watched=False) for name in categories]
    name_lines = max(
        text.count("\n") + 1 for members in panels.values() for _, text in _groups(members, swept)
    )
    note = (
        "Colours are copies in all processes, greys are other work; error bar: 95 % interval of the total "
        "(without a cap at its upper end, it goes on)."
    )
    grid = Grid(
        "The copy ledger: CPU time per delivered KiB, by kind of work",
        f"{note} {caption}",
        len(panels),
        columns=3 if bars_max <= 16 else 2 if bars_max <= 24 else 1,
        panel_in=2.5,
        above_in=0.36 + GROUP_LINE_IN * name_lines,
        legend_lines=legend_lines(names),
        below_in=1.05,
        down_in=1.2 + GROUP_LINE_IN * name_lines,
    )
    for axes, (value, members) in zip(grid.axes, panels.items(), strict=True):
        _draw_ledger_panel(axes, _groups(members, swept))
        axes.set_title(spell_factor(axis.factor, value), loc="left", pad=6 + 72 * GROUP_LINE_IN * name_lines)
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel("CPU time (ns/KiB)")
    grid.legend([legend_patch(LEDGER_FILLS[name]) for name in categories], names)
    return grid.figure


def _ledger_parts(row: StudyRow) -> dict[str, float]:
    """Return the height of each part of a bar, by account or group of stages, from the bottom to the top."""
    parts = dict.fromkeys(LEDGER_FILLS, 0.0)
    for category, height in row.parts.items():
        parts[category if category in ACCOUNTS else GROUP_OF.get(category, REST)] += height
    return parts


def _groups(members: Sequence[StudyRow], swept: Sequence[str]) -> list[tuple[list[StudyRow], str]]:
    """Return the groups of bars as pairs of (rows of the bars, name of the group).

    The points of a group have the same values of all varied factors (`swept`). The name is wrapped to the
    group's width.
    """
    groups = []
    for setting, bars in groupby(members, key=lambda row: [row.factors.get(name) for name in swept]):
        rows, name = list(bars), describe(dict(zip(swept, setting, strict=True)))
        groups.append((rows, textwrap.fill(name, max(10, round(LETTERS_PER_BAR * len(rows))))))
    return groups


def _draw_ledger_panel(axes: Axes, groups: Sequence[tuple[Sequence[StudyRow], str]]) -> None:
    """Draw the bars in a panel of the ledger. `groups`: each group's bars and name."""
    x, ticks, labels = 0.0, [], []
    shapes: dict[str, list[Corners]] = {name: [] for name in LEDGER_FILLS}
    tops: list[BarTop] = []
    for bars, name in groups:
        group_start = x
        for row in bars:
            if not row.parts:
                axes.text(x, 0.02, "n/a", transform=axes.get_xaxis_transform(), rotation=90, fontsize=7,
                          ha="center", va="bottom", color=FAINT)  # fmt: skip
            stack_boxes(_ledger_parts(row).items(), x - 0.43, x + 0.43, shapes)
            cost = _system_cost(row)
            if row.parts and isinstance(cost, Estimate):
                tops.append(BarTop(x, cost.value, cost))
            ticks.append(x)
            labels.append(row.impl)
            x += 1
        axes.text(
            (group_start + x - 1) / 2, 1.01, name, transform=axes.get_xaxis_transform(), ha="center",
            va="bottom", fontsize=7.5, color=FAINT,
        )  # fmt: skip
        x += GROUP_GAP
    highest = 0.0
    for category, boxes in shapes.items():
        draw_boxes(axes, boxes, LEDGER_FILLS[category], border_width=0.3)
        highest = max([highest, *(corners[2][1] for corners in boxes)])
    ends = [top.estimate.high for top in tops if top.estimate.high is not None]
    height = max(highest * 1.05, min(max(ends, default=0.0) * 1.02, highest * INTERVALS_MAX))
    draw_intervals(axes, tops, width=0.9, cap=2)
    axes.set_xticks(ticks, [visible(label) for label in labels], rotation=90, fontsize=7.5)
    axes.set_xlim(-0.8, x - GROUP_GAP - 0.2)
    axes.grid(False, axis="x")
    axes.set_ylim(0, height)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _system_cost(row: StudyRow) -> Estimate | Missing:
    """Return the CPU time per KiB of all processes."""
    return row.values["system_cpu_ns_per_kib"]


@dataclass(frozen=True)
class HorizontalAxis:
    """The horizontal axis of a plot of misses.

    bytes_of: function that returns a point's position in bytes
    """

    label: str
    bytes_of: Callable[[ModelPoint], int]


def misses_by_size(points: Sequence[ModelPoint], caption: str) -> Figure | Missing:
    """Draw the misses by message size, over veth.

    All points have the most frequent ring size. A ring is the set of messages that a thread sends in
    rotation.
    """
    shown = usual_setting([point for point in points if point.size >= SIZE_MIN_BYTES])
    ring = shown[0].setting.working_set_messages if shown else 0
    title = "Cache misses of each copy, by message size (modelled)"
    note = (
        f"Misses of loads and stores, all processes, veth, {ring} messages in the ring. A copy of 1 KiB reads"
        " 16 lines and writes 16. Dashed: size of a cache. Bars that exceed the panel state their height."
    )
    across = HorizontalAxis("message size", lambda point: point.size)
    return _draw_misses(shown, across, title, f"{note} {caption}")


def misses_by_working_set(points: Sequence[ModelPoint], caption: str) -> Figure | Missing:
    """Draw the misses by the sender's working set, at the message size with the most working sets."""
    veth = [point for point in points if point.setting.path == "veth"]
    rings = Counter(point.size for point in {(p.size, p.setting): p for p in veth}.values())
    size_bytes = max(rings, key=lambda size: (rings[size], size), default=0)
    shown = [point for point in veth if point.size == size_bytes]
    title = "Cache misses of each copy, by the working set of the sender (modelled)"
    note = f"{format_whole_size(size_bytes)} messages over veth; misses of loads and stores, all processes."
    across = HorizontalAxis("working set: all messages of the ring", lambda point: point.working_set_bytes)
    return _draw_misses(shown, across, title, f"{note} {caption}")


def saved_lines(points: Sequence[ModelPoint], caption: str) -> Figure | Missing:
    """Draw the steps from the L1D misses of `one_copy` to those of `zero_copy`.

    Only points with the first cache model and the smallest ring of messages are drawn.
    """
    ring = min((point.setting.working_set_messages for point in points), default=0)
    cache = points[0].setting.cache if points else ""
    waterfalls = [
        line_waterfall(one_copy, zero_copy)
        for path in ("veth", "nics")
        for one_copy, zero_copy in pairs(points, "one_copy", "zero_copy")
        if (one_copy.setting.path, one_copy.setting.cache) == (path, cache)
        and one_copy.setting.working_set_messages == ring
        and one_copy.size in STEP_SIZES_BYTES
    ]
    if not waterfalls:
        return Missing("one_copy and zero_copy were not both simulated at 4 KiB or more")
    note = f"L1D misses of all processes, model {cache}, {ring} messages in the ring; steps of paired boots."
    titles = [f"{w.after.setting.path}, {format_whole_size(w.after.size)}" for w in waterfalls]
    title = "Where the lines of the saved copy went: from one_copy to zero_copy (modelled)"
    return _draw_waterfalls(title, f"{note} {caption}", waterfalls, titles)


def _draw_misses(
    points: Sequence[ModelPoint], across: HorizontalAxis, title: str, caption: str
) -> Figure | Missing:
    """Draw the points' misses: a column of panels for each cache model, a row for each cache level."""
    caches = list(dict.fromkeys(point.setting.cache for point in points))
    if not points:
        return Missing("no valid boot of these settings")
    stacked = [
        name
        for name in STACKED
        if any(point.parts(level).get(name, 0) >= 0.05 for point in points for level in LEVELS)
    ]
    names = [*stacked, OTHER_WORK]
    labels = [LEGEND_NAMES.get(name, name) for name in names]
    grid = Grid(
        title,
        caption,
        len(LEVELS) * len(caches),
        columns=len(caches),
        panel_in=1.9,
        down_in=0.95,
        below_in=0.8,
        legend_lines=legend_lines(labels),
    )
    for index, axes in enumerate(grid.axes):
        level, cache = LEVELS[index // len(caches)], caches[index % len(caches)]
        _draw_misses_panel(axes, [point for point in points if point.setting.cache == cache], level, across)
        axes.set_title(f"{cache}: {TITLES[level]}", loc="left")
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel("lines per KiB")
    grid.legend([legend_patch(MISS_FILLS[name]) for name in names], labels)
    return grid.figure


def _draw_misses_panel(axes: Axes, points: Sequence[ModelPoint], level: str, across: HorizontalAxis) -> None:
    """Draw the misses at one cache level: a group of bars for each message size, a bar for each strategy."""
    impls = sorted({point.impl for point in points}, key=strategy_order)
    positions = sorted({across.bytes_of(point) for point in points})
    step = min([math.log2(right / left) for left, right in pairwise(positions)] or [2.0])
    bar = min(BAR_WIDTH_MAX, 0.82 * step / len(impls))
    parts_of_points = {point: point.parts(level) for point in points}
    totals = {point: sum(misses.values()) for point, misses in parts_of_points.items()}
    large = [total for point, total in totals.items() if point.size >= FULL_BARS_FROM_BYTES]
    top = max(8.0, 1.3 * max(large or totals.values()))
    shapes: dict[str, list[Corners]] = {name: [] for name in (*STACKED, OTHER_WORK)}
    for point, total in totals.items():
        middle = math.log2(across.bytes_of(point)) + bar * (impls.index(point.impl) - (len(impls) - 1) / 2)
        misses = parts_of_points[point]
        rest = sum(value for name, value in misses.items() if name not in STACKED)
        parts = (*((name, misses.get(name, 0.0)) for name in STACKED), (OTHER_WORK, rest))
        stack_boxes(parts, middle - 0.46 * bar, middle + 0.46 * bar, shapes)
        if total > top:
            axes.text(middle, 0.97 * top, f"{total:,.0f}", rotation=90, ha="center", va="top", fontsize=6,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4}, zorder=5)  # fmt: skip
        axes.text(middle, -0.02 * top, SHORT_STRATEGIES.get(point.impl, point.impl), rotation=90, ha="center",
                  va="top", fontsize=6)  # fmt: skip
    for name, boxes in shapes.items():
        draw_boxes(axes, boxes, MISS_FILLS[name], border_width=0.3)
    low, high = math.log2(positions[0]) - 0.75 * step, math.log2(positions[-1]) + 0.75 * step
    _draw_cache_sizes(axes, points[0], (low, high), top)
    axes.set_xlim(low, high)
    axes.set_ylim(0, top)
    axes.set_xticks([math.log2(size) for size in positions], [format_whole_size(size) for size in positions])
    axes.tick_params(axis="x", pad=20, length=0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(False, axis="x")
    axes.set_xlabel(across.label)


def _draw_cache_sizes(axes: Axes, point: ModelPoint, limits: tuple[float, float], top: float) -> None:
    """Draw a dashed line at the size of each cache level within the horizontal limits (log2 of bytes)."""
    for level in LEVELS:
        size_bytes = cache_bytes(point.model, level)
        if size_bytes and limits[0] < math.log2(size_bytes) < limits[1]:
            axes.axvline(math.log2(size_bytes), color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
            label = f" {TITLES[level]} {format_whole_size(size_bytes)}"
            axes.text(math.log2(size_bytes), top, label, fontsize=6.5, color=FAINT, ha="left", va="top")


def _draw_waterfalls(
    title: str, caption: str, waterfalls: Sequence[LineWaterfall], titles: Sequence[str]
) -> Figure:
    """Return a figure with a panel for each waterfall. `titles`: titles of the panels."""
    grid = Grid(title, caption, len(waterfalls), panel_in=2.2, above_in=0.75, below_in=1.4, down_in=2.0)
    for axes, waterfall, panel_title in zip(grid.axes, waterfalls, titles, strict=True):
        axes.set_title(wrap_title(axes, panel_title), loc="left", pad=NUMBERS_PT)
        _draw_steps(axes, waterfall.names, (waterfall.start, waterfall.end), waterfall.steps)
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel("lines per KiB")
    fills = (TOTAL_FILL, ADDED_FILL, SAVED_FILL)
    grid.legend([legend_patch(fill) for fill in fills], ("total", "added", "saved"))
    return grid.figure


def _draw_steps(
    axes: Axes, names: tuple[str, str], ends: tuple[float, float], steps: Sequence[WaterfallStep]
) -> None:
    """Draw the steps between two strategies, with a full bar for each strategy's total.

    ends: totals of the two strategies
    """
    labels = [names[0], *(step.name for step in steps), names[1]]
    last = len(labels) - 1
    level, levels = ends[0], [ends[0]]
    added: list[Corners] = []
    saved: list[Corners] = []
    for x, step in enumerate(steps, start=1):
        change = step.change.value
        (added if change >= 0 else saved).append(box_corners(x - 0.43, x + 0.43, level, level + change))
        _write_above(axes, x, change, "+")
        axes.plot([x - 1.43, x + 0.43], [level, level], color=FAINT, linewidth=0.6)
        level += change
        levels.append(level)
    axes.plot([last - 1.43, last + 0.43], [level, level], color=FAINT, linewidth=0.6)
    draw_boxes(axes, added, ADDED_FILL, border_width=0.5)
    draw_boxes(axes, saved, SAVED_FILL, border_width=0.5)
    tops = [BarTop(x, levels[x], step.change) for x, step in enumerate(steps, start=1)]
    draw_intervals(axes, tops, width=0.8, cap=1.8)
    for x, height in ((0, ends[0]), (last, ends[1])):
        axes.bar(x, height, 0.86, color=TOTAL_FILL.colour, edgecolor=INK, linewidth=0.5)
        _write_above(axes, x, height, "")
    # The panel is at most 1.5 times as high as its bars, so that a longer interval is cut off.
    tips = [start + (step.change.high or 0.0) for start, step in zip(levels, steps, strict=False)]
    axes.set_ylim(min(0.0, *levels), min(max(*levels, *tips), 1.5 * max(levels)) * 1.04)
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7.5)
    axes.grid(False, axis="x")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _write_above(axes: Axes, x: int, value: float, sign: str) -> None:
    """Write a number above the panel, where it covers no interval.

    x: index of the bar
    sign: text before a number that is not negative
    """
    text = short_number(float(f"{value:.3g}")) if abs(value) >= 1 else f"{value:.1f}"
    axes.text(
        x, 1.03, f"{sign if value >= 0 else ''}{text}", transform=axes.get_xaxis_transform(),
        rotation=90, ha="center", va="bottom", fontsize=7,
    )  # fmt: skip
