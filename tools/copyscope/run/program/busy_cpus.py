"""Whether the CPUs of a program are never idle: how it is sampled follows from that (sampler.h).

A timer of a CPU comes late for a program that wakes up while the CPU is idle: it saw 28 to 77 % of what such
a program did. Where another task runs whenever this one does not, it sees all, and no thread pays at each
switch for a timer of its own.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice

from copyscope.run.program import processes

# /proc/stat counts in ticks of 10 ms: after a second one more or less is 1 %.
LEAST_S = 1.0
IDLE_TICKS_MOST_PER_S = 1.0
# With more threads, timers of threads stay where they are and are not opened for each burst.
THREADS_MOST = 64


@dataclass(frozen=True)
class Look:
    """What /proc said at one moment."""

    at_s: float
    idle_ticks: dict[int, int]


def parse_idle_ticks(stat: str) -> dict[int, int]:
    """By CPU, also of waiting for a disk, since boot; of the text of /proc/stat (proc_stat(5))."""
    rows = (line.split() for line in stat.splitlines() if line.startswith("cpu") and line[3].isdecimal())
    return {int(row[0][3:]): int(row[4]) + int(row[5]) for row in rows}


def allowed(pids: Iterable[int]) -> set[int] | None:
    """The CPUs on which their threads may run; None where they have too many threads to ask, or none."""
    every = chain.from_iterable(map(processes.threads, pids))
    threads = list(islice(every, THREADS_MOST + 1))
    if len(threads) > THREADS_MOST:
        return None
    found: set[int] = set()
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found |= os.sched_getaffinity(int(thread.rpartition("/")[2]))
    return found or None


class BusyCpus:
    """look() now and then; what has passed between two looks is the answer."""

    def __init__(self) -> None:
        self._last: Look | None = None

    def look(self, pids: Iterable[int]) -> bool | None:
        """Whether all CPUs that they may use were busy since the last look; None: that is too short ago."""
        now_s = time.monotonic()
        if self._last is not None and now_s - self._last.at_s < LEAST_S:
            return None
        last = self._last
        try:
            stat = processes.read_file(f"{processes.PROC}/stat").decode(errors="replace")
        except OSError:
            return None
        self._last = Look(now_s, parse_idle_ticks(stat))
        return None if last is None else were_busy(last, self._last, allowed(pids))


def were_busy(last: Look, now: Look, cpus: set[int] | None) -> bool:
    """Whether all of these CPUs were; not where they are not known."""
    most = IDLE_TICKS_MOST_PER_S * (now.at_s - last.at_s)
    return cpus is not None and all(
        cpu in last.idle_ticks and now.idle_ticks.get(cpu, 0) - last.idle_ticks[cpu] <= most for cpu in cpus
    )
