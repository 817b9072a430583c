"""Reports of sweeps that went wrong or ask for little: no section is missing, no unknown has a value."""

import html
import re
from typing import Any

import pytest
from builders.sweep import sweep
from copyscope.judge.metrics import typed_runs
from copyscope.report import html as page
from copyscope.report.plots.catalogue import PLOTS
from copyscope.report.plots.draw import Subject, figure_of
from copyscope.report.sections import document
from copyscope.stats import Missing
from copyscope.study import table
from copyscope.study.claims.judge import judge_all
from copyscope.study.cost_waterfall import simplest
from copyscope.study.study import caption, examine
from matplotlib.text import Text

Record = dict[str, Any]
PAIR = ("one_copy", "zero_copy")


def invalid() -> list[Record]:
    records = sweep(impls=PAIR, sizes=(4096,), threads=(1,), repeats=2)
    return [r | {"verdict": r["verdict"] | {"valid": False, "reasons": ["lost"]}} for r in records]


# name -> records, and what the report must say
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
def test_the_report_is_whole_and_says_what_is_missing(name: str) -> None:
    records, expected = CASES[name]
    runs = typed_runs(records)
    rows = table.fill(runs)
    judged = judge_all(runs)
    study = examine("demo", None, runs, rows, left_out=[("a.json", "truncated")], judgements=judged)
    subject = Subject(rows, simplest(rows), caption(runs, rows), crossings=study.crossings)
    figures = {plot.name: figure_of(plot.name, subject) for plot in PLOTS}
    undrawn = {name: one.reason for name, one in figures.items() if isinstance(one, Missing)}
    made = page.write(document(study, undrawn), {plot.name: b"<svg/>" for plot in PLOTS})
    text = html.unescape(re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", "", made))
    assert expected in text
    assert "a.json" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert all(f": not drawn: {reason}." in text for reason in undrawn.values())
    for plot, figure in figures.items():
        if isinstance(figure, Missing):
            continue
        said = " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))
        assert not re.search(r"\b(nan|inf|None)\b", said)
        for axes in figure.axes:  # no empty frame
            assert [*axes.lines, *axes.patches, *axes.collections] or not axes.axison, plot


def test_the_caption_names_the_machine_the_path_and_the_repeats() -> None:
    records = sweep(impls=PAIR, sizes=(4096,), threads=(1,), repeats=3)
    runs = typed_runs(records)
    assert caption(runs, table.fill(runs)) == (
        "Example CPU @ 3.0 GHz, 2 CPUs, virtual machine (hypervisor kvm), Linux 6.18.0-test; veth, MTU 1500, "
        "TSO/GSO/GRO on; 3 s per run, 3 repeats; medians of valid runs with 95 % intervals."
    )
