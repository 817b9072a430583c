"""How many seconds of run give an interval of 2 %? Ours at its default frequency and at perf's; perf record.

The quantity is what a ledger row says: ns per KiB of copy_in (one_copy) and of deferred (zero_copy), on the
sender. Ours is tools/profile.py with its defaults, so a part of its seconds goes to the control and to the
calls. perf record -g runs at its default frequency on the same traffic, all of the time; its stacks are named
by the same taxonomy, and its share of samples gets the same interval (Wilson, 95 %) and the same CPU clock.
Precision says nothing of what the tool costs meanwhile: that is the benchmark `observer`.
"""

import contextlib
import importlib
import json
import math
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from copyscope import paths, stats
from copyscope.child import Child
from copyscope.crosscheck.tools import kernel_stacks
from copyscope.options import choose_congestion
from copyscope.taxonomy import Taxonomy
from copyscope.topology import LinkSettings, Topology, open_topology
from samples import Comparison

PROFILE = str(paths.ROOT / "tools" / "profile.py")
ACCOUNTS = {"one_copy": "copy_in", "zero_copy": "deferred"}
SIZE = "65536"
SECONDS = (1, 2, 4, 8)
WANTED = 0.02
# perf-record(1): 4000 Hz unless -F says otherwise.
PERF_HZ = 4000
OURS, OURS_FAST, PERF = "copyscope (199 Hz)", f"copyscope at {PERF_HZ} Hz", "perf record -g"
WARM_UP_S = 0.5
Sample = dict[str, Any]


