# SPDX-License-Identifier: GPL-2.0-only
"""Options of `watch`, `advise` and `why`, the commands that measure any program that sends or receives."""

import argparse
import shlex
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import PurePath

from copyscope.base.arguments import ArgumentKeywords, UsageParser, add_options, seconds, text
from copyscope.base.errors import UsageError, out_of_range
from copyscope.base.spelling import one_line
from copyscope.plan.arguments import QUIET, VERBOSE, add_instruments, add_output
from copyscope.plan.options import check_instruments

# Samples per second of watch: the default of perf and bpftrace. Each sample delays a program that sleeps
# often.
FREQUENCY_HZ = 99
# Samples per second of advise and why, which run for a few seconds only. At this rate a program that uses
# half a CPU gives enough samples in five seconds (ledger/share.py). --serve also samples at this rate.
ADVICE_FREQUENCY_HZ = 499
# Highest port of --serve, and the shortest and longest time of --duration and of --interval in seconds.
PORT_MAX = 65_535
DURATION_MIN_S, DURATION_MAX_S = 0.5, 86_400
INTERVAL_MIN_S, INTERVAL_MAX_S = 1, 3600
# Shortest --interval with --serve in seconds. Stacks are sampled in one second of each interval; in the
# rest of the interval only bytes are counted.
SERVED_INTERVAL_MIN_S = 2
TARGET_OPTIONS = ("--all", "--pid", "--comm", "--cgroup", "--unit", "--container")
# Default and highest value of --top.
TOP, TOP_MAX = 50, 1000
SIGNALS_AND_STATUS = """
a command gets SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 as they come. The first Ctrl-C or SIGTERM is passed on,
too, and ends the measurement; copyscope then waits for the command. The second sends it SIGTERM, the third
SIGKILL, also to its children.

exit status: the command's when it is not 0; else 0 a valid run, 1 a failed or invalid one, 2 wrong usage;
127 a command that was not found, 126 one that cannot be executed
"""
EXAMPLES = """\
examples:
  sudo copyscope watch nginx --duration 10           every process of that name
  sudo copyscope watch 4711 --live                   until Ctrl-C
  sudo copyscope watch 4711 --duration 10m -i 10     a line every ten seconds
  sudo copyscope watch -- iperf3 -c 192.0.2.1 -t 10  runs it as your user
  sudo copyscope watch nginx --serve :9464           metrics for Prometheus
  sudo copyscope watch --all --serve :9464           metrics of all programs
"""
ADVICE_EXAMPLES = """\
examples:
  sudo copyscope advise nginx --duration 10             all of its processes
  sudo copyscope advise 4711 --duration 10 --crossover  also measure a crossover
  sudo copyscope advise -- iperf3 -c 192.0.2.1 -t 10    runs it as your user
"""
WHY_EXAMPLES = """\
examples:
  sudo copyscope why myserver --duration 10   every process of that name
  sudo copyscope why -- ./sender --zerocopy   runs it as your user
"""
MORE_EXAMPLES = """\
  sudo copyscope {verb} --unit nginx.service --duration 10 --json nginx.json
  sudo copyscope {verb} --cgroup system.slice/redis.service --live
  sudo copyscope {verb} --whole --exact -- curl -T file http://192.0.2.1/
"""
# Options that --help lists; --help-all lists all options.
COMMON = ("--unit", "--container", "--duration", "--json", "--explain", "--verbose", "--help-all")
TARGET_TABLE = """
--pid PID[,PID]         these processes
--comm NAME             every process of this name, also those started later
--cgroup PATH           a cgroup (v2): a container, a systemd unit
--unit UNIT             a unit of systemd, such as nginx.service
--container ID|NAME     of docker, podman, containerd, CRI-O, LXC or nspawn
--netns PID|FILE        only traffic of this network namespace
--all                   with --serve: all programs of this machine, except copyscope (Linux 6.3)
--no-follow             ignore the children of these processes
"""
TOOL_TABLE = """
--duration S            measuring time: 5, 90s, 10m; default: until the target exits or Ctrl-C. A COMMAND is
                        not stopped: copyscope reports, then waits for it
--exact                 also hook the functions that copy, in extra segments at the end: exact bytes and the
                        cost of each copy; with --duration or --whole
--whole                 all instruments from start to end: for short commands; the overhead is not known then
"""
OUTPUT_TABLE = """
--live                  refresh a screen while it runs; the command's output is shown at the end
--advise                print what would make it copy less, and why
--why                   print why zero-copy does not make it faster
--crossover             if the advice depends on a crossover, measure one afterwards: 99 short runs, two
                        minutes on an idle machine
--measure               also measure what the first remedy saves in copyscope's own traffic of the same kind,
                        once for each machine: 14 short runs, half a minute
--by thread             a line for each thread name: CPU time and copies
-i --interval S         print a summary line every S seconds, instead of a screen; with --serve: sample one
                        second of S
--serve [ADDR]:PORT     answer GET / (a page that draws the path of a byte) and GET /metrics (for
                        Prometheus) there, on loopback without ADDR, until Ctrl-C; when the program ends, wait
                        for the next of its name. Counts are read every 5 s; a second of every 15 is sampled
                        (--interval), at 499 Hz (--frequency)
--top N                 with --all: metrics name the N programs that use most CPU time and sum the others;
                        default {top}
--with-arguments        keep the arguments of COMMAND, which may hold secrets, in the record
--serve-name NAME[,..]  names of this machine that clients may use in URLs, besides localhost and its address
"""
# Options that many other programs have. After `--`, they are probably meant for the watched command.
USUAL_OPTIONS = {"--help", "--help-all", "--version", "--verbose", "--quiet"}
# Options that cannot be combined with --serve -> their default values.
EXCLUDED_BY_SERVE = {
    **{"live": False, "advise": False, "why": False, "crossover": False, "exact": False},
    "measure": False,
    **{"whole": False, "duration": None, "json": None, "out": None, "stacks": False, "count": None},
    "by": None,
    "instruments": "auto",
}


