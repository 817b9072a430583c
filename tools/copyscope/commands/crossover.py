"""copyscope crossover: runs what it needs, or reads what was run, and says where strategies overtake."""

import argparse
import io
import os
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry, reading, sweep
from copyscope.errors import RunError, UsageError
from copyscope.judge.crossover import PAIRS, costs_of, crossovers_of, read_pair
from copyscope.judge.crossover_file import document
from copyscope.show.console import make_console
from copyscope.show.crossovers import render
from copyscope.sweep import results
from copyscope.sweep.experiment import load as load_experiment

EXAMPLES = """\
examples:
  sudo copyscope crossover                     measure (two minutes), then answer
  copyscope crossover results/HOST/published   from an existing sweep; no root
  copyscope crossover DIR --json - | jq .sentence
  copyscope crossover results/HOST/receive --pair read,map   compare another setting of the runs
"""
OPTIONS = """
--experiment NAME =crossover   what to run without DIR: a name from experiments/ or a TOML file; default
                        crossover
--pair [SETTING=]FIRST,SECOND   compare these two: strategies, or two values of another setting (receiver,
                        via, tls, ...); crossover.json is then written with --out only
--out OUT               where its records go, default results/HOST-KERNEL/EXPERIMENT; with DIR,
                        only crossover.json
--json FILE             write the answers as JSON to FILE ("-": stdout, no table)
-v --verbose            every pair, thread count and quantity
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="crossover",
        description="At which message size does one send strategy overtake another, in goodput and in CPU"
        " time per byte, and what makes the difference? Without DIR it runs the experiment `crossover` first "
        "(root). Writes DIR/crossover.json if you own DIR. Exit status: 0 answered, 1 a run failed,"
        " 2 usage, 130 interrupted.",
        epilog=EXAMPLES,
    )
    made.add_argument("directory", nargs="?", metavar="DIR", help="results/HOST/EXPERIMENT of a sweep")
    add(made, OPTIONS)
    return made


def _crossover(arguments: argparse.Namespace) -> int:
    status = 0
    if "" in (arguments.directory, arguments.out):
        raise UsageError("DIR: empty: give the directory of a sweep, or leave it out to measure")
    directory = None if arguments.directory is None else Path(arguments.directory)
    if directory is None:
        directory, status = _run(arguments)
        if status not in (0, entry.FAILED):
            return status
    runs = reading.load(directory).records
    by, pairs = "impl", list(PAIRS)
    if arguments.pair is not None:
        by, asked = read_pair(arguments.pair, runs)
        pairs = [asked]
    found = crossovers_of(runs, pairs=pairs, by=by)
    made = document(runs, found, costs_of(runs, by))
    out = None if arguments.directory is None else arguments.out
    # What advice and reports read there holds the usual pairs.
    if arguments.pair is None or out is not None:
        reading.write_beside(made, "crossover.json", directory, out)
    if arguments.json != "-":
        render(made.sentence, found, verbose=arguments.verbose, console=make_console())
    documents.give_json(made, arguments.json)
    return status


def measure(directory: Path) -> None:
    """The experiment `crossover` into a directory, with its crossover.json; the tables stay unsaid."""
    with redirect_stdout(io.StringIO()):
        if main(["--out", str(directory)]) not in (0, entry.FAILED):
            raise RunError("the measurement did not finish")


def _run(arguments: argparse.Namespace) -> tuple[Path, int]:
    """Run the experiment, or what is missing of it: (its directory, exit status of the sweep)."""
    experiment = load_experiment(sweep.find_experiment(arguments.experiment))
    if os.geteuid() != 0 and not experiment.elsewhere:
        raise RunError("measuring needs root: sudo copyscope crossover, or give the DIR of a sweep")
    directory = Path(arguments.out) if arguments.out else sweep.default_directory(experiment)
    # Of `--json -` stdout is the answer's.
    alone = arguments.json == "-"
    with redirect_stdout(sys.stderr) if alone else nullcontext():
        status = sweep.main([arguments.experiment, "--out", str(directory), *(["--quiet"] if alone else [])])
    if status == entry.FAILED and not results.has_records(directory):
        raise RunError("nothing was measured: see above")
    return directory, status


main = entry.command(parser, _crossover, "interrupted: the same command resumes")
