"""Files and names that somebody else has made: none hangs, none rewrites the terminal, all are named."""

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
from builders.sweep import store, sweep
from builders.watched import watched_record
from copyscope import paths
from copyscope.commands import show
from copyscope.commands.watch import beginning, read_crossovers
from copyscope.errors import UsageError
from copyscope.escaping import for_csv, for_html, one_line, visible
from copyscope.exports import FORMATS
from copyscope.files import regular_file
from copyscope.judge.metrics import typed_runs
from copyscope.ledger.derive import derive
from copyscope.record import records_file
from copyscope.record import store as record
from copyscope.record.check import typed_whole
from copyscope.report import html
from copyscope.report.blocks import Block, Code, Heading, Paragraph, Table
from copyscope.report.plots.catalogue import PLOTS
from copyscope.report.plots.draw import Subject, draw
from copyscope.report.sections import document
from copyscope.report.table_files import as_csv
from copyscope.run.target import Target
from copyscope.show.console import make_console
from copyscope.show.live import LiveView
from copyscope.show.progress import Steps
from copyscope.show.watch import render
from copyscope.stats import Missing
from copyscope.study import table as results_table
from copyscope.study.claims.judge import judge_all
from copyscope.study.study import caption, examine
from copyscope.sweep import results
from copyscope.sweep.experiment import load as load_experiment

EVIL = "e\x1b[2J\x1b]0;t\x07\r\nforged: valid\u202e[red]:smile:\udcff\x9b1m\x00\uffff<b>"
HARMFUL = ("\x1b", "\x07", "\x9b", "\u202e", "\udcff", "\r", "\x00", "\uffff")
MIB = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = sweep(impls=("one_copy", "zero_copy"), sizes=(4096,), threads=(1,), repeats=2)
    return store(made, tmp_path / "host" / "demo")


def test_one_place_says_what_is_harmful() -> None:
    assert visible("a\x1b[31m\nb\x7f\x85\u202e\u2028\udcff") == "a␛[31m␊b␡\ufffd\ufffd\ufffd\ufffd"
    assert visible("a\nb\tc", lines=True) == "a\nb␉c"
    fine = "größer → ¼ 中文 🙂 [red] <b>"
    assert visible(fine) == fine
    assert for_html("<a href='x'>\x1b\n") == "&lt;a href=&#x27;x&#x27;&gt;␛\n"
    assert [for_csv(text) for text in ("=1+1", "+1", "-1", "@x", "\tx", "a=b")] == [
        *("'=1+1", "'+1", "'-1", "'@x", "'␉x", "a=b")
    ]


def test_a_line_is_cut_in_its_longest_words() -> None:
    assert one_line("short") == "short"
    line = one_line(f"copyscope: --out: /{'d' * 3000}/x: cannot be written: choose another")
    assert len(line) == 200
    assert line.startswith("copyscope: --out: /ddd")
    assert line.endswith("d/x: cannot be written: choose another")
    assert len(one_line(" ".join(["word"] * 500))) == 200
    assert one_line("a:\n  b") == "a: b"
    assert len(one_line(" ".join(["x" * 90] * 9))) <= 200


@pytest.mark.timeout(20)
def test_only_regular_files_of_a_size_are_read(tmp_path: Path) -> None:
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


def test_many_empty_members_take_no_longer_than_their_bytes(tmp_path: Path) -> None:
    """Eight times as many take about eight times as long, and not sixty-four times."""
    empty, spent = gzip.compress(b"", mtime=0), []
    for count in (15_000, 120_000):
        began = time.process_time()
        assert regular_file.gunzip(empty * count + gzip.compress(b"a")) == b"a"
        spent.append(time.process_time() - began)
    assert spent[1] < 24 * spent[0]
    (tmp_path / "many.jsonl.gz").write_bytes(empty * 15_000)
    assert records_file.read(tmp_path / "many.jsonl.gz") == []


@pytest.mark.timeout(60)
def test_a_sweep_names_what_it_cannot_read(directory: Path) -> None:
    odd = (b"[" * 200_000, bytes(100 * MIB), b'{"schema": %s}' % (b"9" * 5000), b"{}", b"\xff")
    with (directory / records_file.NAME).open("ab") as stream:
        for text in odd:
            stream.write(gzip.compress(text, compresslevel=1, mtime=0))
    (directory / "failures.jsonl").symlink_to("/dev/zero")
    found = results.load(directory)
    reasons = [entry.reason for entry in found.left_out]
    assert len(found.records) == 4
    for part, reason in zip(("deep", "larger than", "digits", "schema", "UTF-8"), reasons, strict=True):
        assert part in reason


