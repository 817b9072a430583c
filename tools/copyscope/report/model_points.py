# SPDX-License-Identifier: GPL-2.0-only
"""Points of simulated machines: a strategy's cache counts at a message size, over several boots.

All functions are pure: no input, no output.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from copyscope.base import stats
from copyscope.base.stats import Estimate
from copyscope.record.derived import SimulatedRun
from copyscope.record.simulated import Measurement, Model, PerKib, SimulatedRow
from copyscope.report.study_table import PARTS, REST, WaterfallStep, strategy_order
from copyscope.taxonomy.accounts import ACCOUNTS

# Cache level -> its name on plots and pages.
TITLES = {"l1d": "L1D", "l2": "L2", "llc": "LLC"}
LEVELS = tuple(TITLES)
# Stage of the work that allocates and zeroes the pages for a copy.
PAGES = "memory"
# Minimum of lines per KiB for a separate step of a waterfall. Smaller steps are added to the step `rest`.
STEP_LINES_MIN = 0.5
# Step of a waterfall of cache lines -> its accounts and stages.
LINE_PARTS = {**PARTS, "pages": (PAGES,)}


@dataclass(frozen=True)
class ModelSetting:
    """Settings that a simulated machine's points share.

    cache: name of the cache model
    path: kind of the network path, such as `veth`
    working_set_messages: number of different messages that each thread sends in rotation
    kernel: release of the kernel
    """

    cache: str
    path: str
    working_set_messages: int
    kernel: str
    threads: int = 1


@dataclass(frozen=True, eq=False)
class ModelPoint:
    """A strategy at a message size in bytes.

    boots: measurements of the strategy, one for each boot
    """

    setting: ModelSetting
    impl: str
    size: int
    model: Model
    boots: tuple[Measurement, ...]

    def values(self, names: Sequence[str], chosen: Callable[[SimulatedRow], bool]) -> list[float]:
        """Return each boot's sum of the named counts per KiB over some rows.

        names: keys of simulated.COUNTED
        chosen: function that returns True for a row to include
        """
        return [
            sum(per_kib(row, name) for row in boot.rows if chosen(row) for name in names)
            for boot in self.boots
        ]

    def misses(
        self, level: str, *, side: str | None = None, categories: Sequence[str] | None = None
    ) -> list[float]:
        """Return each boot's load and store misses in a cache level, in lines per KiB.

        side, categories: include only rows of this side, or of these accounts and stages; None for all
        """
        names = (f"{level}_load_misses", f"{level}_store_misses")
        return self.values(
            names,
            lambda row: side in (None, row.side) and (categories is None or row.category in categories),
        )

    def parts(self, level: str) -> dict[str, float]:
        """Return a mapping: account or stage -> mean misses per KiB in a cache level over the boots."""
        misses: dict[str, float] = defaultdict(float)
        for boot in self.boots:
            for row in boot.rows:
                for kind in ("load", "store"):
                    misses[row.category] += per_kib(row, f"{level}_{kind}_misses") / len(self.boots)
        return dict(misses)

    @property
    def working_set_bytes(self) -> int:
        """Size in bytes of the memory from which each thread sends its messages."""
        return self.setting.working_set_messages * self.size


def per_kib(row: PerKib, name: str) -> float:
    """Return a row's count per KiB delivered. `name`: a key of simulated.COUNTED."""
    return float(getattr(row, f"{name}_per_kib"))


def cache_bytes(model: Model, level: str) -> int:
    """Return the size of a cache level in bytes, or 0 if the model has no such level."""
    return int(getattr(model, f"{level}_bytes"))


