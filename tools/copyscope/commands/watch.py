"""copyscope watch and advise: one run beside a program."""

import argparse
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from msgspec import json, to_builtins

from copyscope import streams
from copyscope.commands import entry, keeping, keys, outcome
from copyscope.commands.watch_arguments import misplaced, parse
from copyscope.errors import NotStartedError, RunError
from copyscope.escaping import one_line
from copyscope.files import regular_file
from copyscope.judge import advice, crossover_file, problems
from copyscope.ledger.window import Window
from copyscope.paths import all_results, host_results
from copyscope.plan.run_plan import watch_plan
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.record.segments import Record
from copyscope.run import processes
from copyscope.run.build import ask_revision
from copyscope.run.command import Output
from copyscope.run.program import WatchedProgram
from copyscope.run.session import Session, Silent
from copyscope.run.target import Target, container_path, find_cgroup, find_netns, parse_pids, unit_path
from copyscope.show.console import SafeConsole, has_screen
from copyscope.show.live import LiveView
from copyscope.show.progress import Clock
from copyscope.show.watch import render

# Said of a command that outlasts its measurement.
AFTER = "waiting for it to end (Ctrl-C is passed on)"


def main(argv: list[str]) -> int:
    """Exit status: the command's own when it is not 0, else 0 valid, 1 failed or invalid, 2 usage."""
    return entry.run(lambda: _watch(argv), "interrupted before anything was measured")


def _watch(argv: list[str]) -> int:
    args, command = parse(argv)
    entry.need_root(*as_typed(argv))
    entry.build()
    target = find_target(args, command)
    if args.serve is not None:
        from copyscope.commands import serve  # noqa: PLC0415 (asyncio, for which nobody else waits)

        return serve.serve(args, target)
    return _measure(args, command, target)


