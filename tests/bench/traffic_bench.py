# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: speed of the traffic programs, compared with iperf3 and a bare send() loop."""

import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from contestants import Ended, Program
from copyscope.base import paths
from copyscope.machine.topology import LinkSettings, Topology, open_topology
from copyscope.plan.options import choose_congestion
from samples import BLOCKS, Comparison, compare

SIZES_BYTES = (1024, 16384, 65536, 1 << 20)
CONNECTIONS = (1, 4)
# Duration of a run: long enough to make slow start negligible, short enough for three minutes in all.
RUN_S = 0.2
BARE = paths.OUTPUT / "tests" / "bare"
PORT = "5201"

# More blocks than elsewhere: these are the cheapest, and an interval that is open after ten is often closed
# with more.
TRAFFIC_BLOCKS = round(1.6 * BLOCKS)
# Number of minimal transfers that measure the cost of starting and ending a program, by their median.
START_UPS = 3

# Compared programs, ours first. Both use the same system calls and wait in the same way. The bare loop blocks
# in send() and recv() with a thread each. iperf3 (until 3.15) sends on all connections in one thread and
# reads them in one, with select(), as our `loop` programs do. The `coalesced` ones are not woken by arriving
# data but poll by the clock. iperf3 -Z and our sendfile send a file in the directory for temporary files.
# one_copy against iperf3 is the default of copyscope run. The last pair shows the cost of a thread for each
# connection.
PAIRS = (
    ("one_copy", "bare"),
    ("one_copy", "iperf3"),
    ("one_copy_loop", "iperf3"),
    ("one_copy_coalesced", "iperf3"),
    ("sendfile_loop", "iperf3_sendfile"),
    ("sendfile_coalesced", "iperf3_sendfile"),
    ("bare", "iperf3"),
)
QUANTITIES = ("gbps", "sender_cpu_ns_per_kib", "receiver_cpu_ns_per_kib")
Sample = dict[str, float]
ONE_BUFFER = ("--working-set", "1")


@dataclass(frozen=True)
class Form:
    """The ways in which our sender and receiver serve their connections."""

    sender: str
    receiver: str
    coalesce_us: int = 0


THREADS = Form("threads", "read")
LOOP = Form("loop", "poll")
COALESCED = Form("loop", "poll", 20)


