"""copyscope drill: which ways to send are by reference on this kernel, by rewriting what was sent."""

import argparse
import json
import platform
import tempfile
from pathlib import Path

from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry
from copyscope.drill.trials import PATHS, changes, run_all
from copyscope.errors import UsageError
from copyscope.files import regular_file
from copyscope.show.console import make_console, print_lines, report_width
from copyscope.show.drill import drill_lines

EXAMPLES = """\
examples:
  sudo copyscope drill                             all methods, over lo, veth, AF_UNIX and kTLS
  copyscope drill                                  the same without veth
  copyscope drill --json before.json               keep the table of this kernel
  copyscope drill --expect before.json             on another one: status 1 if a method has changed
"""
OPTIONS = """
--json FILE             write the table as JSON to FILE (- for stdout)
--expect FILE           compare with a table of --json: which methods have changed?
--nics IFA,IFB          also over two NICs connected back to back (root)
--file DIR =/var/tmp    directory of the file to send; default /var/tmp
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="drill",
        description="Sends a buffer by each method that this kernel has (write, sendmsg, MSG_ZEROCOPY, "
        "SEND_ZC,"
        " sendfile, splice, vmsplice), rewrites it after the call has returned, lets the receiver"
        " read, and says what arrived. Over lo, kTLS, AF_UNIX, and as root over veth. Takes seconds. Exit"
        " status: 0 tried, 1 failed or not as expected, 2 usage.",
        epilog=EXAMPLES,
    )
    add(made, OPTIONS)
    return made


def _drill(arguments: argparse.Namespace) -> int:
    expected = {} if arguments.expect is None else read_expected(Path(arguments.expect))
    check_directory(Path(arguments.file))
    kernel = platform.release()
    cards = () if arguments.nics is None else (f"nics:{arguments.nics}",)
    rows = run_all(Path(arguments.file), (*PATHS, *cards))
    if arguments.json != "-":
        console = make_console()
        print_lines(drill_lines(rows, kernel, report_width(console)), console)
    documents.give_json({"kernel": kernel, "ways": rows}, arguments.json)
    changed = changes(rows, expected)
    for line in changed:
        entry.say(f"expect: {line}")
    return entry.FAILED if changed else 0


def read_expected(path: Path) -> dict[tuple[str, str], str]:
    """What came of each (way, path) in a table that was kept. Raises UsageError."""
    try:
        rows = json.loads(regular_file.read(path))["ways"]
        expected = {(str(row["way"]), str(row["path"])): str(row["result"]) for row in rows}
    except OSError as error:
        raise UsageError(
            f"--expect: {path}: {error.strerror}: name a table of copyscope drill --json"
        ) from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise UsageError(f"--expect: {path}: not a table of copyscope drill --json") from None
    if not expected:
        raise UsageError(f"--expect: {path}: no send method in it: name a table of copyscope drill --json")
    return expected


def check_directory(path: Path) -> None:
    """Raises UsageError where no file can be made."""
    try:
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise UsageError(f"--file: {path}: {error.strerror}: name a directory to write into") from None


main = entry.command(parser, _drill)
