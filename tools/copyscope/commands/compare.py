# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope compare`: run two or more strategies alternately; print which is better, and by how much."""

import argparse
import copy
import random
import secrets
import shlex
from collections import Counter
from pathlib import Path

from copyscope.base import files, paths, stats
from copyscope.base.arguments import UsageParser
from copyscope.base.errors import RecordError, RunError, UsageError
from copyscope.base.files import rescue
from copyscope.commands import entry, output_files
from copyscope.commands.diff import add_answer_options, check_answer_options, saved_noise, write_comparison
from copyscope.judge.comparison import (
    NOISE_FILE,
    Comparison,
    Noise,
    Ranking,
    compare_groups,
    measure_noise,
    rank,
)
from copyscope.judge.difference import UNSURE, WORSE, ComparisonOptions
from copyscope.judge.metrics import settings
from copyscope.machine.topology import TopologyError
from copyscope.plan.arguments import parser as run_parser
from copyscope.plan.options import refuse_single_run_options
from copyscope.record import store
from copyscope.record.assemble import RecordIdentity
from copyscope.record.run import Run
from copyscope.run.build import git_revision
from copyscope.show.progress import StepProgress
from copyscope.sweep.runner import Prepared, prepare

# Default number of blocks, and measuring time and warm-up of each run in seconds. Runs differ more than the
# segments of a run do, so many short runs are more precise than a few long runs (docs/method.md).
REPEATS, DURATION_S, WARMUP_S = 21, 0.5, 0.1
# Numbers of blocks after which the verdict is computed. The second verdict is needed only if the first is not
# clear. Computing the verdict twice needs intervals of this level to be right in 95 % of cases (Pocock,
# Biometrika 64, 1977, table 1).
LOOKS, LEVEL_OF_TWO_LOOKS = (REPEATS, 2 * REPEATS), 1 - 0.0294
DESCRIPTION = (
    "Run two strategies alternately, in blocks of random order; print which is better, and each difference"
    " with its 95 % interval. Three or more are ranked. Exit status: 0 compared, 1 a run failed or is"
    " invalid, or worse than A with --fail-if, 2 wrong usage, 130 interrupted."
)
ALL_EXAMPLES = """\
examples:
  sudo copyscope compare one_copy zero_copy --size 256K
  sudo copyscope compare "one_copy --fields 1" "one_copy --fields 64" --repeat 31
  sudo copyscope compare one_copy zero_copy --json - | jq .verdict
  sudo copyscope compare one_copy one_copy       run-to-run noise here; compare and diff use it

All other options are those of copyscope run, and apply to each run. By default 21 blocks
of 0.5 s runs, and 21 more if the verdict is not clear.
"""
EXAMPLES = """\
examples:
  sudo copyscope compare one_copy zero_copy --size 256K
  sudo copyscope compare "one_copy --fields 1" "one_copy --fields 64"
  sudo copyscope compare one_copy zero_copy sendfile --repeat 11
  sudo copyscope compare one_copy zero_copy --fail-if worse
"""
# Options that --help lists; --help-all lists all options.
COMMON = (
    *("--size", "--threads", "--repeat", "--duration", "--topology", "--json", "--markdown", "--noise"),
    *("--fail-if", "--out", "--verbose", "--help-all"),
)
# Options that apply to the whole comparison, so that the quoted "STRATEGY OPTIONS" cannot contain them.
SHARED_OPTIONS = ("repeat", "seed", "json", "out", "quiet", "verbose")

# For each alternative, the list of its runs in the order of the blocks.
RunsByAlternative = list[list[Run]]


def parser() -> UsageParser:
    """Return the parser of `copyscope compare`: all options of `copyscope run`, and those for comparisons."""
    result = run_parser("compare", DESCRIPTION, EXAMPLES, ALL_EXAMPLES, COMMON, named=False)
    result.usage = f"{result.prog} [options] A B [C ...]"
    result.add_argument(
        "strategies",
        nargs="+",
        metavar="A B",
        help='strategies, or "STRATEGY OPTIONS" in quotes; more are ranked',
    )
    result.add_argument(
        "--fail-if", choices=(WORSE,), help="exit status 1 if B (or any later one) is worse than A"
    )
    add_answer_options(result)
    result.add_argument(
        "--noise-out",
        metavar="FILE",
        help="if A and B are equal: file for the run-to-run noise; default results/HOST-KERNEL/noise.json",
    )
    result.describe(
        repeat=f"blocks of one run per strategy; default {REPEATS}, doubled if the verdict is not clear",
        json='write the answer as JSON to FILE ("-": stdout, no table)',
        duration=f"measuring time of a run in seconds; default {DURATION_S:g}",
    )
    result.set_defaults(repeat=None, duration=DURATION_S, warmup=WARMUP_S, impl=None)
    return result