def address(word: str) -> tuple[str, int]:
    """Parse `:9464`, `192.0.2.1:9464` or `[2001:db8::1]:9464` into host and port (argparse type).

    Without a host, the host is 127.0.0.1. Raises ArgumentTypeError.
    """
    host, _, port = word.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        raise ArgumentTypeError(f"{shlex.quote(word)}: not ADDR:PORT; write 127.0.0.1:9464, or :9464")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at `--` into the options of copyscope and the command, which may be empty."""
    words = list(argv)
    if "--" not in words:
        return words, []
    separator = words.index("--")
    return words[:separator], words[separator + 1 :]


def misplaced_options_hint(command: Sequence[str]) -> str | None:
    """Return a hint if copyscope's options come after `--`, where they belong to the watched command."""
    names = {name for action in advise_parser()._actions for name in action.option_strings} - USUAL_OPTIONS
    misplaced = dict.fromkeys(
        name for word in command[1:] if (name := word.partition("=")[0]) in names and name[:2] == "--"
    )
    if not misplaced:
        return None
    return (
        f"{', '.join(misplaced)}: passed to {one_line(PurePath(command[0]).name)}, because everything "
        "after -- belongs to it; write options of copyscope before --"
    )


def parser(frequency_hz: int = FREQUENCY_HZ) -> UsageParser:
    """Return the parser of `copyscope watch`.

    frequency_hz: default of --frequency
    """
    return _make_parser(
        "watch",
        "Watch what a program sends and receives; print its copies and what they cost.",
        ("--live", "--interval", "--by", "--serve", "--all"),
        EXAMPLES,
        frequency_hz,
    )


def advise_parser() -> UsageParser:
    """Return the parser of `copyscope advise`, which is `watch` with --advise."""
    return _make_parser(
        "advise",
        "Watch what a program sends and receives; print what would make it copy less, and why.",
        ("--live", "--crossover", "--measure"),
        ADVICE_EXAMPLES,
        ADVICE_FREQUENCY_HZ,
    )


def why_parser() -> UsageParser:
    """Return the parser of `copyscope why`, which is `watch` with --why."""
    return _make_parser(
        "why",
        "Watch a program that sends with MSG_ZEROCOPY or SEND_ZC; print why that is not faster: the most "
        "expensive problem first, with its evidence and what to change.",
        ("--live",),
        WHY_EXAMPLES,
        ADVICE_FREQUENCY_HZ,
    )


