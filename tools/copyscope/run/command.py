"""A command that is started to be watched, as the invoking user; and why a run beside a program ends.

Signals that mean the command reach it. The first Ctrl-C or SIGTERM ends the measurement, and the command gets
it once: how long that then takes to end is its own business. A second signal asks it to end, a third one ends
it.
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

from copyscope.environment import of_caller
from copyscope.errors import AbandonedError, NotStartedError
from copyscope.run import processes
from copyscope.topology import environment_of, invoking_user

# Where a command prints: as we do, to our stderr (stdout is taken), or into a file (the screen is taken).
Output = Literal["own", "stderr", "kept"]
CHUNK_BYTES = 1 << 16
# How soon one sees what the command prints while we wait for its end.
SHOW_EVERY_S = 0.25
SLEEP_S = 60.0
STARTER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("command_start.py")))
ENDING = (signal.SIGINT, signal.SIGTERM)
# To many programs SIGHUP is no end: they read their configuration again.
PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# A user who asks that often does not want a report.
PATIENCE = 3


class Command:
    """A child that waits for release() before it becomes the command.

    It stays in our process group and terminal, so that Ctrl-C reaches it as it would without us. Once it was
    released it is the user's: whatever becomes of us or of the measurement, nothing here ends it.
    """

    def __init__(self, argv: Sequence[str], output: Output = "own") -> None:
        self.argv = tuple(argv)
        # What it prints while the terminal shows something else: stdout and stderr in its order.
        self._printed = tempfile.TemporaryFile() if output == "kept" else None  # noqa: SIM115 - as long as we
        self._shown_bytes = 0
        self.status: int | None = None
        # CPU time at its end, with that of its children that it has waited for.
        self.used_ns = 0
        go_read, self._go = os.pipe()
        self._failure, failure_write = os.pipe()
        for theirs in (go_read, failure_write):
            os.set_inheritable(theirs, True)
        sys.stdout.flush()
        sys.stderr.flush()
        streams = [(os.POSIX_SPAWN_DUP2, 2, 1)] if output == "stderr" else []
        if self._printed is not None:
            streams = [(os.POSIX_SPAWN_DUP2, self._printed.fileno(), number) for number in (1, 2)]
        argv_of_starter = [*STARTER, str(go_read), str(failure_write), *self.argv]
        self.pid = os.posix_spawn(STARTER[0], argv_of_starter, os.environ, file_actions=streams)
        os.close(go_read)
        os.close(failure_write)
        # It has started before anybody measures it; one that was ended meanwhile says nothing.
        os.read(self._failure, 1)

    def release(self) -> None:
        """Let it run. Raises NotStartedError with its errno when it cannot be started."""
        left = memoryview(_word())
        with contextlib.suppress(BrokenPipeError):  # it was ended before it began
            while left:
                left = left[os.write(self._go, left) :]
        self._close_go()
        said = os.read(self._failure, 16)  # closed by a successful exec
        os.close(self._failure)
        self._failure = -1
        if said:
            os.waitpid(self.pid, 0)
            self.status = 127
            raise NotStartedError(self.argv[0], int(said))

    @property
    def released(self) -> bool:
        """Whether it may run: nobody's but the user's from then on."""
        return self._go < 0

    def poll(self) -> int | None:
        """Its exit status (128 + signal when one killed it), or None while it runs."""
        if self.status is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
                self.used_ns = round((used.ru_utime + used.ru_stime) * 1e9)
        return self.status

    def send(self, number: int, children: Callable[[], set[int]] = set) -> None:
        """A signal, while it runs; before that there is nobody yet who could do something about it."""
        if not self.released or self.status is not None:
            return
        processes.signal_all(number, lambda: {self.pid, *children()})

    def wait(self, sleep: Callable[[float, int], object]) -> int | None:
        """Its exit status, however long it takes; None of one that was never released.

        `sleep`: for so long, or until this process ends.
        """
        if not self.released:
            return None
        while (status := self.poll()) is None:
            sleep(SHOW_EVERY_S if self._printed is not None else SLEEP_S, self.pid)
            self.show()
        self.show()
        return status

    def show(self) -> None:
        """What it has printed into a file since the last time, on our stderr."""
        if self._printed is None:
            return
        # Read at an offset of our own: the file's is the command's.
        while chunk := os.pread(self._printed.fileno(), CHUNK_BYTES, self._shown_bytes):
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
        """One that was never released ends here; any other lives as long as it likes."""
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


def _word() -> bytes:
    """As whom the command begins, and in which environment (command_start.py)."""
    user, environment = invoking_user(), of_caller(os.environ)
    how: dict[str, int | str | None] = {"uid": None, "gid": None, "name": None}
    if os.geteuid() == 0 and user.uid != 0:
        name = pwd.getpwuid(user.uid).pw_name if user.known else None
        how = {"uid": user.uid, "gid": user.gid, "name": name}
        environment.update(environment_of(user))
    return json.dumps({**how, "environment": environment}).encode() + b"\n"


class Stop:
    """The reason, once there is one; the first counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        # With the report on its way only the command is left to be ended.
        self.measured = False
        self._asked = 0
        self._told, self._tell = socket.socketpair()
        self._told.setblocking(False)
        self._tell.setblocking(False)

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason

    def sleep(self, seconds: float, pid: int | None = None) -> bool:
        """Until the time is over, a signal arrives or the process ends. Returns whether that one may have.

        Nothing is looked at meanwhile: /proc takes CPU time from the watched program (pidfd_open(2)).
        """
        try:
            life = None if pid is None else os.pidfd_open(pid)
        except OSError:
            return True
        try:
            told = self._told.fileno()
            waiting = [told] if life is None else [told, life]
            ready, _, _ = select.select(waiting, [], [], max(0.0, seconds))
            if told in ready:
                with contextlib.suppress(BlockingIOError):
                    self._told.recv(4096)
            return life in ready
        finally:
            if life is not None:
                os.close(life)

    def listen(self, command: Command | None, children: Callable[[], set[int]]) -> Callable[[], None]:
        """From now on signals end the measurement in order. Returns what undoes this."""
        ending = ENDING if command is not None else (*ENDING, signal.SIGHUP)
        both = (*ENDING, *PASSED_ON) if command is not None else ending
        # nohup(1) has it ignored: its user wants the run to go on.
        taken = [n for n in both if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
        self._before = {number: signal.getsignal(number) for number in taken}
        in_foreground = is_in_foreground()
        before_wakeup = signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)

        def on_signal(number: int, _frame: object) -> None:
            self._asked += number in ending
            if command is not None:
                if number in ending and self._asked > 1:
                    command.send(signal.SIGTERM if self._asked == 2 else signal.SIGKILL, children)
                elif number != signal.SIGINT or not in_foreground:
                    # On a terminal Ctrl-C has reached the command already.
                    command.send(number)
            if number in ending:
                by = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
                self.because(by)
            if self._asked >= PATIENCE and (command is None or not self.measured):
                raise AbandonedError

        def undo() -> None:
            signal.set_wakeup_fd(before_wakeup)
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._told.close()
            self._tell.close()

        for number in taken:
            signal.signal(number, on_signal)
        return undo

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Signals do what they did before: something else takes long meanwhile."""
        ours = {number: signal.signal(number, handler) for number, handler in self._before.items()}
        try:
            yield
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)


def is_in_foreground() -> bool:
    """Whether Ctrl-C on the terminal reaches us, and with us the command that we started."""
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
