"""Why a run beside a program ends: Ctrl-C, a signal, its own end. Signals that mean the command reach it."""

import os
import signal
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

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason

    def listen(self, command: HeldCommand | None) -> Callable[[], None]:
        """From now on signals end the measurement in order. Returns what undoes this."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, *PASSED_ON)}
        in_foreground = is_in_foreground()

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
            for number, handler in before.items():
                signal.signal(number, handler)

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
