# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope sweep`: run every combination of an experiment's factors. Interrupted sweeps can be resumed."""

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from copyscope.base import paths
from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import RunError, UsageError, how_to_install_extra, out_of_range
from copyscope.base.spelling import counted, format_minutes, visible
from copyscope.base.stats import SAME, Estimate
from copyscope.commands import entry, output_files, report
from copyscope.judge import estimates
from copyscope.judge.metrics import METRICS
from copyscope.machine import fingerprint
from copyscope.plan.schedule import parse_time_s
from copyscope.report import study_table
from copyscope.report.study_table import Axis, Panel, StudyRow, arrange, axis_values, find_axis, spell_factor
from copyscope.report.wording import number
from copyscope.show.layout import heading, make_console, print_lines, report_width, wrap
from copyscope.show.progress import StepProgress
from copyscope.sweep import results
from copyscope.sweep.directory import refuse_foreign
from copyscope.sweep.experiment import Experiment, describe, expand, load, run_s, runs_of
from copyscope.sweep.experiment_file import NAME
from copyscope.sweep.runner import BootRunner, Runner
from copyscope.sweep.sweep import Outcome, perform

# Directory of the experiments that come with copyscope.
EXPERIMENTS = paths.ROOT / "experiments"
# Largest value of --repeat.
REPEATS_MAX = 1000
# Print at most this many rows of a list without --verbose; the files of the sweep have all rows.
LIST_MAX = 10
# Print at most this many noisy points: on a busy machine every point is noisy, for the same reason.
NOISY_MAX = 3
EPILOG = """\
examples:
  sudo copyscope sweep quick                   does it work here? under 90 s
  sudo copyscope sweep published --budget 30m  repeat noisy points, 30 min
  copyscope sweep crossover --dry-run -v       what would run, in which order
  sudo copyscope sweep my/sizes.toml --out results/mine
  copyscope sweep simulated                    cache misses, modelled

An interrupted sweep resumes: run the same command again. --dry-run and
simulated experiments need no root.
exit status: 0 all runs are valid, 1 some failed or are invalid, 2 wrong usage,
130 interrupted
"""
OPTIONS = """
--out DIR               directory of the records; default results/HOST-KERNEL/EXPERIMENT
--repeat N              repeats of each point, instead of the experiment's own number
--budget TIME           after the planned runs, repeat the noisy ones until TIME (90s, 20m, 1h) is used up;
                        default: no extra repeats
--dry-run               check everything and print what would run
--json FILE             write the summary as JSON to FILE ("-": stdout, no tables)
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope sweep`."""
    result = UsageParser(
        prog="sweep",
        verbose="a line per run; lists in full",
        quiet="no progress",
        usage="%(prog)s [options] EXPERIMENT",
        description="Run an experiment: every combination of its factors, in blocks shuffled by a seed.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    result.add_argument("experiment", metavar="EXPERIMENT", help="a name from experiments/, or a TOML file")
    add_options(result, OPTIONS, repeat={"type": int})
    return result


def main(argv: list[str]) -> int:
    """Run `copyscope sweep`. Exit status: 0 all valid, 1 failed or invalid runs, 2 usage, 130 interrupted."""
    return entry.run(
        "sweep", lambda: _sweep(parser().parse_args(argv), argv), "interrupted before the first run"
    )


def _sweep(args: argparse.Namespace, argv: list[str]) -> int:
    """Load the experiment, run or print its runs, print the summary and return the exit status.

    argv: words of the command line, for the message that suggests sudo
    """
    experiment = load(find_experiment(args.experiment))
    if args.repeat is not None:
        if not 1 <= args.repeat <= REPEATS_MAX:
            raise UsageError(out_of_range("--repeat", args.repeat, 1, REPEATS_MAX))
        experiment = replace(experiment, repeats=args.repeat)
    output_files.check_file(args.json)
    budget_s = None if args.budget is None else parse_time_s(args.budget, "--budget")
    directory = Path(args.out) if args.out else default_directory(experiment)
    entry.build()
    runner = BootRunner(experiment) if experiment.simulated else Runner(experiment)
    impossible_points = runner.prepare(runs_of(experiment))
    machine = asdict(fingerprint.describe_machine())
    refuse_foreign(directory, machine)
    if args.dry_run:
        return _print_plan(experiment, directory, impossible_points, args)
    if isinstance(runner, BootRunner):
        runner.check_machine()
    elif not experiment.elsewhere:
        entry.require_root("sweep", argv)
    with SweepProgress(experiment.name, quiet=args.quiet, verbose=args.verbose) as progress:
        outcome = perform(
            experiment, directory, budget_s=budget_s, progress=progress, run=runner, here=machine
        )
    _print_outcome(experiment, outcome, args)
    if args.json != "-" and not entry.is_part():
        _finish(Path(outcome.directory), interrupted=outcome.interrupted)
    if outcome.interrupted:
        return entry.INTERRUPTED
    return 0 if outcome.complete else entry.FAILED


def find_experiment(name: str) -> Path:
    """Return the path of an experiment. A name without a slash and without .toml is a file in experiments/.

    Raises UsageError.
    """
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    path = EXPERIMENTS / f"{name}.toml"
    if not NAME.fullmatch(name) or not path.exists():
        names = ", ".join(sorted(file.stem for file in EXPERIMENTS.glob("*.toml")))
        raise UsageError(f"{name}: no such experiment; give the path of a TOML file, or one of {names}")
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def default_directory(experiment: Experiment) -> Path:
    """Return the default directory for the records: results/HOST-KERNEL/EXPERIMENT."""
    machine = os.uname()
    directory = paths.host_results(machine.nodename, machine.release) / experiment.name
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


# The plan that --dry-run prints.


def _print_plan(
    experiment: Experiment, directory: Path, impossible_points: list[str], args: argparse.Namespace
) -> int:
    """Print what the sweep would run, for --dry-run, and return the exit status.

    impossible_points: combinations of factors that this machine cannot run, with the reasons
    """
    runs = expand(experiment)
    finished_ids = results.ids(directory) if results.has_records(directory) else set()
    finished = [run for run in runs if run.run_id in finished_ids]
    if args.json is not None:
        rows = [
            {"run_id": run.run_id, "order": run.order, "repeat": run.repeat, "factors": run.factors}
            for run in runs
        ]
        plan = {"runs": rows, "there": [run.run_id for run in finished], "cannot": impossible_points}
        output_files.write_json_option(plan, args.json)
    if args.json == "-":
        return 0
    lines = plan_lines(
        experiment.name,
        experiment.question,
        points=len(runs_of(experiment)),
        repeats=experiment.repeats,
        finished_runs=len(finished),
        run_s=run_s(experiment),
    )
    lines += [f"cannot run here: {line}" for line in impossible_points]
    print("\n".join(map(visible, lines)))
    if args.verbose:
        for run in runs:
            note = "  (done)" * (run in finished)
            print(visible(f"{run.order:5}  repeat {run.repeat}  {describe(run.factors)}{note}"))
    return 0


def plan_lines(
    name: str, question: str, *, points: int, repeats: int, finished_runs: int, run_s: float
) -> list[str]:
    """Return two lines: an experiment's question, and the number and expected duration of its runs.

    finished_runs: number of runs that earlier calls have finished
    run_s: expected duration of one run in seconds
    """
    runs = points * repeats
    line = f"{name}: {points} points x {repeats} repeats = {runs} runs, about {format_minutes(runs * run_s)}"
    if finished_runs:
        left_s = (runs - finished_runs) * run_s
        line += f"; {finished_runs} are done, about {format_minutes(left_s)} left"
    return [question, line]


class SweepProgress(StepProgress):
    """Progress display of a sweep. Earlier calls may have finished some of its runs.

    A line is printed for each failed run, or for every run with `verbose`.
    """

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a display; start() sets the number of runs.

        title: title of the progress bar
        verbose: print a line for every run, not only for failed runs
        stream: output; None for stderr
        clock: function that returns the time in seconds
        """
        super().__init__(title, 0, quiet=quiet, stream=stream, clock=clock)
        self._verbose = verbose

    def start(self, total: int, done: int, run_s: float) -> None:
        """Set the total number of runs, and the number of runs that earlier calls have finished (`done`).

        run_s: expected duration of a run in seconds
        """
        self.expect(total)
        self._finished = self._finished_before = done
        self._expected_step_s = run_s
        if done:
            self._print(f"{done} of {total} runs were done by earlier calls")

    def begin(self, step: str) -> None:
        if self._bar is not None or not self._verbose:
            super().begin(step)

    def end(self, step: str, outcome: str) -> None:
        """Count a finished run, and print a line for it if it failed or if `verbose` is set.

        step: factors of the run
        outcome: result in words, such as `valid` or `failed: ...`
        """
        self.done()
        if self._verbose or outcome.startswith("failed"):
            self._print(f"{self._finished} of {self._total}: {step}: {outcome}")

    def add(self, runs: int) -> None:
        """Add extra runs to the total: repeats of noisy points."""
        self.expect(self._total + runs)


# The summary at the end.


def _print_outcome(experiment: Experiment, outcome: Outcome, args: argparse.Namespace) -> None:
    """Print a sweep's summary, and the results of all its runs, including runs of earlier calls."""
    summary = {"experiment": experiment.name, "complete": outcome.complete, **vars(outcome)}
    output_files.write_json_option(summary, args.json)
    if args.json == "-":
        return
    lines = outcome_lines(experiment.name, len(expand(experiment)), outcome, args.verbose)
    print("\n".join(map(visible, lines)))
    directory = Path(outcome.directory)
    if experiment.simulated or not results.has_records(directory):
        return
    records = results.load(directory).records
    if records:
        console = make_console()
        print_lines(result_lines(study_table.fill(records), console), console)


def _finish(directory: Path, *, interrupted: bool) -> None:
    """Make the page of a sweep, whose name is the last line. Without its libraries, print how to make it."""
    if not results.has_records(directory):
        return
    print()
    if not interrupted and importlib.util.find_spec("matplotlib"):
        try:
            report.make_page(directory, directory)
            return
        except RunError as error:
            entry.print_message(str(error))
    steps = [] if importlib.util.find_spec("matplotlib") else [how_to_install_extra("report")]
    console = make_console()
    step = "; ".join([*steps, f"{paths.command()} report {visible(str(directory))}"])
    print_lines(wrap(f"next: {step}", console.width, indent=2), console)


def outcome_lines(name: str, planned_runs: int, outcome: Outcome, verbose: bool) -> list[str]:
    """Return the summary of a sweep: number of finished runs, and lists of failed, invalid and noisy runs.

    planned_runs: number of runs in the experiment, excluding extra repeats
    verbose: print the lists in full
    """
    extra = f" and {outcome.extra} extra repeats" if outcome.extra else ""
    lines = [
        f"{name}: {outcome.done - outcome.extra} of {planned_runs} runs{extra} are in {outcome.directory}"
        f" ({outcome.ran} run now, {format_minutes(outcome.wall_s)})"
    ]
    for noun, note, rows, rows_max in (
        ("damaged record", "the runs of damaged records were repeated", outcome.damaged, LIST_MAX),
        ("failed run", "all attempts are in failures.jsonl", outcome.failed, LIST_MAX),
        ("invalid run", "invalid runs are kept, but never averaged", outcome.invalid, LIST_MAX),
        ("noisy point", "--budget TIME repeats noisy points", outcome.noisy, NOISY_MAX),
    ):
        if rows:
            lines.append(f"{counted(len(rows), noun)} ({note})")
            lines += _list_lines(rows, len(rows) if verbose else rows_max)
    if not outcome.noisy:
        judged = outcome.judged
        steady = f"none of {judged} points is noisy" if judged else "no point has two valid runs to compare"
        lines.append(f"noise: {steady}")
    if outcome.stopped:
        lines.append(f"stopped: {outcome.stopped}; then run the same command again")
    elif outcome.interrupted:
        lines.append("interrupted; run the same command again to go on")
    return lines


def _list_lines(rows: Sequence[str], rows_max: int) -> list[str]:
    """Return at most `rows_max` rows of a list, indented, and the number of rows left out."""
    shown = rows[:rows_max]
    lines = [f"  {row}" for row in shown]
    if len(shown) < len(rows):
        lines.append(f"  and {len(rows) - len(shown)} more (-v shows the whole list)")
    return lines


# The results: tables of strategy by size, with the best in bold, and the next command.

# Title and metric of each table of results.
RESULT_TABLES = (("GOODPUT", "goodput_gbps"), ("CPU TIME", "system_cpu_ns_per_kib"))
# Show at most this many combinations of the settings other than strategy and size; the report shows all.
PANELS_MAX = 3
# Space between two columns of a table, and the width of a column in characters.
COLUMN_GAP = "  "
COLUMN_WIDTH = 8
# Character after the best numbers of a table, where the output is not a terminal and cannot be bold.
BEST_MARK = "*"


def result_lines(rows: Sequence[StudyRow], console: Console) -> list[Text]:
    """Return the tables of goodput and CPU time.

    rows: points of the sweep; the settings with the fewest threads come first
    """
    axis = find_axis(rows, first="size")
    panels = arrange(rows, axis)
    best = "bold: the best value, or within its noise"
    if not console.is_terminal:
        best = f"{BEST_MARK} the best value, or within its noise"
    width = report_width(console)
    lines: list[Text] = []
    for panel in panels[:PANELS_MAX]:
        for title, metric in RESULT_TABLES:
            settings = f", {panel.title}" if panel.title else ""
            lines += heading(title, f"{METRICS[metric].unit}{settings}; {best}", width)
            lines += _table(panel, axis, metric, width, plain=not console.is_terminal)
    if len(panels) > PANELS_MAX:
        lines += wrap(f"and {len(panels) - PANELS_MAX} more settings: the report shows all settings", width)
    return lines


def _table(panel: Panel, axis: Axis, metric: str, width: int, *, plain: bool) -> list[Text]:
    """Return a table of one metric: a row for each strategy, a column for each value of the axis.

    Columns that do not fit in `width` characters continue in a second block below.

    panel: points that share all settings other than strategy and axis
    plain: write BEST_MARK after the best numbers instead of using bold type
    """
    members = [row for line in panel.lines.values() for row in line]
    row_of = {(row.impl, row.factors[axis.factor]): row for row in members}
    name_width = max(len(impl) for impl in panel.lines)
    columns_per_block = max(1, (width - name_width) // (COLUMN_WIDTH + len(COLUMN_GAP)))
    columns = axis_values(members, axis)
    lines = []
    for start in range(0, len(columns), columns_per_block):
        block = columns[start : start + columns_per_block]
        title = Text(" " * name_width, style="dim")
        for axis_value in block:
            title.append(COLUMN_GAP + spell_factor(axis.factor, axis_value).rjust(COLUMN_WIDTH))
        lines.append(title)
        best = {
            axis_value: _best_strategies([row_of.get((impl, axis_value)) for impl in panel.lines], metric)
            for axis_value in block
        }
        for impl in panel.lines:
            line = Text(visible(impl).ljust(name_width))
            for axis_value in block:
                row = row_of.get((impl, axis_value))
                value = None if row is None else row.values[metric]
                text = number(value.value) if isinstance(value, Estimate) else "n/a"
                is_best = row is not None and impl in best[axis_value]
                text = f"{text}{BEST_MARK if is_best else ' '}" if plain else text
                line.append(COLUMN_GAP + text.rjust(COLUMN_WIDTH), style="bold" if is_best else "")
            lines.append(line)
    return lines


def _best_strategies(rows: Sequence[StudyRow | None], metric: str) -> set[str]:
    """Return the strategy with the best median, and all strategies that do not clearly differ from it."""
    measured = [row for row in rows if row is not None and isinstance(row.values[metric], Estimate)]
    if not measured:
        return set()
    choose: Callable[..., StudyRow] = max if METRICS[metric].more_is_better else min
    best_row = choose(measured, key=lambda row: row.values[metric].value)
    best = {best_row.impl}
    for row in measured:
        ratio = estimates.ratio(row.point, best_row.point, metric)
        if isinstance(ratio, Estimate) and ratio.low is not None and ratio.against(1.0) == SAME:
            best.add(row.impl)
    return best
