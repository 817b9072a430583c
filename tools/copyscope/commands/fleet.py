# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope fleet`: run one command on many hosts with Ansible, save each record, and print one table."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from copyscope.base import files, paths, spelling
from copyscope.base.arguments import ArgumentKeywords, UsageParser, add_options
from copyscope.base.errors import RecordError, UsageError
from copyscope.base.spelling import alternatives, counted, one_line, visible
from copyscope.commands import entry
from copyscope.fleet import ansible, answers
from copyscope.fleet.answers import HostAnswer, HostRow, judge
from copyscope.show.layout import TextTable, heading, make_console, print_lines, report_width, wrap
from copyscope.show.progress import StepProgress

# Titles of the columns of the table.
COLUMNS = ("host", "kernel", "NIC", "state", "valid", "zero-copy sends copied", "ns/KiB")
# Titles of the columns with text, which is aligned to the left.
WORD_COLUMNS = ("kernel", "NIC", "state", "valid")
# Maximum number of printed sentences about hosts that stand out, without -v.
SENTENCES_MAX = 20
# Commands of copyscope that can run on the hosts.
REMOTE_COMMANDS = ("run", "watch", "advise", "doctor", "drill", "crossover")
EXAMPLES = """\
examples:
  copyscope fleet web1,web2 -- doctor
  copyscope fleet inventory.yml --sudo -- run zero_copy --duration 3
  copyscope fleet inventory.yml --limit web --sudo -- watch nginx --duration 30
  copyscope fleet query fleet who-copies     see fleet query --help
"""
COMMON = ("--sudo", "--limit", "--forks", "--timeout", "--out", "--tree", "--verbose", "--quiet")
OPTIONS = """
--sudo                  run as root on the hosts (ansible's --become)
--limit PATTERN         only these hosts (a pattern of ansible)
--forks N =20           hosts at a time; default 20
--timeout S =300        seconds per host; default 300
--out DIR =fleet        directory of the records; default ./fleet
--tree DIR              copyscope's directory on the hosts; default: as here
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope fleet`, for the words before `--`."""
    result = UsageParser(
        prog="fleet",
        verbose="every sentence about hosts that stand out",
        quiet="no progress",
        usage="copyscope fleet [options] INVENTORY -- COMMAND [its options]",
        description=f"Run a copyscope command ({', '.join(REMOTE_COMMANDS)}) on many hosts with ansible,"
        " keep each record as DIR/host=NAME/date=DAY/TIME.json, and print one table. A host that fails or"
        " cannot be reached is a row of the table. When copyscope ends, its processes on the hosts end, too."
        " Exit status: 0 all hosts ok, 1 some not, 2 usage, 130 interrupted.",
        epilog=EXAMPLES,
        common=COMMON,
        examples=EXAMPLES,
    )
    result.add_argument(
        "inventory",
        metavar="INVENTORY",
        help="an ansible inventory, or hosts separated by commas; a single host: web1,",
    )
    # On hosts with an installed wheel, which has no bin/, the command is found by PATH.
    tree: ArgumentKeywords = {"default": None if paths.ROOT == paths.PACKAGE else str(paths.ROOT)}
    add_options(result, OPTIONS, forks={"type": int}, timeout={"type": float}, tree=tree)
    return result


def main(argv: list[str]) -> int:
    """Run `copyscope fleet`. Exit status: 0 all hosts ok, 1 some failed, 2 usage, 130 interrupted."""
    if argv[:1] == ["query"]:
        # fleet_query imports the ledger, which other calls of fleet do not need.
        from copyscope.commands import fleet_query  # noqa: PLC0415

        return fleet_query.main(argv[1:])
    separator = argv.index("--") if "--" in argv else len(argv)
    return entry.run("fleet", lambda: _fleet(parser().parse_args(argv[:separator]), argv[separator + 1 :]))


