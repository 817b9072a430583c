# SPDX-License-Identifier: GPL-2.0-only
"""Structs that only the record of a watched process has. Pure."""

from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple, TypeVar

from copyscope.record.sections import Histogram, Reasoned, Section, SizeCounts

Row = TypeVar("Row")


class Process(Section):
    """Watched process."""

    pid: int
    comm: str


class Target(Section):
    """The watched process and its children.

    how: selected by `pid`, `comm`, `cgroup` (also systemd units and containers) or `command`
    netns: network namespace whose sockets are counted; null: all
    follow: true if children are watched, too
    status: exit status of a command; 128 + N if signal N killed it
    sent_bytes, received_bytes: bytes of the whole watch, including the time between segments
    span_s: time in which these bytes were counted
    command: the command; its arguments only with `--with-arguments`
    arguments: number of arguments of the command
    uncounted: kinds of its sockets that copyscope does not count, such as `vsock` or `AF_XDP`
    duration_s: requested duration; null: until the process exits
    memlock_limit_bytes: lowest RLIMIT_MEMLOCK of its processes; null: see `machine.reasons`
    optmem_limit_bytes: net.core.optmem_max in its network namespace
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
    arguments: int | None = None
    duration_s: float | None = None
    span_s: float | None = None
    memlock_limit_bytes: int | None = None
    optmem_limit_bytes: int | None = None

    @property
    def program(self) -> str:
        """Name of the process if it is known, else the name that selected it."""
        return self.comm or self.name

    @property
    def command_text(self) -> str | None:
        """The command in one text, with the number of its arguments if the record leaves these out."""
        if self.command is None:
            return None
        left_out = (self.arguments or 0) > len(self.command) - 1
        count = f" ({self.arguments} argument{'s' if self.arguments != 1 else ''})" if left_out else ""
        return " ".join(self.command) + count

    @property
    def title(self) -> str:
        """Name of the watched program, with the number of processes if it was watched by name."""
        if self.how != "comm" or not self.comm:
            return self.name
        count = len(self.pids)
        return f"{self.comm} ({count} processes)" if count > 1 else self.comm


class Peer(Section):
    """Address at the other end of connections; `local`: packets to it stay in this kernel."""

    address: str
    device: str | None
    local: bool | None


class Volume(Section):
    """Data that a watched process moved through sockets or read from files.

    protocol: `tcp`, `udp`, `mptcp`, `unix_stream`, `unix_dgram`, `file`, `pipe`, or `sockmap` (BPF programs
        may redirect it)
    direction: `send`, `receive`, `peek` (no total includes it), `copy_out` (copied into its memory),
        `mapped`, `truncated` (MSG_TRUNC, also in `receive` or `peek`), `file_read` (from the page cache),
        `direct_read` (O_DIRECT), `unseen_read` (file reads of unknown size) or `teed` (doubled by tee(2))
    syscall: name of the system call, or `splice from a socket`, `receive by mapping`, `splice after
        vmsplice`, `splice after write`, `splice between sockets`, `io_uring` or `other`
    zerocopy_calls: calls with MSG_ZEROCOPY on a socket with SO_ZEROCOPY, or SEND_ZC requests
    cork_calls: calls with TCP_CORK, or after MSG_MORE
    sizes: histogram: `[low, count]` counts calls of `low` to 2 * `low` - 1 bytes
    copied_calls: calls that sent by reference, but whose data the socket copied
    ring_calls: splice requests of io_uring
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
    sizes: SizeCounts
    copied_calls: int | None = None
    copied_bytes: int | None = None
    ring_calls: int = 0
    ring_bytes: int = 0

    @property
    def referenced_bytes(self) -> int:
        """Bytes that the socket took by reference: as pages, or with zero-copy."""
        passed_bytes = self.bytes if self.syscall in BY_REFERENCE else self.zerocopy_bytes
        return passed_bytes - (self.copied_bytes or 0)


class SendError(Section):
    """Failed send calls of the whole watch (without EINTR); `error`: name of the errno."""

    syscall: str
    error: str
    calls: int


class Buffers(Reasoned):
    """MSG_ZEROCOPY sends of one process over one protocol, and the release of their memory.

    sends: sends on sockets with SO_ZEROCOPY, without io_uring
    given_back_sends: sends whose memory the kernel has released; null: the hook is missing
    before_return: sends whose memory was released before they returned; they count as 0 ns
    read_sends: sends with a notification that the process has read
    closed_sends: sends that were not complete when their socket was closed
    enobufs, eagain: calls that failed with this error
    flag_only_calls: calls with MSG_ZEROCOPY on sockets without SO_ZEROCOPY, where the flag has no effect
    most_in_flight: largest number of sends whose memory the kernel held at once
    latency: time from the return of a send to its notification, for at most 32 sends of each notification
    reading: time from a notification to the recvmsg(MSG_ERRQUEUE) that read it
    readings: recvmsg calls that returned a notification
    waits: number of times that a thread slept until a notification, and then sent again
    waited_ns: time that all threads slept in these waits
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
    """Threads that received and sent equally many bytes (within 10 %), and copied them."""

    threads: int
    received_bytes: int
    sent_bytes: int


class Packets(Section):
    """Packets passed to a network device using CPU time of the process, except pure ACKs.

    segments: packets on the wire, after the device has split them
    sizes: histogram of packet sizes, as in `volume[]`
    """

    packets: int
    bytes: int
    segments: int
    sizes: SizeCounts


class MessageShape(Section):
    """Layout of the messages that one kind of system call sent in `calls` segments.

    messages: messages whose arguments were read (`sendto`, `sendmsg`, `sendmmsg`, `write`, `writev`)
    unreadable: messages or buffers whose arguments were not in memory
    repeated: messages that begin at the same address as the previous message
    buffers: number of buffers: elements of the iovecs
    looked: buffers whose address was examined, at most 16 per message
    page_aligned: examined buffers that begin at a page
    line_aligned: examined buffers that begin at a cache line, but not at a page
    sends: calls to the socket's send function
    rounds: iterations of the loop in tcp_sendmsg_locked()
    buffers_per_message, rounds_per_send: histograms of `[low, count]`
    mixed: MSG_ZEROCOPY messages with a buffer below 4 KiB and one of at least 10 KiB
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
    buffers_per_message: SizeCounts
    rounds_per_send: SizeCounts
    mixed: int = 0


