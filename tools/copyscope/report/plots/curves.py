"""A quantity along a factor: one line per strategy, 95 % intervals as bars, missing values as `n/a`."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from copyscope.grouping import gathered
from copyscope.report.plots.catalogue import Plot, Quantity
from copyscope.report.plots.colours import FAINT, Mark, mark_of
from copyscope.report.plots.grid import Grid, nothing, say_not_available
from copyscope.stats import Estimate, Missing
from copyscope.study.facets import Axis, Panel, arrange, find_axis
from copyscope.study.table import Row
from copyscope.units import format_whole_size

# a scale is logarithmic when the largest value is more than so many times the smallest
WIDE = 12.0
# how far strategies stand apart at the same factor value, so that their bars do not hide each other
STEP = 0.05
SIDES = ("sender", "receiver")


def plot(what: Plot, rows: Sequence[Row], caption: str) -> Figure:
    """A plot of the catalogue that is curves."""
    shown = [row for row in rows if row.mode == what.mode] or rows
    return draw(shown, find_axis(shown, first=what.along), what.curves, what.heading, caption)


def cycles(rows: Sequence[Row], caption: str) -> Figure:
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
        caption = f"cycles: n/a: {why}; on-CPU time stands for them. {caption}"
    else:
        quantities = [Quantity(f"cycles_per_byte_{side}", "cycles per byte", side) for side in SIDES]
        title = "What a byte costs: cycles"
    return draw(rows, find_axis(rows), [*quantities, system], title, caption)


def draw(rows: Sequence[Row], axis: Axis, quantities: Sequence[Quantity], title: str, caption: str) -> Figure:
    """Panels of the factor combinations, for each quantity; one panel where nothing is known at all."""
    panels = [(quantity, panel) for quantity in quantities for panel in arrange(rows, axis)]
    reason = _single_reason(panels)
    impls = list(dict.fromkeys(impl for _, panel in panels for impl in panel.lines))
    if reason is not None:
        return nothing(title, caption, reason)
    columns = 3
    per_quantity = len(panels) // len(quantities)
    if len(quantities) > 1 and per_quantity <= 4:
        columns = per_quantity
    grid = Grid(title, caption, len(panels), columns=columns)
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


def _single_reason(panels: Sequence[tuple[Quantity, Panel]]) -> str | None:
    """The reason when every value of every panel is missing; the first of several."""
    if any(_estimates([panel], quantity) for quantity, panel in panels):
        return None
    every = ((row, quantity) for quantity, panel in panels for line in panel.lines.values() for row in line)
    values = (row.values[quantity.metric] for row, quantity in every)
    return next((v.reason for v in values if isinstance(v, Missing)), "no point in this experiment")


def _draw_panel(
    axes: Axes, panel: Panel, axis: Axis, quantity: Quantity, *, impls: list[str], shared: Sequence[Panel]
) -> None:
    """One panel, on the scale of the panels that it shares one with."""
    heading = ", ".join(part for part in (quantity.of, panel.title) if part)
    axes.set_title(heading, loc="left")
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
        _draw_line(axes, drawn, mark_of(impl, impls))
    if not _estimates([panel], quantity):
        say_not_available(axes, _single_reason([(quantity, panel)]) or "")
        return
    _scale_upwards(axes, _estimates(shared, quantity), floor=bool(missing))
    _scale_across(axes, places, axis)
    _note_missing(axes, missing)


def _estimates(panels: Sequence[Panel], quantity: Quantity) -> list[Estimate]:
    """Every estimate of a quantity in some panels."""
    rows = [row for panel in panels for line in panel.lines.values() for row in line]
    return [v for row in rows if isinstance(v := row.values[quantity.metric], Estimate)]


def _position(row: Row, axis: Axis) -> float:
    return float(row.factors[axis.factor])


def _draw_line(axes: Axes, drawn: Sequence[tuple[float, Estimate]], mark: Mark) -> None:
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


def _scale_upwards(axes: Axes, known: Sequence[Estimate], *, floor: bool) -> None:
    """A scale made by the values: a wide interval of a noisy point leaves the panel rather than ruin it.

    With `floor` the lowest quarter stays free for what is not available.
    """
    low, high = min(e.value for e in known), max(e.value for e in known)
    if low > 0 and high / low > WIDE:
        axes.set_yscale("log")
        lowest = min(e.value if e.low is None else e.low for e in known)
        highest = max(e.value if e.high is None else e.high for e in known)
        bottom, top = max(lowest / 1.2, low / 4), min(highest * 1.2, high * 4)
        axes.set_ylim(bottom / (top / bottom) ** (1 / 3) if floor else bottom, top)
    else:
        bottom, top = min(0.0, low * 1.1), high * 1.4 if high > 0 else 1.0
        axes.set_ylim(bottom - (top - bottom) / 3 if floor else bottom, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.yaxis.set_minor_locator(NullLocator())  # a third of the time of drawing, for marks without a label


def _scale_across(axes: Axes, places: Sequence[float], axis: Axis) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(places[0] / 1.5, places[-1] * 1.5)
    labels = [_tick(place) if axis.binary else f"{place:g}" for place in places]
    axes.set_xticks(list(places), labels, rotation=90 if len(places) > 6 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{axis.label} (bytes)" if axis.binary else axis.label)


def _tick(value: float) -> str:
    """A size for a tick: 64, 4K, 1M."""
    number, unit = format_whole_size(int(value)).split()
    return number + unit[0].replace("B", "")


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
