# SPDX-License-Identifier: GPL-2.0-only
"""Structs of counts in a simulated machine, kept apart from all measurements. Pure."""

from copyscope.record.sections import Section

# Names of the counts of a function.
COUNTED = (
    *("calls", "instructions", "read_bytes", "written_bytes", "read_lines", "written_lines"),
    *("l1d_load_misses", "l1d_store_misses", "l2_load_misses", "l2_store_misses"),
    *("llc_load_misses", "llc_store_misses", "remote_lines", "dirty_lines"),
    *("tlb_l1_misses", "tlb_l2_misses", "tlb_flushes"),
)


class Kernel(Section):
    """Kernel of the guest."""

    name: str
    release: str
    sha256: str


class Qemu(Section):
    """Versions of QEMU and of its plugin interface."""

    version: str
    api: int


class Cpu(Section):
    """CPU of the guest; `flags`: its fast string instructions."""

    model: str
    flags: list[str]


class Model(Section):
    """Modelled caches and TLBs.

    name: value of `--cache`
    llc_bytes: size of the last-level cache; 0: none
    inclusion: `inclusive` (the LLC contains L1D and L2) or `victim` (lines evicted from L2)
    tlb_entries_and_ways: TLBs: L1 for 4 KiB pages, L1 for 2 MiB pages, and L2, such as `64:4/32:4/2048:16`
    ddio: destination of writes by devices: `off` (memory), `on` (LLC) or `unseen` (not modelled)
    """

    name: str
    source: str
    l1d_bytes: int
    l1d_ways: int
    l2_bytes: int
    l2_ways: int
    llc_bytes: int
    llc_ways: int
    inclusion: str
    line_bytes: int
    tlb_entries_and_ways: str
    prefetch: str
    ddio: str
    vcpus: int


class Path(Section):
    """Network path in the guest, with the requested settings."""

    kind: str
    mtu_bytes: int | None
    offloads: dict[str, str]


class PerKib(Section):
    """Counts per KiB delivered: mean over the seeds; `X_half_width`: half of the 95 % interval of `X`.

    remote_lines_per_kib: lines fetched from the cache of another CPU
    dirty_lines_per_kib: part of `remote_lines_per_kib` that the other CPU had written
    """

    method: str
    calls_per_kib: float
    instructions_per_kib: float
    read_bytes_per_kib: float
    written_bytes_per_kib: float
    read_lines_per_kib: float
    written_lines_per_kib: float
    l1d_load_misses_per_kib: float
    l1d_store_misses_per_kib: float
    l2_load_misses_per_kib: float
    l2_store_misses_per_kib: float
    llc_load_misses_per_kib: float
    llc_store_misses_per_kib: float
    remote_lines_per_kib: float
    dirty_lines_per_kib: float
    tlb_l1_misses_per_kib: float
    tlb_l2_misses_per_kib: float
    tlb_flushes_per_kib: float
    calls_per_kib_half_width: float | None
    instructions_per_kib_half_width: float | None
    read_bytes_per_kib_half_width: float | None
    written_bytes_per_kib_half_width: float | None
    read_lines_per_kib_half_width: float | None
    written_lines_per_kib_half_width: float | None
    l1d_load_misses_per_kib_half_width: float | None
    l1d_store_misses_per_kib_half_width: float | None
    l2_load_misses_per_kib_half_width: float | None
    l2_store_misses_per_kib_half_width: float | None
    llc_load_misses_per_kib_half_width: float | None
    llc_store_misses_per_kib_half_width: float | None
    remote_lines_per_kib_half_width: float | None
    dirty_lines_per_kib_half_width: float | None
    tlb_l1_misses_per_kib_half_width: float | None
    tlb_l2_misses_per_kib_half_width: float | None
    tlb_flushes_per_kib_half_width: float | None


class SideSum(PerKib, kw_only=True):
    """Counts of one process."""

    side: str


class SimulatedRow(SideSum, kw_only=True):
    """Counts of an account or stage in one process."""

    kind: str
    category: str
    context: str


class SimulatedFunction(Section):
    """Counts of one function on all processes of the workload: means over the seeds, per KiB delivered.

    category: account or stage
    lines_per_kib: lines read and written
    l1d_misses_per_kib: load and store misses
    """

    name: str
    category: str
    instructions_per_kib: float
    lines_per_kib: float
    l1d_misses_per_kib: float


class Check(Section):
    """Consistency check: `left` (counted) must equal `right` (expected) within `tolerance`."""

    name: str
    left: float
    right: float
    tolerance: float
    holds: bool


class Measurement(Section):
    """Counts of one workload, and its settings, which are null for a user's command.

    warm_messages: number of messages before the counted messages
    delivered_bytes: payload delivered in one boot
    lost: events that the simulator could not follow
    functions: functions with counts large enough to show; null in records of older versions
    """

    impl: str | None
    size_bytes: int | None
    fields: int | None
    working_set_messages: int | None
    warm_messages: int | None
    messages: int | None
    receiver: str | None
    align: str | None
    pages: str | None
    touch: bool | None
    nodelay: bool | None
    congestion_control: str | None
    sndbuf_bytes: int | None
    rcvbuf_bytes: int | None
    delivered_bytes: int
    rows: list[SimulatedRow]
    accounts: list[SimulatedRow]
    sides: list[SideSum]
    checks: list[Check]
    lost: dict[str, int]
    digests: list[str]
    command: list[str] | None = None
    threads: int | None = None
    functions: list[SimulatedFunction] | None = None


class Simulated(Section):
    """Simulated machine, booted once for each seed.

    exact: true if instructions were counted, so that the same seeds give the same digest
    """

    kernel: Kernel
    qemu: Qemu
    cpu: Cpu
    model: Model
    path: Path
    exact: bool
    seeds: list[int]
    digest: str
    wall_s: float
    measurements: list[Measurement]
