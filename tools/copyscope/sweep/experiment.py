"""An experiment: a TOML file in, the runs of a sweep in their order out. Pure but for reading the file.

The order is a seeded shuffle in blocks: a block holds every point once, so that whatever drifts on the
machine (heat, neighbours) hits all strategies alike and comparisons can be paired by block. A run's identity
depends on its experiment, its factors and its block only: more repeats add blocks and change none.
"""

import argparse
import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copyscope.places import HERE
from copyscope.plan.arguments import of_run
from copyscope.record import store
from copyscope.sweep.experiment_file import (
    BYTES,
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
from copyscope.units import option_size

Factors = dict[str, Scalar]

# What a run takes beyond its warm-up and its measuring time: namespaces, BPF programs, pauses, reports.
OVERHEAD_S = 0.5
# A run of a fixed number of messages: mostly set-up.
COUNT_RUN_S = 1.0
# A boot of a simulated machine, and each strategy at each size in it.
BOOT_S, IN_BOOT_S = 10.0, 2.0
# What shares a boot of a simulated machine; whatever else is varied is another boot.
IN_ONE_BOOT = ("impl", "size")


@dataclass(frozen=True)
class Experiment:
    """What is asked, what is varied, and how often it is measured."""

    name: str
    question: str
    expected: str
    factors: dict[str, tuple[Scalar, ...]]
    fixed: dict[str, Scalar]
    repeats: int
    duration_s: float | None  # None: a run ends after fixed.messages, or counts instructions
    seed: int
    path: Path
    exclude: tuple[dict[str, tuple[Scalar, ...]], ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether its runs are boots of a simulated machine."""
        return self.fixed.get("simulate") is True

    @property
    def elsewhere(self) -> bool:
        """Whether both sides of all its runs are on other machines: nothing here needs root then."""
        return all(self.fixed.get(side, HERE) != HERE for side in ("sender_at", "receiver_at"))


@dataclass(frozen=True)
class Point:
    """One run: a combination of factors in one block."""

    factors: Factors
    repeat: int
    order: int
    run_id: str


def load(path: Path) -> Experiment:
    """The experiment in a file. Raises UsageError `file: key: reason`."""
    source, tables = read_source(path)
    factors = read_factors(source, tables.factors)
    fixed = read_fixed(source, tables.fixed, factors)
    check_duration(source, tables.duration_s, {**factors, **fixed})
    made = Experiment(
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
    _check_exclude(source, made)
    check_points(source, combinations(made), fixed)
    return made


def _check_exclude(source: Source, experiment: Experiment) -> None:
    """Each rule leaves something out that no earlier one did, and together they leave something in."""
    before = len(combinations(replace(experiment, exclude=())))
    for index in range(len(experiment.exclude)):
        after = len(combinations(replace(experiment, exclude=experiment.exclude[: index + 1])))
        if after == before:
            raise source.error(("exclude", index), "excludes nothing that is still there: remove it")
        if after == 0:
            raise source.error(("exclude", index), "nothing is left to be measured")
        before = after


def combinations(experiment: Experiment) -> list[Factors]:
    """Every point once, in the order of the file, without what is excluded."""
    names = list(experiment.factors)
    every = (
        dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*experiment.factors.values())
    )
    return [point for point in every if not any(_matches(rule, point) for rule in experiment.exclude)]


def runs_of(experiment: Experiment) -> list[Factors]:
    """What one run each is of: a point, or a boot of a simulated machine, in which several are counted."""
    if not experiment.simulated:
        return combinations(experiment)
    boots = (
        {name: value for name, value in point.items() if name not in IN_ONE_BOOT}
        for point in combinations(experiment)
    )
    return list({identify(boot): boot for boot in boots}.values())


def points_in(experiment: Experiment, boot: Factors) -> list[Factors]:
    """The points that are counted in one boot."""
    return [point for point in combinations(experiment) if boot.items() <= point.items()]


def _matches(rule: Mapping[str, tuple[Scalar, ...]], point: Factors) -> bool:
    return all(point[key] in values for key, values in rule.items())


def expand(experiment: Experiment) -> list[Point]:
    """All planned runs in their order: block after block."""
    points = runs_of(experiment)
    runs: list[Point] = []
    for repeat in range(experiment.repeats):
        runs += block(experiment, points, repeat, len(runs))
    return runs


def block(experiment: Experiment, points: Iterable[Factors], repeat: int, first_order: int) -> list[Point]:
    """One block of the given points, shuffled."""
    shuffled = list(points)
    random.Random(f"{experiment.seed}/{repeat}").shuffle(shuffled)
    return [
        Point(factors, repeat, first_order + at, store.run_id(experiment.name, factors, repeat))
        for at, factors in enumerate(shuffled)
    ]


def arguments(experiment: Experiment, factors: Factors) -> argparse.Namespace:
    """The options of copyscope run for a point: its defaults, what is fixed, what is varied."""
    duration = {} if experiment.duration_s is None else {"duration": experiment.duration_s}
    return of_run().parse_args(as_options({**duration, **experiment.fixed, **factors}))


def run_s(experiment: Experiment) -> float:
    """About how long one run takes."""
    if experiment.simulated:
        return BOOT_S + IN_BOOT_S * len(combinations(experiment)) / len(runs_of(experiment))
    if experiment.duration_s is None:
        return COUNT_RUN_S
    warmup_s: float = arguments(experiment, {}).warmup
    return experiment.duration_s + warmup_s + OVERHEAD_S


def identify(factors: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """The same for the same point, in whatever order a record names its factors."""
    return tuple(sorted(factors.items()))


def describe(factors: Mapping[str, Scalar]) -> str:
    """A point for people: `impl=zero_copy size=64K threads=4`."""
    return " ".join(f"{key}={_shown(key, value)}" for key, value in factors.items())


def _shown(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return option_size(value) if key in BYTES and value is not None else str(value)


def difference(kept: Experiment, asked: Experiment) -> str | None:
    """The first setting in which two experiments measure something else; more repeats are no difference."""
    for key in ("name", "factors", "fixed", "exclude", "duration_s", "seed"):
        old, new = getattr(kept, key), getattr(asked, key)
        if old == new and (key != "factors" or list(old) == list(new)):
            continue
        if key in ("factors", "fixed"):
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            return f"{key}.{names[0]}" if names else f"{key} (their order)"
        return key
    return None
