"""tools/compare.py: two strategies, or one in two settings, run in turns; what the second does otherwise."""

import argparse
import copy
import os
import random
import secrets
import shlex
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.arguments import UsageParser
from copyscope.commands import documents, entry, keeping
from copyscope.commands.diff import add_form, answer, noise_here
from copyscope.compare import noise
from copyscope.compare.comparison import document
from copyscope.compare.difference import How
from copyscope.compare.settings import settings
from copyscope.errors import RunError, UsageError
from copyscope.files import saving
from copyscope.files.rescuing import rescue
from copyscope.machine.fingerprint import check_pid_namespace
from copyscope.plan.arguments import parser as profile_parser
from copyscope.record import store
from copyscope.record.assemble import Identity
from copyscope.render.progress import Steps
from copyscope.run.build import build_if_stale, git_revision
from copyscope.sweep.runner import Prepared, prepare
from copyscope.topology import TopologyError

# Runs differ more than their segments do: many short ones tell more than few long ones (docs/method).
REPEATS, DURATION_S, WARMUP_S = 21, 0.5, 0.1
EXIT_INVALID = 1
DESCRIPTION = (
    "Runs two strategies in turns, in blocks of random order, and prints each difference with its 95 %"
    " interval, and a verdict. Exit status: 0 compared, 1 a run failed or is invalid, 2 wrong usage, 130"
    " interrupted."
)
EXAMPLES = """\
examples:
  sudo tools/compare.py one_copy zero_copy --size 256K
  sudo tools/compare.py "one_copy --fields 1" "one_copy --fields 64" --repeat 31
  sudo tools/compare.py one_copy zero_copy --json - | jq .verdict
  sudo tools/compare.py one_copy one_copy        what equal runs differ by here; compare and diff know it then

All other options are those of tools/profile.py, for both; 21 blocks of 0.5 s runs by default.
"""
FIRST_EXAMPLES = """\
examples:
  sudo tools/compare.py one_copy zero_copy --size 256K
  sudo tools/compare.py "one_copy --fields 1" "one_copy --fields 64" --repeat 31
  sudo tools/compare.py one_copy one_copy        what equal runs differ by here
"""
COMMON = (
    *("--size", "--threads", "--repeat", "--duration", "--topology", "--json", "--markdown", "--noise"),
    *("--out", "--verbose", "--help-all"),
)

Groups = tuple[list[store.Record], list[store.Record]]


