# SPDX-License-Identifier: GPL-2.0-only
"""Run one measurement of our own traffic or of a watched program, from its plan to its raw results.

The steps of each segment are: mark (read the totals), attach the instruments, begin, wait, end, detach, mark.
Function hooks are attached once, before the last blocks, and stay attached. Between segments they are closed
(they do nothing). At the end, a child process of the collector detaches them, and no process waits for that
child (src/collector/main.c).

A run that fails keeps its measurements: `run.errors` in the raw record lists the errors, and sections that
could not be reported are null. This file computes no derived results.
"""

import contextlib
import os
import resource
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

from copyscope.base.errors import AbandonedError, describe
from copyscope.machine import fingerprint
from copyscope.machine.cgroups import CpuQuotas
from copyscope.machine.cores import find_siblings, read_isolated_cpus
from copyscope.machine.fingerprint import CpuLoad
from copyscope.machine.processors import read_clock
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import EXACT, PlannedSegment
from copyscope.plan.tier import with_gate
from copyscope.record.messages import CollectorReport, Mark, ProgramMessage, SwitchMessage, TrafficReport
from copyscope.record.moved import MeasuredSegment
from copyscope.record.sections import ClockState
from copyscope.record.segments import WARM_UP
from copyscope.record.session_result import LoadReading, Raw
from copyscope.run import processes
from copyscope.run.child import Child, Program, RemoteMachine
from copyscope.run.perf_stat import PerfStat
from copyscope.taxonomy.taxonomy import Taxonomy

# Time limits in seconds of loading the BPF programs, and of attaching or detaching the hooks of a segment.
# Forty kprobes take seconds on an old kernel under emulation, because each waits for a grace period.
LOAD_TIMEOUT_S = SWITCH_TIMEOUT_S = 60.0
# Most seconds that a step takes without its name in the progress display.
SLOW_STEP_S = 2.0
# Maximum time in seconds from the exit of the collector until its function hooks are detached.
DETACH_TIMEOUT_S = 10.0
# Time limit in seconds for the report of a program after the command to stop.
REPORT_TIMEOUT_S = 10.0
# Label of each phase in the progress display. Other phases are shown by their name.
PHASE_LABELS = {
    "unprobed": "with nothing attached",
    "ledger": "bytes and CPU time",
    "calls": "system calls",
    "bytes": "bytes",
    "functions": "functions",
    "unarmed": "cost of hooks",
}


class RunProgress(Protocol):
    """Progress display for a run."""

    def prepare(self, step: str) -> None: ...

    def begin(self, step: str) -> None: ...

    def done(self) -> None: ...

    def expect(self, total: int) -> None: ...

    def slow(self, step: str) -> None: ...


class SilentProgress:
    """Progress display that shows nothing."""

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


# Pipes of earlier runs in this process. Each closes when that run's function hooks are detached.
_detaching: list[int] = []


def wait_for_earlier_hooks() -> None:
    """Wait until earlier runs' function hooks are detached, so that detaching disturbs no segment.

    Returns at once in the first run of this process.
    """
    while _detaching:
        pipe = _detaching.pop()
        select.select([pipe], [], [], DETACH_TIMEOUT_S)
        os.close(pipe)


@contextlib.contextmanager
def name_if_slow(steps: RunProgress, step: str) -> Iterator[None]:
    """Name a step in the progress display if the body of the `with` takes longer than SLOW_STEP_S."""
    timer = threading.Timer(SLOW_STEP_S, steps.slow, [step])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass
class Setup:
    """State that a session shares with its subject: the plan, started programs, and results so far."""

    plan: RunPlan
    raw: Raw = field(default_factory=Raw)
    # Callbacks that close and end everything that must not outlive the run.
    cleanup: ExitStack = field(default_factory=ExitStack)
    collector: Program = field(init=False)
    # Programs of copyscope that report at the end of the run.
    children: list[Child] = field(default_factory=list)
    # The `perf stat` that counts the events of a side ("sender", "target", ...), by side.
    perfs: dict[str, PerfStat] = field(default_factory=dict)

    def spawn(self, name: str, argv: Sequence[str], at: RemoteMachine | None = None) -> Child:
        """Start a program of copyscope that ends with the run.

        `name`: name of the child in results. `argv`: local command. `at`: remote machine on which it runs, or
        None.
        """
        child = Child(name, argv, at)
        self.cleanup.callback(child.end)
        return child

    def load_symbols(self) -> None:
        """Tell the collector to read the kernel's symbols. A later expect() returns its answer, `symbols`."""
        self.collector.send(f"symbols {' '.join(Taxonomy.load().softirq_functions)}", "symbols")


