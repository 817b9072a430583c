"""What was measured of a run of our own traffic, and what a watched program's run shares with it. Pure."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from copyscope.record.instruments import Call, Counter, Functions, Hook, HookBytes, Sample, Sampler, Stack
from copyscope.record.sections import Explained, MachineLoad, Reasons, Rows, Section

Positive = Annotated[int, Meta(ge=1)]
Factor = str | bool | int | float


class Copyscope(Section):
    """The program that measured."""

    version: str
    git: str | None
    dirty: bool | None


class Totals(Section):
    """Running totals of one side, or their differences over a segment."""

    bytes: int
    calls: int
    process_cpu_ns: int
    user_ns: int
    system_ns: int
    voluntary_switches: int
    involuntary_switches: int


class ZerocopyTotals(Section):
    """What the error queue said of sends with MSG_ZEROCOPY."""

    sends: int
    bytes_sent: int
    completions: int
    copied: int
    bytes_copied: int
    enobufs: int
    notifications: int
    in_flight: int
    max_in_flight: int
    errqueue_reads: int


class Spliced(Section):
    """What went into the socket as pages, of a file or of memory; of a receiver, out of it, into a pipe."""

    calls: int
    bytes: int


class Requests(Section):
    """What was sent by requests to an io_uring."""

    requests: int
    worker_cpu_ns: int


class SenderTotals(Totals):
    messages: int
    short_sends: int
    eagain: int
    gather_timed_messages: int
    gather_timed_ns: int
    gather_broken_messages: int
    send_syscalls: dict[str, int]
    zerocopy: ZerocopyTotals | None
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Requests | UnsetType | None = UNSET
    tls_records: int | UnsetType | None = UNSET


class Verified(Section):
    """What the receiver found when it compared every byte."""

    checked_bytes: int
    wrong_bytes: int
    first_wrong_offset: int | None


class Mapped(Section):
    """What TCP_ZEROCOPY_RECEIVE took off the socket: pages, and bytes that it copied beside them."""

    calls: int
    bytes: int
    pages: int
    copied_bytes: int


class Multishot(Section):
    """Requests to an io_uring that receive again and again."""

    requests: int
    enters: int


class ReceiverTotals(Totals):
    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | UnsetType = UNSET
    mapped: Mapped | UnsetType | None = UNSET
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Multishot | UnsetType | None = UNSET


class SegmentBase(Section):
    """A stretch of traffic with one set of programs attached."""

    index: int
    block: int
    arm: str
    begin_ns: int
    end_ns: int


class Segment(SegmentBase):
    sender: SenderTotals
    receiver: ReceiverTotals
    # On two hosts: by the receiver's own clock, from the mark before it to the one that ends it.
    receiver_begin_ns: int | UnsetType = UNSET
    receiver_end_ns: int | UnsetType = UNSET


class RunIdentity(Section):
    """Which run it is."""

    id: str
    experiment: str | None
    factors: dict[str, Factor] | None
    repeat: int
    order: int
    seed: int
    started: str
    wall_s: float


class RunBase(RunIdentity, kw_only=True):
    """How it went."""

    measured_s: float
    interrupted: bool
    errors: list[str]
    segments: Sequence[SegmentBase]
    tier: str | UnsetType | None = UNSET
    tier_reason: str | UnsetType = UNSET


class Run(RunBase, kw_only=True):
    segments: list[Segment]
    bytes_arm: str | UnsetType | None = UNSET


class WorkloadBase(Section):
    """How much was asked for; null for what has no bound, or is not known."""

    impl: str | None
    duration_s: float | None
    messages: int | None


class Workload(WorkloadBase, kw_only=True):
    """What was sent, and how."""

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
    touch_received: bool | UnsetType = UNSET
    tls: str | UnsetType = UNSET


class Device(Section):
    """A network interface on the path."""

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
    """A program that sees, and thereby copies, every packet."""

    side: str
    device: str | None
    protocol: Any
    pid: int | None
    comm: str | None


class TopologyBase(Section):
    """The path between the two sides."""

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
    addresses: Addresses
    # The least that TCP measured on the sender's connections; of runs on two hosts.
    rtt_us: int | UnsetType | None = UNSET


class Machine(Section):
    """The machine and its settings."""

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


class Place(Explained):
    """The machine of one side of a run on two hosts, and its time of day against that of the caller's."""

    host: str
    machine: Machine
    clock_offset_ns: int | None
    clock_offset_error_ns: int | None


class Places(Section):
    """Where the two sides were."""

    sender: Place
    receiver: Place


class Ring(Section):
    """Memory of the messages that are sent in turn."""

    bytes: int
    huge_bytes: int | None


class Encryption(Section):
    """What kTLS did on one side: where its connections were set up, null where the kernel does not say."""

    version: str
    cipher: str
    record_overhead_bytes: int
    software_connections: int | None
    device_connections: int | None


class Report(Totals, kw_only=True):
    """What a program said at the end: its totals of the whole run, and more."""

    role: str
    impl: str | None
    pid: int
    options: dict[str, Any]
    claim: dict[str, Any] | None
    threads: list[dict[str, Any]]
    histograms: dict[str, Any]
    slices: Rows
    limits: dict[str, Any]
    errors: list[str]
    t_ns: int | UnsetType = UNSET
    clock_cost_ns: int | UnsetType = UNSET
    sending_ns: int | UnsetType = UNSET
    too_short: bool | UnsetType = UNSET
    too_short_reason: str | UnsetType | None = UNSET
    interrupted: bool | UnsetType = UNSET
    tls: Encryption | UnsetType | None = UNSET


class SenderReport(Report, kw_only=True):
    """What the sender said: as SenderTotals."""

    messages: int
    short_sends: int
    eagain: int
    gather_timed_messages: int
    gather_timed_ns: int
    gather_broken_messages: int
    send_syscalls: dict[str, int]
    zerocopy: ZerocopyTotals | None
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Requests | UnsetType | None = UNSET
    tls_records: int | UnsetType | None = UNSET
    ring: Ring | UnsetType = UNSET


class ReceiverReport(Report, kw_only=True):
    """What the receiver said: as ReceiverTotals."""

    messages: int | None
    verify: Verified | None
    truncated_bytes: int
    replies: int | UnsetType = UNSET
    mapped: Mapped | UnsetType | None = UNSET
    spliced: Spliced | UnsetType | None = UNSET
    io_uring: Multishot | UnsetType | None = UNSET


class Traffic(Section):
    """What both programs said at the end."""

    sender: SenderReport
    receiver: ReceiverReport


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
    samples_beside: list[Sample] | UnsetType = UNSET
    stacks: list[Stack] | UnsetType = UNSET


class RawRun(Measured, kw_only=True):
    """What was measured of a run of our own traffic."""

    run: Run
    workload: Workload
    topology: Topology
    traffic: Traffic
    counters: Counters
    places: Places | UnsetType = UNSET
