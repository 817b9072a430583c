"""One run, in one fixed order: namespaces, programs, warm-up, segments, reports. No arithmetic on results.

A run that fails half-way keeps what it measured: the raw record then has the errors in run.errors, and the
sections that nobody could report any more are null.
"""

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from copyscope import paths
from copyscope.errors import RunError, UsageError
from copyscope.machine import fingerprint
from copyscope.plan import gate
from copyscope.plan.arms import Segment
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.tier import Tier
from copyscope.record.segments import WARM_UP
from copyscope.run.child import Child, Message, watch
from copyscope.run.counters import EVENTS, SENDER_EVENTS
from copyscope.run.perf_stat import PerfStat
from copyscope.run.program import pace
from copyscope.topology import Topology, TopologyError, open_topology
from copyscope.topology.namespace import network_of

SIDES = ("sender", "receiver")
START_S = 15.0
# Trying every function hook takes seconds on an old kernel under emulation.
LOAD_S = 60.0
# So does attaching or detaching forty kprobes: each waits for a grace period.
SWITCH_S = 60.0
# A pause ends when every byte has been read at the other end; a receiver that cannot keep up needs a while.
DRAIN_S = 30.0
# Counts are steady: a few dozen messages say what all of them pass.
TRIAL_S = 0.1
# What a program that is asked to stop may take before its report is given up.
STOP_S = 10.0


class Steps(Protocol):
    """Who is told how far the run is."""

    def begin(self, step: str) -> None: ...

    def done(self) -> None: ...

    def expect(self, total: int) -> None: ...


