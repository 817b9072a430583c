"""The second opinion on this kernel: exact quantities are equal, whoever counts them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from copyscope import paths
from copyscope.run import processes
from profiling import SLOW, is_root
from programs import missing
from test_functions import why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

CROSSCHECK = [str(paths.ROOT / "bin" / "copyscope"), "crosscheck"]
EXACT = {"send syscalls", "bytes taken by the socket", "bytes copied out", "bytes referenced"}
# Where functions can be hooked, by us and by kprobes of others.
EXACT_FUNCTIONS = {"calls of tcp_sendmsg", "bytes taken by tcp_sendmsg", "bytes copied by skb_copy_ubufs"}


@pytest.mark.parametrize("impl", ["zero_copy"])
def test_exact_quantities_are_equal(impl: str) -> None:
    argv = [*CROSSCHECK, "--impl", impl, "--duration", "0.5" if SLOW == 1 else "1", "--quiet", "--json", "-"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120 * SLOW)
    # 1: a time or a share may disagree on a busy machine; that is what the table is for.
    assert done.returncode in (0, 1), done.stderr
    made = json.loads(done.stdout)
    exact = [row for row in made["rows"] if row["quantity"] in EXACT]
    asked = {row["peer"] for row in exact}
    # A tool that is installed is asked, and answers.
    assert "bpftrace" in asked, made["absent"]
    assert all(row["agrees"] for row in exact), exact
    if why_not() is None and why_not("kprobe") is None:
        functions = [row for row in made["rows"] if row["quantity"] in EXACT_FUNCTIONS]
        assert {row["peer"] for row in functions} >= {"bpftrace kprobes", "funclatency"}, made["absent"]
        assert {row["quantity"] for row in functions} == EXACT_FUNCTIONS
        assert all(row["agrees"] for row in functions), functions


def test_a_fixed_count_is_refused() -> None:
    argv = [*CROSSCHECK, "--impl", "one_copy", "--messages", "5"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.fixture
def crosscheck() -> Iterator[subprocess.Popen[bytes]]:
    """One that has begun; what is left of it after its test is ended."""
    if missing("bpftrace") is not None:
        pytest.skip("needs bpftrace: tools/deps.sh test")
    quiet = subprocess.DEVNULL
    run = subprocess.Popen([*CROSSCHECK, "--impl", "one_copy", "--duration", "1"], stdout=quiet, stderr=quiet)
    yield run
    run.kill()
    run.wait()


def bpftrace_of(run: subprocess.Popen[bytes]) -> int:
    """The pid of its bpftrace, once there is one."""
    deadline = time.monotonic() + 60 * SLOW
    while True:
        assert run.poll() is None and time.monotonic() < deadline, "bpftrace was not started"
        for process in processes.all_processes():
            if process.parent == run.pid and process.comm == "bpftrace":
                return process.pid
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_tool_of_root_outlives_it(
    number: signal.Signals, status: int, crosscheck: subprocess.Popen[bytes]
) -> None:
    """As on Ctrl-C it ends in order, where it is asked: also by a terminal that goes (SIGHUP)."""
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
