"""What was measured, of either kind of run: traffic of our own, or a program that was watched. Pure."""

from typing import Annotated, Any, TypeVar

from msgspec import Meta

from copyscope.record.instruments import (
    Call,
    Counter,
    Functions,
    Hook,
    HookBytes,
    Loss,
    Sample,
    Sampler,
    Stack,
)
from copyscope.record.sections import MachineLoad, Reasons, Section
from copyscope.record.simulated import Simulated
from copyscope.record.traffic import ReceiverTotals, SenderTotals, SideTotals, TargetTotals, Traffic
from copyscope.record.watched import (
    Buffers,
    Connection,
    MessageShape,
    Packets,
    Peer,
    Relays,
    SendError,
    Target,
    ThreadName,
    UserCaller,
    UserCode,
    Volume,
)

Positive = Annotated[int, Meta(ge=1)]
Factor = str | bool | int | float
T = TypeVar("T", SenderTotals, ReceiverTotals, TargetTotals)


class Copyscope(Section):
    """The program that measured.

    git: revision of that checkout
    dirty: the checkout had changes that are in no revision
    """

    version: str
    git: str | None
    dirty: bool | None


class Segment(Section):
    """A stretch of traffic with one set of programs attached.

    index: order in time; -1 for the warm-up
    block: each holds every phase once, in random order; -1: warm-up
    phase: `unprobed`, `ledger`, `calls`, `bytes`, `functions`, `unarmed` (functions are hooked and not
        counted), `ledger+calls` (a single segment) or `warmup` (never measured)
    begin_ns: traffic of our own resumed; of a program the hooks were there
    end_ns: of our own: traffic paused, every byte delivered, every completion read
    sides: what each did in it, by the names in `run.sides`
    """

    index: int
    block: int
    phase: str
    begin_ns: int
    end_ns: int
    sides: dict[str, SideTotals]

    @property
    def sender(self) -> SenderTotals:
        """Of traffic of our own."""
        return _of_kind(self.sides["sender"], SenderTotals)

    @property
    def receiver(self) -> ReceiverTotals:
        """Of traffic of our own."""
        return _of_kind(self.sides["receiver"], ReceiverTotals)

    @property
    def target(self) -> TargetTotals:
        """Of a watched program."""
        return _of_kind(self.sides["target"], TargetTotals)


def _of_kind(found: SideTotals, kind: type[T]) -> T:
    if not isinstance(found, kind):
        raise TypeError(f"{type(found).__name__} where {kind.__name__} belongs")
    return found


class RunIdentity(Section):
    """Which run it is.

    id: `<experiment>-<digest of the factors>-<repeat>`; `profile-...` outside an experiment
    factors: what the experiment varied, and its value in this run
    repeat: which repetition of the same settings, from 0
    order: position in the shuffled order of the experiment
    started: when the run began, ISO 8601
    wall_s: the whole run with set-up and pauses
    """

    id: str
    experiment: str | None
    factors: dict[str, Factor] | None
    repeat: int
    order: int
    seed: int
    started: str
    wall_s: float


class Run(RunIdentity, kw_only=True):
    """How it went.

    sides: the processes: `sender` and `receiver` of traffic of our own, `target` of a watched program
    errors: one line each; any of them makes the run invalid
    tier: `exact` (functions are hooked) or `sampled`
    tier_reason: how functions are hooked and why so many calls are timed, or why not
    bytes_phase: in which segments the kernel counts bytes
    """

    sides: list[str]
    measured_s: float
    interrupted: bool
    errors: list[str]
    segments: list[Segment]
    tier: str | None = None
    tier_reason: str | None = None
    bytes_phase: str | None = None


