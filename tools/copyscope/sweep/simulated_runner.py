"""The runs of a simulated experiment: a boot each, in which every strategy is counted at every size."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from copyscope.errors import UsageError
from copyscope.record.segments import Record
from copyscope.run.session import Silent
from copyscope.simulate import qemu, request, simulation
from copyscope.sweep.experiment import Experiment, Factors, Point, arguments, describe, identify, points_in

# Pages that nobody has touched since the boot miss every level. So that they do not all count for the first
# strategy, the largest messages come first, and so many times as many of them warm up.
FIRST_WARMS = 6
# Added to a seed that has failed; no experiment has so many repeats.
NEXT_TRY = 1000


class BootRunner:
    """Boots the simulated machines of an experiment, as runner.Runner runs on this one. Needs no root."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._requests: dict[tuple[tuple[str, Any], ...], request.Request] = {}
        self._tries: Counter[str] = Counter()

    def prepare(self, boots: Iterable[Factors]) -> list[str]:
        """Check every boot before the first. None is beyond a machine. Raises UsageError."""
        for boot in boots:
            self._requests[identify(boot)] = self._read(boot)
        return []

    def check_machine(self) -> None:
        """Raises RunError where there is nothing to boot a machine in."""
        qemu.find()

    def _read(self, boot: Factors) -> request.Request:
        every = [arguments(self._experiment, point) for point in points_in(self._experiment, boot)]
        for args in every:
            args.seed = self._experiment.seed
        try:
            asked = request.read_each(every)
        except UsageError as error:
            raise UsageError(f"{self._experiment.path}: {describe(boot)}: {error}") from error
        largest, *others = sorted(asked.measured, key=lambda one: -one.size_bytes)
        return replace(asked, measured=(replace(largest, warm=FIRST_WARMS * largest.warm), *others))

    def __call__(self, point: Point) -> Record:
        """The record of a boot; each repeat is one with another seed. Raises RunError.

        A seed that has failed would fail in the same way again: the next try has one of its own.
        """
        asked, tries = self._requests[identify(point.factors)], self._tries[point.run_id]
        seed = self._experiment.seed + point.repeat + tries * NEXT_TRY
        self._tries[point.run_id] += 1
        # A boot is one step of a sweep, and the sweep tells of it.
        made = simulation.simulate(replace(asked, seeds=(seed,)), Silent())
        run: dict[str, Any] = {
            "id": point.run_id,
            "experiment": self._experiment.name,
            "factors": point.factors,
            "repeat": point.repeat,
            "order": point.order,
            "seed": seed,
        }
        return {**made, "run": {**made["run"], **run}}
