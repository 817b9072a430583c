"""What was counted in a simulated machine: never in a record of a measured run, nor the reverse. Pure."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, defstruct

from copyscope.record.derived import Judged
from copyscope.record.raw import Copyscope, RunIdentity
from copyscope.record.sections import Section

# What is counted in a function. Records that were made before the second do not have it.
COUNTED = (
    *("calls", "instructions", "read_bytes", "written_bytes", "read_lines", "written_lines"),
    *("l1d_load_misses", "l1d_store_misses", "l2_load_misses", "l2_store_misses"),
    *("llc_load_misses", "llc_store_misses", "remote_lines", "dirty_lines"),
    *("tlb_l1_misses", "tlb_l2_misses"),
)
COUNTED_LATER = ("tlb_flushes",)


class Kernel(Section):
    """The guest's kernel.

    name: as given to `--kernel`
    release: the guest's kernel, and the hash of its image
    """

    name: str
    release: str
    sha256: str


class Qemu(Section):
    """The emulator, and the number of its plugin interface.

    api: number of its plugin interface
    """

    version: str
    api: int


class Cpu(Section):
    """The guest's CPU, and which fast string instructions it has.

    model: the guest's CPU, as given to QEMU
    flags: the fast string instructions that it has: `erms`, `fsrm`
    """

    model: str
    flags: list[str]


class Model(Section):
    """The caches that were modelled; 0 bytes: there is no such level.

    name: what was modelled, as given to `--cache`, and where its numbers are from
    l1d_bytes: size of each cache; 0: it has none
    l1d_ways: lines of one set
    l2_bytes: size of each cache; 0: it has none
    l2_ways: lines of one set
    llc_bytes: size of each cache; 0: it has none
    llc_ways: lines of one set
    inclusion: `inclusive`: the LLC holds what L1D and L2 hold; `victim`: what L2 has dropped
    tlb_entries_and_ways: `64:4/32:4/2048:16`: first level for pages of 4 KiB, for pages of 2 MiB,
        second level
    prefetch: `off` or `next`
    ddio: where the lines go that a device writes: `unseen`, `off` (memory), `on` (LLC)
    vcpus: CPUs of the guest
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
    """The path in the guest, as far as it was asked for.

    kind: `veth`, `veth-xdp`, `nics` (two e1000), `loopback`
    """

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
        *((f"{name}_per_kib", float | UnsetType, UNSET) for name in COUNTED_LATER),
        *((f"{name}_per_kib_half_width", float | UnsetType | None, UNSET) for name in COUNTED_LATER),
    ],
    bases=(Section,),
)


class SideSum(PerKib, kw_only=True):  # type: ignore[misc, call-arg]
    """The sums of one side.

    side: on whose time: `sender`, `receiver`, `command` (all its processes, and what interrupted them),
        `other`; of `accounts` `all`
    """

    side: str


class Row(SideSum, kw_only=True):  # type: ignore[call-arg]
    """An account or a stage, on the time of one side.

    kind: `account` or `stage`. `rows` has both, and adds up to all that was counted; `accounts` has
        each account as one
    category: which; a name of the ledger
    context: `process`, `softirq`, `user`; of `accounts` `all`
    """

    kind: str
    category: str
    context: str


class Check(Section):
    """Two independent numbers that must agree.

    name: two numbers that must agree
    left: what was found, what it must be, and how far it may be off
    holds: one that does not makes the run invalid
    """

    name: str
    left: float
    right: float
    tolerance: float
    holds: bool


class Measurement(Section):
    """One workload: what was sent, which nobody says of a command, and what was counted meanwhile.

    impl: as `workload.impl`; each measurement ran in each boot, in this order; null: a command
    warm_messages: messages before those that were counted; null: a command
    messages: messages that were counted, in each boot; null: a command
    delivered_bytes: payload of one boot that was counted: what `_per_kib` is of; of a command what was
        copied out of sockets, mean of the seeds
    digests: of the counts of one boot each
    command: the words of a program of the user's, or of two with `--` between them; only there for them
    threads: connections, with a thread of its own on each side; `messages` and `warm_messages` are of
        each; null: a command
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
    command: list[str] | UnsetType = UNSET
    # Older records do not have it: 1.
    threads: int | UnsetType | None = UNSET


class Simulated(Section):
    """One machine, booted once for each seed, with all measurements in each boot.

    exact: instructions were counted: the same seeds give the same digest
    seeds: one boot each
    digest: of all counts of all boots
    wall_s: the boots together; `run.wall_s` is the whole, with the kernel and its symbols
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


class SimulatedRun(Section):
    """A record of a simulation; it has no part of its own that is only derived."""

    schema: Annotated[int, Meta(extra_json_schema={"const": 1})]
    copyscope: Copyscope
    run: RunIdentity
    simulated: Simulated
    verdict: Judged
