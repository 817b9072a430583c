# SPDX-License-Identifier: GPL-2.0-only
"""Metrics as text: OpenMetrics 1.0, and Prometheus 0.0.4 for the textfile collector of node_exporter.

prometheus_client formats the text. A metric with an unknown value has no line, because 0 would look like a
measured zero.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from copyscope.base.errors import RunError, how_to_install_extra
from copyscope.base.spelling import visible
from copyscope.record.run import Run
from copyscope.report.costs import bytes_and_calls, kind_of
from copyscope.show.ledger_rows import Row, every_row

Kind = Literal["counter", "info", "gauge"]
LabelledValue = tuple[Mapping[str, Any], float | None]
# Kind of a metric -> suffix that OpenMetrics requires in the names of its samples.
SUFFIXES: Mapping[Kind, str] = {"counter": "_total", "info": "_info", "gauge": ""}


class Family(NamedTuple):
    """A metric with all its samples, which differ in their labels: in Prometheus terms, a family."""

    name: str
    kind: Kind
    unit: str
    help_text: str
    samples: Iterable[LabelledValue]


class MetricsText(NamedTuple):
    """Metrics in one of Prometheus's text formats, and the value of the HTTP header Content-Type."""

    data: bytes
    content_type: str


# Values of the HTTP header Accept for the two formats. Every other value, too, gets one of them.
OPENMETRICS, PLAIN_TEXT = "application/openmetrics-text", "text/plain;version=0.0.4"


def accepted_format(accept: str) -> str:
    """Return OPENMETRICS if an HTTP header Accept names it, else PLAIN_TEXT.

    Clients may send anything, so only these two values reach prometheus_client and the kept texts.
    """
    names = {entry.partition(";")[0].strip() for entry in accept.split(",")}
    return OPENMETRICS if OPENMETRICS in names else PLAIN_TEXT


def write_families(families: Iterable[Family], accept: str = OPENMETRICS) -> MetricsText:
    """Return the text of all families with a known value. Raises RunError if prometheus_client is missing.

    accept: value of the HTTP header Accept, which selects the format
    """
    try:
        from prometheus_client import CollectorRegistry, Metric  # noqa: PLC0415 (50 ms, and an optional package)
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415
        from prometheus_client.registry import Collector  # noqa: PLC0415
    except ImportError as error:
        raise RunError(f"{error.name} is missing; {how_to_install_extra('serve')}") from error
    metrics: list[Metric] = []
    for name, kind, unit, help_text, samples in families:
        metric = Metric(f"copyscope_{name}", help_text, kind, unit)
        for labels, value in samples:
            if value is not None:
                texts = {label: visible(str(text)) for label, text in labels.items()}
                metric.add_sample(f"copyscope_{name}{SUFFIXES[kind]}", texts, value)
        metrics += [metric] if metric.samples else []

    class KnownMetrics(Collector):
        def collect(self) -> list[Metric]:
            return metrics

    registry = CollectorRegistry()
    registry.register(KnownMetrics())
    encode, content_type = choose_encoder(accept)
    return MetricsText(encode(registry), content_type)


def write(run: Run, accept: str) -> bytes:
    """Return the metrics of one run: its goodput, its verdict and each ledger row.

    accept: OPENMETRICS or PLAIN_TEXT
    """
    return write_families(run_families(run), accept).data


def run_families(run: Run) -> Iterator[Family]:
    """Yield the metrics of one run."""
    header, workload, machine = run.raw.run, run.raw.workload, run.raw.machine
    base = {"run": header.id, "impl": workload.impl if workload else "watched"}
    origin = {"hostname": machine.hostname, "kernel": machine.kernel, "started": header.started}
    options = ("size_bytes", "threads", "fields")
    settings = {name: getattr(workload, name) for name in options} if workload else {}
    yield Family(
        "run", "info", "", "Settings of the run, its machine and its start.", [(base | origin | settings, 1)]
    )
    valid = float(run.derived.verdict.valid)
    yield Family("valid", "gauge", "", "1: every consistency check of the run holds.", [(base, valid)])
    goodput = run.derived.throughput_gbps
    phases = {"unprobed": goodput.unprobed, "probed": goodput.probed}
    rates = [(base | {"phase": phase}, rate and rate * 1e9 / 8) for phase, rate in phases.items()]
    help_text = "Delivered payload, with instruments attached (probed) and without (unprobed)."
    yield Family("goodput_bytes_per_second", "gauge", "", help_text, rates)
    sides = run.derived.sides
    by_side = {"other": sides.other, "elsewhere": sides.elsewhere, **sides.processes()}
    times = [(base | {"side": name}, _seconds(side.cpu_ns)) for name, side in by_side.items()]
    help_text = "CPU time of each process or group of processes in the ledger segments."
    yield Family("side_cpu_seconds", "gauge", "seconds", help_text, times)
    table = [(base | _row_labels(row), row) for row in every_row(run)]
    row_times = [(labels, _seconds(row.cpu_ns)) for labels, row in table]
    yield Family("row_cpu_seconds", "gauge", "seconds", "CPU time of a row of the ledger.", row_times)
    row_bytes = [(labels, bytes_and_calls(row)[0]) for labels, row in table]
    yield Family("row_bytes", "gauge", "bytes", "Bytes copied by a row of the ledger.", row_bytes)
    row_calls = [(labels, bytes_and_calls(row)[1]) for labels, row in table]
    yield Family("row_calls", "gauge", "", "Number of copies that a row of the ledger made.", row_calls)


def _row_labels(row: Row) -> dict[str, str]:
    """Return a ledger row's labels."""
    return {"kind": kind_of(row), "account": row.category, "side": row.side, "where": row.context}


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9
