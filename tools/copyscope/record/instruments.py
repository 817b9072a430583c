"""What the instruments measured: counters, hooks, system calls, functions, samples. Pure."""

from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from copyscope.record.sections import Histogram, Reasoned, Section


class Counter(Reasoned):
    """One event of `perf stat` over the ledger segments.

    value: total of the side's process over the `ledger` segments; `tlb-flushes` (x86, sender only):
        flushes of TLB entries that it made or took part in, without those of task switches
    unit: what the value counts
    status: `measured`, `scaled` (ran only part of the time; of a watched program that is switched
        often: counted in a part of it), `unsupported`
    running: the part of the time in which the counter really counted
    parts: the value per core type of a hybrid CPU
    """

    MAIN: ClassVar[str] = "value"
    value: float | None
    unit: str
    status: str
    running: float | None
    parts: list[Any] | None


class HookBytes(Section):
    """Payload that passed a hook.

    side: `sender` or `receiver`; all of `bytes` is of the segments that `run.bytes_arm` names
    hook: `send_bytes` (into the socket), `receive_bytes` (out of it), `copy_out_bytes` (copied to the
        receiver's memory), `uring_bytes` (requests to send of io_uring that have ended; whether they
        were zero-copy stands only here)
    calls: times it was reached
    zerocopy_calls: of these, sends with MSG_ZEROCOPY on a socket with SO_ZEROCOPY; null: the hook
        cannot tell them apart
    spliced_calls: of these, made by sendfile(2) or splice(2): one for each pipe full of pages
    """

    side: str
    hook: str
    calls: int
    bytes: int
    zerocopy_calls: int | None
    zerocopy_bytes: int | None
    spliced_calls: int | UnsetType = UNSET
    spliced_bytes: int | UnsetType = UNSET


class Call(Section):
    """A system call of one side.

    calls: calls that returned in these segments
    on_cpu_ns: time between entry and exit, less softirq, less blocked
    softirq_ns: softirq work that ran inside the calls
    blocked_ns: off the CPU inside the calls, and waiting to get one again
    timed_calls: how many of them were timed, chosen at random, in duty cycles that come at random
        (`--gate`); the times are totals of all calls, estimated from these; the histograms hold only
        these
    histogram: `on_cpu_ns` per call
    arm: arm of the segments in which it was counted
    counted_at: where `calls`, `bytes` and `largest_bytes` were counted, of every call: `socket`
        (`sock_send_length`, `sock_recv_length`), `return` (`sys_exit`), or `program`: the traffic
        programs say how many they made, and how many bytes, and the kernel counted the timed ones alone
    largest_bytes: the most that one call returned
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
    arm: str
    counted_at: str | UnsetType = UNSET
    largest_bytes: int | UnsetType = UNSET
    softirq_histogram: Histogram | UnsetType | None = UNSET
    blocked_histogram: Histogram | UnsetType | None = UNSET


class FunctionCell(Section):
    """What functions of one category did on one side's time.

    side: on whose time it ran: `sender`, `receiver`, `other`
    category: what the function's own time is charged to (bpf/hooks.h); `syscall`: the system call
        around sends and receives, outside of them
    calls: how often it ended
    bytes: what it moved, where it knows
    timed_calls: of these, those inside a send, receive or softirq that was timed, dropped or not; of
        `syscall`, those that were timed and not dropped
    self_ns: CPU time of the timed calls, without hooked callees and softirq work
    self_ns_squared: sum over the timed sends, receives and softirqs of the square of what each spent
        here
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


class FunctionRoot(Section):
    """Sends, receives and softirqs that were followed.

    calls: sends, receives and softirqs that were followed; the system call around them is not counted
        here
    timed_calls: of these, those that were timed and not dropped (`loss.functions_unbalanced`)
    inclusive_ns: the time of the timed ones from entry to exit, less the time off the CPU; with what
        the system calls around them (fentry only) spent outside of them
    """

    side: str
    calls: int
    timed_calls: int
    inclusive_ns: int
    counters: dict[str, int]


class CopyOwner(Section):
    """Deferred copies by whose memory it was and on whose time they ran.

    owner_side: who sent the memory: `sender`, `receiver`, `other` (any other process)
    current_side: on whose time the copy ran
    calls: copies of packets
    bytes: their payload in pages
    """

    owner_side: str | None
    current_side: str
    context: str | None
    calls: int
    bytes: int


class Completions(Section):
    """Zero-copy sends whose notification was queued.

    copied: sends whose notification says copied
    zerocopied: the others
    """

    side: str
    copied: int
    zerocopied: int


class CompletionLatency(Section):
    """From the return of a zero-copy send to its notification.

    count: notifications that the kernel made; each may cover several sends
    before_return: of these, made before the send returned: 0 ns in the histogram
    """

    side: str
    count: int
    before_return: int
    histogram: Histogram


