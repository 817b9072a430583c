# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope fleet query`: answer a question or an SQL query from a fleet's records. Needs no root."""

import argparse
import os
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import RunError, UsageError
from copyscope.base.spelling import alternatives, visible
from copyscope.commands import entry
from copyscope.fleet import database
from copyscope.fleet.database import QUESTIONS
from copyscope.report.table_files import as_csv
from copyscope.show.layout import TextTable, make_console, print_lines, report_width

# Print at most this many reasons why records are left out.
LEFT_OUT_SHOWN_MAX = 5
QUESTION_LINES = "\n".join(
    textwrap.fill(question.text, 80, initial_indent=f"  {name:16}", subsequent_indent=" " * 18)
    for name, question in QUESTIONS.items()
)
EXAMPLES = f"""\
questions:
{QUESTION_LINES}

examples:
  copyscope fleet query fleet who-copies
  copyscope fleet query fleet cost-by-kernel --csv > cost.csv
  copyscope fleet query fleet --sql 'SELECT count(*) FROM runs'
  copyscope fleet query fleet --sql 'DESCRIBE rows'
"""
OPTIONS = """
--sql SQL               your own query
--csv                   print the answer as CSV
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope fleet query`."""
    result = UsageParser(
        prog="fleet query",
        usage="%(prog)s DIR QUESTION | %(prog)s DIR --sql SQL",
        description="Answer a question from the records in DIR/host=NAME/date=DAY. Each record becomes a"
        " Parquet file next to it. DuckDB reads the Parquet files as two tables: runs (one line per run) and"
        " rows (one line per ledger row). Exit status: 0 answered, 1 failed, 2 usage.",
        epilog=EXAMPLES,
    )
    result.add_argument("directory", metavar="DIR", help="the directory that fleet wrote (its --out)")
    result.add_argument("question", nargs="?", metavar="QUESTION", help=", ".join(QUESTIONS))
    add_options(result, OPTIONS)
    return result


def _query(args: argparse.Namespace) -> int:
    """Update the records' Parquet files, print the answer to the query and return the exit status."""
    choices = alternatives(tuple(QUESTIONS))
    if (args.question is None) == (args.sql is None):
        raise UsageError(f"give one question: {choices}, or --sql SQL")
    if args.question is not None and args.question not in QUESTIONS:
        raise UsageError(f"{args.question}: no such question; choose {choices}")
    # numpy needs no threads here, and would abort on a host that does not let it start threads.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    directory = Path(args.directory)
    if not directory.is_dir():
        raise UsageError(
            f"{directory}: no such directory; give the directory that copyscope fleet wrote (--out)"
        )
    update = database.update_parquet_files(directory)
    for reason in update.left_out[:LEFT_OUT_SHOWN_MAX]:
        entry.print_message(f"left out: {reason}")
    if len(update.left_out) > LEFT_OUT_SHOWN_MAX:
        entry.print_message(f"left out: {len(update.left_out) - LEFT_OUT_SHOWN_MAX} more records")
    if not update.records:
        raise RunError(
            f"{directory}: no records in host=NAME/date=DAY; copyscope fleet with run, watch or advise "
            "writes them"
        )
    columns, rows = database.query(directory, args.sql or QUESTIONS[args.question].sql)
    if args.csv:
        table = [dict(zip(columns, map(_csv_value, row), strict=True)) for row in rows]
        sys.stdout.write(as_csv(table).decode())
        return 0
    numeric_columns = {
        column
        for index, column in enumerate(columns)
        if any(isinstance(row[index], (int, float)) for row in rows)
    }
    text_table = TextTable((), *columns, words=set(columns) - numeric_columns)
    for row in rows:
        text_table.add(*map(_cell, row))
    console = make_console()
    print_lines(text_table.lines(report_width(console)), console)
    if not rows:
        entry.print_message("no row matches")
    return 0


def _csv_value(value: Any) -> Any:
    """Convert a database value to one that as_csv() can write."""
    return value if value is None or isinstance(value, (str, int, float, bool)) else _cell(value)


def _cell(value: Any) -> str | None:
    """Format a database value for a screen; None for NULL."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return None if value is None else visible(str(value))


main = entry.make_main("fleet query", parser, _query)
