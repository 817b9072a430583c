# SPDX-License-Identifier: GPL-2.0-only
"""Content of crossover.json, and what a saved crossover answers about a watched program. Pure.

docs/reference/verdicts.md explains each key.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from msgspec import Struct, structs

from copyscope.base.spelling import counted, format_size
from copyscope.base.stats import Missing
from copyscope.judge.crossover import Costs, Crossover
from copyscope.judge.crossover_sentences import CPU, GOODPUT, QUANTITIES, SENDER_CPU, path_sentence
from copyscope.judge.metrics import Scalar
from copyscope.record.run import Run
from copyscope.record.store import describe_other_machine, machine_identity

SCHEMA = 2
# Compared quantities, in the order in which their crossovers are preferred for a watched sender.
PREFERRED_QUANTITIES = (SENDER_CPU, CPU, "receiver_cpu_ns_per_kib", GOODPUT)
# Paths inside one machine, by the drivers of their devices, as crossover.json names them.
LOCAL_PATHS = ("loopback", "veth")
# Results of path_distance(): how closely the path of a crossover resembles the path of a program.
SAME_PATH, SAME_KIND, OTHER_KIND = 0, 1, 2
Strategy = Literal["zero_copy", "sendfile"]


class AtSize(Struct):
    """Ratio of the second strategy to the first at a single measured size. `better`: the better strategy."""

    size_bytes: int
    ratio: float | None
    low: float | None
    high: float | None
    better: str | None


class CrossoverRow(Struct):
    """A row of crossover.json: a single crossover. The class Crossover describes its fields."""

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


class SavedCrossover(CrossoverRow):
    """A crossover read from a file.

    file: path of that file, shortened to its last four parts
    path: network path over which the crossover was measured
    elsewhere: description of another machine on which the crossover was measured; None for this machine
    costs: size -> ns per KiB of the first strategy
    """

    file: str
    path: str
    elsewhere: str | None
    costs: dict[int, float]


class CostAt(Struct):
    """Cost of a strategy at a single size, or the reason why the cost is unknown."""

    size_bytes: int
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class CostRow(Struct):
    """Measured costs of one strategy, by size."""

    impl: str
    threads: int
    quantity: str
    where: dict[str, Scalar]
    measured: list[CostAt]


class Document(Struct):
    """Content of crossover.json: the crossovers and costs of a sweep."""

    schema: int
    kind: str
    experiment: str | None
    machine: Mapping[str, Any]
    started: str | None
    topology: str | None
    runs: int
    valid_runs: int
    sentence: str
    crossovers: list[CrossoverRow]
    costs: list[CostRow]


def build_document(runs: Sequence[Run], crossovers: Sequence[Crossover], costs: Sequence[Costs]) -> Document:
    """Return the content of crossover.json for the runs of a sweep."""
    first = runs[0].raw if runs else None
    return Document(
        schema=SCHEMA,
        kind="crossover",
        experiment=first.run.experiment if first else None,
        machine=machine_identity(first.machine) if first else {},
        started=max((run.raw.run.started for run in runs), default=None),
        topology=first.topology.kind if first else None,
        runs=len(runs),
        valid_runs=sum(run.derived.verdict.valid for run in runs),
        sentence=path_sentence(crossovers, runs),
        crossovers=[file_row(row) for row in crossovers],
        costs=[_cost_row(row) for row in costs],
    )


def file_row(crossover: Crossover) -> CrossoverRow:
    """Return a crossover as a row of crossover.json."""
    return CrossoverRow(
        pair=list(crossover.pair),
        by=crossover.by,
        threads=crossover.threads,
        quantity=crossover.quantity,
        where=dict(crossover.where),
        verdict=crossover.verdict,
        size_bytes=_rounded(crossover.size_bytes),
        low_bytes=_rounded(crossover.low),
        high_bytes=_rounded(crossover.high),
        level=crossover.level,
        above=crossover.above,
        evidence=crossover.evidence,
        measured=[
            AtSize(row.size_bytes, row.ratio.value, row.ratio.low, row.ratio.high, row.better)
            for row in crossover.measured
        ],
        split_ns_per_kib=[{"size_bytes": size, **parts} for size, parts in crossover.split.items()],
    )


def _cost_row(costs: Costs) -> CostRow:
    """Return the costs of a strategy as a row of crossover.json."""
    rows = [
        CostAt(size, None, reason=cost.reason)
        if isinstance(cost, Missing)
        else CostAt(size, cost.value, cost.low, cost.high)
        for size, cost in costs.measured.items()
    ]
    return CostRow(costs.impl, costs.threads, costs.quantity, dict(costs.where), rows)


def _rounded(size_bytes: float | None) -> int | None:
    return None if size_bytes is None else round(size_bytes)


def saved_crossovers(document: Document, file: PurePath, here: Mapping[str, Any]) -> list[SavedCrossover]:
    """Return the crossovers of a file.

    document: content of the file
    file: path of the file
    here: identity of this machine
    """
    return [
        SavedCrossover(
            **structs.asdict(row),
            file=str(PurePath(*file.parts[-4:])),
            path=str(row.where.get("topology", document.topology)),
            elsewhere=describe_other_machine(document.machine, here),
            costs=_first_strategy_costs(row, document.costs),
        )
        for row in document.crossovers
    ]


def _first_strategy_costs(row: CrossoverRow, costs: Sequence[CostRow]) -> dict[int, float]:
    """Return size -> cost in ns per KiB of the first strategy of a crossover.

    costs: all rows of costs in the file
    """
    key = (row.pair[0], row.threads, row.quantity, row.where)
    matching = (
        cost.measured for cost in costs if (cost.impl, cost.threads, cost.quantity, cost.where) == key
    )
    return {cost.size_bytes: cost.value for cost in next(matching, []) if cost.value is not None}


@dataclass(frozen=True)
class SizeQuestion:
    """The question whether a strategy pays off for sends of a single size.

    used: True if the program sends most of its bytes by that strategy already
    """

    strategy: Strategy
    size_bytes: int
    used: bool

    @property
    def name(self) -> str:
        """Name of the strategy, as used in sentences."""
        return self.strategy.replace("_", "-")


def nearest_crossover(rows: Sequence[SavedCrossover], run: Run, strategy: Strategy) -> SavedCrossover | None:
    """Return the saved crossover of a strategy that most resembles a watched program, or None.

    The network path is compared first, then the quantity (PREFERRED_QUANTITIES), then a comparison with
    one_copy, then the newest file (rows come newest first), then the number of threads.
    """
    threads = max((segment.target.threads for segment in run.raw.run.segments), default=1)
    files = list(dict.fromkeys(row.file for row in rows))
    quantities = {name: index for index, name in enumerate(PREFERRED_QUANTITIES)}
    return min(
        (row for row in rows if row.pair[1] == strategy and row.by == "impl"),
        key=lambda row: (
            path_distance(row, run),
            quantities.get(row.quantity, len(quantities)),
            "one_copy" not in row.pair,
            files.index(row.file),
            abs(row.threads - threads),
        ),
        default=None,
    )


def path_distance(row: SavedCrossover, run: Run) -> int:
    """Compare the path of a crossover with that of a program: SAME_PATH, SAME_KIND or OTHER_KIND.

    There are two kinds of path: inside one machine, and between machines.
    """
    path = run.raw.topology
    drivers = {str(device.driver) for device in path.devices}
    if path.local_delivery and row.path in drivers.intersection(LOCAL_PATHS):
        return SAME_PATH
    is_local = row.path.startswith(LOCAL_PATHS)
    return SAME_KIND if path.local_delivery == is_local else OTHER_KIND


def pays_off(row: SavedCrossover, question: SizeQuestion, run: Run) -> bool | None:
    """Return True if this crossover shows that a strategy pays off for a program, False if it does not.

    Return None if no difference was found, if the size lies in the interval, or if the path is of the other
    kind.

    question: the strategy and the size of the program's sends
    run: the run of the program
    """
    if path_distance(row, run) == OTHER_KIND:
        return None
    if row.verdict in ("always", "never"):
        return row.verdict == "always"
    if row.verdict == "undetermined":
        return _better_around(row, question.size_bytes)
    low, high = _interval(row)
    # Sizes are lower ends of powers of two, so a call may be almost twice as large.
    if low < 2 * question.size_bytes and question.size_bytes < high:
        return None
    return (question.size_bytes >= high) == (row.above == row.pair[1])


def _better_around(row: SavedCrossover, size_bytes: int) -> bool | None:
    """Return True if the second strategy is better at the measured sizes around a send size, False if worse.

    Return None if no difference was found at one of these sizes, if the sizes disagree, or if the sends lie
    beyond these sizes.

    size_bytes: lower end of the sends' sizes, a power of two: a call may be almost twice as large
    """
    below = [at.better for at in row.measured if at.size_bytes <= size_bytes][-1:]
    above = [at.better for at in row.measured if at.size_bytes >= 2 * size_bytes][:1]
    between = [at.better for at in row.measured if size_bytes < at.size_bytes < 2 * size_bytes]
    better = {*below, *between, *above}
    if not below or not above or len(better) > 1 or None in better:
        return None
    return better == {row.pair[1]}


def _interval(row: SavedCrossover) -> tuple[float, float]:
    """Return the interval of a crossover's size in bytes; an unknown end is 0 or infinity."""
    low, high = row.low_bytes, row.high_bytes
    return low if low is not None else 0, high if high is not None else math.inf


