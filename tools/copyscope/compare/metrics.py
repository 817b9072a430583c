"""What can be compared between runs: one row per metric, each a pure function of one record.

A metric that a record does not have is None with a reason, never 0.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from copyscope.compare.settings import delivered_bytes
from copyscope.record.segments import (
    Record,
    segments_of,
    select,
    total,
    undisturbed,
    wall_ns,
    zerocopy_total,
)


@dataclass(frozen=True)
class Reading:
    """One metric of one record: a value in the metric's unit, or None with its reason."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Metric:
    """One metric; where `more_is_better` is False, less is."""

    name: str
    unit: str
    label: str
    function: Callable[[Record], Reading]
    more_is_better: bool = False


def read(record: Record, name: str) -> Reading:
    """A metric of a record by its name. Raises KeyError for a name that is not in METRICS."""
    return METRICS[name].function(record)


def goodput(record: Record, phase: str) -> Reading:
    """Payload delivered in the segments of a phase, Gb/s."""
    value = record["throughput_gbps"][phase]
    if value is None:
        return Reading(None, str(record["throughput_gbps"]["reasons"].get(phase, "not measured")))
    return Reading(float(value))


def message_time(record: Record, *, of_each: bool) -> Reading:
    """Wall time over messages, in the segments without instruments: what some call latency.

    It falls with each thread that sends as well; `of_each` connection it is the time that one message took.
    """
    segments = select(segments_of(record), "unprobed")
    messages = total(segments, "sender", "messages")
    if not segments:
        return Reading(None, "no unprobed segment in this run")
    if not messages:
        return Reading(None, "no message was sent")
    connections = int(record["workload"]["threads"]) if of_each else 1
    return Reading(wall_ns(segments) * connections / messages / 1000)


def round_trip(record: Record, quantile: str) -> Reading:
    """A quantile of request to response, us; only where one request waits for its response."""
    found = record["traffic"]["sender"]["histograms"].get("round_trip_ns")
    if record["workload"]["mode"] != "rr":
        return Reading(None, "stream mode has no response to wait for: latency needs --mode rr")
    if not found or found.get(quantile) is None:
        return Reading(None, "no round trip was timed")
    return Reading(found[quantile] / 1000)


def cpu_per_kib(record: Record, sides: Iterable[str]) -> Reading:
    """CPU time of the sides in the ledger segments over the payload delivered in them, ns/KiB."""
    spent = 0.0
    for side in sides:
        row = record["sides"][side]
        if row["cpu_ns"] is None:
            return Reading(None, f"{side}: {row['reasons'].get('cpu_ns', 'CPU time not known')}")
        spent += row["cpu_ns"]
    delivered = delivered_bytes(record)
    return Reading(spent / (delivered / 1024)) if delivered else Reading(None, _no_payload(record))


def _no_payload(record: Record) -> str:
    probed = select(segments_of(record), "ledger")
    return "no payload was delivered" if probed else "no ledger segment in this run"


def event_per_byte(record: Record, side: str, event: str, per_bytes: int) -> Reading:
    """A counter of a side over the payload delivered while it counted, per so many bytes."""
    counter = record["counters"][side].get(event)
    if counter is None:
        return Reading(None, f"{event}: not asked for in this run")
    if counter["value"] is None:
        return Reading(None, f"{event}: {counter['reason']}")
    delivered = delivered_bytes(record)
    if not delivered:
        return Reading(None, _no_payload(record))
    return Reading(counter["value"] * per_bytes / delivered)


def switches_per_message(record: Record, side: str) -> Reading:
    """Context switches of a side (getrusage(2)) per message sent, where no instrument was attached."""
    segments = undisturbed(record)
    messages = total(segments, "sender", "messages")
    if not messages:
        return Reading(None, "no message was sent" if segments else "no segment to count them in")
    switches = sum(total(segments, side, f"{kind}voluntary_switches") for kind in ("", "in"))
    return Reading(switches / messages)


