"""OpenMetrics text, version 1.0, for Prometheus and for node_exporter's textfile collector.

prometheus_client writes it. What is not known has no line: a metric is never 0 for want of knowledge.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from copyscope.errors import RunError, what_to_add
from copyscope.escaping import visible
from copyscope.exports.costs import Row, kind_of, moved, rows
from copyscope.record.check import Whole

Sample = tuple[Mapping[str, Any], float | None]
SUFFIXES = {"counter": "_total", "info": "_info", "gauge": ""}


class Family(NamedTuple):
    """A metric, in prometheus_client's words: a family, whose samples differ in their labels."""

    name: str
    kind: Literal["counter", "info", "gauge"]
    unit: str
    what: str
    samples: Iterable[Sample]


def written(families: Iterable[Family]) -> bytes:
    """The text of those families of which anything is known. Raises RunError without prometheus_client."""
    try:
        from prometheus_client import CollectorRegistry, Metric  # noqa: PLC0415 (50 ms, and not there for all)
        from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415
        from prometheus_client.registry import Collector  # noqa: PLC0415
    except ImportError as error:
        raise RunError(f"openmetrics: {error.name} is missing: {what_to_add('serve')}") from error
    found: list[Metric] = []
    for name, kind, unit, what, samples in families:
        metric = Metric(f"copyscope_{name}", what, kind, unit)
        for labels, value in samples:
            if value is not None:
                texts = {label: visible(str(text)) for label, text in labels.items()}
                metric.add_sample(f"copyscope_{name}{SUFFIXES[kind]}", texts, value)
        found += [metric] if metric.samples else []

    class Found(Collector):
        def collect(self) -> list[Metric]:
            return found

    registry = CollectorRegistry()
    registry.register(Found())
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


def write(run: Whole) -> bytes:
    """One run: its goodput, whether it counts, and each row of the ledger."""
    return written(families(run))


def families(whole: Whole) -> Iterator[Family]:
    """Those of one run."""
    run, work, machine = whole.raw.run, whole.raw.workload, whole.raw.machine
    base = {"run": run.id, "impl": work.impl if work else "watched"}
    known = {"hostname": machine.hostname, "kernel": machine.kernel, "started": run.started}
    settings = {name: getattr(work, name) for name in ("size_bytes", "threads", "fields")} if work else {}
    yield Family("run", "info", "", "What was run, and where.", [(base | known | settings, 1)])
    valid = float(whole.derived.verdict.valid)
    yield Family("valid", "gauge", "", "1: every consistency check of the run holds.", [(base, valid)])
    goodput = whole.derived.throughput_gbps
    phases = {"unprobed": goodput.unprobed, "probed": goodput.probed}
    bits = [(base | {"phase": phase}, rate and rate * 1e9) for phase, rate in phases.items()]
    what = "Payload delivered, without and with instruments."
    yield Family("goodput_bits_per_second", "gauge", "", what, bits)
    sides = whole.derived.sides
    spent = {"other": sides.other, "elsewhere": sides.elsewhere, **sides.processes()}
    times = [(base | {"side": side}, seconds(one.cpu_ns)) for side, one in spent.items()]
    what = "CPU time of a side in the ledger segments."
    yield Family("side_cpu_seconds", "gauge", "seconds", what, times)
    table = [(base | labels(row), row) for row in rows(whole)]
    by_row = [(named, seconds(row.cpu_ns)) for named, row in table]
    yield Family("row_cpu_seconds", "gauge", "seconds", "CPU time of a row of the ledger.", by_row)
    copied = [(named, moved(row)[0]) for named, row in table]
    yield Family("row_bytes", "gauge", "bytes", "Bytes that a copy moved.", copied)
    calls = [(named, moved(row)[1]) for named, row in table]
    yield Family("row_calls", "gauge", "", "How often a copy was made.", calls)


def labels(row: Row) -> dict[str, str]:
    return {"kind": kind_of(row), "account": row.category, "side": row.side, "where": row.context}


def seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9
