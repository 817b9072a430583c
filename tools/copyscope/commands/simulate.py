"""copyscope simulate: the copies of strategies in a simulated machine. Needs no root.

And what run --simulate shows of the same machine beside a measured run.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from copyscope import units
from copyscope.commands import entry, keeping
from copyscope.commands.watch_arguments import split
from copyscope.errors import UsageError
from copyscope.plan.arguments import of_run, parser
from copyscope.record.check import typed_boot
from copyscope.show.console import make_console, print_lines, report_width
from copyscope.show.progress import Steps
from copyscope.show.simulated import simulated_lines
from copyscope.simulate import qemu, request, simulation


def main(argv: list[str]) -> int:
    """Exit status: 0 all checks hold, 1 one does not, or the record is not where it was to go, 2 usage."""
    return entry.run(lambda: _simulate(argv), "interrupted before anything was counted")


def _simulate(argv: list[str]) -> int:
    options, command = split(argv)
    known = parser("simulate")
    args, more = known.parse_known_args(options)
    if more and not more[0].startswith("-"):
        words = [args.impl, *more]
        raise UsageError(f"{' '.join(words)}: write the strategies as one word: {','.join(words)}")
    if more:
        known.error(f"unrecognized arguments: {' '.join(more)}")
    return _report(args, command)


def _report(args: argparse.Namespace, words: Sequence[str]) -> int:
    request.check(args, request.OF_COMMAND if words else request.TAKEN)
    keeping.check_file(args.json)
    # The traffic program checks its options, here as there.
    entry.build()
    wanted = request.read_command(args, words) if words else request.read(args)
    title = f"simulating {words[0] if words else units.counted(len(wanted.measured), 'measurement')}"
    made = _count(wanted, title, quiet=args.quiet)
    kept = not args.json or keeping.write_json(made, args.json)
    if args.json != "-":
        console = make_console()
        lines = simulated_lines(typed_boot(made).simulated, report_width(console), explain=args.explain)
        print_lines(lines, console)
    return 0 if made["verdict"]["valid"] and kept else entry.FAILED


def _count(wanted: request.Request, title: str, *, quiet: bool) -> dict[str, Any]:
    with Steps(title, simulation.steps_of(wanted), quiet=quiet) as steps:
        return simulation.simulate(wanted, steps)


def beside(args: argparse.Namespace) -> request.Request:
    """The traffic of a run as it is to be modelled. Raises UsageError for what a simulated machine has not.

    Raises RunError where there is no QEMU: that is known before anything is measured.
    """
    default = vars(of_run().parse_args([]))
    same = {name: default[name] for name in request.OF_MEASURING}
    wanted = request.read(argparse.Namespace(**{**vars(args), **same}))
    qemu.find()
    return wanted


def section(wanted: request.Request, *, quiet: bool) -> dict[str, Any]:
    """What was counted in the simulated machine, for the record of the run beside it. Raises RunError."""
    made: dict[str, Any] = _count(wanted, "simulating the same traffic", quiet=quiet)["simulated"]
    return made
