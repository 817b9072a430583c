"""Whether the CPUs of a program are never idle: how it is sampled follows from that (sampler.h).

A timer of a CPU comes late for a program that wakes up while the CPU is idle: it saw 28 to 77 % of what such
a program did. Where another task runs whenever this one does not, it sees all, and no thread pays at each
switch for a timer of its own.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain, islice

from copyscope.machine import fingerprint
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


def allowed(pids: Iterable[int]) -> frozenset[int]:
    """The CPUs on which their threads may run; none where they have too many threads to ask, or none."""
    every = chain.from_iterable(map(processes.threads, pids))
    threads = list(islice(every, THREADS_MOST + 1))
    if len(threads) > THREADS_MOST:
        return frozenset()
    return fingerprint.usable_cpus(int(thread.rpartition("/")[2]) for thread in threads)


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
            times = fingerprint.times_of_cpus()
        except OSError:
            return None
        self._last = Look(now_s, {cpu: one.idle for cpu, one in times.items()})
        return None if last is None else were_busy(last, self._last, allowed(pids))


def were_busy(last: Look, now: Look, cpus: Collection[int]) -> bool:
    """Whether all of these CPUs were; not where they are not known."""
    most = IDLE_TICKS_MOST_PER_S * (now.at_s - last.at_s)
    return bool(cpus) and all(
        cpu in last.idle_ticks and now.idle_ticks.get(cpu, 0) - last.idle_ticks[cpu] <= most for cpu in cpus
    )
