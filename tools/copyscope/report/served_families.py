# SPDX-License-Identifier: GPL-2.0-only
"""Names, units, labels and help texts of the metrics of `copyscope watch --serve`. Pure."""

from typing import NamedTuple

from copyscope.report.openmetrics import Kind

# End of the help text of estimated metrics.
ESTIMATED = (
    "Estimated: one second of every 15 (--interval) is sampled, and its proportions hold for everything "
    "counted until the next sampled second."
)


class ServedFamily(NamedTuple):
    """Description of a served metric: kind, unit, label names, help text."""

    kind: Kind
    unit: str
    labels: tuple[str, ...]
    help_text: str


# Name of a served metric -> its description.
FAMILIES = {
    "watched": ServedFamily(
        "info",
        "",
        ("program", "how", "hostname", "kernel", "version"),
        "The watched program, the option that selected it, the host, and the version of copyscope.",
    ),
    "socket_bytes": ServedFamily(
        "counter",
        "bytes",
        ("protocol", "direction", "call"),
        "Bytes that calls of the program sent and received through sockets, counted at every call. Bytes "
        "that the program maps or splices out of a socket are not included.",
    ),
    "socket_calls": ServedFamily(
        "counter",
        "",
        ("protocol", "direction", "call"),
        "Calls of the program that sent or received bytes through sockets, counted at every call.",
    ),
    "refused_sends": ServedFamily(
        "counter", "", ("call", "error"), "Send calls that the socket refused, counted at every call."
    ),
    "zerocopy_sent_bytes": ServedFamily(
        "counter",
        "bytes",
        ("protocol", "call"),
        "Part of socket_bytes that was sent with MSG_ZEROCOPY or SEND_ZC, counted at every call.",
    ),
    "zerocopy_sends": ServedFamily(
        "counter",
        "",
        ("protocol", "call"),
        "Sends with MSG_ZEROCOPY or SEND_ZC, counted at every call.",
    ),
    "zerocopy_completed_sends": ServedFamily(
        "counter", "", (), "Zero-copy sends that the kernel has completed, counted at every notification."
    ),
    "zerocopy_unseen_sends": ServedFamily(
        "counter",
        "",
        (),
        "Completed zero-copy sends that may have been copied: the program read their notification before the "
        "hook could.",
    ),
    "zerocopy_copied_sends": ServedFamily(
        "counter",
        "",
        ("cause",),
        "Completed zero-copy sends that the kernel copied after all, counted at every notification. The "
        "cause was found in the last sampled second.",
    ),
    "zerocopy_refused_sends": ServedFamily(
        "counter",
        "",
        ("protocol", "error"),
        "Calls with MSG_ZEROCOPY that failed, counted at every call. ENOBUFS: no memory for a notification, "
        "or no locked memory left. EAGAIN: no room in the socket.",
    ),
    "zerocopy_waits": ServedFamily(
        "counter",
        "",
        ("protocol",),
        "Times that a thread slept after a zero-copy send until its notification came, and then sent again. "
        "Counted at every wait.",
    ),
    "zerocopy_wait_seconds": ServedFamily(
        "counter",
        "seconds",
        ("protocol",),
        "Time that threads slept until the notification of a zero-copy send came, summed over all threads.",
    ),
    "account_bytes": ServedFamily(
        "counter",
        "bytes",
        ("account",),
        "Bytes of each account of the ledger. copy_in and pin together are all bytes sent: copied into the "
        "kernel, or referred to. deferred and silent are bytes of pin that were copied later. copy_out is "
        "bytes copied to the program. " + ESTIMATED,
    ),
    "account_cpu_seconds": ServedFamily(
        "counter",
        "seconds",
        ("account", "side"),
        "CPU time of each account, spent by the program (side target) or by other processes for it (side "
        "other). " + ESTIMATED,
    ),
    "account_cpu_ratio": ServedFamily(
        "gauge",
        "ratio",
        ("account", "side"),
        "Share of each account in all CPU time for the program, over the last 20 sampled seconds. Absent "
        "with fewer than 30 samples.",
    ),
    "program_cpu_seconds": ServedFamily(
        "counter",
        "seconds",
        (),
        "CPU time of the program's processes, read from their CPU clocks. With --all, it is divided among "
        "programs as in the last sampled second.",
    ),
    "program_processes": ServedFamily(
        "gauge",
        "",
        (),
        "Processes of the program that run now. 0: copyscope waits for the next process of this name.",
    ),
    "samples": ServedFamily(
        "counter", "", (), "Samples of the program's CPU time on which the estimates are based."
    ),
    "lost": ServedFamily(
        "counter",
        "",
        ("instrument",),
        "Events that an instrument lost, so that the counts lack these events. Absent if nothing was lost.",
    ),
    "sessions": ServedFamily(
        "counter",
        "",
        (),
        "Number of times that copyscope started to watch the program. More than 1: copyscope started again.",
    ),
    "unwatched_seconds": ServedFamily(
        "counter", "seconds", (), "Time since the first session during which nothing was counted."
    ),
    "read_timestamp_seconds": ServedFamily(
        "gauge",
        "seconds",
        (),
        "Unix time at which the counts were last read. Counts are read every 5 seconds.",
    ),
    "watcher_cpu_seconds": ServedFamily(
        "counter",
        "seconds",
        (),
        "CPU time of copyscope's own processes. Time that its hooks take from the program is not included.",
    ),
    "watcher_resident_bytes": ServedFamily(
        "gauge", "bytes", (), "Resident memory of copyscope's own processes."
    ),
    "scrapes": ServedFamily(
        "counter",
        "",
        ("status",),
        "Answers by HTTP status, without those to /healthz. closed: connections cut off without an answer.",
    ),
}

# Names of metrics with the labels of a program, place and program, while all programs are watched.
BY_PROGRAM = frozenset(
    (
        *("socket_bytes", "socket_calls", "zerocopy_sends", "zerocopy_sent_bytes"),
        *("account_bytes", "account_cpu_seconds", "program_cpu_seconds"),
    )
)
PROGRAM_LABELS = ("place", "program")
