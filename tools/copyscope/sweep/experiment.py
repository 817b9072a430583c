# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: turn a TOML file into the runs of a sweep, in the order in which they are measured.

A point is one combination of factors. A block contains every point once, in an order shuffled by a seed.
Therefore drift of the machine (heat, other programs) affects all strategies equally, and comparisons can be
paired by block. A run's id depends on its experiment, factors and block, so adding repeats changes no id.
"""

import argparse
import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copyscope.base.programs import HERE
from copyscope.base.spelling import option_size
from copyscope.plan.arguments import run_parser
from copyscope.plan.traffic_options import type_of
from copyscope.record import store
from copyscope.sweep.experiment_file import (
    Scalar,
    Source,
    as_options,
    check_duration,
    check_points,
    read_exclude,
    read_factors,
    read_fixed,
    read_source,
)

Factors = dict[str, Scalar]  # name of a factor -> its value

# Seconds of a run beyond its warm-up and its measuring time: namespaces, BPF programs, pauses, reports.
OVERHEAD_S = 0.5
# Seconds of a run with a fixed number of messages, mostly for its set-up.
COUNT_RUN_S = 1.0
# Seconds to boot a simulated machine, and seconds to measure one strategy at one size in that machine.
BOOT_S, POINT_IN_BOOT_S = 10.0, 2.0
# Factors that vary within a boot of a simulated machine. Every other factor needs another boot.
FACTORS_IN_BOOT = ("impl", "size")


@dataclass(frozen=True)
class Experiment:
    """An experiment: settings to compare, and the number of repeats.

    name: name of the experiment and of its file
    expected: approximate duration of the sweep, such as `2m`
    factors: settings that vary, with their values; every combination is a point
    fixed: settings that all runs share
    repeats: number of blocks, each of which contains every point once
    duration_s: duration of the measurement in a run; None if a run ends after fixed.messages, or is simulated
    seed: seed that shuffles the order
    path: TOML file of the experiment
    exclude: rules (factor -> values); a point is left out if all factors of a rule match
    """

    name: str
    question: str
    expected: str
    factors: dict[str, tuple[Scalar, ...]]
    fixed: dict[str, Scalar]
    repeats: int
    duration_s: float | None
    seed: int
    path: Path
    exclude: tuple[dict[str, tuple[Scalar, ...]], ...] = ()

    @property
    def simulated(self) -> bool:
        """True if the runs are boots of a simulated machine."""
        return self.fixed.get("simulate") is True

    @property
    def elsewhere(self) -> bool:
        """True if sender and receiver run on other machines, so root is not needed on this machine."""
        return all(self.fixed.get(side, HERE) != HERE for side in ("sender_at", "receiver_at"))


@dataclass(frozen=True)
class ExperimentPoint:
    """A planned run: a point (combination of factors) in a block.

    repeat: number of the block, from 0
    order: position of the run in the sweep, from 0
    """

    factors: Factors
    repeat: int
    order: int
    run_id: str


def load(path: Path) -> Experiment:
    """Read an experiment from a file. Raises UsageError with `file: key: reason`."""
    source, tables = read_source(path)
    factors = read_factors(source, tables.factors)
    fixed = read_fixed(source, tables.fixed, factors)
    check_duration(source, tables.duration_s, {**factors, **fixed})
    experiment = Experiment(
        name=tables.name,
        question=" ".join(tables.question.split()),
        expected=tables.expected,
        factors=factors,
        fixed=fixed,
        repeats=tables.repeats,
        duration_s=tables.duration_s,
        seed=tables.seed,
        path=path,
        exclude=read_exclude(source, tables.exclude, factors),
    )
    _check_exclude(source, experiment)
    check_points(source, combinations(experiment), fixed)
    return experiment


def _check_exclude(source: Source, experiment: Experiment) -> None:
    """Raise UsageError if an `exclude` rule excludes no additional point, or leaves no point."""
    before = len(combinations(replace(experiment, exclude=())))
    for index in range(len(experiment.exclude)):
        after = len(combinations(replace(experiment, exclude=experiment.exclude[: index + 1])))
        if after == before:
            raise source.error(("exclude", index), "excludes no further point; remove it")
        if after == 0:
            raise source.error(("exclude", index), "excludes the last points; remove it")
        before = after


def combinations(experiment: Experiment) -> list[Factors]:
    """Return every point that is not excluded, once, in the order of the file."""
    names = list(experiment.factors)
    points = (
        dict(zip(names, values, strict=True)) for values in itertools.product(*experiment.factors.values())
    )
    return [point for point in points if not any(_matches(rule, point) for rule in experiment.exclude)]


def runs_of(experiment: Experiment) -> list[Factors]:
    """Return the factors of each run in a block: points or, if simulated, boots (several points each)."""
    if not experiment.simulated:
        return combinations(experiment)
    boots = (
        {name: value for name, value in point.items() if name not in FACTORS_IN_BOOT}
        for point in combinations(experiment)
    )
    return list({identify(boot): boot for boot in boots}.values())


def points_in(experiment: Experiment, boot: Factors) -> list[Factors]:
    """Return the points that one boot of a simulated machine measures."""
    return [point for point in combinations(experiment) if boot.items() <= point.items()]


def _matches(rule: Mapping[str, tuple[Scalar, ...]], point: Factors) -> bool:
    """Return True if an `exclude` rule excludes a point."""
    return all(point[key] in values for key, values in rule.items())


def expand(experiment: Experiment) -> list[ExperimentPoint]:
    """Return all planned runs in order, block by block."""
    points = runs_of(experiment)
    runs: list[ExperimentPoint] = []
    for repeat in range(experiment.repeats):
        runs += block(experiment, points, repeat, len(runs))
    return runs


def block(
    experiment: Experiment, points: Iterable[Factors], repeat: int, first_order: int
) -> list[ExperimentPoint]:
    """Return the runs of a block: the given points, shuffled.

    repeat: number of the block; it also seeds the shuffle
    first_order: position of the first of these runs in the sweep
    """
    shuffled = list(points)
    random.Random(f"{experiment.seed}/{repeat}").shuffle(shuffled)
    return [
        ExperimentPoint(factors, repeat, order, store.run_id(experiment.name, factors, repeat))
        for order, factors in enumerate(shuffled, first_order)
    ]


def arguments(experiment: Experiment, factors: Factors) -> argparse.Namespace:
    """Return the options of `copyscope run` for a point: defaults, then fixed settings, then factors."""
    duration = {} if experiment.duration_s is None else {"duration": experiment.duration_s}
    return run_parser().parse_args(as_options({**duration, **experiment.fixed, **factors}))


def run_s(experiment: Experiment) -> float:
    """Return the expected duration of a run in seconds."""
    if experiment.simulated:
        return BOOT_S + POINT_IN_BOOT_S * len(combinations(experiment)) / len(runs_of(experiment))
    if experiment.duration_s is None:
        return COUNT_RUN_S
    warmup_s: float = arguments(experiment, {}).warmup
    return experiment.duration_s + warmup_s + OVERHEAD_S


def identify(factors: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """Return a key for a point that does not depend on the order of the factors."""
    return tuple(sorted(factors.items()))


def describe(factors: Mapping[str, Scalar]) -> str:
    """Return a point as text: `impl=zero_copy size=64K threads=4`."""
    return " ".join(f"{key}={_value_text(key, value)}" for key, value in factors.items())


def _value_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return option_size(value) if type_of(key) == "size" and value is not None else str(value)


def differing_setting(kept: Experiment, wanted: Experiment) -> str | None:
    """Return the first setting in which two experiments differ, ignoring the repeats, or None.

    kept: experiment in an existing directory
    wanted: experiment to run
    """
    if kept.name != wanted.name:
        return "name"
    for key, old, new in (("factors", kept.factors, wanted.factors), ("fixed", kept.fixed, wanted.fixed)):
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if names:
            return f"{key}.{names[0]}"
        # The order of the factors decides the order of the points, and so the shuffle.
        if key == "factors" and list(old) != list(new):
            return f"{key} (their order)"
    pairs = {
        "exclude": (kept.exclude, wanted.exclude),
        "duration_s": (kept.duration_s, wanted.duration_s),
        "seed": (kept.seed, wanted.seed),
    }
    return next((key for key, (old, new) in pairs.items() if old != new), None)
