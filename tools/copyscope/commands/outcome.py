# SPDX-License-Identifier: GPL-2.0-only
"""Last steps of a run: assemble the record, write the files and print the report.

Importing this module takes as long as importing all others. A run therefore imports it, and calls preload(),
while the collector loads its BPF programs.
"""

import argparse
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import json
from rich.console import Console

from copyscope.base.files import rescue_on_failure
from copyscope.base.spelling import format_bytes
from copyscope.commands import output_files
from copyscope.commands.entry import print_message
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.assemble import RecordIdentity, assemble
from copyscope.record.run import Run
from copyscope.record.session_result import Raw
from copyscope.run.build import Revision
from copyscope.show import first_screen, terminal
from copyscope.show.first_screen import render_summary
from copyscope.show.layout import make_console
from copyscope.taxonomy.taxonomy import Taxonomy


def preload(revision: Callable[[], Revision]) -> None:
    """Wait for git and read the taxonomy before the first packet, so that make_run() takes half as long.

    revision: function that waits for git and returns the revision
    """
    revision()
    Taxonomy.load()


def make_run(
    raw: Raw,
    args: argparse.Namespace,
    *,
    run_id: str,
    seed: int,
    revision: Revision,
    repeat: int = 0,
    workload: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
) -> Run:
    """Assemble the record of a session, derive its results and return both as a run.

    If this fails, the measured data is saved, and the error names the file.

    raw: data of the session
    repeat: index of the run among those of --repeat, from 0
    workload: section `workload` of a run of copyscope's own traffic
    target: section `target` of a watched program
    """
    identity = RecordIdentity(run_id, None, repeat, repeat, seed, *revision)
    with rescue_on_failure("raw.pickle", lambda: pickle.dumps(raw)):
        measured = assemble(
            raw, identity, args.frequency, workload=workload, target=target, stacks=args.stacks
        )
    if measured.stacks is not None:
        size_bytes = len(json.encode(measured.stacks))
        print_message(
            f"--stacks: {len(measured.stacks)} stacks take {format_bytes(size_bytes)} of the record"
        )
    with rescue_on_failure("record.json", lambda: store.serialise(measured)):
        return derive(measured)


def report_run(
    run: Run,
    raw: Raw,
    args: argparse.Namespace,
    out: Path | None,
    render: Callable[..., None] = terminal.render,
) -> bool:
    """Write the files of a run, then print its tables. Return False if a file could not be written.

    The files are written first, because the reader of the tables may close the pipe. The tables are printed
    even if a file could not be written.

    out: directory of --out
    render: function that prints all tables (-v)
    """
    saved = out is None or output_files.save_run(
        run, raw.collector.get("samples", []) if raw.collector else [], out
    )
    # With --repeat, report_repeats() writes the records as one list.
    if args.json and getattr(args, "repeat", 1) == 1:
        saved = output_files.write_runs(run, args.json) and saved
    if args.json != "-":
        with rescue_on_failure("record.json", lambda: store.serialise(run)):
            print_run(run, args, render, make_console())
    if args.verbose and run.raw.functions is not None:
        print_message("a process of the collector now detaches the function hooks, for up to 10 s")
    return saved


def print_run(run: Run, args: argparse.Namespace, render: Callable[..., None], console: Console) -> None:
    """Print the report of a run: a single screen, all tables with -v, or every detail with -vv."""
    if args.verbose == 0:
        by_thread = getattr(args, "by", None) == "thread" and run.raw.target is not None
        first_screen.render(run, console, explain=args.explain, by_thread=by_thread)
    else:
        render(run, verbose=args.verbose > 1, explain=args.explain, console=console)


def report_repeats(runs: Sequence[Run], args: argparse.Namespace) -> bool:
    """Print a summary of the runs of --repeat, and write their records as a list to the file of --json.

    Return False if the file could not be written.
    """
    if args.json != "-":
        render_summary(runs, make_console())
    return not args.json or output_files.write_runs(runs, args.json)
