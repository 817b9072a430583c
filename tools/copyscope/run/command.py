# SPDX-License-Identifier: GPL-2.0-only
"""Start a command to watch, as the invoking user, and note why a measurement ends.

copyscope passes signals on to the command. The first Ctrl-C or SIGTERM ends the measurement, but leaves the
command time to exit. A second signal sends SIGTERM to the command, and a third signal sends SIGKILL.
"""

import contextlib
import json
import os
import pwd
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

from copyscope.base.errors import AbandonedError, NotStartedError
from copyscope.base.process import environment_of_caller
from copyscope.machine.topology import environment_of, invoking_user
from copyscope.run import processes

# Destination of the command's output: our streams, our stderr if copyscope uses stdout, or a file if
# copyscope uses the screen.
Output = Literal["own", "stderr", "kept"]
READ_BYTES = 1 << 16
# Interval in seconds at which the output of the command is shown while we wait for its exit.
SHOW_INTERVAL_S = 0.25
WAIT_S = 60.0
STARTER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("command_start.py")))
END_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Many programs do not exit on SIGHUP but read their configuration again.
FORWARDED_SIGNALS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Number of signals after which copyscope ends without a report.
SIGNALS_TO_ABANDON = 3


class Command:
    """Child process that waits for release() before it executes the command.

    The child stays in our process group and on our terminal, so Ctrl-C reaches the command as if copyscope
    were not there. copyscope never ends a released command by itself, whatever happens to the measurement.
    """

    def __init__(self, argv: Sequence[str], output: Output = "own") -> None:
        """Start the child, which does not execute the command yet. `output`: where its output goes."""
        self.argv = tuple(argv)
        # Holds stdout and stderr of the command, in order, while the terminal shows something else.
        self._kept_output = tempfile.TemporaryFile() if output == "kept" else None  # noqa: SIM115 (open for life)
        self._shown_bytes = 0
        self.status: int | None = None
        # CPU time in ns of the command and of the children that it waited for, once it has exited.
        self.used_ns = 0
        go_read, self._go = os.pipe()
        self._failure, failure_write = os.pipe()
        for fd in (go_read, failure_write):
            os.set_inheritable(fd, True)
        sys.stdout.flush()
        sys.stderr.flush()
        streams = [(os.POSIX_SPAWN_DUP2, 2, 1)] if output == "stderr" else []
        if self._kept_output is not None:
            streams = [(os.POSIX_SPAWN_DUP2, self._kept_output.fileno(), number) for number in (1, 2)]
        argv_of_starter = [*STARTER, str(go_read), str(failure_write), *self.argv]
        self.pid = os.posix_spawn(STARTER[0], argv_of_starter, os.environ, file_actions=streams)
        os.close(go_read)
        os.close(failure_write)
        # Wait until the starter runs. If the starter was killed before, the pipe is closed and the read
        # returns.
        os.read(self._failure, 1)

    def release(self) -> None:
        """Let the command run. Raises NotStartedError if the command cannot be executed."""
        unwritten = memoryview(_start_options())
        with contextlib.suppress(BrokenPipeError):  # the starter was killed meanwhile
            while unwritten:
                unwritten = unwritten[os.write(self._go, unwritten) :]
        self._close_go()
        errno_text = os.read(self._failure, 16)  # closed by a successful exec
        os.close(self._failure)
        self._failure = -1
        if errno_text:
            os.waitpid(self.pid, 0)
            self.status = 127
            raise NotStartedError(self.argv[0], int(errno_text))

    @property
    def released(self) -> bool:
        """True once the command may run. From then on, only the user may end the command."""
        return self._go < 0

    def poll(self) -> int | None:
        """Return the exit status of the command (128 + N if signal N killed it), or None while it runs."""
        if self.status is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
                self.used_ns = round((used.ru_utime + used.ru_stime) * 1e9)
        return self.status

    def send(self, number: int, children: Callable[[], set[int]] = set) -> None:
        """Send signal `number` to the command if it still runs, and to the processes from `children`().

        Before release() the signal is dropped, because the command that could handle it does not run yet.
        """
        if not self.released or self.status is not None:
            return
        processes.signal_all(number, lambda: {self.pid, *children()})

    def wait(self, sleep: Callable[[float, int], object]) -> int | None:
        """Wait until the command exits; return its exit status, or None if it was never released.

        `sleep(seconds, pid)` waits for that time, or until the process exits.
        """
        if not self.released:
            return None
        while (status := self.poll()) is None:
            sleep(SHOW_INTERVAL_S if self._kept_output is not None else WAIT_S, self.pid)
            self.show()
        self.show()
        return status

    def show(self) -> None:
        """Print to our stderr the command's saved output since the last call."""
        if self._kept_output is None:
            return
        # pread(), because the command shares our file offset.
        while chunk := os.pread(self._kept_output.fileno(), READ_BYTES, self._shown_bytes):
            self._shown_bytes += len(chunk)
            sys.stderr.buffer.write(chunk)
        sys.stderr.flush()

    def _close_go(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the child process if the command was never released. A released command continues."""
        if not self.released:
            self._close_go()
            if self.poll() is None:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.status = 128 + signal.SIGKILL
        self.poll()
        self.show()
        if self._failure >= 0:
            os.close(self._failure)
            self._failure = -1


def _start_options() -> bytes:
    """Return the line that command_start.py reads: the user and environment of the command, as JSON."""
    user, environment = invoking_user(), environment_of_caller(os.environ)
    identity: dict[str, int | str | None] = {"uid": None, "gid": None, "name": None}
    if os.geteuid() == 0 and user.uid != 0:
        name = pwd.getpwuid(user.uid).pw_name if user.has_passwd_entry else None
        identity = {"uid": user.uid, "gid": user.gid, "name": name}
        environment.update(environment_of(user))
    return json.dumps({**identity, "environment": environment}).encode() + b"\n"


class Stop:
    """First reason to end the measurement. Handles signals, which also interrupt its sleep()."""

    def __init__(self) -> None:
        """Open a pair of sockets through which a signal wakes sleep()."""
        # First reason why the measurement ends; None while it continues.
        self.reason: str | None = None
        # True once the report is being written: from this moment on, signals only end the command.
        self.measured = False
        self._signals = 0
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    def because(self, reason: str) -> None:
        """End the measurement for this reason, unless another reason was given earlier."""
        self.reason = self.reason or reason

    def sleep(self, seconds: float, pid: int | None = None) -> bool:
        """Sleep until the time is up, a signal arrives or process `pid` exits.

        Return True if the process may have exited. A pidfd reports the exit without reading /proc, which
        takes CPU time from the watched process (pidfd_open(2)).
        """
        try:
            pidfd = None if pid is None else os.pidfd_open(pid)
        except OSError:
            return True
        try:
            woken = self._woken.fileno()
            descriptors = [woken] if pidfd is None else [woken, pidfd]
            ready, _, _ = select.select(descriptors, [], [], max(0.0, seconds))
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            return pidfd in ready
        finally:
            if pidfd is not None:
                os.close(pidfd)

    def listen(self, command: Command | None, children: Callable[[], set[int]]) -> Callable[[], None]:
        """Let signals end the measurement cleanly. Return a function that restores the old handlers.

        `command`: command to which signals are passed on, or None. `children`: returns its child processes.
        """
        end_signals = END_SIGNALS if command is not None else (*END_SIGNALS, signal.SIGHUP, signal.SIGQUIT)
        signals = (*END_SIGNALS, *FORWARDED_SIGNALS) if command is not None else end_signals
        # nohup(1) makes SIGHUP ignored, because the user wants the run to continue.
        handled = [n for n in signals if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
        self._before = {number: signal.getsignal(number) for number in handled}
        in_foreground = is_in_foreground()
        before_wakeup = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

        def on_signal(number: int, _frame: object) -> None:
            """Pass a signal on to the command, and end the measurement if the signal is in `end_signals`."""
            self._signals += number in end_signals
            if command is not None:
                if number in end_signals and self._signals > 1:
                    command.send(signal.SIGTERM if self._signals == 2 else signal.SIGKILL, children)
                elif number != signal.SIGINT or not in_foreground:
                    # Ctrl-C on a terminal has already reached the command.
                    command.send(number)
            if number in end_signals:
                reason = (
                    "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
                )
                self.because(reason)
            if self._signals >= SIGNALS_TO_ABANDON and (command is None or not self.measured):
                raise AbandonedError

        def undo() -> None:
            signal.set_wakeup_fd(before_wakeup)
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._woken.close()
            self._waker.close()

        for number in handled:
            signal.signal(number, on_signal)
        return undo

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Restore the earlier signal handlers during the body of the `with`, for another long task."""
        ours = {number: signal.signal(number, handler) for number, handler in self._before.items()}
        try:
            yield
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)


def is_in_foreground() -> bool:
    """Return True if Ctrl-C on the terminal reaches copyscope and its command."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
