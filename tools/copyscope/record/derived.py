"""What follows from what was measured, of either kind of run. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, ClassVar, get_args

from msgspec import Meta

from copyscope.record.instruments import Loss
from copyscope.record.measured import Copyscope, Placement, RunIdentity
from copyscope.record.portrait import Advice, Portrait, Why
from copyscope.record.sections import Explained, Interval, MachineLoad, Reasoned, Section
from copyscope.record.simulated import Simulated
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES, Context


class Throughput(Explained):
    """Goodput with nothing attached, and with the ledger's instruments.

    unprobed: goodput with nothing attached, all such segments together
    probed: with the ledger's instruments
    """

    unprobed: float | None
    probed: float | None


class MachineState(MachineLoad, kw_only=True):
    """What other programs and the hypervisor took, and whether that matters.

    others_ns: `busy_ns` without the sides, peers, copyscope, and the softirq work of `other`
    spread_share: of goodput without instruments: standard deviation over mean
    disturbance: `busy` by others or the hypervisor, `unsteady` segments, `peer`: the load generator
    evidence: of the disturbance
    sentence: both, and what to do; null: nothing to say
    clock_sentence: what changed the clock or kept it low; null: nothing that is known
    """

    others_ns: int | None
    others_share: float | None
    steal_share: float | None
    spread_share: float | None
    sentence: str | None
    disturbance: str | None = None
    evidence: str | None = None
    clock_sentence: str | None = None


class Cost(Explained):
    """CPU time of one row of the ledger, and what was counted in it.

    ns_per_kib: per 1024 bytes delivered in these segments
    share: of all CPU time: of all sides, and of the softirq work for them on the time of others
    method: how the time was found: `sampled`, `exact`,
    """

    side: str
    context: str
    cpu_ns: float | None
    ns_per_kib: float | None
    share: float | None
    cycles: float | None
    instructions: float | None
    l1d_misses: float | None
    llc_misses: float | None
    method: str
    ci: Interval | None


class EventEstimate(Section):
    """How well the count of an event in a row is known.

    low: of the count: with the probability `level` it lies from here to `high`
    samples: of this event in this row
    method: `sampled`: a share of the event's samples, times what was counted
    """

    low: float
    high: float
    level: float
    samples: int
    method: str


class SampledCost(Cost):
    """What it costs, by samples."""

    samples: int | None


class AccountRow(SampledCost):
    """An account of the ledger: a copy, or what stands for one.

    bytes: in the `ledger` segments; null: on another row, or none are counted
    bytes_method: how they were found
    bytes_by: who counted them: `program` or `kernel`
    calls_method: `exact`, or `scaled` from the `bytes` segments
    events: of each hardware event that is not null: how well its count is known
    """

    account: str
    bytes: int | None
    bytes_method: str | None
    calls: int | None
    bytes_by: str | None = None
    calls_method: str | None = None
    events: dict[str, EventEstimate] = {}  # noqa: RUF012 (a Struct copies it)

    @property
    def category(self) -> str:
        """What it is a row of: an account, as a stage of the other rows."""
        return self.account


class StageRow(SampledCost):
    """A stage of the ledger: kernel work that is not a copy.

    events: of each hardware event that is not null: how well its count is known
    """

    stage: str
    events: dict[str, EventEstimate] = {}  # noqa: RUF012 (a Struct copies it)

    @property
    def category(self) -> str:
        """What it is a row of."""
        return self.stage


class ExactRow(Cost):
    """A copy as its hooks measured it.

    share: of the side's CPU time in these segments
    raw: of each raw event (`rHEX`) that was counted, its count
    """

    category: str
    calls: int
    bytes: int
    timed_calls: int
    self_ns: int
    cpu_clock_ns: float | None
    page_faults: float | None
    dtlb_load_misses: float | None
    dtlb_store_misses: float | None
    itlb_load_misses: float | None
    raw: dict[str, float | None] | None = None


class CopyRun(Section):
    """On whose time an owner's copies ran."""

    side: str
    context: str | None
    calls: int
    bytes: int


class OwnerLife(Section):
    """Deferred copies of one owner's memory."""

    owner_side: str | None
    calls: int
    bytes: int
    runs: list[CopyRun]


class Notified(Section):
    """Zero-copy sends of one side, and how late they were reported.

    p50_ns: "at most": the upper end of the bucket; 0 by the return of the send
    """

    side: str
    copied: int
    zerocopied: int
    count: int
    before_return: int
    p50_ns: int | None
    p99_ns: int | None


class ZerocopyLife(Section):
    """What became of zero-copy sends, as function hooks saw it."""

    owners: list[OwnerLife]
    notified: list[Notified]


class Spent(Explained):
    """CPU time in the ledger segments, and how many samples it has."""

    cpu_ns: float | None
    samples: int | None


class Side(Spent):
    """That of one process.

    cpu_source: `task-clock` (perf) or `CPU clock` (the process's own)
    cpus_used: CPU time over wall time
    cpus: of a program of ours: that its threads were pinned to; empty: none
    """

    cpu_source: str
    unattributed_share: float | None
    cpus_used: float | None
    cpus: list[int] | None = None


class Placed(Placement, kw_only=True):
    """And what that means.

    sentence: what the CPUs have in common
    caution: the sides disturb each other, or their cores are not alike, and nobody asked for one CPU
    """

    sentence: str
    caution: bool


class OtherSide(Spent):
    """Softirq work on the time of others that is known to be of this run."""

    rule: str


class Elsewhere(Spent):
    """Softirq work of which nothing says whose it is: in no sum.

    cause: whose it may be
    """

    cause: str


