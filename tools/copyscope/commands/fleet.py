"""copyscope fleet: one command on many hosts by ansible, a record of each, and one table."""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from copyscope import paths
from copyscope.arguments import UsageParser, add
from copyscope.commands import entry
from copyscope.errors import UsageError
from copyscope.escaping import one_line
from copyscope.files import saving
from copyscope.fleet import ansible, directory
from copyscope.fleet.answers import Answer, Row, judge
from copyscope.record.store import RecordError
from copyscope.show.console import make_console, print_lines, report_width
from copyscope.show.fleet import fleet_lines
from copyscope.show.progress import Steps

VERBS = ("run", "watch", "advise", "doctor", "drill", "crossover")
EXAMPLES = """\
examples:
  copyscope fleet web1,web2 -- doctor
  copyscope fleet inventory.yml --sudo -- run --impl zero_copy --duration 3
  copyscope fleet inventory.yml --limit web --sudo --forks 50 -- watch nginx --duration 30
  copyscope fleet query fleet who-copies     what the records say; query --help lists the questions
"""
COMMON = ("--sudo", "--limit", "--forks", "--timeout", "--out", "--tree", "--quiet")
OPTIONS = """
--sudo                  run as root on the hosts (ansible's --become)
--limit PATTERN         only these hosts (a pattern of ansible)
--forks N =20           hosts at a time; default 20
--timeout S =300        seconds per host; default 300
--out DIR =fleet        where the records go; default ./fleet
--tree DIR              copyscope's directory on the hosts; default: as here
-q --quiet              no progress
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="fleet",
        usage=f"copyscope fleet [options] INVENTORY -- {{{','.join(VERBS)}}} [its options]",
        description="Runs a copyscope command on many hosts with ansible, keeps each record as "
        "OUT/host=NAME/date=DAY/TIME.json, and prints one table. A host that cannot be reached, or that "
        "fails, is a row of the table. When copyscope ends, its processes on the hosts end, too."
        " Exit status: 0 all hosts ok, 1 some not, 2 usage, 130 interrupted.",
        epilog=EXAMPLES,
        common=COMMON,
        examples=EXAMPLES,
    )
    made.add_argument(
        "inventory",
        metavar="INVENTORY",
        help="an inventory of ansible, or hosts separated by commas; of one: web1,",
    )
    # A wheel has no bin/: its command is on PATH.
    tree = {"default": None if paths.ROOT == paths.PACKAGE else str(paths.ROOT)}
    add(made, OPTIONS, forks={"type": int}, timeout={"type": float}, tree=tree)
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 all hosts ok, 1 some not, 2 usage, 130 interrupted."""
    if argv[:1] == ["query"]:
        # Who asks hosts does without the ledger: loading it takes longer than all else before the first host.
        from copyscope.commands import fleet_query  # noqa: PLC0415

        return fleet_query.main(argv[1:])
    at = argv.index("--") if "--" in argv else len(argv)
    return entry.run(lambda: _fleet(parser().parse_args(argv[:at]), argv[at + 1 :]))


def _fleet(arguments: argparse.Namespace, words: list[str]) -> int:
    if not words or words[0] not in VERBS:
        what = f"{words[0]}: not a command that runs on hosts" if words else "no command"
        raise UsageError(f"{what}: write -- and then one of {', '.join(VERBS)}")
    if arguments.forks < 1 or arguments.timeout <= 0:
        raise UsageError("--forks and --timeout: at least 1 host and more than 0 s")
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        raise UsageError(
            "called by sudo: ssh would use root's keys: run it without sudo; --sudo is for the hosts"
        )
    return _ask(arguments, ansible.find(arguments.inventory, arguments.limit), words)


def _kept(out: Path, row: Row) -> Row:
    """What a host measured, in its file; that it could not be written costs this host alone."""
    try:
        return directory.keep(out, row)
    except (OSError, ValueError, RecordError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        cause = one_line(f"{out}: its answer cannot be kept: {why}")
        return replace(row, state="failed", cause=cause, document=None)


def _ask(arguments: argparse.Namespace, by: ansible.Ansible, words: list[str]) -> int:
    hosts, out, (command, *rest) = by.hosts(), Path(arguments.out), words
    saving.make_directory(out)
    front = f"{arguments.tree}/bin/copyscope" if arguments.tree else "copyscope"
    far = (front, command, "--json", "-", *rest)
    rows: dict[str, Row] = {}
    interrupted = False
    with Steps(f"{command} on {len(hosts)} hosts", len(hosts), quiet=arguments.quiet) as steps:

        def ended(name: str, answer: Answer) -> None:
            rows[name] = _kept(out, judge(name, command, answer))
            steps.done()

        try:
            job = ansible.Job(far, arguments.sudo, arguments.timeout)
            by.ask_all(hosts, job, arguments.forks, steps.begin, ended)
        except KeyboardInterrupt:
            interrupted = True
    unasked = Row("", "interrupted", cause="interrupted: run it again")
    shown = [rows.get(name) or replace(unasked, host=name) for name in hosts]
    console = make_console()
    print_lines(fleet_lines(shown, command, report_width(console)), console)
    if interrupted:
        return entry.INTERRUPTED
    return 0 if all(row.state == "ok" for row in shown) else entry.FAILED
