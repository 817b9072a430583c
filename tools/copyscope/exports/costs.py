"""What a record says CPU time and bytes were spent on, as stacks: the sums are those of the ledger's rows.

The CPU time of each row is divided among the stacks that were sampled for it, by their weights. A row without
a stack (a copy that the program timed itself) is one frame, its name in brackets; so is every row's bytes,
which no stack moved: a sum over frames counts each byte once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from copyscope.escaping import visible
from copyscope.record.segments import Record
from copyscope.report.table_files import Table
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name, time_names

Key = tuple[str, str, str]
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


def rows(record: Record) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(account or stage, its name, the row) of all that the ledger knows."""
    for kind, section in (("account", record["ledger"]), ("stage", record["stages"])):
        for row in section:
            yield kind, row[kind], row


def costs(record: Record) -> list[Cost]:
    """Every row that has time or bytes, by its stacks."""
    stacks = by_row(record)
    found = []
    for _, name, row in rows(record):
        side, where = row["side"], row["context"]
        leaf = (f"[{name}]",)
        if row["cpu_ns"]:
            weights = stacks.get((side, where, name)) or {leaf: 1.0}
            whole = sum(weights.values())
            found += [
                Cost(side, where, name, frames, round(row["cpu_ns"] * weight / whole), 0)
                for frames, weight in sorted(weights.items())
            ]
        if row.get("bytes"):
            found.append(Cost(side, where, name, leaf, 0, row["bytes"]))
    return found


def by_row(record: Record) -> dict[Key, dict[tuple[str, ...], float]]:
    """(side, context, category) -> stack -> weight; where no stack was kept, the symbol that decided."""
    kept = record.get("stacks") or record["samples"]
    statuses = {event["name"]: event["status"] for event in record["sampler"]["events"]}
    names = time_names({sample["event"] for sample in kept}, statuses) or ()
    found: dict[Key, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for sample in kept:
        tied = sample["side"] != "other" or sample.get("tie") is not None
        if event_name(sample["event"]) in names and sample["weight"] > 0 and tied:
            frames = tuple(sample["frames"].split(";")) if "frames" in sample else (sample["symbol"],)
            found[sample["side"], sample["context"], sample["category"]][frames] += sample["weight"]
    return found


def folded(record: Record) -> bytes:
    """`side;root;...;leaf nanoseconds`, one line for each stack: what flamegraph.pl and inferno read."""
    sums: dict[str, int] = defaultdict(int)
    for cost in costs(record):
        if cost.ns:
            sums[visible(";".join((cost.side, *cost.frames)))] += cost.ns
    return "".join(f"{stack} {ns}\n" for stack, ns in sorted(sums.items())).encode()


def table(record: Record) -> Table:
    """The ledger's rows and the stages as lines of a table."""
    return [
        {"run": record["run"]["id"], "kind": kind, "name": name, **{key: row.get(key) for key in COLUMNS}}
        | {f"cpu_ns_{end}": (row["ci"] or {}).get(f"{end}_ns") for end in ("low", "high")}
        | {
            f"{column}_{key}": row.get("events", {}).get(column, {}).get(key)
            for column in EVENT_COLUMNS
            for key in ("low", "high", "samples")
        }
        for kind, name, row in rows(record)
    ]
