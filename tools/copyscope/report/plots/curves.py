# SPDX-License-Identifier: GPL-2.0-only
"""Plots with a line for each strategy: a quantity along a factor, or ratios to one strategy along a factor.

Error bars are 95 % intervals, and missing values are written as `n/a`. Plots of ratios also show crossovers.
"""

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from copyscope.base.spelling import option_size
from copyscope.base.stats import Estimate, Missing, gathered
from copyscope.judge.crossover import Crossover
from copyscope.report.plots.catalogue import FAINT, INK, LineStyle, Plot, Quantity, line_style
from copyscope.report.plots.grid import WIDTH_IN, Grid, legend_lines, wrap_title, write_not_available
from copyscope.report.study_table import RATIO_METRICS, Axis, Panel, RatioView, StudyRow, arrange, find_axis

# Ratio of the largest value to the smallest value above which the vertical scale is logarithmic.
LOG_SCALE_FROM = 12.0
# Ratio of the largest value to the smallest value below which a logarithmic scale also has labels between
# the powers of ten.
DENSE_LABELS_BELOW = 60.0
# Half of the horizontal shift between neighbouring strategies, as a power of two: positions are multiplied by
# 2 to the power of the shift.
STEP = 0.05
SIDES = ("sender", "receiver")
# Width of a vertical label of the horizontal axis with some space, in inches.
LABEL_IN = 0.15


def plot(spec: Plot, rows: Sequence[StudyRow], caption: str) -> Figure | Missing:
    """Return the figure for a plot that consists of curves. `spec`: the plot's entry in the catalogue."""
    shown = [row for row in rows if row.mode == spec.mode] or rows
    return draw(shown, find_axis(shown, first=spec.along), spec.curves, spec.heading, caption)


def cycles(rows: Sequence[StudyRow], caption: str) -> Figure | Missing:
    """Draw the cycles of the sender and the receiver, and the whole system's CPU time including softirqs.

    Without a PMU, draw the CPU time of the sender and the receiver instead of their cycles.
    """
    values = [row.values[f"cycles_per_byte_{side}"] for row in rows for side in SIDES]
    missing = [value.reason for value in values if isinstance(value, Missing)]
    system = Quantity("system_cpu_ns_per_kib", "CPU time (ns/KiB)", "system")
    if len(missing) == len(values):
        quantities = [Quantity(f"{side}_cpu_ns_per_kib", "CPU time (ns/KiB)", side) for side in SIDES]
        title = "Cost of a byte: CPU time"
        why = missing[0] if missing else "no point"
        caption = f"cycles: n/a: {why.removeprefix('cycles: ')}; CPU time is shown instead. {caption}"
    else:
        quantities = [Quantity(f"cycles_per_byte_{side}", "cycles per byte", side) for side in SIDES]
        title = "Cost of a byte: cycles"
    return draw(rows, find_axis(rows), [*quantities, system], title, caption)


def draw(
    rows: Sequence[StudyRow], axis: Axis, quantities: Sequence[Quantity], title: str, caption: str
) -> Figure | Missing:
    """Return a figure with a panel for each quantity and setting.

    A quantity that has no values gets no panel, and the caption names it. A setting that has no values gets
    no panel.
    """
    all_panels = arrange(rows, axis)
    shown = [quantity for quantity in quantities if _estimates(all_panels, quantity)]
    if not shown:
        return Missing(_why_none(all_panels, quantities[0]))
    absent = [
        f"{quantity.panel}: n/a: {_why_none(all_panels, quantity)}."
        for quantity in quantities
        if quantity not in shown
    ]
    settings = [panel for panel in all_panels if any(_estimates([panel], quantity) for quantity in shown)]
    panels = [(quantity, panel) for quantity in shown for panel in settings]
    impls = list(dict.fromkeys(impl for _, panel in panels for impl in panel.lines))
    columns = len(settings) if len(shown) > 1 and len(settings) <= 4 else 3
    caption = " ".join([*absent, caption])
    grid = Grid(title, caption, len(panels), columns=columns, legend_lines=legend_lines(impls))
    for axes, (quantity, panel) in zip(grid.axes, panels, strict=True):
        # Plots by number of threads have a panel per message size. Costs differ too much between these sizes
        # for a common scale.
        same_scale = [panel] if axis.factor == "threads" else [p for q, p in panels if q == quantity]
        _draw_panel(axes, panel, axis, quantity, impls=impls, same_scale=same_scale)
    for axes, (quantity, _) in zip(grid.axes[:: grid.columns], panels[:: grid.columns], strict=True):
        axes.set_ylabel(quantity.label)
    grid.legend([legend_line(line_style(impl, impls)) for impl in impls], impls)
    return grid.figure


