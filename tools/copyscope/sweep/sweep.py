# SPDX-License-Identifier: GPL-2.0-only
"""A sweep: run every point (combination of factors) of an experiment, then repeat the noisy points.

A point is noisy if its goodput without instruments has a large coefficient of variation (standard deviation /
mean). More repeats do not lower this coefficient, but they narrow the median's confidence interval. So such a
point is repeated only while that interval is too wide.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Protocol

from copyscope.base import stats
from copyscope.base.errors import MachineError, RunError
from copyscope.base.stats import grouped
from copyscope.ledger.machine_state import BUSY_SHARE
from copyscope.machine.topology import TopologyError
from copyscope.record.derived import SimulatedRun
from copyscope.record.run import CompleteRun, run_section, verdict_of
from copyscope.sweep.directory import StopError, SweepDirectory, open_directory
from copyscope.sweep.experiment import (
    Experiment,
    ExperimentPoint,
    Factors,
    block,
    describe,
    expand,
    identify,
    run_s,
    runs_of,
)

# A point is noisy if the coefficient of variation of its goodput is above this limit.
VARIATION_LIMIT = 0.05
# A point is noisy if the hypervisor took more than this percentage of the CPU time.
STEAL_LIMIT_PERCENT = 2.0
# A point is noisy if other programs used more than this share of all CPUs.
OTHERS_LIMIT = BUSY_SHARE
# Repeat a noisy point while half the width of the 95 % interval of its median goodput exceeds this fraction
# of the median.
WIDTH_LIMIT = 0.05
# A point that is noisy after this many repeats will stay noisy.
NOISY_REPEATS_MAX = 15


@dataclass(frozen=True)
class NoiseSample:
    """Values from a record that show how noisy its point is.

    factors: factors of the point
    repeat: number of the block
    goodput_gbps: goodput, without instruments if so measured; None if nothing was sent, or if simulated
    steal_percent: CPU time that the hypervisor took; None if unknown
    others_share: share of all CPUs that other programs used; None if unknown
    """

    factors: Mapping[str, Any]
    repeat: int
    goodput_gbps: float | None
    steal_percent: float | None
    valid: bool
    others_share: float | None = None


@dataclass(frozen=True)
class Unsteady:
    """A noisy point: a point that exceeds a limit on noise.

    wants_more: True if more repeats may help
    """

    factors: Mapping[str, Any]
    reason: str
    wants_more: bool


def sample(run: CompleteRun) -> NoiseSample:
    """Return a run's noise sample. Runs with a fixed number of messages always use instruments."""
    if isinstance(run, SimulatedRun):
        # A simulation counts instructions, so that the load of this machine does not disturb it.
        return NoiseSample(run.run.factors or {}, run.run.repeat, None, None, run.verdict.valid)
    section, derived = run.raw.run, run.derived
    goodput = derived.throughput_gbps
    return NoiseSample(
        factors=section.factors or {},
        repeat=section.repeat,
        goodput_gbps=goodput.probed if goodput.unprobed is None else goodput.unprobed,
        steal_percent=run.raw.machine.steal_percent,
        valid=derived.verdict.valid,
        others_share=derived.machine_state.others_share,
    )


def find_unsteady(samples: Iterable[NoiseSample]) -> list[Unsteady]:
    """Return the noisy points, in the order of their first run. Invalid runs are ignored."""
    judged = (_judge(of_point) for of_point in _by_point(samples))
    return [unsteady for unsteady in judged if unsteady is not None]


def count_judged(samples: Iterable[NoiseSample]) -> int:
    """Return the number of points with at least two valid runs, because a single run cannot show noise."""
    return sum(len(of_point) > 1 for of_point in _by_point(samples))


def _by_point(samples: Iterable[NoiseSample]) -> list[list[NoiseSample]]:
    """Return the valid samples, grouped by point."""
    valid = (sample for sample in samples if sample.valid)
    return list(grouped(valid, lambda sample: tuple(sorted(sample.factors.items()))).values())


