# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: what a send pays for being watched, and what it pays while another program is watched.

The sender of `watch_bench` sends at full speed, in messages of 16 B to 64 KiB, with 1 and 16 threads. It
uses both CPUs, so copyscope's own work counts as well. Each row is measured in pairs, in random order: LOAD_S
while the sender, or an idle neighbour, is watched, and LOAD_S without.
"""

import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conclusions import goal_of, reached, size
from samples import BLOCKS, Comparison, compare
from watch_bench import SETTLE_S, Load, rate, sender, watched

LOAD_S = 3.0
SIZES_BYTES = (16, 64, 512, 65536)
THREADS = (1, 16)
NEIGHBOUR_BYTES = 16


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Yield a result for each size and number of threads, then for a sender beside a watched neighbour."""
    shuffler = random.Random(seed)
    for threads in THREADS:
        for size_bytes in SIZES_BYTES:
            with sender(cpus, size_bytes, threads) as load:
                yield _pairs(load, load.pid, {"threads": threads, "watched": "sender"}, shuffler)
    with sender(cpus, NEIGHBOUR_BYTES) as load, subprocess.Popen(["sleep", "infinity"]) as neighbour:
        try:
            yield _pairs(load, neighbour.pid, {"threads": 1, "watched": "neighbour"}, shuffler)
        finally:
            neighbour.kill()


def _pairs(
    load: Load, watched_pid: int, factors: dict[str, Any], shuffler: random.Random
) -> tuple[list[Comparison], dict[str, Any]]:
    time.sleep(SETTLE_S)
    samples: dict[str, list[dict[str, float]]] = {"watched": [], "alone": []}
    with tempfile.TemporaryDirectory() as scratch:
        for pair in range(BLOCKS):
            for state in shuffler.sample(list(samples), k=2):
                record = Path(scratch) / f"{pair}.json"
                sample = (
                    watched(load, watched_pid, record, LOAD_S)
                    if state == "watched"
                    else {"bytes_per_s": rate(load, LOAD_S)}
                )
                samples[state].append(sample)
    factors = {"size_bytes": load.size_bytes, **factors}
    comparison = compare(samples, "watched", "alone", "bytes_per_s", factors)
    return [comparison], {**factors, "comparisons": [comparison], "samples": samples}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """Return the section of results/bench/README.md."""
    text = [
        "Sends per second of a sender at full speed while it, or an idle neighbour, is watched, compared",
        "with the same without copyscope. `a send pays` is the difference of the time per send in ns, with",
        "its 95 % interval: the hooks that count each send, samples and copyscope's own work on the CPUs.",
        "",
        "| message | threads | watched | sends kept | sends/s alone | a send pays (ns) | goal | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for item in raw:
        (comparison,) = item["comparisons"]
        goal, size_bytes = goal_of("sends", comparison), item["size_bytes"]
        alone = comparison["peer_median"] / size_bytes
        paid, *ends = (f"{1e9 / alone * (1 / comparison[key] - 1):,.0f}" for key in ("ratio", "high", "low"))
        cells = [
            size(size_bytes),
            str(item["threads"]),
            item["watched"],
            f"{comparison['ratio']:.3f} ({comparison['low']:.3f} to {comparison['high']:.3f})",
            f"{alone:,.0f}",
            f"{paid} ({' to '.join(ends)})",
            f"{goal:g}",
            str(reached(comparison, goal)),
        ]
        text.append(f"| {' | '.join(cells)} |")
    return text
