"""One run, of our traffic or of a program: from its plan to what it leaves behind (record/session_result.py).

A segment: mark, attach, begin, wait, end, detach, mark. Function hooks come before the last blocks and stay:
closed, they do nothing, and the collector leaves them to a process that nobody waits for
(src/collector/main.c).

A run that fails half-way keeps what it measured: the raw record then has the errors in run.errors, and the
sections that could not be reported any more are null. No arithmetic on results.
"""

import contextlib
import os
import resource
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from copyscope.errors import AbandonedError, describe
from copyscope.machine import fingerprint
from copyscope.machine.clock import read_clock
from copyscope.plan.instruments import EXACT
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Segment
from copyscope.plan.tier import gated
from copyscope.record.segments import WARM_UP, Record
from copyscope.record.session_result import Mark, Raw
from copyscope.record.two_hosts import Message
from copyscope.run import processes
from copyscope.run.child import UNHEARD, Child, Elsewhere, Program
from copyscope.run.perf_stat import PerfStat

# Trying every function hook takes seconds on an old kernel under emulation, and so does attaching or
# detaching forty kprobes: each waits for a grace period.
LOAD_S = SWITCH_S = 60.0
# Nobody is to look at a silent program for longer.
SLOW_S = 2.0
# When the collector has ended its hooks of functions are gone after so long at most.
GONE_S = 10.0
# What a program that is asked to stop may take before its report is given up.
STOP_S = 10.0
# What a segment of a phase is for, while it lasts. Phases of others have names of their own (crosscheck).
MEASURED = {
    "unprobed": "with nothing attached",
    "ledger": "bytes and CPU time",
    "calls": "system calls",
    "bytes": "bytes",
    "functions": "functions",
    "unarmed": "what hooks cost",
}


class Steps(Protocol):
    """Who is told how far the run is."""

    def prepare(self, step: str) -> None: ...

    def begin(self, step: str) -> None: ...

    def done(self) -> None: ...

    def expect(self, total: int) -> None: ...

    def slow(self, step: str) -> None: ...


class Silent:
    """For a caller that does not want to be told."""

    def prepare(self, step: str) -> None:
        pass

    def begin(self, step: str) -> None:
        pass

    def done(self) -> None:
        pass

    def expect(self, total: int) -> None:
        pass

    def slow(self, step: str) -> None:
        pass


# Of the runs before this one in this process: each ends when the hooks of its functions are gone.
_going: list[int] = []


def wait_for_earlier_hooks() -> None:
    """What they leave behind is to be in no segment of the next run; who makes one run does not wait."""
    while _going:
        end = _going.pop()
        select.select([end], [], [], GONE_S)
        os.close(end)


@contextlib.contextmanager
def slowly(steps: Steps, step: str) -> Iterator[None]:
    """What is done meanwhile is named if it takes long."""
    timer = threading.Timer(SLOW_S, steps.slow, [step])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass
class Setup:
    """What a session and its subject work with: the plan, what was started, what was read so far."""

    plan: RunPlan
    raw: Raw = field(default_factory=Raw)
    # Whatever is to end with the run.
    until: ExitStack = field(default_factory=ExitStack)
    collector: Program = field(init=False)
    # Programs of ours that are asked for a report.
    children: list[Child] = field(default_factory=list)
    # What counts each side's events.
    perfs: dict[str, PerfStat] = field(default_factory=dict)

    def spawn(self, name: str, argv: Sequence[str], at: Elsewhere | None = None) -> Child:
        """A program of ours, which ends with the run."""
        child = Child(name, argv, at)
        self.until.callback(child.end)
        return child


