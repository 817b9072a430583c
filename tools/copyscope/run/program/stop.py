"""Why a run beside a program ends: Ctrl-C, a signal, its own end. Signals that mean the command reach it.

The first Ctrl-C or SIGTERM ends the measurement, and the command gets it once: how long that then takes to
end is its own business. A second signal asks it to end, a third one ends it.
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from copyscope.errors import AbandonedError
from copyscope.run.program.command import Command

ENDING = (signal.SIGINT, signal.SIGTERM)
# To many programs SIGHUP is no end: they read their configuration again.
PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# A user who asks that often does not want a report.
PATIENCE = 3


class Stop:
    """The reason, once there is one; the first counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        # With the report on its way only the command is left to be ended.
        self.measured = False
        self._asked = 0
        self._before: dict[signal.Signals, Any] = {}
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
