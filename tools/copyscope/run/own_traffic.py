"""Traffic of our own: a sender and a receiver over a path that is made for them.

They cooperate. At a mark the traffic pauses, every byte in flight arrives, and both sides say their totals:
no byte belongs to two segments, and none moves while hooks come and go.
"""

import math
import time
from collections.abc import Iterable

from copyscope import paths
from copyscope.machine import fingerprint
from copyscope.plan import gate
from copyscope.plan.options import PathPlan, Traffic
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Segment
from copyscope.record.segments import WARM_UP
from copyscope.run.child import Child, watch
from copyscope.run.counters import EVENTS, SENDER_EVENTS
from copyscope.run.perf_stat import PerfStat
from copyscope.run.session import Mark, Raw, Subject
from copyscope.topology import Side, Topology, open_topology
from copyscope.topology.namespace import network_of

START_S = 15.0
# A pause ends when every byte has been read at the other end; a receiver that cannot keep up needs a while.
DRAIN_S = 30.0
# Counts are steady: a few dozen messages say what all of them pass.
TRIAL_S = 0.1


class OwnTraffic(Subject):
    """`children` are the sender and the receiver. Both stand still but between begin() and end()."""

    def __init__(self, path: PathPlan, traffic: Traffic) -> None:
        super().__init__(Raw())
        self._path, self._traffic = path, traffic
        self._paused: Mark = {}
        self._goes = False
        self._topology: Topology

    def prepare(self) -> None:
        path, traffic, argv = self._path, self._traffic, str(paths.TRAFFIC)
        made = open_topology(path.kind, path.link, paths.XDP_OBJECT)
        self._topology = self.session.until.enter_context(made)
        if path.keep is not None:
            self.raw.kept = self._topology.keep(path.keep)
        address = self._topology.addresses["sender"]
        sender = self._spawn("sender", [argv, "send", "--control", "--listen", address, *traffic.send])
        port = sender.expect("listening", START_S)["port"]
        receive = [argv, "recv", "--control", "--connect", address, "--port", str(port), *traffic.receive]
        self._spawn("receiver", receive).expect("connected", START_S)
        sender.expect("connected", START_S)

    def _spawn(self, side: Side, argv: list[str]) -> Child:
        self.children.append(self.session.spawn(side, self._topology.command(side, argv)))
        return self.children[-1]

    def start(self, plan: RunPlan, collector: Child) -> None:
        self.session.steps.expect(len(tuple(plan.segments)))
        for child in self.children:
            collector.ask(f"target {child.name} {child.pid}", "target")
            network = network_of(child.pid)
            if network is not None:
                collector.ask(f"netns {child.name} {network}", "netns")
            if plan.counters:
                perf = PerfStat(child.pid, events=SENDER_EVENTS if child.name == "sender" else EVENTS)
                self.perfs[child.name] = self.session.until.enter_context(perf)
                perf.start()
        # veth and friends are loaded by now, so that their functions have names.
        collector.send("symbols", "symbols")
        if self._traffic.resolved["issue"] is not None:
            # A worker that begins between perf's look at the threads and its opening of counters is in none.
            for perf in self.perfs.values():
                perf.wait_ready()
        self.pause()
        if plan.whole:
            self._describe()
            return
        self.session.measure(Segment(-1, -1, WARM_UP, self._path.warmup_s))
        if self.raw.tier and self.raw.tier.exact and plan.gate is None:
            self.raw.tier = self.raw.tier.gated(self._choose_gate(collector))

    def _choose_gate(self, collector: Child) -> gate.Gate:
        """Count what a message passes, in a short part of the warm-up that ends with this count forgotten."""
        warm_up = self.raw.segments[-1]
        self.session.measure(Segment(-1, -1, WARM_UP, TRIAL_S))
        counted = collector.ask("functions", "functions")["functions"]
        size_bytes = self._traffic.resolved["size_bytes"]
        chosen = gate.choose_by(size_bytes, counted, warm_up["marks"], self.raw.segments[-1]["marks"])
        collector.ask(f"gate {chosen.one_in}", "gate")
        return chosen

    def _describe(self) -> None:
        self.raw.topology = self._topology.describe()
        self.raw.machine = fingerprint.describe(self._topology)
        self.session.collector.expect("symbols", START_S)
        for perf in self.perfs.values():
            perf.wait_ready()

    def probes(self, arm: str) -> tuple[str, ...]:
        if arm == WARM_UP:
            # Its second part is the one that a gate is chosen by.
            return ("functions",) if self.raw.segments else ()
        return self.session.plan.probes.get(arm, ())

    def before(self) -> Mark:
        return self._paused

    def begin(self, _probes: tuple[str, ...]) -> Mark:
        word, answer = ("resume", "resumed") if self._goes else ("go", "going")
        self._goes = True
        began_ns = self.children[0].ask(word, answer)["t_ns"]
        return {**self._paused, "sender": {**self._paused["sender"], "t_ns": began_ns}}

    def run(self, segment: Segment) -> None:
        if segment.length_s == math.inf:
            watch(self.children[:1], None, needs=self.children[1:])
            return
        until_s = time.monotonic() + segment.length_s
        if self.raw.machine is None:
            # Something useful while the congestion window opens.
            self._describe()
        watch(self.children, until_s - time.monotonic())

    def end(self, _probes: tuple[str, ...]) -> Mark:
        return self.pause()

    def after(self) -> Mark:
        return self._paused

    def pause(self) -> Mark:
        """Let every byte arrive, and note both sides' totals."""
        sender, receiver = self.children
        sent = sender.ask("pause", "mark", DRAIN_S, needs=(receiver,))
        self._paused = {"sender": sent, "receiver": receiver.ask(f"settle {sent['bytes']}", "mark", DRAIN_S)}
        return self._paused

    def pids(self) -> Iterable[int]:
        return [child.pid for child in self.children]
