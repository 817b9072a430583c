"""copyscope watch --serve: session after session of one program, and its metrics for whoever asks."""

import argparse
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from copyscope import VERSION
from copyscope.commands import entry
from copyscope.commands.watch import find_target, target_section
from copyscope.errors import RunError, UsageError
from copyscope.escaping import one_line
from copyscope.exports.openmetrics import Family, written
from copyscope.ledger.window import Window
from copyscope.plan.run_plan import served_plan
from copyscope.record.check import typed_whole
from copyscope.record.session_result import Totals
from copyscope.run import processes
from copyscope.run.program import WatchedProgram
from copyscope.run.session import Session, Silent
from copyscope.run.target import Target
from copyscope.serving.counts import Counts
from copyscope.serving.endpoint import Endpoint

# Why a session ends that another one follows: what WatchedProgram says, and what is seen here.
PROGRAM_ENDED, FAILED = "the program ended", "the measurement failed"
GROUP_GONE = "its cgroup has gone"
# How often it is looked whether a cgroup has come back, and how soon a session that failed is made anew.
LOOK_S, RETRY_S = 1.0, 15.0


def serve(args: argparse.Namespace, target: Target) -> int:
    """Until a signal: 0. Raises RunError where nobody can listen, or the first session fails."""
    served = Served(args, target)
    written(())  # what writes it is there
    with Endpoint(args.serve, served.text) as endpoint:
        try:
            served.say(f"http://{endpoint.address}/metrics until Ctrl-C")
            while (reason := served.session(target)) in (PROGRAM_ENDED, GROUP_GONE, FAILED):
                served.say(f"{reason}: waiting for the next one")
                target = next_target(args, target, served.comm)
        except KeyboardInterrupt:
            pass
    return 0


def next_target(args: argparse.Namespace, target: Target, comm: str | None) -> Target:
    """The same program after its end: of a pid the next one of its name, of a cgroup that which is there."""
    if target.how == "pid":
        return replace(target, how="comm", pids=(), comm=comm)
    while target.how == "cgroup":
        try:
            return find_target(args, [])
        except RunError:
            time.sleep(LOOK_S)
    return target


class Served(Silent):
    """What is known so far, and a session's steps, after each of which more is known."""

    def __init__(self, args: argparse.Namespace, target: Target) -> None:
        self.comm = target.comm or _name_of(target.pids)
        self._args, self._name = args, target.name()
        self._counts = Counts()
        self._shown: list[Family] = []
        self._read_ns: int | None = None
        self._session: Session
        self._program: WatchedProgram
        self._window: Window
        self._group: tuple[Target, int] | None = None
        here = os.uname()
        called = one_line(self.comm or self._name)
        self._counts.own["watched", (called, target.how, here.nodename, here.release, VERSION)] = 1
        self._counts.own["unwatched_seconds", ()] = 0.0

    def say(self, text: str) -> None:
        if not self._args.quiet:
            entry.say(f"{self._name}: {text}")

    def text(self, answers: Mapping[str, int]) -> bytes:
        """For the thread that answers: `_shown` is replaced, never changed."""
        scrapes = [({"status": status}, count) for status, count in sorted(answers.items())]
        shown = self._shown
        return written(f._replace(samples=scrapes) if f.name == "scrapes" else f for f in shown)

    def session(self, target: Target) -> str | None:
        """Until the program ends, or a signal comes: why."""
        args = self._args
        section = target_section(target, self._name) | {"command": None, "duration_s": None}
        self._window = Window(section, args.frequency, in_turn=True)
        self._program = WatchedProgram(target, None, frugal=True)
        self._counts.begin_session()
        with self._program:
            try:
                self._group = None if target.cgroup is None else (target, target.cgroup.stat().st_ino)
                plan = served_plan(args, secrets.randbelow(1 << 31), target.arguments())
                self._session = Session(plan, self._program, self)
                errors = self._session.perform().errors
            except (RunError, OSError) as error:  # the cgroup may have gone again
                if self._read_ns is None:
                    raise
                errors = [str(error)]
        if self._program.last is not None:
            self._read(self._program.last)
        reason = self._program.stop.reason
        if errors and reason in (None, FAILED):
            self.say(errors[0])
            time.sleep(RETRY_S)
            return FAILED
        return reason

    def done(self) -> None:
        """A segment is over."""
        seen, session, own = self._session.raw, self._session, self._counts.own
        segment = seen.segments[-1]
        before, end = segment["marks"][0]["target"], segment["marks"][2]["target"]
        if segment["index"] == 0 and self._read_ns is not None:
            own["unwatched_seconds", ()] += (before["t_ns"] - self._read_ns) / 1e9
        self._counts.read(dict(end))
        load = session.read_load()
        self._window.add_load(segment["block"], load)
        if segment["phase"] == "ledger":
            answer = session.setup.collector.ask("samples forget", "samples")
            self._counts.sampled(typed_whole(self._window.record(seen, answer)))
            self._window.forget(seen)
            self._program.forget_ended()
        own["watcher_cpu_seconds", ()] = load["own_ns"] / 1e9
        own["watcher_resident_bytes", ()] = sum(
            processes.resident_bytes(pid) for pid in (os.getpid(), session.setup.collector.pid)
        )
        self._read(end)
        if self._group is not None and _is_gone(*self._group):
            self._program.stop.because(GROUP_GONE)

    def _read(self, reading: Totals) -> None:
        """From now on this is what is shown."""
        self._read_ns = reading["t_ns"]
        self._counts.read(dict(reading))
        self._counts.own["read_timestamp_seconds", ()] = time.time()
        self._shown = list(self._counts.families())


def _is_gone(target: Target, inode: int) -> bool:
    """Whether the directory is no more, or is another one: a unit that starts again has a new one."""
    assert target.cgroup is not None
    try:
        return target.cgroup.stat().st_ino != inode
    except OSError:
        return True


def _name_of(pids: tuple[int, ...]) -> str | None:
    """The name under which the next one will be known. Raises UsageError for several programs."""
    known = [one for one in map(processes.read_process, pids) if one is not None]
    names = {one.comm for one in known}
    if len(names) > 1:
        raise UsageError(f"--serve: {', '.join(sorted(names))}: are several programs: give pids of one name")
    return next(iter(names), None)