def parser() -> UsageParser:
    made = profile_parser("compare", DESCRIPTION, FIRST_EXAMPLES, EXAMPLES, COMMON, named=False)
    made.usage = f"{made.prog} [options] A B"
    made.add_argument("first", metavar="A", help='a strategy, or "STRATEGY OPTIONS" in quotes')
    made.add_argument("second", metavar="B", help="another")
    add_form(made)
    made.add_argument(
        "--noise-out",
        metavar="FILE",
        help=f"of two equal ones: where what they differ by goes; default results/HOST-KERNEL/{noise.FILE}",
    )
    made.describe(
        repeat=f"blocks, each with one run of both; default {REPEATS}",
        duration=f"measuring time of a run in seconds; default {DURATION_S:g}",
    )
    made.set_defaults(repeat=REPEATS, duration=DURATION_S, warmup=WARMUP_S, impl=None)
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 compared, 1 failed or invalid, 2 usage, 130 interrupted."""
    return entry.run("compare", lambda: _compare(parser().parse_args(argv), argv))


def _compare(args: argparse.Namespace, argv: list[str]) -> int:
    if args.repeat < 2:
        raise UsageError(
            f"--repeat: {args.repeat}: one run says nothing of how far two lie apart: at least 2"
        )
    if args.impl is not None:
        raise UsageError(f"--impl: {args.impl}: the strategies are A and B, without an option")
    if args.simulate or args.keep or args.compare_tiers or args.stacks:
        raise UsageError(
            "--simulate, --keep, --compare-tiers, --stacks: of single runs: use tools/profile.py"
        )
    build_if_stale()
    names = [args.first, args.second]
    sides = [_side(args, words) for words in names]
    if os.geteuid() != 0:
        raise RunError(
            f"needs root to load BPF and make namespaces: sudo tools/compare.py {shlex.join(argv)}"
        )
    check_pid_namespace()
    out = keeping.open_directory(args.out)
    keeping.check_json(args.json)
    quiet = args.quiet or "-" in (args.json, args.markdown)
    ran, status = perform(sides, args.repeat, args.seed, out=out, quiet=quiet)
    first, second = valid_blocks(ran)
    if len(first) < 2:
        entry.say("compare", "fewer than two blocks are valid: see above")
        return status or EXIT_INVALID
    apart = {name for name, value in settings(first[0]).items() if settings(second[0])[name] != value}
    equal = not apart
    known = None if equal else noise_here(args.noise, first[0]["machine"])
    made = document(first, second, How(paired=True, chosen=True, noise=known), frozenset(apart))
    made |= {"kind": "compare", "names": names}
    made["sentence"] = f"{names[1]} instead of {names[0]}: {made['sentence']}"
    answer(made, args)
    if equal:
        _keep_noise(noise.noise(first, second), args)
    return status or (0 if len(first) == args.repeat else EXIT_INVALID)


def _side(args: argparse.Namespace, words: str) -> Prepared:
    """One of the two: what is asked of both, and its own."""
    try:
        own = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: {error}: write it as a shell would") from None
    if not own:
        raise UsageError("A: nothing: give a strategy such as one_copy")
    return prepare(profile_parser().parse_args(["--impl", *own], copy.copy(args)))


def perform(
    sides: list[Prepared], repeats: int, seed: int | None, *, out: Path | None, quiet: bool
) -> tuple[Groups, int]:
    """Blocks of one run each, in random order; every run is kept in `out`, in a directory for each side.

    What ends it before its time is said, and is the exit status: the blocks before that are compared.
    """
    first_seed = secrets.randbelow(1 << 31) if seed is None else seed
    order = random.Random(first_seed)
    git, dirty = git_revision()
    found: Groups = ([], [])
    with Steps("runs in turns", 2 * repeats, quiet=quiet) as steps:
        try:
            for repeat in range(repeats):
                for index in order.sample((0, 1), 2):
                    side = sides[index]
                    name = str(side.traffic.resolved["impl"])
                    number = len(found[0]) + len(found[1])
                    steps.begin(f"{name}, block {repeat + 1} of {repeats}")
                    run_id = store.run_id("compare", {**side.traffic.resolved, "side": index}, repeat)
                    who = Identity(run_id, "compare", repeat, number, first_seed + number, git, dirty)
                    made = side.run(who)
                    steps.done()
                    found[index].append(made)
                    if out is not None:
                        place = out / f"{index + 1}-{name}"
                        saving.make_directory(place)
                        _keep(made, place / f"{run_id}.json.gz")
        except KeyboardInterrupt:
            entry.say("compare", f"interrupted in block {repeat + 1} of {repeats}")
            return found, entry.INTERRUPTED
        except (RunError, TopologyError, OSError) as error:
            entry.say("compare", f"block {repeat + 1} of {repeats}: {error}")
            return found, entry.FAILED
    return found, 0


def _keep(made: store.Record, path: Path) -> None:
    try:
        store.write(made, path)
    except store.RecordError as error:
        raise RunError(f"{error}: {rescue({path.name: store.compressed(made)})}") from error


def valid_blocks(ran: Groups) -> Groups:
    """Without blocks of which a run is invalid, or was not made."""
    kept: Groups = ([], [])
    for pair in zip(*ran, strict=False):
        wrong = [record for record in pair if not record["verdict"]["valid"]]
        for record in wrong:
            entry.say("compare", f"invalid, its block is in no number: {record['verdict']['reasons'][0]}")
        if not wrong:
            for group, record in zip(kept, pair, strict=True):
                group.append(record)
    return kept


def _keep_noise(made: dict[str, Any], args: argparse.Namespace) -> None:
    """For `compare` and `diff` on this host."""
    default = paths.host_results(made["hostname"], made["kernel"]) / noise.FILE
    target = default if args.noise_out is None else Path(args.noise_out)
    saving.make_directory(target.parent)
    documents.write_json(made, target)
    told = ", ".join(f"{name} {100 * value:.1f} %" for name, value in made["metrics"].items())
    entry.say("compare", f"two equal runs differ by up to {told}: {target} says so to compare and diff")
