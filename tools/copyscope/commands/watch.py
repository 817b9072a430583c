# SPDX-License-Identifier: GPL-2.0-only
"""The commands `watch`, `advise` and `why`: measure a program while it runs, and print a report."""

import argparse
import contextlib
import math
import os
import secrets
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from copyscope.base import process
from copyscope.base.errors import NotStartedError, RunError, UsageError
from copyscope.base.paths import all_results, host_results
from copyscope.base.spelling import counted, one_line
from copyscope.commands import entry, outcome, output_files
from copyscope.commands.entry import print_message
from copyscope.commands.kept_results import read_crossovers, stand_in_directory
from copyscope.commands.watch_arguments import misplaced_options_hint, parse
from copyscope.commands.watch_target import (
    NAMES_HINT,
    find_target,
    require_running_program,
    suggest_name,
    target_section,
)
from copyscope.judge import advice
from copyscope.ledger.derive import Window
from copyscope.plan.run_plan import watch_plan
from copyscope.record import store
from copyscope.record.run import Run
from copyscope.record.session_result import AFTER_DURATION, Raw
from copyscope.run.build import start_git_revision
from copyscope.run.command import Output
from copyscope.run.program import WatchedProgram
from copyscope.run.session import Session, SilentProgress
from copyscope.run.target import WatchTarget
from copyscope.show.layout import SafeConsole, has_screen
from copyscope.show.live import LiveView
from copyscope.show.progress import Clock
from copyscope.show.watch import render
from copyscope.sweep.results import has_records

# Part of the messages about a watched command that runs longer than its measurement.
WAITING_FOR_COMMAND = "waiting for the command to end (Ctrl-C is passed on)"
# Suggest --whole for a command shorter than this, which may end before every instrument had a segment.
SHORT_COMMAND_S = 1.0
# Seconds that attaching and the report take together on an idle machine.
OVERHEAD_S = 1.0
# Most seconds that advise adds by itself if its first measurement has too few samples for an answer.
MORE_MAX_S = 60.0
# Explain the delay if the measurement begins more than this many seconds after the start.
SLOW_START_S = 5.0


def main(argv: list[str]) -> int:
    """Run `copyscope watch`, `advise` or `why`, and return the exit status.

    The exit status is the watched command's if that is not 0. The help lists all other statuses.
    """
    verb, words = typed_words(argv)
    return entry.run(verb, lambda: _watch(argv, verb, words), "interrupted before anything was measured")


