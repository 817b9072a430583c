"""What the options of `run` become: traffic, a workload, a path."""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.asking import LIMIT_S, LimitError, ask
from copyscope.errors import MachineError, RunError, UsageError, why_not_executed, why_not_started
from copyscope.machine.cores import FACTS, look_at_load, read_cpus
from copyscope.places import HERE
from copyscope.plan.arguments import SIMULATED, of_run
from copyscope.plan.instruments import parse_count, parse_cpus, parse_instruments
from copyscope.plan.placement import beside, place
from copyscope.topology import SIDES, LinkSettings, Side, TopologyError, invoking_user, open_topology

# Exit statuses of `traffic --check` (src/traffic/options.h).
TRAFFIC_REFUSALS: dict[int, type[Exception]] = {2: UsageError, 3: MachineError}
# The keys of the record's workload that the traffic program resolves.
FROM_TRAFFIC = (
    *("impl", "size_bytes", "fields", "threads", "mode", "align", "pages", "working_set_messages", "touch"),
    *("sender", "file", "issue", "registered", "push", "call", "via", "batch_sends", "wait", "header_bytes"),
    *("verify", "tls", "nodelay", "congestion_control", "sndbuf_bytes", "time_every"),
)
FROM_RECEIVER = ("receiver", "coalesce_us", "touch_received", "rcvbuf_bytes")
# Options of ours that are the traffic program's: of both ends alike, and of one.
TO_BOTH = ("size", "fields", "threads", "mode", "nodelay", "tls", "working_set", "verify", "touch")
TO_SENDER = (
    *("impl", "align", "pages", "sender", "file", "issue", "push", "batch", "call", "via", "registered"),
    *("wait", "header", "sndbuf", "time_every", "messages"),
)
TO_RECEIVER = ("receiver", "coalesce", "buffer", "rcvbuf", "touch_received")
# Those that are numbers once they have been read -> what the traffic program calls them then.
SHAPE = {
    **{"size": "size_bytes", "fields": "fields", "threads": "threads"},
    **{"working_set": "working_set_messages"},
}
# Of a side, in the order of its threads.
Cpus = dict[Side, list[int]]
AVAILABLE_CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@dataclass(frozen=True)
class Traffic:
    """The traffic's own options, and what it made of them."""

    send: tuple[str, ...]
    receive: tuple[str, ...]
    resolved: dict[str, Any]
    # Of each side the CPUs that its threads are pinned to, as the record has them.
    placement: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def in_pieces(self) -> bool:
        """Whether a call of the sender may pass the socket several times."""
        return bool(self.resolved["in_pieces"])

    @property
    def moves(self) -> tuple[str, ...]:
        """What becomes of its bytes beside plain copies, as the collector calls it."""
        return tuple(self.resolved["moves"])


def check_instruments(args: argparse.Namespace) -> tuple[str, ...]:
    """The instruments, and that nothing was asked of functions that are not hooked."""
    if not 1 <= args.frequency <= 50_000:
        raise UsageError(f"--frequency: {args.frequency}: not between 1 and 50000 Hz")
    if args.gate is not None and not 1 <= args.gate <= 1_000_000:
        raise UsageError(f"--gate: {args.gate}: not between 1 and 1000000")
    instruments = parse_instruments(args.instruments)
    if args.count is not None:
        parse_count(args.count)
        if "functions" not in instruments:
            raise UsageError(
                "--count: counts per function, but no function is hooked: add --instruments sampler,functions"
            )
    return instruments


