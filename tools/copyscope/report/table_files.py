# SPDX-License-Identifier: GPL-2.0-only
"""Tables as CSV, and tables of a run as Parquet with the same cells.

Numbers are rounded to six digits, so that every machine writes the same bytes. All intervals are wider than
the rounding error. An unknown number is an empty cell, and the column `missing` gives the reason.

The first columns of the results have the names that four published reports use. There, a count is the total
of one process under `perf stat`. In these files, a count is the sender's total over the `ledger` segments, as
a median over repeats. `latency_us` is wall time divided by messages, as in the reports. Two reports counted
the cycles of the receiver, but in these files `counted_process` is always `sender`.
"""

import csv
import io
from collections.abc import Mapping, Sequence, Set
from statistics import median

from copyscope.base.database import parquet_of
from copyscope.base.spelling import for_csv, visible
from copyscope.base.stats import Estimate, Missing, gathered, grouped
from copyscope.judge.metrics import METRICS, ledger_segments, settings, switches, unchanged_settings
from copyscope.record.measured import TopologySection
from copyscope.record.simulated import COUNTED
from copyscope.report.model_points import ModelPoint, per_kib
from copyscope.report.study_table import ALWAYS, StudyRow
from copyscope.taxonomy.accounts import ACCOUNTS

CellValue = str | int | float | bool | None

# Names of the columns that the published reports use.
COLUMNS = (
    *("report", "label", "strategy", "message_bytes", "threads", "throughput_gbps", "latency_us"),
    *("cycles", "cycles_per_byte", "l1d_load_misses", "llc_load_misses", "llc_store_misses"),
    *("context_switches", "counted_process", "path"),
)
# Column of a count -> event of the record.
EVENTS = {
    "cycles": "cycles",
    "l1d_load_misses": "L1-dcache-load-misses",
    "llc_load_misses": "LLC-load-misses",
    "llc_store_misses": "LLC-store-misses",
}
# Strategy -> its name in the published reports.
LABELS = {"per_field": "A1 per field", "two_copy": "A1", "one_copy": "A2", "zero_copy": "A3"}


def published_cells(row: StudyRow, experiment: str) -> dict[str, CellValue]:
    """Return one point's columns that the published reports also have. None means unknown."""
    switched = [switches(ledger_segments(run), "sender") for run in row.point.runs]
    cells: dict[str, CellValue] = {
        "report": experiment,
        "label": LABELS.get(row.impl, row.impl),
        "strategy": row.impl,
        "message_bytes": row.size,
        "threads": row.threads,
        "throughput_gbps": _value_of(row, "goodput_gbps"),
        "latency_us": _value_of(row, "inverse_throughput_us"),
        "cycles_per_byte": _value_of(row, "cycles_per_byte_sender"),
        "context_switches": float(median(switched)) if row.valid else None,
        "counted_process": "sender",
        "path": spell_path(row.point.runs[0].raw.topology),
    }
    cells |= {name: _median_count(row, event) if row.valid else None for name, event in EVENTS.items()}
    return {name: cells[name] for name in COLUMNS}


def _value_of(row: StudyRow, metric: str) -> float | None:
    """Return the value of a metric at a point, or None if its estimate is missing."""
    value = row.values[metric]
    return value.value if isinstance(value, Estimate) else None


def _median_count(row: StudyRow, event: str) -> float | None:
    """Return the median of one of the sender's event counters over a point's runs, or None if unknown."""
    counters = [run.raw.counters["sender"].get(event) for run in row.point.runs]
    counts = [counter.value for counter in counters if counter is not None and counter.value is not None]
    return median(counts) if counts else None


def spell_path(path: TopologySection) -> str:
    """Format a network path: `veth, MTU 1500, TSO/GSO/GRO on`."""
    parts = [path.kind]
    if path.mtu_bytes is not None:
        parts.append(f"MTU {path.mtu_bytes}")
    for state, word in ((True, "on"), (False, "off")):
        names = [name.upper() for name in ("tso", "gso", "gro") if path.offloads.get(name) is state]
        if names:
            parts.append(f"{'/'.join(names)} {word}")
    return ", ".join(parts)


# Keys of the record's section `machine` that have a column.
MACHINE_COLUMNS = ("hostname", "kernel", "cpu_model", "cpus_online", "hypervisor")
# Settings that the published columns contain under other names.
PUBLISHED_SETTINGS = {*ALWAYS}
TableLines = list[dict[str, CellValue]]


def results_table(rows: Sequence[StudyRow], experiment: str) -> TableLines:
    """Return a line for each point: the reports' columns, settings, machine, and all metrics with intervals.

    experiment: name of the experiment, for the column `report`
    """
    swept = sorted({name for row in rows for name in row.factors} - PUBLISHED_SETTINGS)
    left_out = unchanged_settings(row.point.runs[0] for row in rows) | PUBLISHED_SETTINGS
    return [_results_line(row, experiment, swept, left_out) for row in rows]


