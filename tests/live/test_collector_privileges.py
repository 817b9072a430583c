"""What the collector may do when its programs are loaded: attach, count and sample, nothing else."""

import os
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd
from profiling import SLOW, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not CROWD.exists(), reason=f"needs {CROWD.name}: make {CROWD.relative_to(paths.ROOT)}"
    ),
]

# capabilities(7), linux/capability.h
SYS_ADMIN, PERFMON, BPF = 21, 38, 39
COUNTING = {PERFMON, BPF}


def status_of(pid: int | str, which: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(which))


def held(pid: int | str, which: str) -> set[int]:
    mask = int(status_of(pid, which), 16)
    return {bit for bit in range(64) if mask >> bit & 1}


def test_it_keeps_what_it_needs_and_can_work_with_that() -> None:
    ours = held("self", "CapEff:")
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    usual = paranoid <= 2 and ours >= COUNTING
    # The crowd works for half a second.
    collector = Child("collector", [str(paths.COLLECTOR), "--watch", "--frequency", "1999"])
    try:
        collector.expect("ready", 30 * SLOW)
        # Else it waits for tens of seconds where many tasks wake each other.
        assert os.getpriority(os.PRIO_PROCESS, collector.pid) == -20
        # Which calls are refused is in tests/c/test_seal.c.
        assert (status_of(collector.pid, "NoNewPrivs:"), status_of(collector.pid, "Seccomp:")) == ("1", "2")
        collector.ask("symbols", "symbols", 30 * SLOW)
        kept = held(collector.pid, "CapPrm:")
        assert kept == held(collector.pid, "CapEff:") and not held(collector.pid, "CapInh:")
        # Some kernels want more for perf_event_open(2).
        assert kept == COUNTING & ours if usual else kept <= (COUNTING | {SYS_ADMIN}) & ours
        with crowd("processes", 200) as made:
            collector.ask(f"target target {made.pid}", "target")
            made.name_all(collector, 200)
            collector.ask("open watch", "opened", 30 * SLOW)
            collector.ask("open sampler,copies,packets,shape,calls", "opened", 30 * SLOW)
            made.begin()
            made.wait()
            collector.ask("close", "closed", 30 * SLOW)
            collector.ask("open sampler,calls", "opened", 30 * SLOW)
            collector.ask("close", "closed", 30 * SLOW)
        report = collector.ask("report", "report", 30 * SLOW)
    finally:
        collector.end()
    assert sum(row["bytes"] for row in report["calls"] if row["syscall"] == "sendto") == 20_000
    assert sum(row["samples"] for row in report["samples"] if row["side"] == "target") > 20
    # Names of the kernel were read before.
    assert any("syscall" in name for row in report["samples"] for name in row["frames"])
