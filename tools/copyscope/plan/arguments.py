# SPDX-License-Identifier: GPL-2.0-only
"""Command-line options of `copyscope run`. options.py turns the options into a workload."""

import argparse
from collections.abc import Sequence
from functools import cache

from copyscope.base.arguments import ArgumentKeywords, UsageParser, add_options, seconds
from copyscope.machine.topology import TOPOLOGY_CHOICES
from copyscope.plan.placement import PLACEMENTS
from copyscope.plan.traffic_options import FACTORS, STRATEGIES

SWITCH = ("on", "off")
EXAMPLES = """\
examples:
  sudo copyscope run zero_copy                               over a veth pair
  sudo copyscope run one_copy --size 1M --threads 4
  sudo copyscope run zero_copy --topology veth-xdp --explain
  sudo copyscope run zero_copy --topology nics:eth1,eth2
  sudo copyscope run zero_copy --receiver-at web2            to another machine
  sudo copyscope run two_copy --repeat 5 --out results/mine
  sudo copyscope run zero_copy --json - | jq .verdict
  sudo copyscope run zero_copy --simulate                    with modelled cache misses
"""
PROGRAMS = "\nany other program: copyscope watch --help\n"
STATUS = """
exit status: 0 valid, 1 failed, invalid, or not written to FILE or DIR (a message names another file),
2 wrong usage, 130 interrupted; a closed pipe does not change the status
"""

# Examples in --help, and options that --help shows (--help-all shows every option).
FIRST_EXAMPLES = """\
examples:
  sudo copyscope run zero_copy                          over a veth pair
  sudo copyscope run one_copy --size 1M --threads 4 --json run.json
"""
COMMON = (
    *("--impl", "--size", "--threads", "--duration", "--topology", "--repeat", "--json", "--explain"),
    *("--verbose", "--help-all"),
)

# Defaults of the options of a simulated machine.
SIMULATED: dict[str, str | int | bool] = {"cache": "generic", "kernel": "6.12", "seeds": 3, "fast": False}

