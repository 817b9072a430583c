"""Rows that belong together, in the order in which the first of each group comes."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Row = TypeVar("Row")
Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Each row under its key."""
    return gathered((key(row), row) for row in rows)


def gathered(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """(key, value): each value under its key."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
