"""How long a side ran: the number that all shares of the side are shares of.

perf's task-clock when it was counted, else the process CPU clock. The two differ for a process that sleeps
often: the CPU clock starts when the wake-up is queued, not when the task is switched in, because the
scheduler skips a clock update between the two (rq_clock_skip_update() in wakeup_preempt(),
kernel/sched/core.c). So it bills the wake-up latency, 1 us on bare metal and 10 us in some virtual machines,
once per sleep.

perf starts and stops counting a process and its children between segments; on a busy machine it was seen to
miss most of a program that forks hundreds of times a second. Where it has less than half of what the CPU
clocks have beyond doubt, these count.
"""

from dataclasses import dataclass
from typing import Literal

from copyscope.record.instruments import Counter
from copyscope.record.measured import Measured
from copyscope.record.segments import machine_of, select, total, why_no_ledger

# Of the latency of one wake-up the CPU clock bills at most so much.
WAKE_UP_MOST_NS = 20_000

Source = Literal["task-clock", "CPU clock"]


@dataclass(frozen=True)
class CpuTime:
    """CPU time of one side's process over the ledger segments."""

    ns: int
    source: Source
    # How often it went to sleep, and how often it left the CPU at all: by sleeping or for another task.
    switches: int
    departures: int


def cpu_time(raw: Measured, side: str) -> CpuTime:
    """The CPU time of a side, with where it comes from."""
    segments = select(raw.run.segments, "ledger")
    switches = total(segments, side, "voluntary_switches")
    counted = _counted(raw, side, "task-clock")
    displaced = total(segments, side, "involuntary_switches")
    departures = max(switches + displaced, round(_counted(raw, side, "context-switches") or 0))
    clocked = total(segments, side, "process_cpu_ns")
    certain = clocked - WAKE_UP_MOST_NS * departures if side == "target" else 0
    if counted is not None and segments and 2 * counted >= certain:
        return CpuTime(round(counted), "task-clock", switches, departures)
    return CpuTime(clocked, "CPU clock", switches, departures)


def counters_of(raw: Measured, side: str) -> dict[str, Counter]:
    """What perf counted of a side, by event."""
    return raw.counters.get(side, {})


def _counted(raw: Measured, side: str, event: str) -> float | None:
    """What perf counted of a side; None where it did not."""
    found = counters_of(raw, side).get(event)
    return None if found is None else found.value


def why_no_time(raw: Measured, side: str) -> str | None:
    """Why the CPU time of a side is not known; None when it is. Nothing runs in no time at all."""
    if cpu_time(raw, side).ns:
        return None
    return why_no_ledger(raw.run) or (
        "no CPU clock of its processes went on in the ledger segments: they slept, or had ended before they "
        "were looked at"
    )


def excludes_softirq(raw: Measured, side: str) -> bool:
    """Whether the side's CPU time leaves softirq work out.

    The CPU clock of a kernel with CONFIG_IRQ_TIME_ACCOUNTING does; task-clock never does.
    """
    return cpu_time(raw, side).source == "CPU clock" and bool(machine_of(raw, side).irq_time_accounting)