def ours(impl: str, seconds: int, options: Sequence[str]) -> Sample:
    """One run; the row as the record has it."""
    argv = [PROFILE, "--quiet", "--impl", impl, "--size", SIZE, "--duration", str(seconds), "--json", "-"]
    done = subprocess.run([*argv, *options], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    record = json.loads(done.stdout)
    rows = [r for r in record["ledger"] if r["account"] == ACCOUNTS[impl] and r["side"] == "sender"]
    hits, value = sum(r["samples"] for r in rows), sum(r["ns_per_kib"] for r in rows)
    return sample(seconds, hits, record["sides"]["sender"]["samples"], value)


def sample(seconds: int, hits: int, samples: int, ns_per_kib: float) -> Sample:
    """One point of the plot; without a hit there is no relative width."""
    found = {"seconds": seconds, "hits": hits, "samples": samples, "ns_per_kib": ns_per_kib}
    if not hits:
        return {**found, "half_width": None}
    interval = stats.wilson(hits, samples)
    return {**found, "half_width": (interval.high - interval.low) / 2 / (hits / samples)}


class Traffic:
    """One sender and one receiver that perf looks at; nothing of ours is attached."""

    def __init__(self, topology: Topology, impl: str, cpus: Sequence[str], exit_: contextlib.ExitStack):
        address = topology.addresses["sender"]
        send = [str(paths.TRAFFIC), "send", "--control", "--impl", impl, "--listen", address, "--size", SIZE]
        self.sender = Child("sender", topology.command("sender", [*send, "--cpus", cpus[0]]))
        exit_.callback(self.sender.end)
        port = self.sender.expect("listening")["port"]
        receive = [str(paths.TRAFFIC), "recv", "--control", "--connect", address, "--port", str(port)]
        receive += ["--size", SIZE, "--cpus", cpus[1]]
        self.receiver = Child("receiver", topology.command("receiver", receive))
        exit_.callback(self.receiver.end)
        self.receiver.expect("connected")
        self.sender.expect("connected")
        self.sender.ask("go", "going")
        time.sleep(WARM_UP_S)
        self.mark()

    def mark(self) -> dict[str, Any]:
        """The sender's totals with nothing in flight."""
        mark = self.sender.ask("pause", "mark", 30)
        self.receiver.ask(f"settle {mark['bytes']}", "mark", 30)
        return mark


def perf(traffic: Traffic, account: str, seconds: int) -> Sample:
    """perf record -g on the sender, at its defaults: without a PMU they are cpu-clock at PERF_HZ."""
    before = traffic.mark()
    with tempfile.TemporaryDirectory(prefix="copyscope-perf-") as scratch:
        data = str(Path(scratch) / "perf.data")
        pid = str(traffic.sender.pid)
        traffic.sender.ask("resume", "resumed")
        run(["perf", "record", "-q", "-g", "-p", pid, "-o", data, "--", "sleep", str(seconds)])
        after = traffic.mark()
        shown = run(["perf", "script", "-i", data, "-F", "ip,sym", "--no-inline"])
    taxonomy = Taxonomy.load()
    categories = [taxonomy.classify(stack).category for stack in kernel_stacks(shown)]
    if not categories:
        raise SystemExit("perf record: no sample of the sender")
    hits = categories.count(account)
    cpu_ns, sent = (after[key] - before[key] for key in ("process_cpu_ns", "bytes"))
    return sample(seconds, hits, len(categories), hits / len(categories) * cpu_ns / (sent / 1024))


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """One result for each account; then the plot of both. The lengths come in seeded order."""
    shuffler = random.Random(seed)
    made = []
    for impl, account in ACCOUNTS.items():
        order = [(tool, seconds) for tool in (OURS, OURS_FAST) for seconds in SECONDS]
        shuffler.shuffle(order)
        samples: dict[str, list[Sample]] = {OURS: [], OURS_FAST: [], PERF: []}
        for tool, seconds in order:
            options = ["--frequency", str(PERF_HZ)] if tool == OURS_FAST else []
            samples[tool].append(ours(impl, seconds, options))
        link = LinkSettings(congestion=choose_congestion(None))
        with contextlib.ExitStack() as exit_:
            topology = exit_.enter_context(open_topology("veth", link, paths.XDP_OBJECT))
            traffic = Traffic(topology, impl, cpus, exit_)
            lengths = list(SECONDS)
            shuffler.shuffle(lengths)
            samples[PERF] = [perf(traffic, account, seconds) for seconds in lengths]
        made.append({"impl": impl, "account": account, "samples": samples})
        yield [], made[-1]
    # imports matplotlib, which the table does without
    importlib.import_module("precision_plot").draw(made, cpus)


def fit(samples: Sequence[Sample]) -> float | None:
    """The half width after one second, c of c / sqrt(seconds): the mean of the logarithms."""
    known = [one for one in samples if one["half_width"]]
    if not known:
        return None
    return math.exp(fmean(math.log(one["half_width"]) + math.log(one["seconds"]) / 2 for one in known))


def needed(samples: Sequence[Sample]) -> tuple[float, float, float] | None:
    """Seconds for WANTED: by the fit, and by the run that says the least and the most."""
    after_1_s = fit(samples)
    if after_1_s is None:
        return None
    each = [one["seconds"] * (one["half_width"] / WANTED) ** 2 for one in samples if one["half_width"]]
    return (after_1_s / WANTED) ** 2, min(each), max(each)


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The table of results/bench/README.md."""
    head = (
        "account",
        "tool",
        "samples per second of run",
        "share",
        "ns/KiB (longest run)",
        "seconds for 2 %",
    )
    text = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for part in raw:
        for tool, samples in part["samples"].items():
            longest = max(samples, key=lambda one: int(one["seconds"]))
            rate = sum(one["samples"] for one in samples) / sum(one["seconds"] for one in samples)
            share = sum(one["hits"] for one in samples) / max(1, sum(one["samples"] for one in samples))
            found = needed(samples)
            wanted = "n/a: no sample in it" if found is None else spread(found)
            cells = [f"{rate:.0f}", f"{100 * share:.1f} %", f"{longest['ns_per_kib']:.3g}", wanted]
            text.append(f"| {part['account']} ({part['impl']}) | {tool} | {' | '.join(cells)} |")
    note = (
        "In brackets: by each run alone. The interval is that of the samples (Wilson, 95 %), half of it in "
        "percent of the row; it falls with the square root of the time. Ours gives 0.6 of a run to the "
        "ledger. What each costs the traffic meanwhile is the benchmark `observer`."
    )
    return [*text, "", note, "", "![seconds for an interval of 2 %](precision.png)"]


def spread(found: tuple[float, float, float]) -> str:
    middle, least, most = map(seconds_text, found)
    return f"{middle} ({least} to {most})"


def seconds_text(seconds: float) -> str:
    """Two digits are all that is known."""
    return f"{float(f'{seconds:.2g}'):,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
