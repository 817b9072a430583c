# SPDX-License-Identifier: GPL-2.0-only
"""Reports of failed or tiny sweeps: no section is missing, and no unknown value is shown as a number."""

import html
import re
from typing import Any

import pytest
from builders.documents import typed_runs
from builders.sweep import sweep
from copyscope.base.stats import Missing
from copyscope.report import study_table as table
from copyscope.report.blocks import write_html
from copyscope.report.claim_judge import judge_all
from copyscope.report.plots.catalogue import PLOTS
from copyscope.report.plots.draw import PlotSubject, figure_of
from copyscope.report.sections import document
from copyscope.report.study import caption, examine
from matplotlib.text import Text

Record = dict[str, Any]
EMPTY_SVG = b'<svg viewBox="0 0 1 1" xmlns="http://www.w3.org/2000/svg"><g id="figure_1"></g></svg>'
PAIR = ("one_copy", "zero_copy")


def invalid() -> list[Record]:
    records = sweep(impls=PAIR, sizes=(4096,), threads=(1,), repeats=2)
    return [r | {"verdict": r["verdict"] | {"valid": False, "reasons": ["lost"]}} for r in records]


# name -> (records, text that the report must contain)
CASES: dict[str, tuple[list[Record], str]] = {
    "every run is invalid": (invalid(), "no valid run of this point: lost"),
    "a fixed number of messages": (
        sweep(sizes=(4096, 65_536), threads=(1,), repeats=2, fixed_messages=500),
        "n/a in every row: no unprobed segment in this run",
    ),
    "nothing is sent": (sweep(impls=("null",), threads=(1,), repeats=2), "no payload was delivered"),
    "the receiver drops": (sweep(threads=(1,), repeats=2, receiver="trunc"), "Verdict"),
    "a silent copy": (sweep(threads=(1,), repeats=2, kind="veth-xdp"), "native XDP"),
    "one run of one strategy": (
        sweep(impls=("one_copy",), sizes=(4096,), threads=(1,), repeats=1),
        "no two strategies were measured",
    ),
    "no ledger": (
        sweep(impls=PAIR, sizes=(4096,), threads=(1,), repeats=2, phases=("unprobed", "calls")),
        "copies were not measured",
    ),
    "the collector died": (
        sweep(impls=PAIR, sizes=(4096,), threads=(1,), repeats=2, died=("collector",)),
        "collector: ended by SIGKILL",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_report_is_complete_and_says_what_is_missing(name: str) -> None:
    records, expected = CASES[name]
    runs = typed_runs(records)
    rows = table.fill(runs)
    judged = judge_all(runs)
    study = examine(
        "demo", None, runs, rows, left_out=[("a.json", "truncated")], judgements=judged, factors={}
    )
    subject = PlotSubject(rows, caption(runs, rows), ratios=study.ratios)
    figures = {plot.name: figure_of(plot.name, subject) for plot in PLOTS}
    undrawn = {name: figure.reason for name, figure in figures.items() if isinstance(figure, Missing)}
    page = write_html(document(study, undrawn), dict.fromkeys(figures, EMPTY_SVG))
    text = html.unescape(re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", "", page))
    assert expected in text
    assert "a.json" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert all(f": not drawn: {reason}." in text for reason in undrawn.values())
    for plot, figure in figures.items():
        if isinstance(figure, Missing):
            continue
        drawn_text = " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))
        assert not re.search(r"\b(nan|inf|None)\b", drawn_text)
        for axes in figure.axes:  # no empty frame
            assert [*axes.lines, *axes.patches, *axes.collections] or not axes.axison, plot


def test_the_caption_names_the_machine_the_path_and_the_repeats() -> None:
    records = sweep(impls=PAIR, sizes=(4096,), threads=(1,), repeats=3)
    runs = typed_runs(records)
    assert caption(runs, table.fill(runs)) == (
        "Example CPU @ 3.0 GHz, 2 CPUs, virtual machine (hypervisor kvm), Linux 6.18.0-test; veth, MTU 1500, "
        "TSO/GSO/GRO on; 3 s per run, 3 repeats; medians of valid runs with 95 % intervals."
    )
