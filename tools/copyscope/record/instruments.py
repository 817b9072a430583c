# SPDX-License-Identifier: GPL-2.0-only
"""Structs of measurements by instrument: counters, hooks, system calls, functions, samples. Pure."""

from typing import ClassVar

from copyscope.record.sections import Histogram, Reasoned, Section


class CounterPart(Section):
    """Count from the PMU of one core type; `share`: part of the counting time spent on such cores."""

    pmu: str
    value: int | None
    running: float
    share: float | None


class Counter(Reasoned):
    """Event that `perf stat` counted for one process in the `ledger` segments.

    value: number of events; `tlb-flushes` excludes flushes by task switches
    status: `measured`, `scaled` (counted part of the time, then extrapolated) or `unsupported`
    running: part of the time in which the event was counted
    counts: event that is counted instead, if the PMU lacks the named event
    """

    MAIN: ClassVar[str] = "value"
    value: float | None
    unit: str
    status: str
    running: float | None
    parts: list[CounterPart] | None
    counts: str | None = None


class HookBytes(Section):
    """Payload that passed a hook in the segments of the phase `run.bytes_phase`.

    hook: `send_bytes` (into a socket), `receive_bytes` (out of a socket), `copy_out_bytes` (into memory of
        the receiver) or `uring_bytes` (completed io_uring requests)
    zerocopy_calls: calls with MSG_ZEROCOPY on a socket with SO_ZEROCOPY
    spliced_calls: calls of sendfile(2) or splice(2)
    """

    side: str
    hook: str
    calls: int
    bytes: int
    zerocopy_calls: int | None
    zerocopy_bytes: int | None
    spliced_calls: int | None = None
    spliced_bytes: int | None = None


class Call(Section):
    """Calls to one system call by one process.

    on_cpu_ns: CPU time from entry to exit, without softirqs
    softirq_ns: time of softirqs that interrupted the calls
    blocked_ns: time asleep or waiting for a CPU
    timed_calls: calls that began after the hooks were attached; the times are scaled up to `calls`
    histogram: distribution of `on_cpu_ns` over the calls
    largest_bytes: largest return value
    failed_calls, last_errno: failed calls other than EAGAIN and EINTR, and the last error
    """

    side: str
    syscall: str
    calls: int
    bytes: int
    on_cpu_ns: int | None
    softirq_ns: int | None
    blocked_ns: int | None
    timed_calls: int
    histogram: Histogram | None
    phase: str
    largest_bytes: int | None = None
    failed_calls: int = 0
    last_errno: int | None = None


class FunctionCell(Section):
    """Calls to an account's hooked functions.

    category: account
    timed_calls: calls whose duration and events were measured
    self_ns, self_ns_squared: duration of the timed calls, excluding interrupts, and sum of its squares
    counters: hardware events in the timed calls, including events that the hooks cause
    """

    side: str
    context: str
    category: str
    calls: int
    bytes: int
    timed_calls: int
    self_ns: int
    self_ns_squared: float
    counters: dict[str, int]


class CopyOwner(Section):
    """Late copies of data that one process sent.

    owner_side: process that sent the data; null: unknown
    current_side: process whose CPU time the copy used
    """

    owner_side: str | None
    current_side: str
    context: str | None
    calls: int
    bytes: int


class Completions(Section):
    """Completed zero-copy sends, by the COPIED flag of their notifications."""

    side: str
    copied: int
    zerocopied: int


class CompletionLatency(Section):
    """Time from the return of a zero-copy send to its notification; 0 ns if `before_return`."""

    side: str
    count: int
    before_return: int
    histogram: Histogram


class InterruptCost(Reasoned):
    """Events of one sampling interrupt itself, measured in test copies when the sampler opened.

    mean, deviation: mean in the unit of the event, and the standard deviation of this mean
    pairs: number of pairs of equal copies, one of each pair without interrupts
    """

    MAIN: ClassVar[str] = "mean"
    mean: float | None
    deviation: float | None
    pairs: int


class Event(Section):
    """Hardware or software event.

    status: `sampled`, `counted`, `scaled` (counted part of the time), `partial` (counted on some CPUs)
        or `unsupported`
    counts: event that is used instead, if the PMU lacks the named event
    per_interrupt: events of one sampling interrupt itself; the rows are without them. Null: software event
    """

    name: str
    unit: str
    status: str
    reason: str | None
    counts: str | None = None
    per_interrupt: InterruptCost | None = None


class CountedEvent(Event, kw_only=True):
    """Event that function hooks read.

    running: part of the time in which the event was counted
    cpus: CPUs on which a `partial` event was counted
    """

    running: float | None
    cpus: str | None = None


class ReadCost(Section):
    """Time that a hook takes to read clock and counters: median (`look_ns`) and confidence interval."""

    reads: int
    events: int
    look_ns: float
    low_ns: float
    high_ns: float


class Functions(Section):
    """Results of the exact tier: hooks at entry and exit of functions that copy.

    gate: one copy in this many was timed
    """

    cells: list[FunctionCell]
    owners: list[CopyOwner] | None
    completions: list[Completions] | None
    completion_latency: list[CompletionLatency] | None
    gate: int
    events: list[CountedEvent]
    read_cost: ReadCost | None


class Hook(Section):
    """Place in the kernel at which an instrument attaches a BPF program.

    symbol: kernel function or tracepoint
    state: `attached`, `available` (not needed), `missing`, `refused` or `unused` (a better hook is attached)
    how: `tp_btf`, `fentry`, `kprobe.multi`, `kprobe` or `call-site`
    required: true if the instrument does not work without this hook
    category: account of a hooked function
    side: process on whose host the hook is; only on two hosts
    """

    id: str
    instrument: str
    symbol: str
    state: str
    how: str | None
    reason: str | None
    required: bool
    category: str | None = None
    side: str | None = None


class Sampler(Section):
    """Settings of the sampler.

    frequency_hz: requested samples per second on each CPU
    taxonomy_version: version of the rules that map functions to accounts
    enabled_ns: time during which events were sampled
    """

    events: list[Event]
    frequency_hz: float
    taxonomy_version: str
    enabled_ns: int


class Sampled(Section):
    """Samples of one event that belong to one account or stage.

    side: process on the CPU; `other`: softirq work charged to another task
    context: `user`, `process` (in a system call) or `softirq`
    category: name of the account or stage
    weight, weight_squared: sum of the sampling periods, and of their squares, in the unit of the event
    tie: evidence that the samples belong to this run: `process` (its process was on the CPU), `packet` (its
        packet was handled) or `batch` (network work after its packet). Null: none; see `sides.elsewhere`
    """

    side: str
    context: str
    event: str
    kind: str
    category: str
    samples: int
    weight: float
    weight_squared: float
    tie: str | None = None


class Sample(Sampled, kw_only=True):
    """Samples that the same function (`symbol`) assigns to an account or stage.

    caller: kernel function that caused a late copy, if the stack shows it
    """

    symbol: str
    caller: str | None = None


class Stack(Sampled, kw_only=True):
    """Samples with the same stack.

    frames: functions as `root;...;leaf`; `[user]` is code outside the kernel
    """

    frames: str


class Loss(Section):
    """Lost events, and all events (`of`); `count`: null if the kernel does not count losses."""

    count: int | None
    of: int | None = None
    share: float | None = None
    reason: str | None = None