class Workload(Section, kw_only=True):
    """What was sent by traffic of our own, and how.

    impl: the strategy under its full name
    duration_s: null: a number of messages was asked for
    fields: separately allocated buffers that a message consists of
    threads: connections, with a thread each on both sides unless `sender` is `loop` or `receiver` is
        `poll`
    mode: `stream`, or `rr`: the receiver answers each message
    receiver: `read`, `recvmsg`, `trunc`, `poll`, `map`, `multishot` or `splice`
    align: `heap` (as the allocator gives it) or `page`
    pages: `4k`, `thp` or `hugetlb`: what holds the fields
    working_set_messages: messages that are sent in turn
    sndbuf_bytes: SO_SNDBUF; null: the kernel's own tuning
    rcvbuf_bytes: SO_RCVBUF, likewise; null: left to the kernel
    placement: how the CPUs of the two sides were found: `split` (cores of their own), `same`, `none` or
        `chosen`
    time_every: one message in so many is timed by the sender
    sender: `threads`, or `loop`: one thread for all connections
    coalesce_us: how often a polling receiver looks; 0: it sleeps
    file: directory of the file that is sent; null: in memory
    issue: of io_uring: `inline`, `async` or `sqpoll`
    registered: the messages' memory is registered with io_uring
    push: of `per_field`: `none`, `more` (MSG_MORE) or `cork`
    call: of `one_copy`: `sendmsg` or `writev`
    via: of `sendfile`: `sendfile` or `splice`
    batch_sends: of `per_field`: fields in one sendmmsg(2)
    header_bytes: of the first field, the others share the rest; null: all are alike
    wait: when notices of zero-copy sends are read: `batch` (a quarter of the ring at a time), `each`
        (before the sender goes on) or `never` (while it sends)
    touch_received: the receiver touches every cache line
    tls: `off`, or the kernel encrypts (kTLS): `1.2`, `1.3`
    """

    impl: str
    duration_s: float | None
    messages: int | None
    size_bytes: Positive
    fields: Positive
    threads: Positive
    mode: str
    receiver: str
    align: str
    pages: str
    working_set_messages: int
    touch: bool
    verify: bool
    nodelay: bool
    congestion_control: str | None
    sndbuf_bytes: int | None
    rcvbuf_bytes: int | None
    placement: str
    time_every: int
    sender: str | None = None
    coalesce_us: int | None = None
    file: str | None = None
    issue: str | None = None
    registered: bool | None = None
    push: str | None = None
    call: str | None = None
    via: str | None = None
    batch_sends: int | None = None
    header_bytes: int | None = None
    wait: str | None = None
    touch_received: bool | None = None
    tls: str | None = None


class Device(Section):
    """A network interface on the path.

    qdisc: its queueing discipline
    """

    side: str
    name: str
    driver: str | None
    features: dict[str, bool | None]
    mtu_bytes: int | None = None
    qdisc: str | None = None
    gso_max_bytes: int | None = None


class PacketSocket(Section):
    """A program that sees, and thereby copies, every packet.

    side: in whose network namespace
    device: null: bound to none
    protocol: `ETH_P_ALL`: sees, and thereby copies, every packet
    """

    side: str
    device: str | None
    protocol: str | None
    pid: int | None
    comm: str | None


class Addresses(Section):
    """Where the sides are."""

    sender: str
    receiver: str


class Topology(Section):
    """The path between the two sides.

    kind: `veth`, `loopback`, `veth-xdp`, `nics`, `hosts`; of a watched program the devices that its
        packets passed
    mtu_bytes: of the sender's device
    local_delivery: both sides are on one kernel
    xdp: `native`: on the receiver's device
    notes: what cannot be given back in full
    route_congestion_control: null: left to the host
    rtt_us: on two hosts: the least that TCP measured on the sender's connections
    peers: of a watched program: the other ends of its connections
    """

    kind: str
    mtu_bytes: int | None
    offloads: dict[str, bool | None]
    local_delivery: bool
    xdp: str | None
    devices: list[Device]
    packet_sockets: list[PacketSocket]
    what: str | None = None
    notes: list[str] | None = None
    route_congestion_control: str | None = None
    addresses: Addresses | None = None
    rtt_us: int | None = None
    peers: list[Peer] = []  # noqa: RUF012 (a Struct copies it)


