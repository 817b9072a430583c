# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope diff`: compare two records, or two directories of records: is the second worse?"""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import ValidationError, json

from copyscope.base import paths, process
from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import UsageError
from copyscope.base.files import read, save
from copyscope.commands import entry, output_files, record_files
from copyscope.judge.comparison import (
    ACROSS_NAMES,
    BEFORE_AFTER,
    NOISE_FILE,
    Comparison,
    Noise,
    Ranking,
    compare_groups,
)
from copyscope.judge.difference import UNSURE, WORSE, ComparisonOptions
from copyscope.judge.simulated_difference import compare_simulated
from copyscope.record.run import CompleteRun, Run, SimulatedRun
from copyscope.show.compared import markdown, render_difference
from copyscope.show.layout import make_console
from copyscope.show.simulated_difference import render_simulated_difference
from copyscope.sweep import results

# Exit statuses, as in the help of the command.
STATUS_WORSE, STATUS_FAILED, STATUS_UNCLEAR = 1, 2, 3
ReadRuns = Callable[[Path], list[CompleteRun]]
EXAMPLES = """\
examples:
  copyscope diff before.json after.json
  copyscope diff results/HOST/quick /tmp/quick --strict
  copyscope diff old/ new/ --across kernel       before and after an upgrade
  copyscope diff before.json after.json --markdown - >> "$GITHUB_STEP_SUMMARY"
  copyscope diff a.json b.json                   of copyscope simulate

`copyscope run --json FILE` or `--out DIR` writes a record. With --repeat 5 the
comparison is much more precise. make turns every failure into status 2; to tell
worse from an error there, use --json.
"""
OPTIONS = """
--across NAME[,NAME] =  compare although they differ in NAME: kernel, hostname, impl, size, program, ...
--strict                exit with 3 if the verdict is not clear
--json FILE             write the answer as JSON to FILE ("-": stdout, no table)
"""
ANSWER_OPTIONS = """
--markdown FILE         write the answer for a pull request to FILE ("-": stdout, no table)
--noise FILE            run-to-run noise, from `compare A A`; default
                        results/HOST-KERNEL/noise.json
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope diff`."""
    result = UsageParser(
        prog="diff",
        verbose="every row of every setting",
        usage="%(prog)s [options] BEFORE AFTER",
        description="Compare two records, or two directories of records. Counts (bytes, calls, copied sends)"
        " are compared exactly, times by intervals: worse means that the whole interval lies beyond the"
        " threshold, 2 % or the run-to-run noise of this host. A copy that appeared is worse."
        " Exit status: 0 not worse, 1 worse, 2 not comparable, invalid or wrong usage, 3 not clear (with"
        " --strict only), 130 interrupted.",
        epilog=EXAMPLES,
    )
    result.add_argument(
        "before", metavar="BEFORE", help="RUN.json, RUN.json.gz, RUNS.jsonl.gz or a directory of them"
    )
    result.add_argument("after", metavar="AFTER", help="likewise")
    add_options(result, OPTIONS)
    add_answer_options(result)
    return result


def add_answer_options(parser: argparse.ArgumentParser) -> None:
    """Add --markdown and --noise, the options that `diff` and `compare` share, to a parser."""
    add_options(parser, ANSWER_OPTIONS)


def _diff(args: argparse.Namespace) -> int:
    """Compare the runs of BEFORE and AFTER, write the comparison and return the exit status."""
    check_answer_options(args)
    across = frozenset(filter(None, args.across.split(",")))
    for name in sorted(across - {*ACROSS_NAMES}):
        raise UsageError(f"--across {name}: unknown setting; choose one of {', '.join(ACROSS_NAMES)}")
    read_once = functools.cache(record_files.read_runs)
    if (machines := simulated_pair(args, read_once)) is not None:
        return _diff_simulated(*machines, args)
    before, after = (valid_runs(Path(name), read_once) for name in (args.before, args.after))
    how = ComparisonOptions(noise=saved_noise(args.noise, before[0]))
    comparison = compare_groups(before, after, how, across, names_of_files(args.before, args.after))
    write_comparison(comparison, args)
    if process.output_error(sys.stdout) is not None:  # process.exit_status() prints the reason
        return STATUS_FAILED
    if comparison.verdict == WORSE:
        return STATUS_WORSE
    return STATUS_UNCLEAR if args.strict and comparison.verdict == UNSURE else 0


def simulated_pair(args: argparse.Namespace, read_runs: ReadRuns) -> tuple[SimulatedRun, SimulatedRun] | None:
    """Return the runs of BEFORE and AFTER if both are records of simulated machines, else None.

    read_runs: function that reads the runs of a file
    """
    pair = []
    for name in (args.before, args.after):
        if Path(name).is_dir():
            return None
        runs = read_runs(Path(name))
        if len(runs) != 1 or isinstance(runs[0], Run):
            return None
        pair.append(runs[0])
    return pair[0], pair[1]


