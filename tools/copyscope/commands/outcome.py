"""What becomes of a run when it is over: the record of what was read, its files, and the report.

To import this and to get ready takes as long as all that is done with it: a profile does both while the
collector loads its programs.
"""

import argparse
import pickle
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from copyscope.commands import keeping
from copyscope.commands.entry import say
from copyscope.files.rescuing import kept_if_it_fails
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.assemble import Identity, assemble
from copyscope.record.check import Whole, typed_whole
from copyscope.record.segments import Record
from copyscope.record.session_result import Raw
from copyscope.run.build import Revision
from copyscope.show import first_screen, terminal
from copyscope.show.console import make_console
from copyscope.show.summary import render_summary
from copyscope.taxonomy.samples import to_stacks
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.units import format_bytes


def get_ready(revision: Callable[[], Revision]) -> None:
    """Before the first packet: git answers, and the taxonomy is read, half of what record_of() takes."""
    revision()
    Taxonomy.load()


def record_of(
    raw: Raw,
    args: argparse.Namespace,
    *,
    run_id: str,
    seed: int,
    revision: Revision,
    repeat: int = 0,
    workload: Record | None = None,
    target: Record | None = None,
) -> Record:
    """The whole record of a run: of what our own traffic was to send, or of who was watched."""
    identity = Identity(run_id, None, repeat, repeat, seed, *revision)
    with kept_if_it_fails("raw.pickle", lambda: pickle.dumps(raw)):
        measured = assemble(raw, identity, args.frequency, workload=workload, target=target)
        read = measured | stacks(raw, args)
    with kept_if_it_fails("record.json", lambda: store.serialise(read)):
        return derive(read)


def stacks(raw: Raw, args: argparse.Namespace) -> Record:
    """The section with every stack, where it was asked for."""
    if not args.stacks:
        return {}
    kept = to_stacks((raw.collector or {}).get("samples", []), Taxonomy.load())
    size = len(store.serialise({"stacks": kept}))
    say(f"--stacks: {len(kept)} stacks, {format_bytes(size)} of the record")
    return {"stacks": kept}


def report(
    made: Record,
    raw: Raw,
    args: argparse.Namespace,
    out: Path | None,
    render: Callable[..., None] = terminal.render,
) -> bool:
    """Files first: a reader of the table may go away at any line. One that fails does not lose the table."""
    kept = out is None or keeping.keep(made, (raw.collector or {}).get("samples", []), out)
    # Those of several runs are one list, at the end.
    if args.json and getattr(args, "repeat", 1) == 1:
        kept = keeping.write_json(made, args.json) and kept
    if args.json != "-":
        with kept_if_it_fails("record.json", lambda: store.serialise(made)):
            show(typed_whole(made), args, render, make_console())
    if args.verbose and made["functions"] is not None:
        say("the hooks of functions: a process of the collector detaches them now, and ends within 10 s")
    return kept


def show(run: Whole, args: argparse.Namespace, render: Callable[..., None], console: Console) -> None:
    """The report: what fits one screen, all tables with -v, everything with -vv."""
    if args.verbose == 0:
        by_thread = getattr(args, "by", None) == "thread" and run.raw.target is not None
        first_screen.render(run, console, explain=args.explain, by_thread=by_thread)
    else:
        render(run, verbose=args.verbose > 1, explain=args.explain, console=console)


def report_together(records: list[Record], args: argparse.Namespace) -> bool:
    """The runs of one --repeat, after each has been reported; False: --json is elsewhere."""
    if args.json != "-":
        render_summary([typed_whole(record) for record in records], make_console())
    return not args.json or keeping.write_json(records, args.json)
