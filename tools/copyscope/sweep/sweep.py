"""A sweep: every run of an experiment once, whatever happens in between; then more of what was noisy."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from copyscope.errors import MachineError, RunError
from copyscope.record.segments import Record
from copyscope.sweep.directory import StopError, SweepDirectory, open_directory
from copyscope.sweep.experiment import (
    Experiment,
    Factors,
    Point,
    block,
    describe,
    expand,
    identify,
    run_s,
    runs_of,
)
from copyscope.sweep.noise import Sample, Unsteady, count_judged, find_unsteady, sample
from copyscope.topology import TopologyError

# A run of this machine; raises RunError, TopologyError or MachineError when it cannot be had.
Run = Callable[[Point], Record]


class Progress(Protocol):
    """Who is told how far the sweep is."""

    def start(self, total: int, done: int, run_s: float) -> None: ...

    def begin(self, step: str) -> None: ...

    def end(self, what: str, outcome: str) -> None: ...

    def add(self, runs: int) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to, over all its calls."""

    directory: str
    done: int  # records that are there, valid or not
    failed: list[str]  # planned runs without a record, each with its reason
    left: int  # planned runs that were not reached
    noisy: list[str]  # points over a limit, each with its reason
    judged: int  # points with enough valid runs to be called noisy or not
    invalid: list[str]  # records that must not be averaged, each with its first reason
    ran: int  # runs of this call
    extra: int  # records beyond the planned repeats
    wall_s: float
    interrupted: bool
    stopped: str | None  # why it could not go on
    damaged: list[str]  # files that were no records; their runs were done again

    @property
    def complete(self) -> bool:
        """Every planned run is there and valid."""
        return not (self.failed or self.left or self.invalid or self.stopped)


@dataclass
class _Sweep:
    """The state of one call."""

    experiment: Experiment
    place: SweepDirectory
    run: Run
    progress: Progress
    samples: dict[str, Sample] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    ran: int = 0

    def take(self, found: Record) -> None:
        """A record that is safe on the disk."""
        run_id = found["run"]["id"]
        self.samples[run_id] = sample(found)
        if not found["verdict"]["valid"]:
            what = f"{describe(found['run']['factors'] or {})} repeat {found['run']['repeat']}"
            self.invalid[run_id] = f"{what}: {found['verdict']['reasons'][0]}"

    def attempt(self, points: Iterable[Point]) -> list[Point]:
        """Run each; those that failed come back."""
        failed = []
        for point in points:
            what = f"{describe(point.factors)} repeat {point.repeat}"
            self.place.check_space()
            self.progress.begin(what)
            try:
                made = self.run(point)
            except (RunError, TopologyError, MachineError) as error:
                self.failed[point.run_id] = f"{what}: {error}"
                self.place.note_failure(point, str(error))
                self.progress.end(what, f"failed: {error}")
                failed.append(point)
            else:
                self.place.keep(made)
                self.take(made)
                self.failed.pop(point.run_id, None)
                self.progress.end(what, _in_short(made))
            self.ran += 1
        return failed

    def next_extra(self) -> list[Point]:
        """A block of what is worth repeating; each noisy point with those that it is compared to, so that
        comparisons stay paired by block."""
        wanted = [_without_impl(one.factors) for one in self.unsteady() if one.wants_more]
        measured = {identify(one.factors) for one in self.samples.values()}
        again = [
            factors
            for factors in runs_of(self.experiment)
            if identify(factors) in measured and _without_impl(factors) in wanted
        ]
        latest = max((one.repeat for one in self.samples.values()), default=0)
        repeat = max(latest + 1, self.experiment.repeats)
        return block(self.experiment, again, repeat, len(expand(self.experiment)) + self.extra())

    def extra(self) -> int:
        """Records beyond the planned repeats, of this call and of earlier ones."""
        return sum(one.repeat >= self.experiment.repeats for one in self.samples.values())

    def unsteady(self) -> list[Unsteady]:
        """In the order of the experiment's file."""
        place = {identify(factors): at for at, factors in enumerate(runs_of(self.experiment))}
        return sorted(find_unsteady(self.samples.values()), key=lambda one: place[identify(one.factors)])


def perform(
    experiment: Experiment,
    directory: Path,
    *,
    budget_s: float | None = None,
    progress: Progress,
    run: Run,
    here: Mapping[str, Any] | None = None,
) -> Outcome:
    """All planned runs without a record; failed ones once more; then noisy points while `budget_s` lasts.

    `here` is the machine section of this machine, where it is known: what another one has made is not gone on
    with. Raises UsageError when the directory is another experiment's, RunError when it cannot be used. All
    else is in the Outcome, so that the next call can go on.
    """
    began = time.monotonic()
    with open_directory(directory, experiment, here) as place:
        state = _Sweep(experiment, place, run, progress)
        planned = expand(experiment)
        interrupted, stopped = False, None
        try:
            for found in place.read_records():
                state.take(found)
            queue = [point for point in planned if point.run_id not in state.samples]
            progress.start(len(planned), len(planned) - len(queue), run_s(experiment))
            again = state.attempt(queue)
            progress.add(len(again))
            state.attempt(again)
            while budget_s is not None and (extra := state.next_extra()):
                # Whole blocks only: half of one would leave points without their counterparts.
                if time.monotonic() - began + len(extra) * run_s(experiment) > budget_s:
                    break
                progress.add(len(extra))
                if state.attempt(extra):
                    break  # what fails now would fail until the budget is spent
        except KeyboardInterrupt:
            interrupted = True
        except StopError as error:
            stopped = str(error)
        left = [p for p in planned if p.run_id not in state.samples and p.run_id not in state.failed]
        return Outcome(
            directory=str(directory),
            done=len(state.samples),
            failed=list(state.failed.values()),
            left=len(left),
            noisy=[f"{describe(one.factors)}: {one.reason}" for one in state.unsteady()],
            judged=count_judged(state.samples.values()),
            invalid=list(state.invalid.values()),
            ran=state.ran,
            extra=state.extra(),
            wall_s=time.monotonic() - began,
            interrupted=interrupted,
            stopped=stopped,
            damaged=place.damaged,
        )


def _without_impl(factors: Any) -> Factors:
    return {key: value for key, value in factors.items() if key != "impl"}


def _in_short(made: Record) -> str:
    if "simulated" in made:
        count = len(made["simulated"]["measurements"])
        shown = f"{count} counted, digest {made['simulated']['digest']}"
    else:
        goodput = sample(made).goodput_gbps
        shown = "nothing was sent" if goodput is None else f"{goodput:.3g} Gb/s"
    verdict = made["verdict"]
    return shown if verdict["valid"] else f"{shown}, INVALID: {verdict['reasons'][0]}"