class Subject(ABC):
    """Subject of a measurement: our own traffic (traffic.py) or a watched program (program.py).

    A subject uses the Setup passed to prepare(), but never the session itself.
    """

    setup: Setup

    @abstractmethod
    def prepare(self, setup: Setup) -> None:
        """Start the collector, and do whatever is possible while the collector loads its BPF programs."""

    @abstractmethod
    def start(self) -> None:
        """Tell the collector, which is now ready, which processes to measure."""

    def wait_for_traffic(self) -> None:  # noqa: B027 (our own traffic begins at once)
        """Wait for the subject's first bytes, so that traffic that starts late is measured in full."""

    def segments(self, planned: Iterable[PlannedSegment]) -> Iterator[PlannedSegment]:
        """Yield the segments to measure. A segment is complete when the next segment is requested."""
        return iter(planned)

    @abstractmethod
    def mark(self, closed: SwitchMessage | None = None) -> Mark:
        """Return the totals before hooks are attached, or after they are detached.

        `closed`: the collector's answer after they are detached, or None before they are attached.
        """

    @abstractmethod
    def begin(self, segment: PlannedSegment, opened: SwitchMessage | None) -> Mark:
        """Begin a segment; return the totals. `opened`: the collector's answer to attaching, or None."""

    @abstractmethod
    def end(self, segment: PlannedSegment) -> Mark:
        """Wait until the segment is over, and return the totals."""

    @abstractmethod
    def pids(self) -> Iterable[int]:
        """Return the pids of the subject's processes, or of their threads."""

    def cpus(self) -> frozenset[int] | None:
        """Return the CPUs that the subject's threads may use; None if they are unknown."""
        return fingerprint.usable_cpus(self.pids())

    def ended_ns(self) -> int:
        """Return the CPU time of the subject's exited processes that were children of copyscope."""
        return 0

    def peers(self) -> Iterable[int]:
        """Return the pids of other processes on this machine to which the subject is connected."""
        return ()

    def load(self) -> CpuLoad | None:
        """Return the CPU load if the subject runs on other machines; None if it runs on this machine."""
        return None

    def finish(self, *, failed: bool) -> None:  # noqa: B027 (most have nothing to do)
        """Finish a run after all reports. `failed`: True if the run ended before its last segment."""


