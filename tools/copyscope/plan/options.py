# SPDX-License-Identifier: GPL-2.0-only
"""Resolve the options of `copyscope run` into traffic, a workload and a network path."""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from copyscope.base import paths
from copyscope.base.errors import (
    MachineError,
    RunError,
    UsageError,
    out_of_range,
    why_not_executed,
    why_not_started,
)
from copyscope.base.programs import HERE, LIMIT_S, LimitError, run_program
from copyscope.base.spelling import alternatives
from copyscope.machine.cores import CPU_RECORD_KEYS, measure_busy_quarters, read_cpus
from copyscope.machine.topology import SIDES, LinkSettings, Side, TopologyError, invoking_user, open_topology
from copyscope.plan.arguments import SIMULATED, run_parser
from copyscope.plan.placement import place_beside, place_sides
from copyscope.plan.schedule import parse_count, parse_cpus, parse_instruments
from copyscope.plan.traffic_options import (
    AGREED,
    FROM_RECEIVER,
    FROM_SENDER,
    TO_BOTH,
    TO_RECEIVER,
    TO_SENDER,
)

# Exception for each exit status of `traffic --check` (src/traffic/options.h).
TRAFFIC_REFUSALS: dict[int, type[Exception]] = {2: UsageError, 3: MachineError}
# CPUs of sender and receiver, in the order of their threads.
Cpus = dict[Side, list[int]]
MAX_SAMPLE_RATE = Path("/proc/sys/kernel/perf_event_max_sample_rate")
AVAILABLE_CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@dataclass(frozen=True)
class TrafficOptions:
    """Command-line words for sender (`send`) and receiver (`receive`), and the resolved options."""

    send: tuple[str, ...]
    receive: tuple[str, ...]
    resolved: Mapping[str, Any]
    # CPUs to which the threads of sender and receiver are pinned, as in the record.
    placement: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def in_pieces(self) -> bool:
        """True if a single send call may call the socket's send function several times."""
        return bool(self.resolved["in_pieces"])

    @property
    def moves(self) -> tuple[str, ...]:
        """Ways in which bytes move other than by plain copies, as arguments of the collector's --moves."""
        return tuple(self.resolved["moves"])


def _check_frequency(frequency_hz: int) -> None:
    """Raise UsageError for a frequency outside our range, MachineError above this kernel's limit.

    The kernel lowers its limit when PMU interrupts take long (perf_sample_event_took() in
    kernel/events/core.c). Above the limit it refuses events, or drops samples.
    """
    if not 1 <= frequency_hz <= 50_000:
        raise UsageError(out_of_range("--frequency", frequency_hz, 1, "50000 Hz"))
    try:
        limit_hz = int(MAX_SAMPLE_RATE.read_text())
    except (OSError, ValueError):
        return
    if frequency_hz > limit_hz:
        raise MachineError(
            f"--frequency {frequency_hz}: above kernel.perf_event_max_sample_rate ({limit_hz} Hz); choose at"
            f" most {limit_hz}, or raise the limit with sysctl"
        )