@pytest.mark.timeout(60)
def test_readers_say_it_on_whole_lines(directory: Path) -> None:
    with (directory / records_file.NAME).open("ab") as stream:
        stream.write(gzip.compress(b'{"schema": "\\u001b[2J"}\n{"\x1b[2Jforged": 1}\n'))
    done = subprocess.run(
        [str(paths.ROOT / "bin" / "copyscope"), "crossover", str(directory)],
        capture_output=True, text=True, timeout=50, check=False, cwd=directory,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.startswith("copyscope: left out:") for line in lines[:2]] == [True, True]
    assert not [line for line in lines if len(line) > 200 or "\x1b" in line or line.startswith("forged")]


@pytest.mark.timeout(20)
def test_an_experiment_may_be_anything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.toml")
    with pytest.raises(UsageError, match="regular file"):
        load_experiment(tmp_path / "x.toml")
    deep, number = "a = " + "[" * 100_000, "a = " + "9" * 5000
    for index, text in enumerate((deep, number, "a = 0x" + "f" * 5000, 'name = "\\u0000"', "\xff")):
        place = tmp_path / f"{index}.toml"
        place.write_bytes(text.encode("latin-1"))
        with pytest.raises(UsageError) as caught:
            load_experiment(place)
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
    ("factors", "said"),
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
def test_an_experiment_is_bounded(tmp_path: Path, factors: str, said: str) -> None:
    place = tmp_path / "x.toml"
    place.write_text(EXPERIMENT + factors + "\n")
    with pytest.raises(UsageError, match=said) as caught:
        load_experiment(place)
    assert len(str(caught.value).removeprefix(str(place))) < 300


def harmless(text: str) -> None:
    for character in HARMFUL:
        assert character not in text
    assert "\nforged" not in text


def test_a_watched_program_may_be_called_anything() -> None:
    made = watched_record()
    made["target"] = made["target"] | {"name": EVIL, "comm": EVIL}
    made["target"] = made["target"] | {"command": [EVIL]}
    made["machine"] = made["machine"] | {"kernel": EVIL, "hostname": EVIL}
    made = derive(made)
    made["verdict"] = {**made["verdict"], "valid": False, "reasons": [EVIL], "sentence": EVIL}
    shown = io.StringIO()
    render(typed_whole(made), verbose=True, explain=True, console=make_console(shown))
    assert "␛[2J" in shown.getvalue()
    assert "[red]:smile:" in shown.getvalue()
    harmless(shown.getvalue())
    live = io.StringIO()
    LiveView(wanted=True, stream=live).update(typed_whole(made))
    harmless(live.getvalue())
    harmless(beginning(Target("comm", comm=EVIL), EVIL, None, there=True))
    harmless(beginning(Target("comm", comm=EVIL), EVIL, None, there=False))
    assert len(beginning(Target("comm", comm="x" * 300), "x" * 300, None, there=False)) <= 200
    told = io.StringIO()
    with Steps(EVIL, 1, stream=told) as steps:
        steps.begin(EVIL)
    harmless(told.getvalue())


def test_a_record_of_such_a_name_can_be_written_and_read(tmp_path: Path) -> None:
    made = watched_record()
    made["target"] |= {"name": EVIL}
    builders.write(made, tmp_path / "r.json")
    assert record.read(tmp_path / "r.json")["target"]["name"] == EVIL
    json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))


def test_what_is_shown_again_of_a_foreign_record_is_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = watched_record()
    made["target"] |= {"name": EVIL, "comm": EVIL}
    made["machine"] |= {"kernel": EVIL, "hostname": EVIL}
    made["run"] |= {"id": EVIL}
    for row in made["samples"]:
        row["symbol"] = EVIL
    kept, exported = tmp_path / "run.json", tmp_path / "exported"
    builders.write(derive(made), kept)
    for name, chosen in FORMATS.items():
        assert show.main([str(kept), "--export", name, "--out", str(exported)]) == 0, name
        if name == "flamegraph":
            ET.parse(exported)
        if chosen.text and name != "html":
            # In an SVG a newline is a space.
            harmless(exported.read_text().replace("\nforged", "" if name == "flamegraph" else "\nforged"))
    for words in ([], ["-vv"]):
        assert show.main([str(kept), *words]) == 0
        shown = capsys.readouterr()
        assert "␛[2J" in shown.out
        harmless(shown.out + shown.err)


