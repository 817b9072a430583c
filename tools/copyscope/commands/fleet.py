"""copyscope fleet, tools/fleet.py: one command on many hosts, a record of each, and one table."""

import argparse
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from copyscope import calling, paths
from copyscope.arguments import UsageParser, add
from copyscope.commands import entry
from copyscope.errors import RunError, UsageError
from copyscope.files import regular_file, saving
from copyscope.fleet import by_ansible, directory, inventory, sample
from copyscope.fleet.answers import Row, judge
from copyscope.fleet.by_ssh import Answer, Began, Ended, Job, ask_hosts
from copyscope.hosts import bundle as bundles
from copyscope.render.console import make_console, print_lines, report_width
from copyscope.render.fleet import fleet_lines
from copyscope.render.progress import Steps

VERBS = ("run", "watch", "advise", "doctor", "drill", "crossover")
EXAMPLES = """\
examples:
  tools/fleet.py hosts -- doctor
  tools/fleet.py hosts --sudo -- run --impl zero_copy --duration 3
  tools/fleet.py hosts --sudo --forks 50 -- watch nginx --duration 30
  tools/fleet.py --ansible inventory.yml --limit web --sudo -- watch nginx --duration 30
  tools/fleet.py query fleet who-copies      what the records say; query --help lists the questions

hosts is a text file, one host a line, as ssh(1) takes it (user, port and keys stand in ~/.ssh/config):
  web1
  admin@web2       # a comment
  here             this machine, without ssh
"""
COMMON = (
    *("--sudo", "--forks", "--timeout", "--out", "--again", "--sample", "--bundle"),
    *("--ansible", "--limit", "--quiet"),
)
# Asks these hosts, so many at a time; says who is asked now, and what each answered.
Engine = Callable[[Sequence[str], Job, int, Began, Ended], None]
OPTIONS = """
--forks N =20           hosts at a time; default 20
--sudo                  as root there, by sudo -n
--timeout S =300        seconds that a host has; default 300
--out DIR =fleet        where the records go; default ./fleet
--again                 ask those, too, that have answered the same already
--sample N              ask N of the hosts only, drawn by --seed
--seed N =1             of --sample; default 1
--tree DIR              copyscope's directory there; default: as here
--bundle FILE           bring copyscope along and take it away: what `make bundle` made
--ansible               by ansible-core: INVENTORY is one of ansible's, --sudo is its --become; its settings
                        hold
--limit PATTERN         of --ansible: these hosts only
--serial N              of --ansible: so many hosts (or N%%) in a batch
-q --quiet              no progress
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="fleet.py",
        usage=f"{calling.name('fleet')} [options] INVENTORY -- {{{','.join(VERBS)}}} [its words]",
        description="Runs a command of copyscope on many hosts by your ssh, some at a time, keeps what each"
        " measured as OUT/host=NAME/date=DAY/TIME.json, and prints one table (OUT/fleet.html is the same as a"
        " page): a host that cannot be reached, or that fails, is a row of it. Asked the same again, it goes"
        " on with the hosts that have no record yet. ssh must log in without asking for anything."
        " When this ends, in whatever way, what it runs over there ends, too. Exit status: 0 all hosts ok, 1"
        " some not, 2 usage, 130 interrupted.",
        epilog=EXAMPLES,
        common=COMMON,
        examples=EXAMPLES,
    )
    made.add_argument("inventory", metavar="INVENTORY", help="the file with the hosts")
    whole = {"type": int}
    tree = {"default": str(paths.ROOT)}
    add(made, OPTIONS, forks=whole, timeout={"type": float}, sample=whole, seed=whole, tree=tree)
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 all hosts ok, 1 some not, 2 usage, 130 interrupted."""
    if argv[:1] == ["query"]:
        # Who asks hosts does without the ledger: loading it takes longer than all else before the first host.
        from copyscope.commands import fleet_query  # noqa: PLC0415

        return fleet_query.main(argv[1:])
    at = argv.index("--") if "--" in argv else len(argv)
    return entry.run("fleet", lambda: _fleet(parser().parse_args(argv[:at]), argv[at + 1 :]))


