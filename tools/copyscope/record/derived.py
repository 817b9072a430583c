# SPDX-License-Identifier: GPL-2.0-only
"""Structs of the derived part of a record: results computed from the measured part. Pure."""

from collections.abc import Collection
from typing import Annotated, ClassVar, get_args

from msgspec import Meta

from copyscope.record.instruments import Loss
from copyscope.record.measured import Copyscope, Placement, RunIdentity
from copyscope.record.portrait import Advice, Portrait, Why
from copyscope.record.sections import Explained, MachineLoad, Reasoned, RecordedInterval, Section
from copyscope.record.simulated import Simulated
from copyscope.taxonomy.accounts import ACCOUNTS, COPIES, STAGES, Context


class Throughput(Explained):
    """Goodput without instruments (`unprobed`), and in `ledger` segments (`probed`)."""

    unprobed: float | None
    probed: float | None


class MachineState(MachineLoad, kw_only=True):
    """Load of the machine from the first measured segment to the last, in ticks of 10 ms.

    others_ns: rest of `busy_ns`, excluding the measured processes, their softirqs and peers, and copyscope
    others_share, steal_share: share of the CPUs that other programs and the hypervisor took
    spread_share: standard deviation of the goodput of `unprobed` segments, divided by its mean
    sentence: description of the disturbance, with advice
    disturbance: `busy` (other programs or the hypervisor), `unsteady` (goodput of segments differs) or `peer`
        (a load generator on this machine)
    clock_sentence: description of how the clock rate changed or was limited
    siblings_share: share of the hyper-thread siblings that other programs took
    quota_sentence: description of the stops by a CPU quota
    """

    others_ns: int | None
    others_share: float | None
    steal_share: float | None
    spread_share: float | None
    sentence: str | None
    disturbance: str | None = None

    evidence: str | None = None
    clock_sentence: str | None = None
    siblings_share: float | None = None
    quota_sentence: str | None = None


class Cost(Explained):
    """CPU time and hardware events of one row, in the `ledger` segments.

    ns_per_kib: CPU time per 1024 bytes delivered
    share: share of the CPU time of the run
    method: `sampled` or `exact`
    ci: confidence interval of `cpu_ns`
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
    ci: RecordedInterval | None


class EventEstimate(Section):
    """Confidence interval of a hardware event's count, and its number of samples."""

    low: float
    high: float
    level: float
    samples: int
    method: str


class SampledCost(Cost):
    """Cost of a row, estimated from samples."""

    samples: int | None


class AccountRow(SampledCost):
    """Row for a copy, or for work that replaces a copy.

    bytes: bytes copied; null: they are in another row of the account, or were not counted
    bytes_method: how the bytes were counted
    calls_method: `exact`, or `scaled` from the `bytes` segments
    bytes_by: source of the byte count: the traffic `program` or hooks in the `kernel`
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
        """Name of the account. Stage rows have the same property."""
        return self.account

    @property
    def is_plain_copy(self) -> bool:
        """True for copies, False for ciphers and for work that replaces a copy."""
        return self.account in COPIES


class StageRow(SampledCost):
    """Row for kernel work other than copying."""

    stage: str
    events: dict[str, EventEstimate] = {}  # noqa: RUF012 (a Struct copies it)

    @property
    def category(self) -> str:
        """Name of the stage. Account rows have the same property."""
        return self.stage


class ExactRow(Cost):
    """Copy that function hooks measured in the `functions` segments.

    share: share of the CPU time of this process
    raw: count of each raw event (`rHEX`)
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
    """Late copies that used the CPU time of one process (`side`)."""

    side: str
    context: str | None
    calls: int
    bytes: int


class OwnerLife(Section):
    """Late copies of data that one process sent; `runs`: by the process whose CPU time they used."""

    owner_side: str | None
    calls: int
    bytes: int
    runs: list[CopyRun]


class Notified(Section):
    """Completed zero-copy sends, and the delay of their notifications: 0 ns for those `before_return`."""

    side: str
    copied: int
    zerocopied: int
    count: int
    before_return: int
    p50_ns: int | None
    p99_ns: int | None


class ZerocopyLife(Section):
    """Late copies and notifications of zero-copy sends, as function hooks counted them."""

    owners: list[OwnerLife]
    notified: list[Notified]


class Spent(Explained):
    """CPU time in the `ledger` segments, and the number of its samples."""

    cpu_ns: float | None
    samples: int | None


class Side(Spent):
    """CPU time of one process in the `ledger` segments.

    cpu_source: source of `cpu_ns`: perf's `task-clock`, or the `CPU clock` of the process
    unattributed_share: share of its time in functions that no rule classifies
    cpus_used: CPU time divided by elapsed time
    cpus: CPUs that its threads were pinned to
    """

    cpu_source: str
    unattributed_share: float | None
    cpus_used: float | None
    cpus: list[int] | None = None


class PlacementSummary(Placement, kw_only=True):
    """CPUs of sender and receiver.

    sentence: description of the cores and caches that the CPUs share
    caution: true if the processes share a core, or their cores or NUMA nodes differ, unless requested
    """

    sentence: str
    caution: bool


