"""What a record says CPU time and bytes were spent on, as stacks: the sums are those of the ledger's rows.

The CPU time of each row is divided among the stacks that were sampled for it, by their weights. A row without
a stack (a copy that the program timed itself) is one frame, its name in brackets; so is every row's bytes,
which no stack moved: a sum over frames counts each byte once.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.escaping import visible
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.instruments import Sample, Stack
from copyscope.report.table_files import Table
from copyscope.study.published import Cell
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name, time_names

Key = tuple[str, str, str]
Row = AccountRow | StageRow
COLUMNS = (
    *("side", "context", "cpu_ns", "ns_per_kib", "share", "bytes", "calls", "samples"),
    *("cycles", "instructions", "l1d_misses", "llc_misses", "method"),
)


@dataclass(frozen=True)
class Cost:
    """What one stack cost: frames from the root to the leaf."""

    side: str
    where: str
    account: str
    frames: tuple[str, ...]
    ns: int
    bytes: int


def rows(run: Whole) -> list[Row]:
    """All that the ledger knows."""
    return [*run.derived.ledger, *run.derived.stages]


def kind_of(row: Row) -> str:
    return "account" if isinstance(row, AccountRow) else "stage"


def moved(row: Row) -> tuple[int | None, int | None]:
    """Bytes and calls, which a stage does not have."""
    return (row.bytes, row.calls) if isinstance(row, AccountRow) else (None, None)


def costs(run: Whole) -> list[Cost]:
    """Every row that has time or bytes, by its stacks."""
    stacks = by_row(run)
    found = []
    for row in rows(run):
        side, where, name = row.side, row.context, row.category
        leaf = (f"[{name}]",)
        if row.cpu_ns:
            weights = stacks.get((side, where, name)) or {leaf: 1.0}
            whole = sum(weights.values())
            found += [
                Cost(side, where, name, frames, round(row.cpu_ns * weight / whole), 0)
                for frames, weight in sorted(weights.items())
            ]
        if copied := moved(row)[0]:
            found.append(Cost(side, where, name, leaf, 0, copied))
    return found


def by_row(run: Whole) -> dict[Key, dict[tuple[str, ...], float]]:
    """(side, context, category) -> stack -> weight; where no stack was kept, the symbol that decided."""
    kept: Sequence[Stack | Sample] = run.raw.stacks or run.raw.samples
    statuses = {event.name: event.status for event in run.raw.sampler.events}
    names = time_names({sample.event for sample in kept}, statuses) or ()
    found: dict[Key, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for sample in kept:
        tied = sample.side != "other" or sample.tie is not None
        if event_name(sample.event) in names and sample.weight > 0 and tied:
            frames = tuple(sample.frames.split(";")) if isinstance(sample, Stack) else (sample.symbol,)
            found[sample.side, sample.context, sample.category][frames] += sample.weight
    return found


def folded(run: Whole) -> bytes:
    """`side;root;...;leaf nanoseconds`, one line for each stack: what flamegraph.pl and inferno read."""
    sums: dict[str, int] = defaultdict(int)
    for cost in costs(run):
        if cost.ns:
            sums[visible(";".join((cost.side, *cost.frames)))] += cost.ns
    return "".join(f"{stack} {ns}\n" for stack, ns in sorted(sums.items())).encode()


def table(run: Whole) -> Table:
    """The ledger's rows and the stages as lines of a table."""
    return [_line(run.raw.run.id, row) for row in rows(run)]


def _line(run_id: str, row: Row) -> dict[str, Cell]:
    line: dict[str, Cell] = {"run": run_id, "kind": kind_of(row), "name": row.category}
    line |= {key: getattr(row, key, None) for key in COLUMNS}
    line |= {f"cpu_ns_{end}": getattr(row.ci, f"{end}_ns", None) for end in ("low", "high")}
    for column in EVENT_COLUMNS:
        known = row.events.get(column)
        line |= {f"{column}_{key}": getattr(known, key, None) for key in ("low", "high", "samples")}
    # Counts that a record keeps without a point.
    return {name: int(c) if isinstance(c, float) and c.is_integer() else c for name, c in line.items()}
