"""Progress of anything that takes longer than two seconds, on stderr: a bar on a terminal, lines elsewhere.

stdout is for results. A log gets the first step and then at most one line every ten seconds, so that nobody
looks at a silent program and no log is filled by one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

from copyscope import units
from copyscope.escaping import visible

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 10.0


class Bar:
    """A bar on a terminal that is not to be quiet, a context manager; elsewhere nothing."""

    def __init__(
        self,
        title: str,
        total: float | None,
        stream: TextIO | None,
        clock: Callable[[], float],
        *,
        quiet: bool,
        fields: Sequence[str],
        count: bool = True,
    ) -> None:
        """`stream` is stderr unless given; `fields` stand behind the count, in this order; `clock`: seconds.

        Without a `count` it is drawn when something is shown, and not in between: that would take CPU time
        from the program that is watched.
        """
        self._title, self._quiet, self._clock = visible(title), quiet, clock
        self._stream = sys.stderr if stream is None else stream
        self._fields, self._count = fields, count
        self._began_s: float | None = None
        self._bar = self._open_bar() if self._stream.isatty() and not quiet else None
        if self._bar is not None:
            empty: dict[str, Any] = dict.fromkeys(fields, "")
            self._task = self._bar.add_task(self._title, total=total, **empty)

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

    def prepare(self, step: str) -> None:
        """Say what is done before the first step."""
        self._set(step=visible(step))

    def _set(self, **what: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._task, refresh=not self._count, **what)

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
        silent: bool | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """No step is printed when `quiet`, and none that is slow when `silent` (if given, else `quiet`)."""
        super().__init__(title, total, stream, clock, quiet=quiet, fields=("step",))
        self._silent = quiet if silent is None else silent
        self._total = total
        self._finished = self._there = 0  # of those that are finished so many were there from the start
        self._each_s: float | None = None  # what one should take, before one was seen
        self._said_s: float | None = None

    def begin(self, step: str) -> None:
        """Say what runs now."""
        text = step + self._left()
        self._set(step=visible(text), completed=self._finished)
        if self._bar is None and not self._quiet and self._may_speak():
            self._say(f"{self._finished + 1} of {self._total}: {text}")

    def done(self) -> None:
        """Count a finished step."""
        self._finished += 1
        self._set(completed=self._finished)

    def slow(self, step: str) -> None:
        """Something takes long: what it is, also in a job that was to be too short for lines."""
        if self._bar is not None or not self._silent:
            self._say(step)

    def expect(self, total: int) -> None:
        """There are more or fewer steps than was thought."""
        self._total = total
        self._set(total=total)

    def _left(self) -> str:
        """How long it will still take, if what is left is as what is done."""
        if self._began_s is None:
            self._began_s = self._clock()
        ran = self._finished - self._there
        each_s = (self._clock() - self._began_s) / ran if ran else self._each_s
        left_s = (each_s or 0.0) * (self._total - self._finished)
        return "" if each_s is None else f", {units.format_minutes(left_s)} left"

    def _say(self, text: str) -> None:
        """A line of its own."""
        line = visible(f"{self._title}: {text}")
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._stream, flush=True)

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

    def __init__(self, title: str, duration_s: float | None, *, quiet: bool = False) -> None:
        fields = ("step", "left")
        super().__init__(title, duration_s, None, time.monotonic, quiet=quiet, fields=fields, count=False)
        self._duration_s = duration_s
        self.prepare("getting ready")

    def begin(self, step: str) -> None:
        """Say what runs now."""
        if self._began_s is None:
            self._began_s = self._clock()
        self._set(step=visible(step), **self._passed())

    def done(self) -> None:
        """A step is over."""
        if self._began_s is not None:
            self._set(**self._passed())

    def _passed(self) -> dict[str, Any]:
        elapsed_s = self._clock() - (self._began_s or 0.0)
        if self._duration_s is None:
            return {"completed": elapsed_s}
        left_s = max(0.0, self._duration_s - elapsed_s)
        return {"completed": elapsed_s, "left": f"{units.format_minutes(left_s)} left"}
