"""tools/profile.py --pid, --comm, --cgroup, -- COMMAND: one run beside a program of somebody else's."""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from copyscope.commands import entry, keeping
from copyscope.commands.watch_arguments import check_usage, parser, split
from copyscope.crossover import advice
from copyscope.errors import NotStartedError, RunError
from copyscope.escaping import visible
from copyscope.files import regular_file
from copyscope.ledger.compare_tiers import why_not
from copyscope.ledger.derive import derive
from copyscope.ledger.program.live import Window
from copyscope.machine import fingerprint
from copyscope.paths import all_results
from copyscope.plan import gate
from copyscope.plan.arms import (
    INSTRUMENTS,
    SAMPLED,
    Arm,
    all_at_once,
    arm_probes,
    parse_count,
    parse_instruments,
)
from copyscope.record import store
from copyscope.record.assemble import Identity
from copyscope.record.check import typed
from copyscope.record.program.assemble import assemble
from copyscope.record.same_machine import where_else
from copyscope.render.live import LiveView, has_screen
from copyscope.render.terminal import make_console, print_lines, report_width
from copyscope.render.tiers import tier_lines
from copyscope.render.watch import render
from copyscope.run.build import build_if_stale, git_revision
from copyscope.run.program.command import Output
from copyscope.run.program.plan import Seen, WatchPlan
from copyscope.run.program.target import Target, find_cgroup, find_netns, parse_pids
from copyscope.run.program.watcher import Watcher
from copyscope.start import streams

Record = dict[str, Any]

# Said of a command that outlasts its measurement.
AFTER = "waiting for its end (Ctrl-C is passed on)"
# Every arm once. Each block has its attaching and detaching, which is most of what the live view costs.
LIVE_BLOCK_S = 2.0
# A program of somebody else's goes at its own pace, and need not have begun.
NO_WARM_UP = "no warm-up to choose by"


def main(argv: list[str]) -> int:
    """Exit status: the command's own when it is not 0, else 0 valid, 1 invalid. Errors are raised."""
    options, command = split(argv)
    args = parser().parse_args(options)
    check_usage(args, command)
    if os.geteuid() != 0:
        raise RunError(f"needs root to load BPF: sudo tools/profile.py {' '.join(argv)}")
    build_if_stale()
    fingerprint.check_pid_namespace()
    target = find_target(args, command)
    out = keeping.open_directory(args.out)
    keeping.check_json(args.json)
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    workload = {"impl": None, "command": list(command) or None, "messages": None}
    workload["duration_s"] = args.duration
    section = {**target_section(target, target.name()), "baseline": not args.no_baseline}
    git, dirty = git_revision()
    digest = {"target": target.how, "name": section["name"]}
    identity = Identity(store.run_id(None, digest, 0), None, 0, 0, seed, git, dirty)
    view = LiveView(wanted=args.live)
    window = Window(workload, section, args.frequency)

    def begin(watcher: Watcher) -> None:
        if not args.quiet and not args.live:
            there = watcher.is_watching()
            print(beginning(target, section["name"], args.duration, there=there), file=sys.stderr)

    made: Record | None = None
    kept, failed = False, 0
    with Watcher(make_plan(args, target, seed), begin, partial(show, view=view, window=window)) as watcher:
        try:
            with view:
                seen = watcher.perform()
            if watcher.command is not None:
                watcher.command.show()
            made = derive(assemble(seen, workload, section, identity, args.frequency))
            if args.advise:
                add_advice(made)
            kept = keep(made, seen, args, out)
            sys.stdout.flush()
            if command and seen.status is None and not args.quiet:
                entry.say("profile", f"measured; {section['name']} goes on: {AFTER}")
        except RunError as error:
            if watcher.command is None or not watcher.command.released or isinstance(error, NotStartedError):
                raise
            failed = error.status
            goes_on = watcher.command.poll() is None
            entry.say("profile", f"{error}" + (f"; {section['name']} goes on: {AFTER}" if goes_on else ""))
        finally:
            # Whatever became of the measurement and its report, the command is not ours to end.
            status = watcher.wait_for_command()
    if status or made is None:
        return status or failed
    if args.compare_tiers and why_not(typed(made)):
        return 1
    return 0 if kept and made["verdict"]["valid"] else 1


def show(watcher: Watcher, *, view: LiveView, window: Window) -> None:
    """One more picture; when nobody looks any more the measurement ends, and the command goes on."""
    if not view.wanted:
        return
    segment = watcher.seen.segments[-1]
    window.add_load(segment["block"], watcher.read_load())
    if not view.is_due(segment["volumes"][3]["t_ns"]):
        return
    view.update(window.record(watcher.seen, watcher.collector.ask("samples", "samples")))
    sys.stdout.flush()
    if streams.reader_has_gone(sys.stdout):
        watcher.end("the reader of its output has ended")


def add_advice(made: Record) -> None:
    here = made["machine"]
    made["advice"] = advice.advise(made, read_crossovers(all_results(here["hostname"]), here))


