"""Estimates as the text of a cell, and tables that say why a cell is empty."""

from collections.abc import Sequence

from copyscope.compare.estimates import Estimate, Missing
from copyscope.grouping import gathered
from copyscope.render.report.blocks import Table
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
    kept = [
        index
        for index in range(len(names))
        if any(isinstance(values[index], Estimate) for _, values in lines)
    ]
    reasons = [
        list(dict.fromkeys(v.reason for _, values in lines if isinstance(v := values[index], Missing)))
        for index in range(len(names))
    ]
    absent = [index for index in range(len(names)) if index not in kept]
    why = [(f"n/a in every row: {(reasons[i] or ['no row'])[0]}", names[i]) for i in absent]
    why += [(f"n/a: {reason}", names[i]) for i in kept for reason in reasons[i]]
    said = [f"{', '.join(named)}: {reason}." for reason, named in gathered(why).items()]
    rows = [[*key, *(spell(values[i]) for i in kept)] for key, values in lines]
    columns = [*keys, *(names[i] for i in kept)]
    return Table(columns, rows, frozenset(range(len(keys), len(columns))), [*notes, *said], title)
