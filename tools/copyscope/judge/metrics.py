# SPDX-License-Identifier: GPL-2.0-only
"""Settings and metrics of one run. Settings have the names of the options of `copyscope run`.

A metric is a pure function of one run. If a run lacks a metric, its value is a Missing with the reason,
never 0.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from copyscope.base.stats import Missing
from copyscope.record import segments
from copyscope.record.derived import OtherSide, Side
from copyscope.record.measured import Segment, Workload
from copyscope.record.run import Run
from copyscope.record.segments import select, sender_sum, wall_ns, zerocopy_sum
from copyscope.record.traffic import Quantiles

Scalar = str | int | float | bool | None
# Value of a metric in its unit, or the reason why the run lacks it.
Value = float | Missing

# Setting -> its value in the workload section of a record.
WORKLOAD_SETTINGS: dict[str, Callable[[Workload], Scalar]] = {
    "impl": lambda workload: workload.impl,
    "size": lambda workload: workload.size_bytes,
    "fields": lambda workload: workload.fields,
    "threads": lambda workload: workload.threads,
    "mode": lambda workload: workload.mode,
    "receiver": lambda workload: workload.receiver,
    "align": lambda workload: workload.align,
    "pages": lambda workload: workload.pages,
    "working_set": lambda workload: workload.working_set_messages,
    "touch": lambda workload: workload.touch,
    "placement": lambda workload: workload.placement,
    "nodelay": lambda workload: workload.nodelay,
}


@dataclass(frozen=True)
class LaterSetting:
    """A setting that older records lack.

    read: returns the setting's value in the workload section of a record, or None if the record lacks it
    default: value of the setting in the runs of records that lack it
    """

    read: Callable[[Workload], Scalar]
    default: Scalar


LATER_SETTINGS = {
    "sender": LaterSetting(lambda workload: workload.sender, "threads"),
    "coalesce": LaterSetting(lambda workload: workload.coalesce_us, 0),
    "file": LaterSetting(lambda workload: workload.file, None),
    "issue": LaterSetting(lambda workload: workload.issue, None),
    "registered": LaterSetting(lambda workload: workload.registered, False),
    "push": LaterSetting(lambda workload: workload.push, "none"),
    "call": LaterSetting(lambda workload: workload.call, "sendmsg"),
    "via": LaterSetting(lambda workload: workload.via, "sendfile"),
    "batch": LaterSetting(lambda workload: workload.batch_sends, 1),
    "header": LaterSetting(lambda workload: workload.header_bytes, None),
    "wait": LaterSetting(lambda workload: workload.wait, "batch"),
    "touch_received": LaterSetting(lambda workload: workload.touch_received, False),
    "tls": LaterSetting(lambda workload: workload.tls, "off"),
}
# Names of all settings that settings() returns.
SETTINGS = (*WORKLOAD_SETTINGS, *LATER_SETTINGS, "topology", "mtu", "tso", "gso", "gro")


def settings(run: Run) -> dict[str, Scalar]:
    """Return setting -> value for every setting that affects the result of a run, as recorded."""
    workload, path = run.raw.asked, run.raw.topology
    values = {name: read_setting(workload) for name, read_setting in WORKLOAD_SETTINGS.items()}
    for name, setting in LATER_SETTINGS.items():
        value = setting.read(workload)
        values[name] = setting.default if value is None else value
    values |= {"topology": path.kind, "mtu": path.mtu_bytes}
    return values | {name: path.offloads.get(name) for name in ("tso", "gso", "gro")}


def unchanged_settings(runs: Iterable[Run]) -> frozenset[str]:
    """Return the later settings that have their default in every run, so that a table need not show them."""
    settings_of_runs = [settings(run) for run in runs]
    return frozenset(
        name
        for name, setting in LATER_SETTINGS.items()
        if all(values[name] == setting.default for values in settings_of_runs)
    )


def factors(run: Run) -> Mapping[str, Scalar]:
    """Return the factors of the experiment that a run belongs to, or all settings outside an experiment."""
    return settings(run) if run.raw.run.factors is None else run.raw.run.factors


def ledger_segments(run: Run) -> list[Segment]:
    return select(run.raw.run.segments, "ledger")


def least_disturbed_segments(run: Run) -> list[Segment]:
    """Return the segments without instruments, or the ledger segments if the run has none."""
    return select(run.raw.run.segments, "unprobed") or ledger_segments(run)


def delivered_bytes(run: Run) -> int:
    """Return the payload that was delivered in the ledger segments, in bytes."""
    return segments.delivered_bytes(ledger_segments(run))


def cpu_time_rows(run: Run) -> dict[str, Side | OtherSide]:
    """Return the rows with the CPU time of a run: its processes, and softirq work charged to other tasks."""
    return {**run.derived.sides.processes(), "other": run.derived.sides.other}


@dataclass(frozen=True)
class Metric:
    """A metric of a run. A higher value is worse unless `more_is_better`.

    label: name of the metric on screens
    function: reads the metric's value from a run
    """

    name: str
    unit: str
    label: str
    function: Callable[[Run], Value]
    more_is_better: bool = False


def read(run: Run, name: str) -> Value:
    """Return a metric of a run by its name. Raises KeyError if METRICS lacks the name."""
    return METRICS[name].function(run)


def _value_or_reason(value: float | None, reason: str | None) -> Value:
    return Missing(reason or "not known") if value is None else float(value)


def goodput(run: Run, phase: Literal["unprobed", "probed"]) -> Value:
    """Return goodput in Gb/s.

    phase: `unprobed` (no instruments) or `probed` (the ledger's instruments)
    """
    rates = run.derived.throughput_gbps
    rate = rates.unprobed if phase == "unprobed" else rates.probed
    return _value_or_reason(rate, rates.reasons.get(phase))


def message_time_us(run: Run, *, per_connection: bool) -> Value:
    """Return the elapsed time divided by the messages sent, in the segments without instruments.

    More sending threads make that time shorter. With `per_connection`, return instead the mean time that a
    message took on its own connection.
    """
    unprobed = select(run.raw.run.segments, "unprobed")
    messages = sender_sum(unprobed, lambda sender: sender.messages)
    if not messages:
        return Missing("no message was sent" if unprobed else "no unprobed segment in this run")
    connections = run.raw.asked.threads if per_connection else 1
    return wall_ns(unprobed) * connections / messages / 1000


def round_trip_us(run: Run, quantile: Callable[[Quantiles], float | None]) -> Value:
    """Return a quantile of the time from request to response, which exists only with --mode rr."""
    if run.raw.traffic is None:
        return Missing("the round trips of a watched program are not known")
    if run.raw.asked.mode != "rr":
        return Missing("stream mode has no response to wait for: latency needs --mode rr")
    quantiles = run.raw.traffic.sender.histograms.get("round_trip_ns")
    value_ns = None if quantiles is None else quantile(quantiles)
    return Missing("no round trip was timed") if value_ns is None else value_ns / 1000


def cpu_per_kib(run: Run, sides: Iterable[str]) -> Value:
    """Return the CPU time of some sides per payload delivered in the ledger segments, in ns/KiB."""
    cpu_ns, rows = 0.0, cpu_time_rows(run)
    for side in sides:
        row = rows[side]
        if row.cpu_ns is None:
            return Missing(f"{side}: {row.reasons.get('cpu_ns', 'CPU time not known')}")
        cpu_ns += row.cpu_ns
    payload_bytes = delivered_bytes(run)
    return cpu_ns / (payload_bytes / 1024) if payload_bytes else Missing(_why_no_payload(run))


def _why_no_payload(run: Run) -> str:
    return "no payload was delivered" if ledger_segments(run) else segments.NO_LEDGER


def event_rate(run: Run, side: str, event: str, per_bytes: int) -> Value:
    """Return the count of an event on one side per `per_bytes` bytes of payload delivered."""
    counter = run.raw.counters[side].get(event)
    if counter is None:
        return Missing(f"{event}: not counted in this run")
    if counter.value is None:
        return Missing(f"{event}: {counter.reason}")
    payload_bytes = delivered_bytes(run)
    return counter.value * per_bytes / payload_bytes if payload_bytes else Missing(_why_no_payload(run))


def switches_per_message(run: Run, side: str) -> Value:
    """Return the context switches of one side (getrusage(2)) per message sent, without instruments."""
    quiet = least_disturbed_segments(run)
    messages = sender_sum(quiet, lambda sender: sender.messages)
    if not messages:
        return Missing("no message was sent" if quiet else "no segment counted context switches")
    return switches(quiet, side) / messages


def switches(counted_segments: Iterable[Segment], side: str) -> int:
    """Return the voluntary and involuntary context switches of one side in some segments."""
    totals = [segment.sides[side] for segment in counted_segments]
    return sum(total.voluntary_switches + total.involuntary_switches for total in totals)


def copied_share(run: Run) -> Value:
    """Return the fraction (0..1) of the payload sent with MSG_ZEROCOPY that the kernel copied after all."""
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        return Missing("this strategy sends without MSG_ZEROCOPY")
    sent_bytes = zerocopy_sum(ledger_segments(run), lambda zerocopy: zerocopy.bytes_sent)
    if zerocopy.bytes_zero_copy is None or not sent_bytes:
        return Missing(_why_no_payload(run))
    return 1 - zerocopy.bytes_zero_copy / sent_bytes


def steal_percent(run: Run) -> Value:
    """Return the percentage of CPU time that the hypervisor gave to other guests."""
    machine = run.raw.machine
    return _value_or_reason(machine.steal_percent, (machine.reasons or {}).get("steal_percent"))


def other_programs_percent(run: Run) -> Value:
    """Return the percentage of time that other programs took on the CPUs that the run may use."""
    state = run.derived.machine_state
    share = state.others_share
    return _value_or_reason(share and 100 * share, state.reasons.get("others_share"))


def overhead_effect(run: Run) -> Value:
    """Return the fraction (0..1) of the goodput that is lost to the instruments of the ledger segments."""
    phase = run.derived.overhead.phases.get("ledger")
    if phase is None:
        return Missing(segments.NO_LEDGER)
    return _value_or_reason(phase.effect, phase.reason)


def _side_metrics(side: str) -> list[Metric]:
    """Return the metrics that exist for the sender and for the receiver."""

    def event_metric(name: str, unit: str, noun: str, event: str, per_bytes: int) -> Metric:
        rate = partial(event_rate, side=side, event=event, per_bytes=per_bytes)
        return Metric(f"{name}_{side}", unit, f"{noun} of the {side}", rate)

    return [
        event_metric("cycles_per_byte", "cycles/B", "cycles", "cycles", 1),
        event_metric("instructions_per_byte", "1/B", "instructions", "instructions", 1),
        event_metric("l1d_misses_per_kib", "1/KiB", "L1D misses", "L1-dcache-load-misses", 1024),
        event_metric("llc_misses_per_kib", "1/KiB", "LLC misses", "LLC-load-misses", 1024),
        Metric(
            f"context_switches_per_message_{side}",
            "1",
            f"context switches of the {side} per message",
            partial(switches_per_message, side=side),
        ),
    ]


def _cpu_metric(prefix: str, owner: str, *sides: str) -> Metric:
    return Metric(
        f"{prefix}_cpu_ns_per_kib", "ns/KiB", f"CPU time of {owner}", partial(cpu_per_kib, sides=sides)
    )


_UNPROBED, _PROBED = partial(goodput, phase="unprobed"), partial(goodput, phase="probed")
_PER_CONNECTION, _OVERALL = (partial(message_time_us, per_connection=choice) for choice in (True, False))
_MEDIAN = partial(round_trip_us, quantile=lambda quantiles: quantiles.p50)
_P99 = partial(round_trip_us, quantile=lambda quantiles: quantiles.p99)

# Name of a metric -> metric, in the order of exported columns.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("goodput_gbps", "Gb/s", "goodput", _UNPROBED, more_is_better=True),
        Metric("goodput_probed_gbps", "Gb/s", "goodput with instruments", _PROBED, more_is_better=True),
        Metric("time_per_message_us", "us", "time per message and connection", _PER_CONNECTION),
        Metric("inverse_throughput_us", "us", "elapsed time divided by messages", _OVERALL),
        Metric("rtt_p50_us", "us", "median round trip", _MEDIAN),
        Metric("rtt_p99_us", "us", "99th percentile of the round trip", _P99),
        _cpu_metric("sender", "the sender", "sender"),
        _cpu_metric("receiver", "the receiver", "receiver"),
        _cpu_metric("system", "both sides, softirq work included", "sender", "receiver", "other"),
        *_side_metrics("sender"),
        *_side_metrics("receiver"),
        Metric("copied_share", "0..1", "zero-copy payload that was copied after all", copied_share),
        Metric("steal_percent", "%", "CPU time taken by the hypervisor", steal_percent),
        Metric("others_percent", "%", "CPU time taken by other programs", other_programs_percent),
        Metric("overhead_effect", "0..1", "goodput lost to the instruments", overhead_effect),
    )
}
