# SPDX-License-Identifier: GPL-2.0-only
"""Structs of the totals of each process in a segment, and of the final reports of our own traffic. Pure."""

from copyscope.record.sections import Buckets, Section

Option = str | bool | int | float | list[int | str] | None


class Totals(Section):
    """Totals of one process, in a segment or in the whole run.

    bytes: payload that the socket accepted or returned
    calls: system calls that send or receive
    process_cpu_ns: CPU time of all threads
    """

    bytes: int
    calls: int
    process_cpu_ns: int
    user_ns: int
    system_ns: int
    voluntary_switches: int
    involuntary_switches: int


class ZerocopyTotals(Section):
    """Zero-copy sends, and the notifications that the sender has read.

    sends: successful sends with MSG_ZEROCOPY, or SEND_ZC requests
    completions: sends that the kernel reported as complete
    copied: completions marked as copied (SO_EE_CODE_ZEROCOPY_COPIED)
    enobufs: sends refused because of the optmem or memlock limit
    notifications: notifications, which may cover several sends
    in_flight: sends that were not complete at the end
    waits: number of waits for a notification before the next send
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
    """Data that passed a socket as pages of a file, a pipe or memory, without a copy."""

    calls: int
    bytes: int


class RelayInput(Section):
    """Data that a relay received; `spliced_bytes`: part received without a copy."""

    calls: int
    bytes: int
    spliced_bytes: int


class Requests(Section):
    """Completed send requests of io_uring, and CPU time of its worker threads."""

    requests: int
    worker_cpu_ns: int


class SenderTotals(Totals, tag_field="role", tag="sender"):
    """Totals of the sender.

    short_sends: sends of which the socket accepted only a part
    eagain: sends refused because the socket buffer was full
    gather_timed_ns: time that the timed messages took to copy their fields into one buffer
    gather_broken_messages: timed messages that are left out, because the thread lost its CPU meanwhile
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
    taken: RelayInput | None = None


class Verified(Section):
    """Comparison of every received byte with the sent byte."""

    checked_bytes: int
    wrong_bytes: int
    first_wrong_offset: int | None


class Mapped(Section):
    """Data received by TCP_ZEROCOPY_RECEIVE: mapped `bytes`, and `copied_bytes` of incomplete pages."""

    calls: int
    bytes: int
    pages: int
    copied_bytes: int


class Multishot(Section):
    """Multishot receive requests of io_uring, and calls of io_uring_enter(2)."""

    requests: int
    enters: int


class ReceiverTotals(Totals, tag_field="role", tag="receiver"):
    """Totals of the receiver.

    truncated_bytes: bytes discarded without a copy (MSG_TRUNC)
    replies: answers sent in `rr` mode
    """

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | None = None
    mapped: Mapped | None = None
    spliced: Spliced | None = None
    io_uring: Multishot | None = None


class TargetTotals(Section, tag_field="role", tag="target"):
    """Totals of a watched process and its children.

    bytes_sent: bytes of send calls on TCP, MPTCP, UDP and UNIX sockets
    bytes_received: bytes of receive calls; if `counts_taken`, also bytes that were spliced or mapped
    counts_taken: true if splice(2) and TCP_ZEROCOPY_RECEIVE were counted in the whole segment
    edge_sent_bytes, edge_received_bytes: bytes that moved during `edge_ns`; checks tolerate this difference
    edge_ns: time that attaching and detaching of the hooks took
    open_zerocopy_sends: zero-copy sends that were not complete at the start, plus those at the end
    completions: zero-copy sends whose notification the hooks saw
    unseen: completions that the process read before the hooks saw them
    untold: io_uring sends without IORING_SEND_ZC_REPORT_USAGE: unknown whether copied
    unregistered: zero-copy sends of io_uring from memory that is not registered
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


class MessageRing(Section):
    """Memory with the messages, which are sent in rotation; `huge_bytes`: part on huge pages."""

    bytes: int
    huge_bytes: int | None


class Encryption(Section):
    """TLS in the kernel; connections that the CPU and the network card encrypt."""

    version: str
    cipher: str
    record_overhead_bytes: int
    software_connections: int | None
    device_connections: int | None


class Claim(Section):
    """Copies that the strategy makes by design, in the program and in the kernel."""

    user_copies: int
    kernel_copies: int
    what: str | None = None


class Thread(Section):
    """Totals of one thread; `tcp_info`: TCP_INFO of its connection at the end."""

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
    """Quantiles and histogram: `[low, high, count]` of each bucket that is not empty."""

    count: int
    min: int | None
    max: int | None
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    buckets: Buckets


class Report(Totals, kw_only=True):
    """Final report of a traffic program.

    options: options of the program; empty if it died before its report
    histograms: `send_time_ns`, `completion_time_ns` and `round_trip_ns`
    sending_ns: elapsed time during which the program sent or received
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
    """Final report of the sender."""

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
    taken: RelayInput | None = None
    ring: MessageRing | None = None


class ReceiverReport(Report, kw_only=True):
    """Final report of the receiver."""

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | None = None
    mapped: Mapped | None = None
    spliced: Spliced | None = None
    io_uring: Multishot | None = None


class Traffic(Section):
    """Final reports of sender and receiver."""

    sender: SenderReport
    receiver: ReceiverReport
