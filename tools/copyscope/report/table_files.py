"""The tables as files: results and ledger, as CSV and as Parquet with the same cells.

Numbers are kept to six digits: more than any interval here deserves, and the same bytes on every machine.
An unknown number is an empty cell; the column `missing` says why.
"""

import csv
import io
from collections.abc import Mapping, Sequence, Set

from copyscope.escaping import for_csv, visible
from copyscope.grouping import gathered, grouped
from copyscope.judge.metrics import METRICS, left_alone, settings
from copyscope.record.simulated import COUNTED
from copyscope.stats import Estimate, Missing
from copyscope.study.modelled import ModelPoint, per_kib
from copyscope.study.published import COLUMNS, Cell, published_cells
from copyscope.study.table import ALWAYS, Row
from copyscope.taxonomy.taxonomy import ACCOUNTS

MACHINE = ("hostname", "kernel", "cpu_model", "cpus_online", "hypervisor")
# settings that the published columns already have under their own names
NAMED = {*ALWAYS}
Table = list[dict[str, Cell]]


def results_table(rows: Sequence[Row], experiment: str) -> Table:
    """One line per point: the published columns, the settings, the machine, each metric with its interval."""
    extra = sorted({name for row in rows for name in row.factors} - NAMED)
    hidden = left_alone(row.point.runs[0] for row in rows) | NAMED
    return [_results_line(row, experiment, extra, hidden) for row in rows]


def _results_line(row: Row, experiment: str, extra: Sequence[str], hidden: Set[str]) -> dict[str, Cell]:
    first = row.point.runs[0]
    line = published_cells(row, experiment)
    line |= {"valid_runs": row.valid, "invalid_runs": row.invalid}
    known = settings(first)
    line |= {name: value for name, value in known.items() if name not in hidden}
    line |= {name: _as_cell(row.factors.get(name)) for name in extra if name not in known}
    line |= {name: getattr(first.raw.machine, name) for name in MACHINE}
    for name in METRICS:
        found = row.values[name]
        for end, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            line[f"{name}{suffix}"] = getattr(found, end) if isinstance(found, Estimate) else None
    line["missing"] = explain_missing(row.values) or None
    return _rounded(line)


def explain_missing(values: Mapping[str, Estimate | Missing]) -> str:
    """Each reason once, with the metrics that it holds for."""
    alike = gathered((found.reason, name) for name, found in values.items() if isinstance(found, Missing))
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in alike.items())


def ledger_table(rows: Sequence[Row]) -> Table:
    """One line per point and row of its ledger: ns per KiB of an account or stage, by side and context."""
    extra = sorted({name for row in rows for name in row.factors} - NAMED)
    table: Table = []
    for row in rows:
        for (category, side, context), cost in sorted(row.accounts.items()):
            line: dict[str, Cell] = {"strategy": row.impl, "message_bytes": row.size, "threads": row.threads}
            line |= {name: _as_cell(row.factors.get(name)) for name in extra}
            line |= {"kind": "account" if category in ACCOUNTS else "stage", "category": category}
            line |= {"side": side, "context": context, "ns_per_kib": cost.value}
            line |= {"ns_per_kib_low": cost.low, "ns_per_kib_high": cost.high, "runs": cost.samples}
            table.append(_rounded(line))
    return table


def modelled_table(points: Sequence[ModelPoint]) -> Table:
    """One line per point of a simulated machine and account or stage: counts per KiB, means of the boots."""
    table: Table = []
    for point in points:
        head: dict[str, Cell] = {
            "model": point.setting.cache,
            "path": point.setting.path,
            "kernel": point.setting.kernel,
            "working_set_messages": point.setting.working_set_messages,
            "strategy": point.impl,
            "message_bytes": point.size,
            "boots": len(point.boots),
        }
        every = (row for boot in point.boots for row in boot.rows)
        rows = grouped(every, lambda row: (row.category, row.side, row.context))
        for key, of_key in sorted(rows.items()):
            line = head | {"category": key[0], "side": key[1], "context": key[2], "method": "modelled"}
            # A boot without such a row counted nothing of it.
            line |= {
                f"{name}_per_kib": sum(per_kib(row, name) for row in of_key) / len(point.boots)
                for name in COUNTED
            }
            table.append(_rounded(line))
    return table


def _as_cell(value: object) -> Cell:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _rounded(line: Mapping[str, Cell]) -> dict[str, Cell]:
    return {name: float(f"{c:.6g}") if isinstance(c, float) else c for name, c in line.items()}


def as_csv(table: Table) -> bytes:
    """RFC 4180 with line feeds; an unknown value is empty, a truth value is true or false.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if table:
        writer.writerow(map(for_csv, table[0]))
    for line in table:
        writer.writerow([for_csv(c) if isinstance(c, str) else spell_cell(c) for c in line.values()])
    return stream.getvalue().encode()


def spell_cell(cell: Cell) -> str:
    """A cell as CSV has it."""
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else visible(str(cell))


def as_parquet(table: Table) -> bytes:
    """The same cells with types: a column of several kinds of values is text, an empty one is float."""
    import pyarrow  # noqa: PLC0415 (150 ms that only this file costs)
    from pyarrow import parquet  # noqa: PLC0415

    names = list(table[0]) if table else list(COLUMNS)
    columns = {visible(name): _column(pyarrow, [line[name] for line in table]) for name in names}
    stream = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), stream, compression="zstd")
    return bytes(stream.getvalue())


def _column(pyarrow: object, cells: Sequence[Cell]) -> object:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        name = "bool_"
    elif kinds == {int}:
        name = "int64"
    elif kinds <= {int, float}:
        name = "float64"
    else:
        name = "string"
        cells = [None if cell is None else spell_cell(cell) for cell in cells]
    return pyarrow.array(cells, getattr(pyarrow, name)())  # type: ignore[attr-defined]
