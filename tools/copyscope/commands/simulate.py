"""copyscope simulate: the copies of strategies in a simulated machine. Needs no root."""

import argparse
from collections.abc import Sequence

from copyscope import units
from copyscope.commands import entry, keeping
from copyscope.render.console import make_console, print_lines, report_width
from copyscope.render.progress import Steps
from copyscope.render.simulated import simulated_lines
from copyscope.simulate import request, simulation


def run(args: argparse.Namespace, words: Sequence[str] = ()) -> int:
    """Exit status: 0 all checks hold, 1 one does not, or the record is not where it was to go."""
    request.check(args, request.OF_COMMAND if words else request.TAKEN)
    keeping.check_file(args.json)
    # The traffic program checks its options, here as there.
    entry.build()
    wanted = request.read_command(args, words) if words else request.read(args)
    title = f"simulating {words[0] if words else units.counted(len(wanted.measured), 'measurement')}"
    with Steps(title, simulation.steps_of(wanted), quiet=args.quiet) as steps:
        made = simulation.simulate(wanted, steps)
    kept = not args.json or keeping.write_json(made, args.json)
    if args.json != "-":
        console = make_console()
        print_lines(simulated_lines(made, report_width(console)), console)
    return 0 if made["verdict"]["valid"] and kept else entry.FAILED
