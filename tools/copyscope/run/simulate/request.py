# SPDX-License-Identifier: GPL-2.0-only
"""Read the options of `simulate` and `run --simulate`, and reject those that cannot be simulated."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from copyscope.base.errors import UsageError, out_of_range
from copyscope.plan.options import refuse, resolve_traffic
from copyscope.run.simulate import caches, document, job, kernels
from copyscope.run.simulate import job as command
from copyscope.run.simulate.job import GuestCommand

# Maximum number of measurements of a simulation.
MEASUREMENTS_MAX = 64
# Keys of a record's workload that a simulation can vary, except the fields of GuestMeasurement.
WORKLOAD_KEYS = ("receiver", "align", "pages", "touch", "nodelay", "sndbuf_bytes", "rcvbuf_bytes")
SEED_MAX = (1 << 31) - 1
# Options of `run` that a simulation accepts. Other options are about instruments, or about this machine.
# fmt: off
RUN_OPTIONS = frozenset((
    "simulate", "cache", "kernel", "seeds", "fast", "seed", "impl", "size", "fields", "messages", "receiver",
    "threads", "buffer", "align", "pages", "working_set", "touch", "time_every", "topology", "mtu", "tso",
    "gso", "gro", "nodelay", "congestion", "sndbuf", "rcvbuf", "json", "explain", "verbose", "quiet",
))
# fmt: on
# Options about the measurement of a run, which the simulation that --simulate adds does not use.
# fmt: off
MEASURING_OPTIONS = (
    "duration", "messages", "instruments", "attach", "frequency", "gate", "count", "copy_in", "warmup",
    "repeat", "seed", "out", "stacks", "verbose", "keep", "verify", "placement", "sender_cpus",
    "receiver_cpus",
)
# fmt: on
COMMAND_OPTIONS = frozenset(
    ("simulate", "cache", "kernel", "seeds", "fast", "seed", "json", "explain", "verbose", "quiet")
)


@dataclass(frozen=True)
class Request:
    """A simulation that the user requested.

    measured: measurements in each boot, unless `command` is given
    exact: count instructions, so that runs are repeatable
    """

    model: caches.CacheModel
    kernel: str
    path: job.GuestPath
    measured: tuple[job.GuestMeasurement, ...]
    seeds: tuple[int, ...]
    exact: bool
    # Command to run instead of measurements, or None.
    command: GuestCommand | None = None

    @property
    def count(self) -> int:
        """Number of measurements in each boot."""
        return 1 if self.command else len(self.measured)

    @property
    def fine_timers(self) -> bool:
        """True if a program may sleep for less than a tick: a command, or TCP that paces its packets."""
        paces = any(measurement.how.get("congestion_control") for measurement in self.measured)
        return self.command is not None or paces


def read(args: argparse.Namespace) -> Request:
    """Return the request for the measurements that the options describe. Raises UsageError."""
    check_options(args)
    offloads = tuple((name, getattr(args, name)) for name in ("tso", "gso", "gro") if getattr(args, name))
    return Request(
        caches.parse(args.cache),
        args.kernel,
        job.GuestPath(args.topology, args.mtu, offloads),
        tuple(_measured(args)),
        _seeds(args),
        not args.fast,
    )


def read_command(args: argparse.Namespace, words: Sequence[str]) -> Request:
    """Return the request for a user's command. `words`: the command. Raises UsageError."""
    check_options(args, COMMAND_OPTIONS)
    model, path = caches.parse(args.cache), job.GuestPath("loopback")
    return Request(model, args.kernel, path, (), _seeds(args), not args.fast, command.read_command(words))


def _seeds(args: argparse.Namespace) -> tuple[int, ...]:
    """Return the seeds of the boots."""
    first = args.seed or 1
    return tuple(range(first, first + args.seeds))


def read_each(arguments: Sequence[argparse.Namespace]) -> Request:
    """Return one request for several runs that differ only in their traffic. Raises UsageError.

    `arguments`: options of each run.
    """
    requests = [read(one_run) for one_run in arguments]
    measured = tuple(measurement for request in requests for measurement in request.measured)
    _check_count(measured)
    return replace(requests[0], measured=measured)


def check_options(args: argparse.Namespace, allowed: frozenset[str] = RUN_OPTIONS) -> None:
    """Raise UsageError for invalid options. `allowed`: names of the options that may be used."""
    context = "in a simulated machine" if allowed is RUN_OPTIONS else "for a command in a simulated machine"
    refuse(args, (name for name in vars(args) if name not in allowed), f"not available {context}")
    job.check_path(args.topology)
    caches.parse(args.cache)
    kernels.check_name(args.kernel)
    if not 1 <= args.seeds <= document.SEEDS_MAX:
        raise UsageError(out_of_range("--seeds", args.seeds, 1, document.SEEDS_MAX))
    if args.seed is not None and not 1 <= args.seed <= SEED_MAX - document.SEEDS_MAX:
        raise UsageError(out_of_range("--seed", args.seed, 1, SEED_MAX - document.SEEDS_MAX))
    if args.messages is not None and not 1 <= args.messages <= job.MESSAGES_MAX:
        raise UsageError(out_of_range("--messages", args.messages, 1, f"{job.MESSAGES_MAX:,}"))
    if args.mtu is not None and not 68 <= args.mtu <= 65_535:
        raise UsageError(out_of_range("--mtu", args.mtu, 68, 65_535))
    if args.pages == "hugetlb":
        raise UsageError("--pages hugetlb: the guest has no reserved huge pages; use 4k or thp")
    if args.congestion is not None and not re.fullmatch(r"[a-z0-9_]{1,15}", args.congestion):
        raise UsageError(
            f"--congestion {args.congestion}: not the name of a congestion control; use a name such as cubic"
        )


def _measured(args: argparse.Namespace) -> list[job.GuestMeasurement]:
    """Return a measurement for each strategy and size. The traffic program checks the options."""
    measurements = []
    for impl, size in product(args.impl.split(","), args.size.split(",")):
        options = {**vars(args), "impl": impl, "size": size, "messages": None}
        traffic = resolve_traffic(argparse.Namespace(**options), pinned=False)
        resolved = traffic.resolved
        if resolved["relays"]:
            reason = "the process that sends to a relay would be counted, too"
            raise UsageError(f"--impl {resolved['impl']}: not available in a simulated machine: {reason}")
        send = [*traffic.send, *(["--congestion", args.congestion] if args.congestion else [])]
        warm, messages = job.message_counts(resolved["size_bytes"], args.messages)
        shape = (
            resolved["impl"],
            resolved["size_bytes"],
            resolved["fields"],
            resolved["threads"],
            resolved["working_set_messages"],
        )
        how = {name: resolved[name] for name in WORKLOAD_KEYS} | {"congestion_control": args.congestion}
        measurements.append(job.GuestMeasurement(*shape, warm, messages, tuple(send), traffic.receive, how))
    _check_count(measurements)
    return measurements


def _check_count(measurements: Sequence[job.GuestMeasurement]) -> None:
    """Raise UsageError for too many measurements."""
    if len(measurements) > MEASUREMENTS_MAX:
        count = len(measurements)
        raise UsageError(f"--impl, --size: {count} measurements; choose at most {MEASUREMENTS_MAX} at once")