def main(argv: list[str]) -> int:
    """Run `copyscope compare`. Exit status: 0 compared, 1 failed or invalid, 2 usage, 130 interrupted."""
    return entry.run("compare", lambda: _compare(parser().parse_args(argv), argv))


def _compare(args: argparse.Namespace, argv: list[str]) -> int:
    """Check the options, run the blocks, write the comparison and return the exit status.

    argv: words of the command line, for the message that suggests sudo
    """
    # A ranking has no single verdict that could be unclear, so it is made after the first blocks.
    is_pair = len(args.strategies) == 2
    looks = LOOKS[: 1 + is_pair] if args.repeat is None else (args.repeat,)
    args.repeat = looks[0]
    if args.repeat < 2:
        raise UsageError(f"--repeat {args.repeat}: one run cannot show run-to-run noise; choose at least 2")
    if args.impl is not None:
        raise UsageError(f"--impl {args.impl}: not in a comparison; write compare A B")
    check_answer_options(args)
    entry.build()
    names = distinct_names(args.strategies)
    if len(names) < 2:
        raise UsageError(f"{names[0]}: only one strategy; give two or more, such as one_copy zero_copy")
    alternatives = [_prepare(args, words) for words in args.strategies]
    entry.require_root("compare", argv)
    out = output_files.create_directory(args.out)
    output_files.check_file(args.json)
    output_files.check_file(args.markdown, "--markdown")
    quiet = args.quiet or "-" in (args.json, args.markdown)
    level = LEVEL_OF_TWO_LOOKS if len(looks) > 1 else stats.LEVEL
    blocks = Blocks(alternatives, args.seed, out, quiet=quiet)
    comparison: Comparison | Ranking
    for block_count in looks:
        status = blocks.run_until(block_count)
        runs, invalid_reasons = valid_blocks(blocks.runs)
        if len(runs[0]) < 2:
            break
        if not is_pair:
            how = ComparisonOptions(paired=True, is_choice=True)
            comparison, is_same_setting = rank(list(zip(names, runs, strict=True)), how), False
            break
        comparison = compare_pair(runs[0], runs[1], args.noise, level, names)
        is_same_setting = not comparison.across
        if status or is_same_setting or comparison.verdict != UNSURE:
            break
        if block_count != looks[-1] and not quiet:
            more = looks[-1] - block_count
            entry.print_message(f"{block_count} blocks, verdict not clear: running {more} more")
    for reason in invalid_reasons:
        entry.print_message(f"a block is left out, because a run in it is invalid: {reason}")
    if len(runs[0]) < 2:
        entry.print_message("fewer than two blocks are valid; the messages above say why")
        return status or entry.FAILED
    write_comparison(comparison, args)
    if is_same_setting:
        _save_noise(measure_noise(runs[0], runs[1]), args.noise_out)
    has_failed = invalid_reasons or (args.fail_if == WORSE and comparison.verdict == WORSE)
    return status or (entry.FAILED if has_failed else 0)


def distinct_names(alternatives: list[str]) -> list[str]:
    """Return the alternatives as typed. Among three or more, equal alternatives get a number."""
    if len(alternatives) == 2:
        return list(alternatives)
    totals = Counter(alternatives)
    numbers: Counter[str] = Counter()
    names = []
    for alternative in alternatives:
        numbers[alternative] += 1
        is_unique = totals[alternative] == 1
        names.append(alternative if is_unique else f"{alternative} #{numbers[alternative]}")
    return names


def compare_pair(
    first: list[Run], second: list[Run], noise_option: str | None, level: float, names: list[str]
) -> Comparison:
    """Compare the runs of two alternatives, block by block.

    The field `across` of the result names the settings in which the alternatives differ. `across` is empty if
    a strategy is compared with itself.

    noise_option: the argument of --noise
    level: confidence level of the intervals, such as 0.95
    names: names of the two alternatives
    """
    different = {name for name, value in settings(first[0]).items() if settings(second[0])[name] != value}
    known_noise = saved_noise(noise_option, first[0]) if different else None
    how = ComparisonOptions(paired=True, is_choice=True, noise=known_noise, level=level)
    return compare_groups(first, second, how, frozenset(different), names)


