# SPDX-License-Identifier: GPL-2.0-only
"""perf stat counts real processes only while it is enabled, and failures become reasons."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.run.counters import EVENTS, SENDER_EVENTS, CounterEvent
from copyscope.run.perf_stat import PerfStat, why_no_tracepoint
from profiling import SLOW, in_all

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to count another process"),
]

BUSY = "while True: pass"


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process
    process.kill()
    process.wait()


def run_for(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Let a stopped process run for a while and stop it again. Return its CPU time (ns), exactly.

    The kernel updates the clock of another process when that process is switched out, up to 10 ms late.
        Therefore the clock is read while the process is stopped.
    """
    clock = ~process.pid << 3 | 2  # clock_getcpuclockid(3): CPUCLOCK_SCHED of the whole process
    before = time.clock_gettime_ns(clock)
    process.send_signal(signal.SIGCONT)
    time.sleep(seconds)
    stop(process)
    return time.clock_gettime_ns(clock) - before


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def test_only_enabled_time_is_counted(busy: subprocess.Popen[bytes]) -> None:
    with PerfStat(busy.pid) as counting:
        counting.start()
        counting.wait_ready()
        assert counting.failure is None
        stop(busy)
        enabled_ns = 0
        for _ in range(4):
            run_for(busy, 0.05)
            counting.enable()
            enabled_ns += run_for(busy, 0.1)
            counting.disable()
        counters = counting.finish()
    clock = counters["task-clock"]
    assert (clock.status, clock.unit, clock.running) == ("measured", "ns", 1.0)
    assert clock.value == pytest.approx(enabled_ns, rel=0.10)
    cycles = counters["cycles"]
    assert (cycles.value is None) == (cycles.status == "unsupported") == (cycles.reason is not None)
    if cycles.value is not None:
        assert cycles.value > 0


def test_perf_keeps_only_the_capabilities_that_counting_needs() -> None:
    """The counted process belongs to another user, whom perf may not trace without capabilities."""
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", BUSY]
    with subprocess.Popen(argv) as busy:
        try:
            with PerfStat(busy.pid) as counting:
                counting.start()
                counting.wait_ready()
                assert counting.failure is None
                status = dict(
                    line.split(":\t", 1)
                    for line in Path(f"/proc/{counting.pid}/status").read_text().splitlines()
                )
                counting.enable()
                time.sleep(0.1)
                counting.disable()
                clock = counting.finish()["task-clock"]
        finally:
            busy.kill()
    kept_capabilities = {bit for bit in range(64) if int(status["CapPrm"], 16) >> bit & 1}
    # Some distributions require CAP_SYS_ADMIN (21).
    assert kept_capabilities - {21} <= {38, 24} and 38 in kept_capabilities
    assert status["NoNewPrivs"] == "1" and status["CapBnd"] == status["CapPrm"]
    assert (clock.value or 0) > 1_000_000, clock.reason


def test_never_enabled_counts_nothing(busy: subprocess.Popen[bytes]) -> None:
    with PerfStat(busy.pid) as counting:
        counting.start()
        counting.wait_ready()
        time.sleep(0.05)
        clock = counting.finish()["task-clock"]
    assert clock.value is None and clock.reason is not None  # `<not counted>`, and no zero is invented


def test_thousands_of_switches_do_not_block(busy: subprocess.Popen[bytes]) -> None:
    """perf prints a line for each switch, so a pipe of 64 KiB would be full after about 4,000."""
    with PerfStat(busy.pid) as counting:
        counting.start()
        counting.wait_ready()
        for _ in range(3000):
            counting.enable()
            counting.disable()
        assert counting.failure is None
        assert counting.finish()["task-clock"].status == "measured"


@pytest.mark.parametrize("later_s", [0.0, in_all(2.0)])
def test_counts_are_complete_if_the_process_exits_while_counting(
    busy: subprocess.Popen[bytes], later_s: float
) -> None:
    """perf exits within a second and reads no more commands. Its counts are complete."""
    with PerfStat(busy.pid) as counting:
        counting.start()
        counting.wait_ready()
        counting.enable()
        time.sleep(0.1)
        busy.kill()
        busy.wait()
        time.sleep(later_s)
        counting.disable()
        assert counting.failure is None
        clock = counting.finish()["task-clock"]
    assert clock.value is not None and clock.value > 1_000_000


def test_counting_an_exited_process_gives_a_reason() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with PerfStat(gone.pid) as counting:
        counting.start()
        counting.wait_ready()
        counting.enable()
        counters = counting.finish()
    assert {counter.reason for counter in counters.values()} == {
        "perf: the process had ended before counting began"
    }


def test_perf_exits_when_its_parent_is_killed(busy: subprocess.Popen[bytes]) -> None:
    owner_code = (
        "import sys, time\n"
        "from copyscope.run.perf_stat import PerfStat\n"
        "counting = PerfStat(int(sys.argv[1])); counting.start(); counting.wait_ready()\n"
        "print(counting._process.pid, flush=True); time.sleep(60)\n"
    )
    argv = [sys.executable, "-P", "-c", owner_code, str(busy.pid)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        perf = Path(f"/proc/{int(owner.stdout.readline())}")
        assert (perf / "comm").read_text().strip() == "perf"
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 2 * SLOW
    while _alive(perf) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(perf)


def _alive(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_missing_tracepoint_does_not_affect_other_counters(busy: subprocess.Popen[bytes]) -> None:
    absent = CounterEvent("absent", "events", software=True, tracepoint="nosuch:tracepoint")
    with PerfStat(busy.pid, events=(*EVENTS, absent)) as counting:
        counting.start()
        counting.wait_ready()
        counting.enable()
        time.sleep(0.05)
        counting.disable()
        counters = counting.finish()
    assert counters["absent"].value is None
    assert "tracepoint nosuch:tracepoint" in (counters["absent"].reason or "")
    assert counters["task-clock"].status == "measured", counters["task-clock"].reason


@pytest.mark.skipif((MISSING := why_no_tracepoint("tlb:tlb_flush")) is not None, reason=str(MISSING))
def test_tlb_flushes_are_those_of_the_process() -> None:
    """Each written and unmapped mapping costs a flush. A loop without memory accesses costs none."""
    unmap = (
        "import mmap\nfor i in range(500):\n m = mmap.mmap(-1, 1 << 16); m.write(b'x' * 65536); m.close()\n"
    )
    counted = []
    for work in (unmap, "for i in range(10**6): pass\n"):
        program = f"import sys\nsys.stdin.readline()\n{work}print('done', flush=True)\nsys.stdin.readline()\n"
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with PerfStat(process.pid, events=SENDER_EVENTS) as counting:
                counting.start()
                counting.wait_ready()
                counting.enable()
                process.stdin.write("go\n")
                process.stdin.flush()
                assert process.stdout.readline() == "done\n"
                counting.disable()
                counted.append(counting.finish()["tlb-flushes"].value)
            process.stdin.write("end\n")
    flushed, quiet = counted
    assert flushed is not None
    assert quiet is not None
    assert flushed >= 500
    assert quiet < 50
