"""Why a run beside a program ends: Ctrl-C, a signal, its own end. Signals that mean the command reach it."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable

from copyscope.watch.command import HeldCommand

# What is sent to us and means the command as well.
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Whoever presses Ctrl-C that often does not want a report.
PATIENCE = 3


class Stop:
    """The reason, once there is one; the first counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._interrupts = 0
        self._told, self._tell = socket.socketpair()
        self._told.setblocking(False)
        self._tell.setblocking(False)

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason

    def sleep(self, seconds: float, pid: int | None = None) -> bool:
        """Until the time is over, a signal arrives or the process ends. Returns whether that one may have.

        Nothing is looked at meanwhile: /proc takes CPU time from whoever is watched (pidfd_open(2)).
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

    def listen(self, command: HeldCommand | None) -> Callable[[], None]:
        """From now on signals end the measurement in order. Returns what undoes this."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, *PASSED_ON)}
        in_foreground = is_in_foreground()
        before_wakeup = signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)

        def on_signal(number: int, _frame: object) -> None:
            # On a terminal Ctrl-C has reached the command already.
            if command is not None and (number != signal.SIGINT or not in_foreground):
                command.send(number)
            if number == signal.SIGINT:
                self._interrupts += 1
                self.because("interrupted")
            elif number in ENDING:
                self.because(f"stopped by {signal.Signals(number).name}")
            if self._interrupts >= PATIENCE:
                raise KeyboardInterrupt

        def undo() -> None:
            signal.set_wakeup_fd(before_wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._told.close()
            self._tell.close()

        for number in before if command is not None else ENDING:
            signal.signal(number, on_signal)
        return undo


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
