"""What follows from a run beside a program: what only it has, beside the parts of record/derived.py. Pure."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from copyscope.record.derived import Cause, Concluded, Elsewhere, OtherSide, Overhead, Ratio, SideTime
from copyscope.record.sections import Explained, Rows, Section


class Watching(Ratio):
    """What watching cost: goodput of the whole watch over that of the segments that count only bytes.

    ratio: of all segments of a block and the changes between them, over those of the arm `unprobed`;
        median over the blocks; what the hooks that count bytes cost is not in it
    effect: the loss, 1 - ratio
    pairs: blocks that were compared
    """

    effect: float | None
    pairs: int


class ProgramOverhead(Overhead):
    """The observer effect of a watch.

    watching: of the whole watch
    """

    watching: Watching


class ProgramSide(SideTime):
    """CPU time of the watched program.

    cpus_used: CPU time over wall time
    """

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

    answer: `yes`, `maybe`, `no`, or `n/a` where what it rests on was not sampled
    most: what could be saved at most, of its CPU time; null: it was not sampled
    open: only a measured crossover would tell, and there is none
    """

    name: str
    answer: Literal["yes", "maybe", "no", "n/a"]
    why: str
    most: Saving | None
    open: bool


class Advice(Section):
    """Would zero-copy or sendfile help?

    text: the reasons as one paragraph
    stoppers: what would take the gain away, or does
    most_to_save: share of `copy_in` in its CPU time; of a program that sends half of its bytes or more
        with zero-copy that of `pin`, `deferred`, `silent` and `completion`
    crossover: the row of crossover.json that was used
    remedies: what could make it copy less, nothing for a program that sends nothing: `MSG_ZEROCOPY`,
        `sendfile`, `io_uring`, `larger sends`, `fewer user copies`
    measure: the command that measures it; null: nothing needs one
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

    sends: successful sends with MSG_ZEROCOPY or SEND_ZC
    completions: sends reported complete; null: of a watched program: `zerocopy.reason`
    copied: of these, with the flag that says they were copied
    notifications: messages on the error queue; of io_uring one for each send; null: of a watched
        program: `zerocopy.reason`
    unseen: as in `run.segments[]`, sum; null: `zerocopy.reason`
    reason: why nothing is known of completions: no hook looked at the error queues of its sockets, and
        io_uring told of none; null: they were looked at
    cause: why it was copied
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
    zerocopy_share: part of the bytes with MSG_ZEROCOPY
    page_share: part of the bytes by sendfile(2) or splice(2), of pages of files and pipes
    memory_share: part of the bytes by splice(2) of its own memory, which vmsplice(2) gave; before 6.5
        this is in `page_share`
    nodelay_share: part of the calls with TCP_NODELAY
    cork_share: part of the calls with cork
    io_uring_share: part of the bytes that io_uring moved
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
    nodelay_share: float
    cork_share: float
    io_uring_share: float


class PacketTotal(Section):
    """Packets, in sum.

    mean_segments: what the device has to make of one
    """

    packets: int
    mean_bytes: float
    mean_segments: float
    sizes: Rows


class BufferTotal(Section):
    """Buffers of messages, in sum.

    page_share: parts of the buffers looked at that begin at a page, at a cache line, elsewhere; null:
        none was looked at
    repeated_share: part of the messages that begin where the one read before did
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
    """What TCP_ZEROCOPY_RECEIVE took.

    bytes: mapped into its memory, in whole pages
    copied_bytes: copied by the same calls, because they were no whole pages
    mapped_share: part that was mapped of what these calls took
    """

    calls: int
    bytes: int
    pages: int
    copied_bytes: int
    mapped_share: float


class Portrait(Explained):
    """What the traffic of the program is like.

    send: all segments
    buffers: sum of `shapes[]`
    mapped: what it took, in segments with `counts_taken`
    connections: rows of `connections`
    local_share: part of the peers that are on this machine
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
    """What follows from a run beside a program.

    zerocopy: sums over all segments, where nothing else is said; null: the strategy sends without
        MSG_ZEROCOPY and SEND_ZC
    advice: would zero-copy or sendfile help?
    """

    PROCESSES = ("target",)
    sides: ProgramSides
    zerocopy: ProgramZerocopy | None
    overhead: ProgramOverhead
    advice: Advice | None
    portrait: Portrait
