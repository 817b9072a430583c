# SPDX-License-Identifier: GPL-2.0-only
"""Types of the messages of the collector and the traffic program, with the keys that copyscope uses. Pure.

The programs print JSON lines. Messages may have more keys; the keys of reports are copied to the record.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NotRequired, Required, TypedDict, TypeVar

from copyscope.base.stats import gathered
from copyscope.taxonomy.samples import StackSample

Side = TypeVar("Side", bound=str)
Row = TypeVar("Row", "SideRow", StackSample)


class HookMessage(TypedDict):
    """State of one of the collector's hooks. record.instruments.Hook explains the keys."""

    id: str
    instrument: str
    symbol: str
    state: str
    how: str | None
    reason: str | None
    required: bool
    category: NotRequired[str | None]
    side: NotRequired[str]


class SideRow(TypedDict):
    """Row of a report that belongs to a process (`side`)."""

    side: str


class SamplerMessage(TypedDict):
    """Events that the sampler used, and the time in ns for which the events were enabled."""

    events: list[Mapping[str, object]]
    enabled_ns: int


class VolumeMessage(TypedDict):
    """Data that a watched process has moved so far, by protocol, direction and system call."""

    protocol: str
    direction: str
    syscall: str
    calls: int
    bytes: int
    zerocopy_calls: int
    zerocopy_bytes: int
    nodelay_calls: int
    cork_calls: int
    copied_calls: int
    copied_bytes: int
    ring_calls: int
    ring_bytes: int
    largest_bytes: int
    sizes: list[list[int]]


class SendErrorMessage(TypedDict):
    """Send calls of a watched process that failed with the same errno."""

    syscall: str
    errno: int
    calls: int


class BuffersMessage(TypedDict):
    """Zero-copy sends of a watched process over one protocol. record.watched.Buffers explains the keys."""

    protocol: str
    enobufs: int
    eagain: int
    waits: int
    waited_ns: int


class PeerMessage(TypedDict):
    """Peer of a watched process (address, device used, namespace), noted at the first use of a socket."""

    address: str
    device: str | None
    netns: int


class ProgramMessage(NamedTuple):
    """Calls of one kind by a program in a cgroup, while all programs are watched.

    cgroup: id of the cgroup (version 2); 0, with an empty `comm`: all programs without room in the map
    is_last: True if the collector now forgets this row, so that later calls start at zero
    """

    cgroup: int
    comm: str
    protocol: str
    direction: str
    syscall: str
    calls: int
    bytes: int
    zerocopy_calls: int
    zerocopy_bytes: int
    is_last: bool


class TotalsMessage(TypedDict):
    """Bytes, calls and CPU time so far of our own traffic program or of a watched process."""

    t_ns: int
    process_cpu_ns: NotRequired[int]
    # Keys of our own traffic.
    messages: NotRequired[int]
    bytes: NotRequired[int]
    # Keys of a watched process: [pid, 1 if the hooks saw its fork] of each process, and counts of the hooks.
    processes: NotRequired[list[list[int]]]
    threads: NotRequired[int]
    totals: NotRequired[dict[str, int]]
    voluntary_switches: NotRequired[int]
    involuntary_switches: NotRequired[int]
    counts_taken: NotRequired[bool]
    page_bytes: NotRequired[int]
    volume: NotRequired[list[VolumeMessage]]
    packets: NotRequired[Mapping[str, object]]
    shapes: NotRequired[list[Mapping[str, object]]]
    relays: NotRequired[Mapping[str, object]]
    send_errors: NotRequired[list[SendErrorMessage]]
    buffers: NotRequired[list[BuffersMessage]]


# Totals of each side at one moment, by side.
Mark = Mapping[str, TotalsMessage]


class FunctionsMessage(TypedDict):
    """Counts of the function hooks. `record.instruments.Functions` explains the keys."""

    cells: list[Mapping[str, object]]
    read_cost: Mapping[str, object] | None


class SwitchMessage(TypedDict):
    """Answer of the collector after attaching or detaching. `volume`: totals of a watched process."""

    event: str
    volume: NotRequired[TotalsMessage]


class CollectorReport(TypedDict, total=False):
    """Final report of the collector, or its samples so far."""

    event: Required[str]
    bytes: list[SideRow]
    calls: list[SideRow]
    samples: list[StackSample]
    functions: FunctionsMessage | None
    hooks: list[HookMessage]
    sampler: SamplerMessage | None
    loss: dict[str, int | Mapping[str, object]]
    # Reasons why the collectors of other hosts gave no report.
    unheard: list[str]


class ThreadMessage(TypedDict):
    """Row for a thread in the report of a traffic program."""

    tcp_info: NotRequired[Mapping[str, int | None] | None]


class TrafficReport(TypedDict, total=False):
    """Final report of the sender or the receiver. record.traffic.Report explains the keys."""

    event: str
    options: Mapping[str, object]
    threads: list[ThreadMessage]


def join_answers(answers: Mapping[Side, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Join the answers of two hosts' collectors to the same command. Hooks get a key `side`.

    `answers`: answer by side.
    """
    first = next(iter(answers.values()))
    if "hooks" not in first:
        return first
    return {**first, "hooks": _join_hooks({side: answer["hooks"] for side, answer in answers.items()})}


def join_reports(reports: Mapping[Side, CollectorReport]) -> CollectorReport:
    """Join the reports of two hosts' collectors. `reports`: report by side; a host may be missing."""
    joined = next(iter(reports.values())).copy()
    joined["hooks"] = _join_hooks({side: report["hooks"] for side, report in reports.items()})
    joined["bytes"] = [row for side, report in reports.items() for row in _rows_of(side, report["bytes"])]
    joined["calls"] = [row for side, report in reports.items() for row in _rows_of(side, report["calls"])]
    joined["samples"] = [row for side, report in reports.items() for row in _rows_of(side, report["samples"])]
    joined["sampler"] = _join_samplers([report["sampler"] for report in reports.values()])
    joined["loss"] = _join_losses([report["loss"] for report in reports.values()])
    joined["functions"] = None
    return joined


def _join_hooks(hooks: Mapping[Side, list[HookMessage]]) -> list[HookMessage]:
    """Return the hooks of both hosts with a key `side`."""
    return [{**hook, "side": side} for side, rows in hooks.items() for hook in rows]


def _rows_of(side: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows of the process `side` on its host, and of softirq work in the time of other tasks."""
    return (row for row in rows if row["side"] in (side, "other"))


def _join_samplers(samplers: Iterable[SamplerMessage | None]) -> SamplerMessage | None:
    """Join the events of both hosts, with the longer sampling time; None if no host sampled."""
    present = [sampler for sampler in samplers if sampler is not None]
    if not present:
        return None
    events = [event for sampler in present for event in sampler["events"]]
    return {
        **present[0],
        "enabled_ns": max(sampler["enabled_ns"] for sampler in present),
        "events": [event for position, event in enumerate(events) if event not in events[:position]],
    }


def _join_losses(
    losses: Iterable[Mapping[str, int | Mapping[str, object]]],
) -> dict[str, int | Mapping[str, object]]:
    """Return the losses of both hosts, added by name; unknown if a kernel does not count a loss."""
    joined: dict[str, int | Mapping[str, object]] = {}
    for name, counts in gathered(pair for loss in losses for pair in loss.items()).items():
        unknown = [count for count in counts if not isinstance(count, int)]
        joined[name] = unknown[0] if unknown else sum(count for count in counts if isinstance(count, int))
    return joined
