"""copyscope compare: strategies, or settings of one, run in turns; which is better, and by how much."""

import argparse
import copy
import random
import secrets
import shlex
from collections import Counter
from pathlib import Path

from copyscope import paths, stats
from copyscope.arguments import UsageParser
from copyscope.commands import documents, entry, keeping
from copyscope.commands.diff import add_form, answer, check_form, noise_here
from copyscope.errors import RunError, UsageError
from copyscope.files import saving
from copyscope.files.rescuing import rescue
from copyscope.judge.comparison import NOISE_FILE, Comparison, Noise, Ranking, document, noise, ranking
from copyscope.judge.difference import UNSURE, WORSE, How
from copyscope.judge.metrics import settings, typed_runs
from copyscope.plan.arguments import parser as profile_parser
from copyscope.plan.options import refuse_of_single_runs
from copyscope.record import records_file, store
from copyscope.record.assemble import Identity
from copyscope.record.check import Whole
from copyscope.run.build import git_revision
from copyscope.show.progress import Steps
from copyscope.sweep.runner import Prepared, prepare
from copyscope.topology import TopologyError

# Runs differ more than their segments do: many short ones tell more than few long ones (docs/method.md).
REPEATS, DURATION_S, WARMUP_S = 21, 0.5, 0.1
# Where so many leave the verdict open, as many again are made. An interval at this level at each of the two
# looks is one of 95 % for both (Pocock, Biometrika 64, 1977, table 1).
LOOKS, LEVEL_OF_TWO = (REPEATS, 2 * REPEATS), 1 - 0.0294
DESCRIPTION = (
    "Runs two strategies alternately, in blocks of random order, and prints which is better, and each"
    " difference with its 95 % interval; of three or more a ranking. Exit status: 0 compared, 1 a run failed"
    " or is invalid, or worse than A with --fail-if, 2 wrong usage, 130 interrupted."
)
EXAMPLES = """\
examples:
  sudo copyscope compare one_copy zero_copy --size 256K
  sudo copyscope compare "one_copy --fields 1" "one_copy --fields 64" --repeat 31
  sudo copyscope compare one_copy zero_copy --json - | jq .verdict
  sudo copyscope compare one_copy one_copy       run-to-run noise here; compare and diff use it

All other options are those of copyscope run, for both; by default 21 blocks of 0.5 s runs, and 21 more
if the verdict is not clear.
"""
FIRST_EXAMPLES = """\
examples:
  sudo copyscope compare one_copy zero_copy --size 256K
  sudo copyscope compare "one_copy --fields 1" "one_copy --fields 64" --repeat 31
  sudo copyscope compare one_copy zero_copy sendfile --repeat 11
  sudo copyscope compare one_copy zero_copy --fail-if worse
"""
COMMON = (
    *("--size", "--threads", "--repeat", "--duration", "--topology", "--json", "--markdown", "--noise"),
    *("--fail-if", "--out", "--verbose", "--help-all"),
)
# What a side cannot have for itself.
OF_BOTH = ("repeat", "seed", "json", "out", "quiet", "verbose")

Groups = list[list[store.Record]]


