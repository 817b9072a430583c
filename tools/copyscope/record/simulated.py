"""What was counted in a simulated machine. In no number of what is measured, nor the reverse. Pure."""

from typing import Any

from msgspec import defstruct

from copyscope.record.sections import Section

# What is counted in a function.
COUNTED = (
    *("calls", "instructions", "read_bytes", "written_bytes", "read_lines", "written_lines"),
    *("l1d_load_misses", "l1d_store_misses", "l2_load_misses", "l2_store_misses"),
    *("llc_load_misses", "llc_store_misses", "remote_lines", "dirty_lines"),
    *("tlb_l1_misses", "tlb_l2_misses", "tlb_flushes"),
)


class Kernel(Section):
    """The guest's kernel."""

    name: str
    release: str
    sha256: str


class Qemu(Section):
    """The emulator, and the number of its plugin interface."""

    version: str
    api: int


class Cpu(Section):
    """The guest's CPU, and which fast string instructions it has.

    flags: fast string instructions: `erms`, `fsrm`
    """

    model: str
    flags: list[str]


class Model(Section):
    """The caches that were modelled; 0 bytes: there is no such level.

    name: as given to `--cache`
    l1d_bytes: 0: there is no such cache
    inclusion: `inclusive`: the LLC holds what L1D and L2 hold; `victim`: what L2 has dropped
    tlb_entries_and_ways: first level for 4 KiB, for 2 MiB, second level: `64:4/32:4/2048:16`
    ddio: lines that a device writes: `unseen`, `off` (to memory), `on` (to the LLC)
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
    """The path in the guest, as far as it was asked for."""

    kind: str
    mtu_bytes: int | None
    offloads: dict[str, str]


# For each KiB that was delivered: means over the seeds, and half of their 95 % intervals.
PerKib: Any = defstruct(
    "PerKib",
    [
        ("method", str),
        *((f"{name}_per_kib", float) for name in COUNTED),
        *((f"{name}_per_kib_half_width", float | None) for name in COUNTED),
    ],
    bases=(Section,),
)


class SideSum(PerKib, kw_only=True):  # type: ignore[misc, call-arg]
    """The sums of one side."""

    side: str


class Row(SideSum, kw_only=True):  # type: ignore[call-arg]
    """An account or a stage, on the time of one side."""

    kind: str
    category: str
    context: str


class Check(Section):
    """Two independent numbers that must agree.

    left: what was found, what it must be, and how far it may be off
    """

    name: str
    left: float
    right: float
    tolerance: float
    holds: bool


class Measurement(Section):
    """One workload: what was sent, which nobody says of a command, and what was counted meanwhile.

    warm_messages: before those that were counted
    delivered_bytes: of one boot: what `_per_kib` is of
    command: of a program of the user
    threads: connections
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
    rows: list[Row]
    accounts: list[Row]
    sides: list[SideSum]
    checks: list[Check]
    lost: dict[str, int]
    digests: list[str]
    command: list[str] | None = None
    threads: int | None = None


class Simulated(Section):
    """One machine, booted once for each seed, with all measurements in each boot.

    exact: instructions were counted: the same seeds give the same digest
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
