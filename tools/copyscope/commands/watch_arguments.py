"""The options of watch and advise: of a program that copyscope did not write."""

import argparse
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import PurePath

from copyscope.arguments import UsageParser, add, seconds, text
from copyscope.errors import UsageError
from copyscope.escaping import one_line
from copyscope.plan.arguments import add_instruments, add_output
from copyscope.plan.options import check_instruments

# As with perf and bpftrace: samples are what a program that sleeps often pays most for.
FREQUENCY_HZ = 99
# Advice is asked for once: half a CPU gives enough in five seconds (ledger/share.py). With --serve few
# seconds are sampled.
ADVICE_HZ = 499
PORT_MAX = 65_535
WHOM = ("--pid", "--comm", "--cgroup", "--unit", "--container")
STATUS = """
a command gets SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 as they come. The first Ctrl-C or SIGTERM is passed on,
too, and ends the measurement; how long the command then takes to end is its own business. With the second
it gets SIGTERM and with the third SIGKILL, and its children with it.

exit status: the command's when it is not 0; else 0 a valid run, 1 a failed or invalid one, 2 wrong usage;
127 a command that is not there, 126 one that cannot be executed
"""
EXAMPLES = """\
examples:
  sudo copyscope watch nginx --duration 10                   every process of that name
  sudo copyscope watch 4711 --live                           until Ctrl-C
  sudo copyscope watch 4711 --duration 10m -i 10             a line every ten seconds
  sudo copyscope watch -- iperf3 -c 192.0.2.1 -t 10          runs it, as the user who called sudo
  sudo copyscope watch nginx --serve :9464                   metrics for Prometheus, for as long as it lives
"""
ADVICE_EXAMPLES = """\
examples:
  sudo copyscope advise nginx --duration 10                  every process of that name
  sudo copyscope advise 4711 --duration 10 --crossover       also measures the crossover
  sudo copyscope advise -- iperf3 -c 192.0.2.1 -t 10         runs it, as the user who called sudo
"""
WHY_EXAMPLES = """\
examples:
  sudo copyscope why myserver --duration 10                  every process of that name
  sudo copyscope why -- ./sender --zerocopy                  runs it, as the user who called sudo
"""
MORE_EXAMPLES = """\
  sudo copyscope {verb} --unit nginx.service --duration 10 --json nginx.json
  sudo copyscope {verb} --cgroup system.slice/redis.service --live
  sudo copyscope {verb} --whole --exact -- curl -T file http://192.0.2.1/
"""
COMMON = ("--unit", "--container", "--duration", "--json", "--explain", "--verbose", "--help-all")
WHOM_OPTIONS = """
--pid PID[,PID]         these processes
--comm NAME             every process of this name, also those started later
--cgroup PATH           a cgroup (v2): a container, a systemd unit
--unit UNIT             a unit of systemd, such as nginx.service
--container ID|NAME     of docker, podman, containerd, CRI-O, LXC or nspawn
--netns PID|FILE        only traffic of this network namespace
--no-follow             ignore the children of these processes
"""
TOOL_OPTIONS = """
--duration S            measuring time: 5, 90s, 10m; default: until the target exits or Ctrl-C. A COMMAND is
                        not stopped: copyscope reports, then waits for it
--exact                 also hook the functions that copy, in extra segments at the end: exact bytes and the
                        cost of each copy; with --duration or --whole
--whole                 all instruments from start to end: for short commands; the overhead is not known then
"""
# Of these most programs have one of their own.
NOT_OURS = {"--help", "--help-all", "--version", "--verbose", "--quiet"}
OUTPUT_OPTIONS = """
--live                  refresh a screen while it runs; the command's output is shown at the end
--advise                say what would make it copy less, and why
--why                   say why zero-copy does not make it faster
--crossover             if the advice depends on a crossover, measure one afterwards: 99 short runs, two
                        minutes on an idle machine
--by thread             a line for each name of its threads: CPU time and copies
-i --interval S         print a summary line every S seconds, instead of a screen; with --serve: sample one
                        second of S
--serve [ADDR]:PORT     answer GET /metrics there (OpenMetrics, for Prometheus), on loopback without ADDR,
                        until Ctrl-C; when the program ends, wait for the next of its name. Counts are read
                        every 5 s; a second of every 15 is sampled (--interval), at 499 Hz (--frequency)
"""
# What --serve leaves no room for: option, and what it is when it was not given.
NOT_SERVED = {
    **{"live": False, "advise": False, "why": False, "crossover": False, "exact": False},
    **{"whole": False, "duration": None, "json": None, "out": None, "stacks": False, "count": None},
    "by": None,
    "instruments": "auto",
}