def beginning(target: Target, name: str, duration_s: float | None, *, there: bool) -> str:
    """What is said when a measurement begins."""
    later = target.how in ("comm", "cgroup")
    name = visible(name)
    until = "until Ctrl-C" if later else "until it ends, or Ctrl-C"
    if duration_s is not None:
        until = f"for {duration_s:g} s"
    if there or not later:
        return f"watching {name} {until}"
    where = f"called {target.comm}" if target.how == "comm" else f"in {target.cgroup}"
    return visible(f"no process {where} runs now: waiting {until}")


def make_plan(args: argparse.Namespace, target: Target, seed: int) -> WatchPlan:
    """`auto` is exact where the kernel allows it, as for traffic of our own; the live view shows samples."""
    if args.instruments != "auto" or args.compare_tiers:
        return plan_with(args, target, seed, parse_instruments(args.instruments))
    sampled = plan_with(args, target, seed, SAMPLED)
    # A sample that falls into a kprobe's program is lost (bpf_prog_active): not in one segment.
    if args.live or args.whole:
        return sampled
    return replace(plan_with(args, target, seed, INSTRUMENTS), otherwise=sampled)


def plan_with(args: argparse.Namespace, target: Target, seed: int, instruments: tuple[str, ...]) -> WatchPlan:
    probes = watch_probes(instruments)
    return WatchPlan(
        target=target,
        probes=whole_probes(probes) if args.whole else dict(probes),
        duration_s=args.duration,
        frequency_hz=args.frequency,
        gate=gate.given(args.gate, "--whole" if args.whole else None) or gate.default(NO_WARM_UP),
        calls_one_in=args.gate or 1,
        counters="counters" in instruments,
        seed=seed,
        block_s=LIVE_BLOCK_S if args.live else None,
        whole=args.whole,
        baseline=not args.no_baseline,
        output=command_output(args),
        attach=args.attach,
        count=None if args.count is None else parse_count(args.count),
    )


def command_output(args: argparse.Namespace) -> Output:
    """Nothing that a command prints may get between the lines of a record, or into the screen."""
    if args.live and has_screen():
        return "kept"
    return "stderr" if args.json == "-" or args.live else "own"


def watch_probes(instruments: tuple[str, ...]) -> dict[Arm, tuple[str, ...]]:
    """The arms of a run of our own, with copies in the place of bytes, and packets beside the calls."""
    extra = {"bytes": ("copies",), "calls": ("calls", "packets", "shape")}
    return {
        arm: tuple(name for probe in probes for name in extra.get(probe, (probe,)))
        for arm, probes in arm_probes(instruments).items()
    }


def whole_probes(probes: dict[Arm, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """All in one segment; the timing of calls first: while it slows them down, nothing else has to wait until
    it is needed (on_sight.h)."""
    ((arm, names),) = all_at_once(probes).items()
    return {arm: tuple(sorted(names, key=lambda name: name != "calls"))}


def find_target(args: argparse.Namespace, command: list[str]) -> Target:
    how = "command" if command else "pid" if args.pid else "comm" if args.comm else "cgroup"
    return Target(
        how=how,
        pids=parse_pids(args.pid) if args.pid else (),
        comm=args.comm,
        cgroup=find_cgroup(args.cgroup) if args.cgroup else None,
        command=tuple(command),
        follow=not args.no_follow,
        netns=find_netns(args.netns) if args.netns else None,
    )


def target_section(target: Target, name: str) -> Record:
    return {
        "how": target.how,
        "name": name,
        "comm": target.comm,
        "cgroup": str(target.cgroup) if target.cgroup else None,
        "netns": str(target.netns) if target.netns else None,
        "follow": target.follow,
    }


def read_crossovers(hosts: Iterable[Path], here: Record) -> list[Record] | None:
    """What tools/crossover.py has measured on machines of this name, the newest first; None: nothing.

    Each row gets `file`, where it stands; `path`, over which it was measured; `elsewhere`, the machine that
    it was measured on, where that is not the one here.
    """
    found: list[tuple[str, list[Record]]] = []
    for file in sorted(file for host in hosts for file in host.glob("*/crossover.json")):
        try:
            document = json.loads(regular_file.read(file))
            # The time of a file is that of its checkout. Older files do not say when they were measured.
            started = str(document.get("started") or "")
            known = {"file": str(Path(*file.parts[-4:])), "elsewhere": where_else(document["machine"], here)}
            rows = [
                {**row, **known, "path": row["where"].get("topology", document["topology"])}
                for row in document["crossovers"]
            ]
            found.append((started, rows))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # What was measured of the program is worth more than the advice.
            why = f"left out, not a crossover file: {error!r}: run tools/crossover.py {file.parent}"
            entry.say("profile", f"--advise: {file}: {why}")
    found.sort(key=lambda one: one[0], reverse=True)
    return [row for _, rows in found for row in rows] or None


def keep(made: Record, seen: Seen, args: argparse.Namespace, out: Path | None) -> bool:
    """Files first: a reader of the table may go away at any line. One that fails does not lose the table."""
    kept = True
    if out is not None:
        kept = keeping.keep(made, (seen.collector or {}).get("samples", []), out)
    if args.json:
        kept = keeping.write_json(made, args.json) and kept
    if args.json != "-":
        console = make_console()
        render(made, verbose=args.verbose, explain=args.explain, console=console)
        if args.compare_tiers:
            print_lines(tier_lines(made, report_width(console)), console)
    return kept
