# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of `copyscope watch --serve`: a watched program's counts, added up over all its restarts."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from errno import errorcode
from typing import NamedTuple

from copyscope.ledger.sends import send_totals
from copyscope.ledger.share import SAMPLES_MIN
from copyscope.record.messages import TotalsMessage
from copyscope.record.run import Run
from copyscope.record.watched import BY_REFERENCE, WITHOUT_RECEIVE_CALL, added, volume
from copyscope.report.openmetrics import Family, Kind
from copyscope.taxonomy.accounts import ACCOUNTS, LATE

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
        "counter", "seconds", (), "CPU time of the program's processes, read from their CPU clocks."
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


Labels = tuple[str, ...]  # values of the labels of a sample
SeriesKey = tuple[str, Labels]  # (name of a family, values of its labels)

# Name of the total of copied sends. Only its parts by cause are served, as `zerocopy_copied_sends`.
COPIED = "copied"
# Value of the label `cause` for copied sends with an unknown cause.
NO_CAUSE = "unknown"
# Number of sampled seconds in the metric account_cpu_ratio: five minutes with the default interval.
SECONDS_KEPT = 20
# Label values of the account that copies bytes into the socket.
COPY_IN = ("copy_in",)
# Label values of the accounts whose bytes were sent by reference.
OF_REFERENCES = {(account,) for account in ("pin", *LATE)}


class DividedTotal:
    """A growing total, divided among accounts by the shares of the last sampled second.

    Growth before the first sampled second is divided when the first shares are known.

    sums: labels of an account -> part of the total that belongs to the account
    """

    def __init__(self) -> None:
        self.sums: dict[Labels, float] = defaultdict(float)
        self._divided = 0.0
        self._shares: dict[Labels, float] | None = None

    def set_shares(self, parts: Mapping[Labels, float], total: float) -> None:
        """Set the shares from one sampled second. A second with a total of 0 does not change the shares.

        parts: labels of an account -> part of the total in this second
        """
        if total > 0:
            self._shares = {labels: part / total for labels, part in parts.items()}

    def grow_to(self, total: float) -> None:
        """Divide the growth of the total since the last call. The part that belongs to no account is dropped.

        A total of copied bytes can fall for a while, because io_uring reports only at the end of a send
        whether it was sent by reference. Nothing is added until the total exceeds its highest value so far.
        """
        if self._shares is not None and total > self._divided:
            for labels, share in self._shares.items():
                self.sums[labels] += (total - self._divided) * share
            self._divided = total


class SampledSecond(NamedTuple):
    """CPU time used for the watched program in one sampled second.

    parts: (account, side) -> CPU time in ns
    """

    samples: int
    cpu_ns: float
    parts: Mapping[Labels, float]