class ConnectionBytes(NamedTuple):
    """Bytes in one direction of a connection: the hooks' count, and lower and upper bound of TCP's count."""

    bytes: int
    inner_bytes: int
    outer_bytes: int


class Connection(Section):
    """Counts of a TCP connection between the first and the last time that its TCP_INFO was read.

    snapshots: number of times that TCP_INFO was read
    sent_bytes, received_bytes: bytes that the hooks counted
    sent_inner_bytes, received_inner_bytes: lower bound of the bytes that TCP counted meanwhile
    sent_outer_bytes, received_outer_bytes: upper bound of the bytes that TCP counted meanwhile
    busy_ms, rwnd_limited_ms, sndbuf_limited_ms: times of TCP_INFO (`tcpi_busy_time` and others)
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

    def moved(self, direction: str) -> ConnectionBytes:
        """Return the bytes of a direction, `sent` or `received`."""
        if direction == "sent":
            return ConnectionBytes(self.sent_bytes, self.sent_inner_bytes, self.sent_outer_bytes)
        return ConnectionBytes(self.received_bytes, self.received_inner_bytes, self.received_outer_bytes)


class UserCode(Section):
    """Samples in user mode, by file.

    reason: reason why the names of the file's functions are unknown
    copy_samples: samples in functions that copy, or in `rep movs`
    cipher_samples: samples in functions that encrypt or decrypt; null: not examined
    made_with: `Go` if the file is a Go program
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
    """Samples of all threads with the same name; empty: all other names. `weights`: by account or stage."""

    event: str
    thread: str
    samples: int
    weights: dict[str, int]


class UserCaller(Section):
    """Caller of a function that copies within the process's memory.

    copy: function that copies, such as memcpy, or `rep movs`
    caller: function that called it, or `FILE+0xADDRESS`
    file: file of the caller; `memory` for JIT-compiled code
    source: `FILE:LINE` of the call, or of a JIT-compiled function, for the 16 most frequent callers
    """

    event: str
    copy: str
    caller: str | None
    file: str | None
    reason: str | None
    samples: int
    source: str | None = None


class UserFunction(Section):
    """A function of the program that neither copies nor encrypts: one of the 16 of an event."""

    event: str
    function: str
    file: str
    samples: int


# Names of `volume[].syscall` for splice(2) calls that send. The kernel refers to the pages of a file, a pipe
# or the process instead of copying them (MSG_SPLICE_PAGES, formerly sendpage).
#
# Name for pages that vmsplice(2) gave to the pipe.
SPLICED_MEMORY = "splice after vmsplice"
# Name for data that the process had written into the pipe: copied once, and then passed on by reference.
SPLICED_WRITTEN = "splice after write"
# Name for pages of packets that splice(2) had received from another socket.
SPLICED_ON = "splice between sockets"
# Names of all calls that send pages by reference.
BY_REFERENCE = ("sendfile", "splice", SPLICED_MEMORY, SPLICED_WRITTEN, SPLICED_ON)

# System calls that make exactly one call of the socket's send function.
CALLS_WITH_ONE_SEND = ("write", "writev", "sendto", "sendmsg")

# `volume[].protocol` of data that was read from files.
FILE_PROTOCOL = "file"

# `volume[].protocol` of sockets with data that BPF programs may redirect to another socket. Functions without
# hooks copy such data, and TCP does not count it.
SOCKMAP = "sockmap"

# `volume[].syscall` of data received without a receive call: by splice(2), or by getsockopt(2) with
# TCP_ZEROCOPY_RECEIVE, which maps whole pages and copies the other bytes. Such data is counted in `ledger`
# segments, and in all segments after the first such data.
SPLICED_IN = "splice from a socket"
MAPPED_IN = "receive by mapping"
WITHOUT_RECEIVE_CALL = (SPLICED_IN, MAPPED_IN)

# Protocols that discard data which is received or peeked at with MSG_TRUNC (tcp(7), mptcp_recvmsg()). Other
# protocols return the length of a datagram and copy as much of it as fits.
DISCARDING_PROTOCOLS = ("tcp", "mptcp")


def volume(rows: Iterable[Volume], direction: str, phase: str | None = None) -> list[Volume]:
    """Return the rows of one direction, in segments of `phase` or in all segments."""
    return [r for r in rows if r.direction == direction and (phase is None or phase in r.phase.split("+"))]


def discarded_rows(rows: Iterable[Volume], phase: str | None = None) -> list[Volume]:
    """Return the rows of data that a receive or peek call discarded without a copy (MSG_TRUNC)."""
    return [row for row in volume(rows, "truncated", phase) if row.protocol in DISCARDING_PROTOCOLS]


def urgent_rows(rows: Iterable[Volume], phase: str) -> list[Volume]:
    """Return the rows of copied urgent data: the only TCP `copy_out` rows that name a system call."""
    copied_out = volume(rows, "copy_out", phase)
    return [row for row in copied_out if row.protocol == "tcp" and row.syscall != "other"]


def added(rows: Iterable[Row], count: Callable[[Row], int]) -> int:
    """Return the sum of one count over rows."""
    return sum(map(count, rows))
