# SPDX-License-Identifier: GPL-2.0-only
"""The report of a sweep: equal records give equal bytes, and the page is self-contained and complete."""

import gzip
import hashlib
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from builders.sweep import store, sweep
from copyscope import VERSION
from copyscope.commands import report
from copyscope.record.store import RECORDS_NAME
from copyscope.report.plots.catalogue import PLOTS

Record = dict[str, Any]

PLOTS_WITHOUT_VALUES = {"misses", "latency"}  # plots without values: there is no PMU and no run in mode rr
TAGS_WITHOUT_END = {"meta", "link", "img", "br", "hr"}


def sweep_with_invalid_run() -> list[Record]:
    """Return a sweep of four strategies, two sizes and two numbers of threads. One run is invalid."""
    records = sweep(sizes=(4096, 65_536), threads=(1, 2), repeats=2)
    spoiled = next(r for r in records if r["workload"]["impl"] == "two_copy")
    reasons = ["identity bytes <at the socket>: 1 is not 2 bytes"]
    spoiled["verdict"] = spoiled["verdict"] | {"valid": False, "reasons": reasons}
    return records


@pytest.fixture(scope="module")
def reported_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = store(sweep_with_invalid_run(), tmp_path_factory.mktemp("results") / "host" / "demo")
    with (directory / RECORDS_NAME).open("ab") as stream:
        stream.write(gzip.compress(b'{"schema": 1', mtime=0))
    assert report.main([str(directory)]) == 0
    return directory


