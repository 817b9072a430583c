"""What was measured of a run of our own traffic, and what a watched program's run shares with it. Pure."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from copyscope.record.instruments import Call, Counter, Functions, Hook, HookBytes, Sample, Sampler, Stack
from copyscope.record.sections import Explained, MachineLoad, Reasons, Section
from copyscope.record.simulated import Simulated
from copyscope.record.traffic import ReceiverTotals, SenderTotals, Traffic

Positive = Annotated[int, Meta(ge=1)]
Factor = str | bool | int | float


class Copyscope(Section):
    """The program that measured.

    git: revision of that checkout
    dirty: the checkout had changes that are in no revision
    """

    version: str
    git: str | None
    dirty: bool | None


class SegmentBase(Section):
    """A stretch of traffic with one set of programs attached.

    index: order in time; -1 for the warm-up
    block: each holds every arm once, in random order; -1: warm-up
    arm: `unprobed`, `ledger`, `calls`, `bytes`, `functions`, `unarmed` (functions are hooked and not
        counted), `ledger+calls` (a single segment) or `warmup` (never measured)
    begin_ns: traffic resumed
    end_ns: traffic paused, every byte delivered, every completion read
    """

    index: int
    block: int
    arm: str
    begin_ns: int
    end_ns: int


class Segment(SegmentBase):
    """A segment of our own traffic.

    receiver_begin_ns: on two hosts: by the receiver's clock
    """

    sender: SenderTotals
    receiver: ReceiverTotals
    # On two hosts: by the receiver's own clock, from the mark before it to the one that ends it.
    receiver_begin_ns: int | UnsetType = UNSET
    receiver_end_ns: int | UnsetType = UNSET


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


class RunBase(RunIdentity, kw_only=True):
    """How it went.

    errors: one line each; any of them makes the run invalid
    tier: `exact` (functions are hooked) or `sampled`
    tier_reason: how functions are hooked and why so many calls are timed, or why not
    """

    measured_s: float
    interrupted: bool
    errors: list[str]
    segments: Sequence[SegmentBase]
    tier: str | UnsetType | None = UNSET
    tier_reason: str | UnsetType = UNSET


class Run(RunBase, kw_only=True):
    """A run of our own traffic.

    bytes_arm: in which segments the kernel counts bytes
    """

    segments: list[Segment]
    bytes_arm: str | UnsetType | None = UNSET


class WorkloadBase(Section):
    """How much was asked for; null for what has no bound, or is not known."""

    impl: str | None
    duration_s: float | None
    messages: int | None


class Workload(WorkloadBase, kw_only=True):
    """What was sent, and how.

    impl: the strategy under its full name
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
    sender: str | UnsetType = UNSET
    coalesce_us: int | UnsetType = UNSET
    file: str | UnsetType | None = UNSET
    issue: str | UnsetType | None = UNSET
    registered: bool | UnsetType = UNSET
    push: str | UnsetType = UNSET
    call: str | UnsetType = UNSET
    via: str | UnsetType = UNSET
    batch_sends: int | UnsetType = UNSET
    header_bytes: int | UnsetType | None = UNSET
    wait: str | UnsetType = UNSET
    touch_received: bool | UnsetType = UNSET
    tls: str | UnsetType = UNSET


class Device(Section):
    """A network interface on the path.

    qdisc: its queueing discipline
    """

    side: str
    name: str
    driver: str | None
    features: dict[str, Any]
    mtu_bytes: int | UnsetType = UNSET
    qdisc: str | UnsetType | None = UNSET
    gso_max_bytes: int | UnsetType | None = UNSET
    gso_max_segments: int | UnsetType | None = UNSET
    rx_queues: int | UnsetType | None = UNSET
    tx_queues: int | UnsetType | None = UNSET


class PacketSocket(Section):
    """A program that sees, and thereby copies, every packet.

    side: in whose network namespace
    device: null: bound to none
    protocol: `ETH_P_ALL`: sees, and thereby copies, every packet
    """

    side: str
    device: str | None
    protocol: Any
    pid: int | None
    comm: str | None


class TopologyBase(Section):
    """The path between the two sides.

    kind: `veth`, `loopback`, `veth-xdp`, `nics`, `hosts`; of a watched program the devices that its
        packets passed
    mtu_bytes: of the sender's device
    local_delivery: both sides are on one kernel
    xdp: `native`: on the receiver's device
    notes: what cannot be given back in full
    route_congestion_control: null: left to the host
    """

    kind: str
    mtu_bytes: int | None
    offloads: dict[str, bool | None]
    local_delivery: bool
    xdp: str | None
    devices: list[Device]
    packet_sockets: list[PacketSocket]
    what: str | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET
    route_congestion_control: str | UnsetType | None = UNSET


class Addresses(Section):
    """Where the sides are."""

    sender: str
    receiver: str


class Topology(TopologyBase, kw_only=True):
    """The path of our own traffic.

    rtt_us: on two hosts: the least that TCP measured
    """

    addresses: Addresses
    # The least that TCP measured on the sender's connections; of runs on two hosts.
    rtt_us: int | UnsetType | None = UNSET


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
    microcode: str | UnsetType | None = UNSET
    numa_nodes: str | UnsetType | None = UNSET
    idle_driver: str | UnsetType | None = UNSET
    transparent_hugepages: str | UnsetType | None = UNSET
    irq_time_accounting: bool | UnsetType | None = UNSET
    reasons: Reasons | UnsetType = UNSET


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


class Place(Explained):
    """The machine of one side of a run on two hosts, and its time of day against that of the caller's.

    clock_offset_ns: ahead of the caller's time of day
    clock_offset_error_ns: half of what asking took
    """

    host: str
    machine: Machine
    clock_offset_ns: int | None
    clock_offset_error_ns: int | None


class Places(Section):
    """Where the two sides were."""

    sender: Place
    receiver: Place


class Counters(Section):
    """What perf counted of each side's process."""

    sender: dict[str, Counter]
    receiver: dict[str, Counter]


class Measured(Section):
    """The sections that both kinds of run have."""

    schema: Annotated[int, Meta(extra_json_schema={"const": 1})]
    copyscope: Copyscope
    run: RunBase
    workload: WorkloadBase
    topology: TopologyBase
    counters: Section
    machine: Machine
    bytes: list[HookBytes]
    calls: list[Call]
    functions: Functions | None
    hooks: list[Hook]
    sampler: Sampler
    samples: list[Sample]
    loss: dict[str, Any]
    machine_state: MachineLoad | UnsetType = UNSET
    stacks: list[Stack] | UnsetType = UNSET


class RawRun(Measured, kw_only=True):
    """What was measured of a run of our own traffic.

    modelled: the same traffic in a simulated machine, where that was asked for: in no other section
    """

    run: Run
    workload: Workload
    topology: Topology
    traffic: Traffic
    counters: Counters
    places: Places | UnsetType = UNSET
    placement: Placement | UnsetType = UNSET
    modelled: Simulated | UnsetType = UNSET
