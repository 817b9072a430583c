"""What a reader looks at first: where the saved copy went, what CPU time goes to, all against one_copy.

One size and number of threads at a time, in a choice; the tables further down have all of them.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from copyscope.grouping import grouped
from copyscope.judge.crossover import Crossover, surroundings
from copyscope.judge.crossover_file import TYPICAL_BYTES
from copyscope.judge.metrics import factors
from copyscope.report.blocks import (
    Bar,
    Bars,
    Block,
    Box,
    Choice,
    Crossing,
    Curve,
    Curves,
    Heading,
    Paragraph,
    View,
)
from copyscope.report.cells import spell as spell_estimate
from copyscope.report.plots.colours import BLUE, FILLS, VERMILLION, mark_of
from copyscope.report.tables import where_better
from copyscope.show.account_words import COPIES
from copyscope.study.cost_waterfall import Waterfall, why_no_waterfall
from copyscope.study.facets import Axis, find_axis, varied
from copyscope.study.facets import spell as spell_factor
from copyscope.study.ratios import BASE, places, relative
from copyscope.study.study import Study
from copyscope.study.table import Row, comparable
from copyscope.study.wording import number
from copyscope.taxonomy.taxonomy import ACCOUNTS

WHOLE, OTHER_WORK = "#999999", "#D9D9D9"
NAMES = {"size": "message size"}
RATIOS = (
    ("goodput_gbps", "Goodput relative to one_copy (more is better)"),
    ("system_cpu_ns_per_kib", "CPU time per KiB relative to one_copy (less is better)"),
)


def leading(study: Study) -> list[Block]:
    """The sections after the verdict."""
    if not study.rows:
        return []
    return [
        Heading(2, "Where the saved copy went", "saved"),
        *_settings(study),
        Heading(2, "Against one_copy", "ratios"),
        *_ratios(study.rows, study.crossings),
    ]


def _settings(study: Study) -> list[Block]:
    """A view for each setting: the waterfall, and 100 % bars of all strategies."""
    swept = varied(study.rows, without=("impl",))
    ordered = sorted(study.rows, key=lambda row: [comparable(row.factors.get(name)) for name in swept])
    groups = grouped(ordered, lambda row: _setting(row, swept))
    waterfalls = {_setting(one.after, swept): one for one in study.saved if isinstance(one, Waterfall)}
    views = []
    for setting, rows in groups.items():
        made: list[Block] = [_steps(waterfalls[setting])] if setting in waterfalls else []
        shares = _shares(rows)
        if shares.bars:
            made.append(shares)
        views.append(View(setting, made or [Paragraph("No CPU time was sampled in this setting.")]))
    blocks: list[Block] = []
    if why := why_no_waterfall(study.saved):
        blocks.append(Paragraph(f"From one_copy to zero_copy: not drawn: {why}."))
    names = [NAMES.get(name, name.replace("_", " ")) for name in swept]
    return [*blocks, Choice(names, views, _first(list(groups.values()), [s in waterfalls for s in groups]))]


def _setting(row: Row, swept: Sequence[str]) -> tuple[str, ...]:
    return tuple(spell_factor(name, row.factors.get(name)) for name in swept)


def _first(groups: Sequence[Sequence[Row]], drawn: Sequence[bool]) -> int:
    """Where the verdict quotes its difference: the fewest threads, the size nearest to the typical one."""

    def far(index: int) -> tuple[bool, int, float]:
        row = groups[index][0]
        return not drawn[index], row.threads, abs(math.log(row.size / TYPICAL_BYTES))

    return min(range(len(groups)), key=far)


def _steps(found: Waterfall) -> Bars:
    """From what one costs to what the other costs."""
    levels = list(accumulate((step.change.value for step in found.steps), initial=found.start))
    low, high = min(0.0, *levels), max(levels)

    def box(start: float, end: float, colour: str) -> Box:
        left, right = sorted((start, end))
        return Box((left - low) / (high - low), (right - left) / (high - low), colour)

    before, after = found.before.impl, found.after.impl
    bars = [Bar(before, [box(0, found.start, WHOLE)], f"{number(found.start)} ns/KiB")]
    for step, level in zip(found.steps, levels, strict=False):
        change = step.change.value
        colour = VERMILLION if change >= 0 else BLUE
        text = f"{'+' if change >= 0 else ''}{spell_estimate(step.change)}"
        bars.append(Bar(step.name, [box(level, level + change, colour)], text))
    bars.append(Bar(after, [box(0, found.end, WHOLE)], f"{number(found.end)} ns/KiB"))
    legend = [(WHOLE, "total"), (BLUE, "saved"), (VERMILLION, "added")]
    title = f"CPU time per KiB, all sides: from {before} to {after} (in brackets: 95 % intervals)"
    return Bars(title, bars, legend)


def _shares(rows: Sequence[Row]) -> Bars:
    """What part of the CPU time of a KiB each copy takes, strategy below strategy."""
    bars, legend = [], []
    for row in rows:
        whole = sum(row.parts.values())
        if whole <= 0:
            continue
        copies = [(name, row.parts[name]) for name in ACCOUNTS if row.parts.get(name, 0.0) > 0]
        parts = [(COPIES[name], FILLS[name].colour, ns) for name, ns in copies]
        parts.append(("other work", OTHER_WORK, whole - sum(ns for _, ns in copies)))
        at, boxes = 0.0, []
        for name, colour, ns in parts:
            share = ns / whole
            boxes.append(Box(at, share, colour, f"{name} {share:.0%}"))
            at += share
        legend += [(colour, name) for name, colour, _ in parts]
        said = ", ".join(f"{name} {_share(ns / whole)}" for name, _, ns in parts)
        bars.append(Bar(row.impl, boxes, f"{said}; total {number(whole)} ns/KiB"))
    order = [*COPIES.values(), "other work"]
    unique = sorted(dict.fromkeys(legend), key=lambda one: order.index(one[1]))
    title = "Where the CPU time of a KiB goes: a bar is 100 % of a strategy's CPU time, copies are coloured"
    return Bars(title, bars, unique)


def _share(share: float) -> str:
    return "below 0.5 %" if share < 0.005 else f"{100 * share:.0f} %"


def _ratios(rows: Sequence[Row], crossings: Sequence[Crossover]) -> list[Block]:
    """Goodput and cost along the size, or what else was varied most; each crossover with its interval."""
    if not any(row.impl == BASE and row.valid for row in rows):
        return [Paragraph(f"Not drawn: {BASE} was not measured.")]
    axis = find_axis(rows, first="size")
    across = f"{axis.label} (bytes)" if axis.binary else axis.label
    impls = list(dict.fromkeys(row.impl for row in rows))
    charts: dict[tuple[str, ...], list[Block]] = {}
    swept = varied(rows, without=("impl", axis.factor))
    for metric, title in RATIOS:
        for panel, ratios in relative(rows, axis, metric):
            members = [row for line in panel.lines.values() for row in line]
            named = [spell_factor(axis.factor, place) for place in places(members, axis)]
            lines = []
            for impl, values in ratios.items():
                crossing = _crossing(panel.lines[impl], crossings, metric, axis)
                lines.append(Curve(impl, mark_of(impl, impls), values, crossing))
            made = Curves(title, across, named, lines)
            charts.setdefault(_setting(members[0], swept), []).append(made)
    if not charts:
        return [Paragraph(f"Not drawn: no strategy was measured in a setting of {BASE}.")]
    return [Choice([name.replace("_", " ") for name in swept], [View(s, made) for s, made in charts.items()])]


def _crossing(
    line: Sequence[Row], crossings: Sequence[Crossover], metric: str, axis: Axis
) -> Crossing | None:
    """Where this line, of one strategy, crosses that of BASE."""
    row = line[0]
    run = row.point.runs[0]
    where = surroundings(factors(run), run)
    wanted = (metric, row.threads, where, {BASE, row.impl})
    found = next((c for c in crossings if (c.quantity, c.threads, c.where, {*c.pair}) == wanted), None)
    if axis.factor != "size" or found is None or found.verdict != "crosses" or found.size_bytes is None:
        return None
    sizes = places(line, axis)
    low, high = (None if end is None else _between(end, sizes) for end in (found.low, found.high))
    said = f"{found.pair[1]} against {found.pair[0]}: {where_better(found)}"
    return Crossing(_between(found.size_bytes, sizes), low, high, said)


def _between(size: float, sizes: Sequence[float]) -> float:
    """Where a size stands among some: 1.5 in the middle between the second and the third, by doublings."""
    after = next((at for at, one in enumerate(sizes) if one >= size), len(sizes) - 1)
    if after == 0:
        return 0.0
    low, high = sizes[after - 1], sizes[after]
    return after - 1 + min(1.0, math.log(size / low) / math.log(high / low))