def test_a_report_of_foreign_records() -> None:
    blocks: list[Block] = [
        Heading(1, EVIL, "top"), Paragraph(EVIL), Code(EVIL), Table([EVIL], [[EVIL]]),
    ]  # fmt: skip
    page = html.write(blocks, {})
    harmless(page.replace("\nforged", ""))
    assert "<b>" not in page
    page.encode()
    table = as_csv([{"=cmd": "=1+1", "n": -1, "x": EVIL}]).decode()
    assert table.splitlines()[0] == "'=cmd,n,x"
    assert table.splitlines()[1].startswith("'=1+1,-1,")
    harmless(table)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_plot_of_foreign_records() -> None:
    made = sweep(impls=("one_copy", "zero_copy"), sizes=(4096,), threads=(1,), repeats=2)
    for one in made:
        one["machine"] |= dict.fromkeys(("hostname", "kernel", "hypervisor"), EVIL)
        one["machine"]["cpu_model"] = EVIL + "$\\frac{$"
    runs = typed_runs(made)
    rows = results_table.fill(runs)
    drawn = draw("goodput", Subject(rows, [], caption(runs, rows)))
    assert not isinstance(drawn, Missing)
    assert drawn.svg.startswith(b"<?xml")
    study = examine("demo", None, runs, rows, left_out=[], judgements=judge_all(runs))
    harmless(
        html.write(document(study, {}), {plot.name: b"<svg/>" for plot in PLOTS}).replace("\nforged", "")
    )


def test_the_advice_survives_foreign_crossovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "crossover.json").write_text("[" * 200_000)
    os.mkfifo(tmp_path / "b" / "crossover.json")
    assert read_crossovers([tmp_path], {}) is None
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_without_memory_there_is_one_line(directory: Path) -> None:
    done = subprocess.run(
        ["prlimit", "--as=90000000", sys.executable, "-Im", "copyscope", "crossover", str(directory)],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    said = "copyscope: memory: not enough: free some, or measure less at once\n"
    assert (done.returncode, done.stderr) == (1, said)


def in_all(*mib: int) -> list[ParameterSet]:
    """What only repeats with other sizes."""
    return [pytest.param(one, marks=pytest.mark.all) for one in mib]


# One command, which gets no more memory than it has when all of it is loaded, and a little.
STARVED = f"""
import importlib, resource, sys
main = importlib.import_module(f"copyscope.commands.{{sys.argv[1]}}").main
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + {8 * MIB}
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("tool", ["crossover", "diff"])
def test_a_command_that_runs_out_of_memory_says_so_in_one_line(tool: str, directory: Path) -> None:
    """What one of the records unpacks to has no room there."""
    with (directory / records_file.NAME).open("ab") as stream:
        stream.write(gzip.compress(bytes(60 * MIB), compresslevel=1))
    directories = [str(directory)] * (2 if tool == "diff" else 1)
    done = subprocess.run(
        [sys.executable, "-P", "-c", STARVED, tool, *directories],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    said = "copyscope: memory: not enough: free some, or measure less at once\n"
    assert (done.stdout, done.stderr) == ("", said)
    assert done.returncode == (2 if tool == "diff" else 1)  # of diff 1 is a regression


# The same, with so much more than it has when nothing of it is loaded.
STARVED_FROM_THE_START = """
import resource, sys
from copyscope.__main__ import main
# A stack that cannot grow any more ends a program, and says nothing: it has grown as far as it ever does.
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
def test_a_command_that_cannot_be_loaded_says_so_in_one_line(more_mib: int, directory: Path) -> None:
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
def test_a_report_without_memory_says_so_without_a_traceback(most_mb: int, directory: Path) -> None:
    """What fails for want of memory is its load, the records, or matplotlib."""
    done = subprocess.run(
        [
            *("prlimit", f"--as={most_mb}000000"),
            *(sys.executable, "-IBm", "copyscope", "report", str(directory)),
        ],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    *before, last = done.stderr.splitlines()
    assert done.returncode == 1 and last.startswith("copyscope: ") and "memory" in last
    # OpenBLAS says in a line of its own that it gives up.
    assert len(before) <= 1 and not any("Traceback" in line for line in before)
