"""Plots: the unknown is written and never drawn, strategies differ without colour, bytes do not change."""

from typing import Any

import numpy
import pytest
from builders.sweep import sweep
from copyscope.judge.metrics import typed_runs
from copyscope.report.plots import draw
from copyscope.report.plots.catalogue import PLOTS
from copyscope.report.plots.colours import FILLS, KNOWN
from copyscope.stats import Estimate
from copyscope.study import facets, table
from copyscope.study.cost_waterfall import simplest
from copyscope.study.table import Row
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.text import Text

Record = dict[str, Any]
CAPTION = "Example CPU, 2 CPUs, Linux 6.18"
NAMES = [plot.name for plot in PLOTS]
HEADINGS = {
    "goodput": "Goodput",
    "cycles": "What a byte costs",
    "ledger_stack": "The copy ledger",
    "saved_copy": "Where the saved copy went",
    "misses": "Cache misses per KiB delivered",
    "message_time": "Time per message and connection",
    "latency": "Latency",
}


@pytest.fixture(scope="module")
def without_pmu() -> list[Row]:
    return table.fill(typed_runs(sweep(sizes=(4096, 65_536), threads=(1, 2), repeats=3)))


@pytest.fixture(scope="module")
def with_pmu() -> list[Row]:
    return table.fill(typed_runs(sweep(sizes=(4096, 65_536), threads=(1, 2), repeats=3, pmu=True)))


def plot(name: str, rows: list[Row]) -> Figure:
    return draw.figure_of(name, subject(rows))


def subject(rows: list[Row]) -> draw.Subject:
    return draw.Subject(rows, simplest(rows), CAPTION)


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))


@pytest.mark.parametrize("name", NAMES)
def test_every_plot_has_a_title_and_says_where_it_was_measured(name: str, with_pmu: list[Row]) -> None:
    said = words(plot(name, with_pmu))
    assert HEADINGS[name] in said
    assert CAPTION in " ".join(said.split())


@pytest.mark.parametrize(("name", "reason"), [("misses", "no PMU"), ("latency", "rr")])
def test_what_no_run_has_is_one_panel_with_its_reason(name: str, reason: str, without_pmu: list[Row]) -> None:
    figure = plot(name, without_pmu)
    (axes,) = figure.axes
    assert "n/a" in words(figure)
    assert reason in words(figure)
    assert not axes.lines
    assert not axes.containers
    assert not axes.patches
    assert len(axes.get_xticks()) == len(axes.get_yticks()) == 0  # no scale on which it could be a zero


def test_without_a_pmu_time_stands_for_cycles_and_says_so(
    without_pmu: list[Row], with_pmu: list[Row]
) -> None:
    assert "cycles: n/a" in words(plot("cycles", without_pmu))
    assert "cycles per byte" in words(plot("cycles", with_pmu))
    assert "cycles: n/a" not in words(plot("cycles", with_pmu))


def test_a_point_without_a_valid_run_is_written_at_its_place() -> None:
    records = sweep(impls=("one_copy", "zero_copy"), sizes=(64, 4096), threads=(1,), repeats=2)
    for record in records:
        if record["workload"]["impl"] == "zero_copy" and record["workload"]["size_bytes"] == 64:
            record["verdict"] = record["verdict"] | {"valid": False, "reasons": ["too short"]}
    rows = table.fill(typed_runs(records))
    figure = plot("goodput", rows)
    assert "n/a zero_copy" in words(figure)
    drawn = [line for c in figure.axes[0].containers if isinstance(c, ErrorbarContainer) for line in [c[0]]]
    assert sorted(len(line.get_xdata()) for line in drawn) == [1, 2]
    assert min(float(y) for line in drawn for y in line.get_ydata()) > 0
    assert "n/a" in words(plot("ledger_stack", rows))


def test_every_drawn_point_has_its_interval(without_pmu: list[Row]) -> None:
    for axes in plot("goodput", without_pmu).axes:
        bars = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
        assert len(bars) == 4
        assert all(bar.has_yerr for bar in bars)


def test_strategies_and_accounts_differ_without_colour() -> None:
    marks = [(mark.marker, mark.dashes) for mark in KNOWN.values()]
    assert len(set(marks)) == len(marks)
    assert set(FILLS) == {*ACCOUNTS, *STAGES}
    looks = [(fill.colour, fill.hatch) for fill in FILLS.values()]
    assert len(set(looks)) == len(looks)


def test_the_stack_is_as_high_as_its_rows(without_pmu: list[Row]) -> None:
    axes = plot("ledger_stack", without_pmu).axes[0]
    tops: dict[float, float] = {}
    for boxes in (patch for patch in axes.patches if isinstance(patch, PathPatch)):
        # of each box four corners, and the way back to the first
        for corners in numpy.asarray(boxes.get_path().vertices).reshape(-1, 5, 2):
            left, top = float(corners[0][0]), float(corners[2][1])
            tops[left] = max(tops.get(left, 0.0), top)
    rows = [row for row in without_pmu if row.size == 4096]
    # the parts add up to the whole, which medians of rows would not
    wholes = [row.values["system_cpu_ns_per_kib"] for row in rows]
    assert sorted(tops.values()) == pytest.approx(sorted(w.value for w in wholes if isinstance(w, Estimate)))
    assert len(tops) == len(rows)


def test_the_factor_with_the_most_values_is_the_axis() -> None:
    sizes = table.fill(typed_runs(sweep(impls=("one_copy",), sizes=(64, 4096), threads=(1, 2), repeats=1)))
    threads = table.fill(typed_runs(sweep(impls=("one_copy",), sizes=(64,), threads=(1, 2, 4), repeats=1)))
    assert facets.find_axis(sizes).factor == "size"
    assert facets.find_axis(threads).factor == "threads"
    titles = [panel.title for panel in facets.arrange(sizes, facets.AXES["size"])]
    assert titles == ["1 thread", "2 threads"]
    assert facets.spell("size", 1500) == "1500 B"
    assert facets.spell("tso", False) == "tso off"
    assert facets.spell("size", 1 << 20) == "1 MiB"
