"""Which point is drawn where: the axis along which a quantity is drawn, and the panels beside each other.

A line is always a strategy. The factor with the most values is the axis; each combination of the others is
a panel. So a sweep over sizes and threads and one over fields and pages are drawn by the same code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copyscope.grouping import grouped
from copyscope.study.table import Row, comparable, strategy_order
from copyscope.units import format_whole_size


@dataclass(frozen=True)
class Axis:
    """A factor as an axis. Its values double rather than grow."""

    factor: str
    label: str
    binary: bool = False  # values are bytes


@dataclass(frozen=True)
class Panel:
    """One set of axes: what its points have in common, and the points of each strategy in order."""

    title: str
    lines: Mapping[str, tuple[Row, ...]]


ACRONYMS = ("mtu", "tso", "gso", "gro")
AXES = {
    "size": Axis("size", "message size", binary=True),
    "fields": Axis("fields", "fields per message"),
    "working_set": Axis("working_set", "messages in the working set"),
    "threads": Axis("threads", "threads"),
    "mtu": Axis("mtu", "MTU (bytes)"),
}


def find_axis(rows: Sequence[Row], first: str | None = None) -> Axis:
    """The numeric factor with the most values: size, where nothing has more. `first`: preferred if varied."""
    counts = {name: len({row.factors.get(name) for row in rows}) for name in AXES}
    if first is not None and counts[first] > 1:
        return AXES[first]
    return AXES[max(AXES, key=lambda name: counts[name])]  # max keeps the first of equals: size is first


def arrange(rows: Sequence[Row], axis: Axis) -> list[Panel]:
    """The panels of a figure, ordered by what they have in common."""
    swept = varied(rows, without=("impl", axis.factor))
    cells = grouped(rows, lambda row: tuple(row.factors.get(name) for name in swept))
    return [
        Panel(describe(dict(zip(swept, key, strict=True))), _lines(cells[key], axis))
        for key in sorted(cells, key=lambda key: [comparable(value) for value in key])
    ]


def _lines(rows: Sequence[Row], axis: Axis) -> dict[str, tuple[Row, ...]]:
    ordered = sorted(rows, key=lambda row: comparable(row.factors.get(axis.factor)))
    by_impl = grouped(ordered, lambda row: row.impl)
    return {impl: tuple(by_impl[impl]) for impl in sorted(by_impl, key=strategy_order)}


def varied(rows: Sequence[Row], without: Sequence[str] = ()) -> list[str]:
    """The factors that differ between points, threads and size first, the others by name."""
    names = {name for row in rows for name in row.factors} - set(without)
    differing = [name for name in names if len({repr(row.factors.get(name)) for row in rows}) > 1]
    return sorted(differing, key=lambda name: (name != "size", name != "threads", name))


def describe(factors: Mapping[str, Any]) -> str:
    """Factors for reading: `64 KiB, 4 threads, pages thp`."""
    return ", ".join(spell(name, value) for name, value in factors.items())


def spell(name: str, value: Any) -> str:
    """One factor with its value for reading."""
    if name == "size":
        return format_whole_size(int(value))
    if name in ("threads", "fields"):
        return f"{value} {name if value != 1 else name[:-1]}"
    words = name.upper() if name in ACRONYMS else name.replace("_", " ")
    if isinstance(value, bool):
        return f"{words} {'on' if value else 'off'}"
    return f"{words} {'default' if value is None else value}"