def address(word: str) -> tuple[str, int]:
    """`type=address`: `:9464`, `192.0.2.1:9464` or `[2001:db8::1]:9464`; without an address loopback."""
    host, _, port = word.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        raise ArgumentTypeError(f"{word or 'nothing'}: not ADDR:PORT such as 127.0.0.1:9464, or :9464")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(our options, the command after `--`)."""
    words = list(argv)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def misplaced(command: Sequence[str]) -> str | None:
    """What is said of options of ours that stand in the command, perhaps by mistake: they are its own."""
    known = {name for action in parser_of_advise()._actions for name in action.option_strings} - NOT_OURS
    found = dict.fromkeys(
        name for word in command[1:] if (name := word.partition("=")[0]) in known and name[:2] == "--"
    )
    if not found:
        return None
    return (
        f"{', '.join(found)}: given to {one_line(PurePath(command[0]).name)}, because it comes after --; "
        "options of copyscope go before it"
    )


def parser(frequency_hz: int = FREQUENCY_HZ) -> UsageParser:
    """Of watch."""
    return _parser(
        "watch",
        "Watch what a program sends and receives; print its copies and what they cost.",
        ("--live", "--interval", "--by", "--serve"),
        EXAMPLES,
        frequency_hz,
    )


def parser_of_advise() -> UsageParser:
    """The same options: advise is watch with --advise."""
    return _parser(
        "advise",
        "Watch what a program sends and receives; say what would make it copy less, and why.",
        ("--live", "--crossover"),
        ADVICE_EXAMPLES,
        ADVICE_HZ,
    )


def parser_of_why() -> UsageParser:
    """The same options: why is watch with --why."""
    return _parser(
        "why",
        "Watch a program that sends with MSG_ZEROCOPY or SEND_ZC; say why that is not faster, the most "
        "expensive problem first, with its evidence and what to change.",
        ("--live",),
        WHY_EXAMPLES,
        ADVICE_HZ,
    )


def _parser(
    verb: str, description: str, common: tuple[str, ...], examples: str, frequency_hz: int = FREQUENCY_HZ
) -> UsageParser:
    made = UsageParser(
        prog=verb,
        usage="%(prog)s [options] (NAME | PID | --unit UNIT | --container ID | -- COMMAND [ARGUMENTS])",
        description=description,
        common=(*COMMON, *common),
        examples=examples,
        epilog=examples + MORE_EXAMPLES.format(verb=verb) + STATUS,
        allow_abbrev=False,
    )
    whom = made.add_argument_group("target")
    whom.add_argument(
        "program",
        nargs="?",
        type=text,
        metavar="NAME|PID",
        help="every process of this name, or this process",
    )
    name = {"type": text}
    add(whom, WHOM_OPTIONS, comm=name, unit=name, container=name)
    gate = "default 16; 1 with --whole"
    tool = add_instruments(made, gate, frequency_hz)
    add(tool, TOOL_OPTIONS, duration={"type": seconds})
    threads = {"choices": ("thread",)}
    add(add_output(made), OUTPUT_OPTIONS, interval={"type": seconds}, by=threads, serve={"type": address})
    return made


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """(options, the command after `--`); NAME|PID is --pid if it is numbers, else --comm."""
    options, command = split(argv)
    served = any(word.partition("=")[0] == "--serve" for word in options)
    made = (
        parser_of_advise()
        if "--advise" in options
        else parser_of_why()
        if "--why" in options
        else parser(ADVICE_HZ if served else FREQUENCY_HZ)
    )
    args = made.parse_args(options)
    check_usage(args, command)
    if args.serve is not None:
        _check_served(args, command)
    if args.program is not None:
        numbers = all(word.isascii() and word.isdecimal() for word in args.program.split(","))
        setattr(args, "pid" if numbers else "comm", args.program)
    return args, command


def check_usage(args: argparse.Namespace, command: Sequence[str]) -> None:
    """What can be refused without looking at the machine."""
    given = (args.pid, args.comm, args.cgroup, args.unit, args.container)
    named = [option for option, value in zip(WHOM, given, strict=True) if value]
    named += ["-- COMMAND"] * bool(command)
    named[:0] = [args.program] * (args.program is not None)
    if not named:
        raise UsageError("nothing to watch: give a name, a pid, --unit, --container, --cgroup or -- COMMAND")
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: name one program: --pid, --comm, --cgroup or -- COMMAND")
    if args.program == "":
        raise UsageError("NAME: nothing: give the name of a program, or its pid")
    if command and not command[0]:
        raise UsageError("--: the command is empty: name a program")
    if args.duration is not None and not 0.5 <= args.duration <= 86_400:
        raise UsageError(f"--duration: {args.duration:g}: not between 0.5 and 86400 s")
    _check_exact(args, check_instruments(args))
    if args.interval is not None and not 1 <= args.interval <= 3600:
        raise UsageError(f"--interval: {args.interval:g}: not between 1 and 3600 s")
    if args.by and (args.live or args.advise or args.why):
        raise UsageError("--by thread: another screen than --live, --advise and --why have: choose one")
    if args.live and args.interval:
        raise UsageError("--live and --interval: one is a screen, the other is lines: choose one")
    if args.interval and args.whole:
        raise UsageError("--interval and --whole: a line follows a segment, and --whole has one")
    if args.interval and args.json == "-":
        raise UsageError("--interval and --json -: both want stdout: give --json a file")
    if args.live and args.whole:
        raise UsageError(
            "--live and --whole: the screen is refreshed after each segment, and --whole has one"
        )
    if args.live and args.json == "-":
        raise UsageError("--live and --json -: both want stdout: give --json a file")


def _check_served(args: argparse.Namespace, command: Sequence[str]) -> None:
    if command:
        raise UsageError("--serve and -- COMMAND: it outlives a program: give a name, a pid or a cgroup")
    if args.interval is not None and args.interval < 2:
        raise UsageError(f"--interval: {args.interval:g}: one second is sampled: at least 2 s with --serve")
    for name, nothing in NOT_SERVED.items():
        if getattr(args, name) != nothing:
            why = "--serve goes on until Ctrl-C, and has no report: choose one"
            raise UsageError(f"--serve and --{name}: {why}")


def _check_exact(args: argparse.Namespace, instruments: Sequence[str]) -> None:
    """Functions are hooked where that is asked for, at the end of a time that is known."""
    by_name = args.instruments != "auto" and "functions" in instruments
    if (args.exact or by_name) and args.duration is None and not args.whole:
        option = "--exact" if args.exact else "--instruments functions"
        raise UsageError(f"{option}: function hooks run at the end: give --duration S, or --whole")
    if args.exact and args.instruments != "auto":
        raise UsageError("--exact and --instruments: --instruments names functions, or leaves them out")
    if args.count is not None and not args.exact and not by_name:
        raise UsageError("--count: counts per function, but no function is hooked: add --exact")
