# SPDX-License-Identifier: GPL-2.0-only
"""Programs of the system that copyscope runs: each has limits of time and output, and errors name it."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.base.programs import LimitError, StartedProgram, program_name, read_line, run_program
from copyscope.machine.topology import Namespace, TopologyError, namespace
from copyscope.machine.topology.links import parse_links
from copyscope.run import build
from copyscope.run import path as program_path
from copyscope.run.processes import is_alive
from test_house import MODULES, PACKAGE, imports


def test_only_listed_files_start_programs() -> None:
    """base/programs.py runs short programs. The other files start programs that run as long as a measurement.

    fleet/library/ is copied to other machines, where base/programs.py is missing.
    """
    starters = {str(path.relative_to(PACKAGE)) for path in MODULES if "subprocess" in imports(path)}
    assert starters == {
        "base/programs.py",
        "fleet/ansible.py",
        "fleet/library/copyscope_ask.py",
        "machine/hosts.py",
        "run/child.py",
        "run/perf_stat.py",
        "run/simulate/boot.py",
        "machine/topology/namespace.py",
    }
    assert not [path.name for path in MODULES if "subprocess.run(" in path.read_text(encoding="utf-8")]


def test_run_program_returns_output_and_exit_status() -> None:
    done = run_program(["sh", "-c", "cat; echo no >&2; exit 3"], stdin_data=b"x" * (1 << 20))
    assert (done.status, done.output, done.complaint) == (3, b"x" * (1 << 20), "no")
    assert (
        run_program(["head", "-c", "1"], stdin_data=b"y" * (1 << 20)).text == "y"
    )  # head exits before it has read its input
    assert run_program(["printf", "\\377"]).text == "\ufffd"
    with pytest.raises(FileNotFoundError):
        run_program(["/no/such/program"])


def has_exited(pid: int) -> bool:
    """Return True once a process has exited, after waiting for at most five seconds."""
    until = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(pid)


def test_program_beyond_its_time_limit_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"trap '' TERM; sleep 60 & echo $! >{pid}; wait; wait"
    began = time.monotonic()
    with pytest.raises(LimitError) as raised:
        run_program(["sh", "-c", script], limit_s=0.3)
    assert time.monotonic() - began < 5 and has_exited(int(pid.read_text()))
    message = str(raised.value)
    assert message.startswith(
        "sh: did not end within 0.3 s, and was stopped; run the program by hand to find the cause: sh -c "
    )


def test_program_that_prints_endlessly_is_killed() -> None:
    for argv in (["yes"], ["sh", "-c", "exec yes >&2"]):
        with pytest.raises(
            LimitError, match=r"^(yes|sh): printed more than 1 MiB, and was stopped; run the program by hand"
        ):
            run_program(argv, output_max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/sbin/ip", "link"], "ip"),
        (["nsenter", "--net=/proc/1/ns/net", "--", "ethtool", "-k", "x"], "ethtool"),
        (
            ["sudo", "-n", "--", "nsenter", "--net=x", "--", "setpriv", "--reuid=1", "--", "git", "--", "."],
            "git",
        ),
        (["ssh", "-o", "x", "--", "host", "true"], "ssh"),
    ],
)
def test_program_behind_a_wrapper_is_named(argv: list[str], name: str) -> None:
    assert program_name(argv) == name


def test_ctrl_c_ends_the_program_that_is_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "from copyscope.base.programs import run_program\n"
        f"run_program(['sh', '-c', 'echo $$ >{pid}; exec sleep 60'])"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", code], stderr=subprocess.DEVNULL) as asking:
        until = time.monotonic() + 20
        while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        asking.send_signal(signal.SIGINT)
        assert asking.wait(10) != 0
    assert has_exited(int(pid.read_text()))


def test_ctrl_c_during_the_start_of_a_program_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT arrives after the program has started, but before Popen() has returned."""
    started: list[int] = []
    popen = subprocess.Popen

    def start(*words: Any, **options: Any) -> Any:
        process = popen(*words, **options)
        started.append(process.pid)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_program(["sleep", "60"])
    assert has_exited(started[0]) and signal.getsignal(signal.SIGINT) is handler


