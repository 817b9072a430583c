# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: speed of the traffic through io_uring, compared with a bare loop of liburing."""

from collections.abc import Callable, Iterator
from typing import Any

from copyscope.base import paths
from samples import BLOCKS, Comparison
from traffic_bench import Contest, Transfer, results_of

SIZES_BYTES = (1024, 16384, 65536)
BARE_URING = paths.OUTPUT / "tests" / "bare_uring"
# Buffers of the bare zero-copy loop. Ours are equal, because another page per send would cost as much as the
# difference.
BUFFERS = ("--working-set", "16", "--align", "page")


class RingContest(Contest):
    """Contest of both ways to send by io_uring, with one connection."""

    PAIRS = (("uring_send", "bare_uring_send"), ("uring_zc", "bare_uring_zc"))

    def contestants(self) -> dict[str, Callable[[], Transfer]]:
        return {
            "uring_send": lambda: self.ours("uring_send"),
            "uring_zc": lambda: self.ours("uring_zc", memory=BUFFERS),
            "bare_uring_send": lambda: self.bare(str(BARE_URING), "send"),
            "bare_uring_zc": lambda: self.bare(str(BARE_URING), "zc"),
        }


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Yield a result for each message size: comparisons, and all samples."""
    return results_of(RingContest, [(size_bytes, 1) for size_bytes in SIZES_BYTES], BLOCKS, seed, cpus)
