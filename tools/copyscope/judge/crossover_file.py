"""crossover.json: what is written of a sweep, and what its rows say of a watched program. Pure.

docs/reference/verdicts.md explains each key.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from msgspec import Struct, structs

from copyscope.judge.crossover import Costs, Crossover
from copyscope.judge.metrics import Scalar
from copyscope.ledger.attribution import tied
from copyscope.record.check import Whole
from copyscope.record.same_machine import SAME_MACHINE, where_else
from copyscope.stats import Missing
from copyscope.units import counted, format_size, three_digits

SCHEMA = 2
TYPICAL_BYTES = 65_536  # where a difference is quoted, or the measured size that is nearest to it
CPU = "system_cpu_ns_per_kib"
NAMES = {
    "two_copy": "two-copy",
    "one_copy": "one-copy",
    "zero_copy": "zero-copy",
    "per_field": "one send() per field",
}
QUANTITIES = {
    "goodput_gbps": "goodput",
    "sender_cpu_ns_per_kib": "CPU time of the sender",
    "receiver_cpu_ns_per_kib": "CPU time of the receiver",
    "system_cpu_ns_per_kib": "CPU time of both sides",
}
# Paths that never leave the machine: crossover.json calls them as the driver of their device is called.
LOCAL_PATHS = ("loopback", "veth")
SENDER_CPU = "sender_cpu_ns_per_kib"
WHOSE = {
    SENDER_CPU: "the sender's CPU time",
    "system_cpu_ns_per_kib": "the CPU time of both sides",
    "receiver_cpu_ns_per_kib": "the receiver's CPU time",
    "goodput_gbps": "the goodput",
}
SAME_KIND, OTHER_KIND = 1, 2
# What it comes to, for a program that does not do it yet and for one that does.
PAYS = {False: "it would help on that path", True: "it helps on that path"}
LOSES = {False: "it would cost more than it saves", True: "it costs more than it saves"}
Strategy = Literal["zero_copy", "sendfile"]


class AtSize(Struct):
    """One size at which both were measured: second / first."""

    size_bytes: int
    ratio: float | None
    low: float | None
    high: float | None
    better: str | None


class Row(Struct):
    """One crossover."""

    pair: list[str]
    by: str
    threads: int
    quantity: str
    where: dict[str, Scalar]
    verdict: str
    size_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    level: float
    above: str | None
    evidence: str
    measured: list[AtSize]
    split_ns_per_kib: list[dict[str, float]]


class Found(Row):
    """One that was found on the disk.

    file: where it stands
    costs: size -> ns per KiB of the first of the pair
    path: over which it was measured
    elsewhere: the machine that it was measured on, where that is not the one here
    """

    file: str
    path: str
    elsewhere: str | None
    costs: dict[int, float]


class CostAt(Struct):
    size_bytes: int
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class CostRow(Struct):
    """What one strategy was measured to cost, by size."""

    impl: str
    threads: int
    quantity: str
    where: dict[str, Scalar]
    measured: list[CostAt]


class Document(Struct):
    """crossover.json: this host's measured crossovers."""

    schema: int
    kind: str
    experiment: str | None
    machine: dict[str, Any]
    started: str | None
    topology: str | None
    runs: int
    valid_runs: int
    sentence: str
    crossovers: list[Row]
    costs: list[CostRow]


def headline(found: Sequence[Crossover]) -> Crossover | None:
    """The answer that most readers came for: zero-copy against one-copy, all CPU time, fewest threads."""
    for pair in (("one_copy", "zero_copy"), ("two_copy", "zero_copy")):
        fitting = [at for at in found if at.pair == pair and at.quantity == CPU]
        if fitting:
            return min(fitting, key=lambda at: at.threads)
    return found[0] if found else None


def sentence(found: Sequence[Crossover], runs: Iterable[Whole]) -> str:
    """The verdict of the path: from which size on zero-copy pays, or that it never does, and why."""
    main = headline(found)
    if main is None:
        return "undetermined: no two strategies were measured at the same sizes: run the experiment first"
    text = say(main, why_copied(runs) if main.pair[1] == "zero_copy" else None)
    same = [at for at in found if (at.pair, at.threads, at.where) == (main.pair, main.threads, main.where)]
    speed = next((at for at in same if at.quantity == "goodput_gbps"), main)
    return text if speed is main else f"{text} In goodput: {_short(speed)}."


