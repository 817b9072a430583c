"""What a session leaves behind (run/session.py), however it ends: what assemble() makes a raw record of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NotRequired, TypedDict

from copyscope.record.connections import Connections
from copyscope.record.moved import Past, Sums
from copyscope.record.two_hosts import Message

# A section of the record, or a row of one.
Record = dict[str, Any]


@dataclass(frozen=True)
class Tier:
    """Exact (functions are hooked) or sampled, and the reason for it, in one clause."""

    exact: bool
    reason: str

    @property
    def name(self) -> str:
        return "exact" if self.exact else "sampled"


class Totals(TypedDict):
    """What one side has moved and used so far, as its program says it, or the hooks and /proc.

    Of these keys the session knows; there are more.
    """

    t_ns: int
    process_cpu_ns: NotRequired[int]
    # Of traffic of our own.
    messages: NotRequired[int]
    bytes: NotRequired[int]
    # Of a watched program: [pid, whether the hooks saw it being forked] of each process, threads of all.
    processes: NotRequired[list[list[int]]]
    totals: NotRequired[dict[str, int]]
    voluntary_switches: NotRequired[int]
    involuntary_switches: NotRequired[int]
    threads: NotRequired[int]


# Of each side, at one moment.
Mark = Mapping[str, Totals]


class MeasuredSegment(TypedDict):
    """A segment that is over.

    marks: before anything was attached for it, its begin, its end, and when all that is gone again
    """

    index: int
    block: int
    phase: str
    marks: tuple[Mark, Mark, Mark, Mark]


@dataclass
class Raw:
    """One run: of our own traffic with the sides `sender` and `receiver`, of a program with `target`."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    wall_s: float = 0.0
    interrupted: bool = False
    errors: list[str] = field(default_factory=list)
    tier: Tier | None = None
    # In which segments the kernel counts bytes.
    bytes_phase: str | None = None
    segments: list[MeasuredSegment | Past] = field(default_factory=list)
    # What the machine had done when the first measured segment began, and when the last was over.
    loads: list[Record] = field(default_factory=list)
    collector: Message | None = None
    # By side and event.
    counters: dict[str, dict[str, Record]] = field(default_factory=dict)
    topology: Record | None = None
    machine: Record | None = None

    # Of traffic of our own: the CPUs of each side, what each said at its end, on two hosts what each is.
    placement: dict[str, list[Record]] | None = None
    reports: dict[str, Message | None] = field(default_factory=dict)
    places: dict[str, Record] | None = None

    # Of a program: who belonged to it, kinds of sockets that nothing counts, TCP's own counts, why it ended,
    # a command's exit status; in `sums` what moved in segments of which only the rows are left (forget()).
    pids: dict[int, str] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)
    connections: Connections = field(default_factory=Connections)
    sums: Sums = field(default_factory=dict)
    ended: str = "stopped after --duration"
    status: int | None = None
