# SPDX-License-Identifier: GPL-2.0-only
"""Raw results of a session (run/session.py), however the session ends. assemble() makes the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from copyscope.record.instruments import Counter
from copyscope.record.measured import Machine, Placement, Places, TopologySection
from copyscope.record.messages import CollectorReport, TotalsMessage, TrafficReport
from copyscope.record.moved import MeasuredSegment, PastSegment, VolumeSums
from copyscope.record.sections import ClockState
from copyscope.record.waits import Waits
from copyscope.record.watched import Connection

# Largest number of connections in a record: as many as the collector distinguishes (SOCKETS_MAX, bpf/abi.h).
KEPT_MAX = 16384


class TcpState(Protocol):
    """State of a connection according to TCP's own counts, which run/connections.py reads."""

    @property
    def local(self) -> str: ...

    @property
    def peer(self) -> str: ...

    @property
    def established(self) -> bool: ...

    @property
    def written(self) -> int: ...

    @property
    def taken(self) -> int: ...

    @property
    def mss_bytes(self) -> int: ...

    @property
    def bytes_retrans(self) -> int: ...

    @property
    def busy_us(self) -> int: ...

    @property
    def rwnd_limited_us(self) -> int: ...

    @property
    def sndbuf_limited_us(self) -> int: ...


class TcpCounts(NamedTuple):
    """TCP's counts of a connection: bytes that the program wrote and read, retransmitted bytes, and times."""

    written: int
    read: int
    retransmitted: int
    busy_ms: int
    rwnd_limited_ms: int
    sndbuf_limited_ms: int


class BracketedReading(NamedTuple):
    """A reading of the collector's counts [sent, received] between two readings of TCP's counts."""

    hooked: list[int]
    before: TcpCounts
    after: TcpCounts


# Reason why a watch ended if the program still ran.
AFTER_DURATION = "stopped after --duration"


@dataclass
class _Ends:
    """First and last reading of a connection, and the number of its readings."""

    first: BracketedReading
    last: BracketedReading
    readings: int
    mss_bytes: int
    local: str
    peer: str


class Connections:
    """Counts of the TCP connections of a watched process, from the hooks and from TCP.

    Only the first and the last reading of each connection are kept, and at most KEPT_MAX connections.
    """

    def __init__(self) -> None:
        self._ends: dict[str, _Ends] = {}
        # Number of readings in which the process had connections.
        self.readings = 0
        # True once the hooks also count mapped and spliced data.
        self._counts_taken = False

    def add(
        self,
        earlier: Mapping[int, TcpState],
        hooked: Mapping[str, list[int]],
        later: Mapping[int, TcpState],
        *,
        counts_taken: bool = False,
    ) -> None:
        """Add a reading of all connections.

        `earlier`, `later`: TCP's counts by inode, before and after the reading of the hooks. `hooked`: bytes
        [sent, received] that the hooks counted, by inode. `counts_taken`: the hooks now count mapped and
        spliced data, too, so earlier counts are dropped.
        """
        if counts_taken and not self._counts_taken:
            self._counts_taken = True
            self._ends.clear()
            self.readings = 0
        self.readings += bool(hooked)
        if len(self._ends) + len(hooked) > KEPT_MAX:
            # A connection that has closed after one reading gives no difference.
            self._ends = {
                inode: ends for inode, ends in self._ends.items() if ends.readings > 1 or inode in hooked
            }
        for inode, counts in hooked.items():
            before, after = earlier.get(int(inode)), later.get(int(inode))
            if before is None or after is None or not (before.established and after.established):
                continue
            reading = BracketedReading(counts, _counts(before), _counts(after))
            ends = self._ends.get(inode)
            if ends is not None:
                ends.last, ends.readings = reading, ends.readings + 1
            elif len(self._ends) < KEPT_MAX:
                self._ends[inode] = _Ends(reading, reading, 1, after.mss_bytes, after.local, after.peer)

    def rows(self) -> list[Connection]:
        """Return the connections that were read at least twice."""
        return [_row(ends) for ends in self._ends.values() if ends.readings > 1]


