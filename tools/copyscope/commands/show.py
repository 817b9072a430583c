# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope show`: print a run's screen again, or export its record. Needs no root."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from copyscope.base import files
from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import RunError, UsageError
from copyscope.commands import entry, outcome, record_files
from copyscope.plan.arguments import VERBOSE
from copyscope.record.run import CompleteRun, Run
from copyscope.report import exports
from copyscope.show import terminal, watch
from copyscope.show.first_screen import render_summary
from copyscope.show.layout import make_console, print_lines, report_width
from copyscope.show.simulated import simulated_lines

EXAMPLES = """\
examples:
  copyscope show run.json                      one screen; -v: everything
  copyscope show results/HOST/quick/records.jsonl.gz --run quick-1f2e3d4c5b-0
  copyscope show simulated.json --explain
  copyscope show run.json --export html --output run.html
  copyscope show run.json --export pprof > run.pb.gz
  copyscope show run.json --export flamegraph --output run.svg
  copyscope show run.json --export drawing > path.svg

run, watch, advise and simulate write a record with --json FILE or --out DIR.
"""
OPTIONS = """
--export FORMAT         {formats}
--output FILE           write the export to FILE instead of stdout
--run ID                choose a run, if FILE has several
--explain               say what each line means
--by thread             print a line for each thread name (watched programs only)
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope show`."""
    result = UsageParser(
        prog="show",
        verbose=VERBOSE,
        usage="%(prog)s [options] FILE",
        description="Print the screen of a run, a watch or a simulation again, from its record. Needs no"
        " root. Exit status: 0 printed, 1 not a record, 2 usage or no such file.",
        epilog=EXAMPLES,
    )
    result.add_argument("record", metavar="FILE", help="RUN.json, RUN.json.gz or RUNS.jsonl.gz")
    add_options(
        result,
        OPTIONS.format(
            formats="; ".join(f"{name}: {row.description}" for name, row in exports.FORMATS.items())
        ),
        export={"choices": tuple(exports.FORMATS), "metavar": "FORMAT"},
        by={"choices": ("thread",)},
    )
    return result


def _show(args: argparse.Namespace) -> int:
    """Print the screens of the runs in a record file, or export a run, and return the exit status."""
    runs = record_files.read_runs(Path(args.record), args.run)
    if not runs:
        raise RunError(f"{args.record}: an empty list; give a file with a record")
    if args.output is not None and args.export is None:
        raise UsageError(f"--output {args.output}: only with --export; to save the screen, redirect stdout")
    if args.export is not None:
        return _export(runs, args)
    console = make_console()
    for run in runs:
        if isinstance(run, Run):
            render = watch.render if run.raw.target else terminal.render
            outcome.print_run(run, args, render, console)
        else:
            lines = simulated_lines(run.simulated, report_width(console), explain=args.explain)
            print_lines(lines, console)
    traffic_runs = [run for run in runs if isinstance(run, Run) and run.raw.target is None]
    if len(traffic_runs) == len(runs) > 1:
        render_summary(traffic_runs, console)
    return 0


def _export(runs: Sequence[CompleteRun], args: argparse.Namespace) -> int:
    """Export the only run in the format of --export, to --output or stdout, and return the exit status."""
    run, export_format = runs[0], exports.FORMATS[args.export]
    if len(runs) != 1:
        raise UsageError(f"{args.record}: {len(runs)} runs; choose one with --run ID")
    if not isinstance(run, Run) and export_format.write_simulated is None:
        raise UsageError(f"--export {args.export}: not for a simulated machine; use --export drawing")
    try:
        data = export_format.write(run)
    except (ValueError, OverflowError) as error:
        raise RunError(f"{args.record}: --export {args.export}: {error}; measure again") from error
    if export_format.needs_stacks and isinstance(run, Run) and not run.raw.stacks:
        entry.print_message("no stacks in this record, so each row has one frame; measure with --stacks")
    if args.output is not None:
        files.save(Path(args.output), data)
    elif sys.stdout.isatty() and not export_format.is_text:
        raise UsageError(f"--export {args.export}: not for a terminal; add --output FILE, or > FILE")
    else:
        sys.stdout.buffer.write(data)
    return 0


main = entry.make_main("show", parser, _show)
