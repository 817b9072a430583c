"""perf's counts of a program that is switched often: of a short time, scaled by what /proc says of the whole.

A task with events of perf is dearer to switch, whether they are switched on or not. Two programs that
exchange one byte 45,000 times a second lost 7 to 20 % of their requests to the four software events of
`perf stat`, 4 % to the same switched off. A program that never sleeps is switched as often where the
tasks that it wakes up take its CPU: a sender on the CPU of its receiver lost 6.5 %.
"""

from dataclasses import replace

from copyscope.run.counters import Counter
from copyscope.run.program.processes import Use

# So long perf counts of one that is switched often; of a short segment at least LEAST_S, to know that it is.
BRIEF_S = 0.2
LEAST_S = 0.1
# To leave the CPU and to come back takes 1.5 us more with them: at this rate 0.5 % of a CPU.
SWITCHES_PER_S = 3000
# What happens when it leaves the CPU or comes back; all else happens while it runs.
OF_SWITCHES = ("context-switches", "cpu-migrations")


class BriefCounts:
    """Told of the ledger segments as they pass, it says when perf has counted for long enough."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] | None = None
        self._counted = self._whole = Use()

    def suffices(self, elapsed_s: float, used: Use) -> bool:
        """Whether perf is to end, so long after a ledger segment began."""
        return self.counters is None and elapsed_s >= LEAST_S and used.switches > SWITCHES_PER_S * elapsed_s

    def keep(self, counters: dict[str, Counter], used: Use) -> None:
        """What perf has counted in all segments that were added, and in the one that lasts."""
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
