"""One run, of our traffic or of a program. A segment: mark, attach, mark, wait, mark, detach, mark.

Function hooks come before the last blocks and stay: closed, they do nothing, and the collector leaves them to
a process that nobody waits for (src/collector/main.c).

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from copyscope.errors import AbandonedError, describe
from copyscope.machine import fingerprint
from copyscope.machine.clock import read_clock
from copyscope.plan.instruments import EXACT
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Segment
from copyscope.plan.tier import Tier
from copyscope.record.segments import WARM_UP
from copyscope.run import processes
from copyscope.run.child import UNHEARD, Child, Elsewhere, Message, Program
from copyscope.run.counters import Counter
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

# What each side has moved and used so far, at one moment.
Mark = Mapping[str, Message]


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
class Raw:
    """What a run leaves behind, however it ends."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    # index, block and phase, and as `marks` the four of a segment.
    segments: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    interrupted: bool = False
    tier: Tier | None = None
    # In which segments the kernel counts bytes.
    bytes_phase: str | None = None
    topology: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    # Of a run on two hosts: what is known of each.
    places: dict[str, Any] | None = None
    # Of traffic of our own: the CPUs of each side.
    placement: dict[str, list[dict[str, Any]]] | None = None
    # What a topology that was to be kept is called.
    kept: Any = None
    # Of the sides that are programs of ours.
    reports: dict[str, Message | None] = field(default_factory=dict)
    collector: Message | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    # What the machine had done when the first measured segment began, and when the last was over.
    loads: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0


class Subject(ABC):
    """Who is measured: traffic of our own (traffic.py), or a program (program.py)."""

    # Whether the CPU time of every process that we have started and that has ended is our own.
    owns_children = True

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.session: Session
        # Programs of ours that are asked for a report.
        self.children: list[Child] = []
        # What counts each side's events.
        self.perfs: dict[str, PerfStat] = {}

    def arguments(self) -> list[str]:
        """The collector's options."""
        return []

    def start_collector(self, argv: list[str]) -> Program:
        """One here; a subject on two hosts has one on each. `argv` is that of one here."""
        return self.session.spawn("collector", argv)

    def load_elsewhere(self) -> dict[str, Any] | None:
        """What the CPUs of other machines have done; None where they are those of this one."""
        return None

    @abstractmethod
    def prepare(self) -> None:
        """Whatever can be done while the collector loads its programs."""

    @abstractmethod
    def start(self, plan: RunPlan, collector: Program) -> None:
        """Whatever is to be done before the first segment."""

    def segments(self, planned: Iterable[Segment]) -> Iterator[Segment]:
        """Those that are to be measured; each has been when the next one is asked for."""
        return iter(planned)

    @abstractmethod
    def probes(self, phase: str) -> tuple[str, ...]:
        """What is attached in a segment of this phase."""

    @abstractmethod
    def before(self) -> Mark:
        """Before anything is attached for a segment."""

    def counting(self) -> None:  # noqa: B027 (most have nothing to do)
        """perf counts from now on."""

    @abstractmethod
    def begin(self, opened: Message) -> Mark:
        """The segment begins. `opened`: what the collector said when all was attached."""

    @abstractmethod
    def run(self, segment: Segment) -> None:
        """Let its time pass."""

    @abstractmethod
    def end(self) -> Mark:
        """The segment ends."""

    @abstractmethod
    def after(self, closed: Message) -> Mark:
        """When all that was attached for it is gone again. `closed`: what the collector said then."""

    def has_ended(self) -> bool:
        """Whether all that could be measured has ended."""
        return False

    @abstractmethod
    def pids(self) -> Iterable[int]:
        """Its processes."""

    def finish(self) -> None:  # noqa: B027 (most have nothing to do)
        """All has been reported."""


