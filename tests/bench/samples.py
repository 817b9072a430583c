"""Paired comparisons: ours against a peer, from runs taken in turns."""

import os
from dataclasses import dataclass
from typing import Any

from copyscope.stats import paired_ratio

SEED = 1
# Fewer only to try a benchmark out: ten pairs are the least that bears a conclusion here.
BLOCKS = int(os.environ.get("COPYSCOPE_BENCH_BLOCKS", "10"))


@dataclass(frozen=True)
class Comparison:
    """Median ratio ours/peer of a quantity over blocks, with its interval."""

    ours: str
    peer: str
    quantity: str
    factors: dict[str, Any]
    ours_median: float
    peer_median: float
    ratio: float
    low: float
    high: float
    pairs: int


def median(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def compare(
    samples: dict[str, list[dict[str, float]]], ours: str, peer: str, quantity: str, factors: dict[str, Any]
) -> Comparison:
    """`samples` holds for each contestant one sample a block, in the order of the blocks."""
    a = [sample[quantity] for sample in samples[ours]]
    b = [sample[quantity] for sample in samples[peer]]
    made = paired_ratio(list(zip(a, b, strict=True)), SEED)
    return Comparison(
        ours,
        peer,
        quantity,
        factors,
        median(a),
        median(b),
        made.value,
        made.interval.low,
        made.interval.high,
        len(a),
    )
