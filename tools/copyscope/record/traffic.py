"""What each side did in a segment, and what our own two programs report at the end. Pure."""

from copyscope.record.sections import Rows, Section

Option = str | bool | int | float | list[int | str] | None


class Totals(Section):
    """Running totals of one side, or their differences over a segment.

    bytes: payload accepted by, or received from, the socket
    process_cpu_ns: CLOCK_PROCESS_CPUTIME_ID: CPU time of all threads
    user_ns: getrusage(2), user mode
    system_ns: getrusage(2), in the kernel
    voluntary_switches: the program waited
    involuntary_switches: the program was put aside
    """

    bytes: int
    calls: int
    process_cpu_ns: int
    user_ns: int
    system_ns: int
    voluntary_switches: int
    involuntary_switches: int


class ZerocopyTotals(Section):
    """What the error queue said of sends with MSG_ZEROCOPY.

    sends: successful ones, with MSG_ZEROCOPY or SEND_ZC
    copied: of these, with SO_EE_CODE_ZEROCOPY_COPIED
    enobufs: sends refused: optmem or memlock limit
    notifications: each may cover a range of sends
    in_flight: not complete yet; 0 when drained
    waits: times that the sender had to wait for a notice before it could go on, and for how long in all
    """

    sends: int
    bytes_sent: int
    completions: int
    copied: int
    bytes_copied: int
    enobufs: int
    notifications: int
    in_flight: int
    max_in_flight: int
    errqueue_reads: int
    waits: int | None = None
    wait_ns: int | None = None


class Spliced(Section):
    """What went into the socket as pages, of a file or of memory; of a receiver, out of it, into a pipe."""

    calls: int
    bytes: int


class Taken(Section):
    """What a relay took off the socket of the program before it.

    calls: those that returned data
    spliced_bytes: of these, moved into a pipe by reference
    """

    calls: int
    bytes: int
    spliced_bytes: int


class Requests(Section):
    """What was sent by requests to an io_uring.

    requests: requests to send that have ended
    worker_cpu_ns: of it in io_uring's own threads
    """

    requests: int
    worker_cpu_ns: int


class SenderTotals(Totals, tag_field="role", tag="sender"):
    """The sender's totals.

    eagain: refused because the buffer was full
    gather_broken_messages: timed in vain: the thread lost its CPU meanwhile
    zerocopy: from the error queue or the notifications of io_uring
    spliced: sent as pages; without a completion
    io_uring: requests; their number is in `calls`, too
    taken: by a relay; null: it is none
    """

    messages: int
    short_sends: int
    eagain: int
    gather_timed_messages: int
    gather_timed_ns: int
    gather_broken_messages: int
    send_syscalls: dict[str, int]
    zerocopy: ZerocopyTotals | None
    spliced: Spliced | None = None
    io_uring: Requests | None = None
    tls_records: int | None = None
    taken: Taken | None = None


class Verified(Section):
    """What the receiver found when it compared every byte.

    first_wrong_offset: place of the first in its stream; null: nothing was wrong
    """

    checked_bytes: int
    wrong_bytes: int
    first_wrong_offset: int | None


class Mapped(Section):
    """What TCP_ZEROCOPY_RECEIVE took off the socket: pages, and bytes that it copied beside them.

    bytes: mapped into the receiver's memory, in whole pages
    copied_bytes: not whole pages
    """

    calls: int
    bytes: int
    pages: int
    copied_bytes: int


class Multishot(Section):
    """Requests to an io_uring that receive again and again.

    enters: io_uring_enter(2) calls
    """

    requests: int
    enters: int


class ReceiverTotals(Totals, tag_field="role", tag="receiver"):
    """The receiver's totals.

    truncated_bytes: taken off the socket with MSG_TRUNC, not copied
    replies: answers sent back in `rr` mode
    mapped: what TCP_ZEROCOPY_RECEIVE took
    spliced: moved into a pipe
    io_uring: each arrival is one of `calls`
    """

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | None = None
    mapped: Mapped | None = None
    spliced: Spliced | None = None
    io_uring: Multishot | None = None


