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
  sudo copyscope run zero_copy                               over a veth pair
  sudo copyscope run one_copy --size 1M --threads 4
  sudo copyscope run zero_copy --topology veth-xdp --explain
  sudo copyscope run zero_copy --topology nics:eth1,eth2
  sudo copyscope run zero_copy --receiver-at web2            from here to another machine
  sudo copyscope run two_copy --repeat 5 --out results/mine
  sudo copyscope run zero_copy --json - | jq .verdict
  sudo copyscope run zero_copy --simulate                    with modelled cache misses
"""
PROGRAMS = "\nany other program: copyscope watch --help\n"
STATUS = """
exit status: 0 valid, 1 failed, invalid, or not written to FILE or DIR (a line says where it is instead),
2 wrong usage, 130 interrupted; a closed pipe does not change the status
"""

FIRST_EXAMPLES = """\
examples:
  sudo copyscope run zero_copy                               over a veth pair
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
--header BYTES          size of the first buffer, the others share the rest; default: all equal
--threads N =1          number of connections (one thread per side each); default 1
--duration S            measuring time: 5 (default), 90s, 10m
--messages N            a fixed count per thread instead (no control segments then)
--mode MODE =stream     stream (default) or rr (request/response: measures latency)
--receiver RECEIVER =read   read (default), recvmsg, trunc (MSG_TRUNC: no copy), poll (one thread for all
                        connections), map (TCP_ZEROCOPY_RECEIVE), multishot (io_uring) or splice (to a pipe)
--touch-received        the receiver touches every received cache line
--coalesce US =0        with --receiver poll: poll every US microseconds instead of sleeping; default 0
--sender SENDER =threads   threads (default: one per connection) or loop (one thread for all)
--file DIR              directory of the file to send; default: in memory (memfd)
--issue ISSUE           uring_send, uring_zc: who does the work: inline (default, the calling thread), async
                        (an io_uring worker) or sqpoll (its polling thread)
--push PUSH =none       per_field: hold data back until the last field: none (default), more (MSG_MORE) or
                        cork (TCP_CORK)
--batch N =1            per_field: N fields per sendmmsg(); default 1: one send() each
--call CALL =sendmsg    one_copy: sendmsg (default) or writev
--via VIA =sendfile     sendfile: sendfile() (default) or splice() through a pipe
--wait WHEN             zero_copy, uring_zc: read completion notices in batches (batch, the default: a
                        quarter of the ring), after each message (each), or at the end (never)
--registered            uring_zc: send from registered buffers
--align ALIGN =heap     heap (default) or page
--pages PAGES =4k       4k (default), thp or hugetlb
--working-set N         messages in the ring; default 1 MiB worth, 4..1024
--touch                 the application rewrites each message before it sends it
--verify                the receiver checks every byte
--time-every N          time every Nth message; default 16
"""
PATH = """
--topology KIND =veth   {kinds} (two NICs connected back to back); default veth
--sender-at HOST        run the sender on HOST (ssh and sudo; copied there and removed afterwards)
--receiver-at HOST      run the receiver on HOST
--sender-address ADDR   the sender's address on the network to measure; default: the one ssh uses
--tree DIR              copyscope's directory on the other hosts; default: as here
--mtu BYTES
--tso                   sender's segmentation offload
--gso                   software segmentation
--gro                   receive coalescing
--nodelay =on           TCP_NODELAY; default on
--congestion NAME       default cubic where available
--tls VERSION =off      kTLS (AES-GCM-128, static keys): 1.2 or 1.3; default off, without a value 1.3
--sndbuf BYTES          SO_SNDBUF; default autotuning
--rcvbuf BYTES          SO_RCVBUF; default autotuning
--buffer BYTES =128K    the receiver's buffer; default 128K
--placement =split      CPUs of the two sides: split (default: different cores of one type, one NUMA node and
                        one last-level cache if possible), same (one CPU) or none (any)
--sender-cpus LIST      for example 0,2-3: thread i runs on the i-th CPU; overrides --placement
--receiver-cpus LIST
--keep NAME             keep the namespaces under this name for inspection
"""
MODEL = """
--simulate              also model the cache misses of each copy (QEMU)
--cache MODEL ={cache}  generic (default), sapphire-rapids, genoa, graviton3, laptop, or host (this
                        machine's); with changes: genoa,llc=64M:16,prefetch=next,vcpus=4
--kernel V ={kernel}    5.10, 6.1, 6.12 (default) or 7.x, fetched from Debian once and kept; or host, from
                        /boot
--seeds N               independent boots, for intervals; default 3
--fast                  do not count instructions: runs are no longer repeatable
"""
# Of our own traffic; a number that keeps no step with what happens every millisecond.
FREQUENCY_HZ = 199
INSTRUMENTS = """
--instruments LIST =auto   auto, or a list of counters,calls,sampler,functions
--attach =any           how to hook functions: any (default: the first that works) or one of the others;
                        kprobe.multi loses less when threads share a CPU on a preemptible kernel (7.x)
--frequency HZ          samples per second and CPU; default {frequency_hz}
--gate N                with hooked functions: time every Nth copy, count all; {gate}
--count LIST            events to count per hooked function, at most 4: LLC-load-misses (default),
                        dTLB-load-misses, dTLB-store-misses, iTLB-load-misses, cpu-clock, page-faults, rHEX
                        (raw event, perf-list(1)), or none
--seed SEED             seed of the order of segments; default: random, recorded
"""
RUNS = """
--copy-in =any          with hooked functions: time the copy into the kernel by hooks around it (bracket) or
                        by kprobes at its call site; default: bracket if that is fentry
--warmup S              seconds of traffic before the first segment; default 0.3
--repeat N              number of runs; more than one end with a summary
"""
OUTPUT = """
--json FILE             write the record as JSON to FILE ("-": stdout, no table)
--out DIR               keep the record of each run (and its folded stacks) in DIR
--stacks                keep every sampled stack in the record, for `copyscope show FILE --export FORMAT`
--explain               say what each line means
"""


@cache
def of_run() -> UsageParser:
    """The parser of copyscope run, made once for those who read many runs: nobody adds to it."""
    return parser()


def parser(
    prog: str = "run",
    description: str = "Run a TCP send strategy over a temporary path; print its copies and what they cost.",
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
    gate = "default: as the cost here allows; 1 with --messages"
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
        "uring_send, uring_zc, vmsplice, relay_copy, relay_splice (and aliases); "
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
    verbose = "all tables and findings; -vv: also exact bytes, hooks, checks, symbols without a rule"
    out.add_argument("-v", "--verbose", action="count", default=0, help=verbose)
    out.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return out
