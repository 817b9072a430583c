# SPDX-License-Identifier: GPL-2.0-only
"""Odd command lines get one line of at most 200 characters, the documented status and no traceback."""

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
from copyscope.base import paths
from copyscope.base.arguments import UsageParser, number, whole_number
from copyscope.base.errors import MachineError, RunError, UsageError
from copyscope.commands import (
    compare,
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
from copyscope.plan import options as plan_options
from copyscope.plan.arguments import parser as profile_parser
from copyscope.plan.options import check_usage
from copyscope.plan.schedule import parse_cpus, parse_time_s
from copyscope.run.target import find_cgroup, find_netns, parse_pids

LONG = "9" * 5000


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the only line on stderr, and check that stdout is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    line = err[:-1]
    assert "\n" not in line
    assert len(line) <= 200
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_two_dashes_are_not_a_value(verb: Verb) -> None:
    parser = verb.parser()
    names = [name for action in parser._actions if action.nargs != 0 for name in action.option_strings]
    options = [name for name in names if name.startswith("--")]
    assert options or not names
    for option in options:
        with pytest.raises(UsageError, match=f"^{option} --: not a value; "):
            parser.parse_args([f"{option}=--"])


def test_numbers_are_bounded() -> None:
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
        with pytest.raises(UsageError, match="not a time; write a time such as 5, 90s or 10m"):
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
def test_too_long_names_are_refused(find: object) -> None:
    for name in ("n" * 300, f"/tmp/{'n' * 300}", "n/" * 3000):
        with pytest.raises(RunError, match=r"too long|no such"):
            find(name)  # type: ignore[operator]


def test_a_fifo_is_not_a_namespace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RunError, match="not a network namespace"):
        find_netns(str(tmp_path / "fifo"))


def test_an_unreadable_namespace_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(RunError, match=r"--netns .*: Permission denied"):
        find_netns(str(os.getpid()))


def test_invalid_bytes_and_empty_commands_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch.main(["--comm", "\udcff"]) == 2
    assert "--comm" in error_line(capsys)
    assert watch.main(["--", ""]) == 2
    assert "empty" in error_line(capsys)
    assert run_command.main(["--size=1\0"]) == 2
    assert "NUL" in error_line(capsys)
    assert sweep.main([LONG]) == 2
    assert "no such experiment" in error_line(capsys)


def measures(*_: object, **__: object) -> NoReturn:
    pytest.fail("it measured before it checked the output file")


MAINS = {
    "run": run_command.main,
    "simulate": simulate.main,
    "watch": watch.main,
    "compare": compare.main,
    "sweep": sweep.main,
}


