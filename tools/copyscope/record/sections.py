"""What every section of a record is made of, and the parts that several sections share. Pure.

A record is msgspec Structs: what was measured (measured.py), and what follows from it (derived.py). Keys that
they do not name are left alone. What a run does not have is not in its record.
"""

from typing import ClassVar

from msgspec import Struct

# docs/reference/record.md says what the numbers of a row are.
Rows = list[list[int]]
Reasons = dict[str, str]


class Section(Struct):
    """A JSON object with at least these keys. One that may be missing has a default."""


class Explained(Section):
    """Each null of it has its reason, under the same key in `reasons`."""

    # Keys that are null with another one, whose reason it is.
    NULL_WITH_ANOTHER: ClassVar[frozenset[str]] = frozenset()
    reasons: Reasons

    def __post_init__(self) -> None:
        defaults = zip(self.__struct_fields__[::-1], self.__struct_defaults__[::-1], strict=False)
        silent = self.NULL_WITH_ANOTHER.union(name for name, default in defaults if default is None)
        for name in self.__struct_fields__:
            if getattr(self, name) is None and name not in silent and not self.reasons.get(name):
                raise ValueError(f"{name}: null without a reason")


class Reasoned(Section):
    """Its main number may be null; `reason` then says why."""

    MAIN: ClassVar[str]
    reason: str | None

    def __post_init__(self) -> None:
        if getattr(self, self.MAIN) is None and not self.reason:
            raise ValueError(f"{self.MAIN}: null without a reason")


class Interval(Section):
    """Where the true value lies, so often as `level` says."""

    low_ns: float
    high_ns: float
    level: float


class ClockState(Section):
    """What decides how fast the CPUs' clock is; null: this machine has none, or it was not read (two hosts).

    governor: of cpufreq, of the CPUs of the run; several where they differ
    energy_preference: what the processor itself is to prefer (EPP), likewise
    turbo: faster clocks than the nominal one are allowed
    platform_profile: of the firmware: `performance`, `balanced`, `low-power`
    throttles: times that heat slowed a core or a package down since boot
    """

    governor: str | None
    energy_preference: str | None
    turbo: bool | None
    platform_profile: str | None
    on_battery: bool | None
    throttles: int | None


class MachineLoad(Section):
    """How busy the machine was from the first measured segment to the last, and its clock at both ends.

    busy_ns: neither idle nor stolen, in ticks of 10 ms
    softirq_ns: of it in interrupts and softirqs
    steal_ns: taken by the hypervisor while a CPU wanted to run
    own_ns: copyscope, the collector, perf
    cpus: on which one of the sides may run
    peers_ns: of a watched program: processes of this machine that it talked to from the begin on
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


class Histogram(Section):
    """How often which values came: [low, high, count]."""

    unit: str
    buckets: Rows
