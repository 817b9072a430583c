"""How many seconds of run give an interval of 2 %? Ours at its default frequency and at perf's; perf record.

The quantity is what a ledger row says: ns per KiB of copy_in (one_copy) and of deferred (zero_copy), on the
sender. Ours is tools/profile.py as a user starts it. perf record -g watches the same traffic (the same
options, the same processors, both sides) all of the time; its stacks are named by the same taxonomy, and its
share of samples gets the same interval (Wilson, 95 %) and the same CPU clock. All take turns.
Precision says nothing of what the tool costs meanwhile: that is the benchmark `observer`.
"""

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.crosscheck.tools import kernel_stacks
from copyscope.plan.arguments import parser
from copyscope.plan.options import choose_congestion, resolve_traffic
from copyscope.run.child import Child
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.topology import LinkSettings, Topology, open_topology
from precision_numbers import OURS, OURS_FAST, OURS_WHOLE, PERF, PERF_HZ, Sample, lines, sample
from samples import Comparison

__all__ = ["SECONDS", "SIZE", "lines", "rows"]  # `lines` is what bench_table.py looks for

PROFILE = str(paths.ROOT / "tools" / "profile.py")
ACCOUNTS = {"one_copy": "copy_in", "zero_copy": "deferred"}
SIZE = 65536
SECONDS = (1, 2, 4)
WARM_UP_S = 0.5
PERF_READY_S = 20
FAST = ("--frequency", str(PERF_HZ))
LEDGER_ONLY = ("--instruments", "sampler,counters")


def workload(impl: str, cpus: Sequence[str]) -> list[str]:
    """The options that make the traffic what it is, for both."""
    where = ["--sender-cpus", cpus[0], "--receiver-cpus", cpus[1]]
    return ["--impl", impl, "--size", str(SIZE), *where]


