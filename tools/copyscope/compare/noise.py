"""What two equal runs differ by on this host, from blocks of two of them. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from copyscope import stats
from copyscope.compare.difference import CPU, GOODPUT, read_metric
from copyscope.errors import UsageError
from copyscope.record.segments import Record

KIND = "noise"
FILE = "noise.json"
# No two equal runs differ a thousandfold.
NOISE_MAX = 1000.0


def noise(before: Sequence[Record], after: Sequence[Record]) -> dict[str, Any]:
    """Of blocks of two equal runs: for each metric the share that two of them stay within, 19 times of 20."""
    made = {}
    for name in (GOODPUT, CPU):
        pairs = [
            (read_metric(a, name).value, read_metric(b, name).value)
            for a, b in zip(before, after, strict=True)
        ]
        logs = [math.log(b / a) for a, b in pairs if a and b]
        if logs:
            spread = math.sqrt(sum(one * one for one in logs) / len(logs))
            made[name] = math.expm1(spread * stats.student(stats.LEVEL, len(logs)))
    machine = before[0]["machine"]
    return {
        "kind": KIND,
        "hostname": machine["hostname"],
        "kernel": machine["kernel"],
        "blocks": len(before),
        "metrics": made,
    }


def metrics_of(document: Any, source: str) -> Mapping[str, float]:
    """The numbers of such a document. Raises UsageError for another one."""
    found = document.get("metrics") if isinstance(document, dict) and document.get("kind") == KIND else None
    if not isinstance(found, dict) or not all(
        isinstance(one, (int, float)) and 0 <= one <= NOISE_MAX for one in found.values()
    ):
        raise UsageError(f"{source}: not what `compare A A` writes: give its {FILE}")
    return found
