"""The second opinion on this kernel: exact quantities are equal, whoever counts them."""

import json
import signal
import subprocess
import sys
import time

import pytest
from copyscope import paths
from copyscope.run.program import processes
from profiling import SLOW, is_root
from programs import missing
from test_functions import why_not

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

CROSSCHECK = [sys.executable, str(paths.ROOT / "tools" / "crosscheck.py")]
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_tool_of_root_outlives_it(number: signal.Signals) -> None:
    if missing("bpftrace") is not None:
        pytest.skip("needs bpftrace: tools/deps.sh test")
    quiet = subprocess.DEVNULL
    run = subprocess.Popen([*CROSSCHECK, "--impl", "one_copy", "--duration", "1"], stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + 60 * SLOW
    tool: int | None = None
    while tool is None:
        assert run.poll() is None and time.monotonic() < deadline, "bpftrace was not started"
        found = (p for p in processes.all_processes() if p.parent == run.pid and p.comm == "bpftrace")
        tool = next((process.pid for process in found), None)
        time.sleep(0.02)
    run.send_signal(number)
    run.wait(20 * SLOW)
    deadline = time.monotonic() + 5 * SLOW
    while processes.is_alive(tool):
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.02)
