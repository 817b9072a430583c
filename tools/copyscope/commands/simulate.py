# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope simulate`: count the cache misses caused by the copies of each send strategy.

The traffic runs in a simulated machine, so root is not needed. `copyscope run --simulate` does the same for
the traffic of a measured run.
"""

import argparse
from collections.abc import Sequence

from copyscope.base.errors import UsageError
from copyscope.base.spelling import counted
from copyscope.commands import entry, output_files
from copyscope.commands.watch_arguments import split_command
from copyscope.plan.arguments import parser, run_parser
from copyscope.record.run import SimulatedRun
from copyscope.run.simulate import qemu, request, simulation
from copyscope.show.layout import make_console, print_lines, report_width
from copyscope.show.progress import StepProgress
from copyscope.show.simulated import simulated_lines


def main(argv: list[str]) -> int:
    """Run `copyscope simulate`. Exit status: 0 all checks hold, 1 a check or a write failed, 2 usage."""
    return entry.run("simulate", lambda: _simulate(argv), "interrupted before anything was counted")


def _simulate(argv: list[str]) -> int:
    """Parse the options and the command after `--`, simulate, and return the exit status."""
    options, command = split_command(argv)
    run_options = parser("simulate")
    args, unknown_words = run_options.parse_known_args(options)
    if unknown_words and not unknown_words[0].startswith("-"):
        strategies = [args.impl, *unknown_words]
        raise UsageError(
            f"{' '.join(strategies)}: several arguments; write the strategies as one argument: "
            f"{','.join(strategies)}"
        )
    if unknown_words:
        run_options.error(f"unrecognized arguments: {' '.join(unknown_words)}")
    return _simulate_and_report(args, command)


def _simulate_and_report(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Simulate traffic or a command, print and save the result, and return the exit status.

    command: program with its arguments; empty: simulate the traffic that the options describe
    """
    request.check_options(args, request.COMMAND_OPTIONS if command else request.RUN_OPTIONS)
    output_files.check_file(args.json)
    # The traffic program checks its own options, so it must be up to date.
    entry.build()
    requested = request.read_command(args, command) if command else request.read(args)
    subject = command[0] if command else counted(len(requested.measured), "measurement")
    run = _run_simulation(requested, f"simulating {subject}", quiet=args.quiet)
    saved = not args.json or output_files.write_runs(run, args.json)
    if args.json != "-":
        console = make_console()
        print_lines(simulated_lines(run.simulated, report_width(console), explain=args.explain), console)
    return 0 if run.verdict.valid and saved else entry.FAILED


def _run_simulation(requested: request.Request, title: str, *, quiet: bool) -> SimulatedRun:
    """Simulate the request with a progress display of this title, and return the simulated run."""
    with StepProgress(title, simulation.count_steps(requested), quiet=quiet) as steps:
        return simulation.simulate(requested, steps.begin, steps.done)


def request_for_run(args: argparse.Namespace) -> request.Request:
    """Return the request to simulate a run's traffic, for `copyscope run --simulate`.

    Raises UsageError for an option that a simulated machine does not have, and RunError without QEMU. The
    command calls this function first, so that these errors end it before anything is measured.
    """
    run_defaults = vars(run_parser().parse_args([]))
    # Options about how to measure do not apply to the simulated machine.
    defaults = {name: run_defaults[name] for name in request.MEASURING_OPTIONS}
    requested = request.read(argparse.Namespace(**{**vars(args), **defaults}))
    qemu.find_qemu()
    return requested


def simulate_run(requested: request.Request, *, quiet: bool) -> SimulatedRun:
    """Simulate the requested traffic of a measured run, and return the simulated run. Raises RunError."""
    return _run_simulation(requested, "simulating the same traffic", quiet=quiet)
