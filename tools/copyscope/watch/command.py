"""A command that is started to be watched: as the invoking user, held until the instruments are ready."""

import contextlib
import os
import pwd
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NoReturn, Self

from copyscope.errors import RunError
from copyscope.topology import invoking_user

# How long the command may take to end after it was told to.
PATIENCE_S = 2.0
RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class HeldCommand:
    """A child that waits for release() before it becomes the command.

    It stays in our process group and terminal, so that Ctrl-C reaches it as it would without us.
    """

    def __init__(self, argv: Sequence[str], *, output_to_stderr: bool = False) -> None:
        self.argv = tuple(argv)
        self.status: int | None = None
        gate_read, self._gate = os.pipe()
        self._failure, failure_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            os.close(self._failure)
            _become(self.argv, gate_read, failure_write, output_to_stderr)
        os.close(gate_read)
        os.close(failure_write)

    def release(self) -> None:
        """Let it run. Raises RunError with its errno when it cannot be started."""
        os.write(self._gate, b"g")
        self._close_gate()
        said = os.read(self._failure, 16)  # closed by a successful exec
        os.close(self._failure)
        self._failure = -1
        if said:
            os.waitpid(self.pid, 0)
            self.status = 127
            raise RunError(f"{self.argv[0]}: {os.strerror(int(said))}: the command could not be started")

    def poll(self) -> int | None:
        """Its exit status (128 + signal when one killed it), or None while it runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        return self.status

    def send(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, living: Callable[[], set[int]]) -> str:
        """Wait for its end; one that ignores what it was told is told to end, and in the end made to.

        `living` are the command and its followed children. Returns what had to be done, as the rest of a
        sentence.
        """
        done = ""
        for number, text in ((signal.SIGTERM, "was sent SIGTERM"), (signal.SIGKILL, "was killed")):
            if self._ends_within(PATIENCE_S, living):
                return done
            done += f"; {self.argv[0]} went on for {PATIENCE_S:.0f} s after that and {text}"
            for pid in living():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._ends_within(PATIENCE_S, living)
        return done

    def _ends_within(self, seconds: float, living: Callable[[], set[int]]) -> bool:
        until = time.monotonic() + seconds
        while self.poll() is None or living():
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing that we started outlives us; the conductor has asked politely before."""
        self._close_gate()
        if self.status is None and self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.status = 128 + signal.SIGKILL
        if self._failure >= 0:
            os.close(self._failure)
            self._failure = -1


def _become(argv: Sequence[str], gate: int, failure: int, output_to_stderr: bool) -> NoReturn:
    """In the child: wait, drop privileges, exec. Never returns."""
    try:
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        if output_to_stderr:
            os.dup2(2, 1)
        if os.read(gate, 1) != b"g":  # our parent has gone
            os._exit(127)
        user = invoking_user()
        if os.geteuid() == 0 and user.uid != 0:
            os.setgroups([])
            os.setgid(user.gid)
            if user.known:
                os.initgroups(pwd.getpwuid(user.uid).pw_name, user.gid)
            os.setuid(user.uid)
        os.execvp(argv[0], list(argv))
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    os._exit(127)
