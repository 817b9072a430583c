"""Traffic of our own: a sender and a receiver over a path that is made for them.

They cooperate. At a mark the traffic pauses, every byte in flight arrives, and both sides say their totals:
no byte belongs to two segments, and none moves while hooks come and go.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from copyscope import paths
from copyscope.hosts.host import Host, together
from copyscope.machine import fingerprint
from copyscope.plan import gate
from copyscope.plan.instruments import EXACT
from copyscope.plan.options import PathPlan, Traffic
from copyscope.plan.schedule import Segment
from copyscope.plan.tier import gated
from copyscope.record.segments import WARM_UP, Record
from copyscope.record.session_result import Mark
from copyscope.record.two_hosts import Message
from copyscope.run import processes
from copyscope.run.child import Child, Collectors, Program, watch
from copyscope.run.counters import EVENTS, SENDER_EVENTS, all_unsupported
from copyscope.run.perf_stat import PerfStat
from copyscope.run.session import Setup, Subject
from copyscope.topology import SIDES, Hosts, Kept, Side, Topology, open_topology
from copyscope.topology.namespace import network_of

START_S = 15.0
# A pause ends when every byte has been read at the other end; a receiver that cannot keep up needs a while.
DRAIN_S = 30.0
# A gate is chosen by what a few dozen messages pass: their counts are steady, and are forgotten then.
TRIAL = Segment(-1, -1, WARM_UP, 0.1, probes=("functions",))


class OwnTraffic(Subject):
    """The setup's `children` are the sender and the receiver. Both stand still but between begin() and end().

    `hosts`: the machine of each side, where they are not both this one.
    """

    def __init__(self, path: PathPlan, traffic: Traffic, hosts: Mapping[Side, Host] | None = None) -> None:
        self._path, self._traffic, self._hosts = path, traffic, hosts
        # What a topology that was to be kept is called.
        self.kept: Kept | None = None
        # Of the sides' programs, where they run.
        self._pids: dict[str, int] = {}
        # Who sends to a relay, on its machine.
        self._feeders: tuple[int, ...] = ()
        self._paused: Mark = {}
        self._goes = False
        self._topology: Topology

    # -- set up ---------------------------------------------------------------------------------------

    def prepare(self, setup: Setup) -> None:
        self.setup = setup
        setup.raw.placement = self._traffic.placement
        setup.collector = self._start_collector()
        path, traffic, argv = self._path, self._traffic, str(paths.TRAFFIC)
        opened = (
            open_topology(path.kind, path.link, paths.XDP_OBJECT)
            if self._hosts is None
            else Hosts(self._hosts, path.sender_address)
        )
        self._topology = setup.until.enter_context(opened)
        if path.keep is not None:
            self.kept = self._topology.keep(path.keep)
        address = self._topology.addresses["sender"]
        sender = self._spawn("sender", [argv, "send", "--control", "--listen", address, *traffic.send])
        listening = sender.expect("listening", START_S)
        # Words of another machine, which become words of a command line and of a collector's.
        port = str(int(listening["port"]))
        receive = [argv, "recv", "--control", "--connect", address, "--port", port, *traffic.receive]
        connected = self._spawn("receiver", receive).expect("connected", START_S)
        self._feeders = tuple(map(int, sender.expect("connected", START_S).get("feeders", ())))
        self._pids = {"sender": int(listening["pid"]), "receiver": int(connected["pid"])}

    def _start_collector(self) -> Program:
        """One here, or on two hosts one on each."""
        setup, argv = self.setup, self.setup.plan.collector()
        if self._hosts is None:
            return setup.spawn("collector", argv)
        for side in SIDES:
            setup.until.enter_context(self._hosts[side])
        return Collectors(
            {
                side: setup.spawn("collector", host.collector(argv[1:]), None if host.near else host)
                for side, host in self._hosts.items()
            }
        )

    def _spawn(self, side: Side, argv: list[str]) -> Child:
        host = None if self._hosts is None or self._hosts[side].near else self._hosts[side]
        self.setup.children.append(self.setup.spawn(side, self._topology.command(side, argv), host))
        return self.setup.children[-1]

    def start(self) -> None:
        setup, collector = self.setup, self.setup.collector
        for side, child in zip(SIDES, setup.children, strict=True):
            own = collector.of[side] if isinstance(collector, Collectors) else collector
            own.ask(f"target {side} {self._pids[side]}", "target")
            network = network_of(child.pid) if self._hosts is None else None
            if network is not None:
                own.ask(f"netns {side} {network}", "netns")
            if setup.plan.counters:
                self._count_events(side, child)
        # veth and friends are loaded by now, so that their functions have names.
        collector.send("symbols", "symbols")
        if self._traffic.resolved["issue"] is not None:
            # A worker that begins between perf's look at the threads and its opening of counters is in none.
            for perf in setup.perfs.values():
                perf.wait_ready()
        self.pause()
        if setup.plan.whole:
            self._describe()

    def _count_events(self, side: Side, child: Child) -> None:
        events = SENDER_EVENTS if side == "sender" else EVENTS
        if self._hosts is not None and not self._hosts[side].near:
            unread = all_unsupported(f"perf is not brought to {self._hosts[side].name}", events)
            self.setup.raw.counters[side] = {name: one.as_record() for name, one in unread.items()}
            return
        perf = PerfStat(child.pid, events=events)
        self.setup.perfs[side] = self.setup.until.enter_context(perf)
        perf.start()

    def _describe(self) -> None:
        raw = self.setup.raw
        raw.topology = self._topology.describe()
        if self._hosts is None:
            raw.machine = fingerprint.describe(self._topology)
        else:
            raw.places = {side: _place(self._hosts[side]) for side in SIDES}
            raw.machine = raw.places["sender"]["machine"]
        self.setup.collector.expect("symbols", START_S)
        for perf in self.setup.perfs.values():
            perf.wait_ready()

    # -- measure --------------------------------------------------------------------------------------

    def segments(self, planned: Iterable[Segment]) -> Iterator[Segment]:
        """The planned ones, after a warm-up, and before the first with function hooks a trial of them."""
        plan, raw = self.setup.plan, self.setup.raw
        if not plan.whole:
            yield Segment(-1, -1, WARM_UP, self._path.warmup_s)
        chosen = plan.gate is not None
        for segment in planned:
            if segment.phase in EXACT and not chosen:
                yield TRIAL
                assert raw.tier is not None
                raw.tier, chosen = gated(raw.tier, self._choose_gate()), True
            yield segment

    def _choose_gate(self) -> gate.Gate:
        """By what a message passed in the trial."""
        collector, segments = self.setup.collector, self.setup.raw.segments
        counted = collector.ask("functions", "functions")["functions"]
        size_bytes = self._traffic.resolved["size_bytes"]
        chosen = gate.choose_by(size_bytes, counted, segments[0]["marks"], segments[-1]["marks"])
        collector.ask(f"gate {chosen.one_in}", "gate")
        return chosen

    def mark(self, closed: Message | None = None) -> Mark:  # noqa: ARG002 (nothing moves meanwhile)
        return self._paused

    def begin(self, segment: Segment, opened: Message | None) -> Mark:  # noqa: ARG002 (likewise)
        word, answer = ("resume", "resumed") if self._goes else ("go", "going")
        self._goes = True
        began_ns = self.setup.children[0].ask(word, answer)["t_ns"]
        return {**self._paused, "sender": {**self._paused["sender"], "t_ns": began_ns}}

    def end(self, segment: Segment) -> Mark:
        sender, receiver = self.setup.children
        if segment.length_s == math.inf:
            watch([sender], None, needs=[receiver])
            return self.pause()
        until_s = time.monotonic() + segment.length_s
        if self.setup.raw.machine is None:
            # Something useful while the congestion window opens.
            self._describe()
        watch([sender, receiver], until_s - time.monotonic())
        return self.pause()

    def pause(self) -> Mark:
        """Let every byte arrive, and note both sides' totals."""
        sender, receiver = self.setup.children
        sent = sender.ask("pause", "mark", DRAIN_S, needs=(receiver,))
        received = receiver.ask(f"settle {sent['bytes']}", "mark", DRAIN_S)
        self._paused = cast("Mark", {"sender": sent, "receiver": received})
        return self._paused

    def pids(self) -> Iterable[int]:
        """With their threads: io_uring's workers are on any CPU, wherever the others are pinned."""
        folders = (folder for child in self.setup.children for folder in processes.threads(child.pid))
        return [*(int(folder.rpartition("/")[2]) for folder in folders), *self._feeders]

    def peers(self) -> Iterable[int]:
        """Who sends to a relay."""
        return self._feeders

    def load(self) -> Record | None:
        collector = self.setup.collector
        if self._hosts is None or not isinstance(collector, Collectors):
            return None
        return together([host.load(collector.pids[side]) for side, host in self._hosts.items()])


def _place(host: Host) -> Record:
    """One of two hosts, as a row of `places`."""
    return {"host": host.name, "machine": host.machine()}