class Event(Section):
    """An event that was sampled.

    name: event that was read with the clock (`--count`), as perf names it
    status: `counted`, `scaled` (it shared the PMU with others), `unsupported`
    reason: why not, or why only a part of the time
    """

    name: str
    unit: str
    status: str
    reason: str | None


class CountedEvent(Event):
    """An event that function hooks read.

    running: the part of the time that it counted; null: unsupported
    """

    running: float | None


class AddedCount(Section):
    """What one read of all counters adds to one of them.

    name: a counter that was read
    count: what one read of all counters adds to it
    low: the 95 % interval of this median
    """

    name: str
    count: float
    low: float
    high: float


class ReadCost(Section):
    """What it costs to read the clock and the counters once.

    reads: reads that were measured, at the start, on an idle program
    events: counters that each of them read
    median_ns: what the counters add to reading the clock
    low_ns: lower end of the 95 % interval of this median
    clock_ns: the clock alone, median
    look_ns: clock, counters, and adding up what passed since the look before: all that a hook of a
        timed call does and one of a call that is only counted does not, median
    """

    reads: int
    events: int
    median_ns: float
    low_ns: float
    high_ns: float
    clock_ns: float
    added: list[AddedCount]
    look_ns: float | UnsetType = UNSET


class Functions(Section):
    """The exact tier: hooks at the entry and the exit of functions.

    owners: deferred copies by whose memory it was and on whose time they ran
    completions: zero-copy sends whose notification was queued, as the kernel saw it; null: as
        `functions.owners`
    completion_latency: from the return of the send to its notification
    gate: one send, receive or softirq of a thread in so many was timed (`--gate`, or chosen:
        `run.tier_reason`); calls and bytes are of all
    read_cost: what it costs to read the clock and the counters once: at each entry and exit of a hooked
        function, in a timed call; null: it could not be measured
    """

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
    """A place in the kernel, and whether a program could be attached to it.

    id: name of the hook, as in `bpf/hooks.h`
    instrument: `bytes`, `calls`, `sampler` or `functions`; of a watched program also `watch`, `volume`,
        `copies`, `packets`, `shape`
    symbol: what it is attached to; of `call-site` the instructions, as `function+offset,+offset`
    state: `attached`, `available` (not attached in this run), `missing` (this kernel has no such
        place), `refused`, `unused` (a better one is there)
    how: `tp_btf`, `fentry` (and fexit), `kprobe.multi` (entry and return), `kprobe` (and kretprobe),
        `call-site` (kprobes on the instructions that call it and on those after them); null: not
        attached
    required: without it the instrument does not run: `auto` then does without the instrument, and one
        that was asked for by name is an error
    category: of a function: the `functions.cells[].category` that its calls are counted in; null: its
        calls are counted in no cell
    side: of runs on two hosts: on which side's it is
    """

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


class Sampler(Section):
    """What was sampled, and how often.

    frequency_hz: wanted samples per second of each CPU
    taxonomy_version: version of the rules that gave each stack its account or stage
    enabled_ns: for how long events sampled in `ledger` segments; 0 without a sampler
    """

    events: list[Event]
    frequency_hz: float
    taxonomy_version: str
    enabled_ns: int


class Sampled(Section):
    """What a rule of the taxonomy gave to an account or stage.

    side: whose thread was on the CPU: `sender`, `receiver`, or `other` (softirq work on the time of
        others)
    context: `user`, `process` (a system call) or `softirq`
    kind: `account` or `stage`
    category: which account or stage
    weight: what they stand for: the sum of their periods
    weight_squared: the sum of the squares of their periods; where these differ, as those of a cycle
        counter do, fewer samples count in the interval. Older records do not have it
    tie: how it is known to be of this run: `process` (on the time of one of its processes), `packet`
        (softirq work on the time of others while a packet of this run was handled), `batch` (network
        work around packets, after one of this run on that CPU, at most a tick before). Rows of `other`
        without are in `sides.elsewhere` and in no sum
    """

    side: str
    context: str
    event: str
    kind: str
    category: str
    samples: int
    weight: float
    tie: str | UnsetType | None = UNSET
    # Older records do not have it.
    weight_squared: float | UnsetType = UNSET

    @property
    def squared(self) -> float:
        """The sum of the squares of the samples' weights; where it is not known as if all were alike."""
        if self.weight_squared is UNSET:
            return self.weight**2 / self.samples if self.samples else 0.0
        return self.weight_squared


class Sample(Sampled, kw_only=True):
    """Stacks with the same deciding symbol.

    symbol: the function that decided it; for `unattributed` the one that was running
    """

    symbol: str


class Stack(Sampled, kw_only=True):
    """One stack, `root;...;leaf`.

    frames: `root;...;leaf`, functions of the kernel; `[user]` outside of it
    """

    frames: str
