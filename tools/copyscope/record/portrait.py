# SPDX-License-Identifier: GPL-2.0-only
"""Structs about the traffic of a watched process: its shape, and changes that would save copies. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

from copyscope.record.sections import Explained, Section, SizeCounts


class Saving(Section):
    """Share of the CPU time that could be saved, and its confidence interval."""

    share: float
    low: float
    high: float


class Bounds(Section):
    """Lower and upper bound of a change's saving, as shares of the CPU time.

    likely_share: saving if calls grow to 64 KiB; null: the work that the change adds is unknown
    """

    least_share: float
    most_share: float
    likely_share: float | None = None


class Remedy(Section):
    """Change that could reduce copying.

    saves: saving; null: unknown
    open: true if only a measured crossover can show whether it saves time
    how: setting or call that makes the change
    """

    name: str
    answer: Literal["yes", "maybe", "no", "n/a"]
    why: str
    open: bool
    saves: Bounds | None = None
    how: str | None = None


class StandIn(Section):
    """Saving that the change achieved in similar traffic of copyscope's own.

    traffic: settings before and after the change, in words
    """

    remedy: str
    traffic: str
    saves: Saving


class Advice(Section):
    """Advice about zero-copy and sendfile.

    stoppers: obstacles that prevent a gain
    most_to_save: upper bound of the saving by zero-copy
    crossover, sendfile: measured crossovers that the advice is based on
    reasons: facts that led to the answer
    measure: command that would answer an open question
    stand_in: saving of the first remedy in copyscope's own traffic; null: not measured
    """

    text: str
    stoppers: list[str]
    most_to_save: Saving | None
    crossover: Mapping[str, Any] | None
    sendfile: Mapping[str, Any] | None
    reasons: list[str] | None = None
    remedies: list[Remedy] | None = None
    measure: str | None = None
    answer: str | None = None
    stand_in: StandIn | None = None


class Problem(Section):
    """Reason why zero-copy does not make the process faster.

    code: `copied`, `late`, `silent`, `no_option`, `enobufs`, `waits`, `slow_peer`, `late_ack`, `never_read`,
        `one_by_one`, `small`, `fields`, `header_body`, `unregistered`, `protocol` or `ktls`
    wall_share: share of the elapsed time that the problem costs
    cpu: share of the CPU time that the problem costs
    """

    code: str
    what: str
    evidence: str
    change: str
    wall_share: float | None
    cpu: Saving | None


class Why(Section):
    """Reasons why zero-copy is not faster, the most expensive first."""

    sentence: str
    problems: list[Problem]


class CallTotal(Section):
    """Calls and bytes by protocol and system call."""

    protocol: str
    syscall: str
    calls: int
    bytes: int


class Direction(Section):
    """Calls in one direction: sending or receiving.

    median_low_bytes: lower end of the bucket of `sizes` that contains the median
    sizes: histogram of call sizes, as in `volume[]`
    page_share: share of the bytes sent as pages of files or pipes
    memory_share: share of the bytes given to vmsplice(2)
    socket_share: share of the bytes that splice(2) took from another socket
    cork_share: share of the calls with TCP_CORK or MSG_MORE
    """

    calls: int
    bytes: int
    mean_bytes: float
    median_low_bytes: int
    sizes: SizeCounts
    by_call: list[CallTotal]
    zerocopy_share: float
    page_share: float
    memory_share: float
    socket_share: float
    nodelay_share: float
    cork_share: float
    io_uring_share: float


class PacketTotal(Section):
    """Totals over `packets[]`; `mean_segments`: mean number of wire packets per counted packet."""

    packets: int
    mean_bytes: float
    mean_segments: float
    sizes: SizeCounts


class BufferTotal(Section):
    """Sums over `shapes[]`; the shares are fractions of the examined buffers."""

    messages: int
    buffers: int
    mean_per_message: float
    per_message: SizeCounts
    unreadable: int
    looked: int
    page_share: float | None
    line_share: float | None
    other_share: float | None
    repeated_share: float


class RoundTotal(Section):
    """Iterations of the send loop in tcp_sendmsg_locked()."""

    sends: int
    rounds: int
    mean_per_send: float
    per_send: SizeCounts


class MappedTotal(Section):
    """Data received by TCP_ZEROCOPY_RECEIVE, in segments that counted it."""

    calls: int
    bytes: int
    pages: int
    copied_bytes: int
    mapped_share: float


class Portrait(Explained):
    """Traffic of a watched process.

    local_share: share of the peers that are on this machine
    """

    send: Direction | None
    receive: Direction | None
    packets: PacketTotal | None
    buffers: BufferTotal | None
    rounds: RoundTotal | None
    mapped: MappedTotal | None
    connections: int
    local_share: float | None