def _counts(state: TcpState) -> TcpCounts:
    """Return the counts of a connection, with times in ms."""
    times_us = (state.busy_us, state.rwnd_limited_us, state.sndbuf_limited_us)
    busy_ms, rwnd_ms, sndbuf_ms = (time_us // 1000 for time_us in times_us)
    return TcpCounts(state.written, state.taken, state.bytes_retrans, busy_ms, rwnd_ms, sndbuf_ms)


def _row(ends: _Ends) -> Connection:
    """Return the row of `connections`: differences between a connection's first and last reading."""
    first, last = ends.first, ends.last
    # Least and most that TCP can have counted between the two readings of the hooks.
    inner, outer = _subtract(last.before, first.after), _subtract(last.after, first.before)
    return Connection(
        local=ends.local,
        peer=ends.peer,
        snapshots=ends.readings,
        sent_bytes=last.hooked[0] - first.hooked[0],
        sent_inner_bytes=inner.written,
        sent_outer_bytes=outer.written,
        received_bytes=last.hooked[1] - first.hooked[1],
        received_inner_bytes=inner.read,
        received_outer_bytes=outer.read,
        mss_bytes=ends.mss_bytes,
        retransmitted_bytes=outer.retransmitted,
        busy_ms=outer.busy_ms,
        rwnd_limited_ms=outer.rwnd_limited_ms,
        sndbuf_limited_ms=outer.sndbuf_limited_ms,
    )


def _subtract(later: TcpCounts, earlier: TcpCounts) -> TcpCounts:
    """Return the increase of each count."""
    return TcpCounts(*(after - before for before, after in zip(earlier, later, strict=True)))


@dataclass(frozen=True)
class Tier:
    """Tier of a run, exact (functions are hooked) or sampled, and the reason in one clause."""

    exact: bool
    reason: str

    @property
    def name(self) -> str:
        return "exact" if self.exact else "sampled"


class QuotaReading(Protocol):
    """Stops by the CPU quota of a cgroup, which machine/cgroups.py reads."""

    @property
    def stops(self) -> int: ...

    @property
    def stopped_ns(self) -> int: ...


@dataclass(frozen=True)
class LoadReading:
    """CPU times of the machine since boot, and clock settings. Unknown values are None; `reason` says why.

    own_ns: CPU time of copyscope, the collector and perf
    peers: CPU time of each local process that the measured processes are connected to, by pid
    siblings, siblings_ns: as in MachineLoad
    quotas: stops of each cgroup since its first reading, by path
    """

    t_ns: int
    own_ns: int | None
    cpus: int | None = None
    busy_ns: int | None = None
    softirq_ns: int | None = None
    steal_ns: int | None = None
    reason: str | None = None
    peers: Mapping[int, int | None] = field(default_factory=dict)
    clock: ClockState | None = None
    siblings: int | None = None
    siblings_ns: int | None = None
    quotas: Mapping[str, QuotaReading] | None = None


@dataclass
class Raw:
    """Raw results of one run, of our own traffic or of a watched process."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    wall_s: float = 0.0
    interrupted: bool = False
    errors: list[str] = field(default_factory=list)
    tier: Tier | None = None
    # Phase of the segments in which the kernel counts bytes.
    bytes_phase: str | None = None
    segments: list[MeasuredSegment | PastSegment] = field(default_factory=list)
    # Loads at the start of the first measured segment and at the end of the last segment.
    loads: list[LoadReading] = field(default_factory=list)
    collector: CollectorReport | None = None
    # Counts of perf by side and by event.
    counters: dict[str, dict[str, Counter]] = field(default_factory=dict)
    topology: TopologySection | None = None
    machine: Machine | None = None

    # Our own traffic: pinned CPUs, final report of each program, and the hosts of a run on two hosts.
    placement: Placement | None = None
    reports: dict[str, TrafficReport | None] = field(default_factory=dict)
    places: Places | None = None

    # A watched process: first reading of its totals, name of each process, kinds of sockets that are not
    # counted, TCP's own counts, sums of the segments that forget() has dropped, why the watch ended, and the
    # exit status of a command.
    first_reading: TotalsMessage | None = None
    pids: dict[int, str] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)
    connections: Connections = field(default_factory=Connections)
    waits: Waits | None = None
    sums: VolumeSums = field(default_factory=VolumeSums)
    ended: str = AFTER_DURATION
    status: int | None = None
