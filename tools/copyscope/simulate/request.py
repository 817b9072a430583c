"""What `simulate` and `run --simulate` are asked for; what a simulated machine has not is refused."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from copyscope.errors import UsageError
from copyscope.plan.options import refuse, resolve_traffic
from copyscope.simulate import caches, command, job, kernels, rows
from copyscope.simulate.command import Command

MEASUREMENTS_MAX = 64
# What of a record's workload a simulation can vary, beside those that Measured names.
HOW = ("receiver", "align", "pages", "touch", "nodelay", "sndbuf_bytes", "rcvbuf_bytes")
SEED_MAX = (1 << 31) - 1
# Of run's options; each of the others says something about instruments, or about this machine.
# fmt: off
TAKEN = frozenset((
    "simulate", "cache", "kernel", "seeds", "fast", "seed", "impl", "size", "fields", "messages", "receiver",
    "threads", "buffer", "align", "pages", "working_set", "touch", "time_every", "topology", "mtu", "tso",
    "gso", "gro", "nodelay", "congestion", "sndbuf", "rcvbuf", "json", "explain", "quiet",
))
# fmt: on
# Those that say how a run is measured: a simulated machine beside it has no use for them.
# fmt: off
OF_MEASURING = (
    "duration", "messages", "instruments", "attach", "frequency", "gate", "count", "copy_in", "warmup",
    "repeat", "seed", "out", "stacks", "verbose", "keep", "verify", "placement", "sender_cpus",
    "receiver_cpus",
)
# fmt: on
OF_COMMAND = frozenset(("simulate", "cache", "kernel", "seeds", "fast", "seed", "json", "explain", "quiet"))


@dataclass(frozen=True)
class Request:
    """What is to be simulated."""

    model: caches.Model
    kernel: str
    path: job.Path
    measured: tuple[job.Measured, ...]
    seeds: tuple[int, ...]
    exact: bool
    # Instead of what is measured.
    command: Command | None = None

    @property
    def count(self) -> int:
        """Measurements in each boot."""
        return 1 if self.command else len(self.measured)

    @property
    def fine_timers(self) -> bool:
        """Whether something may sleep for less than a tick: a command, and TCP that paces what it sends."""
        paces = any(one.how.get("congestion_control") for one in self.measured)
        return self.command is not None or paces


def read(args: argparse.Namespace) -> Request:
    """The options as a request. Raises UsageError."""
    check(args)
    offloads = tuple((name, getattr(args, name)) for name in ("tso", "gso", "gro") if getattr(args, name))
    return Request(
        caches.parse(args.cache),
        args.kernel,
        job.Path(args.topology, args.mtu, offloads),
        tuple(_measured(args)),
        _seeds(args),
        not args.fast,
    )


def read_command(args: argparse.Namespace, words: Sequence[str]) -> Request:
    """The options and a command as a request. Raises UsageError."""
    check(args, OF_COMMAND)
    model, path = caches.parse(args.cache), job.Path("loopback")
    return Request(model, args.kernel, path, (), _seeds(args), not args.fast, command.read(words))


def _seeds(args: argparse.Namespace) -> tuple[int, ...]:
    first = args.seed or 1
    return tuple(range(first, first + args.seeds))


def read_each(every: Sequence[argparse.Namespace]) -> Request:
    """Those that share a boot: they differ in the traffic only. Raises UsageError."""
    found = [read(args) for args in every]
    measured = tuple(one for each in found for one in each.measured)
    _check_count(measured)
    return replace(found[0], measured=measured)


def check(args: argparse.Namespace, taken: frozenset[str] = TAKEN) -> None:
    """Raises UsageError for what can be refused without running anything."""
    where = "in a simulated machine" if taken is TAKEN else "for a command in a simulated machine"
    refuse(args, (name for name in vars(args) if name not in taken), f"not available {where}")
    job.check_path(args.topology)
    caches.parse(args.cache)
    kernels.check_name(args.kernel)
    if not 1 <= args.seeds <= rows.SEEDS_MAX:
        raise UsageError(f"--seeds: {args.seeds}: not between 1 and {rows.SEEDS_MAX}")
    if args.seed is not None and not 1 <= args.seed <= SEED_MAX - rows.SEEDS_MAX:
        raise UsageError(f"--seed: {args.seed}: not between 1 and {SEED_MAX - rows.SEEDS_MAX}")
    if args.messages is not None and not 1 <= args.messages <= job.MESSAGES_MAX:
        raise UsageError(f"--messages: {args.messages}: not between 1 and {job.MESSAGES_MAX:,}")
    if args.mtu is not None and not 68 <= args.mtu <= 65_535:
        raise UsageError(f"--mtu: {args.mtu}: not between 68 and 65535")
    if args.pages == "hugetlb":
        raise UsageError("--pages: hugetlb: the guest has reserved none: use 4k or thp")
    if args.congestion is not None and not re.fullmatch(r"[a-z0-9_]{1,15}", args.congestion):
        raise UsageError(f"--congestion: {args.congestion}: not the name of a congestion control")


def _measured(args: argparse.Namespace) -> list[job.Measured]:
    """Every strategy at every size, in words that the traffic program has checked."""
    found = []
    for impl, size in product(args.impl.split(","), args.size.split(",")):
        asked = {**vars(args), "impl": impl, "size": size, "messages": None}
        traffic = resolve_traffic(argparse.Namespace(**asked), pinned=False)
        said = traffic.resolved
        if said["relays"]:
            why = "the process that sends to a relay would be counted with it"
            raise UsageError(f"--impl: {said['impl']}: not available in a simulated machine: {why}")
        send = [*traffic.send, *(["--congestion", args.congestion] if args.congestion else [])]
        warm, messages = job.counts(said["size_bytes"], args.messages)
        shape = (
            said["impl"],
            said["size_bytes"],
            said["fields"],
            said["threads"],
            said["working_set_messages"],
        )
        how = {name: said[name] for name in HOW} | {"congestion_control": args.congestion}
        found.append(job.Measured(*shape, warm, messages, tuple(send), traffic.receive, how))
    _check_count(found)
    return found


def _check_count(found: Sequence[job.Measured]) -> None:
    if len(found) > MEASUREMENTS_MAX:
        raise UsageError(f"--impl, --size: {len(found)} measurements: at most {MEASUREMENTS_MAX} at once")
