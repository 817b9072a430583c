"""The options of tools/profile.py, as people see them; options.py says what they become."""

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any

from copyscope import calling
from copyscope.arguments import UsageParser, seconds
from copyscope.plan.arms import PLACEMENTS
from copyscope.topology import WRITTEN

SWITCH = ("on", "off")
EXAMPLES = """\
examples:
  sudo tools/profile.py --impl zerocopy                      one profile over a veth pair, one ledger
  sudo tools/profile.py --impl one_copy --size 1M --threads 4
  sudo tools/profile.py --impl zerocopy --topology veth-xdp --explain
  sudo tools/profile.py --impl zerocopy --topology nics:eth1,eth2
  sudo tools/profile.py --impl zerocopy --receiver-at web2   from here to another machine
  sudo tools/profile.py --impl two_copy --repeat 5 --out results/mine
  sudo tools/profile.py --impl zerocopy --json - | jq .verdict
  tools/profile.py --simulate --impl one_copy,zerocopy --size 1K,64K --cache genoa    no root, no PMU
  tools/profile.py --simulate -- ./program ARGUMENTS         a static program, over loopback in the guest
"""
PROGRAMS = """
any other program (--pid, --comm, --cgroup, -- COMMAND; with them --netns, --no-follow, --whole, --live,
--advise and more: tools/profile.py --pid 1 --help):
  sudo tools/profile.py --pid $(pidof -s nginx)              until Ctrl-C; its children are followed
  sudo tools/profile.py --duration 10 -- iperf3 -c HOST      a command, as the user who called sudo
  sudo tools/profile.py --cgroup system.slice/redis.service --live
"""
STATUS = """
exit status: 0 a valid run, 1 a failed or invalid one, or one that could not be written where it was to go
(a line says where it is kept), 2 wrong usage, 130 interrupted; who stops reading the output changes none
"""

FIRST_EXAMPLES = """\
examples:
  sudo tools/profile.py zero_copy                            one profile over a veth pair, one ledger
  sudo tools/profile.py one_copy --size 1M --threads 4 --json run.json
"""
COMMON = (
    *("--impl", "--size", "--threads", "--duration", "--topology", "--repeat", "--json", "--explain"),
    *("--verbose", "--help-all"),
)

# The options of a simulated machine, and what they are without being given.
SIMULATED: dict[str, Any] = {"cache": "generic", "kernel": "6.12", "seeds": 3, "fast": False}


@cache
def of_profile() -> UsageParser:
    """The parser of tools/profile.py, made once for those who read many runs: nobody adds to it."""
    return parser()


