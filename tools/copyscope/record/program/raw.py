"""What was measured of a watched program: what only it has, beside the parts of record/raw.py. Pure."""

from typing import Any

from msgspec import UNSET, UnsetType

from copyscope.record.instruments import Counter
from copyscope.record.raw import Measured, RunBase, SegmentBase, TopologyBase, WorkloadBase
from copyscope.record.sections import Rows, Section


class Moved(Section):
    """What the program moved in a segment.

    bytes_sent: by send calls of TCP, MPTCP, UDP and UNIX sockets
    bytes_received: by receive calls, and as far as it was counted spliced and mapped
    counts_taken: splice(2) and TCP_ZEROCOPY_RECEIVE were counted from its begin on
    edge_sent_bytes: moved while hooks came and went: the tolerance of checks
    open_zerocopy_sends: not completed at its begin and at its end
    notifications: how often the kernel reported completions
    unseen: completions that the program had read first
    untold: of io_uring without IORING_SEND_ZC_REPORT_USAGE
    edge_ns: how long hooks took to come and go
    """

    bytes: int
    bytes_sent: int
    bytes_received: int
    counts_taken: bool
    send_calls: int
    receive_calls: int
    edge_sent_bytes: int
    edge_received_bytes: int
    edge_send_calls: int
    edge_receive_calls: int
    process_cpu_ns: int
    voluntary_switches: int
    processes: int
    threads: int
    open_zerocopy_sends: int
    completions: int
    copied: int
    notifications: int
    unseen: int
    untold: int
    involuntary_switches: int | UnsetType = UNSET
    edge_ns: int | UnsetType = UNSET


class ProgramSegment(SegmentBase):
    """A segment of a watched program."""

    target: Moved


class ProgramRun(RunBase, kw_only=True):
    segments: list[ProgramSegment]


class Command(WorkloadBase):
    """What was started to be watched."""

    command: list[str] | None


class Process(Section):
    """A process that was watched.

    pid: seen when copyscope looked; others are in `forks` only
    """

    pid: int
    comm: str


class Target(Section):
    """The program that was watched.

    how: `pid`, `comm`, `cgroup` (a unit and a container, too), `command`
    netns: null: all namespaces
    status: 128 + number: killed by a signal
    sent_bytes: from the first moment to the last reading
    uncounted: kinds of sockets that it had and that are not counted: `vsock`, `AF_XDP`, `AF_PACKET`,
        `SCTP`, `SMC`, `TIPC`, `RDS`
    """

    how: str
    name: str
    comm: str | None
    cgroup: str | None
    netns: str | None
    follow: bool
    pids: list[Process]
    forks: int
    exits: int
    ended: str
    status: int | None
    sent_bytes: int
    send_calls: int
    received_bytes: int
    receive_calls: int
    page_bytes: int | None
    uncounted: list[str] | UnsetType = UNSET


class Peer(Section):
    """The other end of a connection.

    address: of a connection that it used
    device: null: no route
    local: packets reach it inside this kernel; null: not known
    """

    address: str
    device: str | None
    local: bool | None


class ProgramTopology(TopologyBase, kw_only=True):
    peers: list[Peer]


class ProgramCounters(Section):
    target: dict[str, Counter]


class Volume(Section):
    """What went through sockets, by arm, protocol, direction and system call.

    protocol: `tcp`, `udp`, `mptcp`, `unix_stream`, `unix_dgram` (datagrams and packets), `sockmap` (of any
        of these: BPF programs may redirect it, so its own counts say nothing)
    direction: `send`, `receive`, `peek` (in no total), `copy_out` (to its memory), `mapped`,
        `truncated` (MSG_TRUNC; in `receive` or `peek`, too)
    syscall: also `splice from a socket`, `receive by mapping`, `splice after vmsplice`,
        `splice after write` (into the pipe), `splice between sockets`, `io_uring`, `other`
    zerocopy_calls: with MSG_ZEROCOPY on a socket with SO_ZEROCOPY, or SEND_ZC
    cork_calls: with TCP_CORK, or MSG_MORE pending
    largest_bytes: since the run began
    """

    arm: str
    protocol: str
    direction: str
    syscall: str
    calls: int
    bytes: int
    zerocopy_calls: int
    zerocopy_bytes: int
    nodelay_calls: int
    cork_calls: int
    largest_bytes: int
    sizes: Rows


