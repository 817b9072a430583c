"""copyscope claims: what the published reports claim, judged by the records of sweeps. Needs no root."""

import argparse
import os
from pathlib import Path

from copyscope import paths
from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry, reading
from copyscope.errors import UsageError
from copyscope.render.claims import render
from copyscope.render.console import make_console
from copyscope.study import claims
from copyscope.study.modelled import points_of
from copyscope.sweep import results

EXAMPLES = """\
examples:
  copyscope claims results/HOST/published results/HOST/rr   judge all of it together
  copyscope claims                                          every sweep of this machine under results/
  copyscope claims DIR --json - | jq '.claims[] | {id, verdict}'

Which runs a claim needs is in experiments/claims.toml.
"""
OPTIONS = """
--claims TOML           another list of claims
--json FILE             write the judgements as JSON to FILE; - is stdout, without the table
--out OUT               write claims.json into this directory; default DIR, where it is one's own
-v --verbose            the whole evidence of each claim
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="claims",
        description="Judges each claim of the published reports: holds, refuted, or undetermined here with"
        " the reason. Writes claims.json into the first DIR, where that is one's own. Needs no root."
        " Exit status: 0 judged (whatever the verdicts), 1 could not be written, 2 usage.",
        epilog=EXAMPLES,
    )
    made.add_argument("directory", nargs="*", metavar="DIR", help="results/HOST/EXPERIMENT of sweeps")
    add(made, OPTIONS, claims={"default": str(claims.FILE)})
    return made


def _claims(arguments: argparse.Namespace) -> int:
    known = claims.read(Path(arguments.claims))
    directories = [Path(name) for name in arguments.directory] or _of_this_host()
    found = reading.load(directories, modelled=True)
    records = [record for one in found for record in one.records]
    points = points_of(record for one in found for record in one.modelled)
    judged = [claims.judge_one(claim, records, points) for claim in known]
    made = claims.as_json(judged, records)
    reading.write_beside(made, "claims.json", directories[0], arguments.out)
    if arguments.json != "-":
        render(made, verbose=arguments.verbose, console=make_console())
    documents.give_json(made, arguments.json)
    return 0


def _of_this_host() -> list[Path]:
    host = paths.host_results(os.uname().nodename, os.uname().release)
    found = [path for path in results.find(paths.RESULTS) if path.parent == host]
    if not found:
        raise UsageError(f"no sweep under results/{host.name}: give a DIR, or run sudo copyscope sweep first")
    return found


main = entry.command(parser, _claims)
