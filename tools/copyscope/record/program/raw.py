"""What was measured of a watched program: what only it has, beside the parts of record/raw.py. Pure."""

from typing import Any

from msgspec import UNSET, UnsetType

from copyscope.record.instruments import Counter
from copyscope.record.raw import Measured, RunBase, SegmentBase, TopologyBase, WorkloadBase
from copyscope.record.sections import Rows, Section


class Moved(Section):
    """What the program moved in a segment.

    bytes: sent and received
    bytes_sent: through send calls of TCP, MPTCP, UDP and UNIX sockets
    bytes_received: through receive calls; where `counts_taken`, what splice(2) took out of a socket as
        well, and what TCP_ZEROCOPY_RECEIVE mapped or copied
    counts_taken: all of the segment counted what splice(2) and TCP_ZEROCOPY_RECEIVE take: in `ledger`
        segments, and in all after the first in which they took anything
    send_calls: calls at the socket
    edge_sent_bytes: moved while hooks were attached before it and detached after it (`functions`: while
        they were switched to count and back): tolerance of identities
    process_cpu_ns: CPU time of its processes (their CPU clocks)
    voluntary_switches: it waited
    processes: at the end of the segment
    births: threads that it made in this segment
    open_zerocopy_sends: not completed at its beginning, plus those at its end: what the deferred copies
        of it may differ by
    completions: zero-copy sends reported complete on its error queues
    copied: of these, with SO_EE_CODE_ZEROCOPY_COPIED
    notifications: how often the kernel reported completions on its error queues
    unseen: completions that it had read before they could be looked at
    untold: notifications of io_uring that do not tell whether the send was copied, because it did not
        ask (IORING_SEND_ZC_REPORT_USAGE)
    involuntary_switches: another task took its CPU
    edge_ns: how long hooks took to be attached before it and detached after it; `edge_sent_bytes` and
        `edge_received_bytes` moved meanwhile
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
    births: int
    open_zerocopy_sends: int
    completions: int
    copied: int
    notifications: int
    unseen: int
    untold: int
    involuntary_switches: int | UnsetType = UNSET
    edge_ns: int | UnsetType = UNSET


class ProgramSegment(SegmentBase):
    """A segment of a watched program.

    target: what it moved in this segment
    """

    target: Moved


class ProgramRun(RunBase, kw_only=True):
    segments: list[ProgramSegment]


class Command(WorkloadBase):
    """What was started to be watched.

    command: the command and its arguments; null: not started by this run
    """

    command: list[str] | None


class Process(Section):
    """A process that was watched.

    pid: a process that belonged to it when copyscope looked; one that lived between two looks is only
        in `forks`
    """

    pid: int
    comm: str


class Target(Section):
    """The program that was watched.

    how: `pid`, `comm`, `cgroup` (a unit and a container, too), `command`
    name: how it is called in sentences
    netns: file of the network namespace whose sockets count; null: traffic of all namespaces
    follow: children belong to it
    forks: processes that it started during the run
    exits: processes of it that ended during the run
    ended: why the run ended
    status: exit status of the command; 128 + number when a signal killed it
    sent_bytes: all that it moved from the first moment to the last reading, between segments, too
    page_bytes: of a page of memory: `mapped` bytes are whole pages; null: no reading of the counters
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


class Peer(Section):
    """The other end of a connection.

    address: of a connection that it used; noted by the hooks, so that it need not be open any more
    device: through which device packets for it leave; null: no route
    local: that device leads to this machine (lo, veth); null: no route
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

    arm: in the segments of which arm
    protocol: `tcp`, `udp`, `mptcp`, `unix_stream`, `unix_dgram` (datagrams and packets)
    direction: `send`, `receive`; `peek`: looked at with MSG_PEEK, and in no total; `copy_out`: copied
        to its memory, in `ledger` segments, by packet; `mapped`: pages that TCP_ZEROCOPY_RECEIVE mapped
        into its memory, where `counts_taken`; `truncated`: what calls with MSG_TRUNC returned, which is
        in `receive` or `peek`, too: TCP drops it without a copy, of a datagram it is the whole length
    syscall: in which system call; `splice from a socket` and `receive by mapping` (getsockopt(2) with
        TCP_ZEROCOPY_RECEIVE) where `counts_taken` only; `splice after vmsplice`: splice(2) into a
        socket of memory that vmsplice(2) gave; `io_uring`; `other`: in none that is known
    calls: at the socket
    zerocopy_calls: with MSG_ZEROCOPY on a socket with SO_ZEROCOPY, or with SEND_ZC or SENDMSG_ZC of
        io_uring
    nodelay_calls: on sockets with TCP_NODELAY
    cork_calls: on sockets with TCP_CORK, or with MSG_MORE pending
    largest_bytes: the largest call since the run began
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


class Packets(Section):
    """Packets that the program handed to a device in its own time.

    packets: before the device cuts them, with their headers; of connected sockets, once each (at the
        device of the socket's route, not again at those below it), and without acknowledgements, which
        carry no payload
    """

    packets: int
    bytes: int
    segments: int
    sizes: Rows


class MessageShape(Section):
    """How messages were handed over to the kernel.

    messages: sends whose arguments were read when they returned: `sendto`, `sendmsg`, `sendmmsg` (the
        first 64 messages of a call), `write`, `writev`; others have no buffers in their arguments
    unreadable: arguments that were not in memory any more
    repeated: messages that begin at the address where the message did that was read before of the same
        thread
    buffers: elements of the iovecs, empty ones too; 1 for a call without an iovec
    looked: of these, whose address was looked at: the first 16 of a message, but for empty ones
    page_aligned: of these, begin at a page
    line_aligned: of these, begin at a cache line of 64 bytes and not at a page
    sends: passes through the socket layer, as `calls` in `volume[]`, in which TCP went round its loop
    rounds: rounds of the loop of tcp_sendmsg_locked() in them: each fills a packet or a page fragment,
        or waits for room
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

    local: of a TCP connection that was open at two looks (sock_diag(7)) at least; of more than 16,384
        those that were seen first
    sent_bytes: between the first and the last look, by our count
    sent_inner_bytes: by TCP's own, at least
    sent_outer_bytes: by TCP's own, at most
    received_bytes: between the first and the last look, by our count
    received_inner_bytes: by TCP's own, at least
    received_outer_bytes: by TCP's own, at most
    retransmitted_bytes: sent again
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

    file: whose code the program ran in user mode when it was sampled; `[vdso]` and the like for memory
        without a file
    build_id: of the file; null: no file, or none in it
    reason: why nobody knows whether this code copies. More than 5 % of such samples make the row
        `gather` null; null: it is known
    samples: in it
    copy_samples: of these, in functions that copy, or in the instruction `rep movs`
    """

    event: str
    file: str
    build_id: str | None
    reason: str | None
    samples: int
    copy_samples: int


class RawProgramRun(Measured, kw_only=True):
    """What was measured of a program that was watched.

    packets: packets that it handed to a device in its own time, in `calls` segments; null: no `calls`
        segment
    shapes: how messages were handed over, in `calls` segments, by protocol and call; null: no `calls`
        segment
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