@dataclass
class Raw:
    """What a run leaves behind, however it ends."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    segments: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    interrupted: bool = False
    tier: Tier | None = None
    # In which segments the kernel counts bytes.
    bytes_arm: str | None = None
    topology: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    kept: Any = None
    sender: Message | None = None
    receiver: Message | None = None
    collector: Message | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    # What the machine had done when the first measured segment began, and when the last was over.
    loads: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0


class Conductor:
    """Holds the programs of one run; perform() is the fixed order."""

    def __init__(self, plan: RunPlan, steps: Steps) -> None:
        self.plan = plan
        self.steps = steps
        self.raw = Raw()
        self._exit = ExitStack()
        self._children: dict[str, Child] = {}
        self._perf: dict[str, PerfStat] = {}
        self._marks: dict[str, Message] = {}
        self._cpus: frozenset[int] = frozenset()

    def perform(self) -> Raw:
        """Run to the end, or as far as it goes. Raises only when nothing at all could be measured."""
        began = time.monotonic()
        with self._exit:
            try:
                self._set_up()
                self._read_load()
                try:
                    if self.plan.messages is None:
                        self._run_segments()
                    else:
                        self._run_count()
                finally:
                    self._read_load()
            except KeyboardInterrupt:
                if not self._has_measured():
                    raise
                self.raw.interrupted = True
                self.raw.errors.append("interrupted: the run was stopped before its end")
            except (RunError, TopologyError) as error:
                if not self._has_measured():
                    raise
                self.raw.errors.append(str(error))
            with contextlib.suppress(KeyboardInterrupt):
                self._collect_reports()
        self.raw.wall_s = time.monotonic() - began
        return self.raw

    def _has_measured(self) -> bool:
        return any(segment["arm"] != WARM_UP for segment in self.raw.segments)

    # -- set up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        plan = self.plan
        steal_before = fingerprint.cpu_times()
        one_in = str(plan.gate.one_in if plan.gate else gate.DEFAULT)
        argv = [str(paths.COLLECTOR), "--frequency", str(plan.frequency_hz), "--gate", one_in]
        argv += ["--count-returns"] * plan.count_returns + ["--count-timed"] * plan.count_timed
        if plan.functions:
            argv += ["--functions", "--attach", plan.attach, "--copy-in", plan.copy_in]
            argv += ["--functions-gate", one_in, "--seed", str(plan.seed)]
            argv += [] if plan.count is None else ["--count", plan.count]
        collector = self._spawn("collector", argv)
        topology = self._exit.enter_context(open_topology(plan.kind, plan.link, paths.XDP_OBJECT))
        if plan.keep is not None:
            self.raw.kept = topology.keep(plan.keep)
        self._start_traffic(topology)
        ready = collector.expect("ready", LOAD_S)
        self.plan = plan = self._choose_plan(ready["hooks"])
        self.raw.bytes_arm = next((arm for arm, probes in plan.probes.items() if "bytes" in probes), None)
        for side in SIDES:
            collector.ask(f"target {side} {self._children[side].pid}", "target")
            network = network_of(self._children[side].pid)
            if network is not None:
                collector.ask(f"netns {side} {network}", "netns")
            if plan.counters:
                events = SENDER_EVENTS if side == "sender" else EVENTS
                self._perf[side] = self._exit.enter_context(PerfStat(self._children[side].pid, events=events))
                self._perf[side].start()
        # veth and friends are loaded by now, so that their functions have names.
        collector.send("symbols", "symbols")
        self._mark()
        if plan.messages is None:
            began_ns = self._children["sender"].ask("go", "going")["t_ns"]
        with self._warming_up():
            self.raw.topology = topology.describe()
            self.raw.machine = fingerprint.describe(topology)
        collector.expect("symbols", START_S)
        for perf in self._perf.values():
            perf.wait_ready()
        if plan.messages is None:
            before_warmup = dict(self._marks)
            self._mark()
            self._keep_segment(-1, -1, WARM_UP, began_ns, before_warmup)
        self.raw.machine["steal_percent"] = None
        self._exit.callback(self._record_steal, steal_before)
        if self.raw.tier and self.raw.tier.exact:
            self.raw.tier = self.raw.tier.gated(plan.gate or self._choose_gate())

    def _choose_gate(self) -> gate.Gate:
        """Count what a message passes, in a short part of the warm-up that ends with this count forgotten."""
        collector, warm_up = self._children["collector"], self.raw.segments[-1]
        self._run_segment(Segment(-1, -1, WARM_UP, TRIAL_S))
        counted = collector.ask("functions", "functions")["functions"]
        chosen = gate.choose_by(self.plan.size_bytes, counted, warm_up, self.raw.segments[-1])
        collector.ask(f"gate {chosen.one_in}", "gate")
        return chosen

    def _choose_plan(self, hooks: list[dict[str, Any]]) -> RunPlan:
        plan, self.raw.tier = self.plan.on_this_kernel(hooks)
        if plan is not self.plan:
            self.steps.expect(len(plan.segments))
        return plan

    def _start_traffic(self, topology: Topology) -> None:
        address = topology.addresses["sender"]
        send = [str(paths.TRAFFIC), "send", "--control", "--listen", address, *self.plan.send_options]
        sender = self._spawn("sender", topology.command("sender", send))
        port = sender.expect("listening", START_S)["port"]
        receive = [str(paths.TRAFFIC), "recv", "--control", "--connect", address, "--port", str(port)]
        receive += self.plan.receive_options
        receiver = self._spawn("receiver", topology.command("receiver", receive))
        receiver.expect("connected", START_S)
        sender.expect("connected", START_S)

    def _spawn(self, name: str, argv: list[str]) -> Child:
        child = Child(name, argv)
        self._children[name] = child
        self._exit.callback(child.end)
        return child

    @contextlib.contextmanager
    def _warming_up(self) -> Iterator[None]:
        """Do something useful while the congestion window opens."""
        until = time.monotonic() + (self.plan.warmup_s if self.plan.messages is None else 0.0)
        yield
        watch(self._traffic(), until - time.monotonic())

    def _record_steal(self, before: Any) -> None:
        if self.raw.machine is not None:
            self.raw.machine["steal_percent"] = fingerprint.steal_percent(before, fingerprint.cpu_times())

    # -- measure --------------------------------------------------------------------------------------

    def _read_load(self) -> None:
        own = [self._children["collector"].pid, *(p.pid for p in self._perf.values() if p.pid is not None)]
        # Of many CPUs, what others do on those that neither side may use is no matter.
        self._cpus = self._cpus or fingerprint.usable_cpus(self._children[side].pid for side in SIDES)
        self.raw.loads.append(fingerprint.read_load(pace.own_cpu_ns(own, ended=True), self._cpus))

    def _run_segments(self) -> None:
        for segment in self.plan.segments:
            self.steps.begin(f"{segment.arm} segment")
            self._run_segment(segment)
            self.steps.done()

    def _run_segment(self, segment: Segment) -> None:
        """The traffic is paused at the beginning and at the end: no byte belongs to two segments."""
        before = dict(self._marks)
        with self._probed(segment.arm):
            begin_ns = self._children["sender"].ask("resume", "resumed")["t_ns"]
            watch(self._traffic(), segment.length_s)
            self._mark()
        self._keep_segment(segment.index, segment.block, segment.arm, begin_ns, before)

    def _run_count(self) -> None:
        """A fixed number of messages: one segment with every instrument, and so without a control."""
        before = dict(self._marks)
        sender = self._children["sender"]
        (arm,) = self.plan.probes
        with self._probed(arm):
            begin_ns = sender.ask("go", "going")["t_ns"]
            watch([sender], None)
            self._mark()
        self._keep_segment(0, 0, arm, begin_ns, before)

    @contextlib.contextmanager
    def _probed(self, arm: str) -> Iterator[None]:
        # The warm-up has a part that a gate is chosen by.
        probes = ("functions",) if arm == WARM_UP else self.plan.probes[arm]
        collector = self._children["collector"]
        counting = list(self._perf.values()) if "ledger" in arm else []
        if probes:
            collector.ask(f"open {','.join(probes)}", "opened", SWITCH_S)
        for perf in counting:
            perf.enable()
        try:
            yield
        finally:
            for perf in counting:
                perf.disable()
            if probes:
                collector.ask("close", "closed", SWITCH_S)

    def _mark(self) -> None:
        """Pause, let every byte arrive, and note both sides' totals."""
        mark = self._children["sender"].ask("pause", "mark", DRAIN_S)
        self._marks["sender"] = mark
        self._marks["receiver"] = self._children["receiver"].ask(f"settle {mark['bytes']}", "mark", DRAIN_S)

    def _keep_segment(
        self, index: int, block: int, arm: str, begin_ns: int, before: dict[str, Message]
    ) -> None:
        self.raw.segments.append(
            {
                "index": index,
                "block": block,
                "arm": arm,
                "begin_ns": begin_ns,
                "end_ns": self._marks["sender"]["t_ns"],
                "before": before,
                "after": dict(self._marks),
            }
        )

    def _traffic(self) -> list[Child]:
        return [self._children[side] for side in SIDES if side in self._children]

    # -- end ------------------------------------------------------------------------------------------

    def _collect_reports(self) -> None:
        """Whoever is still there says what it knows; who is not, is named."""
        for side, perf in self._perf.items():
            self.raw.counters[side] = {name: count.as_record() for name, count in perf.finish().items()}
        self.raw.sender = self._report("sender", "stop")
        self.raw.receiver = self._report("receiver", "stop")
        self.raw.collector = self._report("collector", "report")

    def _report(self, name: str, command: str) -> Message | None:
        child = self._children.get(name)
        if child is None:
            return None
        try:
            return child.ask(command, "report", STOP_S)
        except (RunError, UsageError) as error:
            if str(error) not in self.raw.errors:
                self.raw.errors.append(str(error))
            return None
