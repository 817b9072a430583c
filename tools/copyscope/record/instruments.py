"""What the instruments measured: counters, hooks, system calls, functions, samples. Pure."""

from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from copyscope.record.sections import Histogram, Reasoned, Section


class Counter(Reasoned):
    """One event of `perf stat` over the ledger segments."""

    MAIN: ClassVar[str] = "value"
    value: float | None
    unit: str
    status: str
    running: float | None
    parts: list[Any] | None


class HookBytes(Section):
    """Payload that passed a hook."""

    side: str
    hook: str
    calls: int
    bytes: int
    zerocopy_calls: int | None
    zerocopy_bytes: int | None
    spliced_calls: int | UnsetType = UNSET
    spliced_bytes: int | UnsetType = UNSET


class Call(Section):
    """A system call of one side."""

    side: str
    syscall: str
    calls: int
    bytes: int
    on_cpu_ns: int | None
    softirq_ns: int | None
    blocked_ns: int | None
    timed_calls: int
    histogram: Histogram | None
    arm: str
    counted_at: str | UnsetType = UNSET
    largest_bytes: int | UnsetType = UNSET
    softirq_histogram: Histogram | UnsetType | None = UNSET
    blocked_histogram: Histogram | UnsetType | None = UNSET


class FunctionCell(Section):
    """What functions of one category did on one side's time."""

    side: str
    context: str
    category: str
    calls: int
    bytes: int
    timed_calls: int
    self_ns: int
    self_ns_squared: float
    counters: dict[str, int]


class FunctionRoot(Section):
    """Sends, receives and softirqs that were followed."""

    side: str
    calls: int
    timed_calls: int
    inclusive_ns: int
    counters: dict[str, int]


class CopyOwner(Section):
    """Deferred copies by whose memory it was and on whose time they ran."""

    owner_side: str | None
    current_side: str
    context: str | None
    calls: int
    bytes: int


class Completions(Section):
    """Zero-copy sends whose notification was queued."""

    side: str
    copied: int
    zerocopied: int


class CompletionLatency(Section):
    """From the return of a zero-copy send to its notification."""

    side: str
    count: int
    before_return: int
    histogram: Histogram


class Event(Section):
    """An event that was sampled."""

    name: str
    unit: str
    status: str
    reason: str | None


class CountedEvent(Event):
    """An event that function hooks read."""

    running: float | None


class AddedCount(Section):
    """What one read of all counters adds to one of them."""

    name: str
    count: float
    low: float
    high: float


class ReadCost(Section):
    """What it costs to read the clock and the counters once."""

    reads: int
    events: int
    median_ns: float
    low_ns: float
    high_ns: float
    clock_ns: float
    added: list[AddedCount]
    look_ns: float | UnsetType = UNSET


class Functions(Section):
    """The exact tier: hooks at the entry and the exit of functions."""

    cells: list[FunctionCell]
    roots: list[FunctionRoot]
    page_bytes: int
    owners: list[CopyOwner] | None
    completions: list[Completions] | None
    completion_latency: list[CompletionLatency] | None
    gate: int
    events: list[CountedEvent]
    read_cost: ReadCost | None


class Hook(Section):
    """A place in the kernel, and whether a program could be attached to it."""

    id: str
    instrument: str
    symbol: str
    state: str
    how: str | None
    reason: str | None
    required: bool
    category: str | UnsetType | None = UNSET
    # Of runs on two hosts: on which side's.
    side: str | UnsetType = UNSET


class Burst(Section):
    """The bursts in which the timers of one side were armed."""

    period_ns: int
    armed_ns: int
    count: int
    samples: int
    samples_squared: int
    cpu_ns: int | UnsetType | None = UNSET
    # Over the bursts, of samples x period less cpu_ns.
    difference_us_squared: int | UnsetType | None = UNSET
    # In how many of them timers of the CPUs took the samples of a watched program.
    by_cpus: int | UnsetType = UNSET


class Sampler(Section):
    """What was sampled, and how often."""

    events: list[Event]
    frequency_hz: float
    taxonomy_version: str
    enabled_ns: int
    bursts: dict[str, Burst] | None
    # Of runs on two hosts: each side's; of everybody else both together.
    sides_enabled_ns: dict[str, int] | UnsetType = UNSET

    def enabled_ns_of(self, side: str) -> int:
        """For how long the timers of a side were to be armed."""
        sides = {} if self.sides_enabled_ns is UNSET else self.sides_enabled_ns
        return sides.get(side, self.enabled_ns)


class Sampled(Section):
    """What a rule of the taxonomy gave to an account or stage."""

    side: str
    context: str
    event: str
    kind: str
    category: str
    samples: int
    weight: float
    tie: str | UnsetType | None = UNSET
    # Those that were taken in bursts: by group of bursts.
    samples_of_group: list[int] | UnsetType = UNSET


class Sample(Sampled, kw_only=True):
    """Stacks with the same deciding symbol."""

    symbol: str


class Stack(Sampled, kw_only=True):
    """One stack, `root;...;leaf`."""

    frames: str
