"""What the instruments measured: counters, hooks, system calls, functions, samples. Pure."""

from typing import Any, ClassVar

from copyscope.record.sections import Histogram, Reasoned, Section


class Counter(Reasoned):
    """One event of `perf stat` over the ledger segments.

    value: of the process over the `ledger` segments; `tlb-flushes` without those of task switches
    status: `measured`, `scaled` (a part of the time) or `unsupported`
    running: the part of the time that it counted
    counts: what was counted under this name, where the PMU has no such event
    """

    MAIN: ClassVar[str] = "value"
    value: float | None
    unit: str
    status: str
    running: float | None
    parts: list[Any] | None
    counts: str | None = None


class HookBytes(Section):
    """Payload that passed a hook.

    side: in the segments that `run.bytes_phase` names
    hook: `send_bytes` (into the socket), `receive_bytes` (out of it), `copy_out_bytes` (to memory),
        `uring_bytes` (requests that have ended)
    zerocopy_calls: of these, with MSG_ZEROCOPY on a socket with SO_ZEROCOPY
    spliced_calls: of these, by sendfile(2) or splice(2)
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
    """A system call of one side.

    on_cpu_ns: from entry to exit, less softirq and blocked time
    softirq_ns: softirq work that ran inside the calls
    blocked_ns: off the CPU, or waiting for one
    timed_calls: all but those that had begun before the hooks came; the times stand for all calls
    histogram: `on_cpu_ns` per call
    largest_bytes: the most that one call returned
    failed_calls: refused, with another error than EAGAIN and EINTR
    last_errno: of one of these; null: there was none
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
    """What copies of one category did on one side's time.

    category: which copy it is (bpf/hooks.h)
    bytes: what it moved, where it knows
    timed_calls: of these, looked at with clock and counters
    self_ns: of the timed ones, without what interrupted them
    self_ns_squared: sum of the squares of what each took
    counters: of the timed ones, with what the hooks did in them
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
    """Deferred copies by whose memory it was and on whose time they ran.

    owner_side: who sent the memory; null: made before the hooks came, or by io_uring
    """

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
    """From the return of a zero-copy send to its notification.

    count: notifications; each may cover several sends
    before_return: made before the send returned: 0 ns
    """

    side: str
    count: int
    before_return: int
    histogram: Histogram


class Event(Section):
    """An event that was sampled.

    status: `sampled`, by function hooks `counted` or `scaled` (shared the PMU); `partial` (on some CPUs
        only) or `unsupported`
    counts: what was counted under this name, where the PMU has no such event
    """

    name: str
    unit: str
    status: str
    reason: str | None
    counts: str | None = None


class CountedEvent(Event, kw_only=True):
    """An event that function hooks read.

    running: the part of the time that it counted
    cpus: of a partial one, where it counted
    """

    running: float | None
    cpus: str | None = None


class ReadCost(Section):
    """What it costs to look at the clock and the counters once.

    reads: looks at the start
    events: counters that are read with the clock
    look_ns: all that a hook does where a copy begins or ends, median
    """

    reads: int
    events: int
    look_ns: float
    low_ns: float
    high_ns: float


class Functions(Section):
    """The exact tier: hooks at the entry and the exit of functions that copy.

    gate: one copy in so many was timed
    read_cost: where a timed copy begins and where it ends
    """

    cells: list[FunctionCell]
    owners: list[CopyOwner] | None
    completions: list[Completions] | None
    completion_latency: list[CompletionLatency] | None
    gate: int
    events: list[CountedEvent]
    read_cost: ReadCost | None


class Hook(Section):
    """A place in the kernel, and whether a program could be attached to it.

    instrument: which it belongs to
    symbol: what it is attached to
    state: `attached`, `available` (not in this run), `missing`, `refused` or `unused` (a better one is
        there)
    how: `tp_btf`, `fentry`, `kprobe.multi`, `kprobe` or `call-site`
    required: without it the instrument does not run
    category: of a function: as in `functions.cells[]`
    side: on two hosts
    """

    id: str
    instrument: str
    symbol: str
    state: str
    how: str | None
    reason: str | None
    required: bool
    category: str | None = None
    # Of runs on two hosts: on which side's.
    side: str | None = None


class Sampler(Section):
    """What was sampled, and how often.

    frequency_hz: wanted samples per second of each CPU
    taxonomy_version: of the rules from function to account
    enabled_ns: for how long events sampled in `ledger` segments; 0 without a sampler
    """

    events: list[Event]
    frequency_hz: float
    taxonomy_version: str
    enabled_ns: int


class Sampled(Section):
    """What a rule of the taxonomy gave to an account or stage.

    side: whose thread was on the CPU; `other`: softirq work on others' time
    context: `user`, `process` (a system call) or `softirq`
    weight: the sum of their periods, in the unit of the event
    weight_squared: the sum of the squares of their periods
    tie: how it is known to be of this run: `process`, `packet` (while a packet of the run was handled)
        or `batch` (after one on that CPU); without: in `sides.elsewhere`
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
    """Stacks with the same deciding symbol.

    symbol: the function that decided it
    caller: of a copy after the send call: the function for which it was made, where one was seen
    """

    symbol: str
    caller: str | None = None


class Stack(Sampled, kw_only=True):
    """One stack, `root;...;leaf`.

    frames: `root;...;leaf`; `[user]` outside of the kernel
    """

    frames: str


class Loss(Section):
    """What an instrument lost, and of how many.

    count: null: this kernel does not count it
    """

    count: int | None
    of: int | None = None
    share: float | None = None
    reason: str | None = None
