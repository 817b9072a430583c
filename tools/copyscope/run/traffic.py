# SPDX-License-Identifier: GPL-2.0-only
"""Measure our own traffic: a sender and a receiver over a network path that copyscope creates.

Sender and receiver cooperate. At a mark the traffic pauses, all bytes in flight arrive, and both programs
report their totals. So no byte belongs to two segments, and none moves while hooks are attached or detached.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from msgspec import convert

from copyscope.base import paths
from copyscope.machine import fingerprint
from copyscope.machine.fingerprint import CpuLoad
from copyscope.machine.hosts import Host, add_loads
from copyscope.machine.topology import SIDES, KeptNamespaces, Side, Topology, open_topology
from copyscope.machine.topology.namespace import network_of
from copyscope.machine.two_hosts import TwoHosts
from copyscope.plan import tier
from copyscope.plan.options import PathPlan, TrafficOptions
from copyscope.plan.schedule import EXACT, PlannedSegment
from copyscope.plan.tier import with_gate
from copyscope.record.measured import HostOfSide, Machine, Placement, Places, TopologySection
from copyscope.record.messages import Mark, SwitchMessage, TotalsMessage
from copyscope.record.moved import MeasuredSegment, PastSegment
from copyscope.record.segments import WARM_UP
from copyscope.run import processes
from copyscope.run.child import Child, Collectors, Program, wait_until_finished
from copyscope.run.counters import EVENTS, SENDER_EVENTS, all_unsupported
from copyscope.run.perf_stat import PerfStat
from copyscope.run.session import Setup, Subject

# Time limit in seconds for the start of a program.
START_TIMEOUT_S = 15.0
# Time limit in seconds of a pause, which ends when a perhaps slow receiver has read every byte.
DRAIN_TIMEOUT_S = 30.0
# Segment with function hooks that only serves to choose the gate: a few dozen messages show which functions a
# message passes. Its counts are dropped.
GATE_TRIAL = PlannedSegment(-1, -1, WARM_UP, 0.1, probes=("functions",))


class OwnTraffic(Subject):
    """Traffic between a sender and a receiver, which move data only between begin() and end().

    The setup's `children` are the sender and the receiver.
    """

    def __init__(
        self, path: PathPlan, traffic: TrafficOptions, hosts: Mapping[Side, Host] | None = None
    ) -> None:
        """Prepare traffic over a path. `traffic`: options for both programs.

        `hosts`: machines of sender and receiver, or None if both run on this machine.
        """
        self._path, self._traffic, self._hosts = path, traffic, hosts
        # Names of the namespaces and devices, if the user wants to keep them.
        self.kept: KeptNamespaces | None = None
        # Pids of sender and receiver on their machines, by side.
        self._pids: dict[str, int] = {}
        # Pids of the programs that send to a relay, on the machine of the relay.
        self._feeders: tuple[int, ...] = ()
        # Totals at the last pause.
        self._paused: Mark = {}
        # True once the sender has begun.
        self._started = False
        self._topology: Topology

    # -- set up ---------------------------------------------------------------------------------------

    def prepare(self, setup: Setup) -> None:
        """Start the collector, create the path, and start sender and receiver, which connect."""
        self.setup = setup
        if self._traffic.placement:
            setup.raw.placement = convert(self._traffic.placement, Placement)
        setup.collector = self._start_collector()
        path, traffic, argv = self._path, self._traffic, str(paths.TRAFFIC)
        topology = (
            open_topology(path.kind, path.link, paths.XDP_OBJECT)
            if self._hosts is None
            else TwoHosts(self._hosts, path.sender_address)
        )
        self._topology = setup.cleanup.enter_context(topology)
        if path.keep is not None:
            self.kept = self._topology.keep(path.keep)
        address = self._topology.addresses["sender"]
        sender = self._spawn("sender", [argv, "send", "--control", "--listen", address, *traffic.send])
        listening = sender.expect("listening", START_TIMEOUT_S)
        # int(), because the port may come from another machine and becomes part of command lines.
        port = str(int(listening["port"]))
        receive = [argv, "recv", "--control", "--connect", address, "--port", port, *traffic.receive]
        connected = self._spawn("receiver", receive).expect("connected", START_TIMEOUT_S)
        self._feeders = tuple(map(int, sender.expect("connected", START_TIMEOUT_S).get("feeders", ())))
        self._pids = {"sender": int(listening["pid"]), "receiver": int(connected["pid"])}

    def _start_collector(self) -> Program:
        """Start a collector on this machine, or a collector on each of two hosts."""
        setup, argv = self.setup, self.setup.plan.collector()
        if self._hosts is None:
            return setup.spawn("collector", argv)
        for side in SIDES:
            setup.cleanup.enter_context(self._hosts[side])
        return Collectors(
            {
                side: setup.spawn("collector", host.collector(argv[1:]), None if host.near else host)
                for side, host in self._hosts.items()
            }
        )

    def _spawn(self, side: Side, argv: list[str]) -> Child:
        """Start the traffic program of a side, with the arguments `argv`."""
        host = None if self._hosts is None or self._hosts[side].near else self._hosts[side]
        self.setup.children.append(self.setup.spawn(side, self._topology.command(side, argv), host))
        return self.setup.children[-1]

    def start(self) -> None:
        """Tell the collectors about both programs, start perf, and make the first mark."""
        setup, collector = self.setup, self.setup.collector
        for side, child in zip(SIDES, setup.children, strict=True):
            side_collector = collector.by_side[side] if isinstance(collector, Collectors) else collector
            side_collector.ask(f"target {side} {self._pids[side]}", "target")
            network = network_of(child.pid) if self._hosts is None else None
            if network is not None:
                side_collector.ask(f"netns {side} {network}", "netns")
            if setup.plan.counters:
                self._count_events(side, child)
        # The modules of the path (veth, ...) are loaded by now, so that their functions have symbols.
        setup.load_symbols()
        if self._traffic.resolved["issue"] is not None:
            # perf does not see a worker that starts while perf opens its counters.
            for perf in setup.perfs.values():
                perf.wait_ready()
        self.pause()
        if setup.plan.single_segment:
            self._describe()

    def _count_events(self, side: Side, child: Child) -> None:
        """Start perf for a program on this machine. For a program elsewhere, note that perf does not run."""
        events = SENDER_EVENTS if side == "sender" else EVENTS
        if self._hosts is not None and not self._hosts[side].near:
            unsupported = all_unsupported(f"perf does not run on {self._hosts[side].name}", events)
            self.setup.raw.counters[side] = {name: count.as_record() for name, count in unsupported.items()}
            return
        perf = PerfStat(child.pid, events=events)
        self.setup.perfs[side] = self.setup.cleanup.enter_context(perf)
        perf.start()

    def _describe(self) -> None:
        """Describe the path and the machines for the record, and wait until the instruments are ready."""
        raw = self.setup.raw
        raw.topology = convert(self._topology.describe(), TopologySection, from_attributes=True)
        if self._hosts is None:
            machine = fingerprint.describe_machine(self._topology)
            raw.machine = convert(machine, Machine, from_attributes=True)
        else:
            raw.places = Places(*(_place(self._hosts[side]) for side in SIDES))
            raw.machine = raw.places.sender.machine
        self.setup.collector.expect("symbols", START_TIMEOUT_S)
        for perf in self.setup.perfs.values():
            perf.wait_ready()

    # -- measure --------------------------------------------------------------------------------------

    def segments(self, planned: Iterable[PlannedSegment]) -> Iterator[PlannedSegment]:
        """Yield a warm-up, then the planned segments, with a trial before the first use of function hooks."""
        plan, raw = self.setup.plan, self.setup.raw
        if not plan.single_segment:
            yield PlannedSegment(-1, -1, WARM_UP, self._path.warmup_s)
        gate_chosen = plan.gate is not None
        for segment in planned:
            if segment.phase in EXACT and not gate_chosen:
                yield GATE_TRIAL
                assert raw.tier is not None
                raw.tier, gate_chosen = with_gate(raw.tier, self._choose_gate()), True
            yield segment

    def _choose_gate(self) -> tier.Gate:
        """Choose the gate (hooks measure one call in N) from the hooked calls per message in the trial."""
        collector, segments = self.setup.collector, self.setup.raw.segments
        functions = collector.ask("functions", "functions")["functions"]
        size_bytes = self._traffic.resolved["size_bytes"]
        gate = tier.choose_instrument_gate(size_bytes, functions, _marks(segments[0]), _marks(segments[-1]))
        collector.ask(f"gate {gate.one_in}", "gate")
        return gate

    def mark(self, closed: SwitchMessage | None = None) -> Mark:  # noqa: ARG002 (nothing moves meanwhile)
        return self._paused

    def begin(self, segment: PlannedSegment, opened: SwitchMessage | None) -> Mark:  # noqa: ARG002 (likewise)
        command, answer = ("resume", "resumed") if self._started else ("go", "going")
        self._started = True
        began_ns = self.setup.children[0].ask(command, answer)["t_ns"]
        return {**self._paused, "sender": {**self._paused["sender"], "t_ns": began_ns}}

    def end(self, segment: PlannedSegment) -> Mark:
        """Wait until the segment is over, and return the totals at its end. Describe the path meanwhile."""
        sender, receiver = self.setup.children
        if segment.length_s == math.inf:
            wait_until_finished([sender], None, needs=[receiver])
            return self.pause()
        end_s = time.monotonic() + segment.length_s
        if self.setup.raw.machine is None:
            # The congestion window opens meanwhile.
            self._describe()
        wait_until_finished([sender, receiver], end_s - time.monotonic())
        return self.pause()

    def pause(self) -> Mark:
        """Pause the sender, wait until every byte has arrived, and return the totals of both programs."""
        sender, receiver = self.setup.children
        sent = sender.ask("pause", "mark", DRAIN_TIMEOUT_S, needs=(receiver,))
        received = receiver.ask(f"settle {sent['bytes']}", "mark", DRAIN_TIMEOUT_S)
        self._paused = {
            "sender": cast("TotalsMessage", sent),
            "receiver": cast("TotalsMessage", received),
        }
        return self._paused

    def pids(self) -> Iterable[int]:
        """Return all threads, because io_uring's workers run on any CPU, even if other threads are pinned."""
        thread_directories = (
            directory for child in self.setup.children for directory in processes.threads(child.pid)
        )
        return [*(int(directory.rpartition("/")[2]) for directory in thread_directories), *self._feeders]

    def cpus(self) -> frozenset[int] | None:
        """Return the CPUs that the threads may use, or None for threads of other hosts."""
        return super().cpus() if self._hosts is None else None

    def peers(self) -> Iterable[int]:
        """Return the pids of the programs that send to a relay."""
        return self._feeders

    def load(self) -> CpuLoad | None:
        collector = self.setup.collector
        if self._hosts is None or not isinstance(collector, Collectors):
            return None
        return add_loads([host.load(collector.pids[side]) for side, host in self._hosts.items()])


def _place(host: Host) -> HostOfSide:
    """Return a host's entry in the section `places` of a run on two hosts."""
    return HostOfSide(host.name, convert(host.machine(), Machine, from_attributes=True))


def _marks(segment: MeasuredSegment | PastSegment) -> tuple[Mark, Mark, Mark, Mark]:
    """Return the totals at the four marks of a segment of our own traffic."""
    assert isinstance(segment, MeasuredSegment)  # only segments of a watched process become past ones
    return segment.marks