class Subject(ABC):
    """Who is measured: traffic of our own (traffic.py), or a program (program.py).

    It knows the session's setup, which prepare() is given, and nothing of the session.
    """

    setup: Setup

    @abstractmethod
    def prepare(self, setup: Setup) -> None:
        """Start the collector, and do all that can be done while it loads its programs."""

    @abstractmethod
    def start(self) -> None:
        """The collector is ready: tell it whom to measure."""

    def segments(self, planned: Iterable[Segment]) -> Iterator[Segment]:
        """Those that are to be measured; each has been when the next one is asked for."""
        return iter(planned)

    @abstractmethod
    def mark(self, closed: Message | None = None) -> Mark:
        """Before anything is attached for a segment; or after, when the collector has `closed` all of it."""

    @abstractmethod
    def begin(self, segment: Segment, opened: Message | None) -> Mark:
        """The segment begins. `opened`: what the collector said when all was attached; None: nothing was."""

    @abstractmethod
    def end(self, segment: Segment) -> Mark:
        """Let its time pass; it ends."""

    @abstractmethod
    def pids(self) -> Iterable[int]:
        """Its processes, or their threads."""

    def ended_ns(self) -> int:
        """CPU time of children of ours that have ended and were its own."""
        return 0

    def peers(self) -> Iterable[int]:
        """Processes of this machine that it talks to, and that are neither side."""
        return ()

    def load(self) -> Record | None:
        """What the CPUs of other machines have done so far; None where they are those of this one."""
        return None

    def finish(self, *, failed: bool) -> None:  # noqa: B027 (most have nothing to do)
        """All has been reported. `failed`: before all was measured."""