def say(at: Crossover, cause: str | None = None) -> str:
    """One crossover as a sentence; `cause`: why the copy was made anyway."""
    first, second = (NAMES.get(name, name) for name in at.pair)
    against = f"{QUANTITIES[at.quantity]}, {counted(at.threads, 'thread')}, against {first}"
    if at.verdict == "undetermined":
        return f"On this path it is {at.evidence} ({against})."
    because = f"the copy is made anyway ({cause}); " if cause else ""
    if at.verdict == "never":
        return f"On this path {second} never pays {_span(at)}: {because}{_difference(at)} ({against})."
    if at.verdict == "always":
        return f"On this path {second} pays at every size {_span(at)}: {_difference(at)} ({against})."
    side = "above" if at.above == at.pair[1] else "below"
    return (
        f"On this path {second} pays {side} {format_size(at.size_bytes)} "
        f"(95 % interval {format_size(at.low)} to {format_size(at.high)}; {against})."
    )


def _short(at: Crossover) -> str:
    if at.verdict == "undetermined":
        return at.evidence
    side = "above" if at.above == at.pair[1] else "below"
    interval = f"{format_size(at.low)} to {format_size(at.high)}"
    crosses = f"wins {side} {format_size(at.size_bytes)} ({interval})"
    wins = {"never": "never wins", "always": "wins at every size", "crosses": crosses}
    return f"{NAMES.get(at.pair[1], at.pair[1])} {wins[at.verdict]}"


def _span(at: Crossover) -> str:
    return f"from {format_size(at.measured[0].size_bytes)} to {format_size(at.measured[-1].size_bytes)}"


def _difference(at: Crossover) -> str:
    """The difference at a typical size, in the unit of the quantity."""
    if not at.split:
        return "it is slower" if at.verdict == "never" else "it is faster"
    size = min(at.split, key=lambda size: abs(size - TYPICAL_BYTES))
    difference = at.split[size]["sum"]
    word = "more" if difference > 0 else "less"
    return f"it costs {three_digits(abs(difference))} ns/KiB {word} at {format_size(size)}"


def why_copied(runs: Iterable[Whole]) -> str | None:
    """The function that copied what was sent with MSG_ZEROCOPY; None where nothing was copied.

    Where the flag says that it was copied and no sample fell into the copy, the cause in words.
    """
    seen: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for run in runs:
        zerocopy = run.derived.zerocopy
        if zerocopy is None or zerocopy.cause is None or not run.derived.verdict.valid:
            continue
        causes[zerocopy.cause.code.replace("_", " ")] += 1
        for row in tied(run.raw.samples):
            if row.category in ("deferred", "silent"):
                seen[row.symbol] += row.samples
    for ranked in (seen, causes):
        if ranked:
            return min(ranked, key=lambda name: (-ranked[name], name))
    return None


def document(runs: Sequence[Whole], found: Sequence[Crossover], costs: Sequence[Costs]) -> Document:
    """Of a sweep, as it stands in the file."""
    first = runs[0].raw if runs else None
    return Document(
        schema=SCHEMA,
        kind="crossover",
        experiment=first.run.experiment if first else None,
        machine={key: getattr(first.machine, key) for key in SAME_MACHINE if first},
        started=max((run.raw.run.started for run in runs), default=None),
        topology=first.topology.kind if first else None,
        runs=len(runs),
        valid_runs=sum(run.derived.verdict.valid for run in runs),
        sentence=sentence(found, runs),
        crossovers=[row_of(at) for at in found],
        costs=[_costs_row(row) for row in costs],
    )


def row_of(found: Crossover) -> Row:
    """A crossover as it stands in the file."""
    return Row(
        pair=list(found.pair),
        by=found.by,
        threads=found.threads,
        quantity=found.quantity,
        where=dict(found.where),
        verdict=found.verdict,
        size_bytes=_whole(found.size_bytes),
        low_bytes=_whole(found.low),
        high_bytes=_whole(found.high),
        level=found.level,
        above=found.above,
        evidence=found.evidence,
        measured=[
            AtSize(at.size_bytes, at.ratio.value, at.ratio.low, at.ratio.high, at.better)
            for at in found.measured
        ],
        split_ns_per_kib=[{"size_bytes": size, **parts} for size, parts in found.split.items()],
    )


def _costs_row(costs: Costs) -> CostRow:
    rows = [
        CostAt(size, None, reason=one.reason)
        if isinstance(one, Missing)
        else CostAt(size, one.value, one.low, one.high)
        for size, one in costs.measured.items()
    ]
    return CostRow(costs.impl, costs.threads, costs.quantity, dict(costs.where), rows)


def _whole(size: float | None) -> int | None:
    return None if size is None else round(size)


def rows_of(document: Document, file: PurePath, here: Mapping[str, Any]) -> list[Found]:
    """The rows of a file, for the machine here."""
    return [
        Found(
            **structs.asdict(row),
            file=str(PurePath(*file.parts[-4:])),
            path=str(row.where.get("topology", document.topology)),
            elsewhere=where_else(document.machine, here),
            costs=_costs_of(row, document.costs),
        )
        for row in document.crossovers
    ]