class Sides(Section, omit_defaults=True):
    """CPU time by whose it was: of the processes in `run.sides`, and of softirqs on the time of others."""

    other: OtherSide
    elsewhere: Elsewhere
    sender: Side | None = None
    receiver: Side | None = None
    target: Side | None = None

    def processes(self) -> dict[str, Side]:
        """Of those that this run has."""
        known = {"sender": self.sender, "receiver": self.receiver, "target": self.target}
        return {name: side for name, side in known.items() if side is not None}


class Cause(Section):
    """Why zero-copy sends were copied."""

    code: str
    sentence: str


class Zerocopy(Section):
    """What became of the zero-copy sends: by our own sender, or by a watched program's sockets.

    completions: null: see `reason`; so are `copied`, `notifications` and `unseen`
    copied: of these, with the flag
    bytes_copied: of our own traffic
    bytes_silent: copied without the flag, in the `ledger` segments
    bytes_zero_copy: sent without a copy, as far as can be seen, in the `ledger` segments
    waits: times that the sender waited for a notice before it could go on
    waiting_share: of the time of its threads
    unseen: completions that a watched program had read first
    untold: of io_uring without IORING_SEND_ZC_REPORT_USAGE
    reason: why nothing is known of completions
    """

    sends: int
    bytes_sent: int
    completions: int | None
    copied: int | None
    notifications: int | None
    cause: Cause | None
    bytes_copied: int | None = None
    bytes_silent: int | None = None
    bytes_zero_copy: int | None = None
    enobufs: int | None = None
    max_in_flight: int | None = None
    waits: int | None = None
    waiting_share: float | None = None
    unseen: int | None = None
    untold: int | None = None
    reason: str | None = None


class Identity(Reasoned):
    """Two independent numbers that must agree.

    holds: false makes the run invalid
    """

    MAIN: ClassVar[str] = "holds"
    name: str
    what: str
    left: float | None
    right: float | None
    unit: str
    tolerance: float
    holds: bool | None


class Ratio(Reasoned):
    """Goodput with instruments over goodput without.

    ratio: goodput with instruments over goodput without, paired by block
    level: how often such intervals hold the true ratio
    """

    MAIN: ClassVar[str] = "ratio"
    ratio: float | None
    low: float | None
    high: float | None
    level: float | None


class PhaseEffect(Ratio):
    """The same for one phase.

    effect: goodput lost: 1 - ratio; null: no ratio
    """

    effect: float | None
    pairs: int
    segments: dict[str, int]


class Watching(Ratio):
    """What watching cost: goodput of the whole watch over that of the segments that count only bytes.

    ratio: goodput of all segments of a block and the changes between them, over that of the phase
        `unprobed`; the byte hooks are in both
    effect: 1 - ratio
    """

    effect: float | None
    pairs: int


class Overhead(Ratio):
    """What measuring cost.

    watching: what all of it cost a watched program
    """

    segments: dict[str, int]
    phases: dict[str, PhaseEffect]
    watching: Watching | None = None


class Limit(Section):
    """What kept goodput from being higher.

    who: `sender`, `receiver`, `path`, `target`, `peer` or `unknown`
    decisive: the part of the evidence that it rests on; records of earlier versions have none
    """

    who: str
    evidence: str
    decisive: str | None = None


class Judged(Section):
    """Whether the run counts.

    valid: false: kept, shown, never averaged; also of a run that was interrupted
    """

    valid: bool
    reasons: list[str]

    def __post_init__(self) -> None:
        if not self.valid and not self.reasons:
            raise ValueError("reasons: empty, of an invalid run")


class Verdict(Judged, kw_only=True):
    """And its result in one sentence.

    next: what to do after an invalid run
    """

    sentence: str
    limit: Limit
    next: str | None = None


class Derived(Section, omit_defaults=True):
    """What follows from what was measured.

    tx_bytes: in all segments but the warm-up
    placement: of traffic of our own
    advice: of a watched program
    why: of a watched program that sends with zero-copy, where it was asked for
    portrait: of a watched program
    """

    throughput_gbps: Throughput
    tx_bytes: int
    rx_bytes: int
    messages: int
    loss: dict[str, Loss]
    ledger: list[AccountRow]
    stages: list[StageRow]
    exact: list[ExactRow]
    zerocopy_life: ZerocopyLife | None
    identities: list[Identity]
    verdict: Verdict
    machine_state: MachineState
    sides: Sides
    zerocopy: Zerocopy | None
    overhead: Overhead
    placement: Placed | None = None
    advice: Advice | None = None
    why: Why | None = None
    portrait: Portrait | None = None

    def __post_init__(self) -> None:
        for problem in self._unknown_names():
            raise ValueError(problem)

    def _unknown_names(self) -> Iterator[str]:
        """Names in rows that nothing could be said of."""
        sides: Mapping[str, Collection[str]] = {"side": (*self.sides.processes(), "other")}
        sampled = {**sides, "context": get_args(Context)}
        known = {
            "ledger": {**sampled, "account": ACCOUNTS},
            "stages": {**sampled, "stage": STAGES},
            "exact": sides,
        }
        for section, keys in known.items():
            for number, row in enumerate(getattr(self, section)):
                for key, names in keys.items():
                    if (found := getattr(row, key)) not in names:
                        yield f'{section}[{number}].{key}: "{found}": expected {" or ".join(names)}'


class SimulatedRun(Section):
    """A record of a simulation; it has no part of its own that is only derived."""

    schema: Annotated[int, Meta(extra_json_schema={"const": 2})]
    copyscope: Copyscope
    run: RunIdentity
    simulated: Simulated
    verdict: Judged
