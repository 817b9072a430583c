# SPDX-License-Identifier: GPL-2.0-only
"""Perform the single runs of a sweep: with the same code as `copyscope run`, or simulated."""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from copyscope.base.errors import MachineError, UsageError
from copyscope.base.files import rescue_on_failure
from copyscope.ledger.derive import derive
from copyscope.machine.hosts import hosts_of
from copyscope.plan.options import (
    PathPlan,
    TrafficOptions,
    check_usage,
    choose_path,
    on_hosts,
    resolve_traffic,
    workload_section,
)
from copyscope.plan.run_plan import RunPlan, traffic_plan
from copyscope.record import store
from copyscope.record.assemble import RecordIdentity, assemble
from copyscope.record.derived import SimulatedRun
from copyscope.record.run import Run
from copyscope.run.build import git_revision
from copyscope.run.session import Session, SilentProgress
from copyscope.run.simulate import qemu, request, simulation
from copyscope.run.traffic import OwnTraffic
from copyscope.sweep.experiment import (
    Experiment,
    ExperimentPoint,
    Factors,
    arguments,
    describe,
    identify,
    points_in,
)


@dataclass(frozen=True)
class Prepared:
    """Data that all runs of a setting share.

    args: options of copyscope run
    instruments: names of the instruments
    traffic: resolved options of the traffic program
    path: network path of the run
    """

    args: argparse.Namespace
    instruments: tuple[str, ...]
    traffic: TrafficOptions
    path: PathPlan

    def plan(self, seed: int) -> RunPlan:
        """Return the plan of a run.

        seed: seed of the traffic and of the order of the segments
        """
        return traffic_plan(
            self.args, self.instruments, seed, in_pieces=self.traffic.in_pieces, moves=self.traffic.moves
        )

    def run(self, identity: RecordIdentity) -> Run:
        """Perform a run and return its record. Raises KeyboardInterrupt if the user stops the run.

        identity: id, seed and position of the run
        """
        args = self.args
        hosts = hosts_of(args.sender_at, args.receiver_at, args.tree) if on_hosts(args) else None
        subject = OwnTraffic(self.path, self.traffic, hosts)
        raw = Session(self.plan(identity.seed), subject, SilentProgress()).perform()
        if raw.interrupted:
            raise KeyboardInterrupt
        workload = workload_section(self.args, self.traffic.resolved)
        measured = assemble(raw, identity, self.args.frequency, workload=workload)
        with rescue_on_failure("record.json", lambda: store.serialise(measured)):
            return derive(measured)


def prepare(args: argparse.Namespace) -> Prepared:
    """Prepare all runs of one setting.

    Raises MachineError if this machine cannot run the setting, and UsageError if no machine can.

    args: options of copyscope run for the setting
    """
    prepared = Prepared(
        args, check_usage(args), resolve_traffic(args, pinned=not on_hosts(args)), choose_path(args)
    )
    prepared.plan(seed=0)
    return prepared


class Runner:
    """Callable that runs the points of an experiment on this machine."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._prepared: dict[tuple[tuple[str, Any], ...], Prepared | MachineError] = {}
        self._git, self._dirty = git_revision()

    def prepare(self, points: Iterable[Factors]) -> list[str]:
        """Check all points before the first run. Return a line for each point that cannot run here.

        Raises UsageError for a point that no machine can run.
        """
        for factors in points:
            self._prepared[identify(factors)] = self._prepare(factors)
        return [
            f"{describe(dict(key))}: {prepared}"
            for key, prepared in self._prepared.items()
            if isinstance(prepared, MachineError)
        ]

    def _prepare(self, factors: Factors) -> Prepared | MachineError:
        """Prepare the runs of a point; if this machine cannot run it, return the error that says why."""
        try:
            return prepare(arguments(self._experiment, factors))
        except MachineError as error:
            return error
        except UsageError as error:
            raise UsageError(f"{self._experiment.path}: {describe(factors)}: {error}") from error

    def __call__(self, point: ExperimentPoint) -> Run:
        """Perform the run for a point and return its record. Raises MachineError, RunError, TopologyError."""
        prepared = self._prepared[identify(point.factors)]
        if isinstance(prepared, MachineError):
            raise prepared
        identity = RecordIdentity(
            id=point.run_id,
            experiment=self._experiment.name,
            repeat=point.repeat,
            order=point.order,
            seed=self._experiment.seed + point.order,
            git=self._git,
            dirty=self._dirty,
            factors=point.factors,
        )
        return prepared.run(identity)


# Runs of a simulated experiment. Each run is a boot that measures every strategy at every size.

# Factor by which the warm-up before the first measurement of a boot is longer than usual. Pages that were not
# touched since the boot miss every level of the cache. To keep these misses out of the measurements, the
# largest messages are measured first, after this long warm-up.
FIRST_WARM_UPS = 6
# Distance from a failed seed to the seed of the retry. It exceeds the number of repeats of every experiment.
RETRY_SEED_STEP = 1000


class BootRunner:
    """Callable that boots the simulated machines of an experiment. Does not need root."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._requests: dict[tuple[tuple[str, Any], ...], request.Request] = {}
        self._tries: Counter[str] = Counter()

    def prepare(self, boots: Iterable[Factors]) -> list[str]:
        """Check all boots before the first boot. Raises UsageError.

        The returned list is always empty, because every machine can simulate every point.
        """
        for boot in boots:
            self._requests[identify(boot)] = self._read(boot)
        return []

    def check_machine(self) -> None:
        """Raise RunError if QEMU is not installed."""
        qemu.find_qemu()

    def _read(self, boot: Factors) -> request.Request:
        """Return the request for a boot: all of its points, largest messages first."""
        points = [arguments(self._experiment, point) for point in points_in(self._experiment, boot)]
        for args in points:
            args.seed = self._experiment.seed
        try:
            boot_request = request.read_each(points)
        except UsageError as error:
            raise UsageError(f"{self._experiment.path}: {describe(boot)}: {error}") from error
        largest, *others = sorted(boot_request.measured, key=lambda workload: -workload.size_bytes)
        largest = replace(largest, warm=FIRST_WARM_UPS * largest.warm)
        return replace(boot_request, measured=(largest, *others))

    def __call__(self, point: ExperimentPoint) -> SimulatedRun:
        """Boot the simulated machine of a point and return its record. Raises RunError.

        Each repeat and each retry uses a new seed, because a seed that failed would fail again.
        """
        seed = self._experiment.seed + point.repeat + self._tries[point.run_id] * RETRY_SEED_STEP
        self._tries[point.run_id] += 1
        boot_request = replace(self._requests[identify(point.factors)], seeds=(seed,))
        # A boot shows no progress, because it is a single step of the sweep.
        simulated = simulation.simulate(boot_request, begin=lambda _step: None, done=lambda: None)
        simulated.run = structs.replace(
            simulated.run,
            id=point.run_id,
            experiment=self._experiment.name,
            factors=dict(point.factors),
            repeat=point.repeat,
            order=point.order,
            seed=seed,
        )
        return simulated
