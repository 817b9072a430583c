# SPDX-License-Identifier: GPL-2.0-only
"""Base classes of the sections of a record, and parts that several sections share. Pure.

A record consists of msgspec Structs: measurements (measured.py) and results computed from them (derived.py).
Reading a record ignores keys that no Struct names. A section that a run does not have is left out.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct, structs

# Buckets of a histogram that are not empty: [low, high, count], or [low, count] if `high` is 2 * low.
Buckets = list[Annotated[list[int], Meta(min_length=3, max_length=3)]]
SizeCounts = list[Annotated[list[int], Meta(min_length=2, max_length=2)]]
# Reason for each null in a few words, by the key that is null.
Reasons = dict[str, str]


class Section(Struct):
    """JSON object with at least the keys of this class. A key that may be missing has a default."""


class Explained(Section):
    """Section that gives the reason for each null, under the same key in `reasons`.

    A key that is null by default needs no reason.
    """

    reasons: Reasons

    def __post_init__(self) -> None:
        """Raise ValueError for a null that has no reason."""
        defaults = zip(self.__struct_fields__[::-1], self.__struct_defaults__[::-1], strict=False)
        null_by_default = {name for name, default in defaults if default is None}
        for name, value in structs.asdict(self).items():
            if value is None and name not in null_by_default and not self.reasons.get(name):
                raise ValueError(f"{name}: null without a reason")


class Reasoned(Section):
    """Section that gives a reason in `reason` if its main number (the key named by MAIN) is null."""

    MAIN: ClassVar[str]
    reason: str | None

    def __post_init__(self) -> None:
        if structs.asdict(self)[self.MAIN] is None and not self.reason:
            raise ValueError(f"{self.MAIN}: null without a reason")


class RecordedInterval(Section):
    """Interval that contains the true value with the probability `level`."""

    low_ns: float
    high_ns: float
    level: float


class ClockState(Section):
    """Settings that determine the clock rate of the CPUs. Null: this machine lacks the setting.

    governor, energy_preference: cpufreq governor and EPP; all values if the CPUs differ
    throttles: number of slowdowns by heat since boot
    """

    governor: str | None
    energy_preference: str | None
    turbo: bool | None
    platform_profile: str | None
    on_battery: bool | None
    throttles: int | None


class QuotaStops(Section):
    """Threads that a cgroup's CPU quota stopped.

    stops: number of periods with a stop
    stopped_ns: duration of the stops, summed over CPUs
    """

    cgroup: str
    stops: int
    stopped_ns: int


class MachineLoad(Section):
    """CPU time that the machine used from the first measured segment to the last, in ticks of 10 ms.

    busy_ns: CPU time that was neither idle nor stolen
    softirq_ns: part of `busy_ns` in interrupts and softirqs
    steal_ns: CPU time that the hypervisor gave to other guests
    own_ns: CPU time of copyscope, the collector and perf
    sides_ns: CPU time of the measured processes
    cpus: number of CPUs that the measured processes may use
    clock_before, clock_after: clock settings before and after the run; null on two hosts
    peers_ns: CPU time of local processes at the other end of its connections
    siblings: number of other hyper-threads of the same cores
    siblings_ns: CPU time of tasks on these siblings
    quotas: cgroups that a CPU quota stopped
    """

    wall_ns: int | None
    busy_ns: int | None
    softirq_ns: int | None
    steal_ns: int | None
    own_ns: int | None
    sides_ns: int | None
    reasons: Reasons
    cpus: int | None
    clock_before: ClockState | None = None
    clock_after: ClockState | None = None
    peers_ns: int = 0
    siblings: int | None = None
    siblings_ns: int | None = None
    quotas: list[QuotaStops] | None = None


class Histogram(Section):
    """Histogram: `[low, high, count]` of each bucket that is not empty."""

    unit: str
    buckets: Buckets
