"""The columns of the published reports, from our records: the same names, and what stands for them here.

Theirs are totals of one process under `perf stat`; ours are totals of the sender over its `ledger` segments,
the median over repeats. What they call latency is wall time over messages. Their cycles per byte are of the
counted process, which in two of the reports was the receiver; ours says `sender`.
"""

from statistics import median

from copyscope.judge.metrics import ledger_segments, switches
from copyscope.record.measured import Topology
from copyscope.stats import Estimate
from copyscope.study.table import Row

Cell = str | int | float | bool | None

COLUMNS = (
    *("report", "label", "strategy", "message_bytes", "threads", "throughput_gbps", "latency_us"),
    *("cycles", "cycles_per_byte", "l1d_load_misses", "llc_load_misses", "llc_store_misses"),
    *("context_switches", "counted_process", "path"),
)
EVENTS = {
    "cycles": "cycles",
    "l1d_load_misses": "L1-dcache-load-misses",
    "llc_load_misses": "LLC-load-misses",
    "llc_store_misses": "LLC-store-misses",
}
# the names that the reports give to their strategies
LABELS = {"per_field": "A1 per field", "two_copy": "A1", "one_copy": "A2", "zero_copy": "A3"}


def published_cells(row: Row, experiment: str) -> dict[str, Cell]:
    """The published columns of one point; None for what is not known."""
    switched = [switches(ledger_segments(run), "sender") for run in row.point.runs]
    cells: dict[str, Cell] = {
        "report": experiment,
        "label": LABELS.get(row.impl, row.impl),
        "strategy": row.impl,
        "message_bytes": row.size,
        "threads": row.threads,
        "throughput_gbps": _value(row, "goodput_gbps"),
        "latency_us": _value(row, "inverse_throughput_us"),
        "cycles_per_byte": _value(row, "cycles_per_byte_sender"),
        "context_switches": float(median(switched)) if row.valid else None,
        "counted_process": "sender",
        "path": spell_path(row.point.runs[0].raw.topology),
    }
    cells |= {name: _total(row, event) if row.valid else None for name, event in EVENTS.items()}
    return {name: cells[name] for name in COLUMNS}


def _value(row: Row, metric: str) -> float | None:
    found = row.values[metric]
    return found.value if isinstance(found, Estimate) else None


def _total(row: Row, event: str) -> float | None:
    counters = [run.raw.counters["sender"].get(event) for run in row.point.runs]
    known = [one.value for one in counters if one is not None and one.value is not None]
    return median(known) if known else None


def spell_path(path: Topology) -> str:
    """A path in words: `veth, MTU 1500, TSO/GSO/GRO on`."""
    parts = [path.kind]
    if path.mtu_bytes is not None:
        parts.append(f"MTU {path.mtu_bytes}")
    for state, word in ((True, "on"), (False, "off")):
        names = [name.upper() for name in ("tso", "gso", "gro") if path.offloads.get(name) is state]
        if names:
            parts.append(f"{'/'.join(names)} {word}")
    return ", ".join(parts)
