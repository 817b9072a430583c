"""Odd command lines: one line of at most 200 characters, the documented status, no traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import builders
import pytest
from builders.sweep import small, store
from copyscope import paths
from copyscope.arguments import UsageParser, number, whole_number
from copyscope.commands import (
    compare,
    crosscheck,
    crossover,
    diff,
    doctor,
    report,
    simulate,
    sweep,
    watch,
    watch_arguments,
)
from copyscope.commands import run as run_command
from copyscope.commands.verbs import VERBS, Verb
from copyscope.errors import RunError, UsageError
from copyscope.plan.arguments import parser as profile_parser
from copyscope.plan.instruments import parse_cpus, parse_time_s
from copyscope.plan.options import check_usage
from copyscope.run.target import find_cgroup, find_netns, parse_pids
from copyscope.sweep.experiment_file import strategies

LONG = "9" * 5000


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    line = err[:-1]
    assert "\n" not in line
    assert len(line) <= 200
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_two_dashes_are_no_value(verb: Verb) -> None:
    parser = verb.parser()
    names = [name for action in parser._actions if action.nargs != 0 for name in action.option_strings]
    options = [name for name in names if name.startswith("--")]
    assert options
    for option in options:
        with pytest.raises(UsageError, match=f"argument {option}: --: not a value"):
            parser.parse_args([f"{option}=--"])


def test_numbers_have_an_end() -> None:
    assert whole_number(" 42 ") == 42
    assert whole_number("-7") == -7
    assert number("1e3") == 1000
    for option in ("--mtu", "--messages", "--frequency", "--gate", "--repeat", "--seed"):
        for word in (LONG, "1_000", "٣", "0x10", "1e3", ""):
            with pytest.raises(UsageError, match="not a whole number"):
                profile_parser().parse_args([f"{option}={word}"])
    for word, seconds in {"7": 7, "0.5": 0.5, "90s": 90, "10m": 600, "1.5h": 5400}.items():
        assert profile_parser().parse_args([f"--duration={word}"]).duration == seconds
        assert (
            watch_arguments.parser().parse_args(["x", f"--duration={word}", "-i", word]).interval == seconds
        )
    for word in ("nan", "inf", "1e999", "abc", "m", "nanm", "5d"):
        with pytest.raises(UsageError, match="not a time such as 5, 90s or 10m"):
            profile_parser().parse_args([f"--duration={word}"])


@pytest.mark.parametrize(
    "text", ["0-99999999999", LONG, f"0-{LONG}", "3-1", "²", "0-8192", ",", "0-8191," * 9]
)
def test_a_list_of_processors_is_bounded(text: str) -> None:
    with pytest.raises(UsageError, match="not a list of processors"):
        parse_cpus(text, "--sender-cpus")


def test_a_list_of_processors() -> None:
    assert parse_cpus("0,2-3", "--sender-cpus") == [0, 2, 3]
    assert len(parse_cpus("0-8191", "--sender-cpus")) == 8192


def test_numbers_of_processes_and_times() -> None:
    with pytest.raises(UsageError, match="not a process id"):
        parse_pids(LONG)
    with pytest.raises(RunError, match="no such"):
        find_netns(LONG[:200])
    with pytest.raises(UsageError, match="not a time"):
        parse_time_s(f"{LONG}h", "--budget")


@pytest.mark.parametrize("find", [find_netns, find_cgroup])
def test_names_that_are_too_long(find: object) -> None:
    for name in ("n" * 300, f"/tmp/{'n' * 300}", "n/" * 3000):
        with pytest.raises(RunError, match=r"too long|no such"):
            find(name)  # type: ignore[operator]


def test_a_fifo_is_no_namespace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RunError, match="not a network namespace"):
        find_netns(str(tmp_path / "fifo"))


def test_a_namespace_that_may_not_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(RunError, match=r"--netns: .*: Permission denied"):
        find_netns(str(os.getpid()))


def test_words_that_no_name_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch.main(["--comm", "\udcff"]) == 2
    assert "--comm" in said(capsys)
    assert watch.main(["--", ""]) == 2
    assert "empty" in said(capsys)
    assert run_command.main(["--size=1\0"]) == 2
    assert "NUL" in said(capsys)
    assert sweep.main([LONG]) == 2
    assert "no such experiment" in said(capsys)


def measures(*_: object, **__: object) -> NoReturn:
    pytest.fail("it measured before it looked at the name of its file")


MAINS = {
    "run": run_command.main,
    "simulate": simulate.main,
    "watch": watch.main,
    "crosscheck": crosscheck.main,
    "compare": compare.main,
    "sweep": sweep.main,
}


@pytest.mark.parametrize("name", ["n" * 300, f"{'n' * 300}/run.json"], ids=["file", "directory"])
@pytest.mark.parametrize(
    ("words", "measuring"),
    [
        ("run --impl one_copy --json", "commands.run.Session"),
        ("watch --pid {pid} --json", "commands.watch.Session"),
        ("simulate --impl one_copy --json", "simulate.simulation.simulate"),
        ("crosscheck --impl one_copy --json", "commands.crosscheck.PeerSession"),
        ("compare one_copy zero_copy --json", "commands.compare.Turns"),
        ("compare one_copy zero_copy --markdown", "commands.compare.Turns"),
        ("sweep quick --out", "sweep.runner.Runner.__call__"),
    ],
)
def test_a_file_of_too_long_a_name_is_refused_before_anything_is_measured(
    words: str, measuring: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("who is not root is told that before")
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr(f"copyscope.{measuring}", measures)
    tool, *options = words.format(pid=os.getpid()).split()
    assert MAINS[tool]([*options, name]) == 1
    line = said(capsys)
    assert line.startswith("copyscope: ") and "nnn" in line
    assert f"{name[-8:]}: File name too long: " in line


READERS = {"crossover": (crossover.main, 1), "diff": (diff.main, 2)}


@pytest.mark.parametrize(("main", "status"), READERS.values(), ids=READERS)
def test_a_file_of_too_long_a_name_costs_no_table(
    main: Callable[[list[str]], int], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(store(small(), tmp_path / "demo"))
    directories = [directory, directory] if main is diff.main else [directory]
    assert main([*directories, "--json", "n" * 300]) == status
    out, err = capsys.readouterr()
    assert out and err.count("\n") == 1 and len(err) <= 201
    assert "n: File name too long: " in err


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for main in (run_command.main, sweep.main, report.main, crossover.main, doctor.main):
        assert main([f"--no-such-{'x' * 5000}\nforged:\x1b[31m"]) == 2
        assert "\x1b" not in said(capsys)


def test_usage_errors_name_the_tool() -> None:
    with pytest.raises(UsageError, match="tool --help lists the options"):
        UsageParser(prog="tool").parse_args(["--nothing"])
    check_usage(profile_parser().parse_args([]))


def run(
    tool: str, words: str, *, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command line in a shell, as people do."""
    return subprocess.run(
        ["sh", "-c", f"exec {paths.ROOT}/bin/copyscope {tool} {words}"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )


FULL = "copyscope: standard output: No space left on device: what was printed is not complete there\n"


# What prints help, a table or a drawing; of diff 1 is a regression.
@pytest.mark.parametrize(
    ("tool", "words", "status"),
    [("run", "--help", 1), ("crossover", "{sweep}", 1), ("diff", "{sweep} {sweep}", 2), ("draw", "{run}", 1)],
)
def test_standard_output_may_be_full(tool: str, words: str, status: int, tmp_path: Path) -> None:
    directory, one = store(small(), tmp_path / "demo"), tmp_path / "run.json"
    builders.write(small()[0], one)
    done = run(tool, f"{words.format(sweep=directory, run=one)} >/dev/full")
    assert (done.returncode, done.stderr) == (status, FULL)


def test_standard_output_may_be_closed_or_gone(tmp_path: Path) -> None:
    """Nor does a file take the number of what was closed: what is printed would get into it."""
    directory, file = store(small(), tmp_path / "demo"), tmp_path / "answer.json"
    words = f"{directory} --json {file}"
    shown = run("crossover", words)
    assert shown.stdout and (shown.returncode, shown.stderr) == (0, "")
    answer = file.read_bytes()
    file.unlink()
    closed = run("crossover", f"{words} >&-")
    assert (closed.returncode, closed.stderr, file.read_bytes()) == (0, "", answer)
    for tool, words in (("run", "--help"), ("crossover", str(directory))):
        assert run(tool, f"{words} | true; true").stderr == ""


def test_a_reader_that_went_away_is_no_failure() -> None:
    """The read end is closed before the first byte: every write meets EPIPE."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as stream:
        done = subprocess.run(
            [str(paths.ROOT / "bin" / "copyscope"), "sweep", "quick", "--dry-run", "-v"],
            stdout=stream,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_of_another_encoding() -> None:
    """Its alphabet lacks letters of ours: they are written out, and JSON stays JSON."""
    code = (
        "import json, sys; from copyscope import streams\n"
        "from copyscope.commands import doctor, documents\n"
        "from copyscope.doctor.findings import Diagnosis, Finding\n"
        "from copyscope.show.doctor import render; from copyscope.show.console import make_console\n"
        "streams.open_standard()\n"
        "found = Diagnosis([Finding('tools', 'größe', 'missing', 'a → b', 'do é', True)])\n"
        "render(found, verbose=True, console=make_console()) if sys.argv[1] == 'text' else None\n"
        "documents.give_json(found.as_json(), '-') if sys.argv[1] == 'json' else None\n"
        "sys.exit(streams.end(0))\n"
    )
    for form in ("text", "json"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, form],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.isascii()
        if form == "json":
            assert "größe" in json.dumps(json.loads(done.stdout), ensure_ascii=False)


def test_columns_of_the_terminal_are_a_number() -> None:
    done = run("crossover", f"{paths.ROOT}/results/vm/quick --json -", environment={"COLUMNS": LONG})
    assert "Traceback" not in done.stderr


def test_the_help_names_every_strategy() -> None:
    said = profile_parser().format_help()
    assert [name for name in strategies() if name not in said] == []
