"""How fast a program goes while nothing is attached, by TCP's own counts.

A few short slices before the first hook comes and after the last has gone: docs/method/watching.md.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from copyscope.run.program.connections import Connection

# First the program gets over what we did until now: loading programs, or taking them away, costs it time, and
# its connections find back to their pace only then. Without this, watching seemed to make it faster.
SETTLE_S = 0.5
SLICES = 4
# Each look takes a little from who is looked at: slices of 0.1 s stated 1.2 points of 4 too little.
SLICE_S = 0.25
READ_S = SETTLE_S + SLICES * SLICE_S


class Seldom:
    """Something that takes CPU time from the watched program, so seldom that it is this share of one CPU."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._next_s = self._began_s = self._began_cpu_s = 0.0

    def are_cheap(self) -> bool:
        return time.monotonic() >= self._next_s

    def __enter__(self) -> None:
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._next_s = self._began_s + (time.process_time() - self._began_cpu_s) / self._share


@dataclass(frozen=True)
class Reading:
    """What each open TCP connection had moved, both ways, at one moment (CLOCK_MONOTONIC)."""

    t_ns: int
    moved_bytes: dict[int, int]  # by inode


def read(look: Callable[[], dict[int, Connection] | None], sleep: Callable[[float], object]) -> list[Reading]:
    """The ends of SLICES slices; none where the kernel does not say."""
    found: list[Reading] = []
    sleep(SETTLE_S)
    for number in range(SLICES + 1):
        if number:
            sleep(SLICE_S)
        seen = look()
        if seen is None:
            return []
        moved = {inode: c.written + c.taken for inode, c in seen.items() if c.established}
        found.append(Reading(time.monotonic_ns(), moved))
    return found


def calls(begin: Mapping[str, Any], end: Mapping[str, Any]) -> int:
    """How many calls passed the socket between two readings of the hooks."""
    first, last = (
        sum(row["calls"] for row in reading["volume"] if row["direction"] in ("send", "receive"))
        for reading in (begin, end)
    )
    return int(last - first)
