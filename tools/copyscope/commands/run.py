# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope run`: measure one send strategy, once or several times, and print what its copies cost."""

import argparse
import contextlib
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterator
from typing import NoReturn

from copyscope.base import paths
from copyscope.base.errors import RunError, UsageError
from copyscope.base.spelling import visible
from copyscope.commands import entry, output_files
from copyscope.commands.output_files import SignalGuard
from copyscope.commands.watch_arguments import TARGET_OPTIONS, split_command
from copyscope.machine.hosts import hosts_of
from copyscope.plan.arguments import parser
from copyscope.plan.options import (
    TrafficOptions,
    check_usage,
    choose_path,
    on_hosts,
    resolve_traffic,
    workload_section,
)
from copyscope.plan.run_plan import traffic_plan
from copyscope.record import store
from copyscope.record.run import Run, SimulatedRun
from copyscope.run.build import start_git_revision
from copyscope.run.session import Session
from copyscope.run.traffic import OwnTraffic
from copyscope.show.progress import StepProgress


def main(argv: list[str]) -> int:
    """Run `copyscope run`. Exit status: 0 valid, 1 failed or invalid, 2 usage, 130 interrupted."""
    return entry.run("run", lambda: _parse_and_run(argv), "interrupted before anything was measured")


def _parse_and_run(argv: list[str]) -> int:
    """Parse the options and run, or suggest the right command if the options are not for `run`.

    Return the exit status.
    """
    options, command = split_command(argv)
    run_options = parser()
    args, unknown_words = run_options.parse_known_args(options)
    if command and args.simulate:
        raise UsageError(
            "--simulate: not for a command; to run the command in a simulated machine, use "
            f"{paths.command()} simulate -- {shlex.join(command)}"
        )
    if command or any(word.partition("=")[0] in TARGET_OPTIONS for word in unknown_words):
        raise UsageError(
            "measures only its own traffic; to watch a program, run "
            f"sudo {paths.command()} watch {shlex.join(argv)}"
        )
    if unknown_words and not unknown_words[0].startswith("-"):
        _refuse_several_strategies(args.impl, *unknown_words)
    elif unknown_words:
        run_options.error(f"unrecognized arguments: {' '.join(unknown_words)}")
    return _run(args, argv)


def _run(args: argparse.Namespace, argv: list[str]) -> int:
    """Measure all repeats, report each of them, and return the exit status."""
    instruments = check_usage(args)
    if "," in args.impl:
        _refuse_several_strategies(*args.impl.split(","))
    entry.build()
    traffic = _resolve_traffic(args)
    simulate_once = simulator(args)
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    path = choose_path(args)
    plans = [
        traffic_plan(args, instruments, seed + repeat, in_pieces=traffic.in_pieces, moves=traffic.moves)
        for repeat in range(args.repeat)
    ]
    hosts = hosts_of(args.sender_at, args.receiver_at, args.tree) if on_hosts(args) else None
    if hosts is None or any(host.near for host in hosts.values()):
        entry.require_root("run", argv)
    out = output_files.create_directory(args.out)
    output_files.check_file(args.json)
    workload = workload_section(args, traffic.resolved)
    revision = start_git_revision()

    def preload() -> None:
        # Importing `outcome` takes 100 ms, which cost nothing while the collector loads its programs.
        from copyscope.commands import outcome  # noqa: PLC0415

        outcome.preload(revision)

    runs: list[Run] = []
    interrupted, complete = False, True
    for repeat, plan in enumerate(plans):
        number = f", run {repeat + 1} of {args.repeat}" if args.repeat > 1 else ""
        with SignalGuard() as guard, _saving_earlier_runs(runs, args):
            with StepProgress(
                f"{workload['impl']} over {path.kind}{number}",
                len(tuple(plan.segments)),
                quiet=args.quiet or args.duration * args.repeat < 2,
                silent=args.quiet,
            ) as steps:
                subject = OwnTraffic(path, traffic, hosts)
                raw = Session(plan, subject, steps, preload).perform(guard.measuring_done)
            from copyscope.commands import outcome  # noqa: PLC0415 (loaded by preload())

            run = outcome.make_run(
                raw,
                args,
                run_id=store.run_id(None, {**workload, "topology": path.kind, "mtu": args.mtu}, repeat),
                seed=seed + repeat,
                revision=revision(),
                repeat=repeat,
                workload=workload,
            )
            simulated_run = simulate_once(raw.interrupted)
            run.raw.modelled = None if simulated_run is None else simulated_run.simulated
            complete &= not args.simulate or raw.interrupted or simulated_run is not None
            complete &= outcome.report_run(run, raw, args, out)
            runs.append(run)
        if args.json != "-" and subject.kept is not None:
            print(visible(f"kept: {', '.join(subject.kept.names)}"))
            for line in (*subject.kept.inspect, *subject.kept.delete):
                print(visible(f"  {line}"))
        interrupted = raw.interrupted or bool(guard.ignored_signals and len(runs) < args.repeat)
        if interrupted:
            break
    if args.repeat > 1:
        complete &= outcome.report_repeats(runs, args)
    if interrupted:
        return entry.INTERRUPTED
    return 0 if complete and all(run.derived.verdict.valid for run in runs) else entry.FAILED


def _resolve_traffic(args: argparse.Namespace) -> TrafficOptions:
    """Let the traffic program check its options. If the strategy is a program's name, suggest `watch`."""
    try:
        # The processors of another machine are unknown here, so no thread is pinned to them.
        return resolve_traffic(args, pinned=not on_hosts(args))
    except UsageError:
        if shutil.which(args.impl) is None:
            raise
        watch = f"sudo {paths.command()} watch {args.impl}"
        raise UsageError(f"{args.impl}: a program, not a strategy; to watch it, run {watch}") from None


def simulator(args: argparse.Namespace) -> Callable[[bool], SimulatedRun | None]:
    """Return a function that simulates the run's traffic and returns the simulated run.

    The function returns None without --simulate. Its argument is True after an interrupted run. All repeats
    share one simulation. Raises UsageError or RunError before anything is measured.
    """
    if not args.simulate:
        return lambda _interrupted: None
    # Importing `simulate` takes 40 ms, which would delay the first packet of a run without --simulate.
    from copyscope.commands import simulate  # noqa: PLC0415

    requested = simulate.request_for_run(args)
    results: list[SimulatedRun | None] = []

    def simulate_once(interrupted: bool) -> SimulatedRun | None:
        """Return the simulated run, or None if the measured run was interrupted or the simulation failed."""
        if not results and not interrupted:
            try:
                results.append(simulate.simulate_run(requested, quiet=args.quiet))
            except RunError as error:
                # The measured run is reported without the simulation.
                entry.print_message(f"--simulate: {error}")
                results.append(None)
        return results[0] if results else None

    return simulate_once


def _refuse_several_strategies(first: str, second: str, *_: str) -> NoReturn:
    """Raise a UsageError that suggests `compare` for two or more strategies."""
    raise UsageError(
        f"{first} {second}: a run has one strategy; sudo {paths.command()} compare {first} {second} runs both"
    )


@contextlib.contextmanager
def _saving_earlier_runs(runs: list[Run], args: argparse.Namespace) -> Iterator[None]:
    """Run the body of the `with`. If it fails, write the earlier repeats' records to the file of --json."""
    try:
        yield
    except BaseException:
        if runs and args.json:
            output_files.write_runs(runs, args.json)
        raise
