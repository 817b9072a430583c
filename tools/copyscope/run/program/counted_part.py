"""perf's counts of a part of the ledger segments, scaled to all of them by what /proc says.

A task with events of perf is dearer to switch, switched on or not: two programs that exchange
one byte 45,000 times a second lost 20 % of their requests. So perf counts for half a second, and ends.
"""

from dataclasses import replace

from copyscope.run.counters import Counter
from copyscope.run.program.processes import Use

COUNTED_S = 0.5
# Of a program that slept all that time too little is known.
CPU_LEAST_NS = 10_000_000
# What happens when it leaves the CPU or comes back; all else happens while it runs.
OF_SWITCHES = ("context-switches", "cpu-migrations")


class CountedPart:
    """`counters`: what perf counted; None until it has ended."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] | None = None
        self._counted = self._whole = Use()

    def keep(self, counters: dict[str, Counter], used: Use) -> None:
        """perf has ended; `used`: by then, in the ledger segment that lasts."""
        self.counters, self._counted = counters, self._whole + used

    def add(self, used: Use) -> None:
        """One whole ledger segment."""
        self._whole += used

    def whole(self) -> dict[str, Counter]:
        """The counts of all ledger segments. What was not counted stays so; `running` is the counted part."""
        assert self.counters is not None
        time = _part(self._counted.cpu_ns, self._whole.cpu_ns)
        switches = _part(self._counted.switches, self._whole.switches)
        return {
            name: _scaled(one, switches if name in OF_SWITCHES else time)
            for name, one in self.counters.items()
        }


def _part(counted: int, whole: int) -> float:
    return counted / whole if 0 < counted < whole else 1.0


def _scaled(one: Counter, part: float) -> Counter:
    if one.value is None or one.running is None or part == 1:
        return one
    parts = one.parts and [
        replace(p, value=None if p.value is None else round(p.value / part), running=p.running * part)
        for p in one.parts
    ]
    return replace(
        one, value=round(one.value / part), status="scaled", running=one.running * part, parts=parts
    )
