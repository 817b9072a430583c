"""What the crossovers of a path come to, in one sentence, and as the file that others read. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from copyscope.compare.estimates import Estimate, Missing
from copyscope.crossover.crossover import Costs, Crossover, Measured
from copyscope.ledger.attribution import tied
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.record.segments import Record, samples_of
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


def headline(found: Sequence[Crossover]) -> Crossover | None:
    """The answer that most readers came for: zero-copy against one-copy, all CPU time, fewest threads."""
    for pair in (("one_copy", "zero_copy"), ("two_copy", "zero_copy")):
        fitting = [at for at in found if at.pair == pair and at.quantity == CPU]
        if fitting:
            return min(fitting, key=lambda at: at.threads)
    return found[0] if found else None


def sentence(found: Sequence[Crossover], records: Iterable[Record]) -> str:
    """The verdict of the path: from which size on zero-copy pays, or that it never does, and why."""
    main = headline(found)
    if main is None:
        return "undetermined: no two strategies were measured at the same sizes: run the experiment first"
    text = say(main, why_copied(records) if main.pair[1] == "zero_copy" else None)
    same = [at for at in found if (at.pair, at.threads, at.where) == (main.pair, main.threads, main.where)]
    speed = next((at for at in same if at.quantity == "goodput_gbps"), main)
    return text if speed is main else f"{text} In goodput: {_short(speed)}."


def say(at: Crossover, cause: str | None = None) -> str:
    """One crossover as a sentence; `cause`: why the copy was made anyway."""
    first, second = (NAMES.get(name, name) for name in at.pair)
    against = f"{QUANTITIES[at.quantity]}, {counted(at.threads, 'thread')}, against {first}"
    if at.verdict == "undetermined":
        return f"On this path it is {at.evidence} ({against})."
    because = f"the copy is made anyway ({cause}), " if cause else ""
    if at.verdict == "never":
        return f"On this path {second} never pays {_span(at)}: {because}{_dearer(at)} ({against})."
    if at.verdict == "always":
        return f"On this path {second} pays at every size {_span(at)}: {_dearer(at)} ({against})."
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


def _dearer(at: Crossover) -> str:
    """The difference at a typical size, in the unit of the quantity."""
    if not at.split:
        return "it is slower" if at.verdict == "never" else "it is faster"
    row = min(at.split, key=lambda row: abs(row["size_bytes"] - TYPICAL_BYTES))
    word = "dearer" if row["sum"] > 0 else "cheaper"
    return f"{three_digits(abs(row['sum']))} ns/KiB {word} at {format_size(row['size_bytes'])}"


def why_copied(records: Iterable[Record]) -> str | None:
    """The function that copied what was sent with MSG_ZEROCOPY; None where nothing was copied.

    Where the flag says that it was copied and no sample fell into the copy, the cause in words.
    """
    seen: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for record in records:
        zerocopy = record["zerocopy"]
        if not zerocopy or not record["verdict"]["valid"] or not zerocopy["cause"]:
            continue
        causes[zerocopy["cause"]["code"].replace("_", " ")] += 1
        for row in tied(samples_of(record)):
            if row.category in ("deferred", "silent"):
                seen[row.symbol] += row.samples
    for ranked in (seen, causes):
        if ranked:
            return min(ranked, key=lambda name: (-ranked[name], name))
    return None


def document(records: Sequence[Record], found: Sequence[Crossover], costs: Sequence[Costs]) -> dict[str, Any]:
    """crossover.json: this host's measured crossovers (docs/reference/verdicts.md explains each key)."""
    first = records[0] if records else None
    machine = {} if first is None else {key: first["machine"][key] for key in SAME_MACHINE}
    return {
        "schema": SCHEMA,
        "kind": "crossover",
        "experiment": first and first["run"]["experiment"],
        "machine": machine,
        "started": max((record["run"]["started"] for record in records), default=None),
        "topology": first and first["topology"]["kind"],
        "runs": len(records),
        "valid_runs": sum(1 for record in records if record["verdict"]["valid"]),
        "sentence": sentence(found, records),
        "crossovers": [as_json(at) for at in found],
        "costs": [_costs_row(row) for row in costs],
    }


def as_json(found: Crossover) -> dict[str, Any]:
    """A crossover as it stands in crossover.json."""
    return {
        "pair": list(found.pair),
        "by": found.by,
        "threads": found.threads,
        "quantity": found.quantity,
        "where": dict(found.where),
        "verdict": found.verdict,
        "size_bytes": _whole(found.size_bytes),
        "low_bytes": _whole(found.low),
        "high_bytes": _whole(found.high),
        "level": found.level,
        "above": found.above,
        "evidence": found.evidence,
        "measured": [_ratio_row(at) for at in found.measured],
        "split_ns_per_kib": [dict(row) for row in found.split],
    }


def _ratio_row(at: Measured) -> dict[str, Any]:
    return {"size_bytes": at.size_bytes, "better": at.better, **_numbers("ratio", at.ratio)}


def _costs_row(costs: Costs) -> dict[str, Any]:
    named = {"impl": costs.impl, "threads": costs.threads, "quantity": costs.quantity}
    rows = [{"size_bytes": size, **_numbers("value", one)} for size, one in costs.measured.items()]
    return {**named, "where": dict(costs.where), "measured": rows}


def _numbers(name: str, found: Estimate | Missing) -> dict[str, Any]:
    if isinstance(found, Missing):
        return {**dict.fromkeys((name, "low", "high")), "reason": found.reason}
    return {name: found.value, "low": found.low, "high": found.high, "reason": None}


def _whole(size: float | None) -> int | None:
    return None if size is None else round(size)
