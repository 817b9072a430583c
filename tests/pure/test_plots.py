"""Plots: the unknown is written and never drawn, strategies differ without colour, bytes do not change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest
from builders.sweep import sweep
from copyscope.judge.crossover import Crossover, Measured
from copyscope.judge.metrics import typed_runs
from copyscope.report.plots import draw
from copyscope.report.plots.colours import FILLS, KNOWN
from copyscope.report.plots.curves import apart
from copyscope.stats import Estimate, Missing
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
HEADINGS = {
    "goodput": "Goodput",
    "crossover": "Where one strategy overtakes another",
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


def plot(name: str, rows: list[Row], crossings: Sequence[Crossover] = ()) -> Figure:
    made = draw.figure_of(name, draw.Subject(rows, simplest(rows), CAPTION, crossings=crossings))
    assert not isinstance(made, Missing)
    return made


def crossing(**of: Any) -> Crossover:
    """zero_copy costs twice as much at 1 KiB, and half as much at 64 KiB."""
    ratios = {1024: Estimate(2.0, 1.8, 2.2, 0.95, 3), 65_536: Estimate(0.5, 0.4, 0.6, 0.95, 3)}
    measured = tuple(Measured(size, ratio, None) for size, ratio in ratios.items())
    known = {"pair": ("one_copy", "zero_copy"), "threads": 1, "quantity": "system_cpu_ns_per_kib"}
    return Crossover(**{**known, "measured": measured, **of})


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))


@pytest.mark.parametrize("name", HEADINGS)
def test_every_plot_has_a_title_and_says_where_it_was_measured(name: str, with_pmu: list[Row]) -> None:
    if name == "latency":
        for row in (rows := [replace(row, mode="rr") for row in with_pmu]):
            row.values["rtt_p50_us"] = Estimate(10.0, 9.0, 11.0, 0.95, 3)  # type: ignore[index]
        with_pmu = rows
    said = words(plot(name, with_pmu, [crossing()]))
    assert HEADINGS[name] in said
    assert CAPTION in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "reason"),
    [("misses", "no PMU"), ("latency", "rr"), ("crossover", "several sizes")],
)
def test_what_no_run_has_is_not_drawn_and_has_its_reason(
    name: str, reason: str, without_pmu: list[Row]
) -> None:
    found = draw.draw(name, draw.Subject(without_pmu, [], CAPTION))
    assert isinstance(found, Missing) and reason in found.reason


def test_a_quantity_that_no_run_has_is_no_panel_beside_those_that_some_have(with_pmu: list[Row]) -> None:
    for row in with_pmu:
        row.values["llc_misses_per_kib_sender"] = Missing("the PMU has no such event")  # type: ignore[index]
    figure = plot("misses", with_pmu)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        f"{of}, {threads}"
        for of in ("L1D, sender", "L1D, receiver", "LLC, receiver")
        for threads in ("1 thread", "2 threads")
    ]
    assert "LLC, sender: n/a: the PMU has no such event." in words(figure)


def test_a_crossover_is_drawn_with_its_interval_and_an_open_end_to_the_edge() -> None:
    found = crossing(verdict="crosses", above="zero_copy", size_bytes=8192.0, low=4096.0, high=None)
    goodput, cpu = plot("crossover", [], [found, crossing(quantity="goodput_gbps", measured=())]).axes
    (band,) = cpu.patches
    assert band.get_extents().transformed(cpu.transData.inverted()).x0 == pytest.approx(4096)
    assert band.get_extents().transformed(cpu.transData.inverted()).x1 == pytest.approx(cpu.get_xlim()[1])
    assert [8192.0] in [list(line.get_xdata()) for line in cpu.lines]  # type: ignore[arg-type]
    assert "zero_copy: better above 8 KiB [4 KiB, outside]" in cpu.get_title(loc="left")
    assert not goodput.axison and not goodput.lines  # no empty frame
    (even,) = [
        axes
        for axes in plot("crossover", [], [crossing(verdict="undetermined", size_bytes=8192.0)]).axes
        if axes.lines
    ]
    assert not even.patches


def test_labels_that_would_touch_are_left_out() -> None:
    assert apart([64, 128, 256, 512], 2) == [64, 256]
    assert apart([64, 128, 256, 512], 1) == [64, 128, 256, 512]


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
    assert facets.spell("tso", False) == "TSO off"
    assert facets.spell("size", 1 << 20) == "1 MiB"
