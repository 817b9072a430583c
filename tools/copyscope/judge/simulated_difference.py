# SPDX-License-Identifier: GPL-2.0-only
"""Two simulated machines, compared per KiB delivered: does the second kernel execute or move more? Pure.

The simulator counts every instruction, so any difference between two kernels comes from the kernels. Two
boots of one kernel with different seeds differ a little, because addresses differ: this spread gives the
interval.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from msgspec import structs

from copyscope.base.errors import UsageError
from copyscope.base.spelling import format_bytes, visible
from copyscope.base.stats import grouped
from copyscope.judge.difference import BETTER, SAME, WORSE
from copyscope.record.simulated import Measurement, SideSum, Simulated, SimulatedFunction
from copyscope.taxonomy.accounts import ACCOUNTS, COPIES, STAGES

ALL_WORK = "all work"
# Minimum change that decides: as a share of the value before, and per KiB. Smaller changes are the noise of
# hash tables and of the moment at which a packet arrives.
CHANGE_MIN = 0.002
INSTRUCTIONS_MIN, LINES_MIN = 0.5, 0.05
# Weight of a cache line against an instruction, to order functions by their change.
LINE_IN_INSTRUCTIONS = 10
# Suffixes that GCC appends to the names of cloned functions.
SUFFIX = re.compile(r"(?:\.(?:isra|constprop|part|cold|llvm)(?:\.\d+)*)+$")
# Rows of idle CPUs and kernel threads.
OTHER = "other"
# Fields of a measurement that must be equal.
SETTINGS = (
    *("impl", "size_bytes", "fields", "threads", "working_set_messages", "warm_messages", "messages"),
    *("receiver", "align", "pages", "touch", "nodelay", "congestion_control", "sndbuf_bytes", "rcvbuf_bytes"),
    "command",
)


@dataclass(frozen=True)
class SimulatedCount:
    """A count to compare.

    counts: functions that return the parts of a row's count, per KiB, each with its half width
    least: smallest change per KiB that affects the verdict
    """

    name: str
    counts: tuple[Callable[[SideSum], tuple[float, float | None]], ...]
    least: float = LINES_MIN

    def least_change(self, before: float) -> float:
        """Return the smallest change per KiB that affects the verdict. `before`: count before the change."""
        return max(self.least, CHANGE_MIN * before)

    def total(self, rows: Sequence[SideSum]) -> float:
        """Return the count per KiB over some rows."""
        return float(sum(count(row)[0] for row in rows for count in self.counts))

    def spread(self, rows: Sequence[SideSum]) -> float | None:
        """Return the sum of the half widths over some rows, or None if they are unknown (a single seed)."""
        halves = [count(row)[1] for row in rows for count in self.counts]
        return None if None in halves else float(sum(half or 0.0 for half in halves))


def per_kib(name: str) -> Callable[[SideSum], tuple[float, float | None]]:
    """Return a function that returns a count of a row per KiB, with its half width."""
    return attrgetter(f"{name}_per_kib", f"{name}_per_kib_half_width")


def misses(cache: str) -> tuple[Callable[[SideSum], tuple[float, float | None]], ...]:
    """Return the functions for the loads and the stores that miss a cache."""
    return per_kib(f"{cache}_load_misses"), per_kib(f"{cache}_store_misses")


INSTRUCTIONS = SimulatedCount("instructions", (per_kib("instructions"),), INSTRUCTIONS_MIN)
LINES = SimulatedCount("lines", (per_kib("read_lines"), per_kib("written_lines")))
L1D = SimulatedCount("L1D misses", misses("l1d"))
L2 = SimulatedCount("L2 misses", misses("l2"))
LLC = SimulatedCount("LLC misses", misses("llc"))
QUANTITIES = (INSTRUCTIONS, LINES, L1D, L2, LLC)
# Quantities that decide the verdict. Misses depend on the layout of a kernel, too.
DECIDING = (INSTRUCTIONS, LINES)


@dataclass(frozen=True)
class CountChange:
    """A count per KiB before and after.

    spread: half of the interval of the change, from the spread of the seeds; None if unknown, because there
        is only one seed
    """

    quantity: str
    before: float
    after: float
    spread: float | None
    verdict: str

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class ChangedRow:
    """Changes of an account or a stage on all processes, or of ALL_WORK. `changes`: one per quantity."""

    category: str
    changes: tuple[CountChange, ...]

    @property
    def is_new_copy(self) -> bool:
        """True for a copy that only the second kernel makes."""
        lines = self.change(LINES)
        return self.category in COPIES and lines.verdict == WORSE and lines.before < LINES_MIN

    def change(self, quantity: SimulatedCount) -> CountChange:
        return next(change for change in self.changes if change.quantity == quantity.name)


@dataclass(frozen=True)
class ChangedFunction:
    """A function whose instructions or lines per KiB changed. `category`: its account or stage."""

    name: str
    category: str
    instructions_before: float
    instructions_after: float
    lines_before: float
    lines_after: float


@dataclass(frozen=True)
class SettingDifference:
    """A measurement before and after. `functions`: None if a record has no functions."""

    name: str
    total: ChangedRow
    rows: tuple[ChangedRow, ...]
    functions: tuple[ChangedFunction, ...] | None
    verdict: str


@dataclass(frozen=True)
class SimulatedDifference:
    """Comparison of two simulated machines. `before`, `after`: kernels, by release or by path."""

    before: str
    after: str
    seeds: int
    settings: tuple[SettingDifference, ...]
    verdict: str


def compare_simulated(before: Simulated, after: Simulated) -> SimulatedDifference:
    """Compare the measurements that two simulated machines share. Raises UsageError for other machines."""
    _require_same_machine(before, after)
    earlier = {_key(measurement): measurement for measurement in before.measurements}
    settings = tuple(
        _setting(earlier[_key(measurement)], measurement)
        for measurement in after.measurements
        if _key(measurement) in earlier
    )
    if not settings:
        raise UsageError("the two records share no strategy and size; simulate the same settings twice")
    verdicts = [setting.verdict for setting in settings]
    verdict = WORSE if WORSE in verdicts else BETTER if BETTER in verdicts else SAME
    names = [f"Linux {kernel.release}" for kernel in (before.kernel, after.kernel)]
    if names[0] == names[1]:
        names = [visible(kernel.name) for kernel in (before.kernel, after.kernel)]
    return SimulatedDifference(names[0], names[1], len(after.seeds), settings, verdict)


def _require_same_machine(before: Simulated, after: Simulated) -> None:
    """Raise UsageError if anything other than the kernel could differ."""
    pairs: tuple[tuple[str, object, object, str], ...] = (
        ("caches", before.model, after.model, "--cache"),
        ("network path", before.path, after.path, "--topology, --mtu and offloads"),
        ("seeds", before.seeds, after.seeds, "--seeds and --seed"),
        ("counting of instructions", before.exact, after.exact, "--fast"),
    )
    for name, first, second, options in pairs:
        if first != second:
            raise UsageError(f"the {name} of the two machines differ; simulate both with the same {options}")


def _key(measurement: Measurement) -> tuple[object, ...]:
    """Return everything that two comparable measurements share."""
    settings = structs.asdict(measurement)
    return tuple(str(settings[name]) for name in SETTINGS)


def _name(measurement: Measurement) -> str:
    """Return the name of a measurement, such as `zero_copy, 64 KiB`."""
    if measurement.command:
        return visible(" ".join(measurement.command))
    parts = [str(measurement.impl), format_bytes(measurement.size_bytes)]
    parts += [f"{measurement.threads} threads"] if (measurement.threads or 1) > 1 else []
    return ", ".join(parts)


def _setting(before: Measurement, after: Measurement) -> SettingDifference:
    """Compare one setting: all work of the workload, each account and stage, and each function."""
    totals = ([row for row in measured.sides if row.side != OTHER] for measured in (before, after))
    total = _changed_row(ALL_WORK, *totals)
    # A late copy of the workload may run in a kernel thread.
    first, second = (
        grouped(
            (row for row in measured.rows if row.side != OTHER or row.category in ACCOUNTS),
            lambda row: row.category,
        )
        for measured in (before, after)
    )
    rows = tuple(
        _changed_row(category, first.get(category, []), second.get(category, []))
        for category in (*ACCOUNTS, *STAGES)
        if category in first or category in second
    )
    functions = _changed_functions(before.functions, after.functions)
    return SettingDifference(_name(after), total, rows, functions, _verdict(total))


def _verdict(total: ChangedRow) -> str:
    verdicts = {total.change(quantity).verdict for quantity in DECIDING}
    return WORSE if WORSE in verdicts else BETTER if BETTER in verdicts else SAME


def _changed_row(category: str, before: Sequence[SideSum], after: Sequence[SideSum]) -> ChangedRow:
    return ChangedRow(category, tuple(_change(quantity, before, after) for quantity in QUANTITIES))


def _change(quantity: SimulatedCount, before: Sequence[SideSum], after: Sequence[SideSum]) -> CountChange:
    """Return the change of a quantity.

    The half widths of rows are added up, because the rows of one boot are not independent of each other.
    """
    first, second = quantity.total(before), quantity.total(after)
    spreads = [quantity.spread(rows) for rows in (before, after)]
    known = [spread for spread in spreads if spread is not None]
    spread = sum(known) if len(known) == len(spreads) else None
    if abs(second - first) <= max(quantity.least_change(first), spread or 0.0):
        verdict = SAME
    else:
        verdict = WORSE if second > first else BETTER
    return CountChange(quantity.name, round(first, 4), round(second, 4), spread, verdict)


def _changed_functions(
    before: Sequence[SimulatedFunction] | None, after: Sequence[SimulatedFunction] | None
) -> tuple[ChangedFunction, ...] | None:
    """Return the functions that changed, the largest change of instructions first, or None if unknown.

    The compiler appends suffixes such as `.isra.0`, which differ between two builds.
    """
    if before is None or after is None:
        return None
    first, second = (_by_name(functions) for functions in (before, after))
    changed = []
    for key in first.keys() | second.keys():
        was, now = first.get(key, (0.0, 0.0)), second.get(key, (0.0, 0.0))
        pairs = zip(DECIDING, was, now, strict=True)
        if any(abs(later - earlier) > count.least_change(earlier) for count, earlier, later in pairs):
            changed.append(ChangedFunction(*key, was[0], now[0], was[1], now[1]))
    return tuple(sorted(changed, key=_largest_first))


def _by_name(functions: Sequence[SimulatedFunction]) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the counts of DECIDING per KiB by (name without suffix, category)."""
    return {
        key: (
            sum(function.instructions_per_kib for function in same),
            sum(function.lines_per_kib for function in same),
        )
        for key, same in grouped(
            functions, lambda function: (SUFFIX.sub("", function.name), function.category)
        ).items()
    }


def _largest_first(function: ChangedFunction) -> tuple[float, str]:
    change = abs(function.instructions_after - function.instructions_before)
    return -max(
        change, LINE_IN_INSTRUCTIONS * abs(function.lines_after - function.lines_before)
    ), function.name