class OtherSide(Spent):
    """Softirq work of this run, charged to other tasks."""

    rule: str


class Elsewhere(Spent):
    """Softirq work that may belong to this run; no sum includes it."""

    cause: str


class Sides(Section, omit_defaults=True):
    """CPU time in the `ledger` segments."""

    other: OtherSide
    elsewhere: Elsewhere
    sender: Side | None = None
    receiver: Side | None = None
    target: Side | None = None

    def processes(self) -> dict[str, Side]:
        """Return the CPU time of each process of this run by name."""
        sides = {"sender": self.sender, "receiver": self.receiver, "target": self.target}
        return {name: side for name, side in sides.items() if side is not None}


class Cause(Section):
    """Reason why zero-copy sends were copied."""

    code: str
    sentence: str


class Zerocopy(Section):
    """Outcome of zero-copy sends.

    completions: sends that the kernel reported as complete; null: see `reason`
    copied: completions that the kernel marked as copied
    bytes_copied: bytes of the copied sends of copyscope's own traffic
    bytes_silent: bytes copied without a completion marked as copied, in `ledger` segments
    bytes_zero_copy: bytes sent without a visible copy, in `ledger` segments
    enobufs: sends that failed with ENOBUFS
    waits, waiting_share: the sender's waits for notifications, and the share of its time spent in them
    unseen: completions that the process read before the hooks saw them
    untold: io_uring sends without IORING_SEND_ZC_REPORT_USAGE: unknown whether copied
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
    """Consistency check: two independent counts that must agree.

    holds: true if the counts agree within `tolerance`; false makes the run invalid
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
    """Goodput with instruments divided by goodput without instruments, and its confidence interval."""

    MAIN: ClassVar[str] = "ratio"
    ratio: float | None
    low: float | None
    high: float | None
    level: float | None


class PhaseEffect(Ratio):
    """Goodput in a phase, divided by goodput in its control segments; `effect`: 1 - ratio."""

    effect: float | None
    pairs: int
    segments: dict[str, int]


class Watching(Ratio):
    """Goodput of whole blocks, divided by goodput while only bytes are counted."""

    effect: float | None
    pairs: int


class Overhead(Ratio):
    """Goodput in `ledger` segments, divided by goodput without instruments."""

    segments: dict[str, int]
    phases: dict[str, PhaseEffect]
    watching: Watching | None = None


class Limit(Section):
    """Bottleneck (`who`): `sender`, `receiver`, `path`, `target`, `peer` or `unknown`."""

    who: str
    evidence: str
    decisive: str | None = None


class Judged(Section):
    """Validity of a run.

    valid: false if averages must exclude the run
    """

    valid: bool
    reasons: list[str]

    def __post_init__(self) -> None:
        if not self.valid and not self.reasons:
            raise ValueError("reasons: empty for an invalid run")


class Verdict(Judged, kw_only=True):
    """Validity and result of the run.

    next: next step after an invalid run
    """

    sentence: str
    limit: Limit
    next: str | None = None


class Derived(Section, omit_defaults=True):
    """Results derived from the measurements.

    tx_bytes, rx_bytes: bytes sent and received in all segments except the warm-up
    advice: result of `copyscope advise`
    why: result of `copyscope why`
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
    placement: PlacementSummary | None = None
    advice: Advice | None = None
    why: Why | None = None
    portrait: Portrait | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a row with an unknown side, context, account or stage."""
        sides, contexts = (*self.sides.processes(), "other"), get_args(Context)
        for number, account_row in enumerate(self.ledger):
            row = f"ledger[{number}]"
            _check_name(f"{row}.side", account_row.side, sides)
            _check_name(f"{row}.context", account_row.context, contexts)
            _check_name(f"{row}.account", account_row.account, ACCOUNTS)
        for number, stage_row in enumerate(self.stages):
            row = f"stages[{number}]"
            _check_name(f"{row}.side", stage_row.side, sides)
            _check_name(f"{row}.context", stage_row.context, contexts)
            _check_name(f"{row}.stage", stage_row.stage, STAGES)
        for number, exact_row in enumerate(self.exact):
            _check_name(f"exact[{number}].side", exact_row.side, sides)


def _check_name(key: str, name: str, allowed: Collection[str]) -> None:
    """Raise ValueError if the name at `key` is not allowed, because no screen could explain it."""
    if name not in allowed:
        raise ValueError(f'{key}: "{name}": expected {" or ".join(allowed)}')


class SimulatedRun(Section):
    """Record of `copyscope simulate`."""

    schema: Annotated[int, Meta(extra_json_schema={"const": 2})]
    copyscope: Copyscope
    run: RunIdentity
    simulated: Simulated
    verdict: Judged

    def __post_init__(self) -> None:
        """Raise ValueError for a row with an unknown account or stage."""
        for number, measurement in enumerate(self.simulated.measurements):
            place = f"simulated.measurements[{number}]"
            for row in measurement.rows:
                _check_name(f"{place}.rows", row.category, (*ACCOUNTS, *STAGES))
            for row in measurement.accounts:
                _check_name(f"{place}.accounts", row.category, ACCOUNTS)