def _judge(samples: list[NoiseSample]) -> Unsteady | None:
    """Return a point with the limits that its samples exceed, or None if the point is not noisy."""
    reasons = []
    is_wide = False
    goodputs = [sample.goodput_gbps for sample in samples if sample.goodput_gbps]
    if len(goodputs) > 1:
        variation = stdev(goodputs) / fmean(goodputs)
        if variation > VARIATION_LIMIT:
            middle = stats.median_of(goodputs)
            width = 0.0 if middle.ends is None else middle.ends[1] - middle.ends[0]
            is_wide = width > 2 * WIDTH_LIMIT * middle.value
            reasons.append(
                f"goodput varies by {100 * variation:.0f} % (coefficient of variation of {len(goodputs)} "
                f"runs; limit {100 * VARIATION_LIMIT:.0f} %)"
            )
    steals = [sample.steal_percent for sample in samples if sample.steal_percent is not None]
    is_stolen = bool(steals) and median(steals) > STEAL_LIMIT_PERCENT
    if is_stolen:
        reasons.append(
            f"the hypervisor took {median(steals):.1f} % of the CPU time (limit {STEAL_LIMIT_PERCENT:.0f} %)"
        )
    shares = [sample.others_share for sample in samples if sample.others_share is not None]
    is_busy = bool(shares) and median(shares) > OTHERS_LIMIT
    if is_busy:
        reasons.append(
            f"other programs used {100 * median(shares):.0f} % of the CPUs (limit {100 * OTHERS_LIMIT:.0f} %)"
        )
    if not reasons:
        return None
    wants_more = (is_wide or is_stolen or is_busy) and len(samples) < NOISY_REPEATS_MAX
    return Unsteady(samples[0].factors, "; ".join(reasons), wants_more)


# Function that performs a run and returns its record. Raises RunError, TopologyError or MachineError.
PerformPoint = Callable[[ExperimentPoint], CompleteRun]


class Progress(Protocol):
    """Progress display for a sweep. commands/sweep.py implements it."""

    def start(self, total: int, done: int, run_s: float) -> None: ...

    def begin(self, step: str) -> None: ...

    def end(self, step: str, outcome: str) -> None: ...

    def add(self, runs: int) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """Result of a sweep, over all calls of `copyscope sweep`.

    directory: directory that contains the records
    done: number of records, valid or not
    failed: planned runs that failed, each with its reason
    left: number of planned runs that were not attempted
    noisy: points that exceed a limit, each with its reason
    judged: number of points with at least two valid runs, so that noise can be seen
    invalid: records that must not be averaged, each with its first reason
    ran: number of runs in this call
    extra: number of records beyond the planned repeats
    wall_s: duration of this call in seconds
    interrupted: True if the user stopped the sweep
    stopped: reason why the sweep could not continue; None if it was not stopped
    damaged: unreadable records; their runs were repeated
    """

    directory: str
    done: int
    failed: list[str]
    left: int
    noisy: list[str]
    judged: int
    invalid: list[str]
    ran: int
    extra: int
    wall_s: float
    interrupted: bool
    stopped: str | None
    damaged: list[str]

    @property
    def complete(self) -> bool:
        """True if every planned run has a valid record."""
        return not (self.failed or self.left or self.invalid or self.stopped)


@dataclass
class _Sweep:
    """State during a call of perform().

    run: function that performs a run
    samples: run id -> noise sample
    invalid, failed: run id -> reason, for invalid records and for failed runs
    ran: number of runs in this call
    """

    experiment: Experiment
    directory: SweepDirectory
    run: PerformPoint
    progress: Progress
    samples: dict[str, NoiseSample] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    ran: int = 0

    def take(self, run: CompleteRun) -> None:
        """Store the noise sample and the verdict of a run whose record has been saved."""
        section, verdict = run_section(run), verdict_of(run)
        self.samples[section.id] = sample(run)
        if not verdict.valid:
            name = f"{describe(section.factors or {})} repeat {section.repeat}"
            self.invalid[section.id] = f"{name}: {verdict.reasons[0]}"

    def attempt(self, points: Iterable[ExperimentPoint]) -> list[ExperimentPoint]:
        """Run each point, save the records, and return the points that failed."""
        failed = []
        for point in points:
            name = f"{describe(point.factors)} repeat {point.repeat}"
            self.directory.check_space()
            self.progress.begin(name)
            try:
                run = self.run(point)
            except (RunError, TopologyError, MachineError) as error:
                self.failed[point.run_id] = f"{name}: {error}"
                self.directory.note_failure(point, str(error))
                self.progress.end(name, f"failed: {error}")
                failed.append(point)
            else:
                self.directory.keep(run)
                self.take(run)
                self.failed.pop(point.run_id, None)
                self.progress.end(name, _outcome_text(run))
            self.ran += 1
        return failed

    def next_extra(self) -> list[ExperimentPoint]:
        """Return the runs of a block that repeats the noisy points.

        Noisy points are repeated together with the other strategies in the same setting, so that comparisons
        stay paired by block. Points are left out if more repeats would not help.
        """
        noisy_settings = [_setting_of(noisy.factors) for noisy in self.unsteady() if noisy.wants_more]
        measured = {identify(sample.factors) for sample in self.samples.values()}
        again = [
            factors
            for factors in runs_of(self.experiment)
            if identify(factors) in measured and _setting_of(factors) in noisy_settings
        ]
        latest = max((sample.repeat for sample in self.samples.values()), default=0)
        repeat = max(latest + 1, self.experiment.repeats)
        return block(self.experiment, again, repeat, len(expand(self.experiment)) + self.extra())

    def extra(self) -> int:
        """Return the number of records beyond the planned repeats, from this call and earlier calls."""
        return sum(sample.repeat >= self.experiment.repeats for sample in self.samples.values())

    def unsteady(self) -> list[Unsteady]:
        """Return the noisy points in the order of the experiment's file."""
        order = {identify(factors): index for index, factors in enumerate(runs_of(self.experiment))}
        noisy = find_unsteady(self.samples.values())
        return sorted(noisy, key=lambda point: order[identify(point.factors)])