class ServedCounts:
    """Counts of a watched program since the first session, over all restarts of the program.

    `read()` adds each reading of the hooks, and `sampled()` adds the record of each sampled second. Totals
    are counted continuously. Values known only from samples (accounts, causes) are estimated by dividing
    these totals.
    """

    def __init__(self) -> None:
        """Create empty counts, and six totals to divide among accounts, sides or causes."""
        self._earlier_sessions: dict[SeriesKey, float] = {}
        self._this_session: dict[SeriesKey, float] = {}
        # Bytes of copying calls, of sends by reference, of all sends and of all receive calls. Every call is
        # counted. The other two totals are CPU time and copied zero-copy sends.
        self._copied_in, self._referred = DividedTotal(), DividedTotal()
        self._sent, self._received = DividedTotal(), DividedTotal()
        self._cpu, self._copied = DividedTotal(), DividedTotal()
        self._recent: deque[SampledSecond] = deque(maxlen=SECONDS_KEPT)
        # Metrics of copyscope itself, such as its CPU time.
        self.own: dict[SeriesKey, float] = {}

    def begin_session(self) -> None:
        """Add the last session's counts to the earlier counts, because the collector restarts at zero."""
        for key, value in self._this_session.items():
            self._earlier_sessions[key] = self._earlier_sessions.get(key, 0.0) + value
        self._this_session = {("sessions", ()): 1.0}

    def read(self, reading: TotalsMessage) -> None:
        """Store a reading of the hooks, which contains this session's totals."""
        for key, value in counts_of(reading):
            self._put(key, value)
        self.own["program_processes", ()] = len(reading["processes"])

    def sampled(self, run: Run) -> None:
        """Add the record of a sampled second and of the time since the previous sampled second."""
        self._take_sent_shares(run)
        rows = volume(run.raw.volume, "receive", "ledger")
        received = [row for row in rows if row.syscall not in WITHOUT_RECEIVE_CALL]
        self._received.set_shares(_bytes_by_account(run, "receiver"), added(received, lambda row: row.bytes))
        self._take_cpu_shares(run)
        cause = run.derived.zerocopy.cause if run.derived.zerocopy else None
        if self._sum(COPIED):
            self._copied.set_shares({(cause.code if cause else NO_CAUSE,): 1.0}, 1.0)
        for name, loss in run.derived.loss.items():
            if loss.count:
                self._put(("lost", (name,)), loss.count)

    def _take_sent_shares(self, run: Run) -> None:
        """Set the shares of sent bytes by account. A late copy within the send call counts as copy_in."""
        sent, parts = send_totals(run.raw, "ledger"), _bytes_by_account(run, "sender")
        copied = sent.bytes - sent.referenced_bytes
        all_copied = parts.pop(COPY_IN, 0.0)
        late: dict[Labels, float] = {key: parts.pop(key) for key in OF_REFERENCES & parts.keys()}
        self._copied_in.set_shares({COPY_IN: min(all_copied, copied)}, copied)
        self._referred.set_shares({COPY_IN: max(0.0, all_copied - copied), **late}, sent.referenced_bytes)
        self._sent.set_shares(parts, sent.bytes)

    def _take_cpu_shares(self, run: Run) -> None:
        """Set the shares of CPU time by account and side, and remember this sampled second for the ratios."""
        target, other = run.derived.sides.target, run.derived.sides.other
        if target is None or not target.cpu_ns or not target.samples:
            self._recent.append(SampledSecond(0, 0.0, {}))
            return
        parts: dict[Labels, float] = defaultdict(float)
        for row in run.derived.ledger:
            if row.cpu_ns:
                parts[row.account, row.side] += row.cpu_ns
        self._cpu.set_shares(parts, target.cpu_ns)
        key: SeriesKey = ("samples", ())
        self._this_session[key] = self._this_session.get(key, 0.0) + target.samples
        self._recent.append(SampledSecond(target.samples, target.cpu_ns + (other.cpu_ns or 0.0), parts))

    def families(self) -> Iterator[Family]:
        """Yield all metrics, including those without a value yet."""
        referred = self._sum("zerocopy_sent_bytes")
        referred += sum(self._sum("socket_bytes", syscall) for syscall in BY_REFERENCE)
        self._referred.grow_to(referred)
        self._sent.grow_to(sent := self._sum("socket_bytes", "send"))
        self._copied_in.grow_to(sent - referred)
        self._received.grow_to(self._sum("socket_bytes", "receive"))
        self._cpu.grow_to(self._sum("program_cpu_seconds"))
        self._copied.grow_to(self._sum(COPIED))
        values: dict[str, dict[Labels, float]] = defaultdict(dict)
        for name, labels in self._earlier_sessions.keys() | self._this_session.keys():
            values[name][labels] = self._value((name, labels))
        for (name, labels), value in self.own.items():
            values[name][labels] = value
        for total in (self._copied_in, self._referred, self._sent, self._received):
            for account, value in total.sums.items():
                if value:
                    values["account_bytes"][account] = values["account_bytes"].get(account, 0.0) + value
        values["account_cpu_seconds"] = self._cpu.sums
        values["account_cpu_ratio"] = self._cpu_ratios()
        values["zerocopy_copied_sends"] = self._copied.sums
        for name, (kind, unit, label_names, help_text) in FAMILIES.items():
            samples = [
                (dict(zip(label_names, labels, strict=True)), value)
                for labels, value in sorted(values[name].items())
            ]
            yield Family(name, kind, unit, help_text, samples)

    def _cpu_ratios(self) -> dict[Labels, float]:
        """Return a mapping: (account, side) -> share of CPU time in the last sampled seconds.

        The mapping is empty if there are too few samples.
        """
        total_ns = sum(second.cpu_ns for second in self._recent)
        if sum(second.samples for second in self._recent) < SAMPLES_MIN or not total_ns:
            return {}
        ratios: dict[Labels, float] = defaultdict(float)
        for second in self._recent:
            for labels, ns in second.parts.items():
                ratios[labels] += ns / total_ns
        return ratios

    def _put(self, key: SeriesKey, value: float) -> None:
        """Store a count unless it is lower than before, because a sum over CPUs can appear to fall."""
        self._this_session[key] = max(value, self._this_session.get(key, 0.0))

    def _value(self, key: SeriesKey) -> float:
        """Return a count over all sessions."""
        return self._earlier_sessions.get(key, 0.0) + self._this_session.get(key, 0.0)

    def _sum(self, name: str, label: str | None = None) -> float:
        """Return the sum over a family's samples, or only over those that have this label value."""
        keys = {key for key in (*self._earlier_sessions, *self._this_session) if key[0] == name}
        return sum(self._value(key) for key in keys if label is None or label in key[1])


