"""copyscope draw: the path of a byte, or where its lines go, as an SVG, from one record. Needs no root."""

import argparse
import sys
from pathlib import Path

from copyscope.arguments import UsageParser, add
from copyscope.commands import entry, reading
from copyscope.errors import RunError, UsageError
from copyscope.exports import lines_drawing
from copyscope.exports.path_drawing import draw
from copyscope.files import saving
from copyscope.record.check import Whole
from copyscope.sweep.experiment_file import size_bytes
from copyscope.units import format_whole_size

USUAL_SIZE = 64 << 10
EXAMPLES = """\
examples:
  copyscope draw run.json > path.svg
  copyscope draw results/HOST/quick/records.jsonl.gz --run quick-1f2e3d4c5b-0 --out path.svg
  copyscope draw simulated.json --size 1M > lines.svg      a simulated machine: where cache lines go

A record is what `copyscope run --json run.json` or `--out DIR` keeps.
"""
OPTIONS = """
--size BYTES            which size of a simulated record; default 64K, else the largest
--run ID                which run, if RECORD has several
--out FILE              write the SVG to FILE instead of stdout
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="draw",
        description="Draws the path of a byte from a record: each copy an arrow with its bytes, its CPU time"
        " and its share. The drawing is an SVG for light and dark pages; the same record gives the same"
        " bytes. Needs no root. Exit status: 0 drawn, 1 failed, 2 usage.",
        epilog=EXAMPLES,
    )
    made.add_argument("record", metavar="RECORD", help="RUN.json, RUN.json.gz or RUNS.jsonl.gz")
    add(made, OPTIONS)
    return made


def _draw(arguments: argparse.Namespace) -> int:
    runs = reading.runs_of(Path(arguments.record), arguments.run)
    if len(runs) != 1:
        raise UsageError(f"{arguments.record}: {len(runs)} runs: choose one with --run ID")
    run = reading.typed(runs[0], arguments.record)
    if isinstance(run, Whole):
        drawn = _path(arguments, run)
    else:
        drawn = lines_drawing.draw(run, _size(arguments, lines_drawing.sizes_of(run)))
    if arguments.out is None:
        sys.stdout.write(drawn)
    else:
        saving.save(Path(arguments.out), drawn.encode())
    return 0


def _path(arguments: argparse.Namespace, run: Whole) -> str:
    if arguments.size is not None:
        raise UsageError("--size: for simulated records only; this run has one size: leave it out")
    if not run.derived.rx_bytes and not run.derived.tx_bytes:
        raise RunError(f"{arguments.record}: nothing was sent in this run: there is no path to draw")
    return draw(run)


def _size(arguments: argparse.Namespace, sizes: set[int]) -> int:
    """That which is asked for, of those that were counted."""
    if not sizes:
        raise RunError(
            f"{arguments.record}: a simulated command: the path of its bytes is not known: nothing to draw"
        )
    wanted = USUAL_SIZE if USUAL_SIZE in sizes else max(sizes)
    if arguments.size is not None:
        wanted = size_bytes(arguments.size) or 0
    if wanted not in sizes:
        known = ", ".join(format_whole_size(size) for size in sorted(sizes))
        raise UsageError(f"--size: {arguments.size}: not in this record: it has {known}")
    return wanted


main = entry.command(parser, _draw)
