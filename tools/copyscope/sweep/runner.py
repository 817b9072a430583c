"""One run of a sweep, through the same code as copyscope run."""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from copyscope.errors import MachineError, UsageError
from copyscope.files.rescuing import kept_if_it_fails
from copyscope.hosts import hosts_of
from copyscope.ledger.derive import derive
from copyscope.plan.options import (
    PathPlan,
    Traffic,
    check_usage,
    choose_path,
    on_hosts,
    resolve_traffic,
    workload_section,
)
from copyscope.plan.run_plan import RunPlan, traffic_plan
from copyscope.record import store
from copyscope.record.assemble import Identity, assemble
from copyscope.record.segments import Record
from copyscope.run.build import git_revision
from copyscope.run.session import Session, Silent
from copyscope.run.traffic import OwnTraffic
from copyscope.sweep.experiment import Experiment, Factors, Point, arguments, describe, identify


@dataclass(frozen=True)
class Prepared:
    """What all runs of one setting share."""

    args: argparse.Namespace
    instruments: tuple[str, ...]
    traffic: Traffic
    path: PathPlan

    def plan(self, seed: int) -> RunPlan:
        return traffic_plan(
            self.args, self.instruments, seed, in_pieces=self.traffic.in_pieces, moves=self.traffic.moves
        )

    def run(self, identity: Identity) -> Record:
        """The record of one run. Raises KeyboardInterrupt for one that was stopped: half a run is no run."""
        args = self.args
        hosts = hosts_of(args.sender_at, args.receiver_at, args.tree) if on_hosts(args) else None
        subject = OwnTraffic(self.path, self.traffic, hosts)
        raw = Session(self.plan(identity.seed), subject, Silent()).perform()
        if raw.interrupted:
            raise KeyboardInterrupt
        workload = workload_section(self.args, self.traffic.resolved)
        read = assemble(raw, identity, self.args.frequency, workload=workload)
        with kept_if_it_fails("record.json", lambda: store.serialise(read)):
            return derive(read)


def prepare(args: argparse.Namespace) -> Prepared:
    """Raises MachineError for what this machine cannot do, UsageError for what makes no sense anywhere."""
    prepared = Prepared(
        args, check_usage(args), resolve_traffic(args, pinned=not on_hosts(args)), choose_path(args)
    )
    prepared.plan(seed=0)
    return prepared


class Runner:
    """Runs the points of an experiment on this machine."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._prepared: dict[tuple[tuple[str, Any], ...], Prepared | MachineError] = {}
        self._git, self._dirty = git_revision()

    def prepare(self, points: Iterable[Factors]) -> list[str]:
        """Check every point before the first one runs; returns what this machine cannot do, one line each.

        Raises UsageError for what makes no sense anywhere.
        """
        for factors in points:
            self._prepared[identify(factors)] = self._prepare(factors)
        return [
            f"{describe(dict(key))}: {found}"
            for key, found in self._prepared.items()
            if isinstance(found, MachineError)
        ]

    def _prepare(self, factors: Factors) -> Prepared | MachineError:
        try:
            return prepare(arguments(self._experiment, factors))
        except MachineError as error:
            return error
        except UsageError as error:
            raise UsageError(f"{self._experiment.path}: {describe(factors)}: {error}") from error

    def __call__(self, point: Point) -> Record:
        """The record of a run."""
        prepared = self._prepared[identify(point.factors)]
        if isinstance(prepared, MachineError):
            raise prepared
        identity = Identity(
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
