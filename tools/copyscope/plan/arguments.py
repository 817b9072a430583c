"""The options of copyscope run, as people see them; options.py says what they become."""

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any

from copyscope.arguments import UsageParser, add, seconds
from copyscope.plan.placement import PLACEMENTS
from copyscope.topology import WRITTEN

SWITCH = ("on", "off")
EXAMPLES = """\
examples:
  sudo copyscope run --impl zerocopy                         one profile over a veth pair, one ledger
  sudo copyscope run --impl one_copy --size 1M --threads 4
  sudo copyscope run zerocopy --topology veth-xdp --explain
  sudo copyscope run zerocopy --topology nics:eth1,eth2
  sudo copyscope run --impl zerocopy --receiver-at web2      from here to another machine
  sudo copyscope run --impl two_copy --repeat 5 --out results/mine
  sudo copyscope run --impl zerocopy --json - | jq .verdict
  sudo copyscope run zerocopy --simulate                     and the cache misses of a model beside it
"""
PROGRAMS = "\nany other program: copyscope watch --help\n"
STATUS = """
exit status: 0 a valid run, 1 a failed or invalid one, or one that could not be written where it was to go
(a line says where it is kept), 2 wrong usage, 130 interrupted; who stops reading the output changes none
"""

FIRST_EXAMPLES = """\
examples:
  sudo copyscope run zero_copy                               one profile over a veth pair, one ledger
  sudo copyscope run one_copy --size 1M --threads 4 --json run.json
"""
COMMON = (
    *("--impl", "--size", "--threads", "--duration", "--topology", "--repeat", "--json", "--explain"),
    *("--verbose", "--help-all"),
)

# The options of a simulated machine, and what they are without being given.
SIMULATED: dict[str, Any] = {"cache": "generic", "kernel": "6.12", "seeds": 3, "fast": False}

# As add() reads them.
WORKLOAD = """
--size BYTES =64K       message size, suffixes K M G; default 64K
--fields N =8           buffers per message, 1..1024; default 8
--header BYTES          of the first buffer, the others share the rest; default all alike
--threads N =1          connections, mostly a thread each on both sides; default 1
--duration S            measuring time: 5 (default), 90s, 10m
--messages N            a fixed count per thread instead (no control segments then)
--mode MODE =stream     stream (default) or rr (request/response: real latency)
--receiver RECEIVER =read   read (default), recvmsg, trunc (MSG_TRUNC: no copy), poll (one thread for all
                        connections), map (TCP_ZEROCOPY_RECEIVE), multishot (io_uring) or splice (to a pipe)
--touch-received        the receiver looks at a byte of every cache line that it gets
--coalesce US =0        with --receiver poll: look every so many us when nothing is there, instead of being
                        woken; default 0
--sender SENDER =threads   threads (default, one for each connection) or loop (one sends on all in turn)
--file DIR              where a strategy that sends from a file has it; default in memory
--issue ISSUE           of uring_send and uring_zc, who does the work: inline (default, the thread that asks),
                        async (a worker of io_uring) or sqpoll (its thread that polls)
--push PUSH =none       of per_field, what holds fields back until the last: none (default), more (MSG_MORE)
                        or cork (TCP_CORK)
--batch N =1            of per_field, so many fields in one sendmmsg(); default 1, a send() each
--call CALL =sendmsg    of one_copy, the call that takes all fields: sendmsg (default) or writev
--via VIA =sendfile     of sendfile: by sendfile() (default), or by splice through a pipe of its own
--wait WHEN             of zero_copy and uring_zc, when it reads the kernel's notices: batch (default, a
                        quarter of the ring at a time), each (waits for that of each message) or never (while
                        it sends)
--registered            with uring_zc: the messages' memory is registered
--align ALIGN =heap     heap (default) or page
--pages PAGES =4k       4k (default), thp or hugetlb
--working-set N         messages in the ring; default 1 MiB worth, 4..1024
--touch                 the application rewrites each message before it sends it
--verify                the receiver checks every byte
--time-every N          time one message in N; default 16
"""
PATH = """
--topology KIND =veth   {kinds} (two interfaces with a cable between them); default veth
--sender-at HOST        the sender on another machine, by your ssh and sudo, brought there and taken away
                        again; here: this one
--receiver-at HOST      the receiver on another machine, in the same way
--sender-address ADDR   with them: the sender's address on the network to be measured; default the one that
                        ssh uses
--tree DIR              with them: copyscope's directory there; default: as here
--mtu BYTES
--tso                   sender's segmentation offload
--gso                   software segmentation
--gro                   receive coalescing
--nodelay =on           TCP_NODELAY; default on
--congestion NAME       default cubic where available
--tls VERSION =off      the kernel encrypts (kTLS, AES-GCM-128, keys set by hand): 1.2 or 1.3 (without a
                        value); default off
--sndbuf BYTES          SO_SNDBUF; default autotuning
--rcvbuf BYTES          SO_RCVBUF; default autotuning
--buffer BYTES =128K    the receiver's buffer; default 128K
--placement =split      processors of the two sides: split (default: cores of their own, of one type, on one
                        node and one last-level cache where there are), same (one) or none (any)
--sender-cpus LIST      such as 0,2-3: thread i on the i-th of them; overrides --placement
--receiver-cpus LIST
--keep NAME             keep the namespaces under this name to look around in
"""
MODEL = """
--simulate              model the cache misses of each copy, too, and show them beside what was measured
--cache MODEL ={cache}  generic (default), sapphire-rapids, genoa, graviton3, laptop, or host (this
                        machine's); with changes: genoa,llc=64M:16,prefetch=next,vcpus=4
--kernel V ={kernel}    5.10, 6.1, 6.12 (default) or 7.x, fetched from Debian once and kept; or host, from
                        /boot
--seeds N               independent boots, for intervals; default 3
--fast                  without counting instructions: no two runs are alike then
"""
# Of our own traffic; a number that keeps no step with what happens every millisecond.
FREQUENCY_HZ = 199
INSTRUMENTS = """
--instruments LIST =auto   auto, or some of counters,calls,sampler,functions
--attach =any           how functions are hooked: the first of these that the kernel takes, or this one;
                        kprobe.multi loses less where several threads share a processor on a kernel that
                        preempts itself (7.x)
--frequency HZ          samples per second of each CPU; default {frequency_hz}
--gate N                where functions are hooked, time one copy in N; all are counted; {gate}
--count LIST            events to count per hooked function, at most 4: LLC-load-misses (the default),
                        dTLB-load-misses, dTLB-store-misses, iTLB-load-misses, cpu-clock, page-faults, or
                        rHEX, the number of an event of this processor (perf-list(1)); or none
--seed SEED             order of the segments; default: a new one, recorded
"""
RUNS = """
--copy-in =any          where functions are hooked: see the copy into the kernel by hooks around it, or by
                        kprobes on its call and the instruction after it; default bracket where that is fentry
--warmup S              traffic before the first segment; default 0.3
--repeat N              runs; with more than one a summary follows
"""
OUTPUT = """
--json FILE             the record as JSON; - is stdout, without the table
--out DIR               keep each run's record (and its folded stacks) in this directory
--stacks                keep every sampled stack in the record, for `copyscope show FILE --export FORMAT`;
                        says how large that is
--explain               say what each line means
"""


