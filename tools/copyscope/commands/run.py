"""copyscope run: one run or several of one strategy, and the ledger."""

import argparse
import contextlib
import secrets
import shlex
import shutil
from collections.abc import Iterator
from typing import NoReturn, Protocol

from copyscope.commands import entry, keeping
from copyscope.commands.ending import Ending
from copyscope.commands.watch_arguments import WHOM, split
from copyscope.errors import RunError, UsageError
from copyscope.escaping import visible
from copyscope.hosts import hosts_of
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage, choose_path, on_hosts, resolve_traffic, workload_section
from copyscope.plan.run_plan import traffic_plan
from copyscope.record import store
from copyscope.record.segments import Record
from copyscope.run.build import ask_revision
from copyscope.run.session import Session
from copyscope.run.traffic import OwnTraffic
from copyscope.show.progress import Steps


def main(argv: list[str]) -> int:
    """Exit status: 0 valid, 1 failed or invalid, 2 usage, 130 interrupted."""
    return entry.run(lambda: _choose(argv), "interrupted before anything was measured")


def _choose(argv: list[str]) -> int:
    options, command = split(argv)
    known = parser()
    args, more = known.parse_known_args(options)
    if command and args.simulate:
        raise UsageError(
            f"to run a program in a simulated machine: copyscope simulate -- {shlex.join(command)}"
        )
    if command or any(word.partition("=")[0] in WHOM for word in more):
        raise UsageError(f"to watch a program: sudo copyscope watch {shlex.join(argv)}")
    if more and not more[0].startswith("-"):
        _one_strategy(args.impl, *more)
    elif more:
        known.error(f"unrecognized arguments: {' '.join(more)}")
    return _profile(args, argv)


def _profile(args: argparse.Namespace, argv: list[str]) -> int:
    instruments = check_usage(args)
    if "," in args.impl:
        _one_strategy(*args.impl.split(","))
    entry.build()
    # Which processors another machine has is not known here.
    try:
        traffic = resolve_traffic(args, pinned=not on_hosts(args))
    except UsageError:
        if shutil.which(args.impl) is None:
            raise
        watch_it = f"sudo copyscope watch {args.impl}"
        raise UsageError(f"{args.impl}: a program, not a strategy; to watch it: {watch_it}") from None
    modelled = asked_to_model(args)
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    path = choose_path(args)
    plans = [
        traffic_plan(args, instruments, seed + repeat, in_pieces=traffic.in_pieces, moves=traffic.moves)
        for repeat in range(args.repeat)
    ]
    hosts = hosts_of(args.sender_at, args.receiver_at, args.tree) if on_hosts(args) else None
    if hosts is None or any(host.near for host in hosts.values()):
        entry.need_root("run", argv)
    out = keeping.open_directory(args.out)
    keeping.check_file(args.json)
    workload = workload_section(args, traffic.resolved)
    revision = ask_revision()

    def meanwhile() -> None:
        from copyscope.commands import outcome  # noqa: PLC0415 (100 ms, which cost nothing here)

        outcome.get_ready(revision)

    records: list[Record] = []
    interrupted, kept = False, True
    for repeat, plan in enumerate(plans):
        title = f"{workload['impl']} over {path.kind}" + (
            f", run {repeat + 1} of {args.repeat}" if args.repeat > 1 else ""
        )
        run_id = store.run_id(None, {**workload, "topology": path.kind, "mtu": args.mtu}, repeat)
        with Ending() as ending, _kept_if_it_fails(records, args):
            with Steps(
                title,
                len(tuple(plan.segments)),
                quiet=args.quiet or args.duration * args.repeat < 2,
                silent=args.quiet,
            ) as steps:
                subject = OwnTraffic(path, traffic, hosts)
                raw = Session(plan, subject, steps, meanwhile).perform(ending.hold)
            from copyscope.commands import outcome  # noqa: PLC0415 (there by now: meanwhile())

            made = outcome.record_of(
                raw,
                args,
                run_id=run_id,
                seed=seed + repeat,
                revision=revision(),
                repeat=repeat,
                workload=workload,
            )
            made |= modelled(interrupted=raw.interrupted)
            kept &= not args.simulate or raw.interrupted or "modelled" in made
            kept &= outcome.report(made, raw, args, out)
            records.append(made)
        if args.json != "-" and subject.kept is not None:
            print(visible(f"kept: {', '.join(subject.kept.names)}"))
            for line in (*subject.kept.look, *subject.kept.delete):
                print(visible(f"  {line}"))
        interrupted = raw.interrupted or bool(ending.asked and len(records) < args.repeat)
        if interrupted:
            break
    if args.repeat > 1:
        kept &= outcome.report_together(records, args)
    if interrupted:
        return entry.INTERRUPTED
    return 0 if kept and all(made["verdict"]["valid"] for made in records) else entry.FAILED


class Modelling(Protocol):
    """Makes the section `modelled` of a record, once for all runs; {} where there is none."""

    def __call__(self, *, interrupted: bool) -> Record: ...


def asked_to_model(args: argparse.Namespace) -> Modelling:
    """What --simulate adds to each record. Raises UsageError and RunError before anything is measured."""
    if not args.simulate:
        return lambda *, interrupted: {}  # noqa: ARG005 (its name is the protocol's)
    from copyscope.commands import simulate  # noqa: PLC0415 (40 ms before the first packet)

    wanted = simulate.beside(args)
    made: list[Record] = []

    def model(*, interrupted: bool) -> Record:
        if not made and not interrupted:
            try:
                made.append({"modelled": simulate.section(wanted, quiet=args.quiet)})
            except RunError as error:
                # What was measured is shown all the same.
                entry.say(f"--simulate: {error}")
                made.append({})
        return made[0] if made else {}

    return model


def _one_strategy(first: str, second: str, *_: str) -> NoReturn:
    both = f"{first} {second}"
    raise UsageError(f"{both}: a run has one strategy: sudo copyscope compare {both} runs both alternately")


@contextlib.contextmanager
def _kept_if_it_fails(records: list[Record], args: argparse.Namespace) -> Iterator[None]:
    """What fails is this run: those before it are written all the same."""
    try:
        yield
    except BaseException:
        if records and args.json:
            keeping.write_json(records, args.json)
        raise
