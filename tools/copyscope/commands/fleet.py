"""copyscope fleet, tools/fleet.py: one command on many hosts, a record of each, and one table."""

import argparse
import asyncio
import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from copyscope import calling, paths
from copyscope.arguments import UsageParser
from copyscope.commands import entry
from copyscope.errors import UsageError
from copyscope.files import regular_file, saving
from copyscope.fleet import inventory
from copyscope.fleet.answers import Row, judge
from copyscope.fleet.asking import Answer, Job, ask_all
from copyscope.record import store
from copyscope.render.fleet import fleet_lines
from copyscope.render.progress import Steps
from copyscope.render.terminal import make_console, print_lines, report_width

VERBS = ("run", "watch", "advise", "doctor", "drill")
EXAMPLES = """\
examples:
  tools/fleet.py hosts -- doctor
  tools/fleet.py hosts --sudo -- run --impl zero_copy --duration 3
  tools/fleet.py hosts --sudo --forks 50 -- watch nginx --duration 30

hosts is a text file, one host a line, as ssh(1) takes it (user, port and keys stand in ~/.ssh/config):
  web1
  admin@web2       # a comment
  here             this machine, without ssh
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="fleet.py",
        usage=f"{calling.name('fleet')} [options] INVENTORY -- {{{','.join(VERBS)}}} [its words]",
        description="Runs a command of copyscope on many hosts by your ssh, some at a time, keeps what each"
        " measured as OUT/host=NAME/date=DAY/TIME.json, and prints one table: a host that cannot be reached,"
        " or that fails, is a row of it. Nothing is asked: ssh must get in without a question. When this"
        " ends, in whatever way, what it runs over there ends, too. Exit status: 0 all hosts ok, 1 some not,"
        " 2 usage, 130 interrupted.",
        epilog=EXAMPLES,
    )
    made.add_argument("inventory", metavar="INVENTORY", help="the file with the hosts")
    made.add_argument("--forks", type=int, default=20, metavar="N", help="hosts at a time; default 20")
    made.add_argument("--sudo", action="store_true", help="as root there, by sudo -n")
    made.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds that a host has; default 300"
    )
    made.add_argument("--out", default="fleet", metavar="DIR", help="where the records go; default ./fleet")
    made.add_argument(
        "--tree", default=str(paths.ROOT), metavar="DIR", help="copyscope's directory there; default: as here"
    )
    made.add_argument(
        "--bundle", metavar="FILE", help="bring copyscope along and take it away: what `make bundle` made"
    )
    made.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 all hosts ok, 1 some not, 2 usage, 130 interrupted."""
    at = argv.index("--") if "--" in argv else len(argv)
    return entry.run("fleet", lambda: _fleet(parser().parse_args(argv[:at]), argv[at + 1 :]))


def _fleet(arguments: argparse.Namespace, words: list[str]) -> int:
    if not words or words[0] not in VERBS:
        raise UsageError(f"{' '.join(words[:1]) or 'no command'}: write -- and then {', '.join(VERBS)}")
    if arguments.forks < 1 or arguments.timeout <= 0:
        raise UsageError("--forks and --timeout: at least one host, for more than 0 seconds")
    if "SUDO_UID" in os.environ:
        raise UsageError(
            "called by sudo: ssh would use root's keys: call it without; --sudo is for over there"
        )
    source = arguments.inventory
    try:
        text = regular_file.read(Path(source)).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{source}: not UTF-8: not a list of hosts") from None
    hosts = inventory.parse(text, source)
    out = Path(arguments.out)
    saving.make_directory(out)
    command, *rest = words
    bundle = b"" if arguments.bundle is None else read_bundle(Path(arguments.bundle))
    tree = "@BUNDLE@/copyscope" if bundle else arguments.tree
    far = (f"{tree}/bin/copyscope", command, "--json", "-", *rest)
    rows: dict[str, Row] = {}
    with Steps(f"{command} on {len(hosts)} hosts", len(hosts), quiet=arguments.quiet) as steps:

        def ended(name: str, answer: Answer) -> None:
            row = judge(name, command, answer)
            if row.document is not None:
                keep(row, out)
            rows[name] = row
            steps.done()

        interrupted = False
        try:
            job = Job(far, arguments.sudo, arguments.timeout, bundle)
            asyncio.run(ask_all(hosts, job, arguments.forks, steps.begin, ended))
        except KeyboardInterrupt:
            interrupted = True
    left = "not asked to the end: ask again"
    shown = [rows.get(name) or Row(name, "interrupted", cause=left) for name in hosts]
    console = make_console()
    print_lines(fleet_lines(shown, command, report_width(console)), console)
    if interrupted:
        return entry.INTERRUPTED
    return 0 if all(row.state == "ok" for row in shown) else entry.FAILED


def read_bundle(path: Path) -> bytes:
    """What is brought to every host. Raises UsageError if it is not what was made."""
    data = regular_file.read(path)
    beside = path.with_name(f"{path.name}.sha256")
    if regular_file.read(beside).split()[:1] != [hashlib.sha256(data).hexdigest().encode()]:
        raise UsageError(f"--bundle: {path}: its SHA-256 is not that in {beside.name}: make bundle again")
    return data


def keep(row: Row, out: Path) -> None:
    """What a host measured, as it was validated, where a query over directories finds it (Hive's layout)."""
    assert row.document is not None
    now = datetime.now(UTC)
    directory = out / f"host={row.host}" / f"date={now:%Y-%m-%d}"
    saving.make_directory(directory)
    if "schema" in row.document:
        data = store.serialise(row.document)
    else:
        data = (json.dumps(row.document, indent=1) + "\n").encode()
    saving.save(directory / f"{now:%H%M%S}.json", data)