def _make_parser(
    verb: str, description: str, common: tuple[str, ...], examples: str, frequency_hz: int
) -> UsageParser:
    """Return the parser of `watch`, `advise` or `why`.

    verb: name of the command
    common: options that --help lists, besides COMMON
    examples: text after the options
    frequency_hz: default of --frequency
    """
    result = UsageParser(
        prog=verb,
        verbose=VERBOSE,
        quiet=QUIET,
        usage="%(prog)s [options] NAME | PID | --unit UNIT | -- COMMAND",
        description=description,
        common=(*COMMON, *common),
        examples=examples,
        epilog=examples + MORE_EXAMPLES.format(verb=verb) + SIGNALS_AND_STATUS,
        allow_abbrev=False,
    )
    target = result.add_argument_group("target")
    target.add_argument(
        "program",
        nargs="?",
        type=text,
        metavar="NAME|PID",
        help="every process of this name, or this process",
    )
    name: ArgumentKeywords = {"type": text}
    add_options(target, TARGET_TABLE, comm=name, unit=name, container=name)
    tool = add_instruments(result, "default 16; 1 with --whole", frequency_hz)
    add_options(tool, TOOL_TABLE, duration={"type": seconds})
    add_options(
        add_output(result),
        OUTPUT_TABLE.format(top=TOP),
        top={"type": int},
        interval={"type": seconds},
        by={"choices": ("thread",)},
        serve={"type": address},
        serve_name={"type": text, "default": ""},
    )
    return result


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse a command line into options and the command after `--`. Raises UsageError.

    The argument NAME|PID is also stored as the value of --pid if it consists of numbers, else as the value of
    --comm.
    """
    options, command = split_command(argv)
    serves = any(word.partition("=")[0] == "--serve" for word in options)
    if "--advise" in options:
        chosen_parser = advise_parser()
    elif "--why" in options:
        chosen_parser = why_parser()
    else:
        chosen_parser = parser(ADVICE_FREQUENCY_HZ if serves else FREQUENCY_HZ)
    args = chosen_parser.parse_args(options)
    check_usage(args, command)
    if args.serve is not None:
        _check_serve(args, command)
    elif args.serve_name:
        raise UsageError("--serve-name: needs --serve, whose clients use the name; add --serve :9464")
    elif args.all:
        raise UsageError("--all: needs --serve, because a report is of one program; add --serve :9464")
    _check_top(args)
    if args.program is not None:
        is_pid = all(word.isascii() and word.isdecimal() for word in args.program.split(","))
        setattr(args, "pid" if is_pid else "comm", args.program)
    return args, command


def check_usage(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Raise UsageError for options that are wrong on every machine.

    command: words after `--`
    """
    values = (args.all, args.pid, args.comm, args.cgroup, args.unit, args.container)
    targets = [option for option, value in zip(TARGET_OPTIONS, values, strict=True) if value]
    targets += ["-- COMMAND"] * bool(command)
    targets[:0] = [args.program] * (args.program is not None)
    if not targets:
        raise UsageError(
            "nothing to watch; give a name, a pid, --unit, --container, --cgroup, --all or -- COMMAND"
        )
    if len(targets) > 1:
        raise UsageError(f"{' and '.join(targets)}: several targets; choose one of them")
    if args.program == "":
        raise UsageError("'': an empty name; give the name of a program, or its pid")
    if command and not command[0]:
        raise UsageError("-- '': an empty command; name a program")
    if args.duration is not None and not DURATION_MIN_S <= args.duration <= DURATION_MAX_S:
        raise UsageError(
            out_of_range("--duration", f"{args.duration:g}", DURATION_MIN_S, f"{DURATION_MAX_S} s")
        )
    _check_exact(args, check_instruments(args))
    if args.interval is not None and not INTERVAL_MIN_S <= args.interval <= INTERVAL_MAX_S:
        raise UsageError(
            out_of_range("--interval", f"{args.interval:g}", INTERVAL_MIN_S, f"{INTERVAL_MAX_S} s")
        )
    conflicts = (
        (
            args.by and (args.live or args.advise or args.why),
            "--by thread: not on the screens of --live, --advise and --why; choose one",
        ),
        (
            args.live and args.interval,
            "--live and --interval: --live shows a screen, --interval prints lines; choose one",
        ),
        (
            args.interval and args.whole,
            "--interval: not with --whole, which has one segment only; choose one",
        ),
        (
            args.live and args.whole,
            "--live: not with --whole, which has one segment only; choose one",
        ),
        (args.interval and args.json == "-", "--interval: stdout is used by --json -; give --json a file"),
        (args.live and args.json == "-", "--live: stdout is used by --json -; give --json a file"),
    )
    for is_wrong, message in conflicts:
        if is_wrong:
            raise UsageError(message)


def _check_serve(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Raise UsageError for options, or a command after `--`, that cannot be combined with --serve."""
    if command:
        raise UsageError("--serve: not with -- COMMAND, which ends earlier; give a name, a pid or a cgroup")
    if args.interval is not None and args.interval < SERVED_INTERVAL_MIN_S:
        raise UsageError(
            f"--interval {args.interval:g}: too short, because --serve samples one second of each interval; "
            f"choose at least {SERVED_INTERVAL_MIN_S} s"
        )
    for name, default in EXCLUDED_BY_SERVE.items():
        if getattr(args, name) != default:
            raise UsageError(
                f"--{name}: not with --serve, which runs until Ctrl-C and prints no report; choose one"
            )


def _check_top(args: argparse.Namespace) -> None:
    """Set the default of --top. Raise UsageError if its value is out of range, or without --all."""
    if args.top is None:
        args.top = TOP
    elif not args.all:
        raise UsageError("--top: needs --all, whose metrics have several programs; add --all")
    elif not 1 <= args.top <= TOP_MAX:
        raise UsageError(out_of_range("--top", args.top, 1, TOP_MAX))


def _check_exact(args: argparse.Namespace, instruments: Sequence[str]) -> None:
    """Raise UsageError for function hooks without a planned end of the run, or for conflicting options."""
    hooked_by_name = args.instruments != "auto" and "functions" in instruments
    if (args.exact or hooked_by_name) and args.duration is None and not args.whole:
        option = "--exact" if args.exact else "--instruments functions"
        raise UsageError(f"{option}: function hooks run at the end; give --duration S, or --whole")
    if args.exact and args.instruments != "auto":
        raise UsageError("--exact: not with --instruments, which can list functions itself; choose one")
    if args.count is not None and not args.exact and not hooked_by_name:
        raise UsageError("--count: counts per function, but no function is hooked; add --exact")