class TargetTotals(Section, tag_field="role", tag="target"):
    """What a watched program moved in a segment.

    bytes_sent: by send calls of TCP, MPTCP, UDP and UNIX sockets
    bytes_received: by receive calls, and as far as it was counted spliced and mapped
    counts_taken: splice(2) and TCP_ZEROCOPY_RECEIVE were counted from its begin on
    edge_sent_bytes: moved while hooks came and went: the tolerance of checks
    open_zerocopy_sends: not completed at its begin and at its end
    notifications: how often the kernel reported completions
    unseen: completions that the program had read first
    untold: of io_uring without IORING_SEND_ZC_REPORT_USAGE
    unregistered: zero-copy sends of io_uring from memory that is not registered
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
    involuntary_switches: int
    edge_ns: int
    unregistered: int = 0


SideTotals = SenderTotals | ReceiverTotals | TargetTotals


class Ring(Section):
    """Memory of the messages that are sent in turn.

    huge_bytes: of it, on huge pages in the end
    """

    bytes: int
    huge_bytes: int | None


class Encryption(Section):
    """What kTLS did on one side: where its connections were set up, null where the kernel does not say.

    version: `1.2` or `1.3`
    cipher: `AES-GCM-128`
    record_overhead_bytes: besides plaintext: 29 (1.2), 22 (1.3)
    software_connections: since the program began
    """

    version: str
    cipher: str
    record_overhead_bytes: int
    software_connections: int | None
    device_connections: int | None


class Claim(Section):
    """How many copies a strategy says it makes, in the program and in the kernel."""

    user_copies: int
    kernel_copies: int
    what: str | None = None


class Thread(Section):
    """What one thread of a program did.

    tcp_info: TCP_INFO of its connection at the end, which this kernel may not give in full
    """

    tid: int | None = None
    cpu_ns: int | None = None
    bytes: int | None = None
    messages: int | None = None
    calls: int | None = None
    congestion_control: str | None = None
    sndbuf_bytes: int | None = None
    rcvbuf_bytes: int | None = None
    tcp_info: dict[str, int | None] | None = None


class Quantiles(Section):
    """How often which values came: quantiles, and [low, high, count]."""

    count: int
    min: int | None
    max: int | None
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    buckets: Rows


class Report(Totals, kw_only=True):
    """What a program said at the end: its totals of the whole run, and more.

    too_short: shorter than 50 ms, or what the socket buffers hold
    options: with which it ran; empty: it died before it could say so
    histograms: `send_time_ns`, `completion_time_ns`, `round_trip_ns`
    claim: what the strategy says of its copies
    """

    role: str
    impl: str | None
    pid: int
    options: dict[str, Option]
    claim: Claim | None
    threads: list[Thread]
    histograms: dict[str, Quantiles | None]
    limits: dict[str, int | bool | None]
    errors: list[str]
    t_ns: int | None = None
    sending_ns: int | None = None
    too_short: bool | None = None
    too_short_reason: str | None = None
    interrupted: bool | None = None
    tls: Encryption | None = None


class SenderReport(Report, kw_only=True):
    """What the sender said: as SenderTotals."""

    messages: int
    short_sends: int
    eagain: int
    gather_timed_messages: int
    gather_timed_ns: int
    gather_broken_messages: int
    send_syscalls: dict[str, int]
    zerocopy: ZerocopyTotals | None
    spliced: Spliced | None = None
    io_uring: Requests | None = None
    tls_records: int | None = None
    taken: Taken | None = None
    ring: Ring | None = None


class ReceiverReport(Report, kw_only=True):
    """What the receiver said: as ReceiverTotals."""

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | None = None
    mapped: Mapped | None = None
    spliced: Spliced | None = None
    io_uring: Multishot | None = None


class Traffic(Section):
    """What both programs said at the end."""

    sender: SenderReport
    receiver: ReceiverReport
