"""What has no end, or cannot be, is refused before anything is set up; and git runs for the tree's owner."""

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.asking import LimitError
from copyscope.commands import run as run_command
from copyscope.errors import UsageError
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage
from copyscope.run.build import git_revision

# A file whose name is no UTF-8.
ODD = os.fsdecode(b"odd\xff")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--repeat", "1000000000"], "--repeat: 1000000000: not between 1 and 1000"),
        (["--repeat", "0"], "--repeat: 0: not between 1 and 1000"),
        (["--mtu", "1"], "--mtu: 1: not between 68 and 65535"),
        (["--mtu", "65536"], "--mtu: 65536: not between 68 and 65535"),
        (["--topology", "loopback", "--mtu", "65537"], "--mtu: 65537: not between 68 and 65536"),
    ],
)
def test_an_option_has_an_end(options: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_usage(parser().parse_args(options))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("role", "options", "said"),
    [
        (
            "recv",
            ["--buffer", "1G", "--threads", "1024"],
            "buffer: 1024 MiB in each of 1024 threads: 1048576",
        ),
        ("recv", ["--rcvbuf", "1"], "rcvbuf: 1: out of range: use 4096 to"),
        ("send", ["--sndbuf", "4095"], "sndbuf: 4095: out of range: use 4096 to"),
    ],
)
def test_the_traffic_says_at_once_what_it_cannot_do(role: str, options: list[str], said: str) -> None:
    began = time.monotonic()
    argv = [str(paths.TRAFFIC), role, "--port", "1", *options, "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode != 0 and said in done.stderr and done.stderr.count("\n") == 1
    assert time.monotonic() - began < 5


def test_a_machine_too_busy_to_check_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(_argv: list[str]) -> None:
        raise LimitError("late")

    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr("copyscope.plan.options.ask", late)
    assert run_command.main(["--impl", "one_copy"]) == 1
    assert capsys.readouterr().err.endswith(
        ": no answer in 10 s: the machine is too busy: repeat when idle\n"
    )


@pytest.fixture
def tree() -> Iterator[Path]:
    """A repository whose owner has git run a program at each look; under root it is somebody else's."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        hook, told = tree / "hook", tree / "told"
        hook.write_text(f"#!/bin/sh\nid -u >>{told}\n")
        hook.chmod(0o755)
        (tree / "file").write_text("1")
        (tree / ODD).write_text("1")
        git = ["git", "-C", name, "-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (
            ["init", "-q"],
            ["add", "file", ODD],
            ["commit", "-qm", "x"],
            ["config", "core.fsmonitor", str(hook)],
            ["config", "core.quotePath", "false"],
        ):
            subprocess.run([*git, *command], check=True)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            subprocess.run(["chown", "-R", f"{nobody.pw_uid}:{nobody.pw_gid}", name], check=True)
        tree.chmod(0o755)
        yield tree


def test_git_runs_no_program_and_writes_nothing(tree: Path) -> None:
    # The index is stale now: to look at it is to write it, for whoever takes locks.
    os.utime(tree / "file", (1, 1))
    index = tree / ".git" / "index"
    before = index.stat()
    commit, dirty = git_revision(tree)
    assert commit is not None and len(commit) == 12 and dirty is False
    assert not (tree / "told").exists()
    after = index.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_uid) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_uid,
    )
    (tree / ODD).write_text("2")
    assert git_revision(tree)[1] is True


def test_outside_a_repository_nothing_is_known(tmp_path: Path) -> None:
    assert git_revision(tmp_path) == (None, None)