def answer_sentence(row: SavedCrossover, question: SizeQuestion, run: Run) -> str:
    """Return a sentence that says whether a strategy pays off for a program, according to this crossover.

    question: the strategy and the size of the program's sends
    run: the run of the program
    """
    doubt = f"Cannot tell whether {question.name} {'pays' if question.used else 'would pay'} off"
    if path_distance(row, run) == OTHER_KIND:
        return (
            f"{doubt}, because it was measured on this host over {row.path} only ({row.file}), "
            f"and this program sends over {run.raw.topology.kind}: "
            "run copyscope crossover --experiment FILE with an experiment over that path."
        )
    name = question.name.capitalize()
    basis = (
        f"compared with {row.pair[0]} by {QUANTITIES.get(row.quantity, row.quantity)}, "
        f"{counted(row.threads, 'thread')}, on this host over {row.path}: {row.file}"
    )
    gain = "it helps on that path" if question.used else "it would help on that path"
    loss = "it costs more than it saves" if question.used else "it would cost more than it saves"
    pays = pays_off(row, question, run)
    if row.verdict == "undetermined":
        answer = f"At sizes like those of its send calls {gain if pays else loss}"
        evidence = row.evidence.removeprefix("undetermined: ")
        return f"{doubt if pays is None else answer}: {evidence} ({basis})."
    if row.verdict == "always":
        return f"{name} paid off at every measured size ({basis}): {gain}."
    if row.verdict == "never":
        return f"{name} was worse at every measured size ({basis}): {loss}."
    text = f"{name} pays off {_paying_sizes(row)}; {basis})"
    if pays is None:
        return f"{text}. The program's send calls have about that size: expect no difference."
    comparative = "larger" if question.size_bytes >= _interval(row)[1] else "smaller"
    return f"{text}. The program's send calls are {comparative}: {gain if pays else loss}."


def _paying_sizes(row: SavedCrossover) -> str:
    """Return the sizes at which the second strategy pays off, as text that ends in an unclosed bracket."""
    ends = [format_size(end) if 0 < end < math.inf else "beyond the measured sizes" for end in _interval(row)]
    size = format_size(row.size_bytes)
    sizes = f"from {size} on" if row.above == row.pair[1] else f"below {size}"
    return f"{sizes} ({' to '.join(ends)}"