def as_typed(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The verb and its words as they were given: `advise` and `why` are watch with an option (verbs.py)."""
    first, *rest = argv
    return (first[2:], rest) if first in ("--advise", "--why") else ("watch", list(argv))


def _measure(args: argparse.Namespace, command: list[str], target: Target) -> int:
    """One run and its report."""
    out = keeping.open_directory(args.out)
    keeping.check_file(args.json)
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    section = target_section(target, target.name())
    section |= {"command": list(command) or None, "duration_s": args.duration}
    revision = ask_revision()
    run_id = store.run_id(None, {"target": target.how, "name": section["name"]}, 0)

    def begun(there: bool) -> None:
        if not args.quiet and not args.live:
            print(
                one_line(
                    beginning(target, section["name"], args.duration, there=there)
                    + late(time.monotonic() - session.began_s)
                ),
                file=sys.stderr,
            )

    if not args.quiet and (hint := misplaced(command)) is not None:
        entry.say(hint)
    if not args.quiet and not args.live:
        print(one_line(planned(section["name"], args.duration)), file=sys.stderr)
    made: Record | None = None
    kept, failed = False, 0
    program = WatchedProgram(target, args.duration, output=command_output(args), begun=begun)
    window = Window(section, args.frequency, in_turn=args.interval is not None)
    screen = Screen(args, section["name"], program, window)
    plan = watch_plan(args, seed, target.arguments())
    session = screen.session = Session(plan, program, screen, partial(outcome.get_ready, revision))
    with program:
        try:
            with screen.shown():
                seen = session.perform()
            if program.command is not None:
                program.command.show()
            made = outcome.record_of(
                seen, args, run_id=run_id, seed=seed, revision=revision(), target=section
            )
            check_met(made, args)
            asked = add_advice(made, args, program.stop.aside())
            kept = outcome.report(made, seen, args, out, render) and asked
            sys.stdout.flush()
            if not args.quiet and (hint := whole_hint(made)) is not None:
                entry.say(hint)
            if command and seen.status is None and not args.quiet:
                entry.say(f"measured; {section['name']} is still running: {AFTER}")
        except RunError as error:
            if program.command is None or not program.command.released or isinstance(error, NotStartedError):
                raise
            failed = error.status
            goes_on = program.command.poll() is None
            entry.say(f"{error}" + (f"; {section['name']} is still running: {AFTER}" if goes_on else ""))
        finally:
            # Whatever became of the measurement and its report, the command is not ours to end.
            status = program.wait_for_command()
    if status or made is None:
        return status or failed
    return 0 if kept and made["verdict"]["valid"] else 1


class Screen(Silent):
    """One more picture after each segment, with --live; without a reader the measurement ends."""

    def __init__(self, args: argparse.Namespace, name: str, program: WatchedProgram, window: Window) -> None:
        self.session: Session
        lines = bool(args.interval)
        self.view = LiveView(wanted=args.live or lines, every_s=args.interval, duration_s=args.duration)
        # A command has the terminal to itself, and so have lines.
        told = args.live or lines or program.is_command
        self.clock = Clock(name, args.duration, quiet=args.quiet or told)
        self._name, self._program, self._window = name, program, window
        self._silent = args.quiet or args.live

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Until the run is over."""
        with self.view, self.clock, keys.pressed(self.press) if self.view.has_keys else nullcontext():
            yield

    def prepare(self, step: str) -> None:
        self.clock.prepare(step)
        self.view.prepare(f"{self._name}: {step}")

    def begin(self, step: str) -> None:
        self.clock.begin(step)

    def slow(self, step: str) -> None:
        if not self._silent:
            entry.say(f"{self._name}: {step}")

    def press(self, key: str) -> None:
        """A key of the screen; it is shown at once, whatever is measured meanwhile."""
        if key == "q":
            # As Ctrl-C, which wakes whoever waits for a segment's end; of a command it is not passed on.
            os.kill(os.getpid(), signal.SIGINT)
        else:
            self.view.press(key)

    def done(self) -> None:
        self.clock.done()
        if not self.view.wanted:
            return
        seen, session = self.session.raw, self.session
        segment = seen.segments[-1]
        self._window.add_load(segment["block"], session.read_load())
        if not self.view.is_due(segment["marks"][3]["target"]["t_ns"]):
            return
        answer = session.setup.collector.ask("samples", "samples")
        self._program.code.name(answer["samples"])
        self.view.update(typed_whole(self._window.record(seen, answer)))
        sys.stdout.flush()
        if streams.reader_has_gone(sys.stdout):
            self._program.stop.because("the reader of its output has ended")


def check_met(made: Record, args: argparse.Namespace) -> None:
    """Raises RunError where no process of that name ran: a report of nothing says less. A file is written."""
    if args.comm and not made["target"]["pids"] and not (args.json or args.out):
        for_s = f"{made['run']['measured_s']:.1f} s"
        raise RunError(
            f"--comm: {args.comm}: no process of this name ran in {for_s}: "
            + (meant(args.comm) or "ps -eo comm lists names; of a script give the pid (pgrep -f)")
        )


def whole_hint(made: Record) -> str | None:
    """Of a command that was over before all of the segments had their turn."""
    target, run = made["target"], made["run"]
    short = target["ended"] == "the command ended" and run["measured_s"] < SHORT_S
    if target["how"] != "command" or not short or not made["verdict"]["valid"]:
        return None  # not valid: its next step says it
    if len({segment["phase"] for segment in run["segments"]}) == 1 and "+" in run["segments"][0]["phase"]:
        return None
    ran = f"{one_line(target['name'])} ran for {run['measured_s']:.2f} s"
    return f"{ran}, too short for all instruments in turn: --whole uses all from start to end"


def meant(comm: str) -> str:
    """What runs here and may be meant by a name that nobody has; empty: nothing."""
    name = processes.alike(comm)
    return "" if name is None else f"did you mean {one_line(name)}?"


def add_why(
    made: Record, args: argparse.Namespace, crossovers: Sequence[crossover_file.Found] | None
) -> None:
    """Where it was asked for, and beside advice to a program that sends with zero-copy."""
    run = typed_whole(made)
    if args.why or (args.advise and (run.derived.zerocopy or run.raw.buffers)):
        made["why"] = to_builtins(problems.why(run, crossovers))


def add_advice(made: Record, args: argparse.Namespace, aside: AbstractContextManager[None]) -> bool:
    """Where it was asked for; with --crossover what it still asks for is measured, and it is given again.

    `aside`: meanwhile a signal ends the crossover. False: that was not measured, or was interrupted; what is
    known of the program is reported all the same.
    """
    if not args.why and not args.advise and not args.crossover:
        return True
    here = made["machine"]
    crossovers = read_crossovers(all_results(here["hostname"]), here)
    add_why(made, args, crossovers)
    if not args.advise and not args.crossover:
        return True
    made["advice"] = advice.advise(made, crossovers)
    asked = made["advice"]["measure"]
    if args.crossover and asked:
        from copyscope.commands import crossover  # noqa: PLC0415 (50 ms that nobody else waits for)

        # Where there is one of another machine or of other strategies it goes beside that.
        name = f"crossover-{here['kernel']}" if "--out" in asked else "crossover"
        entry.say("--crossover: measuring (99 short runs); Ctrl-C prints the advice without it")
        try:
            with aside:
                crossover.measure(host_results(here["hostname"], here["kernel"]) / name)
        except RunError as error:
            entry.say(f"--crossover: {error}; the same command resumes")
            return False
        made["advice"] = advice.advise(made, read_crossovers(all_results(here["hostname"]), here))
    return True


# Shorter commands may end before each instrument had its turn.
SHORT_S = 1.0
# On an idle machine attaching, and the report, take so long together.
AROUND_S = 1.0
READY_S = 5.0


def planned(name: str, duration_s: float | None) -> str:
    """What is said before anything is attached."""
    if duration_s is None:
        return f"{name}: attaching, about {AROUND_S:g} s"
    return f"{name}: attaching; {duration_s:g} s of measuring, about {duration_s + AROUND_S:g} s in all"


def late(ready_s: float) -> str:
    """What is said of a measurement that began so long after copyscope did."""
    text = f"; getting ready took {ready_s:.0f} s: a hook waits for every CPU, and they are busy or slow"
    return text if ready_s > READY_S else ""


def beginning(target: Target, name: str, duration_s: float | None, *, there: bool) -> str:
    """What is said when a measurement begins."""
    later = target.how in ("comm", "cgroup")
    until = "until Ctrl-C" if later else "until it ends, or Ctrl-C"
    if duration_s is not None:
        until = f"for {duration_s:g} s"
    if there or not later:
        return one_line(f"watching {name} {until}")
    where, other = f"in {target.cgroup}", ""
    if target.comm is not None:
        where, other = f"called {target.comm}", meant(target.comm)
    return one_line(f"no process {where} runs now: {other}{' ' if other else ''}waiting {until}")


def command_output(args: argparse.Namespace) -> Output:
    """Nothing that a command prints may get between the lines of a record, or into the screen."""
    if args.live and has_screen(SafeConsole()):
        return "kept"
    return "stderr" if args.json == "-" or args.live else "own"


def find_target(args: argparse.Namespace, command: list[str]) -> Target:
    how = "command" if command else "pid" if args.pid else "comm" if args.comm else "cgroup"
    named = {"container": args.container, "unit": args.unit}
    return Target(
        how=how,
        pids=parse_pids(args.pid) if args.pid else (),
        comm=args.comm,
        cgroup=_find_group(args),
        # The container or the unit, in the words of the user: the path of its cgroup is long.
        called=next((f"{what} {name}" for what, name in named.items() if name), None),
        command=tuple(command),
        follow=not args.no_follow,
        netns=find_netns(args.netns) if args.netns else None,
    )


def _find_group(args: argparse.Namespace) -> Path | None:
    """The cgroup of --cgroup, --unit or --container."""
    if args.unit:
        return find_cgroup(unit_path(args.unit))
    if args.container:
        return find_cgroup(container_path(args.container))
    return find_cgroup(args.cgroup) if args.cgroup else None


def target_section(target: Target, name: str) -> Record:
    return {
        "how": target.how,
        "name": name,
        "comm": target.comm,
        "cgroup": str(target.cgroup) if target.cgroup else None,
        "netns": str(target.netns) if target.netns else None,
        "follow": target.follow,
    }


def read_crossovers(hosts: Iterable[Path], here: Record) -> list[crossover_file.Found] | None:
    """What copyscope crossover has measured on machines of this name, the newest first; None: nothing."""
    found: list[tuple[str, list[crossover_file.Found]]] = []
    for file in sorted(file for host in hosts for file in host.glob("*/crossover.json")):
        try:
            document = json.decode(regular_file.read(file), type=crossover_file.Document)
            # The time of a file is that of its checkout.
            found.append((document.started or "", crossover_file.rows_of(document, file, here)))
        except (OSError, ValueError, RecursionError) as error:
            # What was measured of the program is worth more than the advice.
            why = f"left out, not a crossover file: {error!r}: run copyscope crossover {file.parent}"
            entry.say(f"--advise: {file}: {why}")
    found.sort(key=lambda one: one[0], reverse=True)
    return [row for _, rows in found for row in rows] or None