def _why_none(panels: Sequence[Panel], quantity: Quantity) -> str:
    """Return the first reason why a quantity's values are missing."""
    rows = (row for panel in panels for line in panel.lines.values() for row in line)
    values = (row.values[quantity.metric] for row in rows)
    reasons = (value.reason for value in values if isinstance(value, Missing))
    return next(reasons, "no point in this experiment")


def _draw_panel(
    axes: Axes, panel: Panel, axis: Axis, quantity: Quantity, *, impls: list[str], same_scale: Sequence[Panel]
) -> None:
    """Draw a quantity for all strategies in one panel.

    impls: strategies of the figure, in the order of the legend
    same_scale: panels whose values determine the vertical scale
    """
    heading = ", ".join(part for part in (quantity.panel, panel.title) if part)
    axes.set_title(wrap_title(axes, heading), loc="left")
    positions = sorted({_position(row, axis) for line in panel.lines.values() for row in line})
    missing: list[tuple[float, str]] = []
    for impl, line in panel.lines.items():
        shift = shift_of(impl, impls)
        points = []
        for position, value in ((_position(row, axis), row.values[quantity.metric]) for row in line):
            if isinstance(value, Missing):
                missing.append((position, impl))
            else:
                points.append((position * shift, value))
        draw_line(axes, points, line_style(impl, impls))
    if not _estimates([panel], quantity):
        write_not_available(axes, _why_none([panel], quantity))
        return
    scale_vertically(axes, _estimates(same_scale, quantity), room_below=bool(missing))
    scale_horizontally(axes, positions, axis)
    _note_missing(axes, missing)


def _estimates(panels: Sequence[Panel], quantity: Quantity) -> list[Estimate]:
    """Return all estimates of a quantity in some panels."""
    rows = [row for panel in panels for line in panel.lines.values() for row in line]
    return [value for row in rows if isinstance(value := row.values[quantity.metric], Estimate)]


def _position(row: StudyRow, axis: Axis) -> float:
    """Return the position of a point on the horizontal axis."""
    return float(row.factors[axis.factor])


def shift_of(impl: str, impls: Sequence[str]) -> float:
    """Return the factor that shifts a strategy's positions, so that intervals do not overlap.

    impls: all strategies of the figure
    """
    return float(2 ** (STEP * 2 * (impls.index(impl) - (len(impls) - 1) / 2)))


def legend_line(style: LineStyle) -> Line2D:
    """Return the line that represents a strategy in the legend."""
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle=style.dashes, markersize=5)


def draw_line(axes: Axes, points: Sequence[tuple[float, Estimate]], style: LineStyle) -> None:
    """Draw a strategy's points (position, estimate) as a line with error bars."""
    if not points:
        return
    x = [position for position, _ in points]
    y = [value.value for _, value in points]
    low = [value.value - (value.value if value.low is None else value.low) for _, value in points]
    high = [(value.value if value.high is None else value.high) - value.value for _, value in points]
    axes.errorbar(
        x,
        y,
        yerr=[low, high],
        color=style.colour,
        marker=style.marker,
        linestyle=style.dashes,
        markersize=5.5,
        linewidth=1.4,
        elinewidth=0.9,
        capsize=2.2,
        markeredgecolor="white" if style.marker not in "x+" else style.colour,
        markeredgewidth=0.5,
    )