def _fleet(args: argparse.Namespace, remote_words: list[str]) -> int:
    """Check the options, run the command on all hosts and return the exit status.

    remote_words: the copyscope command to run on the hosts, and its options
    """
    if not remote_words or remote_words[0] not in REMOTE_COMMANDS:
        problem = f"{remote_words[0]}: does not run on hosts" if remote_words else "no command"
        raise UsageError(f"{problem}; write -- and then {alternatives(REMOTE_COMMANDS)}")
    if args.forks < 1:
        raise UsageError(f"--forks {args.forks}: too few; choose at least 1")
    if args.timeout <= 0:
        raise UsageError(f"--timeout {args.timeout:g}: too short; choose more than 0 s")
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        raise UsageError(
            "called with sudo, so ssh would use root's keys; run it without sudo (--sudo is for the hosts)"
        )
    return _run_on_hosts(args, ansible.find_ansible(args.inventory, args.limit), remote_words)


def _run_on_hosts(args: argparse.Namespace, runner: ansible.Ansible, remote_words: list[str]) -> int:
    """Run a copyscope command on all hosts, print the table of hosts and return the exit status."""
    hosts, out, (command, *options) = runner.hosts(), Path(args.out), remote_words
    files.make_directory(out)
    program = f"{args.tree}/bin/copyscope" if args.tree else "copyscope"
    rows: dict[str, HostRow] = {}
    interrupted = False
    title = f"{command} on {counted(len(hosts), 'host')}"
    with StepProgress(title, len(hosts), quiet=args.quiet) as steps:

        def on_end(host: str, answer: HostAnswer) -> None:
            rows[host] = _save_document(out, judge(host, command, answer))
            steps.done()

        try:
            job = ansible.Job((program, command, "--json", "-", *options), args.sudo, args.timeout)
            runner.run_everywhere(hosts, job, args.forks, steps.begin, on_end)
        except KeyboardInterrupt:
            interrupted = True
    without_answer = HostRow("", "interrupted", cause="interrupted; run it again")
    shown = [rows.get(host) or replace(without_answer, host=host) for host in hosts]
    console = make_console()
    print_lines(fleet_lines(shown, command, report_width(console), verbose=args.verbose > 0), console)
    if interrupted:
        return entry.INTERRUPTED
    return 0 if all(row.state == "ok" for row in shown) else entry.FAILED


def _save_document(out: Path, row: HostRow) -> HostRow:
    """Save a host's JSON document in a directory below `out`, and return the host's row.

    If the document cannot be saved, the row has the state `failed`, and the other hosts are not affected.
    """
    try:
        return answers.save_document(out, row)
    except (OSError, ValueError, RecordError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        cause = one_line(f"{out}: the answer of the host cannot be saved: {reason}")
        return replace(row, state="failed", cause=cause, document=None)


def fleet_lines(rows: Sequence[HostRow], command: str, width: int, *, verbose: bool = False) -> list[Text]:
    """Return the table of hosts, in the order of the inventory, and sentences about hosts that stand out.

    verbose: return all sentences instead of the first SENTENCES_MAX
    """
    table = TextTable(COLUMNS[:1], *COLUMNS[1:], words=WORD_COLUMNS)
    for row in rows:
        cells = (None if cell is None else visible(cell) for cell in cells_of(row))
        table.add(*cells, strong=row.state != "ok")
    ok_count = sum(row.state == "ok" for row in rows)
    title = f"{command}: {ok_count} of {counted(len(rows), 'host')} ok"
    lines = heading(title, "", width)[1:] + table.lines(width)
    sentences = answers.summarise(rows)
    if len(sentences) > SENTENCES_MAX and not verbose:
        more = len(sentences) - SENTENCES_MAX
        sentences = [*sentences[:SENTENCES_MAX], f"{more} more differences: -v, or the records"]
    if sentences:
        lines += heading("CHECK THESE", "", width)
    return [*lines, *(line for sentence in sentences for line in wrap(sentence, width, indent=2))]


def cells_of(row: HostRow) -> list[str | None]:
    """Return the cells of a host's row, in the order of COLUMNS. Unknown values are None."""
    return [
        row.host,
        None if row.facts is None else row.facts.kernel,
        None if row.facts is None else " ".join(row.facts.nics) or "none",
        row.state,
        None if row.valid is None else "yes" if row.valid else "no",
        spelling.format_percent(row.copied),
        spelling.format_tenths(row.ns_per_kib),
    ]
