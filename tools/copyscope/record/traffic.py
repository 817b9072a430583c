"""What the two traffic programs say: totals of each segment, and a report at the end. Pure."""

from typing import Any

from msgspec import UNSET, UnsetType

from copyscope.record.sections import Rows, Section


class Totals(Section):
    """Running totals of one side, or their differences over a segment.

    bytes: payload accepted by, or received from, the socket
    calls: send or receive calls that moved payload
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

    sends: successful sends with MSG_ZEROCOPY; requests of SEND_ZC that took something
    completions: sends that were reported complete
    copied: of these, with SO_EE_CODE_ZEROCOPY_COPIED
    bytes_copied: payload of these
    enobufs: sends refused with ENOBUFS (io_uring: ENOMEM): optmem or memlock limit
    notifications: messages on the error queue, each of which covers a range of sends; of io_uring one
        for each send
    in_flight: sends not complete at the mark; 0 when drained
    max_in_flight: the most that were ever not complete
    errqueue_reads: recvmsg(MSG_ERRQUEUE) calls
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


class Spliced(Section):
    """What went into the socket as pages, of a file or of memory; of a receiver, out of it, into a pipe.

    calls: calls of sendfile(2), or of splice(2) into the socket
    """

    calls: int
    bytes: int


class Requests(Section):
    """What was sent by requests to an io_uring.

    requests: requests to send that have ended
    worker_cpu_ns: part of `process_cpu_ns`: CPU time of io_uring's own threads (workers, the one that
        polls)
    """

    requests: int
    worker_cpu_ns: int


class SenderTotals(Totals):
    """The sender's totals.

    messages: whole messages
    short_sends: calls that took less than was offered
    eagain: calls that were refused because the buffer was full
    gather_timed_messages: messages whose gather copy was timed
    gather_timed_ns: time of these gather copies
    gather_broken_messages: messages whose gather copy was timed in vain: the thread lost its CPU
        meanwhile; not among the timed ones
    zerocopy: what the error queue said, or the notifications of io_uring
    spliced: what went into the socket as pages, of a file or of the program's memory (vmsplice); no
        completion tells of it
    io_uring: what was sent by requests to an io_uring; their number is in `calls`, that of
        io_uring_enter(2) in `send_syscalls`
    tls_records: TLS records that the messages fill
    """

    messages: int
    short_sends: int
    eagain: int
    gather_timed_messages: int
    gather_timed_ns: int
    gather_broken_messages: int
    send_syscalls: dict[str, int]
    zerocopy: ZerocopyTotals | None
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Requests | UnsetType | None = UNSET
    tls_records: int | UnsetType | None = UNSET


class Verified(Section):
    """What the receiver found when it compared every byte.

    wrong_bytes: bytes that differed; one of them makes the run invalid
    first_wrong_offset: place of the first in its stream; null: nothing was wrong
    """

    checked_bytes: int
    wrong_bytes: int
    first_wrong_offset: int | None


class Mapped(Section):
    """What TCP_ZEROCOPY_RECEIVE took off the socket: pages, and bytes that it copied beside them.

    calls: calls that took something; they are in `calls`, too
    bytes: mapped into the receiver's memory, in whole pages
    copied_bytes: copied by these calls, because they were no whole pages
    """

    calls: int
    bytes: int
    pages: int
    copied_bytes: int


class Multishot(Section):
    """Requests to an io_uring that receive again and again.

    requests: requests: a new one when all buffers were full
    enters: io_uring_enter(2) calls
    """

    requests: int
    enters: int


class ReceiverTotals(Totals):
    """The receiver's totals.

    truncated_bytes: taken off the socket with MSG_TRUNC, not copied
    replies: answers sent back in `rr` mode
    mapped: what TCP_ZEROCOPY_RECEIVE took off the socket; what came by receive calls beside it is not
        in here
    spliced: what splice(2) moved from the socket into a pipe
    io_uring: how io_uring was asked; each arrival is one of `calls`
    """

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | UnsetType = UNSET
    mapped: Mapped | UnsetType | None = UNSET
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Multishot | UnsetType | None = UNSET


class Ring(Section):
    """Memory of the messages that are sent in turn.

    bytes: memory of the messages that are sent in turn
    huge_bytes: of it, on huge pages in the end
    """

    bytes: int
    huge_bytes: int | None


class Encryption(Section):
    """What kTLS did on one side: where its connections were set up, null where the kernel does not say.

    version: `1.2` or `1.3`
    cipher: `AES-GCM-128`
    record_overhead_bytes: what a record has besides plaintext: 29 of 1.2 (header, nonce, tag), 22 of
        1.3 (header, type, tag)
    software_connections: how many were set up in the kernel itself, and on a network card, since the
        program began; null: /proc/net/tls_stat does not say
    """

    version: str
    cipher: str
    record_overhead_bytes: int
    software_connections: int | None
    device_connections: int | None


class Report(Totals, kw_only=True):
    """What a program said at the end: its totals of the whole run, and more.

    claim: how many copies the strategy says it makes; null: the program states none
    errors: what went wrong; anything here makes the run invalid
    t_ns: when it was made
    clock_cost_ns: reading the clock twice: inside every timed number
    sending_ns: time with traffic, without pauses
    too_short: shorter than 50 ms, or a count of messages that the socket buffers hold
    tls: what kTLS did on this side
    """

    role: str
    impl: str | None
    pid: int
    options: dict[str, Any]
    claim: dict[str, Any] | None
    threads: list[dict[str, Any]]
    histograms: dict[str, Any]
    slices: Rows
    limits: dict[str, Any]
    errors: list[str]
    t_ns: int | UnsetType = UNSET
    clock_cost_ns: int | UnsetType = UNSET
    sending_ns: int | UnsetType = UNSET
    too_short: bool | UnsetType = UNSET
    too_short_reason: str | UnsetType | None = UNSET
    interrupted: bool | UnsetType = UNSET
    tls: Encryption | UnsetType | None = UNSET


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
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Requests | UnsetType | None = UNSET
    tls_records: int | UnsetType | None = UNSET
    ring: Ring | UnsetType = UNSET


class ReceiverReport(Report, kw_only=True):
    """What the receiver said: as ReceiverTotals."""

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | UnsetType = UNSET
    mapped: Mapped | UnsetType | None = UNSET
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Multishot | UnsetType | None = UNSET


class Traffic(Section):
    """What both programs said at the end."""

    sender: SenderReport
    receiver: ReceiverReport