def _diff_simulated(before: SimulatedRun, after: SimulatedRun, args: argparse.Namespace) -> int:
    """Compare two simulated machines, write the comparison and return the exit status."""
    if args.markdown is not None:
        raise UsageError("--markdown: not for simulated machines; use --json")
    for name, run in ((args.before, before), (args.after, after)):
        if not run.verdict.valid:
            entry.print_message(f"{name}: invalid: {run.verdict.reasons[0]}")
            return STATUS_FAILED
    difference = compare_simulated(before.simulated, after.simulated)
    if args.json != "-":
        render_simulated_difference(difference, verbose=args.verbose, console=make_console())
    output_files.write_json_option(difference, args.json)
    return STATUS_WORSE if difference.verdict == WORSE else 0


def names_of_files(before: str, after: str) -> Sequence[str]:
    """Return names for two files or directories: the differing ends of their paths, without suffixes.

    The names are `before` and `after` if both paths are the same.
    """
    parts = [Path(name.removesuffix(".gz")).with_suffix("").parts for name in (before, after)]
    for length in range(1, max(map(len, parts)) + 1):
        first, second = ("/".join(path[-length:]) for path in parts)
        if first != second:
            return first, second
    return BEFORE_AFTER


def valid_runs(path: Path, read_runs: ReadRuns = record_files.read_runs) -> list[Run]:
    """Return the valid runs in a file, a directory or a sweep. Raises UsageError if no run is valid.

    read_runs: function that reads the runs of a file
    """
    is_sweep = results.has_records(path)
    if is_sweep:
        runs = list(record_files.load_sweep(path).records)
    else:
        files = record_files.record_paths(path) if path.is_dir() else [path]
        runs = [_require_measured(run, path) for file in files for run in read_runs(file)]
    valid = {}
    for run in runs:
        section, verdict = run.raw.run, run.derived.verdict
        if verdict.valid:
            # The same run may be in two files.
            valid[section.id, section.started, section.seed] = run
        elif not is_sweep:  # load_sweep() has printed the invalid runs of a sweep
            entry.print_message(f"invalid, left out: {section.id}: {verdict.reasons[0]}")
    if not valid:
        raise UsageError(f"{path}: no {'valid run' if runs else 'record'} in it; measure again")
    return list(valid.values())


def _require_measured(run: CompleteRun, path: Path) -> Run:
    """Return the run of a file if it was measured. Raise UsageError if it was simulated."""
    if not isinstance(run, Run):
        raise UsageError(f"{path}: modelled, not measured; diff needs measured runs")
    return run


def check_answer_options(args: argparse.Namespace) -> None:
    """Check --json, --markdown and --noise before anything is measured. Raises UsageError."""
    if args.json == "-" and args.markdown == "-":
        raise UsageError("--markdown -: stdout is used by --json -; give --markdown a file")
    if args.noise is not None:
        read_noise(Path(args.noise))


def saved_noise(option: str | None, run: Run) -> dict[str, float] | None:
    """Return a host's run-to-run noise as metric -> relative difference, or None if it is unknown.

    option: the argument of --noise; None: the noise file of the host that measured `run`
    """
    host_file = paths.host_results(run.raw.machine.hostname, run.raw.machine.kernel) / NOISE_FILE
    if option is None and not host_file.is_file():
        return None
    return read_noise(host_file if option is None else Path(option))


def read_noise(file: Path) -> dict[str, float]:
    """Return metric -> run-to-run noise, from a file that `compare A A` wrote. Raises UsageError."""
    try:
        return json.decode(read(file), type=Noise).metrics
    except ValidationError as error:
        raise UsageError(f"{file}: not written by `compare A A`; give its {NOISE_FILE}") from error
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}; give the {NOISE_FILE} of `compare A A`") from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; `compare A A --noise-out {file}` writes it") from error


def write_comparison(comparison: Comparison | Ranking, args: argparse.Namespace) -> None:
    """Write a comparison as a table, as JSON and as Markdown, depending on the options.

    The table is written before the files, because writing a file may fail.
    """
    if "-" not in (args.json, args.markdown):
        render_difference(comparison, verbose=args.verbose, console=make_console())
    output_files.write_json_option(comparison, args.json)
    if args.markdown == "-":
        print(markdown(comparison), end="")
    elif args.markdown:
        save(Path(args.markdown), markdown(comparison).encode())


main = entry.make_main("diff", parser, _diff, failure_status=STATUS_FAILED)
