"""What do our instruments cost, against what people would use instead? Tool by tool, in turns.

One sender and one receiver run over veth for the whole benchmark and pause between segments; each block
has one segment without any tool and one with each. A tool is attached before its segment begins and
detached after it ends, so its start is not in the figure.
"""

import contextlib
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.child import Child
from copyscope.options import choose_congestion
from copyscope.topology import SIDES, LinkSettings, Topology, open_topology
from copyscope.tracefs import IN_TRACEFS
from samples import BLOCKS, Comparison, compare

SIZES_BYTES = (64, 1024, 65536)
# The default of tools/profile.py, and of profile.bt.
FREQUENCY = "199"
SEGMENT_S = 0.5
HERE = Path(__file__).resolve().parent
Tool = Callable[["Stage"], contextlib.AbstractContextManager[None]]


class Stage:
    """The traffic of one size, and our collector beside it."""

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
        # The defaults of tools/profile.py.
        self.collector = Child("collector", [str(paths.COLLECTOR), "--frequency", FREQUENCY])
        exit_.callback(self.collector.end)
        self.collector.expect("ready", 30)
        for side in SIDES:
            child = self.sender if side == "sender" else self.receiver
            self.collector.ask(f"target {side} {child.pid}", "target")
        self.collector.ask("symbols", "symbols", 30)
        self.sender.ask("go", "going")
        time.sleep(SEGMENT_S)
        self.mark = self._mark()

    def segment(self) -> dict[str, float]:
        """Goodput of SEGMENT_S of traffic; nothing is in flight before and after."""
        before = self.mark
        begin_ns = self.sender.ask("resume", "resumed")["t_ns"]
        time.sleep(SEGMENT_S)
        self.mark = self._mark()
        sent = self.mark["bytes"] - before["bytes"]
        return {"gbps": 8 * sent / (self.mark["t_ns"] - begin_ns)}

    def _mark(self) -> dict[str, Any]:
        mark = self.sender.ask("pause", "mark", 30)
        self.receiver.ask(f"settle {mark['bytes']}", "mark", 30)
        return mark


@contextlib.contextmanager
def nothing(_stage: Stage) -> Iterator[None]:
    yield


def ours(instruments: str) -> Tool:
    @contextlib.contextmanager
    def attached(stage: Stage) -> Iterator[None]:
        stage.collector.ask(f"open {instruments}", "opened", 30)
        try:
            yield
        finally:
            stage.collector.ask("close", "closed", 30)

    return attached


def program(argv: list[str], ready: str | None) -> Tool:
    """A tool of others: `ready` is a line that says that it is attached (None: 0.5 s are enough for perf)."""

    @contextlib.contextmanager
    def attached(_stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as errors:
            out = subprocess.PIPE if ready else subprocess.DEVNULL
            with subprocess.Popen(argv, cwd=scratch, stdout=out, stderr=errors, text=True) as tool:
                try:
                    if ready:
                        assert tool.stdout is not None
                        while ready not in tool.stdout.readline():
                            if tool.poll() is not None:
                                raise SystemExit(f"{argv[0]}: ended before it was attached")
                    else:
                        time.sleep(0.5)
                    yield
                finally:
                    if tool.poll() is not None:
                        errors.seek(0)
                        raise SystemExit(f"{' '.join(argv)}: {errors.read().decode()}")
                    tool.send_signal(signal.SIGINT)
                    try:
                        tool.communicate(timeout=60)
                    except subprocess.TimeoutExpired:
                        tool.kill()
                        raise SystemExit(f"{' '.join(argv)}: does not end on SIGINT") from None

    return attached


def bpftrace(script: str) -> Tool:
    # BEGIN runs when the first probe is attached; the others follow within a millisecond or two.
    return program([*IN_TRACEFS, "bpftrace", str(HERE / script)], "attached")


def tools() -> dict[str, Tool]:
    """Every contestant; `off` is the control."""
    record = ["perf", "record", "-a", "-g", "-F", FREQUENCY, "-e", "cpu-clock", "-o", "perf.data"]
    return {
        "off": nothing,
        "ours": ours("bytes,sampler"),
        "ours_calls": ours("calls"),
        "perf_record": program(record, None),
        "perf_trace": program(["perf", "trace", "-s", "-a", "-o", "trace.txt"], None),
        "bpftrace_calls": bpftrace("calls.bt"),
        "bpftrace_profile": bpftrace("profile.bt"),
    }


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result per size: each tool against the control, and every sample."""
    shuffler = random.Random(seed)
    link = LinkSettings(congestion=choose_congestion(None))
    for size_bytes in SIZES_BYTES:
        with contextlib.ExitStack() as exit_:
            topology = exit_.enter_context(open_topology("veth", link, paths.XDP_OBJECT))
            stage = Stage(topology, size_bytes, cpus, exit_)
            contestants = tools()
            samples: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
            for _ in range(BLOCKS):
                order = list(contestants)
                shuffler.shuffle(order)
                for name in order:
                    with contestants[name](stage):
                        samples[name].append(stage.segment())
            made = [
                compare(samples, name, "off", "gbps", {"size_bytes": size_bytes})
                for name in contestants
                if name != "off"
            ]
        yield made, {"size_bytes": size_bytes, "samples": samples}
