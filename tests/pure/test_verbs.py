"""`copyscope VERB`: what each verb runs, what is said of a word that is none, help before any build."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from copyscope import VERSION, paths
from copyscope.commands import copyscope as front
from copyscope.commands.verbs import VERBS, Verb, find

FRONT = paths.ROOT / "bin" / "copyscope"
# The Python of a tree in which nothing is built: it has the standard library.
BARE = "/usr/bin/python3"


def call(*words: str, file: Path = FRONT) -> subprocess.CompletedProcess[str]:
    """As people call it."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [str(file), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def test_alone_it_answers_questions_with_verbs() -> None:
    done = call()
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert 10 <= len(lines) <= 17 and max(map(len, lines)) <= 80
    assert "Is my nginx copying?" in done.stdout and "watch nginx" in done.stdout
    # No verb is kept from those who look for one.
    assert all(verb.name in done.stdout for verb in VERBS)
    assert call("--help").stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("swep", "quick"), "did you mean copyscope sweep?"),
        (("profile", "nginx"), "to watch a program: copyscope watch nginx"),
        (("profile",), "did you mean copyscope run?"),
        (("run", "env"), "env: a program, not a strategy; to watch it: sudo copyscope watch env"),
        (("run", "zcopy", "--size", "64K"), "did you mean zero_copy?"),
        (
            ("run", "one_copy", "zero_copy", "--size", "4K"),
            "sudo copyscope compare one_copy zero_copy runs both",
        ),
        (("run", "one_copy,zero_copy"), "sudo copyscope compare one_copy zero_copy runs both alternately"),
        (("simulate", "one_copy", "zero_copy"), "write the strategies as one word: one_copy,zero_copy"),
        (("run", "one_copy", "--impl", "two_copy"), "--impl: not allowed with argument STRATEGY"),
        (("run", "--size=--"), "argument --size: --: not a value (copyscope run --help lists the options)"),
        (("run", "--impl", "zcopy"), "did you mean zero_copy?"),
        (("run", "--pid", "1"), "to watch a program: sudo copyscope watch --pid 1"),
        (("run", "--", "true", "a b"), "to watch a program: sudo copyscope watch -- true 'a b'"),
        (("watch",), "nothing to watch: give a name"),
        (("watch", "--durration", "3", "nginx"), "--durration nginx: did you mean --duration?"),
        (("watch", "nginx", "--pid", "1"), "nginx and --pid: name one program"),
        pytest.param(
            ("watch", "--pid", "nginx"),
            "to watch it by its name: --comm nginx",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root is told who is watched"),
        ),
        (
            ("sweep", "--no-such"),
            "copyscope: the following arguments are required: EXPERIMENT (copyscope sweep --help",
        ),
        (("run", "--duration", "5min"), "5min: not a time such as 5, 90s or 10m"),
        (("run", "one_copy,zero_copy"), "copyscope compare one_copy zero_copy runs both alternately"),
        (("-x", "run"), "-x: options go after the command: copyscope COMMAND -x"),
        (("prof", "nginx"), "to watch a program: copyscope watch prof"),
        (("report", "/no/such"), "/no/such: no such directory: give the directory of a sweep"),
        (("crossover", "/etc/passwd"), "/etc/passwd: not a directory: give the directory of a sweep"),
        (("diff", "/proc/sys", "/x"), "/proc/sys: no record in it"),
        (
            ("sweep", "quick", "--dry-run", "--out", "/etc/passwd/x"),
            "--out: /etc/passwd: not a directory: choose",
        ),
        (("fleet", "/no/hosts", "--", "doctor"), "/no/hosts: no such file: give an inventory of ansible"),
        (
            ("fleet", "hosts", "--", "report"),
            "report: not a command that runs on hosts: write -- and then one of run, ",
        ),
        (
            ("fleet", "query"),
            "the following arguments are required: DIR (copyscope fleet query --help lists",
        ),
        (("fleet", "query", "/x"), "copyscope: give one question, who-copies, "),
        (("sweep", "quik"), "quik: no such experiment: give the path of a TOML file, or one of "),
        (("run", "nonesuch"), "copyscope: impl: 'nonesuch': unknown strategy: use one of: null, "),
        (
            ("diff", "/no/before", "/x"),
            "/no/before: cannot be read: No such file or directory: check its name",
        ),
        (("crosscheck", "--repeat", "3"), "copyscope: --repeat: only for single runs: use copyscope run"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_next_step(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert front.main(list(words)) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err and shown.err.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_of_a_verb_is_short_and_names_no_other_command(
    verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for word in ("--help", "--help-all", "--version"):
        with pytest.raises(SystemExit) as ended:
            verb.main([word])
        assert ended.value.code in (0, None)
        said.append(capsys.readouterr().out)
    brief, whole, version = said
    assert brief.startswith(f"usage: copyscope {verb.name} ")
    options = {line.split()[0].rstrip(",") for line in brief.splitlines() if line.startswith("  -")}
    assert len(options) <= 13
    assert "tools/" not in brief + whole and "examples:" in brief
    assert len(whole) >= len(brief)
    description = brief.partition("\n\n")[2].partition("\n\n")[0]
    assert max(map(len, description.splitlines())) <= 80
    assert version == f"copyscope {VERSION}\n"


def test_examples_are_of_the_verb_and_not_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    told = {}
    for name in ("run", "watch", "advise", "crosscheck"):
        verb = find(name)
        assert verb is not None
        with pytest.raises(SystemExit):
            verb.main(["--help-all"])
        told[name] = capsys.readouterr().out
    examples = {name: text.partition("examples:")[2] for name, text in told.items()}
    assert "watch --help" in examples["run"] and "--pid" not in examples["run"]
    assert "--advise" not in examples["watch"] + examples["advise"]
    assert "watch nginx" in examples["watch"] and "advise nginx" in examples["advise"]
    assert "5 (default)" not in told["crosscheck"] and "default 3" in told["crosscheck"]


def test_help_of_a_question_to_a_fleet_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        front.main(["fleet", "query", "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "--sql" in shown and "who-copies" in shown


def test_compare_lists_options_of_its_own_in_its_short_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        verb = find("compare")
        assert verb is not None
        verb.main(["--help"])
    brief = capsys.readouterr().out
    assert all(option in brief for option in ("--markdown", "--noise", "--repeat", "--size"))
    assert "default 21" in brief and "--impl" not in brief and "--explain" not in brief


def test_profile_py_is_run() -> None:
    """Its name is in the fingers of many."""
    for words in (["--help"], ["--size", "0"]):
        named, run = call(*words, file=paths.ROOT / "tools" / "profile.py"), call("run", *words)
        assert (named.returncode, named.stdout, named.stderr) == (run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which nothing was built: no environment, no programs."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("bin", "tools"):
        shutil.copytree(paths.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "Makefile").write_text("")
    return root


@pytest.mark.skipif(not Path(BARE).exists(), reason="no Python of the system's")
def test_help_needs_nothing_that_is_built(unbuilt: Path) -> None:
    bare = unbuilt / "bin" / "copyscope"
    assert call(file=bare).stdout == call().stdout
    for words, said in (
        (("run", "--help"), "--impl"),
        (("watch", "--help-all"), "--whole"),
        (("--version",), VERSION),
        (("sweep", "--help"), "sudo make deps && make"),
    ):
        done = call(*words, file=bare)
        assert (done.returncode, done.stderr) == (0, "") and said in done.stdout
    for verb, status in (("doctor", 1), ("diff", 2)):  # of diff 1 is a regression
        done = call(verb, file=bare)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1)
        assert done.stderr.endswith(": build first: sudo make deps && make\n")


def test_a_copied_tree_runs_its_own_code(tmp_path: Path) -> None:
    """As with a worktree and its environment: what is said is said by the copy."""
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
