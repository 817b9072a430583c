# SPDX-License-Identifier: GPL-2.0-only
"""Hostile files and names: they neither hang copyscope nor control the terminal, and errors name them."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import builders
import pytest
from _pytest.mark import ParameterSet
from builders.documents import derive, typed_runs, typed_whole
from builders.sweep import store, sweep
from builders.watched import watched_record
from copyscope.base import files as regular_file
from copyscope.base import paths
from copyscope.base.errors import UsageError
from copyscope.base.spelling import for_csv, for_html, one_line, visible
from copyscope.base.stats import Missing
from copyscope.commands import show
from copyscope.commands.kept_results import read_crossovers
from copyscope.commands.watch import describe_begin
from copyscope.record import store as record
from copyscope.record.store import RECORDS_NAME, read_lines
from copyscope.report import study_table as results_table
from copyscope.report.blocks import Block, Code, Heading, Paragraph, TableBlock, write_html
from copyscope.report.claim_judge import judge_all
from copyscope.report.exports import FORMATS
from copyscope.report.plots.catalogue import PLOTS
from copyscope.report.plots.draw import PlotSubject, draw
from copyscope.report.sections import document
from copyscope.report.study import caption, examine
from copyscope.report.table_files import as_csv
from copyscope.run.target import WatchTarget
from copyscope.show.layout import make_console
from copyscope.show.live import LiveView
from copyscope.show.progress import StepProgress
from copyscope.show.watch import render
from copyscope.sweep import results
from copyscope.sweep.experiment import load as load_experiment

EVIL = "e\x1b[2J\x1b]0;t\x07\r\nforged: valid\u202e[red]:smile:\udcff\x9b1m\x00\uffff<b>"
HARMFUL = ("\x1b", "\x07", "\x9b", "\u202e", "\udcff", "\r", "\x00", "\uffff")
MIB = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    records = sweep(impls=("one_copy", "zero_copy"), sizes=(4096,), threads=(1,), repeats=2)
    return store(records, tmp_path / "host" / "demo")


def test_harmful_characters_are_replaced() -> None:
    assert visible("a\x1b[31m\nb\x7f\x85\u202e\u2028\udcff") == "a␛[31m␊b␡\ufffd\ufffd\ufffd\ufffd"
    assert visible("a\nb\tc", lines=True) == "a\nb␉c"
    fine = "größer → ¼ 中文 🙂 [red] <b>"
    assert visible(fine) == fine
    assert for_html("<a href='x'>\x1b\n") == "&lt;a href=&#x27;x&#x27;&gt;␛\n"
    assert [for_csv(text) for text in ("=1+1", "+1", "-1", "@x", "\tx", "a=b")] == [
        *("'=1+1", "'+1", "'-1", "'@x", "'␉x", "a=b")
    ]


def test_long_line_is_shortened_in_its_longest_words() -> None:
    assert one_line("short") == "short"
    line = one_line(f"copyscope: --out: /{'d' * 3000}/x: cannot be written; choose another")
    assert len(line) == 200
    assert line.startswith("copyscope: --out: /ddd")
    assert line.endswith("d/x: cannot be written; choose another")
    assert len(one_line(" ".join(["word"] * 500))) == 200
    assert one_line("a:\n  b") == "a: b"
    assert len(one_line(" ".join(["x" * 90] * 9))) <= 200


@pytest.mark.timeout(20)
def test_only_regular_files_of_limited_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "dir").mkdir()
    for name in ("fifo", "zero", "dir"):
        with pytest.raises(OSError, match=r"regular file|is a directory"):
            regular_file.read(tmp_path / name)
    (tmp_path / "large").write_bytes(bytes(2 * MIB))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        regular_file.read(tmp_path / "large", MIB)
    assert len(regular_file.read(tmp_path / "large", 2 * MIB)) == 2 * MIB
    with pytest.raises(OverflowError):
        regular_file.gunzip(gzip.compress(bytes(2 * MIB)), MIB)
    assert regular_file.gunzip(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_time_to_gunzip_grows_linearly_with_empty_members(tmp_path: Path) -> None:
    """Eight times as many members take about eight times as long, and not sixty-four times."""
    empty, spent = gzip.compress(b"", mtime=0), []
    for count in (15_000, 120_000):
        began = time.process_time()
        assert regular_file.gunzip(empty * count + gzip.compress(b"a")) == b"a"
        spent.append(time.process_time() - began)
    assert spent[1] < 24 * spent[0]
    (tmp_path / "many.jsonl.gz").write_bytes(empty * 15_000)
    assert read_lines(tmp_path / "many.jsonl.gz") == []


@pytest.mark.timeout(60)
def test_sweep_names_unreadable_records(directory: Path) -> None:
    odd = (b"[" * 200_000, bytes(100 * MIB), b'{"schema": %s}' % (b"9" * 5000), b"{}", b"\xff")
    with (directory / RECORDS_NAME).open("ab") as stream:
        for text in odd:
            stream.write(gzip.compress(text, compresslevel=1, mtime=0))
    (directory / "failures.jsonl").symlink_to("/dev/zero")
    loaded = results.load(directory)
    reasons = [entry.reason for entry in loaded.left_out]
    assert len(loaded.records) == 4
    for part, reason in zip(("deep", "larger than", "digits", "schema", "UTF-8"), reasons, strict=True):
        assert part in reason


@pytest.mark.timeout(60)
def test_unreadable_records_are_reported_on_whole_lines(directory: Path) -> None:
    with (directory / RECORDS_NAME).open("ab") as stream:
        stream.write(gzip.compress(b'{"schema": "\\u001b[2J"}\n{"\x1b[2Jforged": 1}\n'))
    done = subprocess.run(
        [str(paths.ROOT / "bin" / "copyscope"), "crossover", str(directory)],
        capture_output=True, text=True, timeout=50, check=False, cwd=directory,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.startswith("copyscope crossover: left out:") for line in lines[:2]] == [True, True]
    assert not [line for line in lines if len(line) > 200 or "\x1b" in line or line.startswith("forged")]


@pytest.mark.timeout(20)
def test_odd_experiment_files_are_usage_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.toml")
    with pytest.raises(UsageError, match="regular file"):
        load_experiment(tmp_path / "x.toml")
    deep, number = "a = " + "[" * 100_000, "a = " + "9" * 5000
    for index, text in enumerate((deep, number, "a = 0x" + "f" * 5000, 'name = "\\u0000"', "\xff")):
        file = tmp_path / f"{index}.toml"
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(UsageError) as caught:
            load_experiment(file)
        assert len(one_line(str(caught.value))) <= 200


EXPERIMENT = """\
name = "x"
question = "?"
expected = "1m"
repeats = 1
duration_s = 1.0
seed = 1
[factors]
"""


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (f'impl = ["{"a" * 5000}"]', "no such strategy"),
        ('impl = [["one_copy"]]', "expected a text"),
        ("impl = 'one_copy'", "expected a list"),
        ('impl = ["one_copy"]\nsize = [[1]]', "expected bytes"),
        ('impl = ["one_copy"]\nfile = ["--"]', "not a value"),
        ("\n".join(f"{k} = {list(range(1, 1001))}" for k in ("fields", "threads", "gate")), "100,000 points"),
        (f"fields = {list(range(1, 1002))}", "1001 values: at most 1000"),
    ],
)  # fmt: skip
def test_experiments_have_limits(tmp_path: Path, factors: str, message: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT + factors + "\n")
    with pytest.raises(UsageError, match=message) as caught:
        load_experiment(file)
    assert len(str(caught.value).removeprefix(str(file))) < 300


def check_harmless(text: str) -> None:
    """Fail if a text contains a harmful character, or a newline of the hostile name."""
    hint = "write foreign text with visible(), for_csv() or for_html() of tools/copyscope/base/spelling.py"
    for character in HARMFUL:
        assert character not in text, f"{character!r} was written: {hint}"
    assert "\nforged" not in text, f"a newline was written: {hint}"


def test_hostile_program_name_does_not_reach_the_terminal() -> None:
    document = watched_record()
    document["target"] = document["target"] | {"name": EVIL, "comm": EVIL}
    document["target"] = document["target"] | {"command": [EVIL]}
    document["machine"] = document["machine"] | {"kernel": EVIL, "hostname": EVIL}
    document = derive(document)
    document["verdict"] = {**document["verdict"], "valid": False, "reasons": [EVIL], "sentence": EVIL}
    shown = io.StringIO()
    render(typed_whole(document), verbose=True, explain=True, console=make_console(shown))
    assert "␛[2J" in shown.getvalue()
    assert "[red]:smile:" in shown.getvalue()
    check_harmless(shown.getvalue())
    live = io.StringIO()
    LiveView(wanted=True, stream=live).update(typed_whole(document))
    check_harmless(live.getvalue())
    check_harmless(describe_begin(WatchTarget("comm", comm=EVIL), EVIL, None, has_process=True))
    check_harmless(describe_begin(WatchTarget("comm", comm=EVIL), EVIL, None, has_process=False))
    assert len(describe_begin(WatchTarget("comm", comm="x" * 300), "x" * 300, None, has_process=False)) <= 200
    progress = io.StringIO()
    with StepProgress(EVIL, 1, stream=progress) as steps:
        steps.begin(EVIL)
    check_harmless(progress.getvalue())


def test_record_with_a_hostile_name_is_written_and_read(tmp_path: Path) -> None:
    document = watched_record()
    document["target"] |= {"name": EVIL}
    builders.write(document, tmp_path / "r.json")
    assert record.read_document(tmp_path / "r.json")["target"]["name"] == EVIL
    json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))


def test_exports_and_screens_of_a_hostile_record_are_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = watched_record()
    document["target"] |= {"name": EVIL, "comm": EVIL}
    document["machine"] |= {"kernel": EVIL, "hostname": EVIL}
    document["run"] |= {"id": EVIL}
    for row in document["samples"]:
        row["symbol"] = EVIL
    kept, exported = tmp_path / "run.json", tmp_path / "exported"
    builders.write(derive(document), kept)
    for name, chosen in FORMATS.items():
        assert show.main([str(kept), "--export", name, "--output", str(exported)]) == 0, name
        if name == "flamegraph":
            ET.parse(exported)
        if chosen.is_text and name != "html":
            # In SVG, a newline is shown as a space.
            check_harmless(
                exported.read_text().replace("\nforged", "" if name == "flamegraph" else "\nforged")
            )
    for words in ([], ["-vv"]):
        assert show.main([str(kept), *words]) == 0
        shown = capsys.readouterr()
        assert "␛[2J" in shown.out
        check_harmless(shown.out + shown.err)


def test_report_of_hostile_records_is_harmless() -> None:
    blocks: list[Block] = [
        Heading(1, EVIL, "top"), Paragraph(EVIL), Code(EVIL), TableBlock([EVIL], [[EVIL]]),
    ]  # fmt: skip
    page = write_html(blocks, {})
    check_harmless(page.replace("\nforged", ""))
    assert "<b>" not in page
    page.encode()
    table = as_csv([{"=cmd": "=1+1", "n": -1, "x": EVIL}]).decode()
    assert table.splitlines()[0] == "'=cmd,n,x"
    assert table.splitlines()[1].startswith("'=1+1,-1,")
    check_harmless(table)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_plots_of_hostile_records_are_harmless() -> None:
    records = sweep(impls=("one_copy", "zero_copy"), sizes=(4096,), threads=(1,), repeats=2)
    for document_of_run in records:
        document_of_run["machine"] |= dict.fromkeys(("hostname", "kernel", "hypervisor"), EVIL)
        document_of_run["machine"]["cpu_model"] = EVIL + "$\\frac{$"
    runs = typed_runs(records)
    rows = results_table.fill(runs)
    drawn = draw("goodput", PlotSubject(rows, caption(runs, rows)))
    assert not isinstance(drawn, Missing)
    assert drawn.svg.startswith(b"<?xml")
    study = examine("demo", None, runs, rows, left_out=[], judgements=judge_all(runs), factors={})
    page = write_html(document(study, {}), {plot.name: drawn.svg for plot in PLOTS})
    check_harmless(page.replace("\nforged", ""))


def test_unreadable_crossovers_are_reported_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "crossover.json").write_text("[" * 200_000)
    os.mkfifo(tmp_path / "b" / "crossover.json")
    assert read_crossovers([tmp_path], {}) is None
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_lack_of_memory_is_reported_in_one_line(directory: Path) -> None:
    done = subprocess.run(
        ["prlimit", "--as=90000000", sys.executable, "-Im", "copyscope.commands", "crossover",
         str(directory)],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    message = "copyscope crossover: memory: not enough; free some, or measure less at once\n"
    assert (done.returncode, done.stderr) == (1, message)


def in_all(*mib: int) -> list[ParameterSet]:
    """Return parameters for `make test-all` only: sizes in MiB that repeat a test."""
    return [pytest.param(size_mib, marks=pytest.mark.all) for size_mib in mib]


# Runs a command with 8 MiB more memory than the command has after loading.
STARVED = f"""
import importlib, resource, sys
main = importlib.import_module(f"copyscope.commands.{{sys.argv[1]}}").main
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + {8 * MIB}
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("tool", ["crossover", "diff"])
def test_command_that_runs_out_of_memory_reports_it_in_one_line(tool: str, directory: Path) -> None:
    """If a record needs more memory than there is, the command ends with a message of one line."""
    with (directory / RECORDS_NAME).open("ab") as stream:
        stream.write(gzip.compress(bytes(60 * MIB), compresslevel=1))
    directories = [str(directory)] * (2 if tool == "diff" else 1)
    done = subprocess.run(
        [sys.executable, "-P", "-c", STARVED, tool, *directories],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    message = f"copyscope {tool}: memory: not enough; free some, or measure less at once\n"
    assert (done.stdout, done.stderr) == ("", message)
    assert done.returncode == (2 if tool == "diff" else 1)  # status 1 of diff means a regression


# Runs a command with a given amount of memory more than Python has before the command is loaded.
STARVED_FROM_THE_START = """
import resource, sys
from copyscope.commands.__main__ import main
# A stack that cannot grow kills a program without a message, so let it grow to its full size first.
usual = sys.getrecursionlimit()
sys.setrecursionlimit(10_000)
for deep in (2000, 5000):
    try:
        compile("-" * deep + "1", "", "eval")
    except (RecursionError, MemoryError):
        pass
sys.setrecursionlimit(usual)
most = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("more_mib", [0, 4, 8, *in_all(2, 6, 12, 16)])
def test_command_that_cannot_be_loaded_reports_it_in_one_line(more_mib: int, directory: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-c", STARVED_FROM_THE_START, str(more_mib * MIB)),
            *("crossover", str(directory)),
        ],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(("copyscope: cannot be loaded: ", "copyscope: memory: "))
    assert len(line) <= 200


@pytest.mark.parametrize("most_mb", [50, 80, *in_all(42, 54, 60, 120)])
def test_report_without_memory_prints_no_traceback(most_mb: int, directory: Path) -> None:
    """Loading the command, reading the records, or matplotlib runs out of memory."""
    done = subprocess.run(
        [
            *("prlimit", f"--as={most_mb}000000"),
            *(sys.executable, "-IBm", "copyscope.commands", "report", str(directory)),
        ],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    *before, last = done.stderr.splitlines()
    assert done.returncode == 1 and last.startswith("copyscope") and "memory" in last
    # OpenBLAS may print one line of its own before it exits.
    assert len(before) <= 1 and not any("Traceback" in line for line in before)
