# SPDX-License-Identifier: GPL-2.0-only
"""Structs of the measured part of a record, of our own traffic or of a watched process. Pure."""

from typing import Annotated, TypeVar

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
from copyscope.record.waits import Waits
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
    UserFunction,
    Volume,
)

Positive = Annotated[int, Meta(ge=1)]
Factor = str | bool | int | float
# Number of the schema: the version of the keys of a record.
SCHEMA = 2
T = TypeVar("T", SenderTotals, ReceiverTotals, TargetTotals)


class Copyscope(Section):
    """Version of copyscope; `dirty`: the source tree had uncommitted changes."""

    version: str
    git: str | None
    dirty: bool | None


class Segment(Section):
    """Period of the run with one set of instruments.

    index: number of the segment in order of time, from 0; -1: warm-up
    block: number of the block; -1: warm-up
    phase: `unprobed` (no instruments), `ledger`, `calls`, `bytes`, `functions`, `unarmed` (functions are
        hooked but not counted), `ledger+calls` (both at once) or `warmup` (never measured)
    begin_ns: time when copyscope's own traffic resumed, or when the hooks on a watched process were attached
    end_ns: time when copyscope's own traffic had paused, and all its bytes and notifications had arrived
    """

    index: int
    block: int
    phase: str
    begin_ns: int
    end_ns: int
    sides: dict[str, SideTotals]

    @property
    def sender(self) -> SenderTotals:
        """Totals of our own traffic's sender."""
        return _of_kind(self.sides["sender"], SenderTotals)

    @property
    def receiver(self) -> ReceiverTotals:
        """Totals of our own traffic's receiver."""
        return _of_kind(self.sides["receiver"], ReceiverTotals)

    @property
    def target(self) -> TargetTotals:
        """Totals of the watched process."""
        return _of_kind(self.sides["target"], TargetTotals)


def _of_kind(totals: SideTotals, kind: type[T]) -> T:
    """Return the totals unchanged. Raises TypeError if their type is not `kind`."""
    if not isinstance(totals, kind):
        raise TypeError(f"{type(totals).__name__}: expected {kind.__name__}")
    return totals


class RunIdentity(Section):
    """Identity of the run.

    id: `<experiment>-<digest of the factors>-<repeat>`, or `profile-...` outside an experiment
    factors: factors of the experiment and their values in this run
    repeat: number of the repeat with the same factors, from 0
    """

    id: str
    experiment: str | None
    factors: dict[str, Factor] | None
    repeat: int
    order: int
    seed: int
    started: str
    wall_s: float


class RunSection(RunIdentity, kw_only=True):
    """Identity, segments and errors of the run.

    sides: names of the measured processes
    measured_s: elapsed time without the warm-up
    errors: errors during the run; any error makes the run invalid
    tier: `exact` (with function hooks) or `sampled` (without)
    bytes_phase: phase of the segments in which hooks in the kernel count bytes
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
    """Settings of copyscope's own traffic: options that `copyscope run --help-all` explains.

    duration_s: null if a number of messages was requested
    fields: number of separately allocated buffers in a message
    threads: number of connections; each has its own thread unless `sender` is `loop` or `receiver` is `poll`
    mode: `stream`, or `rr` if the receiver answers each message
    align, pages: alignment of each field (`page`: at a page boundary), and kind of its pages
    placement: choice of CPUs: `split` (separate cores), `same`, `none` or `chosen` (by the user)
    time_every: the sender times one message in this many
    sender: `threads`, or `loop` (one thread for all connections)
    coalesce_us: interval between polls of the receiver; 0: sleep
    file: directory of the file that is sent; null: a file in memory
    issue: mode of io_uring: `inline`, `async` or `sqpoll`
    registered: true if the messages are in registered io_uring buffers
    batch_sends: number of fields that `per_field` puts into one sendmmsg(2)
    header_bytes: size of the first field; null: all fields have the same size
    wait: when notifications are read: `batch` (a quarter of the ring at a time), `each` (before the next
        send) or `never`
    touch_received: true if the receiver reads every cache line of the data
    tls: `off`, or the version of TLS in the kernel (`1.2` or `1.3`)
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
    """A network device on the path.

    card: queues, rings, coalescing and interrupts of a network card; empty for a virtual device
    """

    side: str
    name: str
    driver: str | None
    features: dict[str, bool | None]
    mtu_bytes: int | None = None
    qdisc: str | None = None
    gso_max_bytes: int | None = None
    card: dict[str, str] = {}  # noqa: RUF012 (a Struct copies it)


class PacketSocket(Section):
    """Socket that gets every packet, such as that of tcpdump; `device`: `any` if it is not bound."""

    side: str
    device: str | None
    protocol: str | None
    pid: int | None
    comm: str | None


