"""Paired comparisons: ours against a peer, from runs taken in turns."""

import os
from statistics import median
from typing import Any

from copyscope.stats import ratio_of

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
    made = ratio_of(list(zip(a, b, strict=True)))
    return {
        **{"ours": ours, "peer": peer, "quantity": quantity, "factors": factors},
        **{"ours_median": median(a), "peer_median": median(b), "ratio": made.value},
        **{"low": made.low, "high": made.high, "pairs": len(a)},
    }
