# SPDX-License-Identifier: GPL-2.0-only
"""The crosscheck on this kernel: other tools count the same exact quantities as copyscope."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from copyscope.base import paths
from copyscope.run import processes
from profiling import SLOW, is_root
from programs import missing
from test_functions import why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

CROSSCHECK = [sys.executable, "-P", "-B", str(paths.ROOT / "tests" / "crosscheck" / "crosscheck.py")]
EXACT = {"send syscalls", "bytes taken by the socket", "bytes copied out", "bytes referenced"}
# Quantities that are compared if both copyscope and other tools can hook functions.
EXACT_FUNCTIONS = {"calls of tcp_sendmsg", "bytes taken by tcp_sendmsg", "bytes copied by skb_copy_ubufs"}


@pytest.mark.parametrize("impl", ["zero_copy"])
def test_other_tools_count_the_same_exact_quantities(impl: str) -> None:
    argv = [*CROSSCHECK, "--impl", impl, "--duration", "0.5" if SLOW == 1 else "1", "--quiet", "--json", "-"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120 * SLOW)
    # Status 1: times or shares may disagree on a busy machine.
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    exact = [row for row in result["rows"] if row["quantity"] in EXACT]
    peers = {row["peer"] for row in exact}
    # Every installed tool is run and answers.
    assert "bpftrace" in peers, result["absent"]
    assert all(row["agrees"] for row in exact), exact
    if why_not() is None and why_not("kprobe") is None:
        functions = [row for row in result["rows"] if row["quantity"] in EXACT_FUNCTIONS]
        assert {row["peer"] for row in functions} >= {"bpftrace kprobes", "funclatency"}, result["absent"]
        assert {row["quantity"] for row in functions} == EXACT_FUNCTIONS
        assert all(row["agrees"] for row in functions), functions


def test_crosscheck_refuses_a_fixed_number_of_messages() -> None:
    argv = [*CROSSCHECK, "--impl", "one_copy", "--messages", "5"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.fixture
def crosscheck() -> Iterator[subprocess.Popen[bytes]]:
    """A crosscheck that runs; it is killed after the test."""
    if missing("bpftrace") is not None:
        pytest.skip("needs bpftrace: tools/deps.sh test")
    quiet = subprocess.DEVNULL
    run = subprocess.Popen([*CROSSCHECK, "--impl", "one_copy", "--duration", "1"], stdout=quiet, stderr=quiet)
    yield run
    run.kill()
    run.wait()


def bpftrace_of(run: subprocess.Popen[bytes]) -> int:
    """Wait until a crosscheck has started bpftrace, and return its pid."""
    deadline = time.monotonic() + 60 * SLOW
    while True:
        assert run.poll() is None and time.monotonic() < deadline, "bpftrace was not started"
        for process in processes.all_processes():
            if process.parent == run.pid and process.comm == "bpftrace":
                return process.pid
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        *((number, 130) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_no_tool_outlives_a_killed_crosscheck(
    number: signal.Signals, status: int, crosscheck: subprocess.Popen[bytes]
) -> None:
    """SIGTERM, SIGHUP and SIGQUIT end a crosscheck as Ctrl-C does."""
    tool = bpftrace_of(crosscheck)
    try:
        crosscheck.send_signal(number)
        assert crosscheck.wait(20 * SLOW) == status
        deadline = time.monotonic() + 5 * SLOW
        while processes.is_alive(tool):
            assert time.monotonic() < deadline, "it goes on"
            time.sleep(0.02)
    finally:
        if processes.is_alive(tool):
            os.kill(tool, signal.SIGKILL)
