"""What one run was and what it gave: its settings by the names of the options of `run`, and its metrics.

A metric is a pure function of one run. One that a run does not have is missing with a reason, never 0.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from copyscope.record import segments
from copyscope.record.check import Whole, typed_whole
from copyscope.record.derived import OtherSide, Side
from copyscope.record.measured import Segment
from copyscope.record.segments import select, total, wall_ns, zerocopy_total
from copyscope.stats import Missing

Scalar = str | int | float | bool | None
# Of a metric, in its unit, or why there is none.
Value = float | Missing

# option of `run` -> key of the workload section
WORKLOAD = {
    "impl": "impl",
    "size": "size_bytes",
    "fields": "fields",
    "threads": "threads",
    "mode": "mode",
    "receiver": "receiver",
    "align": "align",
    "pages": "pages",
    "working_set": "working_set_messages",
    "touch": "touch",
    "placement": "placement",
    "nodelay": "nodelay",
}
# likewise, and what the runs were whose records do not have the key
LATER: dict[str, tuple[str, Scalar]] = {
    "sender": ("sender", "threads"),
    "coalesce": ("coalesce_us", 0),
    "file": ("file", None),
    "issue": ("issue", None),
    "registered": ("registered", False),
    "push": ("push", "none"),
    "call": ("call", "sendmsg"),
    "via": ("via", "sendfile"),
    "batch": ("batch_sends", 1),
    "header": ("header_bytes", None),
    "wait": ("wait", "batch"),
    "touch_received": ("touch_received", False),
    "tls": ("tls", "off"),
}
# every name that `settings` returns
SETTINGS = (*WORKLOAD, *LATER, "topology", "mtu", "tso", "gso", "gro")


def typed_runs(records: Iterable[Mapping[str, Any]]) -> list[Whole]:
    """The door of this room: whole records as their types. Raises RecordError."""
    return [typed_whole(record) for record in records]


def settings(run: Whole) -> dict[str, Scalar]:
    """What the run was, from the record itself: every setting that decides its result."""
    work, path = run.raw.asked, run.raw.topology
    found: dict[str, Scalar] = {name: getattr(work, key) for name, key in WORKLOAD.items()}
    for name, (key, then) in LATER.items():
        value = getattr(work, key)
        found[name] = then if value is None else value
    found |= {"topology": path.kind, "mtu": path.mtu_bytes}
    return found | {name: path.offloads.get(name) for name in ("tso", "gso", "gro")}


def left_alone(runs: Iterable[Whole]) -> frozenset[str]:
    """Of the later settings, those that no run has changed: a table of these runs need not show them."""
    found = [settings(run) for run in runs]
    changed = {name for name, (_, then) in LATER.items() if any(one[name] != then for one in found)}
    return frozenset(LATER) - changed


def factors(run: Whole) -> Mapping[str, Scalar]:
    """The factors of the run's experiment; outside an experiment all of its settings."""
    return settings(run) if run.raw.run.factors is None else run.raw.run.factors


def ledger_segments(run: Whole) -> list[Segment]:
    return select(run.raw.run.segments, "ledger")


def undisturbed(run: Whole) -> list[Segment]:
    """The segments without instruments; where there are none, those of the ledger."""
    return select(run.raw.run.segments, "unprobed") or ledger_segments(run)


def delivered_bytes(run: Whole) -> int:
    """Payload that moved in the ledger segments, in bytes."""
    return segments.delivered_bytes(ledger_segments(run))


def spenders(run: Whole) -> dict[str, Side | OtherSide]:
    """Whose CPU time is of this run: its processes, and softirq work on the time of others."""
    return {**run.derived.sides.processes(), "other": run.derived.sides.other}


@dataclass(frozen=True)
class Metric:
    """One metric; where `more_is_better` is False, less is."""

    name: str
    unit: str
    label: str
    function: Callable[[Whole], Value]
    more_is_better: bool = False


def read(run: Whole, name: str) -> Value:
    """A metric of a run by its name. Raises KeyError for a name that is not in METRICS."""
    return METRICS[name].function(run)


def _or_why(value: float | None, reason: str | None) -> Value:
    return Missing(reason or "not known") if value is None else float(value)


def goodput(run: Whole, phase: str) -> Value:
    """Payload delivered in the segments of a phase, Gb/s."""
    found = run.derived.throughput_gbps
    return _or_why(getattr(found, phase), found.reasons.get(phase))


def message_time(run: Whole, *, of_each: bool) -> Value:
    """Wall time over messages, in the segments without instruments: what some call latency.

    It falls with each thread that sends as well; `of_each` connection it is the time that one message took.
    """
    unprobed = select(run.raw.run.segments, "unprobed")
    messages = total(unprobed, "sender", "messages")
    if not messages:
        return Missing("no message was sent" if unprobed else "no unprobed segment in this run")
    connections = run.raw.asked.threads if of_each else 1
    return wall_ns(unprobed) * connections / messages / 1000