def copied_share(record: Record) -> Reading:
    """How much of the payload sent with MSG_ZEROCOPY was copied after all, 0..1: flagged or silently."""
    zerocopy = record["zerocopy"]
    if zerocopy is None:
        return Reading(None, "this strategy sends without MSG_ZEROCOPY")
    sent = zerocopy_total(select(segments_of(record), "ledger"), "bytes_sent")
    if zerocopy["bytes_zero_copy"] is None or not sent:
        return Reading(None, _no_payload(record))
    return Reading(1 - zerocopy["bytes_zero_copy"] / sent)


def steal(record: Record) -> Reading:
    """CPU time that the hypervisor gave to others, per cent."""
    value = record["machine"]["steal_percent"]
    reasons = record["machine"].get("reasons", {})
    return Reading(value) if value is not None else Reading(None, reasons.get("steal_percent", "not known"))


def others(record: Record) -> Reading:
    """CPU time that programs beside the run took, of the CPUs that it may run on, per cent."""
    state = record.get("machine_state") or {}
    share = state.get("others_share")
    if share is None:
        return Reading(None, state.get("reasons", {}).get("others_share", "not measured"))
    return Reading(100 * float(share))


def overhead_effect(record: Record) -> Reading:
    """The share of goodput lost to the ledger's instruments."""
    phase = record["overhead"]["phases"].get("ledger")
    if phase is None:
        return Reading(None, "the run had no ledger segments")
    return Reading(None, str(phase["reason"])) if phase["effect"] is None else Reading(float(phase["effect"]))


def _of_side(side: str) -> list[Metric]:
    of = f"of the {side}"

    def event(name: str, unit: str, what: str, counter: str, per_bytes: int) -> Metric:
        read_it = partial(event_per_byte, side=side, event=counter, per_bytes=per_bytes)
        return Metric(f"{name}_{side}", unit, f"{what} {of}", read_it)

    switches = partial(switches_per_message, side=side)
    return [
        event("cycles_per_byte", "cycles/B", "cycles", "cycles", 1),
        event("instructions_per_byte", "1/B", "instructions", "instructions", 1),
        event("l1d_misses_per_kib", "1/KiB", "L1D misses", "L1-dcache-load-misses", 1024),
        event("llc_misses_per_kib", "1/KiB", "LLC misses", "LLC-load-misses", 1024),
        Metric(f"context_switches_per_message_{side}", "1", f"context switches {of} per message", switches),
    ]


def _cpu(who: str, label: str, *sides: str) -> Metric:
    return Metric(
        f"{who}_cpu_ns_per_kib", "ns/KiB", f"CPU time of {label}", partial(cpu_per_kib, sides=sides)
    )


_P50, _P99 = (partial(round_trip, quantile=quantile) for quantile in ("p50", "p99"))
_PLAIN, _PROBED = (partial(goodput, phase=phase) for phase in ("unprobed", "probed"))
_EACH, _ALL = (partial(message_time, of_each=each) for each in (True, False))

# Their order is that of exported columns.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("goodput_gbps", "Gb/s", "goodput", _PLAIN, more_is_better=True),
        Metric("goodput_probed_gbps", "Gb/s", "goodput with instruments", _PROBED, more_is_better=True),
        Metric("time_per_message_us", "us", "time per message and connection", _EACH),
        Metric("inverse_throughput_us", "us", "wall time over messages", _ALL),
        Metric("rtt_p50_us", "us", "median round trip", _P50),
        Metric("rtt_p99_us", "us", "99th percentile of the round trip", _P99),
        _cpu("sender", "the sender", "sender"),
        _cpu("receiver", "the receiver", "receiver"),
        _cpu("system", "both sides and of softirq beside them", "sender", "receiver", "other"),
        *_of_side("sender"),
        *_of_side("receiver"),
        Metric("copied_share", "0..1", "zero-copy payload that was copied after all", copied_share),
        Metric("steal_percent", "%", "CPU time taken by the hypervisor", steal),
        Metric("others_percent", "%", "CPU time taken by other programs", others),
        Metric("overhead_effect", "0..1", "goodput lost to the instruments", overhead_effect),
    )
}