@cache
def of_run() -> UsageParser:
    """The parser of copyscope run, made once for those who read many runs: nobody adds to it."""
    return parser()


def parser(
    prog: str = "run",
    description: str = "Run a TCP send strategy over a path of its own; print its copies and what they cost.",
    examples: str = FIRST_EXAMPLES,
    epilog: str | None = None,
    common: Sequence[str] = COMMON,
    *,
    named: bool = True,
) -> UsageParser:
    """All options of copyscope run. Those of the traffic are checked by the traffic program itself.

    `common`: those that --help lists; --help-all lists all. `named`: a strategy is also given without --impl.
    """
    made = UsageParser(
        prog=prog,
        description=description,
        common=common,
        examples=examples,
        epilog=epilog or EXAMPLES + PROGRAMS + STATUS,
        allow_abbrev=False,
    )
    work = made.add_argument_group("workload")
    _add_strategy(work, named=named)
    add(work, WORKLOAD, duration={"type": seconds, "default": 5.0}, messages={"type": int})
    path = made.add_argument_group("path")
    switches = {name: {"choices": SWITCH} for name in ("tso", "gso", "gro")}
    add(
        path,
        PATH.format(kinds=", ".join(WRITTEN)),
        mtu={"type": int},
        nodelay={"choices": SWITCH},
        tls={"nargs": "?", "const": "1.3"},
        placement={"choices": PLACEMENTS},
        **switches,
    )
    model = made.add_argument_group("simulated machine (QEMU and a model of the caches: needs no PMU)")
    add(model, MODEL.format(**SIMULATED), seeds={"type": int, "default": SIMULATED["seeds"]})
    gate = "default what that costs here allows; 1 with --messages"
    tool = add_instruments(made, gate, FREQUENCY_HZ)
    add(
        tool,
        RUNS,
        copy_in={"choices": ("any", "bracket", "call-site")},
        warmup={"type": float, "default": 0.3},
        repeat={"type": int, "default": 1},
    )
    add_output(made)
    return made


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


def add_instruments(made: UsageParser, gate: str, frequency_hz: int) -> argparse._ArgumentGroup:
    """What is the same for traffic of our own and for programs of others; with the defaults that are not."""
    tool = made.add_argument_group("instruments")
    add(
        tool,
        INSTRUMENTS.format(gate=gate, frequency_hz=frequency_hz),
        attach={"choices": ("any", "fentry", "kprobe.multi", "kprobe")},
        frequency={"type": int, "default": frequency_hz},
        gate={"type": int},
        seed={"type": int},
    )
    return tool


def add_output(made: UsageParser) -> argparse._ArgumentGroup:
    """The same for both, too."""
    out = made.add_argument_group("output")
    add(out, OUTPUT)
    verbose = "all tables and findings; twice: exact bytes, hooks, checks, unattributed symbols"
    out.add_argument("-v", "--verbose", action="count", default=0, help=verbose)
    out.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return out
