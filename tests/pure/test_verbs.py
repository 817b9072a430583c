# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope COMMAND`: messages about wrong usage, --help in a tree that was not built, overview."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from copyscope import VERSION
from copyscope.base import paths
from copyscope.commands import verbs
from copyscope.commands.verbs import VERBS, Verb, find

COPYSCOPE = paths.ROOT / "bin" / "copyscope"
# The Python of the system, which runs copyscope in an unbuilt tree. It may lack all packages.
SYSTEM_PYTHON = "/usr/bin/python3"


def call(*words: str, file: Path = COPYSCOPE) -> subprocess.CompletedProcess[str]:
    """Run copyscope as a user does, with the default width of the terminal."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [str(file), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def test_without_arguments_copyscope_prints_the_overview() -> None:
    done = call()
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    hint = "remove the least used command from QUESTIONS in verbs.py; `Others:` then lists it"
    assert 10 <= len(lines) <= 19 and max(map(len, lines)) <= 80, hint
    assert "Is my nginx copying?" in done.stdout and "watch nginx" in done.stdout
    # Every command is listed.
    assert all(verb.name in done.stdout for verb in VERBS)
    assert call("--help").stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("swep", "quick"), "did you mean copyscope sweep?"),
        (("profile", "nginx"), "to watch a program, use copyscope watch nginx"),
        (("profile",), "did you mean copyscope run?"),
        (
            ("run", "env"),
            f"env: a program, not a strategy; to watch it, run sudo {paths.command()} watch env",
        ),
        (("run", "zcopy", "--size", "64K"), "did you mean zero_copy?"),
        (
            ("run", "one_copy", "zero_copy", "--size", "4K"),
            f"sudo {paths.command()} compare one_copy zero_copy runs both",
        ),
        (("run", "one_copy,zero_copy"), f"sudo {paths.command()} compare one_copy zero_copy runs both"),
        (("simulate", "one_copy", "zero_copy"), "write the strategies as one argument: one_copy,zero_copy"),
        (("run", "one_copy", "--impl", "two_copy"), "--impl: not allowed together with STRATEGY"),
        (("run", "--size=--"), "copyscope run: --size --: not a value"),
        (("run", "--impl", "zcopy"), "did you mean zero_copy?"),
        (("run", "--pid", "1"), f"to watch a program, run sudo {paths.command()} watch --pid 1"),
        (("run", "--", "true", "a b"), f"to watch a program, run sudo {paths.command()} watch -- true 'a b'"),
        (("watch",), "nothing to watch; give a name"),
        (("watch", "--durration", "3", "nginx"), "--durration: unknown option; did you mean --duration?"),
        (("watch", "nginx", "--pid", "1"), "nginx and --pid: several targets; choose one"),
        pytest.param(
            ("watch", "--pid", "nginx"),
            "to watch a program by its name, write --comm nginx",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root is told who is watched"),
        ),
        (
            ("sweep", "--no-such"),
            "copyscope sweep: EXPERIMENT: missing; copyscope sweep --help shows the usage",
        ),
        (("sweep", "quick", "--duration", "3"), "--duration: unknown option; copyscope sweep --help lists"),
        (("watch", "--name", "nginx"), "--name: unknown option; copyscope watch --help-all lists"),
        (("run", "--strateg", "null"), "--strateg: unknown option; did you mean --strategy?"),
        (("run", "--strategy", "nonesuch"), "copyscope run: --impl nonesuch: unknown strategy; choose"),
        (("run", "--topology", "moon"), "copyscope run: --topology moon: unknown topology; choose veth, "),
        (("run", "--attach", "moon"), "copyscope run: --attach moon: unknown value; choose any, fentry, "),
        (("run", "--duration", "5min"), "--duration 5min: not a time; write a time such as 5, 90s or 10m"),
        (("run", "one_copy,zero_copy"), "copyscope compare one_copy zero_copy runs both"),
        (("-x", "run"), "-x: options go after the command; write copyscope COMMAND -x"),
        (("prof", "nginx"), "prof: no such command; `copyscope --help` lists them"),
        (("report", "/no/such"), "/no/such: no such directory; give the directory of a sweep"),
        (("crossover", "/etc/passwd"), "/etc/passwd: not a directory; give the directory of a sweep"),
        (("diff", "/proc/sys", "/x"), "/proc/sys: no record in it"),
        (
            ("sweep", "quick", "--dry-run", "--out", "/etc/passwd/x"),
            "--out /etc/passwd: not a directory; choose",
        ),
        (("fleet", "/no/hosts", "--", "doctor"), "/no/hosts: no such file; give an ansible inventory"),
        (
            ("fleet", "hosts", "--", "report"),
            "report: does not run on hosts; write -- and then run, ",
        ),
        (
            ("fleet", "query"),
            "copyscope fleet query: DIR: missing; copyscope fleet query --help shows",
        ),
        (("fleet", "query", "/x"), "copyscope fleet query: give one question: who-copies, "),
        (("sweep", "quik"), "quik: no such experiment; give the path of a TOML file, or one of "),
        (("run", "nonesuch"), "copyscope run: --impl nonesuch: unknown strategy; choose null, "),
        (
            ("diff", "/no/before", "/x"),
            "/no/before: cannot be read: No such file or directory; check its name",
        ),
        (("show", "/no/run.json"), "/no/run.json: cannot be read: No such file or directory; check its name"),
        (("show", "/no/runs.jsonl.gz"), "/no/runs.jsonl.gz: cannot be read: No such file or directory"),
        (("fleet", "query", "/no/fleet", "who-copies"), "/no/fleet: no such directory; give the directory"),
        (("report", "/no/sweep"), "/no/sweep: no such directory; give the directory of a sweep"),
        (("sweep", "quick", "--repeats", "2"), "--repeats: unknown option; did you mean --repeat?"),
        (("sweep", "quick", "--json"), "--json: the value is missing"),
        (("draw", "run.json"), "draw: no such command; use copyscope show FILE --export drawing"),
        (("crosscheck",), "crosscheck: no such command; in a source tree, run sudo make crosscheck"),
    ],
)
def test_wrong_usage_is_one_line_with_the_next_step(
    words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert verbs.main(list(words)) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and message in shown.err and shown.err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="a user without root gets another message first")
def test_a_watched_name_without_a_process_fails_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert verbs.main(["watch", "no-such-name-7"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("copyscope watch: no-such-name-7: no process of this name is running; ")
    assert "--comm" not in error and error.count("\n") == 1


def test_lo_is_another_name_of_loopback() -> None:
    verb = find("run")
    assert verb is not None and verb.parser().parse_args(["--topology", "lo"]).topology == "loopback"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_command_has_the_same_common_options(verb: Verb) -> None:
    options = {name: action for action in verb.parser()._actions for name in action.option_strings}
    assert {"-v", "--verbose", "-q", "--quiet"} <= options.keys() and "--repeats" not in options
    for name, metavars in (("--json", {"FILE"}), ("--output", {"FILE"}), ("--out", {"DIR"})):
        assert name not in options or {options[name].metavar} == metavars


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_is_short_and_fits_80_columns(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for word in ("--help", "--help-all", "--version"):
        with pytest.raises(SystemExit) as ended:
            verb.main([word])
        assert ended.value.code in (0, None)
        outputs.append(capsys.readouterr().out)
    brief, full, version = outputs
    assert brief.startswith(f"usage: copyscope {verb.name} ")
    options = {line.split()[0].rstrip(",") for line in brief.splitlines() if line.startswith("  -")}
    assert len(options) <= 13
    assert "tools/" not in brief + full
    assert "examples:" in brief, f"{verb.name}: give its parser an epilog that begins with `examples:`"
    assert len(full) >= len(brief)
    assert max(map(len, brief.splitlines())) <= 80
    assert version == f"copyscope {VERSION}\n"


def test_examples_use_their_own_command(capsys: pytest.CaptureFixture[str]) -> None:
    help_texts = {}
    for name in ("run", "watch", "advise"):
        verb = find(name)
        assert verb is not None
        with pytest.raises(SystemExit):
            verb.main(["--help-all"])
        help_texts[name] = capsys.readouterr().out
    examples = {name: text.partition("examples:")[2] for name, text in help_texts.items()}
    assert "watch --help" in examples["run"] and "--pid" not in examples["run"]
    assert "--advise" not in examples["watch"] + examples["advise"]
    assert "watch nginx" in examples["watch"] and "advise nginx" in examples["advise"]


def test_fleet_query_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        verbs.main(["fleet", "query", "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "--sql" in shown and "who-copies" in shown


def test_short_help_of_compare_lists_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        verb = find("compare")
        assert verb is not None
        verb.main(["--help"])
    brief = capsys.readouterr().out
    assert all(option in brief for option in ("--markdown", "--noise", "--repeat", "--size"))
    assert "default 21" in brief and "--impl" not in brief and "--explain" not in brief


def test_profile_py_runs_copyscope_run() -> None:
    for words in (["--help"], ["--size", "0"]):
        by_old_name, run = call(*words, file=paths.ROOT / "tools" / "profile.py"), call("run", *words)
        assert (by_old_name.returncode, by_old_name.stdout, by_old_name.stderr) == (
            run.returncode,
            run.stdout,
            run.stderr,
        )


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree without an environment and without compiled programs."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("bin", "tools"):
        shutil.copytree(paths.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "Makefile").write_text("")
    return root


@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="the system has no Python")
def test_help_works_in_an_unbuilt_tree(unbuilt: Path) -> None:
    bare = unbuilt / "bin" / "copyscope"
    assert call(file=bare).stdout == call().stdout
    for words, part in (
        (("run", "--help"), "--impl"),
        (("watch", "--help-all"), "--whole"),
        (("--version",), VERSION),
        (("sweep", "--help"), "sudo make deps && make"),
    ):
        done = call(*words, file=bare)
        assert (done.returncode, done.stderr) == (0, "") and part in done.stdout
    for verb, status in (("doctor", 1), ("diff", 2)):  # status 1 of diff means a regression
        done = call(verb, file=bare)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1)
        assert done.stderr.endswith("; build first: sudo make deps && make\n")


def test_a_copied_tree_runs_its_own_code(tmp_path: Path) -> None:
    """A copy of the tree with its environment, such as a worktree, does not run code of the original."""
    parts = ("bin", "tools", ".venv/bin", ".venv/pyvenv.cfg", ".venv/.ready", ".venv/.package")
    subprocess.run(["cp", "-r", "--parents", *parts, tmp_path], cwd=paths.ROOT, check=True)
    (packages,) = (paths.ROOT / ".venv").glob("lib/python3*/site-packages")
    copied = tmp_path / packages.relative_to(paths.ROOT)
    copied.mkdir(parents=True)
    for package in packages.iterdir():
        (copied / package.name).symlink_to(package)
    (tmp_path / "tools" / "copyscope" / "__init__.py").write_text('VERSION = "of the copy"\n')
    assert call("--version", file=tmp_path / "bin" / "copyscope").stdout == "copyscope of the copy\n"
    link = tmp_path / "link"
    link.symlink_to("bin/copyscope")
    assert call("--version", file=link).stdout == "copyscope of the copy\n"
