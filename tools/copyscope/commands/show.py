"""copyscope show: the screen of a run again, from its record. Needs no root."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from copyscope import exports
from copyscope.arguments import UsageParser, add
from copyscope.commands import entry, outcome, reading
from copyscope.errors import RunError, UsageError, what_to_add
from copyscope.files import saving
from copyscope.record.check import Whole
from copyscope.show import terminal, watch
from copyscope.show.console import make_console, print_lines, report_width
from copyscope.show.simulated import simulated_lines
from copyscope.show.summary import render_summary
from copyscope.sweep.results import Run

EXAMPLES = """\
examples:
  copyscope show run.json                      one screen; -v is everything
  copyscope show results/HOST/quick/records.jsonl.gz --run quick-1f2e3d4c5b-0 --explain
  copyscope show simulated.json
  copyscope show run.json --export html --out run.html
  copyscope show run.json --export pprof > run.pb.gz && go tool pprof -http : run.pb.gz
  copyscope show run.json --export flamegraph --out run.svg

A record is what `--json run.json` or `--out DIR` of run, watch, advise and simulate keeps.
"""
OPTIONS = """
--export FORMAT         {formats}
--out FILE              write the export to FILE instead of stdout
--run ID                which run, if FILE has several
--explain               say what each line means
--by thread             of a watched program: a line for each name of its threads
-v --verbose            all tables and findings; -vv: also exact bytes, hooks, checks, unattributed symbols
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="show",
        description="Prints the screen of a run, of a watched program or of a simulated machine again, from"
        " its record. Needs no root. Exit status: 0 shown, 1 not a record, 2 usage.",
        epilog=EXAMPLES,
    )
    made.add_argument("record", metavar="FILE", help="RUN.json, RUN.json.gz or RUNS.jsonl.gz")
    verbose = {"action": "count", "default": 0}
    formats = "; ".join(f"{name}: {one.what}" for name, one in exports.FORMATS.items())
    add(
        made,
        OPTIONS.format(formats=formats),
        export={"choices": tuple(exports.FORMATS)},
        verbose=verbose,
        by={"choices": ("thread",)},
    )
    return made


def _show(arguments: argparse.Namespace) -> int:
    found = reading.runs_of(Path(arguments.record), arguments.run)
    if not found:
        raise RunError(f"record: {arguments.record}: an empty list: no record in it")
    runs = [reading.typed(one, arguments.record) for one in found]
    if arguments.out is not None and arguments.export is None:
        raise UsageError("--out: only with --export: the screen goes to stdout")
    if arguments.export is not None:
        return _export(runs, arguments)
    console = make_console()
    for run in runs:
        if isinstance(run, Whole):
            render = watch.render if run.raw.target else terminal.render
            outcome.show(run, arguments, render, console)
        else:
            lines = simulated_lines(run.simulated, report_width(console), explain=arguments.explain)
            print_lines(lines, console)
    own = [run for run in runs if isinstance(run, Whole) and run.raw.target is None]
    if len(own) == len(runs) > 1:
        render_summary(own, console)
    return 0


def _export(runs: Sequence[Run], arguments: argparse.Namespace) -> int:
    run, chosen = runs[0], exports.FORMATS[arguments.export]
    if len(runs) != 1 or not isinstance(run, Whole):
        what = "modelled" if len(runs) == 1 else f"{len(runs)} runs"
        raise UsageError(f"{arguments.record}: {what}: an export needs one measured run")
    try:
        made = chosen.make(run)
    except ModuleNotFoundError as error:
        raise RunError(
            f"--export {arguments.export}: {error.name} is missing: {what_to_add('report')}, or --export csv"
        ) from error
    except (ValueError, OverflowError) as error:
        raise RunError(f"{arguments.record}: --export {arguments.export}: {error}: measure again") from error
    if chosen.of_stacks and not run.raw.stacks:
        entry.say("no stacks in this record, one frame each: measure with --stacks")
    if arguments.out is not None:
        saving.save(Path(arguments.out), made)
    elif sys.stdout.isatty() and not chosen.text:
        raise UsageError(f"--export {arguments.export}: not for a terminal: --out FILE, or > FILE")
    else:
        sys.stdout.buffer.write(made)
    return 0


main = entry.command(parser, _show)
