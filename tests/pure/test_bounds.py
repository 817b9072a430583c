# SPDX-License-Identifier: GPL-2.0-only
"""Impossible options are refused before anything is set up. Reading the git revision runs no hook."""

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.base.errors import UsageError
from copyscope.base.programs import LimitError
from copyscope.commands import run as run_command
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage
from copyscope.run.build import git_revision

# A file name that is not valid UTF-8.
ODD = os.fsdecode(b"odd\xff")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--repeat", "1000000000"], "--repeat 1000000000: out of range; choose 1 to 1000"),
        (["--repeat", "0"], "--repeat 0: out of range; choose 1 to 1000"),
        (["--mtu", "1"], "--mtu 1: out of range; choose 68 to 65535"),
        (["--mtu", "65536"], "--mtu 65536: out of range; choose 68 to 65535"),
        (["--topology", "loopback", "--mtu", "65537"], "--mtu 65537: out of range; choose 68 to 65536"),
    ],
)
def test_options_out_of_range_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_usage(parser().parse_args(options))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("role", "options", "message"),
    [
        (
            "recv",
            ["--buffer", "1G", "--threads", "1024"],
            "--buffer: 1024 MiB in each of 1024 threads: needs 1048576 MiB",
        ),
        ("recv", ["--rcvbuf", "1"], "--rcvbuf 1: out of range; choose 4096 to"),
        ("send", ["--sndbuf", "4095"], "--sndbuf 4095: out of range; choose 4096 to"),
    ],
)
def test_traffic_program_refuses_impossible_options_at_once(
    role: str, options: list[str], message: str
) -> None:
    began = time.monotonic()
    argv = [str(paths.TRAFFIC), role, "--port", "1", *options, "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and message in done.stderr and done.stderr.count("\n") == 1
    assert time.monotonic() - began < 5


def test_timeout_of_the_option_check_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(_argv: list[str]) -> None:
        raise LimitError("late")

    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr("copyscope.plan.options.run_program", late)
    assert run_command.main(["--impl", "one_copy"]) == 1
    assert capsys.readouterr().err.endswith(
        ": no answer in 10 s; the machine is too busy: repeat when idle\n"
    )


@pytest.fixture
def tree() -> Iterator[Path]:
    """Yield a repository whose configuration makes git run a hook. As root, the owner is another user."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        hook, hook_output = tree / "hook", tree / "told"
        hook.write_text(f"#!/bin/sh\nid -u >>{hook_output}\n")
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


def test_git_revision_runs_no_hook_and_writes_nothing(tree: Path) -> None:
    # A stale index: `git status` would rewrite it, unless optional locks are off.
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


def test_outside_a_repository_the_revision_is_unknown(tmp_path: Path) -> None:
    assert git_revision(tmp_path) == (None, None)
