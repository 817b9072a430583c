"""copyscope show: the screen of a run again, from its record. Needs no root."""

import argparse
from pathlib import Path

from rich.console import Console

from copyscope.arguments import UsageParser
from copyscope.commands import entry, reading
from copyscope.ledger.derive import whole
from copyscope.record import store
from copyscope.record.store import Record
from copyscope.render import terminal, watch
from copyscope.render.simulated import simulated_lines
from copyscope.render.summary import render_summary

EXAMPLES = """\
examples:
  copyscope show run.json
  copyscope show results/HOST/quick/raw/RUN.json.gz --explain
  copyscope show simulated.json

A record is what `--json run.json` or `--out DIR` of run, watch, advise and simulate keeps.
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="show",
        description="Prints the screen of a run, of a watched program or of a simulated machine again, from"
        " its record. Needs no root. Exit status: 0 shown, 1 not a record, 2 usage.",
        epilog=EXAMPLES,
    )
    made.add_argument("record", metavar="FILE", help="a record, or a list of them: RUN.json or RUN.json.gz")
    made.add_argument("--explain", action="store_true", help="say what each line means")
    made.add_argument(
        "-v", "--verbose", action="store_true", help="exact bytes, hooks, identities, unattributed symbols"
    )
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 shown, 1 not a record, 2 usage, 130 interrupted."""
    return entry.run("show", lambda: _show(parser().parse_args(argv)))


def _show(arguments: argparse.Namespace) -> int:
    found = store.read_runs(Path(arguments.record))
    for one in found:
        reading.check_whole(one, arguments.record)
    console = terminal.make_console()
    made = [one if "simulated" in one else whole(one) for one in found]
    for one in made:
        _render(one, arguments, console)
    if len(made) > 1 and not any("simulated" in one or "target" in one for one in made):
        render_summary(made, console)
    return 0


def _render(record: Record, arguments: argparse.Namespace, console: Console) -> None:
    if "simulated" in record:
        terminal.print_lines(simulated_lines(record, terminal.report_width(console)), console)
        return
    render = watch.render if "target" in record else terminal.render
    render(record, verbose=arguments.verbose, explain=arguments.explain, console=console)