class Machine(Section):
    """The machine and its settings.

    hypervisor: the host's copies are not visible
    pmu: hardware counter units; an empty list means none
    hybrid: CPUs of each core type
    steal_percent: CPU time that the hypervisor took
    idle_driver: cpuidle driver: how deep idle CPUs sleep
    transparent_hugepages: `always`, `madvise` or `never`
    irq_time_accounting: interrupts are kept out of a task's CPU time
    mitigations: what is done against a weakness of this CPU
    sysctls: settings that decide the result
    caches: bytes of each cache of CPU 0
    tools: versions of the programs that took part
    """

    hostname: str
    kernel: str
    arch: str
    cpu_model: str
    cpus_online: int
    hypervisor: str | None
    pmu: list[Any]
    hybrid: dict[str, Any] | None
    governor: str | None
    turbo: Any
    smt: Any
    mitigations: dict[str, Any]
    clocksource: str | None
    perf_event_paranoid: int | None
    kptr_restrict: int | None
    lockdown: str | None
    sysctls: dict[str, Any]
    limits: dict[str, Any]
    steal_percent: float | None
    tools: dict[str, Any]
    memory_bytes: int | None
    caches: dict[str, Any]
    microcode: str | None = None
    numa_nodes: str | None = None
    idle_driver: str | None = None
    transparent_hugepages: str | None = None
    irq_time_accounting: bool | None = None
    reasons: Reasons | None = None


class Pinned(Section):
    """A CPU that a thread of a side is pinned to. Null: the kernel does not tell, or it is another machine's.

    core_cpus: all CPUs of its core, as the kernel lists them: `0,16`
    core_type: the PMU of such cores (`cpu_core`, `cpu_atom`) or their capacity (`capacity 446`); null:
        all cores are alike
    llc_level: of its last-level cache
    llc_cpus: those that share it
    """

    cpu: int
    core_cpus: str | None
    core_type: str | None
    node: int | None
    llc_level: int | None
    llc_cpus: str | None


class Placement(Section):
    """On which CPUs the two sides ran: thread i on the i-th one of its side, and again from the first.

    sender: empty: any, as the scheduler chose
    """

    sender: list[Pinned]
    receiver: list[Pinned]


class Place(Section):
    """The machine of one side of a run on two hosts."""

    host: str
    machine: Machine


class Places(Section):
    """Where the two sides were."""

    sender: Place
    receiver: Place


class Measured(Section):
    """What was measured, of either kind of run.

    workload: of traffic of our own
    traffic: what its two programs said at the end
    placement: of traffic of our own
    places: of a run on two hosts
    modelled: the same traffic in a simulated machine, where that was asked for: in no other section
    counters: what perf counted of each side's process
    target: the program that was watched; without it, and what follows: traffic of our own
    packets: in `calls` segments; without acknowledgements, before the device cuts them
    shapes: how messages were handed over, in `calls` segments
    send_errors: send calls that were refused
    buffers: where anything was sent with MSG_ZEROCOPY
    relays: null: no `calls` segment
    """

    schema: Annotated[int, Meta(extra_json_schema={"const": 2})]
    copyscope: Copyscope
    run: Run
    topology: Topology
    machine: Machine
    counters: dict[str, dict[str, Counter]]
    bytes: list[HookBytes]
    calls: list[Call]
    functions: Functions | None
    hooks: list[Hook]
    sampler: Sampler
    samples: list[Sample]
    loss: dict[str, int | Loss]
    machine_state: MachineLoad
    stacks: list[Stack] | None = None
    workload: Workload | None = None
    traffic: Traffic | None = None
    placement: Placement | None = None
    places: Places | None = None
    modelled: Simulated | None = None
    target: Target | None = None
    volume: list[Volume] = []  # noqa: RUF012
    packets: Packets | None = None
    shapes: list[MessageShape] | None = None
    connections: list[Connection] = []  # noqa: RUF012
    user_code: list[UserCode] | None = None
    user_callers: list[UserCaller] | None = None
    threads: list[ThreadName] | None = None
    send_errors: list[SendError] = []  # noqa: RUF012
    buffers: list[Buffers] = []  # noqa: RUF012
    relays: Relays | None = None

    def __post_init__(self) -> None:
        if (self.target is None) == (self.workload is None or self.traffic is None):
            raise ValueError("target: expected it, or workload and traffic")

    @property
    def asked(self) -> Workload:
        """What traffic of our own was to send. Raises LookupError: a program was watched."""
        if self.workload is None:
            raise LookupError("a program was watched")
        return self.workload

    @property
    def reports(self) -> Traffic:
        """What our own two programs said. Raises LookupError: a program was watched."""
        if self.traffic is None:
            raise LookupError("a program was watched")
        return self.traffic

    @property
    def watched(self) -> Target:
        """The program that was watched. Raises LookupError: the traffic was our own."""
        if self.target is None:
            raise LookupError("copyscope's own traffic")
        return self.target
