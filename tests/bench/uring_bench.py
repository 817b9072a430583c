"""How fast is the traffic through io_uring, against a bare loop of liburing, over the same path?"""

from collections.abc import Callable, Iterator
from typing import Any

from copyscope import paths
from samples import BLOCKS, Comparison
from traffic_bench import Contest, Transfer, results_of

SIZES_BYTES = (1024, 16384, 65536)
BARE_URING = paths.OUTPUT / "tests" / "bare_uring"
# What the bare loop sends without a copy from: another page more in a send costs as much as what is compared.
BUFFERS = ("--working-set", "16", "--align", "page")


class RingContest(Contest):
    """Both ways through a ring, one connection."""

    PAIRS = (("uring_send", "bare_uring_send"), ("uring_zc", "bare_uring_zc"))

    def contestants(self) -> dict[str, Callable[[], Transfer]]:
        return {
            "uring_send": lambda: self.ours("uring_send"),
            "uring_zc": lambda: self.ours("uring_zc", memory=BUFFERS),
            "bare_uring_send": lambda: self.bare(str(BARE_URING), "send"),
            "bare_uring_zc": lambda: self.bare(str(BARE_URING), "zc"),
        }


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each size: comparisons, and every sample."""
    return results_of(RingContest, [(size_bytes, 1) for size_bytes in SIZES_BYTES], BLOCKS, seed, cpus)
