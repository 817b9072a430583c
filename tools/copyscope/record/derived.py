"""What follows from a run of our own traffic, and what a watched program's run shares with it. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, get_args

from msgspec import UNSET, UnsetType

from copyscope.record.raw import Placement
from copyscope.record.sections import Explained, Interval, MachineLoad, Reasoned, Section
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES, Context


class Throughput(Explained):
    """Goodput with nothing attached, and with the ledger's instruments.

    unprobed: goodput with nothing attached, all such segments together
    probed: with the ledger's instruments
    """

    unprobed: float | None
    probed: float | None


class Loss(Section):
    """What an instrument lost, and of how many.

    count: null: this kernel does not count it
    """

    count: int | None
    of: int | None
    share: float | None
    reason: str | UnsetType = UNSET


class MachineState(MachineLoad, kw_only=True):
    """What other programs and the hypervisor took, and whether that matters.

    others_ns: `busy_ns` without the sides, copyscope, and the softirq work of `other`
    spread_share: of goodput without instruments: standard deviation over mean
    sentence: what the screen says; null: nothing to say
    clock_sentence: what changed the clock or kept it low; null: nothing that is known
    """

    others_ns: int | None
    others_share: float | None
    steal_share: float | None
    spread_share: float | None
    sentence: str | None
    clock_sentence: str | UnsetType | None = UNSET


class Cost(Explained):
    """CPU time of one row of the ledger, and what was counted in it.

    ns_per_kib: per 1024 bytes delivered in these segments
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
    instructions_method: of the function hooks (`exact`, `exact 1/N`), for as many KiB as in these segments
    events: of each hardware event that is not null: how well its count is known
    """

    NULL_WITH_ANOTHER = frozenset(("bytes_by", "calls_method", "instructions_method"))
    account: str
    bytes: int | None
    bytes_method: str | None
    calls: int | None
    bytes_by: str | UnsetType | None = UNSET
    calls_method: str | UnsetType | None = UNSET
    instructions_method: str | UnsetType | None = UNSET
    # Older records do not have it.
    events: dict[str, EventEstimate] | UnsetType = UNSET


class StageRow(SampledCost):
    """A stage of the ledger: kernel work that is not a copy.

    events: of each hardware event that is not null: how well its count is known
    """

    stage: str
    # Older records do not have it.
    events: dict[str, EventEstimate] | UnsetType = UNSET


class TakenOff(Section):
    """What the looks of a row's copies added to a counter, and was taken off.

    column: of the row
    """

    column: str
    count: float
    low: float
    high: float


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
    taken_off: list[TakenOff]
    # Older records do not have it.
    raw: dict[str, float | None] | UnsetType = UNSET


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


class SideTime(Explained):
    """CPU time of one side in the ledger segments.

    cpu_ns: in the `ledger` segments
    cpu_source: `task-clock` (perf) or `CPU clock` (the process's own)
    """

    cpu_ns: float | None
    cpu_source: str
    samples: int | None
    unattributed_share: float | None


class TrafficSide(SideTime):
    """CPU time of one program of ours.

    on_cpu_share_of_wall: per thread; near 1: this side was the limit
    cpus: that its threads were pinned to; empty: none
    """

    user_ns: int | None
    on_cpu_share_of_wall: float | None
    cpus: list[int] | UnsetType = UNSET


class Placed(Placement, kw_only=True):
    """And what that means.

    sentence: what the CPUs have in common
    caution: the sides disturb each other, or their cores are not alike, and nobody asked for one CPU
    """

    sentence: str
    caution: bool


class OtherSide(Explained):
    """Softirq work on the time of others that is known to be of this run."""

    cpu_ns: float | None
    samples: int | None
    rule: str


class Elsewhere(Explained):
    """Softirq work of which nothing says whose it is: in no sum.

    cause: whose it may be
    """

    cpu_ns: float | None
    samples: int | None
    cause: str


class Sides(Section):
    """CPU time by whose it was."""

    sender: TrafficSide
    receiver: TrafficSide
    other: OtherSide
    elsewhere: Elsewhere


class Cause(Section):
    """Why zero-copy sends were copied."""

    code: str
    sentence: str


class Zerocopy(Section):
    """What became of the zero-copy sends.

    copied: of these, with the flag
    bytes_silent: copied without the flag, in the `ledger` segments
    bytes_zero_copy: sent without a copy, as far as can be seen, in the `ledger` segments
    waits: times that the sender waited for a notice before it could go on
    waiting_share: of the time of its threads
    """

    sends: int
    completions: int
    copied: int
    bytes_sent: int
    bytes_copied: int
    bytes_silent: int | None
    bytes_zero_copy: int | None
    enobufs: int
    notifications: int
    max_in_flight: int
    cause: Cause | None
    waits: int | UnsetType = UNSET
    waiting_share: float | UnsetType = UNSET


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


class ArmEffect(Ratio):
    """The same for one arm.

    effect: goodput lost: 1 - ratio; null: no ratio
    """

    effect: float | None
    pairs: int
    segments: dict[str, int]


class Overhead(Ratio):
    """What measuring cost."""

    segments: dict[str, int]
    arms: dict[str, ArmEffect]


class Limit(Section):
    """What kept goodput from being higher.

    who: `sender`, `receiver`, `path`, `target`, `peer` or `unknown`
    """

    who: str
    evidence: str


class Judged(Section):
    """Whether the run counts.

    valid: false: kept, shown, never averaged
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
    next: str | UnsetType = UNSET


class Concluded(Section):
    """The sections that both kinds of run have.

    tx_bytes: in all segments but the warm-up
    """

    PROCESSES: ClassVar[tuple[str, ...]]
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
    machine_state: MachineState | UnsetType = UNSET

    def __post_init__(self) -> None:
        for problem in self._unknown_names():
            raise ValueError(problem)

    def _unknown_names(self) -> Iterator[str]:
        """Names in rows that nothing could be said of."""
        sides: Mapping[str, Collection[str]] = {"side": (*self.PROCESSES, "other")}
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


class Derived(Concluded, kw_only=True):
    """What follows from a run of our own traffic."""

    PROCESSES = ("sender", "receiver")
    sides: Sides
    zerocopy: Zerocopy | None
    overhead: Overhead
    placement: Placed | UnsetType = UNSET
