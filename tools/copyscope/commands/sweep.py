"""copyscope sweep: all runs of an experiment, each once, however often it is interrupted."""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from copyscope import paths
from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry
from copyscope.errors import UsageError
from copyscope.escaping import visible
from copyscope.machine import fingerprint
from copyscope.plan.instruments import parse_time_s
from copyscope.show.console import make_console, print_lines
from copyscope.show.sweep import SweepProgress, outcome_lines, plan_lines
from copyscope.show.sweep_result import next_lines, result_lines
from copyscope.study import table as results_table
from copyscope.sweep import results
from copyscope.sweep.directory import refuse_foreign
from copyscope.sweep.experiment import Experiment, describe, expand, load, run_s, runs_of
from copyscope.sweep.experiment_file import NAME
from copyscope.sweep.runner import Runner
from copyscope.sweep.simulated_runner import BootRunner
from copyscope.sweep.sweep import Outcome, perform

EXPERIMENTS = paths.ROOT / "experiments"
EPILOG = """\
examples:
  sudo copyscope sweep quick                     does all of it work here? under 90 s
  sudo copyscope sweep published --budget 30m    then more repeats of what is noisy, for 30 min in all
  copyscope sweep crossover --dry-run -v         what would run, in which order (no root)
  sudo copyscope sweep my/sizes.toml --out results/mine
  copyscope sweep simulated                      boots of a simulated machine: cache misses, no root

An interrupted sweep resumes: run the same command again.
exit status: 0 all runs are valid, 1 some failed or are invalid, 2 wrong usage, 130 interrupted
"""
OPTIONS = """
--out DIR               where the records go; default results/HOST-KERNEL/EXPERIMENT
--repeats N             instead of the experiment's own number
--budget TIME           after the planned runs, repeat the noisy ones until TIME (90s, 20m, 1h) is used up;
                        default: no extra repeats
--dry-run               check everything and print what would run
--json                  the summary as JSON on stdout
-v --verbose            a line per run; lists in full
-q --quiet              no progress
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="sweep",
        description="Run an experiment: every combination of its factors, in blocks of seeded order.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    made.add_argument("experiment", metavar="EXPERIMENT", help="a name from experiments/, or a TOML file")
    add(made, OPTIONS, repeats={"type": int})
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 all valid, 1 failed or invalid ones, 2 usage, 130 interrupted."""
    return entry.run(lambda: _sweep(parser().parse_args(argv), argv), "interrupted before the first run")


def _sweep(args: argparse.Namespace, argv: list[str]) -> int:
    experiment = load(find_experiment(args.experiment))
    if args.repeats is not None:
        if not 1 <= args.repeats <= 1000:
            raise UsageError(f"--repeats: {args.repeats}: not between 1 and 1000")
        experiment = replace(experiment, repeats=args.repeats)
    budget_s = None if args.budget is None else parse_time_s(args.budget, "--budget")
    directory = Path(args.out) if args.out else default_directory(experiment)
    entry.build()
    runner = BootRunner(experiment) if experiment.simulated else Runner(experiment)
    cannot = runner.prepare(runs_of(experiment))
    here = fingerprint.describe()
    refuse_foreign(directory, here)
    if args.dry_run:
        return _say_plan(experiment, directory, cannot, args)
    if isinstance(runner, BootRunner):
        runner.check_machine()
    elif not experiment.elsewhere:
        entry.need_root("sweep", argv)
    with SweepProgress(experiment.name, quiet=args.quiet, verbose=args.verbose) as progress:
        outcome = perform(experiment, directory, budget_s=budget_s, progress=progress, run=runner, here=here)
    _say_outcome(experiment, outcome, args)
    if outcome.interrupted:
        return entry.INTERRUPTED
    return 0 if outcome.complete else entry.FAILED


def find_experiment(name: str) -> Path:
    """A path when it looks like one, else a name from experiments/."""
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    path = EXPERIMENTS / f"{name}.toml"
    if not NAME.fullmatch(name) or not path.exists():
        names = {found.stem for found in EXPERIMENTS.glob("*.toml")}
        known = ", ".join(sorted(names))
        raise UsageError(f"{name}: no such experiment: give the path of a TOML file, or one of {known}")
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def default_directory(experiment: Experiment) -> Path:
    here = os.uname()
    directory = paths.host_results(here.nodename, here.release) / experiment.name
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


def _say_plan(experiment: Experiment, directory: Path, cannot: list[str], args: argparse.Namespace) -> int:
    runs = expand(experiment)
    kept = results.ids(directory) if results.has_records(directory) else set()
    there = [run for run in runs if run.run_id in kept]
    if args.json:
        rows = [
            {"run_id": run.run_id, "order": run.order, "repeat": run.repeat, "factors": run.factors}
            for run in runs
        ]
        documents.print_json({"runs": rows, "there": [run.run_id for run in there], "cannot": cannot})
        return 0
    points = len(runs_of(experiment))
    lines = plan_lines(
        experiment.name,
        experiment.question,
        points=points,
        repeats=experiment.repeats,
        there=len(there),
        run_s=run_s(experiment),
    )
    lines += [f"cannot run here: {line}" for line in cannot]
    print("\n".join(map(visible, lines)))
    if args.verbose:
        for run in runs:
            there_too = "  (there)" * (run in there)
            print(visible(f"{run.order:5}  repeat {run.repeat}  {describe(run.factors)}{there_too}"))
    return 0


def _say_outcome(experiment: Experiment, outcome: Outcome, args: argparse.Namespace) -> None:
    """What it came to, and what was measured so far, of all runs that are there."""
    if args.json:
        documents.print_json({"experiment": experiment.name, "complete": outcome.complete, **vars(outcome)})
        return
    lines = outcome_lines(experiment.name, len(expand(experiment)), outcome, args.verbose)
    print("\n".join(map(visible, lines)))
    console, directory = make_console(), Path(outcome.directory)
    if experiment.simulated or not results.has_records(directory):
        print_lines(next_lines(str(directory), console.width), console)
        return
    records = results.load(directory).records
    if records:
        print_lines(result_lines(results_table.fill(records), str(directory), console), console)
