"""Paired comparisons: ours against a peer, from runs taken in turns."""

import math
import os
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from copyscope.stats import paired_ratio, student

SEED = 1
# What is x % slower makes a program about x % slower; a line through few pairs may be far steeper by chance.
STEEPEST = 2.0
# Fewer only to try a benchmark out: ten pairs are the least that bears a conclusion here.
BLOCKS = int(os.environ.get("COPYSCOPE_BENCH_BLOCKS", "10"))
Comparison = dict[str, Any]


def compare(
    samples: dict[str, list[dict[str, float]]], ours: str, peer: str, quantity: str, factors: dict[str, Any]
) -> Comparison:
    """Median ratio ours/peer of a quantity, with its interval.

    `samples` holds for each contestant one sample a block, in the order of the blocks.
    """
    a, b = ([sample[quantity] for sample in samples[who]] for who in (ours, peer))
    made = paired_ratio(list(zip(a, b, strict=True)), SEED)
    return {
        **{"ours": ours, "peer": peer, "quantity": quantity, "factors": factors},
        **{"ours_median": median(a), "peer_median": median(b), "ratio": made.value},
        **{"low": made.interval.low, "high": made.interval.high, "pairs": len(a)},
    }


def compare_paced(
    samples: dict[str, list[dict[str, float]]], ours: str, peer: str, quantity: str, factors: dict[str, Any]
) -> Comparison:
    """The same, less what the pace of the machine (`pace_ns` of each sample) did to it; as found: `raw`."""
    raw = compare(samples, ours, peer, quantity, factors)
    ratios, paces = (
        [math.log(a[key] / b[key]) for a, b in zip(samples[ours], samples[peer], strict=True)]
        for key in (quantity, "pace_ns")
    )
    centre, half, slope = regressed(ratios, paces)
    made = {"ratio": math.exp(centre), "low": math.exp(centre - half), "high": math.exp(centre + half)}
    return raw | made | {"slope": slope, "raw": {key: raw[key] for key in made}}


def regressed(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Where the line through them meets 0 of the others, half of its 95 % interval, and its slope.

    Least squares, no steeper than STEEPEST; the error of the slope is in the interval. Raises ValueError
    for fewer than three.
    """
    count, mean, other = len(values), fmean(values), fmean(others)
    if count < 3:
        raise ValueError(f"a line: {count} pairs: at least three")
    spread = sum((x - other) ** 2 for x in others)
    slope = sum((x - other) * y for x, y in zip(others, values, strict=True)) / spread if spread else 0.0
    slope = max(-STEEPEST, min(STEEPEST, slope))
    centre = mean - slope * other
    rest = sum((y - centre - slope * x) ** 2 for x, y in zip(others, values, strict=True)) / (count - 2)
    error = math.sqrt(rest * (1 / count + (other**2 / spread if spread else 0.0)))
    return centre, student(0.95, count - 2) * error, slope
