"""copyscope doctor: what works on this machine, what does not, and what to do about it."""

import argparse

from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry
from copyscope.doctor.diagnose import diagnose
from copyscope.show.console import make_console
from copyscope.show.doctor import render

EXAMPLES = """\
examples:
  sudo copyscope doctor                what is limited here, and why
  sudo copyscope doctor -v             every fact
  sudo copyscope doctor --json -       the same as data
"""
OPTIONS = """
--json FILE             write the findings as JSON to FILE (- for stdout)
-v --verbose            also show what is fine
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="doctor",
        description="Tries every instrument here and says what works, what does not, what to do about it,"
        " and what may disturb the numbers. Changes nothing. Exit status: 0 profiling works, 1 it does not.",
        epilog=EXAMPLES,
    )
    add(made, OPTIONS)
    return made


def _doctor(arguments: argparse.Namespace) -> int:
    diagnosis = diagnose()
    if arguments.json != "-":
        render(diagnosis, verbose=arguments.verbose, console=make_console())
    documents.give_json(diagnosis.as_json(), arguments.json)
    return 0 if diagnosis.works else 1


main = entry.command(parser, _doctor)