def check_instruments(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the instruments of --instruments.

    Raises UsageError for invalid instrument options, and MachineError for a frequency that this kernel
    refuses.
    """
    _check_frequency(args.frequency)
    if args.gate is not None and not 1 <= args.gate <= 1_000_000:
        raise UsageError(out_of_range("--gate", args.gate, 1, 1_000_000))
    instruments = parse_instruments(args.instruments)
    if args.count is not None:
        parse_count(args.count)
        if "functions" not in instruments:
            raise UsageError(
                "--count: counts per function, but no function is hooked; add --instruments sampler,functions"
            )
    return instruments


def refuse(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise UsageError for the first option in `names` that differs from its default. `why`: the reason."""
    values, defaults = vars(args), vars(run_parser().parse_args([]))
    for name in names:
        if values[name] != defaults[name]:
            raise UsageError(f"--{name.replace('_', '-')}: {why}")


def refuse_single_run_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that are not allowed in a command with several runs."""
    refuse(args, ("simulate", "keep", "stacks"), "only for single runs; use copyscope run")


# Largest value of --repeat. All runs are planned before the first run starts; a sweep allows more runs.
REPEATS_MAX = 1000
# Limits of --mtu in bytes: IPV4_MIN_MTU (RFC 791) and ETH_MAX_MTU (linux/if_ether.h). lo allows one byte
# more.
MTU_MIN, MTU_MAX = 68, 65_535


def check_usage(args: argparse.Namespace) -> tuple[str, ...]:
    """Raise UsageError for options that are wrong on any machine; return the instruments to use."""
    instruments = check_instruments(args)
    try:
        open_topology(args.topology, LinkSettings(), paths.XDP_OBJECT)
    except TopologyError as error:
        raise UsageError(str(error)) from None
    _check_hosts(args)
    largest = MTU_MAX + (args.topology == "loopback")
    problems = (
        (
            not 1 <= args.repeat <= REPEATS_MAX,
            out_of_range("--repeat", args.repeat, 1, REPEATS_MAX),
        ),
        (
            args.mtu is not None and not MTU_MIN <= args.mtu <= largest,
            out_of_range("--mtu", args.mtu, MTU_MIN, f"{largest} on this path"),
        ),
        (not 0 <= args.warmup <= 60, out_of_range("--warmup", f"{args.warmup:g}", 0, "60 s")),
        (
            args.messages is not None and args.messages < 1,
            f"--messages {args.messages}: too few; choose at least 1",
        ),
        (not args.duration <= 3600, f"--duration {args.duration:g}: too long; choose at most 3600 s"),
    )
    for is_wrong, message in problems:
        if is_wrong:
            raise UsageError(message)
    if not args.simulate:
        refuse(args, SIMULATED, "only for a simulated machine; add --simulate")
    # Function hooks work on one machine only.
    return tuple(name for name in instruments if name != "functions") if on_hosts(args) else instruments


def on_hosts(args: argparse.Namespace) -> bool:
    """Return True if sender or receiver runs on another machine."""
    return any(host not in (None, HERE) for host in (args.sender_at, args.receiver_at))


# Options about a path that copyscope creates. No settings are changed on the path to other machines.
PATH_SETTINGS = ("mtu", "tso", "gso", "gro", "congestion", "keep")


def _check_hosts(args: argparse.Namespace) -> None:
    """Raise UsageError for options that conflict with the machines of sender and receiver."""
    if not on_hosts(args):
        options = {
            "--sender-at": args.sender_at,
            "--receiver-at": args.receiver_at,
            "--sender-address": args.sender_address,
        }
        option = next((name for name, value in options.items() if value), None)
        if option is not None:
            raise UsageError(
                f"{option}: sender or receiver must be on another machine; add --receiver-at HOST"
            )
        return
    refuse(args, PATH_SETTINGS, "copyscope changes no settings of other machines; leave this option out")
    if args.topology != "veth":
        raise UsageError(
            f"--topology {args.topology}: --sender-at and --receiver-at define the path; leave --topology out"
        )
    if "functions" in args.instruments:
        raise UsageError("--instruments: function hooks work on one machine only; use --instruments sampler")


def resolve_traffic(args: argparse.Namespace, *, pinned: bool = True) -> TrafficOptions:
    """Resolve the options of the traffic program by running it, because it alone knows the limits.

    `pinned`: choose CPUs of this machine for the threads.
    """
    given, chosen = vars(args), _chosen_cpus(args)
    send, receive = option_words(given, TO_SENDER), option_words(given, TO_RECEIVER)
    both = option_words(given, TO_BOTH)
    resolved = _check_by_traffic(["send", *send, *_cpu_words(chosen, "sender"), *both, "--check"])
    # From here on sizes are numbers, so that the receiver does not parse `64K` again.
    shape = {name: resolved[key] for name, key in AGREED.items()}
    both = option_words(given | shape, TO_BOTH)
    receiver_cpus = _cpu_words(chosen, "receiver")
    receiver = _check_by_traffic(["recv", *receive, *receiver_cpus, *both, "--port", "1", "--check"])
    resolved = {**resolved, **{key: receiver[key] for key in FROM_RECEIVER}}
    resolved["moves"] = list(dict.fromkeys((*resolved["moves"], *receiver["moves"])))
    cpus = _place_sides(args, chosen, resolved) if pinned else chosen
    return TrafficOptions(
        (*send, *_cpu_words(cpus, "sender"), *both),
        (*receive, *_cpu_words(cpus, "receiver"), *both),
        resolved,
        _describe_cpus(cpus, here=pinned),
    )


def _chosen_cpus(args: argparse.Namespace) -> Cpus:
    """Return the CPUs of --sender-cpus and --receiver-cpus."""
    lists = {"sender": args.sender_cpus, "receiver": args.receiver_cpus}
    return {side: parse_cpus(lists[side], f"--{side}-cpus") for side in SIDES if lists[side]}


def _place_sides(args: argparse.Namespace, chosen: Cpus, resolved: Mapping[str, Any]) -> Cpus:
    """Return the CPUs of sender and receiver. If a side is missing, the scheduler chooses its CPUs.

    `chosen`: CPUs that the user chose. `resolved`: options as the traffic program resolved them.
    """
    if args.placement == "none" or len(chosen) == len(SIDES):
        return chosen
    cpus = read_cpus(os.sched_getaffinity(0))
    # With two CPUs there is nothing to choose.
    load = measure_busy_quarters() if len(cpus) > len(SIDES) else {}
    thread_count: int = resolved["threads"]
    threads = (
        1 if resolved["sender"] == "loop" else thread_count,
        1 if resolved["receiver"] == "poll" else thread_count,
    )
    if not chosen:
        return dict(zip(SIDES, place_sides(args.placement, cpus, threads, load), strict=True))
    ((side, other_cpus),) = chosen.items()
    other = SIDES[1 - SIDES.index(side)]
    nearby = place_beside(other_cpus, cpus, threads[SIDES.index(other)], load)
    return {**chosen, other: other_cpus[:1] if args.placement == "same" else nearby}


def _describe_cpus(cpus: Cpus, *, here: bool) -> dict[str, list[Mapping[str, Any]]]:
    """Return the record's facts about each CPU. If not `here` but on another machine: only its number."""
    facts = {cpu.number: asdict(cpu) for cpu in read_cpus(os.sched_getaffinity(0))} if here else {}
    return {
        side: [
            {"cpu": number} | {key: facts.get(number, {}).get(key) for key in CPU_RECORD_KEYS}
            for number in cpus.get(side, ())
        ]
        for side in SIDES
    }


def option_words(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return command-line words for the options of `names` that are switched on or have a value.

    `options`: value of each option by name.
    """
    arguments = []
    for name, value in ((name, options[name]) for name in names):
        option = f"--{name.replace('_', '-')}"
        if value is not None and value is not False:
            arguments += [option] if value is True else [option, str(value)]
    return arguments


@dataclass(frozen=True)
class PathPlan:
    """Network path of a run, its warm-up time, and the name under which the path is kept."""

    kind: str
    link: LinkSettings
    warmup_s: float
    keep: str | None = None
    # On a path between hosts: the sender's address for the receiver to connect to; None for the address that
    # ssh uses.
    sender_address: str | None = None


def choose_path(args: argparse.Namespace) -> PathPlan:
    """Return the path to create. Raises UsageError for a congestion control that this kernel lacks."""
    if on_hosts(args):
        return PathPlan("hosts", LinkSettings(), args.warmup, sender_address=args.sender_address)
    link = LinkSettings(
        mtu_bytes=args.mtu,
        tso=_switch(args.tso),
        gso=_switch(args.gso),
        gro=_switch(args.gro),
        congestion=choose_congestion(args.congestion),
    )
    return PathPlan(args.topology, link, args.warmup, args.keep)


def choose_congestion(requested: str | None) -> str | None:
    """Return the congestion control for the route: `requested`, else cubic; None means the host's default.

    The algorithm is set on the route, because an unprivileged program may only set algorithms of
    tcp_allowed_congestion_control on its sockets. This list often lacks cubic where the default is bbr. bbr
    paces its sends, which changes results considerably, so the host's default is not used silently.
    """
    try:
        available = AVAILABLE_CONGESTION.read_text(encoding="ascii").split()
    except OSError:
        return requested
    if requested is None:
        return "cubic" if "cubic" in available else None
    if requested not in available:
        raise UsageError(f"--congestion {requested}: not available here; choose {alternatives(available)}")
    return requested


def workload_section(args: argparse.Namespace, resolved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record's `workload`. `resolved`: options as the traffic program resolved them."""
    section = {key: resolved[key] for key in (*FROM_SENDER, *FROM_RECEIVER)}
    section["duration_s"] = None if args.messages is not None else args.duration
    placement = "none" if on_hosts(args) else args.placement
    section["placement"] = "chosen" if args.sender_cpus or args.receiver_cpus else placement
    return section


def _check_by_traffic(argv: list[str]) -> Mapping[str, Any]:
    """Run the traffic program with `--check` and return the options as it resolved them.

    `argv`: arguments of the program. Raises UsageError, MachineError or RunError with its message.
    """
    try:
        # Run the program as its later user, because the memlock limit does not apply to root.
        as_user = invoking_user().argv() if os.geteuid() == 0 else []
        result = run_program([*as_user, str(paths.TRAFFIC), *argv])
    except OSError as error:
        raise RunError(why_not_started([*as_user, str(paths.TRAFFIC)][0], error)) from error
    except LimitError as error:
        # A check normally takes milliseconds.
        raise RunError(
            f"{paths.TRAFFIC}: no answer in {LIMIT_S:.0f} s; the machine is too busy: repeat when idle"
        ) from error
    # The output quotes the options, which may be invalid UTF-8.
    if result.status != 0:
        lines = result.errors.decode(errors="surrogateescape").strip().splitlines()
        line = lines[0] if lines else f"traffic {argv[0]}: ended with status {result.status}"
        line = why_not_executed(line) or line
        raise TRAFFIC_REFUSALS.get(result.status, RunError)(line.removeprefix(f"traffic {argv[0]}: "))
    options: Mapping[str, Any] = json.loads(result.output.decode(errors="surrogateescape"))
    return options


def _cpu_words(cpus: Cpus, side: Side) -> list[str]:
    """Return the option --cpus of a side, or no words if the scheduler places its threads."""
    return ["--cpus", ",".join(map(str, cpus[side]))] if side in cpus else []


def _switch(value: str | None) -> bool | None:
    return None if value is None else value == "on"
