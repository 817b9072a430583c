"""copyscope fleet query: what the records of a fleet say, by a ready question or in SQL. Needs no root."""

import argparse
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from copyscope.arguments import UsageParser, add
from copyscope.commands import entry
from copyscope.errors import RunError, UsageError
from copyscope.escaping import visible
from copyscope.fleet import database
from copyscope.fleet.questions import QUESTIONS
from copyscope.report.table_files import as_csv
from copyscope.show.console import make_console, print_lines, report_width
from copyscope.show.layout import Table

LEFT_OUT_MAX = 5
ASKED = "\n".join(f"  {name:15} {question.text}" for name, question in QUESTIONS.items())
EXAMPLES = f"""\
questions:
{ASKED}

examples:
  copyscope fleet query fleet who-copies
  copyscope fleet query fleet cost-by-kernel --csv > cost.csv
  copyscope fleet query fleet --sql 'SELECT kernel, count(DISTINCT host) FROM runs GROUP BY ALL'
  copyscope fleet query fleet --sql 'DESCRIBE rows'
"""
OPTIONS = """
--sql SQL               your own query
--csv                   print the answer as CSV
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="fleet query",
        usage="%(prog)s DIR QUESTION | --sql SQL",
        description="Answers a question from the records in DIR/host=NAME/date=DAY: each becomes a Parquet"
        " file next to it. DuckDB reads these as two tables: runs (one line per run) and rows (one line per"
        " ledger row). Exit status: 0 answered, 1 failed, 2 usage.",
        epilog=EXAMPLES,
    )
    made.add_argument("directory", metavar="DIR", help="the directory that fleet wrote (its --out)")
    made.add_argument("question", nargs="?", metavar="QUESTION", help=", ".join(QUESTIONS))
    add(made, OPTIONS)
    return made


def _query(arguments: argparse.Namespace) -> int:
    if (arguments.question is None) == (arguments.sql is None):
        raise UsageError(f"give one question, {', '.join(QUESTIONS)}, or --sql SQL")
    if arguments.question is not None and arguments.question not in QUESTIONS:
        raise UsageError(f"{arguments.question}: no such question: {', '.join(QUESTIONS)}")
    # numpy starts no threads: it multiplies nothing here, and where it may start none it interrupts us
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    out = Path(arguments.directory)
    kept = database.to_parquet(out)
    for said in kept.left_out[:LEFT_OUT_MAX]:
        entry.say(f"left out: {said}")
    if len(kept.left_out) > LEFT_OUT_MAX:
        entry.say(f"left out: {len(kept.left_out) - LEFT_OUT_MAX} more")
    if not kept.records:
        raise RunError(
            f"{out}: no records in host=NAME/date=DAY: copyscope fleet with run, watch or advise makes them"
        )
    names, lines = database.ask(out, arguments.sql or QUESTIONS[arguments.question].sql)
    if arguments.csv:
        sys.stdout.write(as_csv([dict(zip(names, map(_cell, line), strict=True)) for line in lines]).decode())
        return 0
    numbers = {
        name for at, name in enumerate(names) if any(isinstance(line[at], (int, float)) for line in lines)
    }
    table = Table((), *names, words=set(names) - numbers)
    for line in lines:
        table.add(*(_shown(value) for value in line))
    console = make_console()
    print_lines(table.lines(report_width(console)), console)
    if not lines:
        entry.say("no row matches")
    return 0


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else _shown(value)


def _shown(value: Any) -> str | None:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return None if value is None else visible(str(value))


main = entry.command(parser, _query)
