"""What follows from a run beside a program: what only it has, beside the parts of record/derived.py. Pure."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from copyscope.record.derived import Cause, Concluded, Elsewhere, OtherSide, Overhead, Ratio, SideTime
from copyscope.record.sections import Explained, Rows, Section


class Watching(Ratio):
    """What watching cost: goodput of the whole watch over that of the segments that count only bytes.

    ratio: goodput of all segments of a block and the changes between them, over that of the arm
        `unprobed`; the byte hooks are in both
    effect: 1 - ratio
    """

    effect: float | None
    pairs: int


class ProgramOverhead(Overhead):
    """The observer effect of a watch."""

    watching: Watching


class ProgramSide(SideTime):
    """CPU time of the watched program."""

    cpus_used: float | None


class ProgramSides(Section):
    """CPU time by whose it was."""

    target: ProgramSide
    other: OtherSide
    elsewhere: Elsewhere


class Saving(Section):
    share: float
    low: float
    high: float


class Remedy(Section):
    """What could make it copy less, and whether it would.

    answer: `yes`, `maybe`, `no` or `n/a`
    open: only a measured crossover would tell
    """

    name: str
    answer: Literal["yes", "maybe", "no", "n/a"]
    why: str
    most: Saving | None
    open: bool


class Advice(Section):
    """Would zero-copy or sendfile help?

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
    reasons: list[str] | UnsetType = UNSET
    remedies: list[Remedy] | UnsetType = UNSET
    measure: str | UnsetType | None = UNSET


class ProgramZerocopy(Section):
    """What became of its sends with MSG_ZEROCOPY.

    completions: null: see `reason`
    notifications: null: see `reason`
    unseen: sum of the segments; null: see `reason`
    reason: why nothing is known of completions
    """

    sends: int
    bytes_sent: int
    completions: int | None
    copied: int | None
    notifications: int | None
    unseen: int | None
    untold: int
    reason: str | None
    cause: Cause | None


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


class DerivedProgram(Concluded, kw_only=True):
    """What follows from a run beside a program."""

    PROCESSES = ("target",)
    sides: ProgramSides
    zerocopy: ProgramZerocopy | None
    overhead: ProgramOverhead
    advice: Advice | None
    portrait: Portrait