class Session:
    """Session that turns the plan of a run into raw results. perform() lists the steps in order."""

    def __init__(
        self,
        plan: RunPlan,
        subject: Subject,
        steps: RunProgress,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Prepare a run of `plan` with `subject`. `steps`: progress display.

        `meanwhile` is called while the collector loads its BPF programs, which takes a quarter of a second.
        """
        self.setup = Setup(plan)
        self.subject = subject
        self.steps = steps
        self.raw = self.setup.raw
        self.began_s = 0.0
        self._meanwhile = meanwhile
        self._cpus: frozenset[int] = frozenset()
        self._siblings: Collection[int] = frozenset()
        self._quotas = CpuQuotas()
        self._isolated_cpus = read_isolated_cpus()
        # Isolated CPUs on which the sampler opens no events.
        self._spared_cpus: frozenset[int] = frozenset()
        self._hooked = self._failed = False

    def perform(self, hold: Callable[[], object] = lambda: None) -> Raw:
        """Run to the end, or as far as possible, and return the results. Raises only if there are no results.

        `hold` is called once the measurement has ended, so that signals do not interrupt the reports.
        """
        self.began_s, times = time.monotonic(), fingerprint.read_cpu_times()
        with self.setup.cleanup:
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
                # Catch unforeseen errors, too, because the measured segments are worth keeping.
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
        # These CPU times are times of this machine, and not of the machines of a run on two hosts.
        if self.raw.machine is not None and self.raw.places is None:
            steal_percent = fingerprint.steal_percent(times, fingerprint.read_cpu_times())
            self.raw.machine.steal_percent = steal_percent
        self.raw.wall_s = time.monotonic() - self.began_s
        return self.raw

    def _interrupt(self) -> None:
        self.raw.interrupted = True
        self._note("interrupted: the run was stopped before its end")

    def _has_measured(self) -> bool:
        return any(segment.phase != WARM_UP for segment in self.raw.segments)

    # -- set up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        """Start the collector and the subject, and choose the plan and tier for this kernel."""
        setup = self.setup
        self.steps.prepare("loading the BPF programs")
        self.subject.prepare(setup)
        if self._meanwhile is not None:
            self._meanwhile()
        with name_if_slow(self.steps, "loading the BPF programs"):
            hooks = setup.collector.expect("ready", LOAD_TIMEOUT_S)["hooks"]
        plan, tier = setup.plan.on_this_kernel(hooks)
        setup.plan, self.raw.tier = plan, tier if plan.gate is None else with_gate(tier, plan.gate)
        self.raw.bytes_phase = next((phase for phase, names in plan.probes.items() if "bytes" in names), None)
        if isinstance(plan.segments, tuple):
            self.steps.expect(len(plan.segments))
        self.steps.prepare("attaching")
        self.subject.start()

    # -- measure --------------------------------------------------------------------------------------

    def _run_segments(self) -> None:
        """Measure all segments. Read the machine's load before the first segment that follows the warm-up."""
        with name_if_slow(self.steps, "waiting for its first bytes"):
            self.subject.wait_for_traffic()
        for segment in self.subject.segments(self.setup.plan.segments):
            if segment.phase == WARM_UP:
                self.steps.prepare("warming up")
                self.measure(segment)
                continue
            if not self.raw.loads:
                wait_for_earlier_hooks()
                self.raw.loads.append(self._read_end())
            self.steps.begin(
                "measuring "
                + " and ".join(PHASE_LABELS.get(phase, phase) for phase in segment.phase.split("+"))
            )
            self.measure(segment)
            # A command may have joined a cgroup of its own meanwhile.
            if len(self.raw.loads) == 1 and segment.block == 0:
                self._quotas.add(self.subject.pids())
            self.steps.done()

    def measure(self, segment: PlannedSegment) -> None:
        """Measure one segment, with its instruments attached, and keep the totals at its four marks."""
        subject, probes = self.subject, self.setup.plan.probes_of(segment)
        if not self._hooked and len(probes) == 1 and probes[0] in EXACT:
            self._hook()
        if "sampler" in probes:
            self._spare_isolated_cpus()
        before = subject.mark()
        with self.attached(segment.phase, probes) as answers:
            begin = subject.begin(segment, answers.get("opened"))
            if probes == ("functions",):
                # All function hooks begin to count together when they are opened, not while they are
                # attached.
                before = begin
            end = subject.end(segment)
        after = subject.mark(answers["closed"]) if "closed" in answers else end
        marks = (before, begin, end, after)
        if self.raw.first_reading is None:
            self.raw.first_reading = begin.get("target")
        self.raw.segments.append(MeasuredSegment(segment.index, segment.block, segment.phase, marks))

    def _spare_isolated_cpus(self) -> None:
        """Keep sampling interrupts off isolated CPUs that the subject does not use."""
        if not self._isolated_cpus or (used := self.subject.cpus()) is None:
            return
        spared = self._isolated_cpus - used
        if spared != self._spared_cpus:
            command = f"spare {','.join(map(str, sorted(spared)))}"
            self.setup.collector.ask(command, "spared", SWITCH_TIMEOUT_S)
            self._spared_cpus = spared

    def _hook(self) -> None:
        """Attach the function hooks, before the first segment that uses them."""
        self._hooked = True
        _detaching.append(os.dup(self.setup.collector.fileno()))
        with name_if_slow(self.steps, "attaching the hooks of functions"):
            self.setup.collector.ask("open unarmed", "opened", SWITCH_TIMEOUT_S)
            self.setup.collector.ask("close", "closed", SWITCH_TIMEOUT_S)

    @contextlib.contextmanager
    def attached(self, phase: str, probes: tuple[str, ...]) -> Iterator[dict[str, SwitchMessage]]:
        """Attach the instruments `probes` for the body of the `with`; yield the collector's answers, by name.

        The body can use the answer `opened`. The answer `closed` is added after the body.
        """
        answers: dict[str, SwitchMessage] = {}

        def switch(command: str, event: str) -> None:
            """Send a command to the collector, and keep the answer `event`."""
            if probes:
                with name_if_slow(self.steps, f"{phase}: waiting until its hooks are {event}"):
                    answer = self.setup.collector.ask(command, event, SWITCH_TIMEOUT_S)
                    answers[event] = cast("SwitchMessage", answer)

        switch(f"open {','.join(probes)}", "opened")
        for perf in self._counting(phase):
            perf.enable()
        try:
            yield answers
        finally:
            for perf in self._counting(phase):
                perf.disable()
            switch("close", "closed")

    def _counting(self, phase: str) -> list[PerfStat]:
        """Return the `perf stat` instances that count in a phase."""
        return list(self.setup.perfs.values()) if "ledger" in phase else []

    def _read_end(self) -> LoadReading:
        """Return the current load and the clock settings of the CPUs, at the start or end of the run."""
        self._quotas.add(self.subject.pids())
        load = self.read_load()
        clock = ClockState(**asdict(read_clock(self._cpus))) if self._cpus else None
        return replace(load, clock=clock)

    def read_load(self) -> LoadReading:
        """Return the CPU time that this machine and copyscope have used so far.

        Counts only CPUs that the subject may use, because programs on other CPUs do not disturb the subject.
        """
        load_of_hosts = self.subject.load()
        if load_of_hosts is not None:
            return LoadReading(**asdict(load_of_hosts))
        if not self._cpus:
            self._cpus = fingerprint.usable_cpus(self.subject.pids())
            self._siblings = find_siblings(self._cpus)
        helpers = [self.setup.collector.pid, *(perf.pid for perf in self.setup.perfs.values() if perf.pid)]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended_ns = round((ended.ru_utime + ended.ru_stime) * 1e9) - self.subject.ended_ns()
        running_ns = time.process_time_ns() + sum(processes.cpu_ns(pid) or 0 for pid in helpers)
        peers = {pid: processes.cpu_ns(pid) for pid in self.subject.peers()}
        load = fingerprint.read_load(running_ns + ended_ns, self._cpus, self._siblings)
        return LoadReading(**asdict(load), peers=peers, quotas=self._quotas.read())

    def last_segment(self) -> MeasuredSegment:
        """Return the latest complete segment."""
        segment = self.raw.segments[-1]
        assert isinstance(segment, MeasuredSegment)
        return segment

    def ask_samples(self, *, forget: bool = False) -> CollectorReport:
        """Return all samples so far. `forget`: afterwards, the collector starts again from zero."""
        command = "samples forget" if forget else "samples"
        return cast("CollectorReport", self.setup.collector.ask(command, "samples"))

    def ask_programs(self) -> list[ProgramMessage]:
        """Return what each program has sent and received so far, while all programs are watched."""
        answer = self.setup.collector.ask("programs", "programs")
        return [ProgramMessage(*row) for row in answer["rows"]]

    # -- end ------------------------------------------------------------------------------------------

    def _collect_reports(self) -> None:
        """Collect the report of every child. Note an error for a child that has exited or does not answer."""
        self._try(lambda: self.raw.loads.append(self._read_end()))
        for side, perf in self.setup.perfs.items():
            self._try(partial(self._count, side, perf))
        for child in self.setup.children:
            self.raw.reports[child.name] = cast("TrafficReport | None", self._report(child, "stop"))
        self.raw.collector = cast("CollectorReport | None", self._report(self.setup.collector, "report"))
        self._try(lambda: self.subject.finish(failed=self._failed))

    def _try(self, step: Callable[[], object]) -> None:
        """Run a step that belongs to the end of the run. An exception becomes an error of the run."""
        try:
            step()
        except Exception as error:
            self._note(describe(error))

    def _count(self, side: str, perf: PerfStat) -> None:
        self.raw.counters[side] = {name: count.as_record() for name, count in perf.finish().items()}

    def _report(self, child: Program, command: str) -> Mapping[str, Any] | None:
        """Return the report of a child, requested by a command. An exception becomes an error of the run."""
        try:
            report = child.ask(command, "report", REPORT_TIMEOUT_S)
        except Exception as error:
            self._note(describe(error))
            return None
        for reason in report.get("unheard", ()):
            self._note(reason)
        return report

    def _note(self, error: str) -> None:
        self.raw.errors += [error] * (error not in self.raw.errors)
