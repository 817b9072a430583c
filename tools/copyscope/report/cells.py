"""Estimates as the text of a cell, and tables that say why a cell is empty."""

from collections.abc import Sequence

from copyscope.grouping import gathered
from copyscope.report.blocks import Table
from copyscope.stats import Estimate, Missing
from copyscope.study.wording import number
from copyscope.units import NOT_AVAILABLE

Value = Estimate | Missing


def spell(value: Value) -> str:
    """An estimate with its interval: `42.1 [40.9, 43.5]`; `n/a` for what is missing."""
    if isinstance(value, Missing):
        return NOT_AVAILABLE
    if value.low is None or value.high is None or value.low == value.value == value.high:
        return number(value.value)
    return f"{number(value.value)} [{number(value.low)}, {number(value.high)}]"


def estimates_table(
    title: str,
    keys: Sequence[str],
    names: Sequence[str],
    lines: Sequence[tuple[Sequence[str], Sequence[Value]]],
    notes: Sequence[str] = (),
) -> Table:
    """A table of estimates. A column without any value is left out and named below, with its reason."""
    kept: list[int] = []
    absent: list[tuple[str, str]] = []  # why, and the name of the column
    partly: list[tuple[str, str]] = []
    for index, name in enumerate(names):
        column = [values[index] for _, values in lines]
        reasons = list(dict.fromkeys(value.reason for value in column if isinstance(value, Missing)))
        if any(isinstance(value, Estimate) for value in column):
            kept.append(index)
            partly += [(f"n/a: {reason}", name) for reason in reasons]
        else:
            absent.append((f"n/a in every row: {reasons[0] if reasons else 'no row'}", name))
    said = [f"{', '.join(named)}: {reason}." for reason, named in gathered([*absent, *partly]).items()]
    rows = [[*key, *(spell(values[i]) for i in kept)] for key, values in lines]
    columns = [*keys, *(names[i] for i in kept)]
    return Table(columns, rows, frozenset(range(len(keys), len(columns))), [*notes, *said], title)