def ours(impl: str, common: Sequence[str], options: Sequence[str]) -> Sample:
    """One run; the row as the record has it."""
    argv = [PROFILE, "--quiet", *common, *options, "--json", "-"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    record = json.loads(done.stdout)
    rows = [r for r in record["ledger"] if r["account"] == ACCOUNTS[impl] and r["side"] == "sender"]
    hits, value = sum(r["samples"] for r in rows), sum(r["ns_per_kib"] for r in rows)
    sender = record["sides"]["sender"]
    seconds = record["run"]["measured_s"]
    # A PMU's counters are not armed by us, and `enabled_ns` is 0 with them: they run with the segments.
    observed_s = sum(
        (segment["end_ns"] - segment["begin_ns"]) / 1e9
        for segment in record["run"]["segments"]
        if "ledger" in segment["arm"]
    )
    return sample((seconds, observed_s, sender["cpu_ns"] / 1e9), hits, sender["samples"], value)


class Traffic:
    """One sender and one receiver that perf looks at, with the options of profile.py; ours is off."""

    def __init__(self, topology: Topology, common: Sequence[str], exit_: contextlib.ExitStack):
        address = topology.addresses["sender"]
        same = resolve_traffic(parser().parse_args([*common]))
        send = [str(paths.TRAFFIC), "send", "--control", "--listen", address, *same.send]
        self.sender = Child("sender", topology.command("sender", send))
        exit_.callback(self.sender.end)
        port = self.sender.expect("listening")["port"]
        receive = [str(paths.TRAFFIC), "recv", "--control", "--connect", address, "--port", str(port)]
        self.receiver = Child("receiver", topology.command("receiver", [*receive, *same.receive]))
        exit_.callback(self.receiver.end)
        self.receiver.expect("connected")
        self.sender.expect("connected")
        self.sender.ask("go", "going")
        time.sleep(WARM_UP_S)
        self.messages_per_s = self.mark()["bytes"] / SIZE / WARM_UP_S

    def mark(self) -> dict[str, Any]:
        """The sender's totals with nothing in flight."""
        mark = self.sender.ask("pause", "mark", 30)
        self.receiver.ask(f"settle {mark['bytes']}", "mark", 30)
        return mark


@contextlib.contextmanager
def recording(pids: Sequence[str], data: Path) -> Iterator[None]:
    """perf record from when it has said that it is enabled (perf-record(1), --control) until it has ended."""
    control, answer = data.with_name("control"), data.with_name("answer")
    for fifo in (control, answer):
        os.mkfifo(fifo)
    argv = ["perf", "record", "-q", "-g", "-F", str(PERF_HZ), "-p", ",".join(pids), "-o", str(data)]
    argv += ["-D", "-1", f"--control=fifo:{control},{answer}"]
    # both ways, so that opening waits for nobody
    with control.open("r+b", 0) as ask, answer.open("r+b", 0) as said:
        tool = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            ask.write(b"enable\n")
            if not select.select([said], [], [], PERF_READY_S)[0]:
                raise SystemExit(f"{' '.join(argv)}: not enabled after {PERF_READY_S} s")
            yield
            tool.send_signal(signal.SIGINT)
            _, error = tool.communicate(timeout=PERF_READY_S)
            # it ends by the signal that it was sent
            if tool.returncode not in (0, -signal.SIGINT):
                raise SystemExit(f"{' '.join(argv)}: status {tool.returncode}: {error.strip()[-500:]}")
        finally:
            if tool.poll() is None:
                tool.kill()
                tool.wait()


def perf(traffic: Traffic, account: str, seconds: int) -> Sample:
    """perf record -g on both sides at its default frequency; without a PMU its event is cpu-clock."""
    before = traffic.mark()
    with tempfile.TemporaryDirectory(prefix="copyscope-perf-") as scratch:
        data = str(Path(scratch) / "perf.data")
        sender = str(traffic.sender.pid)
        # It begins and ends while the traffic pauses: all of the traffic is observed, and nothing else.
        with recording([sender, str(traffic.receiver.pid)], Path(data)):
            began_ns = traffic.sender.ask("resume", "resumed")["t_ns"]
            time.sleep(seconds)
            after = traffic.mark()
        shown = run(["perf", "script", "-i", data, "--pid", sender, "-F", "ip,sym", "--no-inline"])
    taxonomy = Taxonomy.load()
    categories = [taxonomy.classify(stack).category for stack in kernel_stacks(shown)]
    if not categories:
        raise SystemExit("perf record: no sample of the sender")
    hits = categories.count(account)
    cpu_ns, sent = (after[key] - before[key] for key in ("process_cpu_ns", "bytes"))
    observed_s = (after["t_ns"] - began_ns) / 1e9
    value = hits / len(categories) * cpu_ns / (sent / 1024)
    return sample((observed_s, observed_s, cpu_ns / 1e9), hits, len(categories), value)


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each account. Tools and lengths come in seeded order."""
    shuffler = random.Random(seed)
    for impl, account in ACCOUNTS.items():
        common = workload(impl, cpus)
        tools = (OURS, OURS_FAST, OURS_WHOLE, PERF)
        samples: dict[str, list[Sample]] = {tool: [] for tool in tools}
        order = [(tool, seconds) for tool in tools for seconds in SECONDS]
        shuffler.shuffle(order)
        link = LinkSettings(congestion=choose_congestion(None))
        with contextlib.ExitStack() as exit_:
            topology = exit_.enter_context(open_topology("veth", link, paths.XDP_OBJECT))
            # paused while ours runs
            traffic = Traffic(topology, common, exit_)
            for tool, seconds in order:
                if tool == PERF:
                    found = perf(traffic, account, seconds)
                elif tool == OURS_WHOLE:
                    count = str(round(traffic.messages_per_s * seconds))
                    found = ours(impl, common, ["--messages", count, *LEDGER_ONLY, *FAST])
                else:
                    fast = FAST if tool == OURS_FAST else ()
                    found = ours(impl, common, ["--duration", str(seconds), *fast])
                samples[tool].append(found)
        yield [], {"impl": impl, "account": account, "cpus": list(cpus), "samples": samples}
