"""Whose timers sample a watched program (sampler.h): for a burst, for good, or those of its CPUs. Pure.

The timers that are opened for a burst begin with a whole period, 100 us of the thread's time. A thread that
has less to do in a burst than that is never seen: of twelve processes that worked for 60 us and slept for 8
ms a two-hundredth of the CPU time was. Timers that stay keep what is left of a period. They make each
switch of a thread dearer by about 0.4 us, so a program that is switched all the time has none between
bursts; it works for many periods in each.
"""

from typing import Literal

from copyscope.run.program.processes import Use

Kind = Literal["bursts", "threads", "cpus"]
# Timers that stay take at most 0.2 % of a CPU.
SWITCHES_FEW_PER_S = 5_000


class Timers:
    """What is told to the collector; it begins with timers for a burst."""

    def __init__(self) -> None:
        self._kind: Kind = "bursts"
        self._by_cpus = False
        self._stay = False

    def add(self, used: Use, elapsed_s: float) -> None:
        """What the program has used in a segment that took so long."""
        self._stay = used.switches < SWITCHES_FEW_PER_S * elapsed_s

    def choose(self, *, busy: bool | None) -> Kind | None:
        """The timers from now on, where they change; `busy`: all CPUs of the program, None: not known now."""
        if busy is not None:
            self._by_cpus = busy
        kind: Kind = "cpus" if self._by_cpus else "threads" if self._stay else "bursts"
        if kind == self._kind:
            return None
        self._kind = kind
        return kind
