"""copyscope diff: compare two records, or two directories of records: is the second worse?"""

import argparse
import sys
from pathlib import Path

from msgspec import ValidationError, json

from copyscope import paths, streams
from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry, reading
from copyscope.errors import UsageError
from copyscope.files import regular_file, saving
from copyscope.judge.comparison import ACROSS, NOISE_FILE, Comparison, Noise, Ranking, document
from copyscope.judge.difference import UNSURE, WORSE, How
from copyscope.record.check import Whole
from copyscope.record.store import Record
from copyscope.show.console import make_console
from copyscope.show.difference import markdown, render
from copyscope.sweep import results

EXIT_REGRESSION, EXIT_TROUBLE, EXIT_INCONCLUSIVE = 1, 2, 3
EXAMPLES = """\
examples:
  copyscope diff before.json after.json
  copyscope diff results/HOST/quick /tmp/quick --strict
  copyscope diff old/ new/ --across kernel       the same program before and after an upgrade
  copyscope diff before.json after.json --markdown - >> "$GITHUB_STEP_SUMMARY"

A record is what `copyscope run --json FILE` or `--out DIR` keeps; with --repeat 5 it says much more.
make turns every failure into status 2: use --json to tell worse from an error.
"""
OPTIONS = """
--across NAME[,NAME] =  compare although they differ in NAME: kernel, hostname, impl, size, program, ...
--strict                exit with 3 if the verdict is not clear
--json FILE             write the answer as JSON to FILE ("-": stdout, no table)
-v --verbose            every row of every setting
"""
FORM = """
--markdown FILE         write the answer for a pull request to FILE ("-": stdout, no table)
--noise FILE            run-to-run noise, from `compare A A`; default
                        results/HOST-KERNEL/noise.json
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="diff",
        description="Compare two records, or two directories of records. Counts (bytes, calls, copied sends)"
        " are compared exactly, times by intervals: worse means that the whole interval lies beyond the"
        " threshold, 2 % or the run-to-run noise of this host. A copy that appeared is worse."
        " Exit status: 0 not worse, 1 worse, 2 not comparable, invalid or wrong usage, 3 not clear (with"
        " --strict only), 130 interrupted.",
        epilog=EXAMPLES,
    )
    made.add_argument(
        "before", metavar="BEFORE", help="RUN.json, RUN.json.gz, RUNS.jsonl.gz or a directory of them"
    )
    made.add_argument("after", metavar="AFTER", help="likewise")
    add(made, OPTIONS)
    add_form(made)
    return made


def add_form(made: argparse.ArgumentParser) -> None:
    """What `compare` has, too."""
    add(made, FORM)


def _diff(arguments: argparse.Namespace) -> int:
    check_form(arguments)
    across = frozenset(filter(None, arguments.across.split(",")))
    for name in sorted(across - {*ACROSS}):
        raise UsageError(f"--across: {name}: not one of {', '.join(ACROSS)}")
    before, after = (runs_of(Path(name)) for name in (arguments.before, arguments.after))
    known = noise_here(arguments.noise, before[0])
    made = document(before, after, How(noise=known), across)
    answer(made, arguments)
    if streams.incomplete(sys.stdout) is not None:  # streams.end() says why
        return EXIT_TROUBLE
    if made.verdict == WORSE:
        return EXIT_REGRESSION
    return EXIT_INCONCLUSIVE if arguments.strict and made.verdict == UNSURE else 0


def runs_of(path: Path) -> list[Whole]:
    """The valid runs in a file, in a directory, or of a sweep. Raises UsageError where there is none."""
    if results.has_records(path):
        found = list(reading.load(path).records)
    else:
        files = reading.record_paths(path) if path.is_dir() else [path]
        found = [_measured(record, path) for file in files for record in reading.runs_of(file)]
    valid = {}
    for one in found:
        run, verdict = one.raw.run, one.derived.verdict
        if verdict.valid:
            valid[run.id, run.started, run.seed] = one
        elif not results.has_records(path):  # of a sweep it is said where it is read
            entry.say(f"invalid, left out: {run.id}: {verdict.reasons[0]}")
    if not valid:
        raise UsageError(f"{path}: no {'valid run' if found else 'record'} in it: measure again")
    return list(valid.values())


def _measured(record: Record, path: Path) -> Whole:
    run = reading.typed(record, str(path))
    if not isinstance(run, Whole):
        raise UsageError(f"{path}: modelled, not measured: diff needs measured runs")
    return run


def check_form(arguments: argparse.Namespace) -> None:
    """What can be refused before anything is measured. Raises UsageError."""
    if arguments.json == "-" and arguments.markdown == "-":
        raise UsageError("--markdown: -: stdout has the JSON already: name a file")
    if arguments.noise is not None:
        read_noise(Path(arguments.noise))


def noise_here(named: str | None, run: Whole) -> dict[str, float] | None:
    """What two equal runs differ by, by metric; None: it was never measured here."""
    file = paths.host_results(run.raw.machine.hostname, run.raw.machine.kernel) / NOISE_FILE
    if named is None and not file.is_file():
        return None
    return read_noise(file if named is None else Path(named))


def read_noise(source: Path) -> dict[str, float]:
    """What `compare A A` wrote of each metric. Raises UsageError."""
    try:
        return json.decode(regular_file.read(source), type=Noise).metrics
    except ValidationError as error:
        raise UsageError(f"{source}: not what `compare A A` writes: give its {NOISE_FILE}") from error
    except ValueError as error:
        raise UsageError(f"{source}: not JSON: {error}") from error
    except OSError as error:
        raise UsageError(
            f"{source}: {error.strerror}: `compare A A --noise-out {source}` writes it"
        ) from error


def answer(made: Comparison | Ranking, arguments: argparse.Namespace) -> None:
    """In the forms that were asked for; on stdout one of them, and first: a file may find no room."""
    if "-" not in (arguments.json, arguments.markdown):
        render(made, verbose=arguments.verbose, console=make_console())
    documents.give_json(made, arguments.json)
    if arguments.markdown == "-":
        print(markdown(made), end="")
    elif arguments.markdown:
        saving.save(Path(arguments.markdown), markdown(made).encode())


main = entry.command(parser, _diff, failed=EXIT_TROUBLE)
