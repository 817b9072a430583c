# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope drill`: which send methods avoid the copy on this kernel?

The command overwrites each buffer after the send call has returned. If the receiver gets the new bytes, the
call did not copy the buffer.
"""

import argparse
import json
import platform
import tempfile
from pathlib import Path

from rich.text import Text

from copyscope.base import files, spelling
from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import UsageError
from copyscope.base.stats import grouped
from copyscope.commands import entry, output_files
from copyscope.doctor.drill.copiers import ACCOUNTS_OF_RESULT, Copier
from copyscope.doctor.drill.trials import PATHS, REASON_NOT_SEEN, DrillRow, list_changes, run_all
from copyscope.show.layout import TextTable, heading, make_console, print_lines, report_width, wrap

# Result -> its text in a cell of the summary.
SHORT_RESULTS = {"copied before return": "copied", "in part by reference": "in part"}
EXAMPLES = """\
examples:
  sudo copyscope drill                    all methods, over lo, veth and kTLS
  copyscope drill                         the same without veth
  copyscope drill --json before.json      keep the table of this kernel
  copyscope drill --expect before.json    on another kernel: what changed?
"""
OPTIONS = """
--json FILE             write the table as JSON to FILE ("-": stdout, no table)
--expect FILE           compare with a table of --json; status 1 if a method has changed
--nics IFA,IFB          also over two NICs connected back to back (root)
--file DIR =/var/tmp    directory of the file to send; default /var/tmp
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope drill`."""
    result = UsageParser(
        prog="drill",
        usage="%(prog)s [options]",
        description="Send a buffer by each method that this kernel has (send, sendmsg, io_uring's SEND,"
        " MSG_ZEROCOPY, SEND_ZC, sendfile, splice, vmsplice), overwrite it after the call has returned, and"
        " print what the receiver got. Paths: lo, kTLS, and as root veth. Takes seconds."
        " Exit status: 0 tried, 1 failed or not as expected, 2 usage.",
        epilog=EXAMPLES,
    )
    add_options(result, OPTIONS)
    return result


def _drill(args: argparse.Namespace) -> int:
    """Try all send methods, print the table, compare it with --expect and return the exit status."""
    expected = {} if args.expect is None else read_expected(Path(args.expect))
    check_directory(Path(args.file))
    entry.build(".output/traffic")
    kernel = platform.release()
    network_cards = () if args.nics is None else (f"nics:{args.nics}",)
    rows = run_all(Path(args.file), (*PATHS, *network_cards))
    if args.json != "-":
        console = make_console()
        print_lines(drill_lines(rows, kernel, report_width(console)), console)
    output_files.write_json_option({"kernel": kernel, "ways": rows}, args.json)
    changes = list_changes(rows, expected)
    for line in changes:
        entry.print_message(f"--expect: {line}")
    return entry.FAILED if changes else 0


def drill_lines(rows: list[DrillRow], kernel: str, width: int) -> list[Text]:
    """Return the screen: every method on every path with its evidence, then a summary.

    The summary is last, because the last lines stay visible on a small terminal.

    kernel: release of the running kernel
    width: columns of the terminal
    """
    lines = [Text(f"Linux {kernel}", style="bold"), Text(), *_evidence_table(rows, width), Text()]
    note = (
        "By reference: the receiver gets what the program wrote into the buffer after the call. Rewritten at "
        "once: while all of the message still waited in the sender's socket."
    )
    reasons = {
        row.copied_by_reason or ""
        for row in rows
        if row.result in ACCOUNTS_OF_RESULT and row.copied_by is None
    }
    for reason in sorted(reasons - {REASON_NOT_SEEN}):
        note += f" The function that copied is unknown: {reason}."
    return [*lines, *wrap(note, width), *_summary(rows, width)]


def _evidence_table(rows: list[DrillRow], width: int) -> list[Text]:
    """Return a table: a row for each method and path, or one for a path that refuses all methods alike."""
    cells = [("path", "method", "the buffer, rewritten after the call")]
    for path, path_rows in grouped(rows, lambda row: row.path).items():
        texts = {describe_row(row) for row in path_rows}
        all_refused = len(path_rows) > 1 and path_rows[0].result == "refused" and len(texts) == 1
        if all_refused:
            cells.append((path, "all", describe_row(path_rows[0])))
        else:
            cells += [(path, row.way, describe_row(row)) for row in path_rows]
    path_width, method_width = (max(len(row[column]) for row in cells) for column in (0, 1))
    lines = [
        line
        for path, method, text in cells
        for line in wrap(
            f"{path:<{path_width}}  {method:<{method_width}}  {text}",
            width,
            indent=path_width + method_width + 4,
        )
    ]
    lines[0].stylize("dim")
    return lines


def _summary(rows: list[DrillRow], width: int) -> list[Text]:
    """Return a table of methods and paths. Methods with the same results share a row."""
    # The row `sendfile, memfd` belongs to the method sendfile.
    by_method = grouped(rows, lambda row: row.way.partition(",")[0])
    results = {method: _results_by_path(method_rows) for method, method_rows in by_method.items()}
    paths = list(dict.fromkeys(row.path for row in rows))
    table = TextTable(("method",), *paths, words=paths)
    same_results = grouped(results, lambda method: tuple(results[method].get(path) for path in paths))
    for cells, methods in same_results.items():
        table.add(", ".join(methods), *cells)
    return heading("WHICH METHOD AVOIDS THE COPY", "by reference: no copy", width) + table.lines(width)


def _results_by_path(rows: list[DrillRow]) -> dict[str, str]:
    """Return path -> results of one method on that path, such as `copied or late copy`."""
    return {
        path: " or ".join(dict.fromkeys(SHORT_RESULTS.get(row.result, row.result) for row in path_rows))
        for path, path_rows in grouped(rows, lambda row: row.path).items()
    }


def describe_row(row: DrillRow) -> str:
    """Format the evidence of one trial: its result, how many bytes changed, and the copying function."""
    if row.reason is not None:
        return f"{row.result}: {row.reason}"
    notification = "" if row.notified is None else f"; its notification says {row.notified}"
    function = "" if row.copied_by is None else f", by {describe_copier(row.copied_by)}"
    if row.result == "copied before return":
        return row.result + function + notification
    if row.result == "late copy":
        at_once = spelling.format_count(row.changed_at_once_bytes)
        later = f"after {row.arrived_after_us} us: none"
        return f"late copy{function}: rewritten at once: {at_once} bytes changed; {later}{notification}"
    changed, total = spelling.format_count(row.changed_bytes), spelling.format_count(row.bytes)
    return f"{row.result}: {changed} of {total} bytes changed{notification}"


def describe_copier(copier: Copier) -> str:
    """Format the copying function, and how often it was observed: `memcpy in send (12 calls)`."""
    unit = "samples" if copier.seen_by == "samples" else "calls"
    return f"{copier.function} in {copier.within} ({spelling.format_count(copier.count)} {unit})"


def read_expected(file: Path) -> dict[tuple[str, str], str]:
    """Read (method, path) -> result from a table written with --json. Raises UsageError."""
    next_step = "give a file that copyscope drill --json wrote"
    try:
        rows = json.loads(files.read(file))["ways"]
        expected = {(str(row["way"]), str(row["path"])): str(row["result"]) for row in rows}
    except OSError as error:
        raise UsageError(f"--expect {file}: {error.strerror}; {next_step}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise UsageError(f"--expect {file}: not a table of copyscope drill; {next_step}") from None
    if not expected:
        raise UsageError(f"--expect {file}: no send method in it; {next_step}")
    return expected


def check_directory(directory: Path) -> None:
    """Raise UsageError if no file can be created in the directory of --file."""
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise UsageError(f"--file {directory}: {error.strerror}; give a writable directory") from None


main = entry.make_main("drill", parser, _drill)