def scale_vertically(
    axes: Axes, estimates: Sequence[Estimate], *, room_below: bool, base: float | None = None
) -> None:
    """Choose the vertical scale from the values. A very wide interval is cut off at the panel's border.

    room_below: keep the lowest quarter of the panel free for `n/a`
    base: value that the scale must include, 1 for ratios; None if there is no such value
    """
    values = [estimate.value for estimate in estimates] + ([] if base is None else [base])
    low, high = min(values), max(values)
    if low > 0 and (high / low > LOG_SCALE_FROM or base is not None):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < DENSE_LABELS_BELOW else (1,)))
        lowest = min(e.value if e.low is None else e.low for e in estimates)
        highest = max(e.value if e.high is None else e.high for e in estimates)
        bottom, top = max(lowest / 1.2, low / 4), min(highest * 1.2, high * 4)
        axes.set_ylim(bottom / (top / bottom) ** (1 / 3) if room_below else bottom, top)
    else:
        bottom, top = min(0.0, low * 1.1), high * 1.4 if high > 0 else 1.0
        axes.set_ylim(bottom - (top - bottom) / 3 if room_below else bottom, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.yaxis.set_minor_locator(NullLocator())  # minor ticks take a third of the drawing time


def scale_horizontally(axes: Axes, positions: Sequence[float], axis: Axis) -> None:
    """Set the horizontal scale and its labels. Labels that would touch each other are left out."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(positions[0] / 1.5, positions[-1] * 1.5)
    width_in = axes.get_position().width * WIDTH_IN
    shown_doublings = math.log2(positions[-1] / positions[0] * 1.5**2)
    labelled = positions_to_label(positions, LABEL_IN * shown_doublings / width_in)
    texts = [option_size(int(position)) if axis.binary else f"{position:g}" for position in positions]
    labels = [text if position in labelled else "" for position, text in zip(positions, texts, strict=True)]
    axes.set_xticks(list(positions), labels, rotation=90 if len(positions) > 6 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{axis.label} (bytes)" if axis.binary else axis.label)


def positions_to_label(positions: Sequence[float], doublings_min: float) -> list[float]:
    """Return the positions that get a label.

    doublings_min: minimum distance between two labels, as log2 of the ratio between their positions
    """
    labelled: list[float] = []
    for position in positions:
        if not labelled or math.log2(position / labelled[-1]) >= doublings_min:
            labelled.append(position)
    return labelled


def _note_missing(axes: Axes, missing: Sequence[tuple[float, str]]) -> None:
    """Write `n/a` and the strategies at the bottom of the panel, at each position with missing values."""
    for position, impls in gathered(missing).items():
        axes.text(
            position,
            0.02,
            f"n/a {', '.join(impls)}",
            transform=axes.get_xaxis_transform(),
            rotation=90,
            fontsize=6.5,
            color=FAINT,
            ha="center",
            va="bottom",
        )


def short_number(value: float) -> str:
    """Format a number for a tick: `0.1`, `100`, `10k`, `1M`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


RATIO_TITLES = dict(
    zip(
        RATIO_METRICS,
        ("goodput (above 1: better)", "CPU time, all processes (below 1: better)"),
        strict=True,
    )
)
# Ratios that get a label on the logarithmic scale.
RATIO_LABELS = (*(digit * 10.0**decade for decade in range(-3, 4) for digit in (1, 2, 3, 5, 7)), 1.5)
BAND_OPACITY = 0.16


def ratios(views: Sequence[RatioView], caption: str) -> Figure | Missing:
    """Return the figure for the first view: ratios of goodput and of CPU time."""
    if not views:
        return Missing("one_copy and another strategy were not measured in the same setting")
    view = views[0]
    setting = f" ({', '.join(view.setting.values())})" if view.setting else ""
    legend = _ratio_legend(view)
    grid = Grid(
        f"Relative to {view.base}{setting}",
        caption,
        len(RATIO_METRICS),
        legend_lines=legend_lines(list(legend)),
    )
    for axes, metric in zip(grid.axes, RATIO_METRICS, strict=True):
        axes.set_title(RATIO_TITLES[metric], loc="left")
        _ratio_panel(axes, view, metric)
    grid.axes[0].set_ylabel(f"ratio to {view.base}")
    grid.legend(list(legend.values()), list(legend))
    return grid.figure


def _ratio_legend(view: RatioView) -> dict[str, Artist]:
    """Return the legend of a view: label -> line or patch."""
    legend: dict[str, Artist] = {impl: legend_line(line_style(impl, view.impls)) for impl in view.impls}
    if any(view.crossings.values()):
        legend["size of a crossover"] = Line2D([], [], color=INK, marker="D", markersize=5, linestyle="")
        legend["95 % interval of the size"] = Patch(facecolor=INK, alpha=BAND_OPACITY)
    return legend


def _ratio_panel(axes: Axes, view: RatioView, metric: str) -> None:
    """Draw all strategies' ratios in one metric, with each strategy's crossovers."""
    lines = view.ratios[metric]
    if not lines:
        write_not_available(axes, "not measured at the same settings")
        return
    for impl, values in lines.items():
        shift = shift_of(impl, view.impls)
        points = [(at * shift, value) for at, value in zip(view.positions, values, strict=True) if value]
        draw_line(axes, points, line_style(impl, view.impls))
    estimates = [value for values in lines.values() for value in values if value]
    scale_vertically(axes, estimates, room_below=False, base=1.0)
    axes.yaxis.set_major_locator(FixedLocator(RATIO_LABELS))
    scale_horizontally(axes, view.positions, view.axis)
    axes.axhline(1, color=INK, linewidth=1)
    for impl, crossing in view.crossings.get(metric, {}).items():
        if crossing.size_bytes is not None:
            _draw_crossover(axes, crossing, crossing.size_bytes, line_style(impl, view.impls))


def _draw_crossover(axes: Axes, crossing: Crossover, size_bytes: float, style: LineStyle) -> None:
    """Draw a crossover as a point, and its interval as a band, up to the border if an end is unknown."""
    left, right = axes.get_xlim()
    low, high = crossing.low or left, crossing.high or right
    axes.axvspan(low, high, color=style.colour, alpha=BAND_OPACITY, linewidth=0)
    axes.plot([low, high], [1, 1], color=style.colour, linewidth=3.5, solid_capstyle="butt")
    axes.plot([size_bytes], [1], color=INK, marker="D", markersize=5)
