"""The metrics of `watch --serve`: name, type, unit, labels, and in plain words what is counted, and how."""

from typing import Literal, NamedTuple

ESTIMATED = (
    "Estimated: a second of every 15 (--interval) is sampled, and all until the next one is divided "
    "as it was."
)


class Described(NamedTuple):
    """A family without its samples."""

    kind: Literal["counter", "info", "gauge"]
    unit: str
    labels: tuple[str, ...]
    what: str


FAMILIES = {
    "watched": Described(
        "info", "", ("program", "how", "hostname", "kernel", "version"), "Who is watched, and by what."
    ),
    "socket_bytes": Described(
        "counter",
        "bytes",
        ("protocol", "direction", "call"),
        "Bytes that its calls sent and received through sockets. Counted at every call; not what it maps or "
        "splices out of a socket.",
    ),
    "socket_calls": Described(
        "counter", "", ("protocol", "direction", "call"), "Calls that did so. Counted at every call."
    ),
    "refused_sends": Described(
        "counter", "", ("call", "error"), "Send calls that the socket refused. Counted at every call."
    ),
    "zerocopy_sent_bytes": Described(
        "counter",
        "bytes",
        ("protocol", "call"),
        "Of socket_bytes, sent with MSG_ZEROCOPY or SEND_ZC. Counted at every call.",
    ),
    "zerocopy_sends": Described(
        "counter", "", ("protocol", "call"), "Sends with MSG_ZEROCOPY or SEND_ZC. Counted at every call."
    ),
    "zerocopy_completed_sends": Described(
        "counter", "", (), "Zero-copy sends that the kernel has given back. Counted at every notice."
    ),
    "zerocopy_unseen_sends": Described(
        "counter",
        "",
        (),
        "Of these, nobody knows whether they were copied: the program had read the notice before the hook.",
    ),
    "zerocopy_copied_sends": Described(
        "counter",
        "",
        ("cause",),
        "Of those that were seen, copied after all. Counted at every notice; the cause is that of the last "
        "sampled second.",
    ),
    "zerocopy_refused_sends": Described(
        "counter",
        "",
        ("protocol", "error"),
        "Calls with MSG_ZEROCOPY that failed: ENOBUFS, no room for a notice or no locked memory left; "
        "EAGAIN, no room in the socket. Counted at every call.",
    ),
    "zerocopy_waits": Described(
        "counter",
        "",
        ("protocol",),
        "Times that a thread slept after a zero-copy send until its notice came, and sent on. Counted at "
        "every wait.",
    ),
    "zerocopy_wait_seconds": Described(
        "counter", "seconds", ("protocol",), "How long these waits took, all threads together."
    ),
    "account_bytes": Described(
        "counter",
        "bytes",
        ("account",),
        "Bytes by account of the ledger. copy_in and pin are all that was sent, copied into the kernel or "
        "referred to; deferred and silent are bytes of pin that were copied later; copy_out was copied to "
        "the program. " + ESTIMATED,
    ),
    "account_cpu_seconds": Described(
        "counter",
        "seconds",
        ("account", "side"),
        "CPU time of each account: on the program's own time (side target), or on that of others. "
        + ESTIMATED,
    ),
    "account_cpu_ratio": Described(
        "gauge",
        "ratio",
        ("account", "side"),
        "Share of each account of all CPU time for the program, in the last 20 sampled seconds; none with "
        "fewer than 30 samples.",
    ),
    "program_cpu_seconds": Described("counter", "seconds", (), "CPU time of its processes, by their clocks."),
    "program_processes": Described(
        "gauge", "", (), "Its processes now; 0: the next of its name is waited for."
    ),
    "samples": Described("counter", "", (), "Samples of its CPU time that the estimates are made of."),
    "lost": Described(
        "counter", "", ("instrument",), "What an instrument of the watcher lost: the counts lack it."
    ),
    "sessions": Described("counter", "", (), "Times that the watch began; more than 1: it began anew."),
    "unwatched_seconds": Described(
        "counter", "seconds", (), "Time since the first session in which nothing was counted."
    ),
    "read_timestamp_seconds": Described(
        "gauge", "seconds", (), "When the counts were read, in Unix time: every 5 seconds."
    ),
    "watcher_cpu_seconds": Described(
        "counter",
        "seconds",
        (),
        "CPU time of the watcher's processes. Not what its hooks take of the program's own time.",
    ),
    "watcher_resident_bytes": Described("gauge", "bytes", (), "Memory of the watcher's processes."),
    "scrapes": Described(
        "counter", "", ("status",), "Answers to readers by HTTP status; closed: cut off without one."
    ),
}
