"""OpenMetrics text, version 1.0, for Prometheus and for node_exporter's textfile collector.

What is not known has no line: a metric is never 0 for want of knowledge.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from copyscope.escaping import visible
from copyscope.exports.costs import rows
from copyscope.record.segments import Record

Sample = tuple[dict[str, Any], float | None]


def write(record: Record) -> bytes:
    """One run: its goodput, whether it counts, and each row of the ledger."""
    lines = []
    for name, kind, unit, what, samples in families(record):
        known = [(labels, value) for labels, value in samples if value is not None]
        if not known:
            continue
        lines += [f"# TYPE copyscope_{name} {kind}"]
        lines += [f"# UNIT copyscope_{name} {unit}"] if unit else []
        lines += [f"# HELP copyscope_{name} {what}"]
        suffix = "_info" if kind == "info" else ""
        lines += [f"copyscope_{name}{suffix}{{{spelled(labels)}}} {value:.10g}" for labels, value in known]
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def families(record: Record) -> Iterator[tuple[str, str, str, str, list[Sample]]]:
    """Name, type, unit, help and samples of each metric family."""
    run, work, machine = record["run"], record.get("workload", {}), record["machine"]
    base = {"run": run["id"], "impl": work.get("impl") or "watched"}
    known = {"hostname": machine["hostname"], "kernel": machine["kernel"], "started": run["started"]}
    settings = {
        name: work[name] for name in ("size_bytes", "threads", "fields") if work.get(name) is not None
    }
    yield "run", "info", "", "What was run, and where.", [(base | known | settings, 1)]
    valid = float(record["verdict"]["valid"])
    yield "valid", "gauge", "", "1: every consistency check of the run holds.", [(base, valid)]
    goodput = record["throughput_gbps"]
    bits = [
        (base | {"phase": phase}, goodput[phase] and goodput[phase] * 1e9) for phase in ("unprobed", "probed")
    ]
    yield "goodput_bits_per_second", "gauge", "", "Payload delivered, without and with instruments.", bits
    sides = [(base | {"side": side}, seconds(row["cpu_ns"])) for side, row in record["sides"].items()]
    yield "side_cpu_seconds", "gauge", "seconds", "CPU time of a side in the ledger segments.", sides
    table = [
        (base | {"kind": kind, "account": name, "side": row["side"], "where": row["context"]}, row)
        for kind, name, row in rows(record)
    ]
    spent = [(labels, seconds(row["cpu_ns"])) for labels, row in table]
    yield "row_cpu_seconds", "gauge", "seconds", "CPU time of a row of the ledger.", spent
    moved, calls = ([(labels, row.get(key)) for labels, row in table] for key in ("bytes", "calls"))
    yield "row_bytes", "gauge", "bytes", "Bytes that a copy moved.", moved
    yield "row_calls", "gauge", "", "How often a copy was made.", calls


def seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def spelled(labels: Mapping[str, Any]) -> str:
    """`name="value"`, with what the format escapes."""
    texts = {name: re.sub(r'(["\\])', r"\\\1", visible(str(value))) for name, value in labels.items()}
    return ",".join(f'{name}="{text}"' for name, text in texts.items())
