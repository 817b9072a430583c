"""Points of simulated machines: what was counted of one strategy at one size, over several boots. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from copyscope import stats
from copyscope.record.derived import SimulatedRun
from copyscope.record.simulated import Measurement, Model, PerKib, Row
from copyscope.stats import Estimate
from copyscope.study.cost_waterfall import PARTS, REST, Step
from copyscope.study.table import strategy_order
from copyscope.taxonomy.taxonomy import ACCOUNTS
from copyscope.units import format_whole_size

TITLES = {"l1d": "L1D", "l2": "L2", "llc": "LLC"}
LEVELS = tuple(TITLES)
# What a copy makes the kernel do beside it: pages for the data, and their zeroing.
PAGES = "memory"
# A step of fewer lines per KiB is part of the rest.
SHOWN = 0.5
LINE_PARTS = {**PARTS, "pages": (PAGES,)}


@dataclass(frozen=True)
class Setting:
    """What one boot has in common."""

    cache: str
    path: str
    working_set_messages: int
    kernel: str
    threads: int = 1

    @property
    def text(self) -> str:
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.cache}, {self.path}, {self.working_set_messages} messages in the ring{threads}"


@dataclass(frozen=True, eq=False)
class ModelPoint:
    """One strategy at one size: `boots` are its measurements, one of each record."""

    setting: Setting
    impl: str
    size: int
    model: Model
    boots: tuple[Measurement, ...]

    def values(self, names: Sequence[str], chosen: Callable[[Row], bool]) -> list[float]:
        """Counts per KiB of the chosen rows, boot by boot."""
        return [
            sum(per_kib(row, name) for row in boot.rows if chosen(row) for name in names)
            for boot in self.boots
        ]

    def misses(
        self, level: str, *, side: str | None = None, categories: Sequence[str] | None = None
    ) -> list[float]:
        """Lines that were not in this level, per KiB, boot by boot: of loads and stores."""
        names = (f"{level}_load_misses", f"{level}_store_misses")
        return self.values(
            names,
            lambda row: side in (None, row.side) and (categories is None or row.category in categories),
        )

    def parts(self, level: str) -> dict[str, float]:
        """Account or stage -> its misses in this level per KiB, all sides, mean of the boots."""
        found: dict[str, float] = defaultdict(float)
        for boot in self.boots:
            for row in boot.rows:
                for kind in ("load", "store"):
                    found[row.category] += per_kib(row, f"{level}_{kind}_misses") / len(self.boots)
        return dict(found)

    @property
    def working_set_bytes(self) -> int:
        """That each thread goes round in."""
        return self.setting.working_set_messages * self.size

    @property
    def name(self) -> str:
        return f"{self.impl} at {format_whole_size(self.size)}"


def per_kib(row: PerKib, name: str) -> float:
    """One of simulated.COUNTED."""
    return float(getattr(row, f"{name}_per_kib"))


def size_of(model: Model, level: str) -> int:
    """Bytes; 0: there is no such level."""
    return int(getattr(model, f"{level}_bytes"))


def points_of(records: Iterable[SimulatedRun]) -> list[ModelPoint]:
    """Every point, by setting, size and strategy; in none is what was counted where a check does not hold."""
    found: dict[tuple[Setting, int, str], list[Measurement]] = defaultdict(list)
    models: dict[str, Model] = {}
    for record in sorted(records, key=lambda one: (one.run.repeat, one.run.id)):
        machine = record.simulated
        models[machine.model.name] = machine.model
        for one in machine.measurements:
            # Of a command nobody says what it sends.
            if one.impl is None or one.size_bytes is None or not all(check.holds for check in one.checks):
                continue
            where = machine.model.name, machine.path.kind
            ring = one.working_set_messages or 0
            setting = Setting(*where, ring, machine.kernel.release, one.threads or 1)
            found[setting, one.size_bytes, one.impl].append(one)
    made = [
        ModelPoint(setting, impl, size, models[setting.cache], tuple(boots))
        for (setting, size, impl), boots in found.items()
    ]
    return sorted(made, key=lambda p: (p.setting.cache, p.setting.path, p.size, strategy_order(p.impl)))


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of some boots with its interval: other seeds are other samples of the same machine."""
    found = change([0.0] * len(values), values)
    return found if found.low is None else replace(found, low=max(0.0, found.low))


def change(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """after - before, boot by boot: the same seed is the same sequence of timings for both."""
    boots = min(len(before), len(after))
    return stats.difference_of(before[:boots], after[:boots], paired=True)


def clear(found: Estimate, least: float) -> bool:
    """Whether a change is one: at least so many lines, and no chance. One boot tells nothing of chance."""
    return abs(found.value) >= least and found.against(0.0) != stats.SAME


def usual_setting(points: Sequence[ModelPoint]) -> list[ModelPoint]:
    """Those of one thread over veth, with the ring that most of them have."""
    veth = [point for point in points if (point.setting.path, point.setting.threads) == ("veth", 1)]
    rings = Counter(point.setting.working_set_messages for point in veth)
    most = max(rings, key=lambda ring: (rings[ring], -ring), default=0)
    return [point for point in veth if point.setting.working_set_messages == most]


def find(points: Iterable[ModelPoint], impl: str, size: int, setting: Setting) -> ModelPoint | None:
    wanted = (impl, size, setting)
    return next((p for p in points if (p.impl, p.size, p.setting) == wanted), None)


def pairs(points: Sequence[ModelPoint], first: str, second: str) -> list[tuple[ModelPoint, ModelPoint]]:
    """Points of two strategies that differ in nothing else."""
    return [
        (one, other)
        for one in points
        if one.impl == first and (other := find(points, second, one.size, one.setting)) is not None
    ]


@dataclass(frozen=True)
class LineWaterfall:
    """From the lines that `before` brings into L1D to those of `after`, all sides, per KiB."""

    before: ModelPoint
    after: ModelPoint
    start: float
    end: float
    steps: tuple[Step, ...]

    @property
    def names(self) -> tuple[str, str]:
        return self.before.impl, self.after.impl


def line_waterfall(before: ModelPoint, after: ModelPoint) -> LineWaterfall:
    """Step by step: each part of the work, as cost_waterfall has them, and the pages beside."""
    named_parts = {category for categories in LINE_PARTS.values() for category in categories}
    rows = (row for point in (before, after) for boot in point.boots for row in boot.rows)
    rest = {row.category for row in rows} - named_parts
    steps = []
    for name, categories in {**LINE_PARTS, REST: ()}.items():
        named = (*categories, *sorted(rest)) if name == REST else categories
        ours, theirs = (point.misses("l1d", categories=named) for point in (before, after))
        found = change(ours, theirs)
        if name == REST or abs(found.value) >= SHOWN:
            steps.append(Step(name, found))
        else:
            rest |= {*categories}
    start, end = (fmean(point.misses("l1d")) for point in (before, after))
    return LineWaterfall(before, after, start, end, tuple(steps))


def copies(point: ModelPoint, level: str) -> list[float]:
    """Misses of all copies together, per KiB, boot by boot."""
    return point.misses(level, categories=ACCOUNTS)
