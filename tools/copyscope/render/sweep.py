"""A sweep for people: how far it is, on stderr while it runs, and what it came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from copyscope.escaping import visible
from copyscope.render.progress import LINE_EVERY_S, Bar
from copyscope.units import format_minutes

# Enough to see what they have in common; the rest is in the files, and with --verbose here.
MOST_LINES = 10


class SweepProgress(Bar):
    """A bar with the time left on a terminal; elsewhere a line every 10 s, with `verbose` one per run."""

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream, quiet=quiet, fields=("left", "step"))
        self._title = title
        self._quiet = quiet
        self._verbose = verbose
        self._clock = clock
        self._total = self._finished = self._ran = 0
        self._expected_run_s = 0.0
        self._began_s = self._said_s = 0.0
        self._task = None if self._bar is None else self._bar.add_task(title, total=None, step="", left="")

    def start(self, total: int, done: int, run_s: float) -> None:
        """`done` of `total` runs are there already; `run_s` is what one should take."""
        self._total, self._finished = total, done
        self._expected_run_s = run_s
        self._began_s = self._clock()
        self._said_s = self._began_s - LINE_EVERY_S
        if done:
            self._line(f"{done} of {total} runs are there already")

    def begin(self, what: str) -> None:
        """Say what runs now."""
        left = f"{format_minutes(self.left_s())} left"
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, total=self._total, completed=self._finished, step=visible(what), left=left
            )
        elif not self._verbose and self._clock() - self._said_s >= LINE_EVERY_S:
            self._said_s = self._clock()
            self._line(f"{self._finished + 1} of {self._total}: {what}; {left}")

    def end(self, what: str, outcome: str) -> None:
        """Count a run. A failed one is always told."""
        self._finished += 1
        self._ran += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._finished)
        if self._verbose or outcome.startswith("failed"):
            self._line(f"{self._finished} of {self._total}: {what}: {outcome}")

    def add(self, runs: int) -> None:
        """More runs than were planned: repeated ones."""
        self._total += runs

    def left_s(self) -> float:
        """From the runs so far; before the first, from what one should take."""
        per_run_s = (self._clock() - self._began_s) / self._ran if self._ran else self._expected_run_s
        return (self._total - self._finished) * per_run_s

    def _line(self, text: str) -> None:
        if self._quiet:
            return
        text = visible(text)
        if self._bar is not None:
            self._bar.console.print(f"{self._title}: {text}", markup=False, highlight=False)
        else:
            print(f"{self._title}: {text}", file=self._stream, flush=True)


def plan_lines(name: str, question: str, *, points: int, repeats: int, there: int, run_s: float) -> list[str]:
    """What a sweep is going to do."""
    runs = points * repeats
    line = f"{name}: {points} points x {repeats} repeats = {runs} runs, about {format_minutes(runs * run_s)}"
    if there:
        line += f"; {there} are there, about {format_minutes((runs - there) * run_s)} left"
    return [question, line]


def outcome_lines(name: str, planned: int, outcome: Mapping[str, Any], verbose: bool) -> list[str]:
    """What a sweep came to; `outcome` has the keys of sweep.Outcome."""
    extra = f" and {outcome['extra']} extra repeats" if outcome["extra"] else ""
    lines = [
        f"{name}: {outcome['done'] - outcome['extra']} of {planned} runs{extra} are in {outcome['directory']}"
        f" ({outcome['ran']} run now, {format_minutes(outcome['wall_s'])})"
    ]
    lines += _listed("could not be read and run again", outcome["damaged"], verbose)
    lines += _listed("failed (all attempts: failures.jsonl)", outcome["failed"], verbose)
    lines += _listed("invalid: kept, never averaged", outcome["invalid"], verbose)
    lines += _listed(
        "noisy (--budget TIME repeats those whose median is not well known)", outcome["noisy"], verbose
    )
    if not outcome["noisy"]:
        judged = outcome["judged"]
        steady = f"none of {judged} points is noisy" if judged else "no point has two valid runs to compare"
        lines.append(f"noise: {steady}")
    if outcome["stopped"]:
        lines.append(f"stopped: {outcome['stopped']}; then run the same command again")
    elif outcome["interrupted"]:
        lines.append("interrupted: run the same command again to go on")
    return lines


def _listed(title: str, rows: Sequence[str], verbose: bool) -> list[str]:
    if not rows:
        return []
    shown = rows if verbose else rows[:MOST_LINES]
    lines = [f"{len(rows)} {title}", *(f"  {row}" for row in shown)]
    if len(shown) < len(rows):
        lines.append(f"  and {len(rows) - len(shown)} more (-v shows them)")
    return lines
