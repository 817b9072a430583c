"""The tools that are asked, one class each; what they print is parsed here and tested on real texts."""

import platform
import re
from collections import Counter
from pathlib import Path

from copyscope.asking import ask
from copyscope.crosscheck.peer import Peer, Quantities, Watched
from copyscope.taxonomy.taxonomy import Taxonomy

SENDING = ("sendto", "sendmsg")
BPFTRACE_SCRIPT = Path(__file__).with_name("crosscheck.bt")
FUNCTIONS_SCRIPT = Path(__file__).with_name("functions.bt")
# The sampling period of perf record; its frequency is ours.
SAMPLE_PERIOD_NS = 1_000_000
# Ten thousand stacks as text, on an emulated machine.
SCRIPT_S, SCRIPT_MAX_BYTES = 60.0, 256 << 20
PMUS = Path("/sys/bus/event_source/devices")
# Without tracefs (mounted in the tool's own namespace only) this file still tells.
KPROBES = (PMUS / "kprobe", "kprobes: this kernel takes none (CONFIG_KPROBES, lockdown)")
HEADERS = Path("/lib/modules") / platform.release() / "build"


class Bpftrace(Peer):
    """Counts and sums by tracepoints, as anybody would write them."""

    name = "bpftrace"
    program = "bpftrace"
    package = "bpftrace"
    script = BPFTRACE_SCRIPT

    def argv(self, watched: Watched) -> list[str]:
        return ["bpftrace", str(self.script), str(watched.pids["sender"]), str(watched.pids["receiver"])]

    def read(self, watched: Watched, output: str) -> Quantities:
        return {name: float(value) for name, value in re.findall(r"^@(\w+): (\d+)$", output, re.MULTILINE)}


class BpftraceFunctions(Bpftrace):
    """The same with kprobes: the functions that only few kernels let anybody hook."""

    name = "bpftrace kprobes"
    script = FUNCTIONS_SCRIPT
    needs = KPROBES


class Syscount(Peer):
    """libbpf-tools' syscount: calls and latency of the sender's syscalls."""

    name = "syscount"
    program = "/usr/sbin/syscount"
    renamed = "/usr/sbin/syscount-libbpf"  # Debian 13
    package = "libbpf-tools"

    def argv(self, watched: Watched) -> list[str]:
        return [self.found or self.program, "-L", "-p", str(watched.pids["sender"]), "-T", "100"]

    def read(self, watched: Watched, output: str) -> Quantities:
        # SYSCALL COUNT TIME (us)
        found = re.findall(r"^(\w+) +(\d+) +([\d.]+)$", output, re.MULTILINE)
        rows = {name: (int(count), float(us) * 1e3) for name, count, us in found}
        return _calls(rows)


class PerfTrace(Peer):
    """perf trace -s: the same by another way."""

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
    """perf record, the sender's stacks through our taxonomy: shares of CPU time by category.

    On each CPU, as ours samples: timers of a task are set anew at every switch, and miss what follows one.
    """

    name = "perf record"
    program = "perf"
    package = "linux-perf"

    def argv(self, watched: Watched) -> list[str]:
        event = ["-e", "cpu-clock", "-c", str(SAMPLE_PERIOD_NS)]
        return ["perf", "record", "-q", "-g", *event, "-a", "-o", "perf.data"]

    def read(self, watched: Watched, output: str) -> Quantities:
        whose = ["--pid", str(watched.pids["sender"])]
        argv = ["perf", "script", "-i", "perf.data", *whose, "-F", "ip,sym", "--no-inline"]
        shown = ask(argv, directory=watched.directory, limit_s=SCRIPT_S, most_bytes=SCRIPT_MAX_BYTES)
        if shown.status != 0:
            raise ValueError(f"perf script ended with status {shown.status}")
        taxonomy = Taxonomy.load()
        found = Counter(taxonomy.classify(stack).category for stack in kernel_stacks(shown.text))
        return {f"samples:{category}": float(count) for category, count in found.items()}


class Funclatency(Peer):
    """libbpf-tools' funclatency on tcp_sendmsg: its calls; needs kprobes."""

    name = "funclatency"
    program = "/usr/sbin/funclatency"
    renamed = "/usr/sbin/funclatency-libbpf"
    package = "libbpf-tools"
    needs = KPROBES

    def argv(self, watched: Watched) -> list[str]:
        return [self.found or self.program, "-p", str(watched.pids["sender"]), "tcp_sendmsg"]

    def read(self, watched: Watched, output: str) -> Quantities:
        # Slots of a power of two: the calls are exact, the time cannot be had from them.
        counts = re.findall(r"^ +\d+ -> \d+ +: (\d+) ", output, re.MULTILINE)
        return {"tcp_sendmsg_calls": float(sum(map(int, counts)))} if counts else {}


class BccSyscount(Syscount):
    """bcc's own syscount, which compiles its program on this machine and needs the kernel's headers."""

    name = "syscount-bpfcc"
    program = "syscount-bpfcc"
    renamed = ""
    package = "bpfcc-tools"
    needs = (HEADERS, f"{HEADERS}: missing: bcc compiles on the machine and needs the kernel's headers")


PEERS: tuple[type[Peer], ...] = (
    *(Bpftrace, Syscount, PerfTrace, PerfRecord),
    *(BpftraceFunctions, Funclatency, BccSyscount),
)


def kernel_stacks(shown: str) -> list[list[str]]:
    """The kernel frames of each sample of `perf script -F ip,sym`, leaf first; empty in user mode."""
    stacks = []
    for block in shown.split("\n\n"):
        lines = [line.split(None, 1) for line in block.splitlines() if line.strip()]
        if lines:
            stacks.append([words[1].split("+")[0] for words in lines if words[0].startswith("ffff")])
    return stacks


def _calls(rows: dict[str, tuple[int, float]]) -> Quantities:
    """Calls and total time of the syscalls that send; a tool that saw none of them says nothing."""
    seen = [rows[name] for name in SENDING if name in rows]
    if not seen:
        return {}
    return {
        "send_calls": float(sum(calls for calls, _ in seen)),
        "send_ns": sum(total_ns for _, total_ns in seen),
    }
