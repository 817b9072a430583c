# SPDX-License-Identifier: GPL-2.0-only
"""Plots: unknown values are written and never drawn; strategies differ even without colour."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest
from builders.documents import typed_runs
from builders.sweep import sweep
from copyscope.base.stats import Estimate, Missing
from copyscope.judge.crossover import Crossover, MeasuredRatio
from copyscope.report import study_table as table
from copyscope.report.plots import draw
from copyscope.report.plots.catalogue import FILLS, STRATEGY_STYLES
from copyscope.report.plots.curves import positions_to_label
from copyscope.report.study_table import StudyRow, ratio_views
from copyscope.taxonomy.accounts import ACCOUNTS, STAGES
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.text import Text

Record = dict[str, Any]
CAPTION = "Example CPU, 2 CPUs, Linux 6.18"
HEADINGS = {
    "goodput": "Goodput",
    "ratios": "Relative to one_copy",
    "cycles": "Cost of a byte",
    "ledger_stack": "The copy ledger",
    "misses": "Cache misses per KiB delivered",
    "message_time": "Time per message and connection",
    "latency": "Latency",
}


@pytest.fixture(scope="module")
def without_pmu() -> list[StudyRow]:
    return table.fill(typed_runs(sweep(sizes=(4096, 65_536), threads=(1, 2), repeats=3)))


@pytest.fixture(scope="module")
def with_pmu() -> list[StudyRow]:
    return table.fill(typed_runs(sweep(sizes=(4096, 65_536), threads=(1, 2), repeats=3, pmu=True)))


def plot(name: str, rows: list[StudyRow], crossings: Sequence[Crossover] = ()) -> Figure:
    figure = draw.figure_of(name, draw.PlotSubject(rows, CAPTION, ratios=ratio_views(rows, crossings)))
    assert not isinstance(figure, Missing)
    return figure


def crossing(**fields: Any) -> Crossover:
    """Return a crossover: zero_copy costs twice as much as one_copy at 1 KiB, and half as much at 64 KiB."""
    ratios = {1024: Estimate(2.0, 1.8, 2.2, 0.95, 3), 65_536: Estimate(0.5, 0.4, 0.6, 0.95, 3)}
    measured = tuple(MeasuredRatio(size, ratio, None) for size, ratio in ratios.items())
    defaults = {"pair": ("one_copy", "zero_copy"), "threads": 1, "quantity": "system_cpu_ns_per_kib"}
    return Crossover(**{**defaults, "measured": measured, **fields})


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))


@pytest.mark.parametrize("name", HEADINGS)
def test_every_plot_has_a_title_and_says_where_it_was_measured(name: str, with_pmu: list[StudyRow]) -> None:
    if name == "latency":
        for row in (rows := [replace(row, mode="rr") for row in with_pmu]):
            row.values["rtt_p50_us"] = Estimate(10.0, 9.0, 11.0, 0.95, 3)  # type: ignore[index]
        with_pmu = rows
    text = words(plot(name, with_pmu, [crossing()]))
    assert HEADINGS[name] in text
    assert CAPTION in " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "reason"),
    [("misses", "no PMU"), ("latency", "rr"), ("ratios", "one_copy and another strategy")],
)
def test_a_plot_without_values_is_not_drawn_and_has_a_reason(
    name: str, reason: str, without_pmu: list[StudyRow]
) -> None:
    missing = draw.draw(name, draw.PlotSubject(without_pmu, CAPTION))
    assert isinstance(missing, Missing) and reason in missing.reason


def test_a_quantity_without_values_has_no_panel(with_pmu: list[StudyRow]) -> None:
    for row in with_pmu:
        row.values["llc_misses_per_kib_sender"] = Missing("the PMU has no such event")  # type: ignore[index]
    figure = plot("misses", with_pmu)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        f"{quantity}, {threads}"
        for quantity in ("L1D, sender", "L1D, receiver", "LLC, receiver")
        for threads in ("1 thread", "2 threads")
    ]
    assert "LLC, sender: n/a: the PMU has no such event." in words(figure)


def lines_of(axes: Axes) -> list[list[float]]:
    """Return the heights of the points of each strategy, in the order of the legend."""
    bars = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    return [[float(y) for y in bar[0].get_ydata()] for bar in bars]


def test_ratios_are_relative_to_the_strategy_drawn_at_1(without_pmu: list[StudyRow]) -> None:
    rows = [row for row in without_pmu if row.threads == 1]
    goodput, cpu = plot("ratios", rows).axes
    per_field, _, one_copy, zero_copy = lines_of(cpu)
    assert one_copy == [1.0, 1.0]
    assert (
        min(per_field) > 1 and min(zero_copy) > 1
    )  # the builder gives them more CPU time per call and per KiB
    assert max(lines_of(goodput)[0]) < 1
    relays = [
        replace(row, factors={**row.factors, "impl": row.impl.replace("one_copy", "relay_copy")})
        for row in rows
    ]
    assert "Relative to relay_copy" in words(plot("ratios", relays))


def test_each_setting_has_a_view_of_its_own(without_pmu: list[StudyRow]) -> None:
    drawings, _ = draw.draw_all(draw.PlotSubject(without_pmu, CAPTION, ratios=ratio_views(without_pmu, ())))
    first, second = drawings["ratios"], drawings["ratios-2"]
    assert first.png and second.png is None
    assert b"(1 thread)" in first.svg and b"(2 threads)" in second.svg


def test_a_crossover_has_a_band_that_an_unknown_end_extends_to_the_border(
    without_pmu: list[StudyRow],
) -> None:
    crossover = crossing(verdict="crosses", above="zero_copy", size_bytes=16384.0, low=8192.0, high=None)
    goodput, cpu = plot("ratios", without_pmu, [crossover]).axes
    (band,) = cpu.patches
    assert band.get_extents().transformed(cpu.transData.inverted()).x0 == pytest.approx(8192)
    assert band.get_extents().transformed(cpu.transData.inverted()).x1 == pytest.approx(cpu.get_xlim()[1])
    assert [16384.0] in [list(line.get_xdata()) for line in cpu.lines]  # type: ignore[arg-type]
    assert not goodput.patches
    undetermined = [crossing(verdict="undetermined", size_bytes=16384.0)]
    assert not plot("ratios", without_pmu, undetermined).axes[1].patches


def test_labels_that_would_touch_are_left_out() -> None:
    assert positions_to_label([64, 128, 256, 512], 2) == [64, 256]
    assert positions_to_label([64, 128, 256, 512], 1) == [64, 128, 256, 512]


def test_without_a_pmu_cpu_time_replaces_cycles_and_the_plot_says_so(
    without_pmu: list[StudyRow], with_pmu: list[StudyRow]
) -> None:
    assert "cycles: n/a" in words(plot("cycles", without_pmu))
    assert "cycles per byte" in words(plot("cycles", with_pmu))
    assert "cycles: n/a" not in words(plot("cycles", with_pmu))


def test_a_point_without_a_valid_run_is_marked_as_not_available() -> None:
    records = sweep(impls=("one_copy", "zero_copy"), sizes=(64, 4096), threads=(1,), repeats=2)
    for record in records:
        if record["workload"]["impl"] == "zero_copy" and record["workload"]["size_bytes"] == 64:
            record["verdict"] = record["verdict"] | {"valid": False, "reasons": ["too short"]}
    rows = table.fill(typed_runs(records))
    figure = plot("goodput", rows)
    assert "n/a zero_copy" in words(figure)
    drawn = lines_of(figure.axes[0])
    assert sorted(map(len, drawn)) == [1, 2]
    assert min(min(line) for line in drawn) > 0
    assert "n/a" in words(plot("ledger_stack", rows))


def test_every_drawn_point_has_its_interval(without_pmu: list[StudyRow]) -> None:
    for axes in plot("goodput", without_pmu).axes:
        bars = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
        assert len(bars) == 4
        assert all(bar.has_yerr for bar in bars)


def test_strategies_and_accounts_differ_without_colour() -> None:
    styles = [(style.marker, style.dashes) for style in STRATEGY_STYLES.values()]
    assert len(set(styles)) == len(styles)
    assert set(FILLS) == {*ACCOUNTS, *STAGES}
    fills = [(fill.colour, fill.hatch) for fill in FILLS.values()]
    assert len(set(fills)) == len(fills)


def test_a_stack_has_the_height_of_all_its_rows(without_pmu: list[StudyRow]) -> None:
    axes = plot("ledger_stack", without_pmu).axes[0]
    tops: dict[float, float] = {}
    for boxes in (patch for patch in axes.patches if isinstance(patch, PathPatch)):
        # each box: four corners, and the first corner again
        for corners in numpy.asarray(boxes.get_path().vertices).reshape(-1, 5, 2):
            left, top = float(corners[0][0]), float(corners[2][1])
            tops[left] = max(tops.get(left, 0.0), top)
    rows = [row for row in without_pmu if row.size == 4096]
    # the parts add up to the whole, although medians of rows need not
    sums = [row.values["system_cpu_ns_per_kib"] for row in rows]
    assert sorted(tops.values()) == pytest.approx(
        sorted(total.value for total in sums if isinstance(total, Estimate))
    )
    assert len(tops) == len(rows)


def test_the_x_axis_is_the_factor_with_the_most_values() -> None:
    sizes = table.fill(typed_runs(sweep(impls=("one_copy",), sizes=(64, 4096), threads=(1, 2), repeats=1)))
    threads = table.fill(typed_runs(sweep(impls=("one_copy",), sizes=(64,), threads=(1, 2, 4), repeats=1)))
    assert table.find_axis(sizes).factor == "size"
    assert table.find_axis(threads).factor == "threads"
    titles = [panel.title for panel in table.arrange(sizes, table.AXES["size"])]
    assert titles == ["1 thread", "2 threads"]
    assert table.spell_factor("size", 1500) == "1500 B"
    assert table.spell_factor("tso", False) == "TSO off"
    assert table.spell_factor("size", 1 << 20) == "1 MiB"
