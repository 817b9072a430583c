# SPDX-License-Identifier: GPL-2.0-only
"""After function hooks are switched on and off under load and detached, the kernel is as before."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.run.child import Child
from profiling import SLOW, is_root, left_after_a_second, traces
from test_functions import why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# The collector loads its programs LOADED times, and counts and stops SWITCHED times each.
LOADED = 4
SWITCHED = 5
# Hooks are gone at most so many seconds after the collector exits.
DETACHED_WITHIN_S = 10.0 * SLOW
FTRACE_SITES = Path("/sys/kernel/tracing/enabled_functions")
KPROBES = Path("/sys/kernel/debug/kprobes/list")
# A hook of each kind that must be visible while hooks are attached; else their absence later proves nothing.
EXPECTED_HOOK = {"fentry": "tcp_sendmsg", "kprobe.multi": "tcp_sendmsg", "kprobe": r"k tcp_sendmsg\+0x\w+"}


def complaints() -> list[str]:
    """Return the warnings, bugs and oopses that the kernel has logged since boot."""
    lines = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if re.search("WARNING: |BUG: |Oops", line)]


def hooks_in_use() -> set[str]:
    """Return the functions with an ftrace user, and all kprobes, because not all kprobes use ftrace."""
    functions = [line.split()[0] for line in FTRACE_SITES.read_text().splitlines() if line.strip()]
    # address, k or r, function+offset
    kprobes = [" ".join(line.split()[1:3]) for line in KPROBES.read_text().splitlines()]
    return {*functions, *kprobes}


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait at most `seconds` until `condition()` is true, and return its last value.

    The kernel frees hooks late.
    """
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@contextmanager
def running_traffic() -> Iterator[dict[str, int]]:
    """Send zero-copy over loopback until the end of the context. Yield the pids of sender and receiver."""
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
    """Start a collector with hooks of one kind, let it count and stop SWITCHED times, and end it."""
    in_use = hooks_in_use()
    collector = Child("collector", [str(paths.COLLECTOR), "--functions", "--attach", kind])
    try:
        collector.expect("ready", 30 * SLOW)
        for role, pid in pids.items():
            collector.ask(f"target {role} {pid}", "target")
        counted_bytes = 0
        for _ in range(SWITCHED):
            collector.ask("open functions", "opened", 10 * SLOW)
            assert [hook for hook in hooks_in_use() - in_use if re.fullmatch(EXPECTED_HOOK[kind], hook)]
            time.sleep(0.02)
            collector.ask("close", "closed", 10 * SLOW)
            assert bytes_copied_out(collector) > counted_bytes
            counted_bytes = bytes_copied_out(collector)
            # In an `unarmed` segment the hooks are attached and count nothing.
            collector.ask("open unarmed", "opened", 10 * SLOW)
            time.sleep(0.02)
            collector.ask("close", "closed", 10 * SLOW)
            assert bytes_copied_out(collector) == counted_bytes
        assert collector.ask("report", "report", 10 * SLOW)["functions"]["cells"]
    finally:
        began_s = time.monotonic()
        collector.end()
    assert collector.process.returncode == 0 and time.monotonic() - began_s < 0.5 * SLOW
    deadline = began_s + DETACHED_WITHIN_S
    assert until(lambda: hooks_in_use() <= in_use, deadline - time.monotonic()), hooks_in_use() - in_use


@pytest.mark.parametrize("kind", ["fentry", "kprobe.multi", "kprobe"])
def test_switching_hooks_twenty_times_under_load_leaves_the_kernel_clean(kind: str) -> None:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    # Hooks of an earlier run that was killed disappear one by one.
    assert until(
        lambda: not [hook for hook in hooks_in_use() if re.fullmatch(EXPECTED_HOOK[kind], hook)],
        DETACHED_WITHIN_S,
    )
    before, complaints_before, in_use = traces(), complaints(), hooks_in_use()
    with running_traffic() as pids:
        under_load = traces()
        for _ in range(LOADED):
            load_and_switch(kind, pids)
            assert left_after_a_second(under_load) == []
    assert left_after_a_second(before) == []
    assert hooks_in_use() <= in_use
    assert complaints() == complaints_before