class Session:
    """One run from its plan to what it leaves behind; perform() is the fixed order."""

    def __init__(
        self, plan: RunPlan, subject: Subject, steps: Steps, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """`meanwhile` is called while the collector loads its programs, which takes a quarter of a second."""
        self.setup = Setup(plan)
        self.subject = subject
        self.steps = steps
        self.raw = self.setup.raw
        self.began_s = 0.0
        self._meanwhile = meanwhile
        self._cpus: frozenset[int] = frozenset()
        self._hooked = self._failed = False

    def perform(self, hold: Callable[[], object] = lambda: None) -> Raw:
        """Run to the end, or as far as it goes. Raises only when nothing at all could be measured.

        `hold` is called when nothing more will be: a signal is to interrupt no report.
        """
        self.began_s, times = time.monotonic(), fingerprint.cpu_times()
        with self.setup.until:
            try:
                try:
                    self._set_up()
                    self._run_segments()
                finally:
                    hold()
            except AbandonedError:
                raise
            except KeyboardInterrupt:
                if not self._has_measured():
                    raise
                self._interrupt()
            except Exception as error:
                # Also what nobody has foreseen: what was measured is worth more.
                if not self._has_measured():
                    raise
                self._failed = True
                self._note(describe(error))
            try:
                self._collect_reports()
            except AbandonedError:
                raise
            except KeyboardInterrupt:
                self._interrupt()
        # What was read at the begin and the end is this machine's.
        if self.raw.machine is not None and self.raw.places is None:
            self.raw.machine["steal_percent"] = fingerprint.steal_percent(times, fingerprint.cpu_times())
        self.raw.wall_s = time.monotonic() - self.began_s
        return self.raw

    def _interrupt(self) -> None:
        self.raw.interrupted = True
        self._note("interrupted: the run was stopped before its end")

    def _has_measured(self) -> bool:
        return any(segment["phase"] != WARM_UP for segment in self.raw.segments)

    # -- set up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        setup = self.setup
        self.steps.prepare("loading the BPF programs")
        self.subject.prepare(setup)
        if self._meanwhile is not None:
            self._meanwhile()
        with slowly(self.steps, "loading the BPF programs"):
            hooks = setup.collector.expect("ready", LOAD_S)["hooks"]
        plan, tier = setup.plan.on_this_kernel(hooks)
        setup.plan, self.raw.tier = plan, tier if plan.gate is None else gated(tier, plan.gate)
        self.raw.bytes_phase = next((phase for phase, names in plan.probes.items() if "bytes" in names), None)
        if isinstance(plan.segments, tuple):
            self.steps.expect(len(plan.segments))
        self.steps.prepare("attaching")
        self.subject.start()

    # -- measure --------------------------------------------------------------------------------------

    def _run_segments(self) -> None:
        for segment in self.subject.segments(self.setup.plan.segments):
            if segment.phase == WARM_UP:
                self.steps.prepare("warming up")
                self.measure(segment)
                continue
            if not self.raw.loads:
                wait_for_earlier_hooks()
                self.raw.loads.append(self._read_end())
            phases = segment.phase.split("+")
            self.steps.begin("measuring " + " and ".join(MEASURED.get(one, one) for one in phases))
            self.measure(segment)
            self.steps.done()

    def measure(self, segment: Segment) -> None:
        """One segment, with whatever its phase has attached."""
        subject, probes = self.subject, segment.probes
        if probes is None:
            probes = self.setup.plan.probes.get(segment.phase, ())
        if not self._hooked and len(probes) == 1 and probes[0] in EXACT:
            self._hook()
        before = subject.mark()
        with self.attached(segment.phase, probes) as said:
            begin = subject.begin(segment, said.get("opened"))
            if probes == ("functions",):
                # They begin to count at one moment, not while one after the other is attached.
                before = begin
            end = subject.end(segment)
        after = subject.mark(said["closed"]) if "closed" in said else end
        self.raw.segments.append(
            {
                "index": segment.index,
                "block": segment.block,
                "phase": segment.phase,
                "marks": (before, begin, end, after),
            }
        )

    def _hook(self) -> None:
        """Attach function hooks, once, before the first segment that wants them."""
        self._hooked = True
        _going.append(os.dup(self.setup.collector.fileno()))
        with slowly(self.steps, "attaching the hooks of functions"):
            self.setup.collector.ask("open unarmed", "opened", SWITCH_S)
            self.setup.collector.ask("close", "closed", SWITCH_S)

    @contextlib.contextmanager
    def attached(self, phase: str, probes: tuple[str, ...]) -> Iterator[dict[str, Message]]:
        """Yields what the collector answers: `opened` when all is attached, `closed` when it is gone."""
        said: dict[str, Message] = {}

        def switch(command: str, event: str) -> None:
            if probes:
                with slowly(self.steps, f"{phase}: waiting until its hooks are {event}"):
                    said[event] = self.setup.collector.ask(command, event, SWITCH_S)

        switch(f"open {','.join(probes)}", "opened")
        for perf in self._counting(phase):
            perf.enable()
        try:
            yield said
        finally:
            for perf in self._counting(phase):
                perf.disable()
            switch("close", "closed")

    def _counting(self, phase: str) -> list[PerfStat]:
        return list(self.setup.perfs.values()) if "ledger" in phase else []

    def _read_end(self) -> Record:
        """The load at one end of the run, and the clock of the CPUs, where they are this machine's."""
        load = self.read_load()
        return load | {"clock": read_clock(self._cpus) if self._cpus else None}

    def read_load(self) -> Record:
        """What the CPUs that the subject may use have done so far, and copyscope.

        Of many CPUs, what others do on those that it may not use is no matter.
        """
        elsewhere = self.subject.load()
        if elsewhere is not None:
            return elsewhere
        self._cpus = self._cpus or fingerprint.usable_cpus(self.subject.pids())
        helpers = [self.setup.collector.pid, *(perf.pid for perf in self.setup.perfs.values() if perf.pid)]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended_ns = round((ended.ru_utime + ended.ru_stime) * 1e9) - self.subject.ended_ns()
        running_ns = time.process_time_ns() + sum(processes.cpu_ns(pid) or 0 for pid in helpers)
        peers = {pid: processes.cpu_ns(pid) for pid in self.subject.peers()}
        return fingerprint.read_load(running_ns + ended_ns, self._cpus) | {"peers": peers}

    # -- end ------------------------------------------------------------------------------------------

    def _collect_reports(self) -> None:
        """Each child that still runs says what it knows; one that has ended is named, and what fails."""
        self._try(lambda: self.raw.loads.append(self._read_end()))
        for side, perf in self.setup.perfs.items():
            self._try(partial(self._count, side, perf))
        for child in self.setup.children:
            self.raw.reports[child.name] = self._report(child, "stop")
        self.raw.collector = self._report(self.setup.collector, "report")
        self._try(lambda: self.subject.finish(failed=self._failed))

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            self._note(describe(error))

    def _count(self, side: str, perf: PerfStat) -> None:
        self.raw.counters[side] = {name: count.as_record() for name, count in perf.finish().items()}

    def _report(self, child: Program, command: str) -> Message | None:
        try:
            report = child.ask(command, "report", STOP_S)
        except Exception as error:
            self._note(describe(error))
            return None
        for unheard in report.pop(UNHEARD, ()):
            self._note(unheard)
        return report

    def _note(self, error: str) -> None:
        self.raw.errors += [error] * (error not in self.raw.errors)