class SendError(Section):
    """Send calls that the socket refused, from the first moment to the last reading.

    syscall: `write`, `writev`, `sendto` or `sendmsg`; of others one call is many at the socket
    error: the name of the errno
    calls: without those that a signal ended
    """

    syscall: str
    error: str
    calls: int


class Relays(Section):
    """Threads that received and sent like amounts, but for a tenth, in `calls` segments.

    received_bytes: of streams, by calls that copy
    sent_bytes: of streams, by calls that copy
    """

    threads: int
    received_bytes: int
    sent_bytes: int


class Packets(Section):
    """Packets that the program handed to a device in its own time."""

    packets: int
    bytes: int
    segments: int
    sizes: Rows


class MessageShape(Section):
    """How messages were handed over to the kernel.

    messages: whose arguments were read: `sendto`, `sendmsg`, `sendmmsg`, `write`, `writev`
    unreadable: not in memory any more
    repeated: at the address of the message before, of the same thread
    buffers: elements of the iovecs
    looked: of these, whose address was looked at: 16 of a message
    page_aligned: of these, begin at a page
    line_aligned: at a cache line and not at a page
    sends: passes through the socket layer
    rounds: of the loop of tcp_sendmsg_locked() in them
    """

    protocol: str
    syscall: str
    messages: int
    unreadable: int
    repeated: int
    buffers: int
    looked: int
    page_aligned: int
    line_aligned: int
    sends: int
    rounds: int
    buffers_per_message: Rows
    rounds_per_send: Rows


class Connection(Section):
    """A TCP connection, by our count and by TCP's own.

    local: of a TCP connection that was open at two looks
    sent_bytes: between the first and the last look, by the hooks
    sent_inner_bytes: by TCP's own, at least
    sent_outer_bytes: by TCP's own, at most
    received_bytes: between the first and the last look, by the hooks
    received_inner_bytes: by TCP's own, at least
    received_outer_bytes: by TCP's own, at most
    busy_ms: there was something to send
    rwnd_limited_ms: of it, waited for the peer's window
    sndbuf_limited_ms: of it, waited for room in the send buffer
    """

    local: str
    peer: str
    snapshots: int
    sent_bytes: int
    sent_inner_bytes: int
    sent_outer_bytes: int
    received_bytes: int
    received_inner_bytes: int
    received_outer_bytes: int
    mss_bytes: int
    retransmitted_bytes: int
    busy_ms: int
    rwnd_limited_ms: int
    sndbuf_limited_ms: int


class UserCode(Section):
    """Code that the program ran in user mode, by file; `reason`: why nobody knows whether it copies.

    file: whose code ran; `[vdso]` and the like without a file
    reason: why nobody knows whether it copies
    copy_samples: in functions that copy, or in `rep movs`
    """

    event: str
    file: str
    build_id: str | None
    reason: str | None
    samples: int
    copy_samples: int


class RawProgramRun(Measured, kw_only=True):
    """What was measured of a program that was watched.

    packets: in `calls` segments; without acknowledgements, before the device cuts them
    shapes: how messages were handed over, in `calls` segments
    send_errors: send calls that were refused
    relays: null: no segment of the arm `calls`
    """

    run: ProgramRun
    workload: Command
    target: Target
    topology: ProgramTopology
    traffic: dict[str, Any] | None
    counters: ProgramCounters
    volume: list[Volume]
    packets: Packets | None
    shapes: list[MessageShape] | None
    connections: list[Connection]
    user_code: list[UserCode] | UnsetType = UNSET
    send_errors: list[SendError] | UnsetType = UNSET
    relays: Relays | UnsetType | None = UNSET
