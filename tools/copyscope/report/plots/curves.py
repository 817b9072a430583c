"""A quantity along a factor: one line per strategy, 95 % intervals as bars, missing values as `n/a`."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from copyscope.grouping import gathered
from copyscope.report.plots.catalogue import Plot, Quantity
from copyscope.report.plots.colours import FAINT, Mark, mark_of
from copyscope.report.plots.grid import WIDTH_IN, Grid, legend_lines, say_not_available, wrapped
from copyscope.stats import Estimate, Missing
from copyscope.study.facets import Axis, Panel, arrange, find_axis
from copyscope.study.table import Row
from copyscope.units import option_size

# a scale is logarithmic when the largest value is more than so many times the smallest
WIDE = 12.0
# and has labels between the powers of ten when it is less than so many times
FEW = 60.0
# how far strategies stand apart at the same factor value, so that their bars do not hide each other
STEP = 0.05
SIDES = ("sender", "receiver")
# of a label that stands upright: its height, and some air
LABEL_IN = 0.15


def plot(what: Plot, rows: Sequence[Row], caption: str) -> Figure | Missing:
    """A plot of the catalogue that is curves."""
    shown = [row for row in rows if row.mode == what.mode] or rows
    return draw(shown, find_axis(shown, first=what.along), what.curves, what.heading, caption)


def cycles(rows: Sequence[Row], caption: str) -> Figure | Missing:
    """Cycles, or CPU time where no PMU counts them: sender, receiver, and both with the softirq work
    beside them, which is known as CPU time only.
    """
    values = [row.values[f"cycles_per_byte_{side}"] for row in rows for side in SIDES]
    missing = [value.reason for value in values if isinstance(value, Missing)]
    system = Quantity("system_cpu_ns_per_kib", "CPU time (ns/KiB)", "system")
    if len(missing) == len(values):
        quantities = [Quantity(f"{side}_cpu_ns_per_kib", "CPU time (ns/KiB)", side) for side in SIDES]
        title = "What a byte costs: CPU time"
        why = missing[0] if missing else "no point"
        caption = f"cycles: n/a: {why.removeprefix('cycles: ')}; CPU time is shown instead. {caption}"
    else:
        quantities = [Quantity(f"cycles_per_byte_{side}", "cycles per byte", side) for side in SIDES]
        title = "What a byte costs: cycles"
    return draw(rows, find_axis(rows), [*quantities, system], title, caption)


def draw(
    rows: Sequence[Row], axis: Axis, quantities: Sequence[Quantity], title: str, caption: str
) -> Figure | Missing:
    """Panels of the factor combinations, for each quantity, of what is known; the caption names the rest."""
    every = arrange(rows, axis)
    known = [quantity for quantity in quantities if _estimates(every, quantity)]
    if not known:
        return Missing(_why_none(every, quantities[0]))
    absent = [f"{one.of}: n/a: {_why_none(every, one)}." for one in quantities if one not in known]
    settings = [panel for panel in every if any(_estimates([panel], one) for one in known)]
    panels = [(quantity, panel) for quantity in known for panel in settings]
    impls = list(dict.fromkeys(impl for _, panel in panels for impl in panel.lines))
    columns = len(settings) if len(known) > 1 and len(settings) <= 4 else 3
    caption = " ".join([*absent, caption])
    grid = Grid(title, caption, len(panels), columns=columns, legend_lines=legend_lines(impls))
    for axes, (quantity, panel) in zip(grid.axes, panels, strict=True):
        # panels of thread counts are compared with each other; those of sizes lie decades apart
        shared = [panel] if axis.factor == "threads" else [p for q, p in panels if q == quantity]
        _draw_panel(axes, panel, axis, quantity, impls=impls, shared=shared)
    for axes, (quantity, _) in zip(grid.axes[:: grid.columns], panels[:: grid.columns], strict=True):
        axes.set_ylabel(quantity.label)
    marks = [mark_of(impl, impls) for impl in impls]
    handles = [
        Line2D([], [], color=mark.colour, marker=mark.marker, linestyle=mark.dashes, markersize=5)
        for mark in marks
    ]
    grid.legend(handles, impls)
    return grid.figure


def _why_none(panels: Sequence[Panel], quantity: Quantity) -> str:
    """Why every value of every panel is missing; the first of several reasons."""
    rows = (row for panel in panels for line in panel.lines.values() for row in line)
    values = (row.values[quantity.metric] for row in rows)
    return next((v.reason for v in values if isinstance(v, Missing)), "no point in this experiment")


def _draw_panel(
    axes: Axes, panel: Panel, axis: Axis, quantity: Quantity, *, impls: list[str], shared: Sequence[Panel]
) -> None:
    """One panel, on the scale of the panels that it shares one with."""
    heading = ", ".join(part for part in (quantity.of, panel.title) if part)
    axes.set_title(wrapped(axes, heading), loc="left")
    places = sorted({_position(row, axis) for line in panel.lines.values() for row in line})
    missing: list[tuple[float, str]] = []
    for impl, line in panel.lines.items():
        shift = 2 ** (STEP * 2 * (impls.index(impl) - (len(impls) - 1) / 2))
        drawn = []
        for place, value in ((_position(row, axis), row.values[quantity.metric]) for row in line):
            if isinstance(value, Missing):
                missing.append((place, impl))
            else:
                drawn.append((place * shift, value))
        draw_line(axes, drawn, mark_of(impl, impls))
    if not _estimates([panel], quantity):
        say_not_available(axes, _why_none([panel], quantity))
        return
    scale_upwards(axes, _estimates(shared, quantity), floor=bool(missing))
    scale_across(axes, places, axis)
    _note_missing(axes, missing)


def _estimates(panels: Sequence[Panel], quantity: Quantity) -> list[Estimate]:
    """Every estimate of a quantity in some panels."""
    rows = [row for panel in panels for line in panel.lines.values() for row in line]
    return [v for row in rows if isinstance(v := row.values[quantity.metric], Estimate)]


def _position(row: Row, axis: Axis) -> float:
    return float(row.factors[axis.factor])


def draw_line(axes: Axes, drawn: Sequence[tuple[float, Estimate]], mark: Mark) -> None:
    if not drawn:
        return
    x = [place for place, _ in drawn]
    y = [value.value for _, value in drawn]
    low = [value.value - (value.value if value.low is None else value.low) for _, value in drawn]
    high = [(value.value if value.high is None else value.high) - value.value for _, value in drawn]
    axes.errorbar(
        x,
        y,
        yerr=[low, high],
        color=mark.colour,
        marker=mark.marker,
        linestyle=mark.dashes,
        markersize=5.5,
        linewidth=1.4,
        elinewidth=0.9,
        capsize=2.2,
        markeredgecolor="white" if mark.marker not in "x+" else mark.colour,
        markeredgewidth=0.5,
    )


def scale_upwards(axes: Axes, known: Sequence[Estimate], *, floor: bool, around: float | None = None) -> None:
    """A scale made by the values: a wide interval of a noisy point leaves the panel rather than ruin it.

    With `floor` the lowest quarter stays free for what is not available. `around`: of ratios, what they are
    drawn around.
    """
    values = [e.value for e in known] + ([] if around is None else [around])
    low, high = min(values), max(values)
    if low > 0 and (high / low > WIDE or around is not None):
        axes.set_yscale("log")
        # a decade has one label, less than that has several
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < FEW else (1,)))
        lowest = min(e.value if e.low is None else e.low for e in known)
        highest = max(e.value if e.high is None else e.high for e in known)
        bottom, top = max(lowest / 1.2, low / 4), min(highest * 1.2, high * 4)
        axes.set_ylim(bottom / (top / bottom) ** (1 / 3) if floor else bottom, top)
    else:
        bottom, top = min(0.0, low * 1.1), high * 1.4 if high > 0 else 1.0
        axes.set_ylim(bottom - (top - bottom) / 3 if floor else bottom, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.yaxis.set_minor_locator(NullLocator())  # a third of the time of drawing, for marks without a label


def scale_across(axes: Axes, places: Sequence[float], axis: Axis) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(places[0] / 1.5, places[-1] * 1.5)
    width_in = axes.get_position().width * WIDTH_IN
    labelled = apart(places, LABEL_IN * math.log2(places[-1] / places[0] * 1.5**2) / width_in)
    labels = ["" if p not in labelled else option_size(int(p)) if axis.binary else f"{p:g}" for p in places]
    axes.set_xticks(list(places), labels, rotation=90 if len(places) > 6 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{axis.label} (bytes)" if axis.binary else axis.label)


def apart(places: Sequence[float], doublings: float) -> list[float]:
    """Of some places, in order, those whose labels do not touch: so many doublings from the one before."""
    kept: list[float] = []
    for place in places:
        if not kept or math.log2(place / kept[-1]) >= doublings:
            kept.append(place)
    return kept


def _note_missing(axes: Axes, missing: Sequence[tuple[float, str]]) -> None:
    """`n/a` stands at its place on the floor of the panel, once per factor value, with whose it is."""
    for place, impls in gathered(missing).items():
        axes.text(
            place,
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
    """A number for a tick: 0.1, 100, 10k, 1M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:g}"
