"""The sections that only a watched program has. Pure."""

from collections.abc import Iterable
from typing import ClassVar

from copyscope.record.sections import Histogram, Reasoned, Rows, Section


class Process(Section):
    """A process that was watched.

    pid: seen when copyscope looked; others are in `forks` only
    """

    pid: int
    comm: str


class Target(Section):
    """The program that was watched.

    how: `pid`, `comm`, `cgroup` (a unit and a container, too), `command`
    command: what was started to be watched
    duration_s: null: to its end
    netns: null: all namespaces
    status: 128 + number: killed by a signal
    sent_bytes: from the first moment to the last reading
    uncounted: kinds of sockets that it had and that are not counted: `vsock`, `AF_XDP`, `AF_PACKET`,
        `raw IP`, `ICMP`, `SCTP`, `SMC`, `TIPC`, `RDS`
    memlock_limit_bytes: RLIMIT_MEMLOCK, of several processes the least, when the watch began; null: the
        machine's reasons say why (`limits.memlock_bytes`)
    optmem_limit_bytes: net.core.optmem_max, of its network namespace; null: not readable there
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
    uncounted: list[str] | None = None
    command: list[str] | None = None
    duration_s: float | None = None
    memlock_limit_bytes: int | None = None
    optmem_limit_bytes: int | None = None


class Peer(Section):
    """The other end of a connection.

    address: of a connection that it used
    device: null: no route
    local: packets reach it inside this kernel; null: not known
    """

    address: str
    device: str | None
    local: bool | None


class Volume(Section):
    """What went through sockets, by phase, protocol, direction and system call.

    protocol: `tcp`, `udp`, `mptcp`, `unix_stream`, `unix_dgram` (datagrams and packets), `sockmap` (of any
        of these: BPF programs may redirect it, so its own counts say nothing)
    direction: `file_read` (from the page cache; protocol `file`), `direct_read` (with O_DIRECT),
        `unseen_read` (calls that may have read files and do not tell how much: 0 bytes), `send`,
        `receive`, `peek` (in no total), `copy_out` (to its memory), `mapped`,
        `truncated` (MSG_TRUNC; in `receive` or `peek`, too)
    syscall: also `io_submit`, `splice from a socket`, `receive by mapping`, `splice after vmsplice`,
        `splice after write` (into the pipe), `splice between sockets`, `io_uring`, `other`
    zerocopy_calls: with MSG_ZEROCOPY on a socket with SO_ZEROCOPY, or SEND_ZC
    cork_calls: with TCP_CORK, or MSG_MORE pending
    largest_bytes: since the run began
    """

    phase: str
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


class Buffers(Reasoned):
    """The life of what one side sent with MSG_ZEROCOPY over one protocol, over the whole run.

    sends: with SO_ZEROCOPY; io_uring's are none of these
    given_back_sends: of these, whose memory the kernel needs no more; null: nobody sees notices
    before_return: of these, before the send returned: 0 ns
    read_sends: of those given back, whose notice the program has read
    closed_sends: were with the kernel when their socket was closed
    enobufs: calls with the flag that failed with ENOBUFS
    eagain: calls with the flag that failed with EAGAIN
    flag_only_calls: calls with the flag on sockets without SO_ZEROCOPY, where it means nothing
    most_in_flight: sends whose memory was with the kernel at once
    latency: from the return of the send to the notice; of one notice 32 sends at most
    reading: from the notice to its reading by recvmsg(MSG_ERRQUEUE)
    readings: recvmsg calls that took a notice; like `waits` 0 where nobody sees notices
    waits: how often a thread slept after such a send, or after a SEND_ZC in io_uring_enter(), until a notice
        came, read it, and sent on. One that received anything in between was idle, one whose send failed with
        EAGAIN waited for room: not counted
    waited_ns: of these, until the notice came; all threads together
    """

    MAIN: ClassVar[str] = "given_back_sends"
    side: str
    protocol: str
    sends: int
    given_back_sends: int | None
    before_return: int
    read_sends: int
    closed_sends: int
    enobufs: int
    eagain: int
    flag_only_calls: int
    most_in_flight: int
    most_in_flight_bytes: int
    latency: Histogram
    reading: Histogram
    readings: int = 0
    waits: int = 0
    waited_ns: int = 0


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
    mixed: messages with MSG_ZEROCOPY that have a buffer below 4 KiB and one of 10 KiB or more
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
    mixed: int = 0


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
    made_with: `Go`, of a program in that language
    cipher_samples: in functions that encrypt or decrypt; null: nobody looked
    """

    event: str
    file: str
    build_id: str | None
    reason: str | None
    samples: int
    copy_samples: int
    cipher_samples: int | None = None
    made_with: str | None = None