def test_lines_of_a_running_program_have_limits_of_time_and_length() -> None:
    with subprocess.Popen(["sh", "-c", "echo a; exec sleep 60"], stdout=subprocess.PIPE) as going:
        assert going.stdout is not None
        assert read_line(going.stdout) == b"a\n"
        with pytest.raises(TimeoutError, match=r"no answer within 0.1 s"):
            read_line(going.stdout, 0.1)
        going.kill()
    with subprocess.Popen(["sh", "-c", "exec yes | tr -d '\\n'"], stdout=subprocess.PIPE) as going:
        assert going.stdout is not None
        assert 4096 <= len(read_line(going.stdout)) <= 8192
        going.kill()


def fake(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that puts a script with a given name at the front of PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return partial(fake, tmp_path)


def test_hanging_ip_is_an_error_of_one_line(
    fakes: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes("ip", "exec sleep 60")
    monkeypatch.setattr(namespace, "LIMIT_S", 0.2)
    with pytest.raises(
        TopologyError, match=r"^ip: did not end within 0.2 s, and was stopped; run the program by hand"
    ):
        namespace.run_together(
            [namespace.NamespaceCommand(("true",), ""), namespace.NamespaceCommand(("ip", "link"), "")]
        )


def test_garbage_printed_by_ip_is_an_error_or_an_unknown_path(
    fakes: Callable[[str, str], None],
) -> None:
    for text in ("\x00", "[1]", '[{"ifname": 1}]', "[" * 100_000):
        with pytest.raises(TopologyError, match=r"^ip -j: the output cannot be parsed; update ip"):
            parse_links(text)
    fakes("nsenter", "printf '\\377{'")
    path = program_path.describe(
        program_path.TargetNamespace(Path("/proc/self/ns/net"), None), [], {"192.0.2.1": "x"}
    )
    assert path.kind == "no path seen" and path.peers[0].local is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("printf '\\377\\n'; exec cat", "the holder process printed"),
        ("echo no >&2; printf '\\377' >&2; exit 1", "no; \ufffd"),
        ("exit 1", "the holder process ended"),
        ("exec sleep 60", "no answer within 0.2 s"),
        ("exec yes | tr -d '\\n'", "the holder process printed"),
    ],
)
def test_unexpected_output_of_unshare_is_an_error_of_one_line(
    script: str, message: str, fakes: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes("unshare", script)
    monkeypatch.setattr("copyscope.machine.topology.namespace.LIMIT_S", 0.2 if "sleep" in script else 10.0)
    with Namespace() as empty_namespace, pytest.raises(TopologyError, match=r"^unshare --net: ") as raised:
        empty_namespace.wait_ready()
    assert message in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_hanging_git_gives_one_line_and_no_revision(
    fakes: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes("git", "exec sleep 60")
    monkeypatch.setattr(build, "StartedProgram", partial(StartedProgram, limit_s=0.2))
    assert build.git_revision(paths.ROOT) == (None, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "copyscope: git: did not end within 0.2 s, and was stopped; run the program by hand"
    )


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree in which make has nothing to build, and takes 0.3 s to find out."""
    (tmp_path / "Makefile").write_text("artifacts:\n\t@sleep 0.3\n")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", False)
    monkeypatch.setattr(build, "SILENT_TIME_S", 0.1)
    return tmp_path


HOLD = """
import fcntl, sys, time
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
open("/proc/self/comm", "w").write("holds-it")
print(flush=True)
sys.stdin.read()
"""


def test_build_waits_for_the_lock_and_names_its_holder(tree: Path) -> None:
    lock, messages = str(tree / "Makefile"), []
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, lock], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline()

        def say(line: str) -> None:
            messages.append(line)
            if len(messages) == 1:
                holder.stdin.close()  # type: ignore[union-attr]

        build.build_if_stale(say)
    first, second = messages
    who = f"process {holder.pid} (holds-it)"
    expected = f"{lock}: waiting for {who}, which builds here (Ctrl-C ends the wait)"
    assert first in (
        expected,
        expected.replace(who, "another process"),
    )  # on some file systems, the kernel lists no locks
    assert second == "building programs whose sources changed (make)"
    with (tree / "Makefile").open("rb") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the lock was not released