def refuse(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raises UsageError for the first of these options that is other than run's default."""
    default = vars(of_run().parse_args([]))
    for name in names:
        if getattr(args, name) != default[name]:
            raise UsageError(f"--{name.replace('_', '-')}: {why}")


def refuse_of_single_runs(args: argparse.Namespace, *more: str) -> None:
    """What only copyscope run does, and `more`: of verbs that make several runs as one."""
    names = ("simulate", "keep", "stacks", *more)
    refuse(args, names, "only for single runs: use copyscope run")


# All plans are made before the first run; a sweep is what goes on after anything.
REPEATS_MAX = 1000
# IPV4_MIN_MTU (RFC 791), ETH_MAX_MTU (include/uapi/linux/if_ether.h); lo has one more.
MTU_MIN, MTU_MAX = 68, 65_535


def check_usage(args: argparse.Namespace) -> tuple[str, ...]:
    """What can be refused without running anything. Returns the instruments."""
    instruments = check_instruments(args)
    try:
        open_topology(args.topology, LinkSettings(), paths.XDP_OBJECT)
    except TopologyError as error:
        raise UsageError(f"--{error}") from None
    _check_hosts(args)
    largest = MTU_MAX + (args.topology == "loopback")
    refused = (
        (
            not 1 <= args.repeat <= REPEATS_MAX,
            f"--repeat: {args.repeat}: not between 1 and {REPEATS_MAX}",
        ),
        (
            args.mtu is not None and not MTU_MIN <= args.mtu <= largest,
            f"--mtu: {args.mtu}: not between {MTU_MIN} and {largest} on this path",
        ),
        (not 0 <= args.warmup <= 60, f"--warmup: {args.warmup:g}: not between 0 and 60 s"),
        (args.messages is not None and args.messages < 1, f"--messages: {args.messages}: at least 1"),
        (not args.duration <= 3600, f"--duration: {args.duration:g}: at most 3600 s"),
    )
    for is_wrong, said in refused:
        if is_wrong:
            raise UsageError(said)
    if not args.simulate:
        refuse(args, SIMULATED, "only for a simulated machine: add --simulate")
    # Functions are hooked on one machine only as yet.
    return tuple(name for name in instruments if name != "functions") if on_hosts(args) else instruments


def on_hosts(args: argparse.Namespace) -> bool:
    """Whether a side is to be on another machine."""
    return any(host not in (None, HERE) for host in (args.sender_at, args.receiver_at))


# What is set on a path that copyscope makes; of hosts nothing is changed.
OF_A_MADE_PATH = ("mtu", "tso", "gso", "gro", "congestion", "keep")


def _check_hosts(args: argparse.Namespace) -> None:
    if not on_hosts(args):
        given = next(
            (name for name in ("sender_at", "receiver_at", "sender_address") if getattr(args, name)), None
        )
        if given is not None:
            option = f"--{given.replace('_', '-')}"
            raise UsageError(f"{option}: one of the two sides must be on another machine: --receiver-at HOST")
        return
    refuse(
        args, OF_A_MADE_PATH, "copyscope changes nothing on other machines: set it there, and leave it out"
    )
    if args.topology != "veth":
        raise UsageError(
            f"--topology {args.topology}: --sender-at and --receiver-at define the path: leave it out"
        )
    if "functions" in args.instruments:
        raise UsageError("--instruments: function hooks work on one machine only: use --instruments sampler")


def resolve_traffic(args: argparse.Namespace, *, pinned: bool = True) -> Traffic:
    """Let the traffic program check its options (it is the only one that knows their limits).

    `pinned`: to processors of this machine.
    """
    given, chosen = vars(args), _chosen_cpus(args)
    own = words(given, TO_SENDER)
    resolved = _ask_traffic(["send", *own, *_cpus(chosen, "sender"), *words(given, TO_BOTH), "--check"])
    # From here on they are numbers: `64K` is read once.
    shape = {name: resolved[key] for name, key in SHAPE.items()}
    agreed = words(given | shape, TO_BOTH)
    receive = words(given, TO_RECEIVER)
    received = _ask_traffic(["recv", *receive, *_cpus(chosen, "receiver"), *agreed, "--port", "1", "--check"])
    resolved |= {key: received[key] for key in FROM_RECEIVER}
    resolved["moves"] = list(dict.fromkeys((*resolved["moves"], *received["moves"])))
    cpus = _place(args, chosen, resolved) if pinned else chosen
    send, receive = [*own, *_cpus(cpus, "sender")], [*receive, *_cpus(cpus, "receiver")]
    return Traffic((*send, *agreed), (*receive, *agreed), resolved, _described(cpus, here=pinned))


def _chosen_cpus(args: argparse.Namespace) -> Cpus:
    lists = {"sender": args.sender_cpus, "receiver": args.receiver_cpus}
    return {side: parse_cpus(lists[side], f"--{side}-cpus") for side in SIDES if lists[side]}


def _place(args: argparse.Namespace, chosen: Cpus, resolved: Mapping[str, Any]) -> Cpus:
    """The CPUs of both sides; those of one that is not in it are left to the scheduler."""
    if args.placement == "none" or len(chosen) == len(SIDES):
        return chosen
    cpus = read_cpus(os.sched_getaffinity(0))
    # Of two there is nothing to choose.
    load = look_at_load() if len(cpus) > len(SIDES) else {}
    count: int = resolved["threads"]
    threads = (
        1 if resolved["sender"] == "loop" else count,
        1 if resolved["receiver"] == "poll" else count,
    )
    if not chosen:
        return dict(zip(SIDES, place(args.placement, cpus, threads, load), strict=True))
    ((side, theirs),) = chosen.items()
    other = SIDES[1 - SIDES.index(side)]
    near = beside(theirs, cpus, threads[SIDES.index(other)], load)
    return {**chosen, other: theirs[:1] if args.placement == "same" else near}


def _described(cpus: Cpus, *, here: bool) -> dict[str, list[dict[str, Any]]]:
    """What the record says of each CPU; of another machine's its number only."""
    known = {cpu.number: cpu for cpu in read_cpus(os.sched_getaffinity(0))} if here else {}
    return {
        side: [
            {"cpu": one} | {fact: getattr(known.get(one), fact, None) for fact in FACTS}
            for one in cpus.get(side, ())
        ]
        for side in SIDES
    }


def words(given: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Options as they are written: a switch where it is on, any other where it has a value."""
    made = []
    for name, value in ((name, given[name]) for name in names):
        option = f"--{name.replace('_', '-')}"
        if value is not None and value is not False:
            made += [option] if value is True else [option, str(value)]
    return made


@dataclass(frozen=True)
class PathPlan:
    """Over what the traffic goes, for how long before it is measured, and whether the path stays."""

    kind: str
    link: LinkSettings
    warmup_s: float
    keep: str | None = None
    # Of a path between hosts: what the receiver connects to, where that is not what ssh uses.
    sender_address: str | None = None


def choose_path(args: argparse.Namespace) -> PathPlan:
    """Raises UsageError for a congestion control that this kernel does not have."""
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


def choose_congestion(asked: str | None) -> str | None:
    """What the route is to use: what was asked for, else cubic; None leaves the host's default.

    On the route and not on the sockets: an unprivileged program may only choose from
    tcp_allowed_congestion_control, which often lacks cubic where the host's default is bbr. bbr paces, which
    changes results by a factor, so the host's default is not used silently.
    """
    try:
        available = AVAILABLE_CONGESTION.read_text(encoding="ascii").split()
    except OSError:
        return asked
    if asked is None:
        return "cubic" if "cubic" in available else None
    if asked not in available:
        raise UsageError(f"--congestion: {asked}: not available here: one of {', '.join(available)}")
    return asked


def workload_section(args: argparse.Namespace, resolved: dict[str, Any]) -> dict[str, Any]:
    """The record's `workload`, from the options as the traffic program resolved them."""
    section = {key: resolved[key] for key in (*FROM_TRAFFIC, *FROM_RECEIVER)}
    section["duration_s"] = None if args.messages is not None else args.duration
    section["messages"] = args.messages
    placement = "none" if on_hosts(args) else args.placement
    section["placement"] = "chosen" if args.sender_cpus or args.receiver_cpus else placement
    return section


def _ask_traffic(argv: list[str]) -> dict[str, Any]:
    try:
        # As the user that it will run as: the memlock limit binds that one, not root.
        as_user = invoking_user().argv() if os.geteuid() == 0 else []
        result = ask([*as_user, str(paths.TRAFFIC), *argv])
    except OSError as error:
        raise RunError(why_not_started([*as_user, str(paths.TRAFFIC)][0], error)) from error
    except LimitError as error:
        # It works for milliseconds.
        raise RunError(
            f"{paths.TRAFFIC}: no answer in {LIMIT_S:.0f} s: the machine is too busy: repeat when idle"
        ) from error
    # It repeats what it was given, which may be no UTF-8.
    if result.status != 0:
        said = result.errors.decode(errors="surrogateescape").strip().splitlines()
        line = said[0] if said else f"traffic {argv[0]}: ended with status {result.status}"
        line = why_not_executed(line) or line
        raise TRAFFIC_REFUSALS.get(result.status, RunError)(line.removeprefix(f"traffic {argv[0]}: "))
    options: dict[str, Any] = json.loads(result.output.decode(errors="surrogateescape"))
    return options


def _cpus(cpus: Cpus, side: Side) -> list[str]:
    return ["--cpus", ",".join(map(str, cpus[side]))] if side in cpus else []


def _switch(value: str | None) -> bool | None:
    return None if value is None else value == "on"