class ThreadName(Section):
    """What the threads of one name did in the program's own time.

    thread: its name (`/proc/PID/task/TID/comm`); empty: all others, of more names than are kept
    weights: by account or stage, in the event's unit
    """

    event: str
    thread: str
    samples: int
    weights: dict[str, int]


class UserCaller(Section):
    """Who called a function that copies in the program's own memory.

    copy: that function, or `rep movs`
    caller: by its symbol, else `FILE+0xADDRESS`; null: not known, and `reason`
    file: whose code the caller is; `memory`: JIT-compiled
    source: `FILE:LINE` of the call, of JIT-compiled code of the function; null: not known there, or not among
        the 16 places that call most
    """

    event: str
    copy: str
    caller: str | None
    file: str | None
    reason: str | None
    samples: int
    source: str | None = None


# Calls that hand the kernel pages of files, of pipes or of the program's own memory: it refers to them
# (MSG_SPLICE_PAGES, formerly sendpage).
SPLICED_MEMORY = "splice after vmsplice"

# Bytes that it had written into the pipe: copied there, and by reference from then on.
SPLICED_WRITTEN = "splice after write"

# Pages of packets that splice(2) had taken out of a socket: from one to the other without a copy.
SPLICED_ON = "splice between sockets"

BY_REFERENCE = ("sendfile", "splice", SPLICED_MEMORY, SPLICED_WRITTEN, SPLICED_ON)

# One call of these is one at the socket.
ONE_EACH = ("write", "writev", "sendto", "sendmsg")

# What was read out of files, which is no socket's.
FILE = "file"

# Sockets whose bytes BPF programs may redirect to another one: copied in and out by functions of their own,
# which no hook sees, and past TCP's own count.
SOCKMAP = "sockmap"

# Received without a receive call: by splice(2), and by getsockopt(2) with TCP_ZEROCOPY_RECEIVE, which maps
# what it can and copies the rest. Counted in ledger segments, and in all that follow the first that saw any.
SPLICED_IN = "splice from a socket"

MAPPED_IN = "receive by mapping"

TAKEN = (SPLICED_IN, MAPPED_IN)

# With MSG_TRUNC these drop what they receive or look at (tcp(7), mptcp_recvmsg()); others tell the length of
# a datagram, of which they copy what there is room for.
DROPPING = ("tcp", "mptcp")


def volume(rows: Iterable[Volume], direction: str, phase: str | None = None) -> list[Volume]:
    """The rows of one direction, of one phase or of all."""
    return [r for r in rows if r.direction == direction and (phase is None or phase in r.phase.split("+"))]


def dropped(rows: Iterable[Volume], phase: str | None = None) -> list[Volume]:
    """Of what was received or looked at, what was never copied to the program."""
    return [row for row in volume(rows, "truncated", phase) if row.protocol in DROPPING]


def urgent(rows: Iterable[Volume], phase: str) -> list[Volume]:
    """The urgent bytes of TCP: of a copy that is counted at its packet no system call is known."""
    found = volume(rows, "copy_out", phase)
    return [row for row in found if row.protocol == "tcp" and row.syscall != "other"]


def added(rows: Iterable[Section], key: str) -> int:
    return sum(getattr(row, key) for row in rows)
