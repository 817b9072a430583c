"""perf stat beside real processes: only the enabled time is counted, and failures are reasons."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.run.counters import EVENTS, SENDER_EVENTS, Event
from copyscope.run.perf_stat import PerfStat, why_no_tracepoint
from profiling import SLOW

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
    """Let a stopped process run for a while and stop it again; how long it was on a CPU, exactly.

    The clock of another process is brought up to date only when it is switched out (up to 10 ms late), so it
    is read while the process is stopped.
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


def test_perf_has_no_capabilities_but_those_of_counting() -> None:
    """Beside a process of somebody else, which is none of ours to trace."""
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
    kept = {bit for bit in range(64) if int(status["CapPrm"], 16) >> bit & 1}
    # CAP_SYS_ADMIN where a distribution wants it.
    assert kept - {21} <= {38, 24} and 38 in kept
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
    """perf says a line per switch; a pipe of 64 KiB would be full after about 4000."""
    with PerfStat(busy.pid) as counting:
        counting.start()
        counting.wait_ready()
        for _ in range(3000):
            counting.enable()
            counting.disable()
        assert counting.failure is None
        assert counting.finish()["task-clock"].status == "measured"


@pytest.mark.parametrize("later_s", [0.0, 2.0])
def test_process_that_ends_while_counting(busy: subprocess.Popen[bytes], later_s: float) -> None:
    """perf sees it within a second, ends, and takes no word any more: what it has counted is whole."""
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


def test_process_that_is_gone() -> None:
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


def test_perf_dies_with_us(busy: subprocess.Popen[bytes]) -> None:
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


def test_a_tracepoint_that_is_not_there_costs_only_itself(busy: subprocess.Popen[bytes]) -> None:
    absent = Event("absent", "events", software=True, tracepoint="nosuch:tracepoint")
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
    """A mapping that is written and given back costs a flush; a loop that touches nothing costs none."""
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
