"""Traffic of our own: a sender and a receiver over a path that is made for them.

They cooperate. At a mark the traffic pauses, every byte in flight arrives, and both sides say their totals:
no byte belongs to two segments, and none moves while hooks come and go.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from copyscope import paths
from copyscope.hosts.host import Host, together
from copyscope.machine import fingerprint
from copyscope.plan import gate
from copyscope.plan.options import PathPlan, Traffic
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Segment
from copyscope.record.segments import WARM_UP
from copyscope.run import processes
from copyscope.run.child import Child, Collectors, Elsewhere, Message, Program, watch
from copyscope.run.counters import EVENTS, SENDER_EVENTS, all_unsupported
from copyscope.run.perf_stat import PerfStat
from copyscope.run.session import Mark, Raw, Subject
from copyscope.topology import SIDES, Hosts, Side, Topology, open_topology
from copyscope.topology.namespace import network_of

START_S = 15.0
# A pause ends when every byte has been read at the other end; a receiver that cannot keep up needs a while.
DRAIN_S = 30.0
# Counts are steady: a few dozen messages say what all of them pass.
TRIAL_S = 0.1


class OwnTraffic(Subject):
    """`children` are the sender and the receiver. Both stand still but between begin() and end().

    `hosts`: the machine of each side, where they are not both this one.
    """

    def __init__(self, path: PathPlan, traffic: Traffic, hosts: Mapping[Side, Host] | None = None) -> None:
        super().__init__(Raw(placement=traffic.placement))
        self._path, self._traffic, self._hosts = path, traffic, hosts
        # Of the sides' programs, where they run.
        self._pids: dict[str, int] = {}
        self._paused: Mark = {}
        self._goes = False
        self._topology: Topology

    def start_collector(self, argv: list[str]) -> Program:
        if self._hosts is None:
            return super().start_collector(argv)
        for side in SIDES:
            self.session.until.enter_context(self._hosts[side])
        collector = {
            side: self.session.spawn("collector", host.collector(argv[1:]), at(host))
            for side, host in self._hosts.items()
        }
        return Collectors(collector)

    def load_elsewhere(self) -> dict[str, Any] | None:
        collector = self.session.collector
        if self._hosts is None or not isinstance(collector, Collectors):
            return None
        return together([host.load(collector.pids[side]) for side, host in self._hosts.items()])

    def prepare(self) -> None:
        path, traffic, argv = self._path, self._traffic, str(paths.TRAFFIC)
        opened = (
            open_topology(path.kind, path.link, paths.XDP_OBJECT)
            if self._hosts is None
            else Hosts(self._hosts, path.sender_address)
        )
        self._topology = self.session.until.enter_context(opened)
        if path.keep is not None:
            self.raw.kept = self._topology.keep(path.keep)
        address = self._topology.addresses["sender"]
        sender = self._spawn("sender", [argv, "send", "--control", "--listen", address, *traffic.send])
        listening = sender.expect("listening", START_S)
        # Words of another machine, which become words of a command line and of a collector's.
        port = str(int(listening["port"]))
        receive = [argv, "recv", "--control", "--connect", address, "--port", port, *traffic.receive]
        connected = self._spawn("receiver", receive).expect("connected", START_S)
        sender.expect("connected", START_S)
        self._pids = {"sender": int(listening["pid"]), "receiver": int(connected["pid"])}

    def _spawn(self, side: Side, argv: list[str]) -> Child:
        where = None if self._hosts is None else at(self._hosts[side])
        self.children.append(self.session.spawn(side, self._topology.command(side, argv), where))
        return self.children[-1]

    def start(self, plan: RunPlan, collector: Program) -> None:
        self.session.steps.expect(len(tuple(plan.segments)))
        for side, child in zip(SIDES, self.children, strict=True):
            own = collector.of[side] if isinstance(collector, Collectors) else collector
            own.ask(f"target {side} {self._pids[side]}", "target")
            network = network_of(child.pid) if self._hosts is None else None
            if network is not None:
                own.ask(f"netns {side} {network}", "netns")
            if plan.counters and self._hosts is not None and not self._hosts[side].near:
                events = SENDER_EVENTS if side == "sender" else EVENTS
                unread = all_unsupported(f"perf is not brought to {self._hosts[side].name}", events)
                self.raw.counters[side] = {name: one.as_record() for name, one in unread.items()}
            elif plan.counters:
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

    def segments(self, planned: Iterable[Segment]) -> Iterator[Segment]:
        for segment in planned:
            if self.session.hook(segment.phase) and self.session.plan.gate is None:
                assert self.raw.tier is not None
                self.raw.tier = self.raw.tier.gated(self._choose_gate(self.session.collector))
            yield segment

    def _place(self, side: Side) -> dict[str, Any]:
        assert self._hosts is not None
        host = self._hosts[side]
        clock = host.clock()
        known = {"clock_offset_ns": clock.offset_ns, "clock_offset_error_ns": clock.error_ns}
        reasons = {name: clock.reason for name, value in known.items() if value is None}
        return {"host": host.name, "machine": host.machine(), **known, "reasons": reasons}

    def _choose_gate(self, collector: Program) -> gate.Gate:
        """Count what a message passes, in a short segment of its own that ends with this count forgotten."""
        warm_up = self.raw.segments[0]
        self.session.measure(Segment(-1, -1, WARM_UP, TRIAL_S))
        counted = collector.ask("functions", "functions")["functions"]
        size_bytes = self._traffic.resolved["size_bytes"]
        chosen = gate.choose_by(size_bytes, counted, warm_up["marks"], self.raw.segments[-1]["marks"])
        collector.ask(f"gate {chosen.one_in}", "gate")
        return chosen

    def _describe(self) -> None:
        self.raw.topology = self._topology.describe()
        if self._hosts is None:
            self.raw.machine = fingerprint.describe(self._topology)
        else:
            self.raw.places = {side: self._place(side) for side in SIDES}
            self.raw.machine = self.raw.places["sender"]["machine"]
        self.session.collector.expect("symbols", START_S)
        for perf in self.perfs.values():
            perf.wait_ready()

    def probes(self, phase: str) -> tuple[str, ...]:
        if phase == WARM_UP:
            # The second one is that by which a gate is chosen.
            return ("functions",) if self.raw.segments else ()
        return self.session.plan.probes.get(phase, ())

    def before(self) -> Mark:
        return self._paused

    def begin(self, _opened: Message) -> Mark:
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

    def end(self) -> Mark:
        return self.pause()

    def after(self, _closed: Message) -> Mark:
        return self._paused

    def pause(self) -> Mark:
        """Let every byte arrive, and note both sides' totals."""
        sender, receiver = self.children
        sent = sender.ask("pause", "mark", DRAIN_S, needs=(receiver,))
        self._paused = {"sender": sent, "receiver": receiver.ask(f"settle {sent['bytes']}", "mark", DRAIN_S)}
        return self._paused

    def pids(self) -> Iterable[int]:
        """With their threads: io_uring's workers are on any CPU, wherever the others are pinned."""
        folders = (folder for child in self.children for folder in processes.threads(child.pid))
        return [int(folder.rpartition("/")[2]) for folder in folders]


def at(host: Host) -> Elsewhere | None:
    """For whoever starts a program that runs there."""
    return None if host.near else host
