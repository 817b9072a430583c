"""What was measured of a watched program: what only it has, beside the parts of record/raw.py. Pure."""

from typing import Any

from msgspec import UNSET, UnsetType

from copyscope.record.instruments import Counter
from copyscope.record.raw import Measured, RunBase, SegmentBase, TopologyBase, WorkloadBase
from copyscope.record.sections import Rows, Section


class Moved(Section):
    """What the program moved in a segment."""

    bytes: int
    bytes_sent: int
    bytes_received: int
    counts_taken: bool
    send_calls: int
    receive_calls: int
    edge_sent_bytes: int
    edge_received_bytes: int
    edge_send_calls: int
    edge_receive_calls: int
    process_cpu_ns: int
    voluntary_switches: int
    processes: int
    threads: int
    births: int
    open_zerocopy_sends: int
    completions: int
    copied: int
    notifications: int
    unseen: int
    untold: int
    calls_estimated: bool | UnsetType = UNSET
    involuntary_switches: int | UnsetType = UNSET


class ProgramSegment(SegmentBase):
    target: Moved


class ProgramRun(RunBase, kw_only=True):
    segments: list[ProgramSegment]


class Command(WorkloadBase):
    """What was started to be watched."""

    command: list[str] | None


class Process(Section):
    pid: int
    comm: str


class Counted(Section):
    """A segment in which each call was counted, by the hooks and by TCP."""

    wall_ns: int
    sent_bytes: int
    sent_calls: int
    received_bytes: int
    received_calls: int
    copied_out_bytes: int
    copied_out_calls: int
    sent_inner_bytes: int | None
    sent_outer_bytes: int | None
    received_inner_bytes: int | None
    received_outer_bytes: int | None


class Spared(Section):
    """Calls that were not counted, because that would have taken too much from the program."""

    why: str
    until: str | None
    sent_bytes: int
    sent_calls: int
    sent_calls_low: int | None
    sent_calls_high: int | None
    received_bytes: int
    received_calls: int
    received_calls_low: int | None
    received_calls_high: int | None
    counted: list[Counted]


class Target(Section):
    """The program that was watched."""

    how: str
    name: str
    comm: str | None
    cgroup: str | None
    netns: str | None
    follow: bool
    pids: list[Process]
    forks: int
    exits: int
    ended: str
    status: int | None
    sent_bytes: int
    send_calls: int
    received_bytes: int
    receive_calls: int
    page_bytes: int | None
    spared: Spared | UnsetType | None = UNSET
    baseline: bool | UnsetType = UNSET


class Peer(Section):
    """The other end of a connection."""

    address: str
    device: str | None
    local: bool | None


class ProgramTopology(TopologyBase, kw_only=True):
    peers: list[Peer]


class ProgramCounters(Section):
    target: dict[str, Counter]


class Volume(Section):
    """What went through sockets, by arm, protocol, direction and system call."""

    arm: str
    protocol: str
    direction: str
    syscall: str
    calls: int
    bytes: int
    zerocopy_calls: int
    zerocopy_bytes: int
    nodelay_calls: int
    cork_calls: int
    largest_bytes: int
    sizes: Rows
    estimated: bool | UnsetType = UNSET


class Packets(Section):
    """Packets that the program handed to a device in its own time."""

    packets: int
    bytes: int
    segments: int
    sizes: Rows


class MessageShape(Section):
    """How messages were handed over to the kernel."""

    protocol: str
    syscall: str
    messages: int
    unreadable: int
    repeated: int
    buffers: int
    looked: int
    page_aligned: int
    line_aligned: int
    sends: int
    rounds: int
    buffers_per_message: Rows
    rounds_per_send: Rows


class Connection(Section):
    """A TCP connection, by our count and by TCP's own."""

    local: str
    peer: str
    snapshots: int
    sent_bytes: int
    sent_inner_bytes: int
    sent_outer_bytes: int
    received_bytes: int
    received_inner_bytes: int
    received_outer_bytes: int
    mss_bytes: int
    retransmitted_bytes: int
    busy_ms: int
    rwnd_limited_ms: int
    sndbuf_limited_ms: int


class UserCode(Section):
    """Code that the program ran in user mode, by file; `reason`: why nobody knows whether it copies."""

    event: str
    file: str
    build_id: str | None
    reason: str | None
    samples: int
    copy_samples: int


class PaceSlice(Section):
    when: str
    begin_ns: int
    end_ns: int
    bytes: int


class Pace(Section):
    """How fast the program was before, while and after anything was attached."""

    slices: list[PaceSlice]
    lasting_connections: int
    covered_share: float | None
    own_cpu_ns: int | None


class RawProgramRun(Measured, kw_only=True):
    """What was measured of a program that was watched."""

    run: ProgramRun
    workload: Command
    target: Target
    topology: ProgramTopology
    traffic: dict[str, Any] | None
    counters: ProgramCounters
    volume: list[Volume]
    packets: Packets | None
    shapes: list[MessageShape] | None
    connections: list[Connection]
    pace: Pace
    user_code: list[UserCode] | UnsetType = UNSET