def perform(
    experiment: Experiment,
    directory: Path,
    *,
    budget_s: float | None = None,
    progress: Progress,
    run: PerformPoint,
    here: Mapping[str, Any] | None = None,
) -> Outcome:
    """Perform every planned run that has no record yet, retry failed runs once, then repeat noisy points.

    directory: directory for the records
    budget_s: repeat noisy points until this many seconds after the start; None to repeat none
    progress: display to update
    run: function that performs a run
    here: facts of this machine, so that another machine's sweep is not resumed; None if unknown

    Raises UsageError if the directory belongs to another experiment, RunError if it cannot be used. All other
    problems are reported in the Outcome, and the next call can resume.
    """
    began_s = time.monotonic()
    with open_directory(directory, experiment, here) as opened:
        state = _Sweep(experiment, opened, run, progress)
        planned = expand(experiment)
        interrupted, stopped = False, None
        try:
            for earlier_run in opened.read_runs():
                state.take(earlier_run)
            queue = [point for point in planned if point.run_id not in state.samples]
            progress.start(len(planned), len(planned) - len(queue), run_s(experiment))
            again = state.attempt(queue)
            progress.add(len(again))
            state.attempt(again)
            while budget_s is not None and (extra := state.next_extra()):
                # Half a block would leave points without the other strategies in their setting.
                if time.monotonic() - began_s + len(extra) * run_s(experiment) > budget_s:
                    break
                progress.add(len(extra))
                if state.attempt(extra):
                    break  # A run that fails here would fail again and again.
        except KeyboardInterrupt:
            interrupted = True
        except StopError as error:
            stopped = str(error)
        attempted = {*state.samples, *state.failed}
        return Outcome(
            directory=str(directory),
            done=len(state.samples),
            failed=list(state.failed.values()),
            left=sum(point.run_id not in attempted for point in planned),
            noisy=[f"{describe(point.factors)}: {point.reason}" for point in state.unsteady()],
            judged=count_judged(state.samples.values()),
            invalid=list(state.invalid.values()),
            ran=state.ran,
            extra=state.extra(),
            wall_s=time.monotonic() - began_s,
            interrupted=interrupted,
            stopped=stopped,
            damaged=opened.damaged,
        )


def _setting_of(factors: Mapping[str, Any]) -> Factors:
    """Return a point's setting: its factors except the strategy."""
    return {key: value for key, value in factors.items() if key != "impl"}


def _outcome_text(run: CompleteRun) -> str:
    """Return a run's goodput or counts, and why it is invalid if so, for the progress display."""
    if isinstance(run, SimulatedRun):
        text = f"{len(run.simulated.measurements)} counted, digest {run.simulated.digest}"
    else:
        goodput_gbps = sample(run).goodput_gbps
        text = "nothing was sent" if goodput_gbps is None else f"{goodput_gbps:.3g} Gb/s"
    verdict = verdict_of(run)
    return text if verdict.valid else f"{text}, INVALID: {verdict.reasons[0]}"
