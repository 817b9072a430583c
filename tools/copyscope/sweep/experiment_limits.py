"""How large an experiment may be, and how much of it an error repeats. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from copyscope.arguments import DIGITS_MAX
from copyscope.errors import UsageError

FILE_BYTES_MAX = 1 << 20
# A day has 86,400 seconds: more is a mistake, and would be found out only when the memory is full.
POINTS_MAX = 100_000
VALUES_MAX = 1000
SHOWN_MAX = 60


def check_values(path: Path, tables: dict[str, Any]) -> None:
    """No number that cannot be printed, no text that no program can be given."""
    waiting: list[Any] = [tables]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and abs(value) >= 10**DIGITS_MAX:
            raise UsageError(f"{path}:1: a number of more than {DIGITS_MAX} digits: not an experiment")
        elif isinstance(value, str) and "\0" in value:
            raise UsageError(f"{path}:1: {shown(value)}: holds a NUL character: remove it")


def too_many(factors: Mapping[str, Any]) -> tuple[str, str] | None:
    """(factor, reason), before anything is made of them: the points are every value with every other."""
    points = 1
    for key, values in factors.items():
        count = len(values) if isinstance(values, list) else 1
        points *= max(1, count)
        if count > VALUES_MAX:
            return key, f"{count} values: at most {VALUES_MAX}"
        if points > POINTS_MAX:
            return key, f"with this one there are more than {POINTS_MAX:,} points"
    return None


def shown(value: object) -> str:
    """As the file has it, or the beginning of that."""
    if isinstance(value, str):
        text = f'"{value}"' if len(value) <= SHOWN_MAX else f'"{value[:SHOWN_MAX]}…"'
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= SHOWN_MAX + 3 else f"{text[:SHOWN_MAX]}…"
