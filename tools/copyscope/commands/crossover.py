# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope crossover`: find the message size from which one strategy is better than another.

The runs come from an existing sweep. If there is none, the command measures first.
"""

import argparse
import io
import os
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from copyscope.base import paths
from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import RunError, UsageError
from copyscope.commands import entry, output_files, record_files, sweep
from copyscope.judge.crossover import PAIRS, costs_of, crossovers_of, read_pair
from copyscope.judge.crossover_file import build_document
from copyscope.show.compared import render_crossovers
from copyscope.show.layout import make_console
from copyscope.sweep import results
from copyscope.sweep.experiment import load as load_experiment

EXAMPLES = """\
examples:
  sudo copyscope crossover                     measure first: two minutes
  copyscope crossover results/HOST/published   from an existing sweep; no root
  copyscope crossover DIR --json - | jq .sentence
  copyscope crossover results/HOST/receive --pair read,map
"""
OPTIONS = """
--experiment NAME =crossover   what to run without DIR: a name from experiments/ or a TOML file; default
                        crossover
--pair [SETTING=]FIRST,SECOND   compare these two: strategies, or two values of another setting (receiver,
                        via, tls, ...); crossover.json is then written with --out only
--out DIR               directory of the records, default results/HOST-KERNEL/EXPERIMENT; with DIR, of
                        crossover.json alone
--json FILE             write the answers as JSON to FILE ("-": stdout, no table)
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope crossover`."""
    result = UsageParser(
        prog="crossover",
        verbose="every pair, thread count and quantity",
        quiet="no progress",
        usage="%(prog)s [options] [DIR]",
        description="At which message size does one send strategy overtake another, in goodput and in CPU"
        " time per byte, and what makes the difference? Without DIR it runs the experiment `crossover` first "
        "(root). Writes DIR/crossover.json if you own DIR. Exit status: 0 answered, 1 a run failed,"
        " 2 usage, 130 interrupted.",
        epilog=EXAMPLES,
    )
    result.add_argument("directory", nargs="?", metavar="DIR", help="results/HOST/EXPERIMENT of a sweep")
    add_options(result, OPTIONS)
    return result


def _crossover(args: argparse.Namespace) -> int:
    """Measure or load the runs, print and write the crossovers, and return the exit status."""
    status = 0
    if "" in (args.directory, args.out):
        raise UsageError("'': an empty name; give the directory of a sweep, or no directory to measure first")
    if args.directory is not None:
        directory, out = Path(args.directory), args.out
    else:
        directory, status = _measure(args)
        out = None  # --out is the directory of the records
        if status not in (0, entry.FAILED):
            return status
    runs = record_files.load_sweep(directory).records
    setting, pairs = "impl", list(PAIRS)
    if args.pair is not None:
        setting, pair = read_pair(args.pair, runs)
        pairs = [pair]
    crossovers = crossovers_of(runs, pairs=pairs, by=setting)
    answer = build_document(runs, crossovers, costs_of(runs, setting))
    # advise and report expect the default pairs of strategies in the crossover.json of a sweep.
    if args.pair is None or out is not None:
        record_files.write_answer(answer, "crossover.json", directory, out)
    if args.json != "-":
        render_crossovers(answer.sentence, crossovers, verbose=args.verbose, console=make_console())
    output_files.write_json_option(answer, args.json)
    return status


def measure(directory: Path) -> None:
    """Run the experiment `crossover` and write crossover.json, without printing its tables.

    directory: directory of the records and of crossover.json
    """
    with redirect_stdout(io.StringIO()):
        if main(["--out", str(directory)]) not in (0, entry.FAILED):
            raise RunError("the measurement of the crossover did not finish")


def _measure(args: argparse.Namespace) -> tuple[Path, int]:
    """Perform the experiment's missing runs; return its directory and the sweep's exit status."""
    experiment = load_experiment(sweep.find_experiment(args.experiment))
    if os.geteuid() != 0 and not experiment.elsewhere:
        raise RunError(
            f"measuring needs root; run sudo {paths.command()} crossover, or give the DIR of a sweep"
        )
    directory = Path(args.out) if args.out else sweep.default_directory(experiment)
    # With --json - stdout contains the answer only.
    quiet = args.quiet or args.json == "-"
    with redirect_stdout(sys.stderr) if args.json == "-" else nullcontext():
        status = sweep.main([args.experiment, "--out", str(directory), *(["--quiet"] if quiet else [])])
    if status == entry.FAILED and not results.has_records(directory):
        raise RunError("no run succeeded; the messages above say why")
    return directory, status


main = entry.make_main("crossover", parser, _crossover, "interrupted; the same command resumes")