def _prepare(args: argparse.Namespace, words: str) -> Prepared:
    """Prepare the runs of one alternative.

    args: options of the whole comparison
    words: the alternative as typed: a strategy, or a strategy with options
    """
    try:
        own_words = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: {error}; quote it as for a shell") from None
    if not own_words:
        raise UsageError("'': an empty strategy; give one such as one_copy")
    own_args = run_parser().parse_args(["--impl", *own_words], copy.copy(args))
    refuse_single_run_options(own_args)
    for name in SHARED_OPTIONS:
        if getattr(own_args, name) != getattr(args, name):
            raise UsageError(f"{words}: --{name} is an option of compare; write it outside the quotes")
    return prepare(own_args)


class Blocks:
    """Blocks of runs: a block has one run of each alternative, in random order."""

    def __init__(
        self, alternatives: list[Prepared], seed: int | None, out: Path | None, *, quiet: bool
    ) -> None:
        """Prepare the blocks, but run none yet.

        seed: seed of the first run and of the random order; None for a random seed
        out: directory where every run is saved; None to save no run
        quiet: show no progress
        """
        self.runs: RunsByAlternative = [[] for _ in alternatives]
        self._alternatives, self._out, self._quiet = alternatives, out, quiet
        self._first_seed = secrets.randbelow(1 << 31) if seed is None else seed
        self._random = random.Random(self._first_seed)
        self._revision = git_revision()

    def run_until(self, block_count: int) -> int:
        """Run blocks until there are `block_count` blocks. Return 0, or the exit status after a failed run.

        After a failed run a message is printed, and no further block is run.
        """
        first_block = len(self.runs[0])
        step_count = len(self._alternatives) * (block_count - first_block)
        try:
            with StepProgress("runs in turns", step_count, quiet=self._quiet) as steps:
                for block in range(first_block, block_count):
                    order = self._random.sample(range(len(self._alternatives)), len(self._alternatives))
                    for index in order:
                        strategy = str(self._alternatives[index].traffic.resolved["impl"])
                        steps.begin(f"{strategy}, block {block + 1} of {block_count}")
                        self._run(index, strategy, block)
                        steps.done()
        except KeyboardInterrupt:
            entry.print_message(f"interrupted in block {self._unfinished_block()} of {block_count}")
            return entry.INTERRUPTED
        except (RunError, TopologyError, OSError) as error:
            entry.print_message(f"block {self._unfinished_block()} of {block_count}: {error}")
            return entry.FAILED
        return 0

    def _run(self, index: int, strategy: str, block: int) -> None:
        """Run one alternative in a block, and save all runs of this alternative. Raises RunError.

        index: index of the alternative
        strategy: its strategy, for the file name
        block: number of the block, from 0
        """
        alternative, run_number = self._alternatives[index], sum(map(len, self.runs))
        run_id = store.run_id("compare", {**alternative.traffic.resolved, "side": index}, block)
        seed = self._first_seed + run_number
        identity = RecordIdentity(run_id, "compare", block, run_number, seed, *self._revision)
        run = alternative.run(identity)
        self.runs[index].append(run)
        if self._out is None:
            return
        files.make_directory(self._out)
        try:
            file = self._out / f"{index + 1}-{strategy}{store.RECORDS_SUFFIX}"
            store.write_records(file, self.runs[index])
        except RecordError as error:
            rescued = rescue({f"{run_id}.json.gz": store.compressed(run)})
            raise RunError(f"{error}; {rescued}") from error

    def _unfinished_block(self) -> int:
        """Return the number of the first block in which an alternative has no run yet, counted from 1."""
        return min(map(len, self.runs)) + 1


def valid_blocks(runs: RunsByAlternative) -> tuple[RunsByAlternative, list[str]]:
    """Return the runs of complete blocks in which all runs are valid, and a reason for each invalid run."""
    kept: RunsByAlternative = [[] for _ in runs]
    reasons = []
    for block in zip(*runs, strict=False):
        verdicts = [run.derived.verdict for run in block]
        block_reasons = [verdict.reasons[0] for verdict in verdicts if not verdict.valid]
        reasons += block_reasons
        if not block_reasons:
            for kept_runs, run in zip(kept, block, strict=True):
                kept_runs.append(run)
    return kept, reasons


def _save_noise(measured_noise: Noise, option: str | None) -> None:
    """Save the run-to-run noise to a file for later use by `compare` and `diff`.

    option: the argument of --noise-out
    """
    default = paths.host_results(measured_noise.hostname, measured_noise.kernel) / NOISE_FILE
    file = default if option is None else Path(option)
    files.make_directory(file.parent)
    output_files.write_document(measured_noise, file)
    values = ", ".join(f"{name} {100 * value:.1f} %" for name, value in measured_noise.metrics.items())
    entry.print_message(f"two equal runs differ by up to {values}: {file} is saved for compare and diff")
