# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: cost of our instruments, compared with tools that people would use instead.

One sender and one receiver run over veth for all tools of one message size, and pause between segments. A
turn of a tool has four segments: off, on, on, off. These are two pairs in both orders, so that a drift of the
machine cancels out. A tool is attached before its segments and detached after them, so its start and end do
not count.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

from copyscope.base import paths
from copyscope.machine.topology import SIDES, LinkSettings, Topology, open_topology
from copyscope.plan.options import choose_congestion
from copyscope.run.child import Child
from observers import (
    COLLECTOR_OPTIONS,
    FREQUENCY,
    Observer,
    ObserverError,
    bpftrace,
    ours,
    perf_stat,
    program,
)
from samples import BLOCKS, Comparison, compare

SIZES_BYTES = (64, 1024, 65536)
SEGMENT_S = 0.2
# Turns of our instruments per turn of another tool: their small cost needs more samples, and their turns are
# shorter.
OUR_TURNS = 3
Sample = dict[str, float]


class Stage:
    """Traffic with one message size, and a collector that watches it."""

    def __init__(self, topology: Topology, size_bytes: int, cpus: list[str], exit_: contextlib.ExitStack):
        address = topology.addresses["sender"]
        common = ["--size", str(size_bytes)]
        send = [str(paths.TRAFFIC), "send", "--control", "--impl", "one_copy", "--listen", address]
        self.sender = Child("sender", topology.command("sender", [*send, "--cpus", cpus[0], *common]))
        exit_.callback(self.sender.end)
        port = self.sender.expect("listening")["port"]
        receive = [str(paths.TRAFFIC), "recv", "--control", "--connect", address, "--port", str(port)]
        self.receiver = Child(
            "receiver", topology.command("receiver", [*receive, "--cpus", cpus[1], *common])
        )
        exit_.callback(self.receiver.end)
        self.receiver.expect("connected")
        self.sender.expect("connected")
        self.collector = Child("collector", [str(paths.COLLECTOR), *COLLECTOR_OPTIONS])
        exit_.callback(self.collector.end)
        self.collector.expect("ready", 30)
        for role, child in zip(SIDES, (self.sender, self.receiver), strict=True):
            self.collector.ask(f"target {role} {child.pid}", "target")
        self.collector.ask("symbols", "symbols", 30)
        self.counting = perf_stat(self.sender, self.receiver, exit_)
        self.sender.ask("go", "going")
        time.sleep(SEGMENT_S)
        self.marks = self._mark()

    def segment(self) -> Sample:
        """Measure SEGMENT_S of traffic. Nothing is in flight before and after."""
        before_marks = self.marks
        begin_ns = self.sender.ask("resume", "resumed")["t_ns"]
        time.sleep(SEGMENT_S)
        self.marks = self._mark()
        sent = self.marks[0]["bytes"] - before_marks[0]["bytes"]
        cpu_ns = sum(
            after_mark["process_cpu_ns"] - before_mark["process_cpu_ns"]
            for before_mark, after_mark in zip(before_marks, self.marks, strict=True)
        )
        return {
            "gbps": 8 * sent / (self.marks[0]["t_ns"] - begin_ns),
            "cpu_ns_per_kib": cpu_ns / (sent / 1024),
        }

    def _mark(self) -> tuple[dict[str, Any], dict[str, Any]]:
        mark = self.sender.ask("pause", "mark", 30)
        return dict(mark), dict(self.receiver.ask(f"settle {mark['bytes']}", "mark", 30))

    def turn(self, observer: Observer) -> list[tuple[Sample, Sample]]:
        """Measure two pairs (with the observer, without)."""
        before = self.segment()
        with observer():
            first, second = self.segment(), self.segment()
        return [(first, before), (second, self.segment())]


def observers(stage: Stage) -> dict[str, tuple[Observer, int]]:
    """Return name -> (observer, turns in a round)."""
    record = ["perf", "record", "-a", "-g", "-F", FREQUENCY, "-e", "cpu-clock", "-o", "perf.data"]
    traced = f"{stage.sender.pid},{stage.receiver.pid}"
    trace = ["perf", "trace", "-s", "-p", traced, "-o", "trace.txt"]
    # perf 6.16 and newer sums in BPF; older versions send every call to user space. The sums are of the whole
    # machine.
    summed = ["perf", "trace", "-a", "-s", "--bpf-summary", "-o", "trace.txt"]
    collector = stage.collector
    return {
        # Instruments of ledger segments, of calls segments and of bytes segments.
        "ours": (ours(collector, "sampler", stage.counting), OUR_TURNS),
        "ours_calls": (ours(collector, "calls"), OUR_TURNS),
        "ours_bytes": (ours(collector, "bytes"), 1),
        # The two parts of `ours`.
        "ours_sampler": (ours(collector, "sampler"), 1),
        "ours_counters": (ours(collector, "", stage.counting), 1),
        "perf_record": (program("perf record", record), 1),
        "bpftrace_profile": (bpftrace("profile.bt"), 1),
        "perf_trace": (program("perf trace", trace), 1),
        # A perf without this option exits at once, and its row says so.
        "perf_trace_bpf": (program("perf trace --bpf-summary", summed), 1),
        "bpftrace_calls": (bpftrace("calls.bt"), 1),
    }


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Yield a result for each message size: each tool compared with the traffic alone, all samples."""
    shuffler = random.Random(seed)
    link = LinkSettings(congestion=choose_congestion(None))
    for size_bytes in SIZES_BYTES:
        with contextlib.ExitStack() as exit_:
            topology = exit_.enter_context(open_topology("veth", link, paths.XDP_OBJECT))
            yield _one_size(Stage(topology, size_bytes, cpus, exit_), size_bytes, shuffler)


def _one_size(
    stage: Stage, size_bytes: int, shuffler: random.Random
) -> tuple[list[Comparison], dict[str, Any]]:
    contestants = observers(stage)
    pairs: dict[str, list[tuple[Sample, Sample]]] = {name: [] for name in contestants}
    failed: dict[str, str] = {}
    for _ in range((BLOCKS + 1) // 2):
        order = [name for name, (_, turns) in contestants.items() for _ in range(turns)]
        shuffler.shuffle(order)
        for name in order:
            if name in failed:
                continue
            try:
                pairs[name] += stage.turn(contestants[name][0])
            except ObserverError as error:
                failed[name] = str(error)
    comparisons = [
        compare({name: on, "off": off}, name, "off", quantity, {"size_bytes": size_bytes})
        for name, turn_pairs in pairs.items()
        if turn_pairs and name not in failed
        for on, off in (tuple(map(list, zip(*turn_pairs, strict=True))),)
        for quantity in ("gbps", "cpu_ns_per_kib")
    ]
    samples = {name: [{"on": on, "off": off} for on, off in turn_pairs] for name, turn_pairs in pairs.items()}
    return comparisons, {"size_bytes": size_bytes, "failed": failed, "samples": samples}