class Session:
    """Holds the collector, and with its subject all else that a run starts; perform() is the fixed order."""

    def __init__(
        self, plan: RunPlan, subject: Subject, steps: Steps, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """`meanwhile` is called while the collector loads its programs, which takes a quarter of a second."""
        self.plan = plan
        self.subject = subject
        self.steps = steps
        self.raw = subject.raw
        subject.session = self
        self.collector: Program
        self.until = ExitStack()
        self.failed = False
        self.began_s = 0.0
        self._meanwhile = meanwhile
        self._cpus: frozenset[int] = frozenset()
        self._hooked = False
        # CPU time of helpers that have ended, where that of all children is not ours.
        self._ended_ns = 0

    def perform(self, hold: Callable[[], object] = lambda: None) -> Raw:
        """Run to the end, or as far as it goes. Raises only when nothing at all could be measured.

        `hold` is called when nothing more will be: a signal is to interrupt no report.
        """
        self.began_s, times = time.monotonic(), fingerprint.cpu_times()
        with self.until:
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
                self.failed = True
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

    def spawn(self, name: str, argv: Sequence[str], at: Elsewhere | None = None) -> Child:
        """A program of ours, which ends with the run."""
        child = Child(name, argv, at)
        self.until.callback(child.end)
        return child

    def _set_up(self) -> None:
        self.steps.prepare("loading the BPF programs")
        self.collector = self.subject.start_collector([*self.plan.collector(), *self.subject.arguments()])
        self.subject.prepare()
        if self._meanwhile is not None:
            self._meanwhile()
        with slowly(self.steps, "loading the BPF programs"):
            hooks = self.collector.expect("ready", LOAD_S)["hooks"]
        self.plan, self.raw.tier = self.plan.on_this_kernel(hooks)
        if self.plan.gate is not None:
            self.raw.tier = self.raw.tier.gated(self.plan.gate)
        self.raw.bytes_phase = next(
            (phase for phase, names in self.plan.probes.items() if "bytes" in names), None
        )
        self.subject.start(self.plan, self.collector)

    def _run_segments(self) -> None:
        wait_for_earlier_hooks()
        self.raw.loads.append(self._read_end())
        for segment in self.subject.segments(self.plan.segments):
            self.steps.begin(f"{segment.phase} segment")
            self.measure(segment)
            self.steps.done()

    def hook(self, phase: str) -> bool:
        """Attach function hooks before the first segment that wants them; whether this is the first."""
        first = phase in EXACT and not self._hooked
        if first:
            self._hooked = True
            _going.append(os.dup(self.collector.fileno()))
            with slowly(self.steps, "attaching the hooks of functions"):
                self.collector.ask("open unarmed", "opened", SWITCH_S)
                self.collector.ask("close", "closed", SWITCH_S)
        return first

    def _read_end(self) -> dict[str, Any]:
        """The load at one end of the run, and the clock of the CPUs, where they are this machine's."""
        load = self.read_load()
        return load | {"clock": read_clock(self._cpus) if self._cpus else None}

    def read_load(self) -> dict[str, Any]:
        """What the CPUs that the subject may use have done so far, and copyscope.

        Of many CPUs, what others do on those that it may not use is no matter.
        """
        elsewhere = self.subject.load_elsewhere()
        if elsewhere is not None:
            return elsewhere
        own = [self.collector.pid, *(perf.pid for perf in self.subject.perfs.values() if perf.pid)]
        self._cpus = self._cpus or fingerprint.usable_cpus(self.subject.pids())
        own_ns = _own_cpu_ns(own, ended=self.subject.owns_children) + self._ended_ns
        return fingerprint.read_load(own_ns, self._cpus)

    def end_perf(self, perf: PerfStat) -> dict[str, Counter]:
        """What it has counted so far; it ends before the run does."""
        if not self.subject.owns_children and perf.pid:
            self._ended_ns += processes.cpu_ns(perf.pid) or 0
        return perf.finish()

    def measure(self, segment: Segment) -> None:
        """One segment, of whatever the subject has attached for its phase."""
        subject, probes = self.subject, self.subject.probes(segment.phase)
        before = subject.before()
        with self.attached(segment.phase, probes) as said:
            begin = subject.begin(said.get("opened", {}))
            if probes == ("functions",):
                # They begin to count at one moment, not while one after the other is attached.
                before = begin
            subject.run(segment)
            end = subject.end()
        after = subject.after(said.get("closed", {})) if probes else end
        named = {"index": segment.index, "block": segment.block, "phase": segment.phase}
        self.raw.segments.append({**named, "marks": (before, begin, end, after)})

    @contextlib.contextmanager
    def attached(self, phase: str, probes: tuple[str, ...]) -> Iterator[dict[str, Message]]:
        """Yields what the collector answers: `opened` when all is attached, `closed` when it is gone."""
        said: dict[str, Message] = {}

        def switch(command: str, event: str) -> None:
            said[event] = {}
            if probes:
                with slowly(self.steps, f"{phase}: waiting until its hooks are {event}"):
                    said[event] = self.collector.ask(command, event, SWITCH_S)

        switch(f"open {','.join(probes)}", "opened")
        counting = self._counting(phase)
        for perf in counting:
            perf.enable()
        if counting:
            self.subject.counting()
        try:
            yield said
        finally:
            # perf ends by itself when the last process has: its counts are whole then.
            counting = self._counting(phase)
            if counting and not self.subject.has_ended():
                for perf in counting:
                    perf.disable()
            switch("close", "closed")

    def _counting(self, phase: str) -> list[PerfStat]:
        return list(self.subject.perfs.values()) if "ledger" in phase else []

    def _collect_reports(self) -> None:
        """Each child that still runs says what it knows; one that has ended is named, and what fails."""
        self._try(lambda: self.raw.loads.append(self._read_end()))
        for side, perf in self.subject.perfs.items():
            self._try(partial(self._count, side, perf))
        for child in self.subject.children:
            self.raw.reports[child.name] = self._report(child, "stop")
        self.raw.collector = self._report(self.collector, "report")
        self._try(self.subject.finish)

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


def _own_cpu_ns(children: Iterable[int], *, ended: bool) -> int:
    """CPU time of this process, of the children named, and (`ended`) of all that have ended so far."""
    spent = time.process_time_ns() + sum(processes.cpu_ns(pid) or 0 for pid in children)
    if ended:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent += round((used.ru_utime + used.ru_stime) * 1e9)
    return spent
