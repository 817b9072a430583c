"""Programs of others that are asked something: each has a limit of time and of words, and is named."""

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
from copyscope import paths
from copyscope.asking import Asked, LimitError, ask, line_of, named
from copyscope.run import build
from copyscope.run import path as program_path
from copyscope.run.processes import is_alive
from copyscope.topology import Namespace, TopologyError, shell
from copyscope.topology.inspection import parse_links
from test_house import MODULES, PACKAGE, imports


def test_all_that_are_asked_something_are_asked_in_one_place() -> None:
    """The others go on for as long as a run, and are spoken to; library/ is sent to another machine."""
    starters = {str(path.relative_to(PACKAGE)) for path in MODULES if "subprocess" in imports(path)}
    assert starters == {
        "asking.py",
        "crosscheck/peer.py",
        "fleet/ansible.py",
        "fleet/library/copyscope_ask.py",
        "hosts/far.py",
        "run/child.py",
        "run/perf_stat.py",
        "simulate/guest.py",
        "topology/namespace.py",
    }
    assert not [path.name for path in MODULES if "subprocess.run(" in path.read_text(encoding="utf-8")]


def test_an_answer_is_all_that_it_printed_and_how_it_ended() -> None:
    done = ask(["sh", "-c", "cat; echo no >&2; exit 3"], said=b"x" * (1 << 20))
    assert (done.status, done.output, done.complaint) == (3, b"x" * (1 << 20), "no")
    assert ask(["head", "-c", "1"], said=b"y" * (1 << 20)).text == "y"  # it does not read to the end
    assert ask(["printf", "\\377"]).text == "\ufffd"
    with pytest.raises(FileNotFoundError):
        ask(["/no/such/program"])


def gone(pid: int) -> bool:
    until = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(pid)


def test_who_takes_too_long_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"trap '' TERM; sleep 60 & echo $! >{pid}; wait; wait"
    began = time.monotonic()
    with pytest.raises(LimitError) as raised:
        ask(["sh", "-c", script], limit_s=0.3)
    assert time.monotonic() - began < 5 and gone(int(pid.read_text()))
    said = str(raised.value)
    assert said.startswith(
        "sh: no end within 0.3 s, and was ended: run it by hand to see what it waits for: sh -c "
    )


def test_who_says_without_end_is_ended() -> None:
    for argv in (["yes"], ["sh", "-c", "exec yes >&2"]):
        with pytest.raises(
            LimitError, match=r"^(yes|sh): printed more than 1 MiB, and was ended: run it by hand"
        ):
            ask(argv, most_bytes=1 << 20)


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
def test_of_what_only_starts_another_the_other_is_named(argv: list[str], name: str) -> None:
    assert named(argv) == name


def test_ctrl_c_ends_whoever_is_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"from copyscope.asking import ask; ask(['sh', '-c', 'echo $$ >{pid}; exec sleep 60'])"
    with subprocess.Popen([sys.executable, "-P", "-c", code], stderr=subprocess.DEVNULL) as asking:
        until = time.monotonic() + 20
        while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        asking.send_signal(signal.SIGINT)
        assert asking.wait(10) != 0
    assert gone(int(pid.read_text()))


def test_ctrl_c_while_it_is_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the program runs and nobody has it yet."""
    started: list[int] = []
    popen = subprocess.Popen

    def start(*words: Any, **options: Any) -> Any:
        made = popen(*words, **options)
        started.append(made.pid)
        os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(subprocess, "Popen", start)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ask(["sleep", "60"])
    assert gone(started[0]) and signal.getsignal(signal.SIGINT) is handler


def test_a_line_of_one_that_goes_on_has_its_time_and_its_length() -> None:
    with subprocess.Popen(["sh", "-c", "echo a; exec sleep 60"], stdout=subprocess.PIPE) as going:
        assert going.stdout is not None
        assert line_of(going.stdout) == b"a\n"
        with pytest.raises(TimeoutError, match=r"no answer within 0.1 s"):
            line_of(going.stdout, 0.1)
        going.kill()
    with subprocess.Popen(["sh", "-c", "exec yes | tr -d '\\n'"], stdout=subprocess.PIPE) as going:
        assert going.stdout is not None
        assert 4096 <= len(line_of(going.stdout)) <= 8192
        going.kill()


def fake(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Programs of that name and with that script are found first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return partial(fake, tmp_path)


def test_an_ip_that_hangs_is_one_line_of_its_topology(
    fakes: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes("ip", "exec sleep 60")
    monkeypatch.setattr(shell, "LIMIT_S", 0.2)
    with pytest.raises(
        TopologyError, match=r"^topology: ip: no end within 0.2 s, and was ended: run it by hand"
    ):
        shell.run_together([shell.Command(("true",), ""), shell.Command(("ip", "link"), "")])


def test_an_ip_that_prints_garbage_is_one_line_and_of_a_watched_program_unknown(
    fakes: Callable[[str, str], None],
) -> None:
    for text in ("\x00", "[1]", '[{"ifname": 1}]', "[" * 100_000):
        with pytest.raises(
            TopologyError, match=r"^topology: ip -j: what it printed cannot be read: update ip"
        ):
            parse_links(text)
    fakes("nsenter", "printf '\\377{'")
    found = program_path.describe(
        program_path.Namespace(Path("/proc/self/ns/net"), None), [], {"192.0.2.1": "x"}
    )
    assert found["kind"] == "no path seen" and found["peers"][0]["local"] is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("printf '\\377\\n'; exec cat", "it said"),
        ("echo no >&2; printf '\\377' >&2; exit 1", "no; \ufffd"),
        ("exit 1", "the holder process ended"),
        ("exec sleep 60", "no answer within 0.2 s"),
        ("exec yes | tr -d '\\n'", "it said"),
    ],
)
def test_an_unshare_that_says_something_else_is_one_line(
    script: str, said: str, fakes: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes("unshare", script)
    monkeypatch.setattr("copyscope.topology.namespace.LIMIT_S", 0.2 if "sleep" in script else 10.0)
    with Namespace() as made, pytest.raises(TopologyError, match=r"^topology: unshare --net: ") as raised:
        made.wait_ready()
    assert said in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_a_git_that_hangs_is_one_line_and_no_revision(
    fakes: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes("git", "exec sleep 60")
    monkeypatch.setattr(build, "Asked", partial(Asked, limit_s=0.2))
    assert build.git_revision(paths.ROOT) == (None, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("copyscope: git: no end within 0.2 s, and was ended: run it by hand")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of which nothing is to be built."""
    (tmp_path / "Makefile").write_text("artifacts:\n\t@sleep 0.3\n")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", False)
    monkeypatch.setattr(build, "SILENT_S", 0.1)
    return tmp_path


HOLD = """
import fcntl, sys, time
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
open("/proc/self/comm", "w").write("holds-it")
print(flush=True)
sys.stdin.read()
"""


def test_who_has_locked_the_makefile_is_said_and_waited_for(tree: Path) -> None:
    lock, said = str(tree / "Makefile"), []
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, lock], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline()

        def say(line: str) -> None:
            said.append(line)
            if len(said) == 1:
                holder.stdin.close()  # type: ignore[union-attr]

        build.build_if_stale(say)
    first, second = said
    who = f"process {holder.pid} (holds-it)"
    known = f"{lock}: locked by {who}, which builds here: waiting (Ctrl-C ends this)"
    assert first in (known, known.replace(who, "another process"))  # of some file systems nothing is listed
    assert second == "building what has changed, or was never built (make)"
    with (tree / "Makefile").open("rb") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it was given back
