"""The table of an experiment: one row per point with every estimate, made once for all readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copyscope.judge import estimates
from copyscope.judge.estimates import Point, parts_of, typical
from copyscope.judge.metrics import METRICS
from copyscope.record.check import Whole
from copyscope.stats import Estimate, Missing

Key = tuple[str, str, str]  # account or stage, side, context

# the factors that every point has, swept or not, and where a record keeps them
ALWAYS = {"impl": "impl", "size": "size_bytes", "threads": "threads"}
# Best first: the order in which reports name the strategies. Others follow by name.
STRATEGIES = ("per_field", "two_copy", "one_copy", "zero_copy")


@dataclass(frozen=True)
class Row:
    """One point: its factors, how many runs stand behind it, and what they say."""

    factors: Mapping[str, Any]
    mode: str
    valid: int
    invalid: int
    values: Mapping[str, Estimate | Missing]
    accounts: Mapping[Key, Estimate]
    parts: Mapping[str, float]  # composition.typical()
    point: Point

    @property
    def impl(self) -> str:
        return str(self.factors["impl"])

    @property
    def size(self) -> int:
        return int(self.factors["size"])

    @property
    def threads(self) -> int:
        return int(self.factors["threads"])


def fill(runs: Sequence[Whole]) -> list[Row]:
    """One row per point; of a point without a valid run all values are missing, with the reason."""
    valid = {setting_of(point.factors): point for point in estimates.group(runs)}
    points = estimates.group(runs, valid_only=False)
    return sorted((_row(point, valid.get(setting_of(point.factors))) for point in points), key=order)


def _row(point: Point, good: Point | None) -> Row:
    first = point.runs[0]
    asked = first.raw.asked
    factors = dict(point.factors) | {name: getattr(asked, key) for name, key in ALWAYS.items()}
    count = len(good.runs) if good else 0
    values: dict[str, Estimate | Missing]
    if good is None:
        why = Missing(f"no valid run of this point: {first.derived.verdict.reasons[0]}")
        values = {name: why for name in METRICS}
    else:
        values = {name: estimates.estimate(good, name) for name in METRICS}
    accounts = estimates.account_estimates(good) if good else {}
    parts = typical(parts_of(good.runs)) if good else {}
    return Row(factors, asked.mode, count, len(point.runs) - count, values, accounts, parts, good or point)


def order(row: Row) -> tuple[Any, ...]:
    """By size, threads, what else was swept, and strategy last: what is compared stands together."""
    rest = [(name, comparable(value)) for name, value in sorted(row.factors.items()) if name not in ALWAYS]
    return row.size, row.threads, rest, strategy_order(row.impl)


def strategy_order(impl: str) -> tuple[int, str]:
    return (STRATEGIES.index(impl) if impl in STRATEGIES else len(STRATEGIES)), impl


def comparable(value: Any) -> tuple[int, float, str]:
    """A key that orders numbers by value, before words; two types in one factor do not stop a report."""
    if isinstance(value, (int, float)):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def setting_of(factors: Mapping[str, Any], without: str = "") -> tuple[tuple[str, str], ...]:
    """A key for factors; points that differ in `without` only have the same."""
    return tuple(sorted((name, repr(value)) for name, value in factors.items() if name != without))
