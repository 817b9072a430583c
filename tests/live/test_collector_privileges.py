"""What the collector may do when its programs are loaded: attach, count and sample, nothing else."""

from pathlib import Path

import pytest
from copyscope import paths
from copyscope.child import Child
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
SYS_PTRACE, SYS_ADMIN, SYS_NICE, SYSLOG, PERFMON, BPF = 19, 21, 23, 34, 38, 39
COUNTING = {SYS_NICE, PERFMON, BPF}
# Where the kernel wants more for perf_event_open(2), or /proc hides processes.
AT_MOST = COUNTING | {SYS_ADMIN, SYS_PTRACE}


def held(pid: int | str, which: str) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(which))
    return {bit for bit in range(64) if mask >> bit & 1}


def test_it_keeps_what_it_needs_and_can_work_with_that() -> None:
    ours = held("self", "CapEff:")
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    wanted = COUNTING & ours if paranoid <= 2 and ours >= COUNTING else AT_MOST & ours
    collector = Child("collector", [str(paths.COLLECTOR), "--watch"])
    try:
        collector.expect("ready", 30 * SLOW)
        collector.ask("symbols", "symbols", 30 * SLOW)
        for which in ("CapEff:", "CapPrm:"):
            assert (
                held(collector.pid, which) == wanted
                if paranoid <= 2
                else held(collector.pid, which) <= wanted
            )
        assert held(collector.pid, "CapInh:") == set()
        with crowd("processes", 200) as made:
            collector.ask(f"target target {made.pid}", "target")
            for child in Path(f"/proc/{made.pid}/task/{made.pid}/children").read_text().split():
                collector.ask(f"target target {child}", "target")
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
