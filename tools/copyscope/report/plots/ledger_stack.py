"""The stacked ledger: where the CPU time of a KiB goes, strategy beside strategy."""

import textwrap
from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from copyscope.escaping import visible
from copyscope.grouping import grouped
from copyscope.report.plots.colours import FAINT, FILLS
from copyscope.report.plots.curves import short_number
from copyscope.report.plots.grid import Box, Grid, draw_boxes, draw_intervals, legend_lines, patch, stack
from copyscope.show.account_words import called
from copyscope.stats import Estimate, Missing
from copyscope.study.facets import describe, find_axis, spell, varied
from copyscope.study.table import Row, comparable
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES

TITLE = "The copy ledger: CPU time of a delivered KiB, by what it was spent on"
CATEGORIES = (*ACCOUNTS, *STAGES)
GAP = 0.7  # between groups, in bars
GROUP_IN = 0.145  # a line of its name
LETTERS = 4.0  # of a group's name, to a bar


def plot(rows: Sequence[Row], caption: str) -> Figure | Missing:
    """One panel per value of the axis, on its own scale: in small messages a KiB costs 100 times more."""
    axis = find_axis(rows, first="size")
    ordered = sorted(rows, key=lambda row: comparable(row.factors[axis.factor]))
    panels = {
        value: members
        for value, members in grouped(ordered, lambda row: row.factors[axis.factor]).items()
        if any(row.parts for row in members)
    }
    if not panels:
        reasons = [v.reason for row in rows if isinstance(v := _whole(row), Missing)]
        return Missing(reasons[0] if reasons else "no sample was taken")
    seen = [name for name in CATEGORIES if any(row.parts.get(name) for row in rows)]
    widest = max(map(len, panels.values()))
    swept = varied(rows, without=("impl", axis.factor))
    names = [called(name, watched=False) for name in seen]
    above = max(text.count("\n") + 1 for of in panels.values() for _, text in _groups(of, swept))
    note = (
        "Colours are copies (all sides and contexts), greys are other work; bar: 95 % interval of the whole."
    )
    grid = Grid(
        TITLE,
        f"{note} {caption}",
        len(panels),
        columns=3 if widest <= 8 else 2 if widest <= 20 else 1,
        panel_in=2.5,
        above_in=0.36 + GROUP_IN * above,
        legend_lines=legend_lines(names),
        below_in=1.05,
        down_in=1.2 + GROUP_IN * above,
    )
    for axes, (value, members) in zip(grid.axes, panels.items(), strict=True):
        _draw_panel(axes, _groups(members, swept))
        axes.set_title(spell(axis.factor, value), loc="left", pad=6 + 72 * GROUP_IN * above)
    for axes in grid.axes[:: grid.columns]:
        axes.set_ylabel("CPU time (ns/KiB)")
    patches = [patch(FILLS[name].colour, FILLS[name].hatch) for name in seen]
    grid.legend(patches, names)
    return grid.figure


def _groups(members: Sequence[Row], swept: Sequence[str]) -> list[tuple[list[Row], str]]:
    """The bars of each group, with its name: no wider than they, for with several factors it is long."""
    made = []
    for group, bars in groupby(members, key=lambda row: [row.factors.get(name) for name in swept]):
        rows, name = list(bars), describe(dict(zip(swept, group, strict=True)))
        made.append((rows, textwrap.fill(name, max(10, round(LETTERS * len(rows))))))
    return made


def _draw_panel(axes: Axes, groups: Sequence[tuple[Sequence[Row], str]]) -> None:
    place, places, labels = 0.0, [], []
    shapes: dict[str, list[Box]] = {name: [] for name in CATEGORIES}
    wholes: list[tuple[float, Estimate]] = []
    for bars, text in groups:
        first = place
        for row in bars:
            if not row.parts:
                axes.text(place, 0.02, "n/a", transform=axes.get_xaxis_transform(), rotation=90, fontsize=7,
                          ha="center", va="bottom", color=FAINT)  # fmt: skip
            parts = ((name, row.parts.get(name, 0.0)) for name in CATEGORIES)
            stack(parts, place - 0.43, place + 0.43, shapes)
            whole = _whole(row)
            if row.parts and isinstance(whole, Estimate):
                wholes.append((place, whole))
            places.append(place)
            labels.append(row.impl)
            place += 1
        axes.text(
            (first + place - 1) / 2, 1.01, text, transform=axes.get_xaxis_transform(), ha="center",
            va="bottom", fontsize=7.5, color=FAINT,
        )  # fmt: skip
        place += GAP
    highest = 0.0
    for category, boxes in shapes.items():
        fill = FILLS[category]
        draw_boxes(axes, boxes, fill.colour, fill.hatch, edge=0.3)
        highest = max([highest, *(box[2][1] for box in boxes)])
    draw_intervals(axes, [(place, whole.value, whole) for place, whole in wholes], width=0.9, cap=2)
    axes.set_xticks(places, [visible(label) for label in labels], rotation=90, fontsize=7.5)
    axes.set_xlim(-0.8, place - GAP - 0.2)
    axes.grid(False, axis="x")
    axes.set_ylim(0, highest * 1.15)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _whole(row: Row) -> Estimate | Missing:
    return row.values["system_cpu_ns_per_kib"]