def typed_words(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command and its arguments as the user typed them: (`advise`, ...) for `--advise ...`.

    verbs.py runs `advise` and `why` as `watch` with this first option.
    """
    first_word = next(iter(argv), "")
    if first_word in ("--advise", "--why"):
        return first_word.removeprefix("--"), list(argv[1:])
    return "watch", list(argv)


def _watch(argv: list[str], verb: str, words: list[str]) -> int:
    """Parse the options, find the target, then serve metrics or measure once. Return the exit status.

    argv: the arguments, which begin with --advise or --why for these commands
    verb, words: the command and its arguments as the user typed them, for messages
    """
    args, command = parse(argv)
    entry.require_root(verb, words)
    require_running_program(args)
    entry.build()
    target = find_target(args, command)
    if args.serve is not None:
        # `serve` imports asyncio, which takes long.
        from copyscope.commands import serve  # noqa: PLC0415

        return serve.serve(args, target)
    return _measure_and_report(args, command, target)


def _measure_and_report(args: argparse.Namespace, command: list[str], target: WatchTarget) -> int:
    """Measure the target, and once more if `advise` has too few samples; return the exit status.

    command: watched command with its arguments; empty if another target is watched
    """
    out = output_files.create_directory(args.out)
    output_files.check_file(args.json)
    result = _measure(args, command, target, out)
    return result if isinstance(result, int) else _measure_again(result, args, out)


@dataclass(frozen=True)
class Unfinished:
    """A first measurement with too few samples for an answer. `more_s`: duration that gives enough."""

    run: Run
    raw: Raw
    more_s: float


def _measure_again(first: Unfinished, args: argparse.Namespace, out: Path | None) -> int:
    """Measure a running program once more, for longer. If that fails, report the first measurement.

    out: directory of --out
    """
    spent = first.run.derived.sides.target
    samples = counted(spent.samples or 0 if spent else 0, "sample")
    how = f"measuring again for {first.more_s:g} s (Ctrl-C ends it)"
    try:
        target = find_target(args, [])
        print_message(f"{target.name()}: {samples}: too few to tell; {how}")
        args.duration = first.more_s
        result = _measure(args, [], target, out, is_last=True)
        assert isinstance(result, int)
        return result
    except RunError as error:
        print_message(f"{error}; the first measurement follows")
    complete = add_advice(first.run, args, nullcontext())
    complete = outcome.report_run(first.run, first.raw, args, out, render) and complete
    return 0 if complete and first.run.derived.verdict.valid else entry.FAILED


def _measure(
    args: argparse.Namespace,
    command: list[str],
    target: WatchTarget,
    out: Path | None,
    *,
    is_last: bool = False,
) -> int | Unfinished:
    """Measure the target once, print the report, wait for the command, and return the exit status.

    command: watched command with its arguments; empty if another target is watched
    out: directory of --out
    is_last: True to report a measurement even if `advise` needs more samples
    """
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    name = target.name()
    section = target_section(target, name, with_arguments=args.with_arguments)
    section |= {"duration_s": args.duration}
    revision = start_git_revision()
    run_id = store.run_id(None, {"target": target.how, "name": name}, 0)

    def on_begin(has_process: bool) -> None:
        if not args.quiet and not args.live:
            delay_s = time.monotonic() - session.began_s
            line = describe_begin(target, name, args.duration, has_process=has_process)
            print(one_line(line + describe_slow_start(delay_s)), file=sys.stderr)

    _announce(args, name, command)
    run: Run | None = None
    complete, failure_status, more_s = False, 0, None
    program = WatchedProgram(target, args.duration, output=command_output(args), begun=on_begin)
    window = Window(section, args.frequency, in_turn=args.interval is not None)
    screen = WatchScreen(args, name, program, window)
    plan = watch_plan(args, seed, target.arguments())
    session = screen.session = Session(plan, program, screen, partial(outcome.preload, revision))
    with program:
        try:
            with screen.shown():
                raw = session.perform()
            if program.command is not None:
                program.command.show()
            run = outcome.make_run(raw, args, run_id=run_id, seed=seed, revision=revision(), target=section)
            require_processes(run, args)
            more_s = None if is_last else seconds_to_add(run, args)
            if more_s is None:
                has_advice = add_advice(run, args, program.stop.aside())
                complete = outcome.report_run(run, raw, args, out, render) and has_advice
            sys.stdout.flush()
            if not args.quiet and (hint := suggest_whole(run)) is not None:
                print_message(hint)
            if command and raw.status is None and not args.quiet:
                print_message(f"measured; {section['name']} is still running: {WAITING_FOR_COMMAND}")
        except RunError as error:
            if program.command is None or not program.command.released or isinstance(error, NotStartedError):
                raise
            failure_status = error.status
            still_runs = program.command.poll() is None
            suffix = f"; {section['name']} is still running: {WAITING_FOR_COMMAND}" if still_runs else ""
            print_message(f"{error}{suffix}")
        finally:
            # copyscope never ends the user's command, even if the measurement or the report failed.
            command_status = program.wait_for_command()
    if command_status or run is None:
        return command_status or failure_status
    if more_s is not None:
        return Unfinished(run, raw, more_s)
    return 0 if complete and run.derived.verdict.valid else entry.FAILED


def seconds_to_add(run: Run, args: argparse.Namespace) -> float | None:
    """Return how many seconds `advise` measures for the second time, or None to measure only once.

    The program must still be running, and the time must not exceed MORE_MAX_S. If more time is needed, the
    advice says how long to watch. A command is measured only once, because copyscope waits for its end.
    """
    watched = run.raw.watched
    still_runs = watched.ended == AFTER_DURATION and watched.how != "command"
    if not args.advise or args.live or args.interval or not still_runs or not run.derived.verdict.valid:
        return None
    needed_s = advice.seconds_to_tell(run)
    return None if needed_s is None or needed_s > MORE_MAX_S else math.ceil(needed_s / 5) * 5.0


def _announce(args: argparse.Namespace, name: str, command: list[str]) -> None:
    """Print a hint about misplaced options, and how long the measurement will take."""
    if not args.quiet and (hint := misplaced_options_hint(command)) is not None:
        print_message(hint)
    if not args.quiet and not args.live:
        print(one_line(describe_plan(name, args.duration)), file=sys.stderr)


class WatchScreen(SilentProgress):
    """Progress display of a watch: a progress bar, a screen with --live, or lines with --interval.

    The screen and the lines are updated after each segment. If the reader of the output closes the pipe, the
    measurement ends.
    """

    def __init__(self, args: argparse.Namespace, name: str, program: WatchedProgram, window: Window) -> None:
        """Create the display that the options select.

        name: name of the target on screens
        program: the watched program
        window: data of the latest segments, for the screen and the lines
        """
        self.session: Session
        prints_lines = bool(args.interval)
        self.view = LiveView(
            wanted=args.live or prints_lines, every_s=args.interval, duration_s=args.duration
        )
        # A command writes to the same terminal, and a bar would garble its output, a screen or lines.
        shares_terminal = args.live or prints_lines or program.is_command
        self.clock = Clock(name, args.duration, quiet=args.quiet or shares_terminal)
        self._name, self._program, self._window = name, program, window
        self._is_silent = args.quiet or args.live

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the display while the body of the `with` runs."""
        with self.view, self.clock, read_keys(self.press) if self.view.has_keys else nullcontext():
            yield

    def prepare(self, step: str) -> None:
        self.clock.prepare(step)
        self.view.prepare(f"{self._name}: {step}")

    def begin(self, step: str) -> None:
        self.clock.begin(step)

    def slow(self, step: str) -> None:
        if not self._is_silent:
            print_message(f"{self._name}: {step}")

    def press(self, key: str) -> None:
        """Handle a key at once, even in the middle of a segment: q ends the measurement."""
        if key == "q":
            # SIGINT also wakes the wait for the end of a segment. The watched command does not receive it.
            os.kill(os.getpid(), signal.SIGINT)
        else:
            self.view.press(key)

    def done(self) -> None:
        """Update the display after a segment. Stop the measurement if the reader of the output has exited."""
        self.clock.done()
        if not self.view.wanted:
            return
        raw = self.session.raw
        segment = self.session.last_segment()
        self._window.add_load(segment.block, self.session.read_load())
        if not self.view.is_due(segment.marks[3]["target"]["t_ns"]):
            return
        answer = self.session.ask_samples()
        self._program.code.name_samples(answer["samples"])
        self.view.update(self._window.run(raw, answer))
        sys.stdout.flush()
        if process.reader_has_gone(sys.stdout):
            self._program.stop.because("the reader of its output has ended")


@contextlib.contextmanager
def read_keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call on_key() for each pressed key, from a thread, while the body of the `with` runs.

    If standard input is not a terminal, on_key() is never called.
    """
    try:
        terminal = sys.stdin.fileno()
        settings = termios.tcgetattr(terminal)
    except (OSError, ValueError, AttributeError, termios.error):
        yield
        return
    end_reader, end_writer = os.pipe()

    def read() -> None:
        while True:
            readable, _, _ = select.select([terminal, end_reader], [], [])
            if end_reader in readable or not (key := os.read(terminal, 1)):
                return
            on_key(key.decode(errors="replace"))

    thread = threading.Thread(target=read, daemon=True)
    tty.setcbreak(terminal)
    thread.start()
    try:
        yield
    finally:
        os.write(end_writer, b".")
        thread.join(1)
        termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
        os.close(end_reader)
        os.close(end_writer)


def require_processes(run: Run, args: argparse.Namespace) -> None:
    """Raise RunError if no process with the target's name ran, so that no empty report is printed.

    With --json or --out there is no error, and the empty record is written.
    """
    if not args.comm or run.raw.watched.pids or args.json or args.out:
        return
    target = args.comm if args.program is not None else f"--comm {args.comm}"
    next_step = suggest_name(args.comm) or NAMES_HINT
    raise RunError(f"{target}: no process of this name ran in {run.raw.run.measured_s:.1f} s; {next_step}")


def suggest_whole(run: Run) -> str | None:
    """Return a hint to use --whole if a command ended before every instrument had a segment, or None."""
    target, section = run.raw.watched, run.raw.run
    is_short = target.ended == "the command ended" and section.measured_s < SHORT_COMMAND_S
    # An invalid run prints its own next step.
    if target.how != "command" or not is_short or not run.derived.verdict.valid:
        return None
    phases = {segment.phase for segment in section.segments}
    if len(phases) == 1 and "+" in phases.pop():
        return None  # the command was measured with --whole
    ran = f"{one_line(target.name)} ran for {section.measured_s:.2f} s"
    return f"{ran}, too short for all instruments in turn; --whole uses all instruments from start to end"


def add_advice(run: Run, args: argparse.Namespace, earlier_handlers: AbstractContextManager[None]) -> bool:
    """Add the advice and the answer of `why` to a run if the options request them.

    With --crossover, measure the crossover that the advice depends on, and advise again. Return False if that
    measurement failed or was interrupted; the run is then reported with the first advice.

    earlier_handlers: context in which a signal ends the crossover, not the report
    """
    wants_advice = args.advise or args.crossover or args.measure
    if not args.why and not wants_advice:
        return True
    machine = run.raw.machine
    facts = store.machine_facts(machine)
    crossovers = read_crossovers(all_results(machine.hostname), facts)
    # A program that already uses zero-copy also gets the answer of why with its advice.
    if args.why or (args.advise and (run.derived.zerocopy or run.raw.buffers)):
        run.derived.why = advice.why_section(run, crossovers)
    if not wants_advice:
        return True
    run.derived.advice = advice.advice_section(run, crossovers)
    missing_crossover = run.derived.advice.measure
    if args.crossover and missing_crossover:
        # Importing `crossover` takes 50 ms.
        from copyscope.commands import crossover  # noqa: PLC0415

        # The advice contains --out if the usual directory has a crossover of other strategies or another
        # machine.
        name = f"crossover-{machine.kernel}" if "--out" in missing_crossover else "crossover"
        print_message("--crossover: measuring (99 short runs); Ctrl-C prints the advice without it")
        try:
            with earlier_handlers:
                crossover.measure(host_results(machine.hostname, machine.kernel) / name)
        except RunError as error:
            print_message(f"--crossover: {error}; the same command resumes")
            return False
        run.derived.advice = advice.advice_section(run, read_crossovers(all_results(machine.hostname), facts))
    return add_stand_in(run, args, earlier_handlers)


def add_stand_in(run: Run, args: argparse.Namespace, earlier_handlers: AbstractContextManager[None]) -> bool:
    """Add the savings that the first remedy brings in copyscope's own traffic.

    They are measured now with --measure; otherwise those of earlier runs are used if there are any.

    Return False if the measurement failed or was interrupted.

    earlier_handlers: context in which a signal ends the measurement, not the report
    """
    plan = advice.stand_in_plan(run)
    if plan is None:
        if args.measure:
            print_message("--measure: copyscope has no traffic that stands for the first remedy")
        return True
    directory = stand_in_directory(plan, run)
    if not args.measure and not has_records(directory):
        return True
    # Importing `stand_in` takes 50 ms.
    from copyscope.commands import stand_in  # noqa: PLC0415

    if not args.measure:
        try:
            stand_in.add_kept(plan, run)
        except (RunError, UsageError) as error:
            # Unusable earlier runs must not cost the report of the program.
            print_message(f"{directory}: left out: {error}; remove the directory, then use --measure")
        return True
    try:
        print_message(f"--measure: {plan.describe()}; Ctrl-C prints the advice without it")
        with earlier_handlers:
            stand_in.measure(plan, run)
    except (RunError, UsageError) as error:
        print_message(f"--measure: {error}; the same command resumes")
        return False
    return True


def describe_plan(name: str, duration_s: float | None) -> str:
    """Return the line that is printed before attaching: the target, and how long the measurement takes.

    duration_s: time of --duration; None: the option was not given
    """
    if duration_s is None:
        return f"{name}: attaching, about {OVERHEAD_S:g} s"
    return f"{name}: attaching; {duration_s:g} s of measuring, about {duration_s + OVERHEAD_S:g} s in all"


def describe_slow_start(delay_s: float) -> str:
    """Return the reason for a slow start, after a semicolon, or '' if the start was not slow.

    delay_s: seconds from the start of copyscope to the start of the measurement
    """
    if delay_s <= SLOW_START_S:
        return ""
    return f"; getting ready took {delay_s:.0f} s: attaching waits for every CPU, and the CPUs were busy"


def describe_begin(target: WatchTarget, name: str, duration_s: float | None, *, has_process: bool) -> str:
    """Return the line that is printed when the measurement begins.

    has_process: True if a process of the target runs now
    """
    may_start_later = target.gains_processes
    end = "until Ctrl-C" if may_start_later else "until the program ends, or Ctrl-C"
    if duration_s is not None:
        end = f"for {duration_s:g} s"
    if has_process or not may_start_later:
        return one_line(f"watching {name} {end}")
    if target.comm is None:
        return one_line(f"no process in {target.cgroup} runs now; waiting {end}")
    suggestion = suggest_name(target.comm)
    return one_line(f"no process called {target.comm} runs now; {f'{suggestion} '.lstrip()}waiting {end}")


def command_output(args: argparse.Namespace) -> Output:
    """Return the destination for the output of a watched command.

    The output never mixes with a record on stdout or with a live screen.
    """
    if args.live and has_screen(SafeConsole()):
        return "kept"
    return "stderr" if args.json == "-" or args.live else "own"
