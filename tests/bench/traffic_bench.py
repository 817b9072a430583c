"""How fast is the traffic, against iperf3 and against a bare send() loop, over the same path?"""

import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from contestants import Ended, Program
from copyscope import paths
from copyscope.plan.options import choose_congestion
from copyscope.topology import LinkSettings, Topology, open_topology
from samples import BLOCKS, Comparison, compare

SIZES_BYTES = (1024, 16384, 65536, 1 << 20)
CONNECTIONS = (1, 4)
# Long enough for slow start to be nothing, short enough for all to take three minutes.
RUN_S = 0.2
BARE = paths.OUTPUT / "tests" / "bare"
PORT = "5201"

# An interval that is open with ten blocks is often closed with more, and these are the cheapest there are.
TRAFFIC_BLOCKS = round(1.6 * BLOCKS)
# The median of so many minimal transfers is what a program takes to start and to end.
START_UPS = 3

# What is compared, ours first: the same system calls on both sides, and programs that wait in the same way.
# The bare loop blocks in send() and recv(), a thread each; iperf3 (until 3.15) sends on all connections in
# one thread and reads them in one, behind select(), and so do ours that are called loop; those called
# coalesced are not woken by what arrives but look by the clock. iperf3 -Z sends a file of the directory for
# temporary files, and so do ours. one_copy against iperf3 is what copyscope run does when nothing else is
# asked for. The last is no contest of ours: it says what a thread for each connection costs.
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
    """How our two programs serve their connections."""

    sender: str
    receiver: str
    coalesce_us: int = 0


THREADS = Form("threads", "read")
LOOP = Form("loop", "poll")
COALESCED = Form("loop", "poll", 20)


class Contest:
    """All programs over one path, with one size and number of connections."""

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
        """What each program takes to start, and how many bytes take RUN_S: from a first run of our own."""
        size_bytes = int(self.size)
        self.bytes = size_bytes * int(self.connections)
        for name, run in self.contestants().items():
            ends = [run() for _ in range(START_UPS)]
            self.start_ups[name] = {"sender": [e.sent for e in ends], "receiver": [e.received for e in ends]}
        self.bytes = 1 << 26
        first = self.ours("one_copy")
        self.bytes = max(int(first.gbps * 1e9 / 8 * RUN_S) // size_bytes, 1000) * size_bytes

    def run_block(self, shuffler: random.Random) -> None:
        """Each of them once."""
        contestants = self.contestants()
        for name in shuffler.sample(list(contestants), len(contestants)):
            self.samples[name].append(self._sample(contestants[name](), name))

    def result(self) -> tuple[list[Comparison], dict[str, Any]]:
        made = [
            compare(self.samples, ours, peer, quantity, self.factors)
            for ours, peer in self.PAIRS
            for quantity in QUANTITIES
        ]
        start_up = {
            name: {side: vars(typical(ends)) for side, ends in sides.items()}
            for name, sides in self.start_ups.items()
        }
        return made, {**self.factors, "bytes": self.bytes, "start_up": start_up, "samples": self.samples}

    def contestants(self) -> dict[str, Callable[[], "Transfer"]]:
        """Name -> what runs it once."""
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
        # The peers send the same memory again and again, from one buffer, and read no clock.
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
        # It says nothing when it is ready: its socket does (ss, in its namespace).
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
        look = [*self.topology.namespaces["receiver"].enter(), "ss", "-Hltn", f"sport = :{PORT}"]
        for _ in range(2000):
            found = Program(look).end()
            if found.output.strip():
                return
        raise SystemExit("iperf3 --server: does not listen")

    def _start(self, side: str, argv: list[str]) -> Program:
        cpus = self.cpus[0 if side == "sender" else 1]
        return Program(self.topology.command(side, ["taskset", "--cpu-list", cpus, *argv]))  # type: ignore[arg-type]

    def _sample(self, made: "Transfer", name: str) -> Sample:
        """Goodput is that of the sending time, so the CPU time is that of sending, too."""
        sent, received = (
            end.less(typical(self.start_ups[name][side]))
            for side, end in (("sender", made.sent), ("receiver", made.received))
        )
        kib, messages = made.bytes / 1024, made.bytes / int(self.size)
        return {
            "gbps": made.gbps,
            "sender_cpu_ns_per_kib": sent.cpu_s * 1e9 / kib,
            "receiver_cpu_ns_per_kib": received.cpu_s * 1e9 / kib,
            "sender_sleeps_per_message": sent.sleeps / messages,
            "receiver_sleeps_per_message": received.sleeps / messages,
        }


@dataclass(frozen=True)
class Transfer:
    """What one run moved, in which time, and what both programs used in their whole lives."""

    bytes: int
    took_ns: float
    sent: Ended
    received: Ended

    @property
    def gbps(self) -> float:
        return 8 * self.bytes / self.took_ns


def typical(ends: Sequence[Ended]) -> Ended:
    """The medians of a few short lives; what they printed is nothing."""
    return Ended("", median([end.cpu_s for end in ends]), round(median([end.sleeps for end in ends])))


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each size and number of connections: comparisons, and every sample."""
    shapes = [(size_bytes, connections) for connections in CONNECTIONS for size_bytes in SIZES_BYTES]
    return results_of(Contest, shapes, TRAFFIC_BLOCKS, seed, cpus)


def results_of(
    kind: type[Contest], shapes: list[tuple[int, int]], blocks: int, seed: int, cpus: list[str]
) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """A block goes through all sizes and connections, so that the pairs of one lie as far apart as the run is
    long: what the machine does meanwhile is in the intervals, and not taken for a difference.
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