def round_trip(run: Whole, quantile: str) -> Value:
    """A quantile of request to response, us; only where one request waits for its response."""
    if run.raw.traffic is None:
        return Missing("the round trips of a watched program are not known")
    if run.raw.asked.mode != "rr":
        return Missing("stream mode has no response to wait for: latency needs --mode rr")
    timed = run.raw.traffic.sender.histograms.get("round_trip_ns")
    found: int | None = getattr(timed, quantile, None)
    return Missing("no round trip was timed") if found is None else found / 1000


def cpu_per_kib(run: Whole, sides: Iterable[str]) -> Value:
    """CPU time of the sides in the ledger segments over the payload delivered in them, ns/KiB."""
    spent, known = 0.0, spenders(run)
    for side in sides:
        row = known[side]
        if row.cpu_ns is None:
            return Missing(f"{side}: {row.reasons.get('cpu_ns', 'CPU time not known')}")
        spent += row.cpu_ns
    delivered = delivered_bytes(run)
    return spent / (delivered / 1024) if delivered else Missing(_no_payload(run))


def _no_payload(run: Whole) -> str:
    return "no payload was delivered" if ledger_segments(run) else segments.NO_LEDGER


def event_per_byte(run: Whole, side: str, event: str, per_bytes: int) -> Value:
    """A counter of a side over the payload delivered while it counted, per so many bytes."""
    counter = run.raw.counters[side].get(event)
    if counter is None:
        return Missing(f"{event}: not asked for in this run")
    if counter.value is None:
        return Missing(f"{event}: {counter.reason}")
    delivered = delivered_bytes(run)
    return counter.value * per_bytes / delivered if delivered else Missing(_no_payload(run))


def switches_per_message(run: Whole, side: str) -> Value:
    """Context switches of a side (getrusage(2)) per message sent, where no instrument was attached."""
    found = undisturbed(run)
    messages = total(found, "sender", "messages")
    if not messages:
        return Missing("no message was sent" if found else "no segment to count them in")
    return switches(found, side) / messages


def switches(found: Iterable[Segment], side: str) -> int:
    """How often a side was switched, of its own will or not."""
    return sum(one.sides[side].voluntary_switches + one.sides[side].involuntary_switches for one in found)


def copied_share(run: Whole) -> Value:
    """How much of the payload sent with MSG_ZEROCOPY was copied after all, 0..1: flagged or silently."""
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        return Missing("this strategy sends without MSG_ZEROCOPY")
    sent = zerocopy_total(ledger_segments(run), "bytes_sent")
    if zerocopy.bytes_zero_copy is None or not sent:
        return Missing(_no_payload(run))
    return 1 - zerocopy.bytes_zero_copy / sent


def steal(run: Whole) -> Value:
    """CPU time that the hypervisor gave to others, per cent."""
    machine = run.raw.machine
    return _or_why(machine.steal_percent, (machine.reasons or {}).get("steal_percent"))


def others(run: Whole) -> Value:
    """CPU time that programs beside the run took, of the CPUs that it may run on, per cent."""
    state = run.derived.machine_state
    share = state.others_share
    return _or_why(share and 100 * share, state.reasons.get("others_share"))


def overhead_effect(run: Whole) -> Value:
    """The share of goodput lost to the ledger's instruments."""
    phase = run.derived.overhead.phases.get("ledger")
    if phase is None:
        return Missing(segments.NO_LEDGER)
    return _or_why(phase.effect, phase.reason)


def _of_side(side: str) -> list[Metric]:
    of = f"of the {side}"

    def event(name: str, unit: str, what: str, counter: str, per_bytes: int) -> Metric:
        read_it = partial(event_per_byte, side=side, event=counter, per_bytes=per_bytes)
        return Metric(f"{name}_{side}", unit, f"{what} {of}", read_it)

    label = f"context switches {of} per message"
    return [
        event("cycles_per_byte", "cycles/B", "cycles", "cycles", 1),
        event("instructions_per_byte", "1/B", "instructions", "instructions", 1),
        event("l1d_misses_per_kib", "1/KiB", "L1D misses", "L1-dcache-load-misses", 1024),
        event("llc_misses_per_kib", "1/KiB", "LLC misses", "LLC-load-misses", 1024),
        Metric(f"context_switches_per_message_{side}", "1", label, partial(switches_per_message, side=side)),
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
        _cpu("system", "both sides, softirq work included", "sender", "receiver", "other"),
        *_of_side("sender"),
        *_of_side("receiver"),
        Metric("copied_share", "0..1", "zero-copy payload that was copied after all", copied_share),
        Metric("steal_percent", "%", "CPU time taken by the hypervisor", steal),
        Metric("others_percent", "%", "CPU time taken by other programs", others),
        Metric("overhead_effect", "0..1", "goodput lost to the instruments", overhead_effect),
    )
}