def _costs_of(row: Row, costs: Sequence[CostRow]) -> dict[int, float]:
    asked = (row.pair[0], row.threads, row.quantity, row.where)
    beside = (one.measured for one in costs if (one.impl, one.threads, one.quantity, one.where) == asked)
    return {at.size_bytes: at.value for at in next(beside, []) if at.value is not None}


@dataclass(frozen=True)
class Question:
    """Whether `strategy` pays for sends of this size; `used`: most of the program's bytes already go so."""

    strategy: Strategy
    size_bytes: int
    used: bool

    @property
    def name(self) -> str:
        return self.strategy.replace("_", "-")


def nearest(rows: Sequence[Found], run: Whole, strategy: Strategy) -> Found | None:
    """The crossover of a strategy against a copying send that is nearest to this program.

    The path counts first, then the sender's CPU time, then the pair; of equal ones the newest file (they come
    in that order), and of one file the nearest number of threads.
    """
    threads = max((s.target.threads for s in run.raw.run.segments), default=1)
    files = list(dict.fromkeys(row.file for row in rows))
    quantities = list(WHOSE)
    return min(
        (row for row in rows if row.pair[1] == strategy and row.by == "impl"),
        key=lambda row: (
            distance(row, run),
            quantities.index(row.quantity) if row.quantity in quantities else len(quantities),
            "one_copy" not in row.pair,
            files.index(row.file),
            abs(row.threads - threads),
        ),
        default=None,
    )


def distance(row: Found, run: Whole) -> int:
    """How far the path that was measured is from the program's: 0 the same, 1 alike, 2 of another kind."""
    path = run.raw.topology
    drivers = {str(device.driver) for device in path.devices}
    if path.local_delivery and row.path in drivers.intersection(LOCAL_PATHS):
        return 0
    is_local = row.path.startswith(LOCAL_PATHS)
    return SAME_KIND if path.local_delivery == is_local else OTHER_KIND


def answer(row: Found, asked: Question, run: Whole) -> str:
    """Whether it pays by this crossover; threshold.py: what it saves or costs this program."""
    if distance(row, run) == OTHER_KIND:
        return (
            f"{_cannot_tell(asked)}, because it was measured on this host over {row.path} only "
            f"({row.file}), and this program sends over {run.raw.topology.kind}: run "
            "copyscope crossover with an experiment over that path."
        )
    return _verdict(row, asked, run)


def pays(row: Found, asked: Question, run: Whole) -> bool | None:
    """Whether it pays by this crossover; None: no difference was found, or it is of another kind of path."""
    if distance(row, run) == OTHER_KIND or row.verdict == "undetermined":
        return None
    if row.verdict != "crosses":
        return row.verdict == "always"
    low, high = _ends(row)
    if low < 2 * asked.size_bytes and asked.size_bytes < high:
        return None
    return (asked.size_bytes >= high) == (row.above == row.pair[1])


def _ends(row: Found) -> tuple[float, float]:
    """Of its interval; an end that is not known is as far off as can be."""
    low, high = row.low_bytes, row.high_bytes
    return low if low is not None else 0, high if high is not None else math.inf


def _cannot_tell(asked: Question) -> str:
    return f"Cannot tell whether {asked.name} {'pays' if asked.used else 'would pay'}"


def _verdict(row: Found, asked: Question, run: Whole) -> str:
    name = asked.name.capitalize()
    threads = counted(row.threads, "thread")
    where = (
        f"against {row.pair[0]}, {WHOSE.get(row.quantity, row.quantity)}, {threads}, "
        f"measured on this host over {row.path}: {row.file}"
    )
    gains, loses = PAYS[asked.used], LOSES[asked.used]
    if row.verdict == "undetermined":
        reason = row.evidence.removeprefix("undetermined: ")
        return f"{_cannot_tell(asked)}: {reason} ({where})."
    if row.verdict == "always":
        return f"{name} paid at every size ({where}): {gains}."
    if row.verdict == "never":
        return f"{name} never paid at any size ({where}): {loses}."
    low, high = _ends(row)
    ends = [format_size(end) if 0 < end < math.inf else "beyond what was measured" for end in (low, high)]
    rising = row.above == row.pair[1]
    size = format_size(row.size_bytes)
    text = f"{name} pays {f'from {size} on' if rising else f'below {size}'} ({' to '.join(ends)}; {where})"
    found = pays(row, asked, run)
    if found is None:
        return f"{text}, which is about where its calls are: no difference to expect."
    text += f", and its calls are {'larger' if asked.size_bytes >= high else 'smaller'}"
    return f"{text}: {gains if found else loses}."