def _bytes_by_account(run: Run, side: str) -> dict[Labels, float]:
    """Return the bytes of each account for sending (`side` "sender") or receiving ("receiver")."""
    account_rows = [row for row in run.derived.ledger if row.bytes and ACCOUNTS[row.account].side == side]
    return {(row.account,): float(row.bytes or 0) for row in account_rows}


def counts_of(reading: TotalsMessage) -> Iterator[tuple[SeriesKey, float]]:
    """Yield the counts of one reading of the hooks.

    Counts of notifications are left out until the first one, because their hook may not be attached.
    """
    for row in reading["volume"]:
        if row["direction"] not in ("send", "receive") or row["syscall"] in WITHOUT_RECEIVE_CALL:
            continue
        labels = (row["protocol"], row["direction"], row["syscall"])
        yield ("socket_bytes", labels), row["bytes"]
        yield ("socket_calls", labels), row["calls"]
        if row["zerocopy_calls"]:
            call = (row["protocol"], row["syscall"])
            yield ("zerocopy_sends", call), row["zerocopy_calls"]
            yield ("zerocopy_sent_bytes", call), row["zerocopy_bytes"]
    for refused in reading["send_errors"]:
        yield ("refused_sends", (refused["syscall"], errorcode.get(refused["errno"], "?"))), refused["calls"]
    if "process_cpu_ns" in reading:
        yield ("program_cpu_seconds", ()), reading["process_cpu_ns"] / 1e9
    completions, unseen = (reading["totals"][name] for name in ("completions", "unseen"))
    if completions:
        yield ("zerocopy_completed_sends", ()), completions + unseen
        yield ("zerocopy_unseen_sends", ()), unseen
        yield (COPIED, ()), reading["totals"]["copied"]
    for buffers in reading.get("buffers", ()):
        for error in ("enobufs", "eagain"):
            yield ("zerocopy_refused_sends", (buffers["protocol"], error.upper())), buffers[error]
        if completions:
            yield ("zerocopy_waits", (buffers["protocol"],)), buffers["waits"]
            yield ("zerocopy_wait_seconds", (buffers["protocol"],)), buffers["waited_ns"] / 1e9
