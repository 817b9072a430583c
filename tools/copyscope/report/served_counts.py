# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of `copyscope watch --serve`: a watched program's counts, added up over all its restarts."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from errno import errorcode
from typing import NamedTuple

from copyscope.ledger.sends import send_totals
from copyscope.ledger.share import SAMPLES_MIN
from copyscope.record.messages import ProgramMessage, TotalsMessage
from copyscope.record.run import Run
from copyscope.record.watched import BY_REFERENCE, WITHOUT_RECEIVE_CALL, added, volume
from copyscope.report.openmetrics import Family
from copyscope.report.served_families import BY_PROGRAM, FAMILIES, PROGRAM_LABELS
from copyscope.report.served_programs import OTHER, NamedPrograms, Program, ProgramWeights
from copyscope.taxonomy.accounts import ACCOUNTS, LATE

Labels = tuple[str, ...]  # values of the labels of a sample
SeriesKey = tuple[str, Labels]  # (name of a family, values of its labels)

# Accounts whose bytes the calls of each program show. The bytes of other accounts are those of the node.
ACCOUNTS_BY_PROGRAM = frozenset(("copy_in", "pin", "copy_out"))
# Weights of samples if one program is watched.
NO_WEIGHTS: ProgramWeights = {}
# Name of the total of the CPU time. Only its parts are served while all programs are watched.
CPU = "cpu"
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

    The total may have several parts, one for each program, which are divided in the same way. Growth before
    the first sampled second is divided when the first shares are known.

    sums: labels of an account and of the program -> part of the total that belongs to them
    """

    def __init__(self) -> None:
        self.sums: dict[Labels, float] = defaultdict(float)
        self._divided: dict[Labels, float] = defaultdict(float)
        self._shares: dict[Labels, float] | None = None

    def set_shares(self, parts: Mapping[Labels, float], total: float) -> None:
        """Set the shares from one sampled second. A second with a total of 0 does not change the shares.

        parts: labels of an account -> part of the total in this second
        """
        if total > 0:
            self._shares = {labels: part / total for labels, part in parts.items()}

    def grow_to(self, total: float, program: Labels = ()) -> None:
        """Divide the growth of the total since the last call. The part that belongs to no account is dropped.

        program: labels of the program that this part of the total belongs to; empty if there is only one part

        A total of copied bytes can fall for a while, because io_uring reports only at the end of a send
        whether it was sent by reference. Nothing is added until the total exceeds its highest value so far.
        """
        growth = total - self._divided[program]
        if self._shares is not None and growth > 0:
            for labels, share in self._shares.items():
                self.sums[labels + program] += growth * share
            self._divided[program] = total

    def forget(self, program: Labels) -> None:
        """Forget the part of a program, which starts at zero if it returns."""
        self._divided.pop(program, None)
        for labels in [labels for labels in self.sums if labels[-len(program) :] == program]:
            del self.sums[labels]


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

    def __init__(self, programs: NamedPrograms | None = None) -> None:
        """Create empty counts, and totals to divide among accounts, sides, causes or programs.

        programs: the programs to name if all programs are watched, else None
        """
        self._programs = programs
        self._earlier_sessions: dict[SeriesKey, float] = {}
        self._this_session: dict[SeriesKey, float] = {}
        # Bytes of copying calls, of sends by reference, of all sends and of all receive calls. Every call is
        # counted. The other two totals are CPU time and copied zero-copy sends.
        self._copied_in, self._referred = DividedTotal(), DividedTotal()
        self._sent, self._received = DividedTotal(), DividedTotal()
        self._cpu, self._copied = DividedTotal(), DividedTotal()
        self._cpu_of_programs = DividedTotal()
        self._recent: deque[SampledSecond] = deque(maxlen=SECONDS_KEPT)
        # Metrics of copyscope itself, such as its CPU time.
        self.own: dict[SeriesKey, float] = {}

    def begin_session(self) -> None:
        """Add the last session's counts to the earlier counts, because the collector restarts at zero."""
        for key, value in self._this_session.items():
            self._earlier_sessions[key] = self._earlier_sessions.get(key, 0.0) + value
        self._this_session = {("sessions", ()): 1.0}
        if self._programs is not None:
            self._programs.begin_session()

    def read(self, reading: TotalsMessage) -> None:
        """Store a reading of the hooks, which contains this session's totals."""
        for key, value in counts_of(reading):
            if self._programs is None or key[0] not in BY_PROGRAM:
                self._put(key, value)
        self.own["program_processes", ()] = len(reading["processes"])

    def read_programs(self, rows: Iterable[ProgramMessage]) -> None:
        """Add a reading of what each program has sent and received while all programs are watched."""
        assert self._programs is not None
        for program, row in self._programs.read(rows):
            protocol, direction, call = row[2:5]
            kind, zerocopy = (protocol, direction, call, *program), (protocol, call, *program)
            self._add(("socket_calls", kind), row.calls)
            self._add(("socket_bytes", kind), row.bytes)
            self._add(("zerocopy_sends", zerocopy), row.zerocopy_calls)
            self._add(("zerocopy_sent_bytes", zerocopy), row.zerocopy_bytes)

    def _forget(self, program: Program) -> None:
        """Forget the counts of a program that metrics no longer name."""
        for counts in (self._earlier_sessions, self._this_session):
            for key in [key for key in counts if key[0] in BY_PROGRAM and key[1][-len(program) :] == program]:
                del counts[key]
        for total in (self._copied_in, self._referred, self._sent, self._received):
            total.forget(program)
        self._cpu.forget(program)
        self._cpu_of_programs.forget(program)

    def sampled(self, run: Run, weights: ProgramWeights = NO_WEIGHTS) -> None:
        """Add the record of a sampled second and of the time since the previous sampled second.

        weights: weights of the second's samples by program, if all programs are watched
        """
        self._take_sent_shares(run)
        rows = volume(run.raw.volume, "receive", "ledger")
        received = [row for row in rows if row.syscall not in WITHOUT_RECEIVE_CALL]
        self._received.set_shares(_bytes_by_account(run, "receiver"), added(received, lambda row: row.bytes))
        self._take_cpu_shares(run, weights)
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

    def _take_cpu_shares(self, run: Run, weights: ProgramWeights) -> None:
        """Set the shares of CPU time by account and side, and remember this sampled second for the ratios."""
        target, other = run.derived.sides.target, run.derived.sides.other
        if target is None or not target.cpu_ns or not target.samples:
            self._recent.append(SampledSecond(0, 0.0, {}))
            return
        parts: dict[Labels, float] = defaultdict(float)
        for row in run.derived.ledger:
            if row.cpu_ns:
                parts[row.account, row.side] += row.cpu_ns
        if self._programs is None:
            self._cpu.set_shares(parts, target.cpu_ns)
        else:
            self._take_program_shares(self._programs, parts, target.cpu_ns, weights)
        key: SeriesKey = ("samples", ())
        self._this_session[key] = self._this_session.get(key, 0.0) + target.samples
        self._recent.append(SampledSecond(target.samples, target.cpu_ns + (other.cpu_ns or 0.0), parts))

    def _take_program_shares(
        self,
        programs: NamedPrograms,
        parts: Mapping[Labels, float],
        cpu_ns: float,
        weights: ProgramWeights,
    ) -> None:
        """Choose the programs to name, and set the shares of CPU time by account, side and program.

        parts: CPU time by account and side
        cpu_ns: CPU time of all programs
        """
        sums = added_weights(weights.values())
        scale = cpu_ns / (sum(sums.values()) or 1.0)
        cpu_of_programs = {program: weight * scale for program, weight in sums.items()}
        for program in programs.rank(cpu_of_programs):
            self._forget(program)
        shares: dict[Labels, float] = defaultdict(float)
        for (account, side), part_ns in parts.items():
            # Work of other tasks for the programs, such as softirqs of idle CPUs, is of no known program.
            divisors = weights.get(account, {}) if side == "target" else {}
            for program, weight in (divisors or {OTHER: 1.0}).items():
                label = (account, side, *programs.label(program))
                shares[label] += part_ns * weight / (sum(divisors.values()) or 1.0)
        self._cpu.set_shares(shares, cpu_ns)
        named_cpu_ns: dict[Labels, float] = defaultdict(float)
        for program, program_ns in cpu_of_programs.items():
            named_cpu_ns[programs.label(program)] += program_ns
        self._cpu_of_programs.set_shares(named_cpu_ns, cpu_ns)

    def _divide_bytes(self) -> dict[Labels, float]:
        """Divide the growth of the bytes, and return the bytes of each account, for each program."""
        sent, referred = self._sums("socket_bytes", "send"), self._sums("zerocopy_sent_bytes")
        for call in BY_REFERENCE:
            for program, value in self._sums("socket_bytes", call).items():
                referred[program] += value
        for program, value in sent.items():
            self._referred.grow_to(referred[program], program)
            self._sent.grow_to(value, program)
            self._copied_in.grow_to(value - referred[program], program)
        for program, value in self._sums("socket_bytes", "receive").items():
            self._received.grow_to(value, program)
        accounts: dict[Labels, float] = defaultdict(float)
        for total in (self._copied_in, self._referred, self._sent, self._received):
            for labels, value in total.sums.items():
                account, *program_labels = labels
                if account not in ACCOUNTS_BY_PROGRAM:
                    program_labels = [""] * len(program_labels)
                accounts[account, *program_labels] += value
        return accounts

    def families(self) -> Iterator[Family]:
        """Yield all metrics, also those without a value. Counters with labels have no zeros."""
        self._cpu.grow_to(cpu := self._sum(CPU))
        self._cpu_of_programs.grow_to(cpu)
        self._copied.grow_to(self._sum(COPIED))
        values: dict[str, dict[Labels, float]] = defaultdict(dict)
        for name, labels in self._earlier_sessions.keys() | self._this_session.keys():
            values[name][labels] = self._value((name, labels))
        for (name, labels), value in self.own.items():
            values[name][labels] = value
        values["account_bytes"] = self._divide_bytes()
        values["account_cpu_seconds"] = self._cpu.sums
        values["program_cpu_seconds"] = values[CPU] if self._programs is None else self._cpu_of_programs.sums
        values["account_cpu_ratio"] = self._cpu_ratios()
        values["zerocopy_copied_sends"] = self._copied.sums
        for name, (kind, unit, own_labels, help_text) in FAMILIES.items():
            by_program = self._programs is not None and name in BY_PROGRAM
            label_names = own_labels + PROGRAM_LABELS * by_program
            samples = [
                ({key: text for key, text in zip(label_names, labels, strict=True) if text}, value)
                for labels, value in sorted(values[name].items())
                if value or kind != "counter" or not label_names
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

    def _add(self, key: SeriesKey, growth: float) -> None:
        """Add the growth of a count."""
        self._this_session[key] = self._this_session.get(key, 0.0) + growth

    def _value(self, key: SeriesKey) -> float:
        """Return a count over all sessions."""
        return self._earlier_sessions.get(key, 0.0) + self._this_session.get(key, 0.0)

    def _sum(self, name: str) -> float:
        """Return the sum over a family's samples."""
        return sum(
            self._value(key) for key in self._earlier_sessions.keys() | self._this_session if key[0] == name
        )

    def _sums(self, name: str, label: str | None = None) -> dict[Labels, float]:
        """Map the labels of each program to the sum over its samples of a family.

        label: count only samples that have this value of a label
        """
        sums: dict[Labels, float] = defaultdict(float)
        own_labels = len(FAMILIES[name].labels)
        for key in self._earlier_sessions.keys() | self._this_session.keys():
            if key[0] == name and (label is None or label in key[1][:own_labels]):
                sums[key[1][own_labels:]] += self._value(key)
        return sums


def added_weights(weights: Iterable[Mapping[Program, float]]) -> dict[Program, float]:
    """Return the sums over all accounts and stages of the weights of each program."""
    sums: dict[Program, float] = defaultdict(float)
    for by_program in weights:
        for program, weight in by_program.items():
            sums[program] += weight
    return sums


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
        yield (CPU, ()), reading["process_cpu_ns"] / 1e9
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