@pytest.mark.parametrize("name", ["n" * 300, f"{'n' * 300}/run.json"], ids=["file", "directory"])
@pytest.mark.parametrize(
    ("words", "measuring"),
    [
        ("run --impl one_copy --json", "commands.run.Session"),
        ("watch --pid {pid} --json", "commands.watch.Session"),
        ("simulate --impl one_copy --json", "run.simulate.simulation.simulate"),
        ("compare one_copy zero_copy --json", "commands.compare.Blocks"),
        ("compare one_copy zero_copy --markdown", "commands.compare.Blocks"),
        ("sweep quick --out", "sweep.runner.Runner.__call__"),
    ],
)
def test_an_unusable_output_file_is_refused_before_the_measurement(
    words: str, measuring: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a user without root gets another message first")
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr(f"copyscope.{measuring}", measures)
    tool, *options = words.format(pid=os.getpid()).split()
    assert MAINS[tool]([*options, name]) == 1
    line = error_line(capsys)
    assert line.startswith(f"copyscope {tool}: ") and "nnn" in line
    assert f"{name[-8:]}: File name too long; " in line


READERS = {"crossover": (crossover.main, 1), "diff": (diff.main, 2)}


@pytest.mark.parametrize(("main", "status"), READERS.values(), ids=READERS)
def test_an_unusable_output_file_does_not_cost_the_table(
    main: Callable[[list[str]], int], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(store(small(), tmp_path / "demo"))
    directories = [directory, directory] if main is diff.main else [directory]
    assert main([*directories, "--json", "n" * 300]) == status
    out, err = capsys.readouterr()
    assert out and err.count("\n") == 1 and len(err) <= 201
    assert "n: File name too long; " in err


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for main in (run_command.main, sweep.main, report.main, crossover.main, doctor.main):
        assert main([f"--no-such-{'x' * 5000}\nforged:\x1b[31m"]) == 2
        assert "\x1b" not in error_line(capsys)


def test_usage_errors_name_the_tool() -> None:
    with pytest.raises(UsageError, match="tool --help lists the options"):
        UsageParser(prog="tool").parse_args(["--nothing"])
    check_usage(profile_parser().parse_args([]))


def run(
    tool: str, words: str, *, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a shell, as a user does."""
    return subprocess.run(
        ["sh", "-c", f"exec {paths.ROOT}/bin/copyscope {tool} {words}"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )


FULL = "copyscope: standard output: No space left on device; the output is incomplete\n"


# Commands that print help, a table or a drawing. Status 1 of diff means a regression.
@pytest.mark.parametrize(
    ("tool", "words", "status"),
    [
        ("run", "--help", 1),
        ("crossover", "{sweep}", 1),
        ("diff", "{sweep} {sweep}", 2),
        ("show", "{run} --export drawing", 1),
    ],
)
def test_standard_output_may_be_full(tool: str, words: str, status: int, tmp_path: Path) -> None:
    directory, record_file = store(small(), tmp_path / "demo"), tmp_path / "run.json"
    builders.write(small()[0], record_file)
    done = run(tool, f"{words.format(sweep=directory, run=record_file)} >/dev/full")
    assert (done.returncode, done.stderr) == (status, FULL)


def test_standard_output_may_be_closed_or_gone(tmp_path: Path) -> None:
    """Output to a closed descriptor is lost, and does not get into a file that reuses its number."""
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


def test_a_closed_pipe_is_not_a_failure() -> None:
    """The read end is closed before the first byte, so that every write fails with EPIPE."""
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


def test_an_ascii_terminal() -> None:
    """Letters that the encoding lacks become escapes, and JSON stays valid."""
    code = (
        "import json, sys; from copyscope.base import process\n"
        "from copyscope.commands import output_files\n"
        "from copyscope.doctor.findings import Diagnosis, DoctorFinding\n"
        "from copyscope.commands.doctor import print_diagnosis\n"
        "from copyscope.show.layout import make_console\n"
        "process.open_standard()\n"
        "found = Diagnosis([DoctorFinding('tools', 'größe', 'missing', 'a → b', 'do é', True)])\n"
        "print_diagnosis(found, verbose=True, console=make_console()) if sys.argv[1] == 'text' else None\n"
        "output_files.write_json_option(found.as_json(), '-') if sys.argv[1] == 'json' else None\n"
        "sys.exit(process.exit_status(0))\n"
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


def test_an_invalid_width_of_the_terminal_is_ignored() -> None:
    done = run("crossover", f"{paths.ROOT}/results/vm/quick --json -", environment={"COLUMNS": LONG})
    assert "Traceback" not in done.stderr


def test_the_help_names_every_strategy() -> None:
    help_text = profile_parser().format_help()
    sources = sorted((paths.ROOT / "src" / "traffic" / "strategies").glob("*.c"))
    assert sources and [path.stem for path in sources if path.stem not in help_text] == []


def test_a_frequency_above_the_limit_of_the_kernel_names_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "perf_event_max_sample_rate"
    limit.write_text("2000\n")
    monkeypatch.setattr(plan_options, "MAX_SAMPLE_RATE", limit)
    arguments = profile_parser().parse_args(["--frequency", "4999"])
    with pytest.raises(MachineError, match=r"^--frequency 4999: above .* \(2000 Hz\); choose at most 2000"):
        plan_options.check_instruments(arguments)
    limit.write_text("4999\n")
    assert plan_options.check_instruments(arguments)