def parser(
    prog: str = "profile",
    description: str = "Run a TCP send strategy over a path of its own; print its copies and what they cost.",
    examples: str = FIRST_EXAMPLES,
    epilog: str | None = None,
    common: Sequence[str] = COMMON,
    *,
    named: bool = True,
) -> UsageParser:
    """All options of tools/profile.py. Those of the traffic are checked by the traffic program itself.

    `common`: those that --help lists; --help-all lists all. `named`: a strategy is also given without --impl.
    """
    made = UsageParser(
        prog=prog,
        description=description,
        common=common,
        examples=examples,
        epilog=epilog or _epilog(),
        allow_abbrev=False,
    )
    work = made.add_argument_group("workload")
    _add_strategy(work, named=named)
    work.add_argument(
        "--size", default="64K", metavar="BYTES", help="message size, suffixes K M G; default 64K"
    )
    work.add_argument("--fields", default="8", metavar="N", help="buffers per message, 1..1024; default 8")
    work.add_argument(
        "--threads",
        default="1",
        metavar="N",
        help="connections, mostly a thread each on both sides; default 1",
    )
    work.add_argument(
        "--duration", type=seconds, default=5.0, metavar="S", help="measuring time: 5 (default), 90s, 10m"
    )
    work.add_argument(
        "--messages",
        type=int,
        metavar="N",
        help="a fixed count per thread instead (no control segments then)",
    )
    work.add_argument(
        "--mode", default="stream", help="stream (default) or rr (request/response: real latency)"
    )
    work.add_argument(
        "--receiver",
        default="read",
        help="read (default), recvmsg, trunc (MSG_TRUNC: no copy), poll (one thread for all connections), map"
        " (TCP_ZEROCOPY_RECEIVE), multishot (io_uring) or splice (to a pipe)",
    )
    work.add_argument(
        "--touch-received",
        action="store_true",
        help="the receiver looks at a byte of every cache line that it gets",
    )
    work.add_argument(
        "--coalesce",
        default="0",
        metavar="US",
        help="with --receiver poll: look every so many us when nothing is there, instead of being woken;"
        " default 0",
    )
    work.add_argument(
        "--sender",
        default="threads",
        help="threads (default, one for each connection) or loop (one sends on all in turn)",
    )
    work.add_argument(
        "--file", metavar="DIR", help="where a strategy that sends from a file has it; default in memory"
    )
    work.add_argument(
        "--issue",
        help="of uring_send and uring_zc, who does the work: inline (default, the thread that asks), async (a"
        " worker of io_uring) or sqpoll (its thread that polls)",
    )
    work.add_argument(
        "--push",
        default="none",
        help="of per_field, what holds fields back until the last: none (default), more (MSG_MORE) or cork"
        " (TCP_CORK)",
    )
    work.add_argument(
        "--batch",
        default="1",
        metavar="N",
        help="of per_field, so many fields in one sendmmsg(); default 1, a send() each",
    )
    work.add_argument(
        "--call",
        default="sendmsg",
        help="of one_copy, the call that takes all fields: sendmsg (default) or writev",
    )
    work.add_argument(
        "--via",
        default="sendfile",
        help="of sendfile: by sendfile() (default), or by splice through a pipe of its own",
    )
    work.add_argument(
        "--registered", action="store_true", help="with uring_zc: the messages' memory is registered"
    )
    work.add_argument("--align", default="heap", help="heap (default) or page")
    work.add_argument("--pages", default="4k", help="4k (default), thp or hugetlb")
    work.add_argument("--working-set", metavar="N", help="messages in the ring; default 1 MiB worth, 4..1024")
    work.add_argument(
        "--touch", action="store_true", help="the application rewrites each message before it sends it"
    )
    work.add_argument("--verify", action="store_true", help="the receiver checks every byte")
    work.add_argument("--time-every", metavar="N", help="time one message in N; default 16")
    path = made.add_argument_group("path")
    path.add_argument(
        "--topology",
        default="veth",
        metavar="KIND",
        help=f"{', '.join(WRITTEN)} (two interfaces with a cable between them); default veth",
    )
    _add_hosts(path)
    path.add_argument("--mtu", type=int, metavar="BYTES")
    for name, what in (
        ("tso", "sender's segmentation offload"),
        ("gso", "software segmentation"),
        ("gro", "receive coalescing"),
    ):
        path.add_argument(f"--{name}", choices=SWITCH, help=what)
    path.add_argument("--nodelay", choices=SWITCH, default="on", help="TCP_NODELAY; default on")
    path.add_argument("--congestion", metavar="NAME", help="default cubic where available")
    path.add_argument(
        "--tls",
        nargs="?",
        const="1.3",
        default="off",
        metavar="VERSION",
        help="the kernel encrypts (kTLS, AES-GCM-128, keys set by hand): 1.2 or 1.3 (without a value);"
        " default off",
    )
    path.add_argument("--sndbuf", metavar="BYTES", help="SO_SNDBUF; default autotuning")
    path.add_argument("--rcvbuf", metavar="BYTES", help="SO_RCVBUF; default autotuning")
    path.add_argument("--buffer", default="128K", metavar="BYTES", help="the receiver's buffer; default 128K")
    path.add_argument(
        "--placement", choices=PLACEMENTS, default="split", help="processors of the two sides; default split"
    )
    path.add_argument("--sender-cpus", metavar="LIST", help="such as 0,2-3; overrides --placement")
    path.add_argument("--receiver-cpus", metavar="LIST")
    path.add_argument("--keep", metavar="NAME", help="keep the namespaces under this name to look around in")
    _add_simulation(made)
    tool = add_instruments(made, "default 16, of functions what their cost here allows; 1 with --messages")
    tool.add_argument(
        "--copy-in",
        choices=("any", "bracket", "call-site"),
        default="any",
        help="where functions are hooked: see the copy into the kernel by hooks around it, or by kprobes on"
        " its call and the instruction after it; default bracket where that is fentry",
    )
    tool.add_argument(
        "--warmup", type=float, default=0.3, metavar="S", help="traffic before the first segment; default 0.3"
    )
    tool.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="runs; with more than one a summary follows"
    )
    add_output(made)
    return made


def _epilog() -> str:
    programs = f"\nany other program: {calling.FRONT} watch --help\n" if calling.by_verb() else PROGRAMS
    return EXAMPLES + programs + STATUS


