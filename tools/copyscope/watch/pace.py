"""How fast a program goes while nothing is attached, by TCP's own counts; and what our own work takes.

A few short slices before the first hook comes and after the last has gone: METHOD.md, "What stays attached".
"""

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from copyscope.watch import processes
from copyscope.watch.connections import Connection

# First the program gets over what we did until now: loading programs, or taking them away, costs it time, and
# its connections find back to their pace only then. Without this, watching seemed to make it faster.
SETTLE_S = 0.5
SLICES = 4
SLICE_MIN_S, SLICE_MAX_S = 0.1, 0.15
# Of the measuring time: what a slice of each side takes.
SLICE_SHARE = 1 / 20


@dataclass(frozen=True)
class Reading:
    """What each open TCP connection had moved, both ways, at one moment (CLOCK_MONOTONIC)."""

    t_ns: int
    moved_bytes: dict[int, int]  # by inode


def slice_s(duration_s: float | None) -> float:
    """How long one slice is: a short run does not wait long for its own control."""
    if duration_s is None:
        return SLICE_MAX_S
    return min(SLICE_MAX_S, max(SLICE_MIN_S, duration_s * SLICE_SHARE))


def read(
    look: Callable[[], dict[int, Connection] | None], length_s: float, sleep: Callable[[float], object]
) -> list[Reading]:
    """The ends of SLICES slices; none where the kernel does not say."""
    found: list[Reading] = []
    sleep(SETTLE_S)
    for number in range(SLICES + 1):
        if number:
            sleep(length_s)
        seen = look()
        if seen is None:
            return []
        moved = {inode: c.written + c.taken for inode, c in seen.items() if c.state == "ESTAB"}
        found.append(Reading(time.monotonic_ns(), moved))
    return found


def own_cpu_ns(children: Iterable[int], *, ended: bool) -> int:
    """CPU time of this process, of the children named, and (`ended`) of all that have ended so far."""
    spent = time.process_time_ns() + sum(processes.cpu_ns(pid) or 0 for pid in children)
    if ended:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent += round((used.ru_utime + used.ru_stime) * 1e9)
    return spent
