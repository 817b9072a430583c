# SPDX-License-Identifier: GPL-2.0-only
"""Paired comparisons of copyscope with another tool, from alternating runs."""

import os
from statistics import median
from typing import Any

from copyscope.base.stats import ratio_of

# Blocks of runs. Ten pairs are the minimum for a conclusion here; use fewer only to try a benchmark.
BLOCKS = int(os.environ.get("COPYSCOPE_BENCH_BLOCKS", "10"))
Comparison = dict[str, Any]


def compare(
    samples: dict[str, list[dict[str, float]]], ours: str, peer: str, quantity: str, factors: dict[str, Any]
) -> Comparison:
    """Return the median ratio ours/peer of a quantity, with its interval.

    `samples` has one sample per block for each contestant, in the order of the blocks.
    """
    our_values, peer_values = ([sample[quantity] for sample in samples[name]] for name in (ours, peer))
    ratio = ratio_of(list(zip(our_values, peer_values, strict=True)))
    return {
        **{"ours": ours, "peer": peer, "quantity": quantity, "factors": factors},
        **{"ours_median": median(our_values), "peer_median": median(peer_values), "ratio": ratio.value},
        **{"low": ratio.low, "high": ratio.high, "pairs": len(our_values)},
    }