def parser() -> UsageParser:
    made = profile_parser("compare", DESCRIPTION, FIRST_EXAMPLES, EXAMPLES, COMMON, named=False)
    made.usage = f"{made.prog} [options] A B [C ...]"
    made.add_argument(
        "strategies",
        nargs="+",
        metavar="A B",
        help='strategies, or "STRATEGY OPTIONS" in quotes; more are ranked',
    )
    made.add_argument(
        "--fail-if", choices=(WORSE,), help="exit status 1 if B (or any later one) is worse than A"
    )
    add_form(made)
    made.add_argument(
        "--noise-out",
        metavar="FILE",
        help=f"A A only: where the run-to-run noise is saved; default results/HOST-KERNEL/{NOISE_FILE}",
    )
    made.describe(
        repeat=f"blocks of one run of each; default {REPEATS}, doubled if the verdict is not clear",
        json='write the answer as JSON to FILE ("-": stdout, no table)',
        duration=f"measuring time of a run in seconds; default {DURATION_S:g}",
    )
    made.set_defaults(repeat=None, duration=DURATION_S, warmup=WARMUP_S, impl=None)
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 compared, 1 failed or invalid, 2 usage, 130 interrupted."""
    return entry.run(lambda: _compare(parser().parse_args(argv), argv))


def _compare(args: argparse.Namespace, argv: list[str]) -> int:
    # Of more than two the first look decides: there is no one verdict to leave open.
    two = len(args.strategies) == 2
    looks = LOOKS[: 1 + two] if args.repeat is None else (args.repeat,)
    args.repeat = looks[0]
    if args.repeat < 2:
        raise UsageError(f"--repeat: {args.repeat}: one run cannot show run-to-run noise: at least 2")
    if args.impl is not None:
        raise UsageError(f"--impl: {args.impl}: write the strategies without it: compare A B")
    check_form(args)
    entry.build()
    names = distinct(args.strategies)
    if len(names) < 2:
        raise UsageError(f"{names[0]}: only one strategy: give two or more, such as one_copy zero_copy")
    sides = [_side(args, words) for words in args.strategies]
    entry.need_root("compare", argv)
    out = keeping.open_directory(args.out)
    keeping.check_file(args.json)
    keeping.check_file(args.markdown, "--markdown")
    quiet = args.quiet or "-" in (args.json, args.markdown)
    level = LEVEL_OF_TWO if len(looks) > 1 else stats.LEVEL
    turns = Turns(sides, args.seed, out, quiet=quiet)
    made: Comparison | Ranking
    for end in looks:
        status = turns.go_on(end)
        kept, reasons = valid_blocks(turns.ran)
        runs = list(map(typed_runs, kept))
        if len(runs[0]) < 2:
            break
        if not two:
            made, equal = ranking(list(zip(names, runs, strict=True)), How(paired=True, chosen=True)), False
            break
        made = compared(runs[0], runs[1], args.noise, level, names)
        equal = not made.across
        if status or equal or made.verdict != UNSURE:
            break
        if end != looks[-1] and not quiet:
            entry.say(f"{end} blocks, verdict not clear: running {looks[-1] - end} more")
    for reason in reasons:
        entry.say(f"invalid, its block is left out: {reason}")
    if len(runs[0]) < 2:
        entry.say("fewer than two blocks are valid: see above")
        return status or entry.FAILED
    answer(made, args)
    if equal:
        _keep_noise(noise(runs[0], runs[1]), args)
    failed = reasons or (args.fail_if == WORSE and made.verdict == WORSE)
    return status or (entry.FAILED if failed else 0)


def distinct(words: list[str]) -> list[str]:
    """Names of what is compared: of more than two equal ones with their number."""
    if len(words) == 2:
        return list(words)
    seen = Counter(words)
    counts: Counter[str] = Counter()
    names = []
    for word in words:
        counts[word] += 1
        names.append(f"{word} #{counts[word]}" if seen[word] > 1 else word)
    return names


def compared(
    first: list[Whole], second: list[Whole], noise_from: str | None, level: float, names: list[str]
) -> Comparison:
    """The answer of blocks; `across` are the settings in which the two differ, none for equal ones."""
    apart = {name for name, value in settings(first[0]).items() if settings(second[0])[name] != value}
    known = noise_here(noise_from, first[0]) if apart else None
    how = How(paired=True, chosen=True, noise=known, level=level)
    return document(first, second, how, frozenset(apart), names)


def _side(args: argparse.Namespace, words: str) -> Prepared:
    """One of the two: what is asked of both, and its own."""
    try:
        own = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: {error}: quote it as for a shell") from None
    if not own:
        raise UsageError("A: empty: give a strategy such as one_copy")
    asked = profile_parser().parse_args(["--impl", *own], copy.copy(args))
    refuse_of_single_runs(asked)
    for name in OF_BOTH:
        if getattr(asked, name) != getattr(args, name):
            raise UsageError(f"{words}: --{name}: an option of compare: write it outside the quotes")
    return prepare(asked)


class Turns:
    """Blocks of one run of each, in random order; every run is kept in `out`, in a directory each."""

    def __init__(self, sides: list[Prepared], seed: int | None, out: Path | None, *, quiet: bool) -> None:
        self.ran: Groups = [[] for _ in sides]
        self._sides, self._out, self._quiet = sides, out, quiet
        self._first_seed = secrets.randbelow(1 << 31) if seed is None else seed
        self._order = random.Random(self._first_seed)
        self._revision = git_revision()

    def go_on(self, end: int) -> int:
        """Until there are so many blocks. What ends it before is said, and is the exit status."""
        begin = len(self.ran[0])
        try:
            with Steps("runs in turns", len(self._sides) * (end - begin), quiet=self._quiet) as steps:
                for repeat in range(begin, end):
                    for index in self._order.sample(range(len(self._sides)), len(self._sides)):
                        name = str(self._sides[index].traffic.resolved["impl"])
                        steps.begin(f"{name}, block {repeat + 1} of {end}")
                        self._run(index, name, repeat)
                        steps.done()
        except KeyboardInterrupt:
            entry.say(f"interrupted in block {self._block()} of {end}")
            return entry.INTERRUPTED
        except (RunError, TopologyError, OSError) as error:
            entry.say(f"block {self._block()} of {end}: {error}")
            return entry.FAILED
        return 0

    def _run(self, index: int, name: str, repeat: int) -> None:
        side, number = self._sides[index], sum(map(len, self.ran))
        run_id = store.run_id("compare", {**side.traffic.resolved, "side": index}, repeat)
        made = side.run(
            Identity(run_id, "compare", repeat, number, self._first_seed + number, *self._revision)
        )
        self.ran[index].append(made)
        if self._out is None:
            return
        path = self._out / f"{index + 1}-{name}{records_file.SUFFIX}"
        saving.make_directory(self._out)
        try:
            records_file.write(path, self.ran[index])
        except store.RecordError as error:
            kept = rescue({f"{run_id}.json.gz": store.compressed(made)})
            raise RunError(f"{error}: {kept}") from error

    def _block(self) -> int:
        """The number of the first that has not all runs."""
        return min(map(len, self.ran)) + 1


def valid_blocks(ran: Groups) -> tuple[Groups, list[str]]:
    """Without blocks of which a run is invalid, with the first reason of each such run, or was not made."""
    kept: Groups = [[] for _ in ran]
    reasons = []
    for pair in zip(*ran, strict=False):
        wrong = [record["verdict"]["reasons"][0] for record in pair if not record["verdict"]["valid"]]
        reasons += wrong
        if not wrong:
            for group, record in zip(kept, pair, strict=True):
                group.append(record)
    return kept, reasons


def _keep_noise(made: Noise, args: argparse.Namespace) -> None:
    """For `compare` and `diff` on this host."""
    default = paths.host_results(made.hostname, made.kernel) / NOISE_FILE
    target = default if args.noise_out is None else Path(args.noise_out)
    saving.make_directory(target.parent)
    documents.write_json(made, target)
    told = ", ".join(f"{name} {100 * value:.1f} %" for name, value in made.metrics.items())
    entry.say(f"two equal runs differ by up to {told}: {target} is saved for compare and diff")
