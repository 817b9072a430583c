"""A sweep for people: how far it is, on stderr while it runs, and what it came to."""

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from copyscope.show.progress import Steps
from copyscope.sweep.sweep import Outcome
from copyscope.units import format_minutes

# Enough to see what they have in common; the rest is in the files, and with --verbose here.
MOST_LINES = 10
# On a busy machine every point is noisy, for one reason.
MOST_NOISY = 3


class SweepProgress(Steps):
    """Steps of which some may be there already. A failed one is always told, with `verbose` every one."""

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(title, 0, quiet=quiet, stream=stream, clock=clock)
        self._verbose = verbose

    def start(self, total: int, done: int, run_s: float) -> None:
        """`done` of `total` runs are done already; `run_s` is what one should take."""
        self.expect(total)
        self._finished = self._there = done
        self._each_s = run_s
        if done:
            self._say(f"{done} of {total} runs are done already")

    def begin(self, step: str) -> None:
        if self._bar is not None or not self._verbose:
            super().begin(step)

    def end(self, what: str, outcome: str) -> None:
        """Count a run."""
        self.done()
        if self._verbose or outcome.startswith("failed"):
            self._say(f"{self._finished} of {self._total}: {what}: {outcome}")

    def add(self, runs: int) -> None:
        """More runs than were planned: repeated ones."""
        self.expect(self._total + runs)


def plan_lines(name: str, question: str, *, points: int, repeats: int, there: int, run_s: float) -> list[str]:
    """What a sweep is going to do."""
    runs = points * repeats
    line = f"{name}: {points} points x {repeats} repeats = {runs} runs, about {format_minutes(runs * run_s)}"
    if there:
        line += f"; {there} are done, about {format_minutes((runs - there) * run_s)} left"
    return [question, line]


def outcome_lines(name: str, planned: int, outcome: Outcome, verbose: bool) -> list[str]:
    """What a sweep came to."""
    extra = f" and {outcome.extra} extra repeats" if outcome.extra else ""
    lines = [
        f"{name}: {outcome.done - outcome.extra} of {planned} runs{extra} are in {outcome.directory}"
        f" ({outcome.ran} run now, {format_minutes(outcome.wall_s)})"
    ]
    lines += _listed("could not be read and run again", outcome.damaged, verbose)
    lines += _listed("failed (all attempts: failures.jsonl)", outcome.failed, verbose)
    lines += _listed("invalid: kept, never averaged", outcome.invalid, verbose)
    noisy = "noisy (--budget TIME repeats them)"
    lines += _listed(noisy, outcome.noisy, verbose, MOST_NOISY)
    if not outcome.noisy:
        judged = outcome.judged
        steady = f"none of {judged} points is noisy" if judged else "no point has two valid runs to compare"
        lines.append(f"noise: {steady}")
    if outcome.stopped:
        lines.append(f"stopped: {outcome.stopped}; then run the same command again")
    elif outcome.interrupted:
        lines.append("interrupted: run the same command again to go on")
    return lines


def _listed(title: str, rows: Sequence[str], verbose: bool, most: int = MOST_LINES) -> list[str]:
    if not rows:
        return []
    shown = rows if verbose else rows[:most]
    lines = [f"{len(rows)} {title}", *(f"  {row}" for row in shown)]
    if len(shown) < len(rows):
        lines.append(f"  and {len(rows) - len(shown)} more (-v shows them)")
    return lines
