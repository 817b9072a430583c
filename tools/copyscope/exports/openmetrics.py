"""OpenMetrics text, version 1.0, for Prometheus and for node_exporter's textfile collector.

What is not known has no line: a metric is never 0 for want of knowledge.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from copyscope.escaping import visible
from copyscope.exports.costs import Row, kind_of, moved, rows
from copyscope.record.check import Whole

Sample = tuple[dict[str, Any], float | None]


def write(run: Whole) -> bytes:
    """One run: its goodput, whether it counts, and each row of the ledger."""
    lines = []
    for name, kind, unit, what, samples in families(run):
        known = [(labels, value) for labels, value in samples if value is not None]
        if not known:
            continue
        lines += [f"# TYPE copyscope_{name} {kind}"]
        lines += [f"# UNIT copyscope_{name} {unit}"] if unit else []
        lines += [f"# HELP copyscope_{name} {what}"]
        suffix = "_info" if kind == "info" else ""
        lines += [f"copyscope_{name}{suffix}{{{spelled(labels)}}} {value:.10g}" for labels, value in known]
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def families(whole: Whole) -> Iterator[tuple[str, str, str, str, list[Sample]]]:
    """Name, type, unit, help and samples of each metric family."""
    run, work, machine = whole.raw.run, whole.raw.workload, whole.raw.machine
    base = {"run": run.id, "impl": work.impl if work else "watched"}
    known = {"hostname": machine.hostname, "kernel": machine.kernel, "started": run.started}
    settings = {name: getattr(work, name) for name in ("size_bytes", "threads", "fields")} if work else {}
    yield "run", "info", "", "What was run, and where.", [(base | known | settings, 1)]
    valid = float(whole.derived.verdict.valid)
    yield "valid", "gauge", "", "1: every consistency check of the run holds.", [(base, valid)]
    goodput = whole.derived.throughput_gbps
    phases = {"unprobed": goodput.unprobed, "probed": goodput.probed}
    bits = [(base | {"phase": phase}, rate and rate * 1e9) for phase, rate in phases.items()]
    yield "goodput_bits_per_second", "gauge", "", "Payload delivered, without and with instruments.", bits
    sides = whole.derived.sides
    spent = {"other": sides.other, "elsewhere": sides.elsewhere, **sides.processes()}
    times = [(base | {"side": side}, seconds(one.cpu_ns)) for side, one in spent.items()]
    yield "side_cpu_seconds", "gauge", "seconds", "CPU time of a side in the ledger segments.", times
    table = [(base | labels(row), row) for row in rows(whole)]
    by_row: list[Sample] = [(named, seconds(row.cpu_ns)) for named, row in table]
    yield "row_cpu_seconds", "gauge", "seconds", "CPU time of a row of the ledger.", by_row
    copied: list[Sample] = [(named, moved(row)[0]) for named, row in table]
    yield "row_bytes", "gauge", "bytes", "Bytes that a copy moved.", copied
    calls: list[Sample] = [(named, moved(row)[1]) for named, row in table]
    yield "row_calls", "gauge", "", "How often a copy was made.", calls


def labels(row: Row) -> dict[str, str]:
    return {"kind": kind_of(row), "account": row.category, "side": row.side, "where": row.context}


def seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def spelled(labels: Mapping[str, Any]) -> str:
    """`name="value"`, with what the format escapes."""
    texts = {name: re.sub(r'(["\\])', r"\\\1", visible(str(value))) for name, value in labels.items()}
    return ",".join(f'{name}="{text}"' for name, text in texts.items())
