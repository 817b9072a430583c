"""Function hooks come once and go when nobody waits for it: afterwards the kernel is as it was."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.run.child import Child
from profiling import SLOW, is_root, left_after_a_second, traces
from test_functions import why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# How often the programs are loaded, and how often they count and cease each time.
LOADED = 4
SWITCHED = 5
# When the collector has ended, its hooks are gone after so long at most.
GONE_S = 10.0 * SLOW
FTRACE_SITES = Path("/sys/kernel/tracing/enabled_functions")
KPROBES = Path("/sys/kernel/debug/kprobes/list")
# What of it must be seen while hooks are there, or nothing that is seen afterwards means anything.
SEEN = {"fentry": "tcp_sendmsg", "kprobe.multi": "tcp_sendmsg", "kprobe": r"k tcp_sendmsg\+0x\w+"}


def complaints() -> list[str]:
    """What the kernel has complained of since it booted."""
    said = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in said if re.search("WARNING: |BUG: |Oops", line)]


def hooks_in_use() -> set[str]:
    """Functions whose ftrace site anybody uses now, and kprobes: not all are at such a site."""
    functions = [line.split()[0] for line in FTRACE_SITES.read_text().splitlines() if line.strip()]
    # address, k or r, function+offset
    kprobes = [" ".join(line.split()[1:3]) for line in KPROBES.read_text().splitlines()]
    return {*functions, *kprobes}


def until(wanted: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes true in time: the kernel frees after a grace period."""
    deadline = time.monotonic() + seconds
    while not wanted() and time.monotonic() < deadline:
        time.sleep(0.05)
    return wanted()


@contextmanager
def running_traffic() -> Iterator[dict[str, int]]:
    """A zero-copy stream over loopback that does not stop; the pids of its sides."""
    with ExitStack() as stack:
        sender = Child(
            "sender",
            [str(paths.TRAFFIC), "send", "--impl", "zero_copy", "--control", "--listen", "127.0.0.1"],
        )
        stack.callback(sender.end)
        port = str(sender.expect("listening", 15 * SLOW)["port"])
        argv = [str(paths.TRAFFIC), "recv", "--control", "--connect", "127.0.0.1", "--port", port]
        receiver = Child("receiver", argv)
        stack.callback(receiver.end)
        for child in (receiver, sender):
            child.expect("connected", 15 * SLOW)
        sender.ask("go", "going")
        yield {"sender": sender.pid, "receiver": receiver.pid}


def bytes_copied_out(collector: Child) -> int:
    cells = collector.ask("functions", "functions", 10 * SLOW)["functions"]["cells"]
    return sum(row["bytes"] for row in cells if row["category"] == "copy_out")


def load_and_switch(kind: str, pids: dict[str, int]) -> None:
    """A collector from its start to its end; what it counts in between."""
    in_use = hooks_in_use()
    collector = Child("collector", [str(paths.COLLECTOR), "--functions", "--attach", kind])
    try:
        collector.expect("ready", 30 * SLOW)
        for side, pid in pids.items():
            collector.ask(f"target {side} {pid}", "target")
        counted = 0
        for _ in range(SWITCHED):
            collector.ask("open functions", "opened", 10 * SLOW)
            assert [hook for hook in hooks_in_use() - in_use if re.fullmatch(SEEN[kind], hook)]
            time.sleep(0.02)
            collector.ask("close", "closed", 10 * SLOW)
            assert bytes_copied_out(collector) > counted
            counted = bytes_copied_out(collector)
            # Unarmed they are there and do nothing.
            collector.ask("open unarmed", "opened", 10 * SLOW)
            time.sleep(0.02)
            collector.ask("close", "closed", 10 * SLOW)
            assert bytes_copied_out(collector) == counted
        assert collector.ask("report", "report", 10 * SLOW)["functions"]["cells"]
    finally:
        began_s = time.monotonic()
        collector.end()
    assert collector.process.returncode == 0 and time.monotonic() - began_s < 0.5 * SLOW
    deadline = began_s + GONE_S
    assert until(lambda: hooks_in_use() <= in_use, deadline - time.monotonic()), hooks_in_use() - in_use


@pytest.mark.parametrize("kind", ["fentry", "kprobe.multi", "kprobe"])
def test_on_and_off_twenty_times_under_load_leaves_the_kernel_clean(kind: str) -> None:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    # Those of a run that was killed go one by one.
    assert until(lambda: not [hook for hook in hooks_in_use() if re.fullmatch(SEEN[kind], hook)], GONE_S)
    before, complained, in_use = traces(), complaints(), hooks_in_use()
    with running_traffic() as pids:
        under_load = traces()
        for _ in range(LOADED):
            load_and_switch(kind, pids)
            assert left_after_a_second(under_load) == []
    assert left_after_a_second(before) == []
    assert hooks_in_use() <= in_use
    assert complaints() == complained