class Contest:
    """A contest of all programs over one path, with one message size and number of connections."""

    PAIRS: tuple[tuple[str, str], ...] = PAIRS

    def __init__(self, topology: Topology, size_bytes: int, connections: int, cpus: list[str]) -> None:
        self.topology = topology
        self.factors = {"size_bytes": size_bytes, "connections": connections}
        self.size = str(size_bytes)
        self.connections = str(connections)
        self.cpus = cpus
        self.bytes = 0
        self.start_ups: dict[str, dict[str, list[Ended]]] = {}
        self.samples: dict[str, list[Sample]] = {name: [] for name in self.contestants()}

    def calibrate(self) -> None:
        """Measure start and end of each program, and how many bytes our sender sends in RUN_S."""
        size_bytes = int(self.size)
        self.bytes = size_bytes * int(self.connections)
        for name, run in self.contestants().items():
            ends = [run() for _ in range(START_UPS)]
            self.start_ups[name] = {
                "sender": [end.sent for end in ends],
                "receiver": [end.received for end in ends],
            }
        self.bytes = 1 << 26
        first = self.ours("one_copy")
        self.bytes = max(int(first.gbps * 1e9 / 8 * RUN_S) // size_bytes, 1000) * size_bytes

    def run_block(self, shuffler: random.Random) -> None:
        """Run each program once, in random order."""
        contestants = self.contestants()
        for name in shuffler.sample(list(contestants), len(contestants)):
            self.samples[name].append(self._sample(contestants[name](), name))

    def result(self) -> tuple[list[Comparison], dict[str, Any]]:
        comparisons = [
            compare(self.samples, ours, peer, quantity, self.factors)
            for ours, peer in self.PAIRS
            for quantity in QUANTITIES
        ]
        start_up = {
            name: {role: vars(typical(ends)) for role, ends in sides.items()}
            for name, sides in self.start_ups.items()
        }
        return comparisons, {
            **self.factors,
            "bytes": self.bytes,
            "start_up": start_up,
            "samples": self.samples,
        }

    def contestants(self) -> dict[str, Callable[[], "Transfer"]]:
        """Return name -> function that runs the program once."""
        return {
            "one_copy": lambda: self.ours("one_copy"),
            "one_copy_loop": lambda: self.ours("one_copy", LOOP),
            "one_copy_coalesced": lambda: self.ours("one_copy", COALESCED),
            "sendfile_loop": lambda: self.ours("sendfile", LOOP),
            "sendfile_coalesced": lambda: self.ours("sendfile", COALESCED),
            "bare": self.bare,
            "iperf3": lambda: self.iperf3([]),
            "iperf3_sendfile": lambda: self.iperf3(["-Z"]),
        }

    def ours(self, impl: str, form: Form = THREADS, memory: Sequence[str] = ONE_BUFFER) -> "Transfer":
        messages = max(1, self.bytes // int(self.size) // int(self.connections))
        common = ["--size", self.size, "--threads", self.connections]
        address = self.topology.addresses["sender"]
        send = ["send", "--impl", impl, "--listen", address, "--messages", str(messages), "--fields", "1"]
        # The other programs send the same buffer repeatedly, and read no clock.
        send += ["--time-every", "1024", *memory, "--sender", form.sender]
        send += ["--file", tempfile.gettempdir()] if impl == "sendfile" else []
        sender = self._start("sender", [str(paths.TRAFFIC), *send, *common])
        port = sender.ready(r"listening on \S+:(\d+)")[1]
        receive = ["recv", "--connect", address, "--port", port, "--buffer", self.size]
        receive += ["--receiver", form.receiver, "--coalesce", str(form.coalesce_us)]
        receiver = self._start("receiver", [str(paths.TRAFFIC), *receive, *common])
        sent, received = sender.end(), receiver.end()
        report = json.loads(received.output)
        return Transfer(report["bytes"], report["sending_ns"], sent, received)

    def bare(self, program: str = str(BARE), how: str = "send") -> "Transfer":
        receiver = self._start("receiver", [str(BARE), "recv", PORT, self.size, self.connections])
        receiver.ready("listening")
        address = self.topology.addresses["receiver"]
        send = [how, address, PORT, self.size, str(self.bytes), self.connections]
        sender = self._start("sender", [program, *send])
        sent, received = sender.end(), receiver.end()
        report = json.loads(received.output)
        return Transfer(report["bytes"], report["receiving_ns"], sent, received)

    def iperf3(self, options: list[str]) -> "Transfer":
        server = ["iperf3", "--server", "--one-off", "--json", "--port", PORT, "--bind"]
        # iperf3 prints nothing when it is ready, so wait for its socket (ss, in its namespace).
        receiver = self._start("receiver", [*server, self.topology.addresses["receiver"]])
        self._wait_listening()
        client = ["iperf3", "--client", self.topology.addresses["receiver"], "--json", "--no-delay"]
        client += ["--port", PORT, "--length", self.size, "--bytes", str(self.bytes)]
        client += ["--parallel", self.connections, *options]
        sender = self._start("sender", client)
        sent, received = sender.end(), receiver.end()
        total = json.loads(received.output)["end"]["sum_received"]
        return Transfer(total["bytes"], total["seconds"] * 1e9, sent, received)

    def _wait_listening(self) -> None:
        argv = [*self.topology.namespaces["receiver"].enter(), "ss", "-Hltn", f"sport = :{PORT}"]
        for _ in range(2000):
            listing = Program(argv).end()
            if listing.output.strip():
                return
        raise SystemExit("iperf3 --server: does not listen")

    def _start(self, side: Literal["sender", "receiver"], argv: list[str]) -> Program:
        cpus = self.cpus[0 if side == "sender" else 1]
        return Program(self.topology.command(side, ["taskset", "--cpu-list", cpus, *argv]))

    def _sample(self, transfer: "Transfer", name: str) -> Sample:
        """Return the sample of a transfer. Like goodput, CPU time excludes start and end of the programs."""
        sent, received = (
            end.less(typical(self.start_ups[name][role]))
            for role, end in (("sender", transfer.sent), ("receiver", transfer.received))
        )
        kib, messages = transfer.bytes / 1024, transfer.bytes / int(self.size)
        return {
            "gbps": transfer.gbps,
            "sender_cpu_ns_per_kib": sent.cpu_s * 1e9 / kib,
            "receiver_cpu_ns_per_kib": received.cpu_s * 1e9 / kib,
            "sender_sleeps_per_message": sent.sleeps / messages,
            "receiver_sleeps_per_message": received.sleeps / messages,
        }


@dataclass(frozen=True)
class Transfer:
    """Bytes and duration of one transfer, and the resources of both programs from start to end."""

    bytes: int
    took_ns: float
    sent: Ended
    received: Ended

    @property
    def gbps(self) -> float:
        return 8 * self.bytes / self.took_ns


def typical(ends: Sequence[Ended]) -> Ended:
    """Return the medians of a few short runs, without their output."""
    return Ended("", median([end.cpu_s for end in ends]), round(median([end.sleeps for end in ends])))


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Yield a result for each message size and number of connections: comparisons, and all samples."""
    shapes = [(size_bytes, connections) for connections in CONNECTIONS for size_bytes in SIZES_BYTES]
    return results_of(Contest, shapes, TRAFFIC_BLOCKS, seed, cpus)


def results_of(
    kind: type[Contest], shapes: list[tuple[int, int]], blocks: int, seed: int, cpus: list[str]
) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """Run all contests, and yield their results.

    A block has all sizes and connections, so that the pairs of one contest spread over the whole run: a drift
    of the machine widens the intervals instead of appearing as a difference.
    """
    shuffler = random.Random(seed)
    link = LinkSettings(congestion=choose_congestion(None))
    with open_topology("veth", link, paths.XDP_OBJECT) as topology:
        contests = [kind(topology, size_bytes, connections, cpus) for size_bytes, connections in shapes]
        for contest in contests:
            contest.calibrate()
        for _ in range(blocks):
            for contest in shuffler.sample(contests, len(contests)):
                contest.run_block(shuffler)
    yield from (contest.result() for contest in contests)