def digests(directory: Path) -> dict[str, str]:
    files = sorted(p for p in directory.rglob("*") if p.is_file() and p.name != RECORDS_NAME)
    return {str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_same_records_give_the_same_files(reported_sweep: Path, tmp_path: Path) -> None:
    """Another process, with another hash seed, locale, time zone and directory, writes the second report."""
    again = tmp_path / "again"
    subprocess.run(
        [sys.executable, "-Im", "copyscope.commands", "report", str(reported_sweep), "--out", str(again)],
        check=True,
        cwd=tmp_path,
        env={"PYTHONHASHSEED": "12345", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "HOME": str(tmp_path)},
        capture_output=True,
    )
    first = digests(reported_sweep)
    assert digests(again) == first
    drawn_names = {plot.name for plot in PLOTS} - PLOTS_WITHOUT_VALUES
    names = {f"plots/{name}.{kind}" for name in drawn_names for kind in ("png", "svg")}
    assert {name for name in first if name.startswith("plots/")} == names
    for path in reported_sweep.glob("plots/*"):
        drawn = path.read_bytes()
        assert drawn.startswith(b"\x89PNG") if path.suffix == ".png" else b"<svg" in drawn
        assert b"date" not in drawn.lower() or path.suffix == ".png"
    shown = re.findall(r"!\[[^]]+\]\((\S+)\)", (reported_sweep / "README.md").read_text(encoding="utf-8"))
    assert shown == [f"plots/{name}.png" for name in ("goodput", "cycles", "ledger_stack")]
    tables = {"results.csv", "ledger.csv", "crossover.json"}
    assert tables | {"report.html"} <= set(first)


class Balanced(HTMLParser):
    """HTML parser that fails if a tag is closed in the wrong order. It collects ids and references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        names = ("src", "href", "xlink:href", "srcset", "action")
        self.references += [str(given[name]) for name in names if name in given]
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag not in TAGS_WITHOUT_END:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def test_the_page_is_well_formed_and_self_contained(reported_sweep: Path) -> None:
    text = (reported_sweep / "report.html").read_text(encoding="utf-8")
    page = Balanced()
    page.feed(text)
    page.close()
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert text.count("<script") == 1  # the page's own script; the page loads no other
    assert not re.search(r"url\((?!#)|@import", text)
    for reference in page.references:
        assert reference.startswith(("#", "data:")), reference[:60]
        if reference.startswith("#"):
            assert reference[1:] in page.ids
    pictures = {name.removeprefix("plot-") for name in page.ids if name.startswith("plot-")}
    assert pictures == {plot.name for plot in PLOTS} - PLOTS_WITHOUT_VALUES | {
        "ratios-2"
    }  # the ratios of 2 threads
    inks = set(re.findall(r"#[0-9a-f]{6}\b", text[text.index("<svg") :]))
    assert inks and not inks & {"#222222", "#666666", "#dddddd", "#ffffff"}  # colours of the page
    assert [text.count(f"<p>{title}: not drawn: ") for title in ("Cache misses", "Latency")] == [1, 1]


def test_a_verdict_has_words_a_colour_and_a_link_to_its_crossover(reported_sweep: Path) -> None:
    text = (reported_sweep / "report.html").read_text(encoding="utf-8")
    crossovers = json.loads((reported_sweep / "crossover.json").read_text())["crossovers"]
    assert {crossover["verdict"] for crossover in crossovers} >= {"never", "undetermined"}
    for number, crossover in enumerate(crossovers, start=1):
        (row,) = re.findall(f'<tr id="crossover-{number}">.*', text)
        assert crossover["verdict"] in row and html.escape(crossover["evidence"]) in row
        if crossover["quantity"] not in ("goodput_gbps", "system_cpu_ns_per_kib"):
            continue
        (cell,) = re.findall(f'<td class="(\\w+)"><a href="#crossover-{number}">([^<]*)<', text)
        tones = {"never": "bad", "undetermined": "open", "always": "good", "crosses": "good"}
        words = {"never": "worse at every size", "always": "better at every size", "crosses": "better "}
        assert cell[0] == tones[crossover["verdict"]]
        if crossover["verdict"] in words:
            assert cell[1].startswith(words[crossover["verdict"]])
        elif not any(at["better"] for at in crossover["measured"]):
            assert cell[1] == "no difference found"
        else:
            assert cell[1].startswith(("better ", "worse ")) and "every size" not in cell[1]


def test_bars_are_as_long_as_their_numbers(reported_sweep: Path) -> None:
    """In every setting, steps add up to the difference of two costs, and shares add up to 100 %."""
    text = (reported_sweep / "report.html").read_text(encoding="utf-8")
    views = re.findall(r'<details class="view" data-setting="([^"]*)"', text)
    assert (
        len(set(views)) == len(views) == 4 + 2
    )  # two sizes with two numbers of threads each, and two numbers of threads for all sizes
    for figure in re.findall(r'<ul class="bars">(.*?)</ul>', text):
        bars = [
            [
                (float(left), float(width))
                for left, width in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", line)
            ]
            for line in figure.split("</li>")[:-1]
        ]
        if len(bars[0]) > 1:  # shares
            assert all(sum(width for _, width in bar) == pytest.approx(100, abs=0.1) for bar in bars)
            continue
        numbers = [float(n.replace(",", "")) for n in re.findall(r"</span><span>([-+]?[\d.,]+)", figure)]
        assert numbers[0] + sum(numbers[1:-1]) == pytest.approx(numbers[-1], rel=0.02)
        scale = bars[0][0][1] / numbers[0]
        assert [bar[0][1] for bar in bars] == pytest.approx([abs(n) * scale for n in numbers], abs=0.5)


def test_the_byline_has_the_date_and_both_versions(reported_sweep: Path) -> None:
    text = (reported_sweep / "report.html").read_text(encoding="utf-8")
    days = {r["run"]["started"][:10] for r in sweep_with_invalid_run()}
    assert f"Measured on {days.pop()} by copyscope " in text and f"page by copyscope {VERSION}" in text


def test_the_verdict_comes_first_and_every_failure_is_listed(reported_sweep: Path) -> None:
    text = (reported_sweep / "report.html").read_text(encoding="utf-8")
    headings = ["Verdict", "Where the saved copy went", "Against one", "Crossovers", "Tables"]
    headings += ["Six questions", "Other plots", "Methods", "Machine"]
    starts = [text.index(f">{heading}") for heading in headings]
    assert starts == sorted(starts)
    assert f"line {len(sweep_with_invalid_run()) + 1}" in text
    assert "truncated" in text
    assert text.count("is not 2 bytes") >= 1
    assert "<at the socket>" not in text  # text of a record is never markup
    assert len(re.findall(r"<h3[^>]*>[1-6]\. ", text)) == 6
    assert "n/a" in text
    assert not re.search(r"\b(nan|None|inf)\b", text)


def test_no_file_contains_the_date_of_the_report(reported_sweep: Path) -> None:
    for path in [*reported_sweep.glob("*.*"), *(reported_sweep / "plots").iterdir()]:
        data = path.read_bytes()
        assert b"dc:date" not in data
        assert not re.search(rb"20(2[6-9]|[3-9]\d)-\d\d-\d\dT", data), path.name


def test_usage_errors_are_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(tmp_path)]) == 2
    assert report.main([str(tmp_path), str(tmp_path), "--out", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("copyscope report: ") for line in lines)


def test_a_directory_that_cannot_be_written_is_named(
    reported_sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main([str(reported_sweep), "--out", "/proc/nowhere"]) == 1
    assert "/proc/nowhere" in capsys.readouterr().err


def test_commands_for_the_terminal_load_no_plotting_library() -> None:
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(f'copyscope.{name}')\n"
        "    print(name, {'matplotlib', 'numpy', 'duckdb'} & set(sys.modules) or 'none')\n"
    )
    names = ["commands.run", "commands.doctor", "show.terminal", "judge.estimates", "sweep.results"]
    argv = [sys.executable, "-P", "-c", script, *names]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{name} none" for name in names]
