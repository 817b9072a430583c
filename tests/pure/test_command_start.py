# SPDX-License-Identifier: GPL-2.0-only
"""A watched command belongs to the user: it survives copyscope, and gets the user's signals and home."""

import os
import pwd
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from copyscope.machine.topology import WorkloadUser, environment_of, invoking_user
from copyscope.run.command import Command
from copyscope.run.processes import is_alive, processes_named, signal_all
from copyscope.run.target import WatchTarget


def sleep(seconds: float, _pid: int) -> None:
    time.sleep(min(seconds, 0.05))


def children_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def test_running_command_survives_an_exception_in_copyscope(tmp_path: Path) -> None:
    done = tmp_path / "done"
    command = Command(["sh", "-c", f"sleep 0.5; touch {done}"])
    with pytest.raises(RuntimeError, match="of ours"), command:
        command.release()
        raise RuntimeError("of ours")
    assert command.wait(sleep) == 0 and done.exists()


def test_cpu_time_of_the_command_excludes_other_children() -> None:
    burn = [sys.executable, "-c", "import time\nwhile time.process_time() < {}: pass"]
    before_ns = children_ns()
    with Command(["sh", "-c", shlex.join([*burn[:2], burn[2].format(0.3)])]) as command:
        command.release()
        subprocess.run([*burn[:2], burn[2].format(0.1)], check=True)
        assert command.wait(sleep) == 0
    # used_ns includes children that the command has waited for.
    assert 0.3e9 <= command.used_ns < 0.6e9
    assert 0.1e9 <= children_ns() - before_ns - command.used_ns < 0.3e9


def test_command_that_was_not_released_never_runs(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with Command(["touch", str(done)]) as command:
        pass
    assert not is_alive(command.pid) and not done.exists()


def test_command_gets_the_signal_dispositions_that_copyscope_was_started_with(tmp_path: Path) -> None:
    """Python ignores SIGPIPE. If the command inherited that, `yes | head` would not end."""
    file = tmp_path / "status"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup sets it
    try:
        with Command(["sh", "-c", f"grep SigIgn: /proc/self/status >{file}"]) as command:
            command.release()
            assert command.wait(sleep) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    ignored = int(file.read_text().split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1)) and not ignored & (1 << (signal.SIGXFSZ - 1))
    assert ignored & (1 << (signal.SIGHUP - 1))


def test_command_is_started_without_forking_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of a process with threads may deadlock; Python 3.12 warns of it."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    odd = os.fsdecode(b"\xff\n\0"[:2])
    # A variable that is larger than the buffer of a pipe.
    monkeypatch.setenv("LONG", odd + "x" * 100_000)
    file = tmp_path / "said"
    # Descriptors that pytest was started with.
    ours = {
        str(descriptor.readlink())
        for descriptor in Path("/proc/self/fd").iterdir()
        if descriptor.is_symlink()
    }
    script = f'printf "%s" "${{#LONG}} $LONG $1 $(cat /proc/$$/comm)" >{file}; ls -l /proc/$$/fd >{file}.fds'
    with Command(["/bin/sh", "-c", script, "sh", odd]) as command:
        before = Path(f"/proc/{command.pid}/comm").read_text()
        command.release()
        assert command.wait(sleep) == 0
    assert before == "sh\n"
    long = os.fsencode(odd) + b"x" * 100_000
    lengths = (
        str(len(long)).encode(),
        str(len(odd) + 100_000).encode(),
    )  # a shell counts bytes or characters
    assert file.read_bytes() in [b"%s %s %s sh" % (length, long, os.fsencode(odd)) for length in lengths]
    # The command does not inherit the pipes that copyscope uses to start it.
    pipes = set(re.findall(r"pipe:\[\d+\]", Path(f"{file}.fds").read_text()))
    assert pipes <= ours


