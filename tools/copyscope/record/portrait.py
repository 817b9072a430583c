"""What a watched program's traffic is like, and whether zero-copy or sendfile would help it. Pure."""

from typing import Any, Literal

from copyscope.record.sections import Explained, Rows, Section


class Saving(Section):
    share: float
    low: float
    high: float


class Remedy(Section):
    """What could make it copy less, and whether it would.

    answer: `yes`, `maybe`, `no` or `n/a`
    open: only a measured crossover would tell
    how: the setting or call, in the program's own words
    """

    name: str
    answer: Literal["yes", "maybe", "no", "n/a"]
    why: str
    most: Saving | None
    open: bool
    how: str | None = None


class Advice(Section):
    """Would zero-copy or sendfile help?

    answer: the one sentence
    stoppers: what takes the gain away
    most_to_save: share of `copy_in`, or with zero-copy of what replaces it
    crossover: the row that was used
    remedies: `MSG_ZEROCOPY`, `sendfile`, `io_uring`, `larger sends`, `fewer user copies`, of what passes on
        what it receives `splice`
    """

    text: str
    stoppers: list[str]
    most_to_save: Saving | None
    crossover: dict[str, Any] | None
    sendfile: dict[str, Any] | None
    reasons: list[str] | None = None
    remedies: list[Remedy] | None = None
    measure: str | None = None
    answer: str | None = None


class Problem(Section):
    """What keeps zero-copy from making the program faster.

    code: `copied`, `silent`, `no_option`, `enobufs`, `waits`, `slow_peer`, `late_ack`, `never_read`,
        `one_by_one`, `small`, `fields`, `header_body`, `unregistered`, `protocol` or `ktls`
    wall_share: of the time that was watched, what is lost; null: not known
    cpu: of all CPU time, what it takes; null: not known
    """

    code: str
    what: str
    evidence: str
    change: str
    wall_share: float | None
    cpu: Saving | None


class Why(Section):
    """Why is zero-copy not faster here? The dearest problem first; none: nothing is wrong."""

    sentence: str
    problems: list[Problem]


class CallTotal(Section):
    protocol: str
    syscall: str
    calls: int
    bytes: int


class Direction(Section):
    """What the program sent, or received.

    median_low_bytes: lower end of the power of two that holds the median
    page_share: of the bytes, as pages of files and pipes
    memory_share: of the bytes, as memory that vmsplice(2) gave
    socket_share: of the bytes, as pages that splice(2) had taken out of a socket
    """

    calls: int
    bytes: int
    mean_bytes: float
    median_low_bytes: int
    sizes: Rows
    by_call: list[CallTotal]
    zerocopy_share: float
    page_share: float
    memory_share: float
    socket_share: float
    nodelay_share: float
    cork_share: float
    io_uring_share: float


class PacketTotal(Section):
    """Packets, in sum.

    mean_segments: what the device makes of one
    """

    packets: int
    mean_bytes: float
    mean_segments: float
    sizes: Rows


class BufferTotal(Section):
    """Buffers of messages, in sum.

    page_share: begin at a page; `line_share`: at a cache line
    repeated_share: of the messages, begin where the one before did
    """

    messages: int
    buffers: int
    mean_per_message: float
    per_message: Rows
    unreadable: int
    looked: int
    page_share: float | None
    line_share: float | None
    other_share: float | None
    repeated_share: float


class RoundTotal(Section):
    sends: int
    rounds: int
    mean_per_send: float
    per_send: Rows


class MappedTotal(Section):
    """What TCP_ZEROCOPY_RECEIVE took."""

    calls: int
    bytes: int
    pages: int
    copied_bytes: int
    mapped_share: float


class Portrait(Explained):
    """What the traffic of the program is like.

    buffers: sum of `shapes[]`
    mapped: in segments with `counts_taken`
    """

    send: Direction | None
    receive: Direction | None
    packets: PacketTotal | None
    buffers: BufferTotal | None
    rounds: RoundTotal | None
    mapped: MappedTotal | None
    connections: int
    local_share: float | None