def points_of(records: Iterable[SimulatedRun]) -> list[ModelPoint]:
    """Return all points from some records, sorted, without measurements that fail a consistency check."""
    boots: dict[tuple[ModelSetting, int, str], list[Measurement]] = defaultdict(list)
    models: dict[str, Model] = {}
    for record in sorted(records, key=lambda record: (record.run.repeat, record.run.id)):
        machine = record.simulated
        model, path, kernel = machine.model.name, machine.path.kind, machine.kernel.release
        models[model] = machine.model
        for measured in machine.measurements:
            impl, size_bytes = measured.impl, measured.size_bytes
            # A simulated command has neither a strategy nor a message size.
            if impl is None or size_bytes is None or not all(check.holds for check in measured.checks):
                continue
            ring = measured.working_set_messages or 0
            setting = ModelSetting(model, path, ring, kernel, measured.threads or 1)
            boots[setting, size_bytes, impl].append(measured)
    points = [
        ModelPoint(setting, impl, size, models[setting.cache], tuple(measurements))
        for (setting, size, impl), measurements in boots.items()
    ]
    return sorted(points, key=lambda p: (p.setting.cache, p.setting.path, p.size, strategy_order(p.impl)))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean over boots with its interval. Boots are independent, because each has its own seed."""
    mean = change([0.0] * len(values), values)
    return mean if mean.low is None else replace(mean, low=max(0.0, mean.low))


def change(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the mean of after - before with its interval.

    Values are paired by boot, because paired boots have the same seed and timings.
    """
    boots = min(len(before), len(after))
    return stats.difference_of(before[:boots], after[:boots], paired=True)


def is_clear(changed: Estimate, lines_min: float) -> bool:
    """Return True for a change of at least `lines_min` lines that chance does not explain.

    The change of a single boot is never clear, because it has no interval.
    """
    return abs(changed.value) >= lines_min and changed.against(0.0) != stats.SAME


def usual_setting(points: Sequence[ModelPoint]) -> list[ModelPoint]:
    """Return the points with one thread, over veth, with the most frequent number of messages in the ring.

    The ring is the set of messages that a thread sends in rotation.
    """
    veth = [point for point in points if (point.setting.path, point.setting.threads) == ("veth", 1)]
    rings = Counter(point.setting.working_set_messages for point in veth)
    most = max(rings, key=lambda ring: (rings[ring], -ring), default=0)
    return [point for point in veth if point.setting.working_set_messages == most]


def _find(points: Iterable[ModelPoint], impl: str, size: int, setting: ModelSetting) -> ModelPoint | None:
    """Return the point of a strategy at a message size in a setting, or None."""
    wanted = (impl, size, setting)
    return next((p for p in points if (p.impl, p.size, p.setting) == wanted), None)


def pairs(points: Sequence[ModelPoint], first: str, second: str) -> list[tuple[ModelPoint, ModelPoint]]:
    """Return the pairs of points that differ only in the strategy: (point of `first`, point of `second`)."""
    return [
        (point, other)
        for point in points
        if point.impl == first and (other := _find(points, second, point.size, point.setting)) is not None
    ]


@dataclass(frozen=True)
class LineWaterfall:
    """Steps from the L1D misses of `before` to those of `after`.

    start, end: misses of `before` and `after` in lines per KiB, over all processes
    """

    before: ModelPoint
    after: ModelPoint
    start: float
    end: float
    steps: tuple[WaterfallStep, ...]

    @property
    def names(self) -> tuple[str, str]:
        return self.before.impl, self.after.impl


def line_waterfall(before: ModelPoint, after: ModelPoint) -> LineWaterfall:
    """Return the waterfall between two points. Steps that change little are added to the step `rest`."""
    named_parts = {category for categories in LINE_PARTS.values() for category in categories}
    rows = (row for point in (before, after) for boot in point.boots for row in boot.rows)
    rest = {row.category for row in rows} - named_parts
    steps = []
    for name, categories in {**LINE_PARTS, REST: ()}.items():
        chosen = (*categories, *sorted(rest)) if name == REST else categories
        lines_before, lines_after = (point.misses("l1d", categories=chosen) for point in (before, after))
        changed = change(lines_before, lines_after)
        if name == REST or abs(changed.value) >= STEP_LINES_MIN:
            steps.append(WaterfallStep(name, changed))
        else:
            rest |= {*categories}
    start, end = (fmean(point.misses("l1d")) for point in (before, after))
    return LineWaterfall(before, after, start, end, tuple(steps))


def copy_misses(point: ModelPoint, level: str) -> list[float]:
    """Return each boot's total misses per KiB of all copies in a cache level."""
    return point.misses(level, categories=(*ACCOUNTS,))