def test_process_that_reuses_a_pid_gets_no_signal() -> None:
    """Between two readings of /proc a process may exit, and another process may get its pid."""
    sleeping = ["sleep", "60"]
    with subprocess.Popen(sleeping) as child, subprocess.Popen(sleeping) as other:
        looks = [{child.pid, other.pid}, {child.pid}]
        signal_all(signal.SIGKILL, lambda: looks.pop(0))
        assert child.wait(10) == -signal.SIGKILL and is_alive(other.pid)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        signal_all(signal.SIGKILL, lambda: {child.pid, 2**22 - 3, other.pid})
        assert other.wait(10) == -signal.SIGKILL
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_signals_reach_the_command_and_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"trap '' TERM; (trap '' TERM; echo started >{pid}; sleep 60; sleep 60) & while :; do wait; done"
    with Command(["sh", "-c", script]) as command:
        command.release()
        while not pid.exists():
            time.sleep(0.02)
        target = WatchTarget(how="pid", pids=(command.pid,))
        children = target.find_processes(set()) - {command.pid}
        assert children
        command.send(signal.SIGKILL, lambda: target.find_processes(set()))
        assert command.wait(sleep) == 128 + signal.SIGKILL
    until = time.monotonic() + 5
    while any(map(is_alive, children)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(is_alive, children))


def test_environment_names_the_home_of_the_invoking_user() -> None:
    root = pwd.getpwuid(0)
    assert environment_of(invoking_user({"SUDO_UID": "0", "SUDO_GID": "0"})) == {
        "HOME": root.pw_dir,
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": root.pw_shell,
    }
    unknown = environment_of(WorkloadUser(4242424, 4242424, has_passwd_entry=False))
    assert unknown == {"HOME": "/", "USER": "4242424", "LOGNAME": "4242424"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_under_sudo_the_command_gets_the_home_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(nobody.pw_uid))
    monkeypatch.setenv("SUDO_GID", str(nobody.pw_gid))
    monkeypatch.setenv("HOME", "/root")
    wanted = f'test "$HOME $USER $LOGNAME $(id -u)" = "{nobody.pw_dir} nobody nobody {nobody.pw_uid}"'
    with Command(["sh", "-c", wanted]) as command:
        command.release()
        assert command.wait(sleep) == 0


def test_copyscope_and_its_children_are_not_watched() -> None:
    """Neither a name shared with the target nor a common parent makes copyscope a watched process."""
    name = Path("/proc/self/comm").read_text().rstrip("\n")
    namesake = f"open('/proc/self/comm', 'w').write({name!r}); import time; time.sleep(20)"
    helper = subprocess.Popen([sys.executable, "-c", namesake])
    # A grandchild of copyscope, started by a shell, is watched.
    shell = subprocess.Popen(
        ["sh", "-c", f'"{sys.executable}" -c "{namesake}" & echo $!; wait'], stdout=subprocess.PIPE, text=True
    )
    try:
        assert shell.stdout is not None
        other = int(shell.stdout.readline())
        deadline = time.monotonic() + 10
        target = WatchTarget(how="comm", comm=name)
        while other not in (watched_pids := target.find_processes(set())) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert other in watched_pids and not watched_pids & {os.getpid(), helper.pid}
        family = WatchTarget(how="pid", pids=(os.getppid(),)).find_processes(set())
        assert os.getppid() in family and not family & {os.getpid(), helper.pid, other}
    finally:
        os.kill(other, signal.SIGKILL)
        for process in (helper, shell):
            process.kill()
            process.wait()


def test_long_process_name_is_truncated_like_in_the_kernel(tmp_path: Path) -> None:
    """The kernel keeps 15 bytes of a name, even if that splits a letter."""
    name = "läufer-über-ähnlich"
    assert len(b := name.encode()[:15]) == 15 and b.decode(errors="ignore") == "läufer-über-"
    program = tmp_path / name
    shutil.copy("/bin/sleep", program)
    # A shell starts the program, because direct children of copyscope are not watched.
    started = ["sh", "-c", '"$0" 20 & echo $!; wait', str(program)]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            deadline = time.monotonic() + 10
            while pid not in (named_pids := processes_named(name)) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert named_pids == {pid}
        finally:
            os.kill(pid, signal.SIGKILL)


def test_parent_of_copyscope_is_not_watched_by_name() -> None:
    """`copyscope fleet` starts copyscope from a Python process, which waits for its output."""
    ask = "from copyscope.run.processes import processes_named; print(sorted(processes_named('starts-us')))"
    starter = (
        "import subprocess, sys; open('/proc/self/comm', 'w').write('starts-us')\n"
        f"subprocess.run([sys.executable, '-P', '-c', {ask!r}], check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", starter], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"