# Further arguments of add_argument() for options of the traffic program.
EXTRA_ARGUMENTS: dict[str, ArgumentKeywords] = {
    "messages": {"type": int},
    "tls": {"nargs": "?", "const": "1.3"},
}
# Tables of options in the format of add_options().
DURATION = "--duration S            measuring time: 5 (default), 90s, 10m"
PATH = """
--topology KIND =veth   {kinds} (two NICs connected back to back); default veth
--sender-at HOST        run the sender on HOST (ssh and sudo; copied there and removed afterwards)
--receiver-at HOST      run the receiver on HOST
--sender-address ADDR   the sender's address on the network to measure; default: the address that ssh uses
--tree DIR              copyscope's directory on the other hosts; default: the same path as here
--mtu BYTES
--tso                   sender's segmentation offload
--gso                   software segmentation
--gro                   receive coalescing
--congestion NAME       default cubic where available
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
--kernel V ={kernel}    5.10, 6.1, 6.12 (default) or 7.x, fetched from Debian once and kept; host, from
                        /boot; or the path of a bzImage or of a kernel's build tree
--seeds N               independent boots, for intervals; default 3
--fast                  do not count instructions: runs are no longer repeatable
"""
# Sampling frequency in Hz for our own traffic. 199 is prime, so samples do not coincide with timers (1000
# Hz).
FREQUENCY_HZ = 199
INSTRUMENTS = """
--instruments LIST =auto   auto, or a list of counters,calls,sampler,functions
--attach =any           how to hook functions: any (default: the first method that works) or a method;
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
VERBOSE = "all tables and findings; -vv: also exact bytes, hooks, checks, symbols without a rule"
QUIET = "no progress"
OUTPUT = """
--json FILE             write the record as JSON to FILE ("-": stdout, no table)
--out DIR               keep the record of each run (and its folded stacks) in DIR
--stacks                keep every sampled stack in the record, for `copyscope show FILE --export FORMAT`
--explain               explain the meaning of each line
"""


@cache
def run_parser() -> UsageParser:
    """Return the parser of `copyscope run`. The parser is shared, so callers must not add options to it."""
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
    """Build a parser with all options of `copyscope run`. The traffic program checks its own option values.

    `prog`: name of the command. `examples`: text at the end of --help. `epilog`: text at the end of
    --help-all. `common`: options in --help. `named`: the strategy may also be given without --impl.
    """
    result = UsageParser(
        prog=prog,
        verbose=VERBOSE,
        quiet=QUIET,
        usage="%(prog)s [options] [STRATEGY]" if named else None,
        description=description,
        common=common,
        examples=examples,
        epilog=epilog or EXAMPLES + PROGRAMS + STATUS,
        allow_abbrev=False,
    )
    workload = result.add_argument_group("workload")
    _add_strategy(workload, named=named)
    for name, row in FACTORS.items():
        if name != "impl":
            keywords = row.argument() | EXTRA_ARGUMENTS.get(name, {})
            workload.add_argument(f"--{row.name}", **keywords)
    result.describe(tls=f"{FACTORS['tls'].help}; default off, without a value 1.3")
    add_options(workload, DURATION, duration={"type": seconds, "default": 5.0})
    path = result.add_argument_group("path")
    switch: ArgumentKeywords = {"choices": SWITCH}
    add_options(
        path,
        PATH.format(kinds=", ".join(TOPOLOGY_CHOICES)),
        topology={"type": topology_name},
        mtu={"type": int},
        placement={"choices": PLACEMENTS},
        tso=switch,
        gso=switch,
        gro=switch,
    )
    model = result.add_argument_group("simulated machine (QEMU and a model of the caches: needs no PMU)")
    add_options(model, MODEL.format(**SIMULATED), seeds={"type": int, "default": SIMULATED["seeds"]})
    gate = "default: as the cost here allows; 1 with --messages"
    tool = add_instruments(result, gate, FREQUENCY_HZ)
    add_options(
        tool,
        RUNS,
        copy_in={"choices": ("any", "bracket", "call-site")},
        warmup={"type": float, "default": 0.3},
        repeat={"type": int, "default": 1},
    )
    add_output(result)
    return result


def topology_name(word: str) -> str:
    """Parse the value of --topology: `lo`, the loopback device, also means `loopback`."""
    return "loopback" if word == "lo" else word


def _add_strategy(workload: argparse._ArgumentGroup, *, named: bool) -> None:
    """Add the option --impl, and with `named` also the positional argument STRATEGY."""
    strategy = workload.add_mutually_exclusive_group()
    names = f"{', '.join(STRATEGIES)} (and aliases); default zero_copy"
    if named:
        strategy.add_argument(
            "impl", nargs="?", default=argparse.SUPPRESS, metavar="STRATEGY", help=f"send strategy: {names}"
        )
    strategy.add_argument(
        "--impl",
        "--strategy",
        default="zero_copy",
        metavar="NAME",
        help="the same as STRATEGY" if named else f"send strategy: {names}",
    )


def add_instruments(parser: UsageParser, gate: str, frequency_hz: int) -> argparse._ArgumentGroup:
    """Add the instrument options, shared by runs of our own traffic and watches of other programs.

    `gate`: default of --gate in words. `frequency_hz`: default of --frequency.
    """
    tool = parser.add_argument_group("instruments")
    add_options(
        tool,
        INSTRUMENTS.format(gate=gate, frequency_hz=frequency_hz),
        attach={"choices": ("any", "fentry", "kprobe.multi", "kprobe")},
        frequency={"type": int, "default": frequency_hz},
        gate={"type": int},
        seed={"type": int},
    )
    return tool


def add_output(parser: UsageParser) -> argparse._ArgumentGroup:
    """Add the output options, shared by runs and watches."""
    output = parser.add_argument_group("output")
    add_options(output, OUTPUT)
    return output