def _results_line(
    row: StudyRow, experiment: str, swept: Sequence[str], left_out: Set[str]
) -> dict[str, CellValue]:
    """Return the line of a point.

    swept: varied factors, which get a column
    left_out: settings that get no column, because no run changes them or another column has them
    """
    first_run = row.point.runs[0]
    line = published_cells(row, experiment)
    line |= {"valid_runs": row.valid, "invalid_runs": row.invalid}
    run_settings = settings(first_run)
    line |= {name: value for name, value in run_settings.items() if name not in left_out}
    line |= {name: _as_cell(row.factors.get(name)) for name in swept if name not in run_settings}
    line |= {name: getattr(first_run.raw.machine, name) for name in MACHINE_COLUMNS}
    for name in METRICS:
        estimate = row.values[name]
        for end, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            line[f"{name}{suffix}"] = getattr(estimate, end) if isinstance(estimate, Estimate) else None
    line["missing"] = explain_missing(row.values) or None
    return _rounded(line)


def explain_missing(values: Mapping[str, Estimate | Missing]) -> str:
    """Format the reasons why metrics are missing, each after its metrics: `cycles, ipc: no PMU; ...`."""
    missing = ((value.reason, name) for name, value in values.items() if isinstance(value, Missing))
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in gathered(missing).items())


def ledger_table(rows: Sequence[StudyRow]) -> TableLines:
    """Return all points' ledgers: ns per KiB by point, account or stage, side and context."""
    swept = sorted({name for row in rows for name in row.factors} - PUBLISHED_SETTINGS)
    table: TableLines = []
    for row in rows:
        for (category, side, context), cost in sorted(row.accounts.items()):
            line: dict[str, CellValue] = {
                "strategy": row.impl,
                "message_bytes": row.size,
                "threads": row.threads,
            }
            line |= {name: _as_cell(row.factors.get(name)) for name in swept}
            line |= {"kind": "account" if category in ACCOUNTS else "stage", "category": category}
            line |= {"side": side, "context": context, "ns_per_kib": cost.value}
            line |= {"ns_per_kib_low": cost.low, "ns_per_kib_high": cost.high, "runs": cost.samples}
            table.append(_rounded(line))
    return table


def modelled_table(points: Sequence[ModelPoint]) -> TableLines:
    """Return a line for each account or stage of each simulated point: mean counts per KiB over the boots."""
    table: TableLines = []
    for point in points:
        head: dict[str, CellValue] = {
            "model": point.setting.cache,
            "path": point.setting.path,
            "kernel": point.setting.kernel,
            "working_set_messages": point.setting.working_set_messages,
            "strategy": point.impl,
            "message_bytes": point.size,
            "boots": len(point.boots),
        }
        all_rows = (row for boot in point.boots for row in boot.rows)
        rows_by_key = grouped(all_rows, lambda row: (row.category, row.side, row.context))
        for (category, side, context), rows in sorted(rows_by_key.items()):
            line = head | {"category": category, "side": side, "context": context, "method": "modelled"}
            # Divide by the number of all boots, because a boot without this row counted zero.
            line |= {
                f"{name}_per_kib": sum(per_kib(row, name) for row in rows) / len(point.boots)
                for name in COUNTED
            }
            table.append(_rounded(line))
    return table


def _as_cell(value: object) -> CellValue:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _rounded(line: Mapping[str, CellValue]) -> dict[str, CellValue]:
    """Return a line with its floats rounded to six digits."""
    return {name: float(f"{cell:.6g}") if isinstance(cell, float) else cell for name, cell in line.items()}


def as_csv(table: TableLines) -> bytes:
    """Return a table as CSV (RFC 4180, but lines end with a line feed).

    An unknown value is an empty cell, and a Boolean is `true` or `false`. Text that a spreadsheet would run
    as a formula gets a leading apostrophe.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if table:
        writer.writerow(map(for_csv, table[0]))
    for line in table:
        writer.writerow(
            [for_csv(cell) if isinstance(cell, str) else spell_cell(cell) for cell in line.values()]
        )
    return stream.getvalue().encode()


def spell_cell(cell: CellValue) -> str:
    """Format a cell of a CSV file. An unknown value is empty."""
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else visible(str(cell))


def as_parquet(table: TableLines) -> bytes:
    """Return a table as Parquet. A column of mixed types becomes text, one without values becomes a float."""
    types = (
        {name: _sql_type([line[name] for line in table]) for name in table[0]}
        if table
        else {"run": "VARCHAR"}
    )
    lines = [
        {
            visible(name): spell_cell(cell) if types[name] == "VARCHAR" and cell is not None else cell
            for name, cell in line.items()
        }
        for line in table
    ]
    return parquet_of({visible(name): type_ for name, type_ in types.items()}, lines)


def _sql_type(cells: Sequence[CellValue]) -> str:
    """Return the SQL type that all cells of a column share."""
    types = {type(cell) for cell in cells if cell is not None}
    if types == {bool}:
        return "BOOLEAN"
    if types == {int}:
        return "BIGINT"
    return "DOUBLE" if types <= {int, float} else "VARCHAR"
