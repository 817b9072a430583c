"""tools/draw.py: the path of a byte as an SVG, from one record. Needs no root."""

import argparse
import sys
from pathlib import Path

from copyscope.arguments import UsageParser
from copyscope.commands import entry
from copyscope.errors import RunError
from copyscope.files import saving
from copyscope.ledger.derive import whole
from copyscope.record import store
from copyscope.render.path_drawing import draw

EXAMPLES = """\
examples:
  tools/draw.py run.json > path.svg
  tools/draw.py results/HOST/quick/raw/RUN.json.gz --out path.svg

A record is what `tools/profile.py --json run.json` or `--out DIR` keeps.
"""


def parser() -> argparse.ArgumentParser:
    made = UsageParser(
        prog="draw.py",
        description="Draws the path of a byte from a record: each copy an arrow with its bytes, its CPU time"
        " and its share. The drawing is an SVG for light and dark pages; the same record gives the same"
        " bytes. Needs no root. Exit status: 0 drawn, 1 failed, 2 usage.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("record", metavar="RECORD", help="a record: RUN.json or RUN.json.gz")
    made.add_argument("--out", metavar="FILE", help="write the SVG to FILE instead of stdout")
    return made


def main(argv: list[str]) -> int:
    """Exit status: 0 drawn, 1 failed, 2 usage, 130 interrupted."""
    return entry.run("draw", lambda: _draw(parser().parse_args(argv)))


def _draw(arguments: argparse.Namespace) -> int:
    found = store.read(Path(arguments.record))
    if "simulated" in found:
        raise RunError(
            f"{arguments.record}: modelled, not measured: no copy has a time: there is no path to draw"
        )
    problems = store.validate(found, raw="verdict" not in found)
    if problems:
        raise RunError(f"{arguments.record}: not a whole record: {problems[0]}: measure again")
    found = whole(found)
    if not found.get("rx_bytes") and not found.get("tx_bytes"):
        raise RunError(f"{arguments.record}: nothing was sent in this run: there is no path to draw")
    drawn = draw(found)
    if arguments.out is None:
        sys.stdout.write(drawn)
    else:
        saving.save(Path(arguments.out), drawn.encode())
    return 0
