# SPDX-License-Identifier: GPL-2.0-only
"""Progress of a job on stderr: a bar on a terminal, lines in a log.

stdout is only for results. A log gets the first step, then at most one line every ten seconds. That is enough
to show that the job is alive, without filling the log.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

from copyscope.base import spelling
from copyscope.base.spelling import visible

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_INTERVAL_S = 10.0


class ProgressBar:
    """Context manager that draws a bar on a terminal, but nothing in a log."""

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
        """Open the bar.

        total: value at which the bar is full; None if unknown
        stream: output; None for stderr
        clock: function that returns the time in seconds
        quiet: draw no bar
        fields: names of the texts to the right of the bar, from left to right
        count: show `3/9`, and redraw the bar all the time; False: redraw it only when a text changes, because
            redrawing takes CPU time from a watched program
        """
        self._title, self._quiet, self._clock = visible(title), quiet, clock
        self._stream = sys.stderr if stream is None else stream
        self._fields, self._count = fields, count
        self._began_s: float | None = None
        self._bar = self._open_bar() if self._stream.isatty() and not quiet else None
        if self._bar is not None:
            empty: Mapping[str, Any] = dict.fromkeys(fields, "")
            self._task = self._bar.add_task(self._title, total=total, **empty)

    def _open_bar(self) -> Progress:
        """Return a bar (from the package `rich`), with a count if requested, and a text for each field."""
        # The import of rich takes 20 ms, so it is done only if there is a terminal.
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
        """Show a preparatory step, before the job's first step."""
        self._set(step=visible(step))

    def _set(self, **values: Any) -> None:
        """Change the count (`completed`, `total`) or the texts to the right of the bar."""
        if self._bar is not None:
            self._bar.update(self._task, refresh=not self._count, **values)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class StepProgress(ProgressBar):
    """Progress of a job of `total` steps.

    with StepProgress("zero_copy over veth", 9) as steps:
        steps.begin("segment 1: ledger")     call before each step
        steps.done()                         call after each step
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
        """Open the bar.

        quiet: print no steps
        silent: do not print slow steps either; None: the value of `quiet`
        stream: output; None for stderr
        clock: function that returns the time in seconds
        """
        super().__init__(title, total, stream, clock, quiet=quiet, fields=("step",))
        self._silent = quiet if silent is None else silent
        self._total = total
        self._finished = 0
        # Number of steps that were finished before this job began, for example by an earlier call.
        self._finished_before = 0
        # Expected duration of a step, until the first step has finished.
        self._expected_step_s: float | None = None
        self._last_line_s: float | None = None

    def begin(self, step: str) -> None:
        """Show the step that begins now, and the job's remaining time."""
        text = step + self._remaining()
        self._set(step=visible(text), completed=self._finished)
        if self._bar is None and not self._quiet and self._is_line_due():
            self._print(f"{self._finished + 1} of {self._total}: {text}")

    def done(self) -> None:
        """Count a finished step."""
        self._finished += 1
        self._set(completed=self._finished)

    def slow(self, step: str) -> None:
        """Print a step that takes long, even in a quiet job."""
        if self._bar is not None or not self._silent:
            self._print(step)

    def expect(self, total: int) -> None:
        """Change the total number of steps."""
        self._total = total
        self._set(total=total)

    def _remaining(self) -> str:
        """Return the remaining time, estimated from the mean duration of the finished steps."""
        if self._began_s is None:
            self._began_s = self._clock()
        finished = self._finished - self._finished_before
        step_s = (self._clock() - self._began_s) / finished if finished else self._expected_step_s
        remaining_s = (step_s or 0.0) * (self._total - self._finished)
        return "" if step_s is None else f", {spelling.format_minutes(remaining_s)} left"

    def _print(self, text: str) -> None:
        line = visible(f"{self._title}: {text}")
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._stream, flush=True)

    def _is_line_due(self) -> bool:
        """Return True at most once every LINE_INTERVAL_S."""
        now_s = self._clock()
        if self._last_line_s is not None and now_s - self._last_line_s < LINE_INTERVAL_S:
            return False
        self._last_line_s = now_s
        return True


class Clock(ProgressBar):
    """Progress by elapsed time: a bar on a terminal, from the first step on. A log gets nothing."""

    def __init__(self, title: str, duration_s: float | None, *, quiet: bool = False) -> None:
        """Open the bar. `duration_s`: duration of the job in seconds; None if there is no fixed end."""
        fields = ("step", "left")
        super().__init__(title, duration_s, None, time.monotonic, quiet=quiet, fields=fields, count=False)
        self._duration_s = duration_s
        self.prepare("getting ready")

    def begin(self, step: str) -> None:
        """Show the step that begins now, and the elapsed time. The clock starts with the first step."""
        if self._began_s is None:
            self._began_s = self._clock()
        self._set(step=visible(step), **self._time_values())

    def done(self) -> None:
        """Update the elapsed time at the end of a step."""
        if self._began_s is not None:
            self._set(**self._time_values())

    def _time_values(self) -> Mapping[str, Any]:
        """Return the elapsed and the remaining time, as values of the bar."""
        elapsed_s = self._clock() - (self._began_s or 0.0)
        if self._duration_s is None:
            return {"completed": elapsed_s}
        left_s = max(0.0, self._duration_s - elapsed_s)
        return {"completed": elapsed_s, "left": f"{spelling.format_minutes(left_s)} left"}
