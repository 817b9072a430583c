"""What a watched program has done since it was first watched, over all its restarts. Pure.

The collector counts from the beginning of a session: what earlier ones had counted stays in the sum. What
only samples tell is divided: a total that is counted all the time, by what the last sampled second says.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from errno import errorcode

from copyscope.exports.openmetrics import Family
from copyscope.ledger.rows import HOME
from copyscope.ledger.sends import sends_of
from copyscope.ledger.share import FEWEST_SAMPLES
from copyscope.record.check import Whole
from copyscope.record.moved import Row
from copyscope.record.watched import BY_REFERENCE, TAKEN, added, volume
from copyscope.serving.families import FAMILIES

Labels = tuple[str, ...]
Key = tuple[str, Labels]
# Not served as it is: divided by its causes.
COPIED = "copied"
NO_CAUSE = "unknown"
# The share of an account is that of so many sampled seconds: of five minutes, as a rule.
SECONDS_KEPT = 20
COPY_IN = ("copy_in",)
# Accounts of bytes that were sent by reference.
OF_REFERENCES = {("pin",), ("deferred",), ("silent",)}


class Divided:
    """A total that grows, divided among accounts as the last sampled second says; what comes before the first
    one that says anything waits for it."""

    def __init__(self) -> None:
        self.sums: dict[Labels, float] = defaultdict(float)
        self._told = 0.0
        self._shares: dict[Labels, float] | None = None

    def learn(self, parts: Mapping[Labels, float], whole: float) -> None:
        """A second in which nothing happened says nothing."""
        if whole > 0:
            self._shares = {labels: part / whole for labels, part in parts.items()}

    def add(self, now: float) -> None:
        """Divide what has come since; where no account has a share, it is of none.

        io_uring says when a send ends that it went by reference: what is copied may fall, and then waits.
        """
        if self._shares is not None and now > self._told:
            for labels, share in self._shares.items():
                self.sums[labels] += (now - self._told) * share
            self._told = now


class Counts:
    """read() takes each reading of the hooks, sampled() the record of each sampled second."""

    def __init__(self) -> None:
        self._before: dict[Key, float] = {}
        self._now: dict[Key, float] = {}
        # How much is sent by calls that copy, and by reference, is known at every call.
        self._copied_in, self._referred = Divided(), Divided()
        self._sent, self._received = Divided(), Divided()
        self._cpu, self._copied = Divided(), Divided()
        self._recent: deque[tuple[int, float, Mapping[Labels, float]]] = deque(maxlen=SECONDS_KEPT)
        # What the watcher says of itself: each as it is now.
        self.own: dict[Key, float] = {}

    def begin_session(self) -> None:
        """The collector counts from nothing again."""
        for key, value in self._now.items():
            self._before[key] = self._before.get(key, 0.0) + value
        self._now = {("sessions", ()): 1.0}

    def read(self, reading: Row) -> None:
        """All that the hooks have counted in this session."""
        for key, value in counted(reading):
            self._put(key, value)
        self.own["program_processes", ()] = len(reading["processes"])

    def sampled(self, run: Whole) -> None:
        """The record of one sampled second, and of all since the one before it."""
        self._add_sent(run)
        received = [row for row in volume(run.raw.volume, "receive", "ledger") if row.syscall not in TAKEN]
        self._received.learn(_parts(run, "receiver"), added(received, "bytes"))
        self._add_times(run)
        cause = run.derived.zerocopy.cause if run.derived.zerocopy else None
        if self._sum(COPIED):
            self._copied.learn({(cause.code if cause else NO_CAUSE,): 1.0}, 1.0)
        for name, loss in run.derived.loss.items():
            if loss.count is not None:
                self._put(("lost", (name,)), loss.count)

    def _add_sent(self, run: Whole) -> None:
        """Where late copies are made in the call, bytes that went by reference stand as copied in."""
        sent, parts = sends_of(run.raw, "ledger"), _parts(run, "sender")
        copied = sent.bytes - sent.referenced_bytes
        all_copied = parts.pop(COPY_IN, 0.0)
        late: dict[Labels, float] = {key: parts.pop(key) for key in OF_REFERENCES & parts.keys()}
        self._copied_in.learn({COPY_IN: min(all_copied, copied)}, copied)
        self._referred.learn({COPY_IN: max(0.0, all_copied - copied), **late}, sent.referenced_bytes)
        self._sent.learn(parts, sent.bytes)

    def _add_times(self, run: Whole) -> None:
        target, other = run.derived.sides.target, run.derived.sides.other
        if target is None or not target.cpu_ns or not target.samples:
            self._recent.append((0, 0.0, {}))
            return
        parts: dict[Labels, float] = defaultdict(float)
        for row in run.derived.ledger:
            if row.cpu_ns:
                parts[row.account, row.side] += row.cpu_ns
        self._cpu.learn(parts, target.cpu_ns)
        self._now["samples", ()] = self._now.get(("samples", ()), 0.0) + target.samples
        self._recent.append((target.samples, target.cpu_ns + (other.cpu_ns or 0.0), parts))

    def families(self) -> Iterator[Family]:
        """All, also those of which nothing is known yet."""
        referred = self._sum("zerocopy_sent_bytes")
        referred += sum(self._sum("socket_bytes", syscall) for syscall in BY_REFERENCE)
        self._referred.add(referred)
        self._sent.add(sent := self._sum("socket_bytes", "send"))
        self._copied_in.add(sent - referred)
        self._received.add(self._sum("socket_bytes", "receive"))
        self._cpu.add(self._sum("program_cpu_seconds"))
        self._copied.add(self._sum(COPIED))
        values: dict[str, dict[Labels, float]] = defaultdict(dict)
        for name, labels in self._before.keys() | self._now.keys():
            values[name][labels] = self._value((name, labels))
        for (name, labels), value in self.own.items():
            values[name][labels] = value
        for one in (self._copied_in, self._referred, self._sent, self._received):
            for account, value in one.sums.items():
                if value:
                    values["account_bytes"][account] = values["account_bytes"].get(account, 0.0) + value
        values["account_cpu_seconds"] = self._cpu.sums
        values["account_cpu_ratio"] = self._ratios()
        values["zerocopy_copied_sends"] = self._copied.sums
        for name, (kind, unit, names, what) in FAMILIES.items():
            rows = sorted(values[name].items())
            samples = [(dict(zip(names, labels, strict=True)), value) for labels, value in rows]
            yield Family(name, kind, unit, what, samples)

    def _ratios(self) -> dict[Labels, float]:
        whole = sum(ns for _, ns, _ in self._recent)
        if sum(samples for samples, _, _ in self._recent) < FEWEST_SAMPLES or not whole:
            return {}
        sums: dict[Labels, float] = defaultdict(float)
        for _, _, parts in self._recent:
            for labels, ns in parts.items():
                sums[labels] += ns / whole
        return sums

    def _put(self, key: Key, value: float) -> None:
        """Counts of several CPUs are read one after the other; the sum never falls."""
        self._now[key] = max(value, self._now.get(key, 0.0))

    def _value(self, key: Key) -> float:
        return self._before.get(key, 0.0) + self._now.get(key, 0.0)

    def _sum(self, name: str, label: str | None = None) -> float:
        """Over all samples of a family, or those with this label."""
        keys = {key for key in (*self._before, *self._now) if key[0] == name}
        return sum(self._value(key) for key in keys if label is None or label in key[1])


def _parts(run: Whole, side: str) -> dict[Labels, float]:
    """Bytes by account. Accounts of what is sent are at home with a sender, in traffic that has two sides."""
    rows = [row for row in run.derived.ledger if row.bytes and HOME[row.account][0] == side]
    return {(row.account,): float(row.bytes or 0) for row in rows}


def counted(reading: Row) -> Iterator[tuple[Key, float]]:
    """What one reading says; of notices nothing where none was seen: there may be no hook on them."""
    for row in reading["volume"]:
        if row["direction"] not in ("send", "receive") or row["syscall"] in TAKEN:
            continue
        labels = (row["protocol"], row["direction"], row["syscall"])
        yield ("socket_bytes", labels), row["bytes"]
        yield ("socket_calls", labels), row["calls"]
        if row["zerocopy_calls"]:
            call = (row["protocol"], row["syscall"])
            yield ("zerocopy_sends", call), row["zerocopy_calls"]
            yield ("zerocopy_sent_bytes", call), row["zerocopy_bytes"]
    for row in reading["send_errors"]:
        yield ("refused_sends", (row["syscall"], errorcode.get(row["errno"], "?"))), row["calls"]
    if "process_cpu_ns" in reading:
        yield ("program_cpu_seconds", ()), reading["process_cpu_ns"] / 1e9
    completions, unseen = (reading["totals"][name] for name in ("completions", "unseen"))
    if completions:
        yield ("zerocopy_completed_sends", ()), completions + unseen
        yield ("zerocopy_unseen_sends", ()), unseen
        yield (COPIED, ()), reading["totals"]["copied"]
    for row in reading.get("buffers", ()):
        for error in ("enobufs", "eagain"):
            yield ("zerocopy_refused_sends", (row["protocol"], error.upper())), row[error]
        if completions:
            yield ("zerocopy_waits", (row["protocol"],)), row["waits"]
            yield ("zerocopy_wait_seconds", (row["protocol"],)), row["waited_ns"] / 1e9
