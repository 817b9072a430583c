# SPDX-License-Identifier: GPL-2.0-only
"""The tools that copyscope is compared with, one class each, with the parsers of their output."""

import platform
import re
from collections import Counter
from pathlib import Path

from copyscope.base.programs import run_program
from copyscope.taxonomy.taxonomy import Taxonomy
from peer import Peer, Quantities, Watched

SENDING = ("sendto", "sendmsg")
BPFTRACE_SCRIPT = Path(__file__).with_name("crosscheck.bt")
FUNCTIONS_SCRIPT = Path(__file__).with_name("functions.bt")
# Sampling period of perf record, about that of copyscope (crosscheck.DEFAULTS).
SAMPLE_PERIOD_NS = 1_000_000
# Limits of perf script, which prints ten thousand stacks on an emulated machine.
SCRIPT_S, SCRIPT_MAX_BYTES = 60.0, 256 << 20
PMUS = Path("/sys/bus/event_source/devices")
# This path tells whether the kernel has kprobes even where tracefs is not mounted.
KPROBES = (PMUS / "kprobe", "kprobes: this kernel takes none (CONFIG_KPROBES, lockdown)")
HEADERS = Path("/lib/modules") / platform.release() / "build"


class Bpftrace(Peer):
    """bpftrace: counts and sums by tracepoints."""

    name = "bpftrace"
    program = "bpftrace"
    package = "bpftrace"
    script = BPFTRACE_SCRIPT

    def argv(self, watched: Watched) -> list[str]:
        return ["bpftrace", str(self.script), str(watched.pids["sender"]), str(watched.pids["receiver"])]

    def read(self, watched: Watched, output: str) -> Quantities:
        return {name: float(value) for name, value in re.findall(r"^@(\w+): (\d+)$", output, re.MULTILINE)}


class BpftraceFunctions(Bpftrace):
    """bpftrace with kprobes on kernel functions; not every kernel allows kprobes."""

    name = "bpftrace kprobes"
    script = FUNCTIONS_SCRIPT
    needs = KPROBES


class Syscount(Peer):
    """syscount of libbpf-tools: calls and latency of the sender's syscalls."""

    name = "syscount"
    program = "/usr/sbin/syscount"
    renamed = "/usr/sbin/syscount-libbpf"  # Debian 13
    package = "libbpf-tools"

    def argv(self, watched: Watched) -> list[str]:
        return [self.installed or self.program, "-L", "-p", str(watched.pids["sender"]), "-T", "100"]

    def read(self, watched: Watched, output: str) -> Quantities:
        # SYSCALL COUNT TIME (us)
        lines = re.findall(r"^(\w+) +(\d+) +([\d.]+)$", output, re.MULTILINE)
        rows = {name: (int(count), float(us) * 1e3) for name, count, us in lines}
        return _calls(rows)


class PerfTrace(Peer):
    """perf trace -s: calls and latency of the sender's syscalls."""

    name = "perf trace"
    program = "perf"
    package = "linux-perf"

    def argv(self, watched: Watched) -> list[str]:
        return ["perf", "trace", "-s", "-p", str(watched.pids["sender"]), "-o", "trace.txt"]

    def read(self, watched: Watched, output: str) -> Quantities:
        text = (watched.directory / "trace.txt").read_text(encoding="utf-8", errors="replace")
        # syscall calls errors total(ms) min avg max stddev, once for each thread
        rows: dict[str, tuple[int, float]] = {}
        for name, calls, ms in re.findall(r"^ +(\w+) +(\d+) +\d+ +([\d.]+)", text, re.MULTILINE):
            before = rows.get(name, (0, 0.0))
            rows[name] = (before[0] + int(calls), before[1] + float(ms) * 1e6)
        return _calls(rows)


class PerfRecord(Peer):
    """perf record: shares of CPU time by category, from the sender's stacks and copyscope's taxonomy.

    It samples each CPU, as copyscope does: timers of a task restart at every context switch.
    """

    name = "perf record"
    program = "perf"
    package = "linux-perf"

    def argv(self, watched: Watched) -> list[str]:
        event = ["-e", "cpu-clock", "-c", str(SAMPLE_PERIOD_NS)]
        return ["perf", "record", "-q", "-g", *event, "-a", "-o", "perf.data"]

    def read(self, watched: Watched, output: str) -> Quantities:
        data = ["-i", str(watched.directory / "perf.data"), "--pid", str(watched.pids["sender"])]
        argv = ["perf", "script", *data, "-F", "ip,sym", "--no-inline"]
        answer = run_program(argv, limit_s=SCRIPT_S, output_max_bytes=SCRIPT_MAX_BYTES)
        if answer.status != 0:
            raise ValueError(f"perf script ended with status {answer.status}")
        taxonomy = Taxonomy.load()
        samples = Counter(taxonomy.classify(stack).category for stack in kernel_stacks(answer.text))
        return {f"samples:{category}": float(count) for category, count in samples.items()}


class Funclatency(Peer):
    """funclatency of libbpf-tools: calls of tcp_sendmsg; needs kprobes."""

    name = "funclatency"
    program = "/usr/sbin/funclatency"
    renamed = "/usr/sbin/funclatency-libbpf"
    package = "libbpf-tools"
    needs = KPROBES

    def argv(self, watched: Watched) -> list[str]:
        return [self.installed or self.program, "-p", str(watched.pids["sender"]), "tcp_sendmsg"]

    def read(self, watched: Watched, output: str) -> Quantities:
        # The histogram has power-of-two slots, so only the number of calls is exact.
        counts = re.findall(r"^ +\d+ -> \d+ +: (\d+) ", output, re.MULTILINE)
        return {"tcp_sendmsg_calls": float(sum(map(int, counts)))} if counts else {}


class BccSyscount(Syscount):
    """syscount of bcc, which compiles its program at start and needs the kernel's headers."""

    name = "syscount-bpfcc"
    program = "syscount-bpfcc"
    renamed = ""
    package = "bpfcc-tools"
    needs = (HEADERS, f"{HEADERS}: missing: bcc compiles on the machine and needs the kernel's headers")


PEERS: tuple[type[Peer], ...] = (
    *(Bpftrace, Syscount, PerfTrace, PerfRecord),
    *(BpftraceFunctions, Funclatency, BccSyscount),
)


def kernel_stacks(script: str) -> list[list[str]]:
    """Return the kernel frames of each sample of `perf script -F ip,sym`, leaf first; empty in user mode."""
    stacks = []
    for block in script.split("\n\n"):
        lines = [line.split(None, 1) for line in block.splitlines() if line.strip()]
        if lines:
            stacks.append([words[1].split("+")[0] for words in lines if words[0].startswith("ffff")])
    return stacks


def _calls(rows: dict[str, tuple[int, float]]) -> Quantities:
    """Return calls and total time of the syscalls that send, or {} if the tool has no row for them."""
    sends = [rows[name] for name in SENDING if name in rows]
    if not sends:
        return {}
    return {
        "send_calls": float(sum(calls for calls, _ in sends)),
        "send_ns": sum(total_ns for _, total_ns in sends),
    }