def _add_strategy(work: argparse._ArgumentGroup, *, named: bool) -> None:
    strategy = work.add_mutually_exclusive_group()
    if named:
        strategy.add_argument(
            "impl", nargs="?", default=argparse.SUPPRESS, metavar="STRATEGY", help="the same as --impl"
        )
    strategy.add_argument(
        "--impl",
        default="zero_copy",
        metavar="NAME",
        help="strategy: null, per_field, two_copy, one_copy, zero_copy, sendfile, "
        "uring_send, uring_zc, vmsplice (and aliases); "
        "default zero_copy",
    )


def _add_hosts(path: argparse._ArgumentGroup) -> None:
    path.add_argument(
        "--sender-at",
        metavar="HOST",
        help="the sender on another machine, by your ssh and sudo, brought there and taken away again; here:"
        " this one",
    )
    path.add_argument(
        "--receiver-at", metavar="HOST", help="the receiver on another machine, in the same way"
    )
    path.add_argument(
        "--sender-address",
        metavar="ADDR",
        help="with them: the sender's address on the network to be measured; default the one that ssh uses",
    )
    path.add_argument(
        "--bundles",
        metavar="DIR",
        help="with them: where `make bundle` put what is brought; default .output/bundle",
    )


def _add_simulation(made: UsageParser) -> None:
    model = made.add_argument_group("simulated machine (no root, no PMU: QEMU and a model of the caches)")
    model.add_argument(
        "--simulate",
        action="store_true",
        help="model the cache misses of each copy instead of measuring; --impl and --size may be lists",
    )
    model.add_argument(
        "--cache",
        default=SIMULATED["cache"],
        metavar="MODEL",
        help="generic (default), sapphire-rapids, genoa, graviton3, laptop, or host (this machine's);"
        " with changes: genoa,llc=64M:16,prefetch=next,vcpus=4",
    )
    model.add_argument(
        "--kernel",
        default=SIMULATED["kernel"],
        metavar="V",
        help="5.10, 6.1, 6.12 (default) or 7.x, fetched from Debian once and kept; or host, from /boot",
    )
    model.add_argument(
        "--seeds",
        type=int,
        default=SIMULATED["seeds"],
        metavar="N",
        help="independent boots, for intervals; default 3",
    )
    model.add_argument(
        "--fast", action="store_true", help="without counting instructions: no two runs are alike then"
    )


def add_instruments(made: UsageParser, gate: str) -> argparse._ArgumentGroup:
    """What is the same for traffic of our own and for programs of others; `gate`: the default of --gate."""
    tool = made.add_argument_group("instruments")
    tool.add_argument(
        "--instruments",
        default="auto",
        metavar="LIST",
        help="auto, or some of counters,calls,sampler,functions",
    )
    tool.add_argument(
        "--attach",
        choices=("any", "fentry", "kprobe.multi", "kprobe"),
        default="any",
        help="how functions are hooked: the first of these that the kernel takes, or this one; kprobe.multi"
        " loses less where several threads share a processor on a kernel that preempts itself (7.x)",
    )
    tool.add_argument(
        "--frequency", type=int, default=199, metavar="HZ", help="samples per second of CPU time; default 199"
    )
    tool.add_argument(
        "--gate",
        type=int,
        metavar="N",
        help="time one syscall in N, and one send or receive where functions are hooked; all are counted; "
        + gate,
    )
    tool.add_argument(
        "--count",
        metavar="LIST",
        help="events to count per hooked function, at most 4: cycles, instructions, LLC-load-misses,"
        " L1-dcache-load-misses (these are the default), dTLB-load-misses, dTLB-store-misses,"
        " iTLB-load-misses, cpu-clock, page-faults; or none",
    )
    tool.add_argument("--seed", type=int, help="order of the segments; default: a new one, recorded")
    return tool


def add_output(made: UsageParser) -> argparse._ArgumentGroup:
    """The same for both, too."""
    out = made.add_argument_group("output")
    out.add_argument("--json", metavar="FILE", help="the record as JSON; - is stdout, without the table")
    out.add_argument(
        "--out", metavar="DIR", help="keep each run's record (and its folded stacks) in this directory"
    )
    out.add_argument(
        "--compare-tiers",
        action="store_true",
        help="exact and sampled shares of this run side by side (hooks functions, too)",
    )
    out.add_argument(
        "--stacks",
        action="store_true",
        help="keep every sampled stack in the record, for `copyscope show FILE --export FORMAT`; says how"
        " large that is",
    )
    out.add_argument("--explain", action="store_true", help="say what each line means")
    out.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="all tables and findings; twice: exact bytes, hooks, checks, unattributed symbols"
        if calling.by_verb()
        else "exact bytes, hooks, checks, unattributed symbols",
    )
    out.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return out
