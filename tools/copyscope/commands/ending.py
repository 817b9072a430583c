"""Ctrl-C and what is like it, of a run of our own traffic: what is measured is kept first."""

import signal
from types import FrameType
from typing import Self

from copyscope.errors import AbandonedError
from copyscope.run.command import PATIENCE

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """Until hold() a signal stops the run; from then on it is noted, while reports are read and written.

    `asked`: how often somebody did then. A user who asks PATIENCE times does not want them.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._holds = False

    def hold(self) -> None:
        """All that will be measured is."""
        self._holds = True

    def __enter__(self) -> Self:
        # nohup(1) has SIGHUP ignored: its user wants the run to go on.
        taken = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._on_signal) for number in taken}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._holds:
            raise KeyboardInterrupt
        self.asked += 1
        if self.asked >= PATIENCE:
            raise AbandonedError
