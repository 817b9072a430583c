"""What one profile of a survey came to: the exact tier against itself in sentences (figures_of), and both
tiers as numbers for the tables that judge them (tiers_of, two_tiers.py).
"""

from statistics import median
from typing import Any

from copyscope.ledger import compare_tiers
from copyscope.ledger.losses import dropped_roots
from copyscope.record.check import typed
from copyscope.record.raw import Segment
from copyscope.record.segments import PROCESSES, segments_of, select, total

Record = dict[str, Any]

# Of a row of compare_tiers.
KEPT = (
    *("side", "context", "name", "exact_share", "inside"),
    *(f"{tier}_{end}" for tier in ("beside", "sampled") for end in ("share", "low", "high")),
)


def figures_of(record: Record) -> dict[str, str]:
    """By what they are about; only the losses where no function was hooked."""
    impl = record["workload"]["impl"]
    found = {}
    for row in compare_tiers.coverage(typed(record)):
        if row["ratio"] is not None:
            found[f"{impl}, {row['side']}, all roots"] = (
                f"{row['inside_ns'] / 1e6:.1f} ms of {row['kernel_ns'] / 1e6:.1f} ms in the kernel:"
                f" {row['ratio']:.3f}"
            )
    for row in record["identities"]:
        name = row["name"]
        if name.startswith("functions_") and name.endswith("_self") and row["holds"] is not None:
            found[f"{impl}, {row['what'].partition(':')[0]}, self times"] = (
                f"{row['left']:,} ns of {row['right']:,} ns inclusive: {row['left'] / row['right']:.4f}"
            )
    if elsewhere := copied_elsewhere(record):
        found[f"{impl}, sender, its deferred copies"] = elsewhere
    losses = {name: loss["count"] for name, loss in record["loss"].items() if loss["count"]}
    unknown = sum(loss["count"] is None for loss in record["loss"].values())
    found[f"{impl}, losses"] = ", ".join(f"{name} {count}" for name, count in losses.items()) or "none"
    found[f"{impl}, losses"] += f"; {unknown} that this kernel does not count" if unknown else ""
    if dropped := dropped_roots(typed(record)):
        found[f"{impl}, roots dropped"] = f"{dropped[0]} of {dropped[1]} timed"
    return found


def tiers_of(record: Record) -> Record:
    """Under the name of the strategy: the rows of both tiers, and the calls; empty without function hooks."""
    compared = compare_tiers.compare_tiers(typed(record))
    if not compared:
        return {}
    sampled = [(row["account"], row) for row in record["ledger"]] + [
        (compare_tiers.REST, row) for row in record["stages"]
    ]
    segments = segments_of(record)
    found = {
        "rows": [
            {key: round(row[key], 6) if isinstance(row[key], float) else row[key] for key in KEPT}
            for row in compared
            if row["side"] != "other" and row["name"] != compare_tiers.REST
        ],
        "exact_ns_per_kib": _ns_per_kib([(row["ledger_name"], row) for row in record["exact"]]),
        "sampled_ns_per_kib": _ns_per_kib(sampled),
        "exact_goodput_gbps": _goodput_gbps(select(segments, "functions")),
        "sampled_goodput_gbps": _goodput_gbps(select(segments, "ledger")),
        "seen": {row["side"]: round(row["ratio"], 4) for row in compare_tiers.seen_beside(typed(record))},
        "exact_stretch": _stretch(select(segments, "functions")),
        "sampled_stretch": _stretch(select(segments, "ledger")),
        "calls": [
            {
                **{key: row[key] for key in ("side", "calls", "calls_ns", "inside_ns")},
                "roots_ns": row["inside_ns"] - _around_ns(record, row["side"]),
            }
            for row in compare_tiers.inside_calls(typed(record))
        ],
    }
    return {record["workload"]["impl"]: found}


def _around_ns(record: Record, side: str) -> int:
    """What the calls around the roots spent themselves."""
    rows = [row for row in record["exact"] if row["side"] == side and row["category"] == "syscall"]
    return sum(int(row["cpu_ns"]) for row in rows)


def _ns_per_kib(rows: list[tuple[str, Record]]) -> dict[str, float | None]:
    """Of both processes, in the kernel, by account; what is no copy is one. None: a part of it is unknown."""
    found: dict[str, float | None] = {}
    for name, row in rows:
        if row["side"] in PROCESSES and row["context"] != "user":
            key = name if name in compare_tiers.COMPARED else compare_tiers.REST
            so_far, ns = found.get(key, 0.0), row["ns_per_kib"]
            found[key] = None if so_far is None or ns is None else round(so_far + ns, 1)
    return found


def _goodput_gbps(segments: list[Segment]) -> float:
    return round(8 * total(segments, "receiver", "bytes") / sum(_elapsed_ns(segments)), 4)


def _stretch(segments: list[Segment]) -> float:
    """The longest segment over the median one: a guest that stood still in one of them shows here."""
    elapsed_ns = _elapsed_ns(segments)
    return round(max(elapsed_ns) / median(elapsed_ns), 2)


def _elapsed_ns(segments: list[Segment]) -> list[int]:
    return [int(segment.end_ns - segment.begin_ns) for segment in segments]


def copied_elsewhere(record: Record) -> str | None:
    """How much of the sender's memory was copied on the time of other tasks; None where nothing was."""
    owners = (record["functions"] or {}).get("owners") or []
    rows = [row for row in owners if row["owner_side"] == "sender"]
    copied = sum(row["bytes"] for row in rows)
    if not copied:
        return None
    elsewhere = sum(row["bytes"] for row in rows if row["current_side"] != "sender")
    return f"{elsewhere:,} of {copied:,} bytes on the time of other tasks: {100 * elsewhere / copied:.1f} %"