class Addresses(Section):
    """IP addresses of sender and receiver."""

    sender: str
    receiver: str


class TopologySection(Section):
    """Network path between sender and receiver.

    kind: `veth`, `loopback`, `veth-xdp`, `nics`, `hosts`, or the devices of a watched process
    mtu_bytes: MTU of the sender's device
    local_delivery: true if sender and receiver run on the same kernel
    xdp: XDP mode of the receiver's device, such as `native`
    route_congestion_control: algorithm that copyscope set on the route; null: none set
    rtt_us: smallest round-trip time that the sender's TCP measured; only on two hosts
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


class PmuCheck(Section):
    """Counts of an event in known work (`doctor --measure`).

    usable: false if its counts of misses are withheld; null: not measured
    known_share: counted part of known misses
    copy_share: misses per line that a cold copy reads
    pmu: core type
    """

    event: str
    usable: bool | None
    verdict: str
    known_share: float | None
    copy_share: float | None
    pmu: str | None


class Machine(Section):
    """Machine and its settings.

    hypervisor: null on bare metal
    pmu: PMUs of the CPU cores; empty: no PMU
    hybrid: CPUs of each core type; null: all cores are alike
    steal_percent: CPU time that the hypervisor gave to other guests
    irq_time_accounting: true if the CPU time of tasks excludes interrupts
    sysctls: settings that affect buffers, copies and instruments
    """

    hostname: str
    kernel: str
    arch: str
    cpu_model: str
    cpus_online: int
    hypervisor: str | None
    pmu: list[str]
    hybrid: dict[str, str] | None
    governor: str | None
    turbo: bool | None
    smt: bool | None
    mitigations: dict[str, str]
    clocksource: str | None
    perf_event_paranoid: int | None
    kptr_restrict: int | None
    lockdown: str | None
    sysctls: dict[str, str | None]
    limits: dict[str, int | None]
    steal_percent: float | None
    tools: dict[str, str | None]
    memory_bytes: int | None
    caches: dict[str, int | str | None]
    microcode: str | None = None
    numa_nodes: str | None = None
    idle_driver: str | None = None
    transparent_hugepages: str | None = None
    irq_time_accounting: bool | None = None
    pmu_checks: list[PmuCheck] | None = None
    reasons: Reasons | None = None


class Pinned(Section):
    """CPU to which a thread of the process is pinned.

    core_cpus: all CPUs (hardware threads) of its core, such as `0,16`
    core_type: PMU or capacity of its core type, such as `cpu_atom`; null: all cores are alike
    llc_level, llc_cpus: level of its last-level cache, and all CPUs that share this cache
    """

    cpu: int
    core_cpus: str | None
    core_type: str | None
    node: int | None
    llc_level: int | None
    llc_cpus: str | None


class Placement(Section):
    """CPUs to which sender and receiver are pinned; empty: not pinned."""

    sender: list[Pinned]
    receiver: list[Pinned]

    def of(self, side: str) -> list[Pinned]:
        """Return the CPUs of the sender or the receiver."""
        return self.sender if side == "sender" else self.receiver


class HostOfSide(Section):
    """Name of a host, and its machine."""

    host: str
    machine: Machine


class Places(Section):
    """Hosts of sender and receiver."""

    sender: HostOfSide
    receiver: HostOfSide


class Measured(Section, omit_defaults=True):
    """Measurements of one run.

    counters: events that `perf stat` counted, by process and name of the event
    modelled: counts of the same traffic in a simulated machine
    """

    schema: Annotated[int, Meta(extra_json_schema={"const": 2})]
    copyscope: Copyscope
    run: RunSection
    topology: TopologySection
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
    user_functions: list[UserFunction] | None = None
    threads: list[ThreadName] | None = None
    send_errors: list[SendError] = []  # noqa: RUF012
    buffers: list[Buffers] = []  # noqa: RUF012
    relays: Relays | None = None
    waits: Waits | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the record has neither a watched process nor our own traffic, or both."""
        if (self.target is None) == (self.workload is None or self.traffic is None):
            raise ValueError("expected either target, or workload and traffic")

    @property
    def asked(self) -> Workload:
        """Settings of our own traffic. Raises LookupError for a watched process."""
        if self.workload is None:
            raise LookupError("a program was watched")
        return self.workload

    @property
    def reports(self) -> Traffic:
        """Final reports of our own traffic. Raises LookupError for a watched process."""
        if self.traffic is None:
            raise LookupError("a program was watched")
        return self.traffic

    @property
    def watched(self) -> Target:
        """The watched process. Raises LookupError for our own traffic."""
        if self.target is None:
            raise LookupError("copyscope's own traffic")
        return self.target
