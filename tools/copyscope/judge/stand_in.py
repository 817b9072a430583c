# SPDX-License-Identifier: GPL-2.0-only
"""Stand-ins: copyscope's own traffic that imitates a program before and after a remedy. Pure.

A stand-in has the program's mean message size, its number of sends per answer, its number of threads and its
kind of path. It only sends and receives, so its saving is that of the program's sends alone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import log10

from msgspec import json

from copyscope.base.spelling import counted, format_size
from copyscope.base.stats import Missing
from copyscope.judge.bounds import BATCH, LARGE_BYTES
from copyscope.judge.estimates import group_points, ratio
from copyscope.judge.evidence import Evidence, relay_of
from copyscope.judge.roles import sends_per_answer
from copyscope.record.portrait import Direction, Saving, StandIn
from copyscope.record.run import Run

# Size in bytes of messages and socket buffers for a receiver with small calls.
SOCKET_BYTES = 16_384
# Short runs of each side, as for crossovers.
REPEATS, DURATION_S, WARMUP_S, FREQUENCY_HZ, SEED = 7, 0.5, 0.2, 499, 4
THREADS_MAX = 16
# Maximum length of the name of an experiment.
NAME_MAX = 64
SENDER_CPU, RECEIVER_CPU = "sender_cpu_ns_per_kib", "receiver_cpu_ns_per_kib"

Value = str | int
# Options of copyscope run.
Fixed = dict[str, Value]


@dataclass(frozen=True)
class StandInPlan:
    """The two settings of a stand-in.

    remedy: name of the remedy
    before, after: options of `copyscope run` before and after the change: the same options, with other values
    fixed: options of `copyscope run` with the same value before and after
    metric: CPU time of the side that stands for the program
    """

    remedy: str
    before: Fixed
    after: Fixed
    fixed: Fixed
    metric: str = SENDER_CPU

    @property
    def name(self) -> str:
        """Name of the experiment, which identifies the stand-in on this machine."""
        words = ("stand-in", *self.before.values(), *self.after.values(), *self.fixed.values())
        return "-".join(str(word).replace("_", "-").lower() for word in words)[:NAME_MAX]

    def describe(self) -> str:
        """Return the two settings in words: `5 B against 64 KiB; one_copy, 1 thread, loopback`."""
        sides = (", ".join(map(_spell, side.values())) for side in (self.before, self.after))
        shown = [_spell(self.fixed[name]) for name in ("impl", "size") if name in self.fixed]
        threads = counted(int(self.fixed["threads"]), "thread")
        return f"{' against '.join(sides)}; {', '.join([*shown, threads, str(self.fixed['topology'])])}"

    def experiment(self) -> str:
        """Return the experiment that measures both settings, as a TOML file."""
        fixed = {**self.fixed, "warmup": WARMUP_S, "frequency": FREQUENCY_HZ}
        factors = {name: [value, self.after[name]] for name, value in self.before.items()}
        lines = [
            f"name = {_toml(self.name)}",
            f"question = {_toml(f'What does this change save in similar traffic: {self.remedy}?')}",
            'expected = "30s"',
            f"repeats = {REPEATS}",
            f"duration_s = {DURATION_S}",
            f"seed = {SEED}",
            "[factors]",
            *(f"{name} = {_toml(values)}" for name, values in factors.items()),
            "[fixed]",
            *(f"{name} = {_toml(value)}" for name, value in fixed.items()),
        ]
        if len(factors) == 2:
            lines += [*_exclude(self.before, self.after), *_exclude(self.after, self.before)]
        return "\n".join([*lines, ""])

    def result(self, runs: Iterable[Run]) -> StandIn | None:
        """Return the saving with its interval, or None if fewer than two pairs of runs are valid."""
        points = group_points(runs)
        before, after = (
            next((point for point in points if side.items() <= point.factors.items()), None)
            for side in (self.before, self.after)
        )
        if before is None or after is None:
            return None
        change = ratio(after, before, self.metric)
        if isinstance(change, Missing) or change.ends is None:
            return None
        low, high = change.ends
        return StandIn(self.remedy, self.describe(), Saving(1 - change.value, 1 - high, 1 - low))


def _exclude(first: Fixed, second: Fixed) -> list[str]:
    """Return lines that exclude the first option of `first` combined with the other option of `second`."""
    (name, value), (other_name, _) = first.items()
    return ["[[exclude]]", f"{name} = {_toml(value)}", f"{other_name} = {_toml(second[other_name])}"]


def _spell(value: Value) -> str:
    return format_size(value) if isinstance(value, int) else value


def _toml(value: Value | float | list[Value]) -> str:
    """Format a value for TOML, which writes these values as JSON does."""
    return json.encode(value).decode()


# Function that returns the stand-in for a remedy of a program, from the options that all stand-ins have.
MakePlan = Callable[[Evidence, str, Fixed], StandInPlan]


def plan_of(evidence: Evidence, remedy: str) -> StandInPlan | None:
    """Return the stand-in for a program's remedy, or None if copyscope cannot generate such traffic."""
    make_plan = PLANS.get(remedy)
    fixed: Fixed = {"topology": _topology(evidence), "threads": _threads(evidence.run)}
    return None if make_plan is None else make_plan(evidence, remedy, fixed)


