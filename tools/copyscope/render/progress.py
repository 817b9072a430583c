"""Progress of anything that takes longer than two seconds, on stderr: a bar on a terminal, lines elsewhere.

stdout is for results. A log gets the first step and then at most one line every ten seconds, so that nobody
looks at a silent program and no log is filled by one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from copyscope import units
from copyscope.escaping import visible

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 10.0


class Bar:
    """A bar on a terminal that is not to be quiet, a context manager; elsewhere nothing."""

    def __init__(
        self, stream: TextIO | None, *, quiet: bool, fields: Sequence[str], count: bool = True
    ) -> None:
        """`stream` is stderr unless given; `fields` stand behind the count, in this order.

        Without a `count` it is drawn when something is shown, and not in between: that would take CPU time
        from the program that is watched.
        """
        self._stream = sys.stderr if stream is None else stream
        self._fields, self._count = fields, count
        self._bar = self._open_bar() if self._stream.isatty() and not quiet else None

    def _open_bar(self) -> Progress:
        # 20 ms before the first packet, for terminals only
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            *([MofNCompleteColumn()] if self._count else []),
            *(TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in self._fields),
            console=Console(file=self._stream),
            transient=True,
            auto_refresh=self._count,
        )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class Steps(Bar):
    """A job of `total` steps, used as a context manager.

    with Steps("zero_copy over veth", 9) as steps:
        steps.begin("segment 1: ledger")     before each step; says what runs now
        steps.done()                         after it
    """

    def __init__(
        self,
        title: str,
        total: int,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is printed when `quiet`; `stream` is stderr unless given; `clock` counts seconds."""
        super().__init__(stream, quiet=quiet, fields=("step",))
        self._title = visible(title)
        self._total = total
        self._quiet = quiet
        self._clock = clock
        self._finished = 0
        self._said_s: float | None = None
        self._began_s: float | None = None
        self._task = None if self._bar is None else self._bar.add_task(self._title, total=total, step="")

    def prepare(self, step: str) -> None:
        """Say what is done before the first step."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, step=visible(step))

    def begin(self, step: str) -> None:
        """Say what runs now."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, step=visible(step + self._left()))
        elif not self._quiet and self._may_speak():
            place = f"{self._finished + 1} of {self._total}"
            print(visible(f"{self._title}: {place}: {step}{self._left()}"), file=self._stream, flush=True)

    def done(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._finished += steps
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, steps)

    def _left(self) -> str:
        """How long it will still take, if what is left is as what is done."""
        if self._began_s is None:
            self._began_s = self._clock()
        if not self._finished:
            return ""
        left_s = (self._clock() - self._began_s) / self._finished * (self._total - self._finished)
        return f", {units.format_minutes(left_s)} left"

    def expect(self, total: int) -> None:
        """There are more or fewer steps than was thought."""
        self._total = total
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=total)

    def _may_speak(self) -> bool:
        now_s = self._clock()
        if self._said_s is not None and now_s - self._said_s < LINE_EVERY_S:
            return False
        self._said_s = now_s
        return True


class Clock(Bar):
    """Something that goes on for so many seconds, or without an end, from its first step that is done on.

    A terminal gets a bar; elsewhere nothing is said: what is being waited for stands there already.
    """

    def __init__(
        self,
        title: str,
        duration_s: float | None,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream, quiet=quiet, fields=("step", "left"), count=False)
        self._duration_s, self._clock = duration_s, clock
        self._step = ""
        self._began_s: float | None = None
        self._task = (
            None
            if self._bar is None
            else self._bar.add_task(visible(title), total=duration_s, step="getting ready", left="")
        )

    def begin(self, step: str) -> None:
        """Say what runs now."""
        if self._began_s is None:
            self._began_s = self._clock()
        self._show(step)

    def prepare(self, step: str) -> None:
        """Say what is done before the first step."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, step=visible(step), refresh=True)

    def done(self) -> None:
        """A step is over."""
        self._show()

    def _show(self, step: str | None = None) -> None:
        if self._bar is None or self._task is None or self._began_s is None:
            return
        elapsed_s = self._clock() - self._began_s
        left = ""
        if self._duration_s is not None:
            left = f"{units.format_minutes(max(0.0, self._duration_s - elapsed_s))} left"
        self._step = self._step if step is None else visible(step)
        self._bar.update(self._task, completed=elapsed_s, left=left, step=self._step, refresh=True)