def _fleet(arguments: argparse.Namespace, words: list[str]) -> int:
    if not words or words[0] not in VERBS:
        what = f"{words[0]}: not a command for hosts" if words else "no command"
        raise UsageError(f"{what}: write -- and then one of {', '.join(VERBS)}")
    if arguments.forks < 1 or arguments.timeout <= 0:
        raise UsageError("--forks and --timeout: at least one host, for more than 0 seconds")
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        raise UsageError(
            "called by sudo: ssh would use root's keys: call it without; --sudo is for over there"
        )
    hosts, engine = _hosts(arguments)
    command, *rest = words
    try:
        bundle = b"" if arguments.bundle is None else bundles.checked(Path(arguments.bundle))
    except RunError as error:
        raise UsageError(f"--bundle: {error}") from None
    tree = "@BUNDLE@/copyscope" if bundle else arguments.tree
    far = (f"{tree}/bin/copyscope", command, "--json", "-", *rest)
    out = Path(arguments.out)
    source = hashlib.sha256(bundle).hexdigest() if bundle else tree
    begun = directory.start(
        out, directory.Asked(tuple(words), arguments.sudo, source), hosts, again=arguments.again
    )
    if begun.said is not None:
        entry.say("fleet", begun.said)
    rows = dict(begun.rows)
    left = [name for name in hosts if name not in rows]
    with Steps(f"{command} on {len(left)} hosts", len(left), quiet=arguments.quiet) as steps:

        def ended(name: str, answer: Answer) -> None:
            rows[name] = directory.keep(out, begun.asked, judge(name, command, answer))
            steps.done()

        interrupted = False
        try:
            job = Job(far, arguments.sudo, arguments.timeout, bundle)
            engine(left, job, arguments.forks, steps.begin, ended)
        except KeyboardInterrupt:
            interrupted = True
    unasked = "not asked to the end: ask again"
    shown = [rows.get(name) or Row(name, "interrupted", cause=unasked) for name in hosts]
    from copyscope.render.fleet_page import fleet_page  # noqa: PLC0415 (what reports are made of loads a ledger)

    saving.save(out / directory.PAGE, fleet_page(shown, " ".join(words), begun.asked.began).encode())
    console = make_console()
    print_lines(fleet_lines(shown, command, report_width(console)), console)
    if interrupted:
        return entry.INTERRUPTED
    return 0 if all(row.state == "ok" for row in shown) else entry.FAILED


def _hosts(arguments: argparse.Namespace) -> tuple[list[str], Engine]:
    """The names of the hosts, and what asks them. Raises UsageError, RunError."""
    source = arguments.inventory
    engine: Engine
    if arguments.ansible:
        by = by_ansible.find(Path(source), arguments.limit, arguments.serial)
        names, engine = inventory.checked(by.hosts(), source), by.ask_all
    elif arguments.limit is not None or arguments.serial is not None:
        raise UsageError("--limit and --serial: go with --ansible only")
    else:
        try:
            text = regular_file.read(Path(source)).decode()
        except UnicodeDecodeError:
            raise UsageError(f"{source}: not UTF-8: name a file with a host a line") from None
        except OSError as error:
            raise UsageError(f"{source}: {error.strerror}: name a file with a host a line") from None
        hosts = inventory.parse(text, source)
        names, engine = list(hosts), partial(ask_hosts, hosts)
    if arguments.sample is not None:
        if not 0 < arguments.sample <= len(names):
            raise UsageError(f"--sample: {arguments.sample}: between 1 and {len(names)}, the hosts there are")
        within = sample.margin(arguments.sample, len(names))
        said = f"{arguments.sample} of {len(names)} hosts drawn by seed {arguments.seed}"
        entry.say(
            "fleet", f"{said}: a share of them is within {100 * within:.1f} points of that of all (95 %)"
        )
        names = sample.draw(names, arguments.sample, arguments.seed)
    return names, engine