def _larger_sends(evidence: Evidence, remedy: str, fixed: Fixed) -> StandInPlan:
    """Return a stand-in for larger messages, or for batches of requests if each send is an answer."""
    size_bytes = _mean_size(evidence.sent)
    is_relay = relay_of(evidence.run) is not None
    fixed |= {"impl": "relay_copy" if is_relay else "one_copy", "fields": 1}
    larger_bytes = LARGE_BYTES
    if evidence.sends_answers:
        fixed |= {"mode": "rr"}
        larger_bytes = BATCH * size_bytes
    return StandInPlan(remedy, {"size": size_bytes}, {"size": larger_bytes}, fixed)


def _one_send(evidence: Evidence, remedy: str, fixed: Fixed) -> StandInPlan:
    """Return a stand-in that sends each answer in one call instead of one call per field."""
    fields = round(sends_per_answer(evidence.run) or 1)
    fixed |= {"size": fields * _mean_size(evidence.sent), "fields": fields, "mode": "rr"}
    return StandInPlan(remedy, {"impl": "per_field"}, {"impl": "one_copy"}, fixed)


def _by_reference(before: str, after: str) -> MakePlan:
    """Return a function that makes a stand-in for sending by reference, in pieces that may be larger.

    The pieces may grow to the mean size of an answer, because a file or a pipe then limits them, not the
    program's buffer.

    before, after: strategies
    """

    def make(evidence: Evidence, remedy: str, fixed: Fixed) -> StandInPlan:
        sent, received = evidence.sent, evidence.run.portrait.receive
        size_bytes = _mean_size(sent)
        answer_bytes = sent.bytes / received.calls if sent and received and received.calls else LARGE_BYTES
        larger_bytes = max(size_bytes, min(LARGE_BYTES, round(answer_bytes)))
        if larger_bytes < 2 * size_bytes:
            return StandInPlan(remedy, {"impl": before}, {"impl": after}, {**fixed, "size": size_bytes})
        first: Fixed = {"impl": before, "size": size_bytes}
        return StandInPlan(remedy, first, {"impl": after, "size": larger_bytes}, fixed)

    return make


def _strategies(before: str, after: str, fields: int) -> MakePlan:
    """Return a function that makes a stand-in for another strategy at the program's own size.

    before, after: strategies
    fields: number of buffers of each message
    """

    def make(evidence: Evidence, remedy: str, fixed: Fixed) -> StandInPlan:
        fixed |= {"size": max(fields, _mean_size(evidence.sent)), "fields": fields}
        return StandInPlan(remedy, {"impl": before}, {"impl": after}, fixed)

    return make


def _larger_receives(evidence: Evidence, remedy: str, fixed: Fixed) -> StandInPlan:
    """Return a stand-in for a larger buffer. Small sockets keep the queue short."""
    buffer_bytes = _mean_size(evidence.run.portrait.receive)
    fixed |= {"impl": "one_copy", "size": SOCKET_BYTES, "sndbuf": SOCKET_BYTES, "rcvbuf": SOCKET_BYTES}
    return StandInPlan(remedy, {"buffer": buffer_bytes}, {"buffer": LARGE_BYTES}, fixed, RECEIVER_CPU)


def _mapped_receives(_: Evidence, remedy: str, fixed: Fixed) -> StandInPlan:
    fixed |= {"impl": "one_copy", "size": LARGE_BYTES}
    return StandInPlan(remedy, {"receiver": "read"}, {"receiver": "map"}, fixed, RECEIVER_CPU)


# Remedies that copyscope's own traffic can stand for. MSG_ZEROCOPY has crossovers.
# For sendfile, a memcpy() stands for the read of the file, without its system call.
# UDP batches have no row, because the traffic program has no UDP socket. kTLS has none, because that program
# encrypts nothing itself. Nor does "receive in place": none of its receivers copies the data again.
PLANS: Mapping[str, MakePlan] = {
    "larger sends": _larger_sends,
    "one send": _one_send,
    "sendfile": _by_reference("two_copy", "sendfile"),
    "splice": _by_reference("relay_copy", "relay_splice"),
    "larger receives": _larger_receives,
    "mapped receives": _mapped_receives,
    "fewer user copies": _strategies("two_copy", "one_copy", fields=2),
    "io_uring": _strategies("one_copy", "uring_send", fields=1),
}


def _mean_size(calls: Direction | None) -> int:
    """Return the mean size of some calls in bytes, or 1 if there are none.

    The size is rounded to two digits, so that another watch of the same program gives the same stand-in.
    """
    size_bytes = max(1.0, calls.mean_bytes) if calls else 1.0
    return round(round(size_bytes, 1 - int(log10(size_bytes))))


def _topology(evidence: Evidence) -> str:
    return "loopback" if evidence.run.raw.topology.kind == "lo" else "veth"


def _threads(run: Run) -> int:
    """Return the number of connections that the program may use at once: one per thread."""
    threads = max((segment.target.threads for segment in run.raw.run.segments), default=1)
    return max(1, min(threads, run.portrait.connections, THREADS_MAX))
