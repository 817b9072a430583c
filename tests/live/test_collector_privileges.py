# SPDX-License-Identifier: GPL-2.0-only
"""After loading its programs, the collector can only attach, count and sample."""

import os
from pathlib import Path

import pytest
from copyscope.base import paths
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


def status_of(pid: int | str, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(key))


def capabilities(pid: int | str, key: str) -> set[int]:
    mask = int(status_of(pid, key), 16)
    return {bit for bit in range(64) if mask >> bit & 1}


def test_the_collector_keeps_only_needed_capabilities_and_works_with_them() -> None:
    our_capabilities = capabilities("self", "CapEff:")
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    default_paranoid = paranoid <= 2 and our_capabilities >= COUNTING
    # The crowd works for half a second.
    collector = Child("collector", [str(paths.COLLECTOR), "--watch", "--frequency", "1999"])
    try:
        collector.expect("ready", 30 * SLOW)
        # At normal priority the collector would wait for tens of seconds when many tasks wake each other.
        assert os.getpriority(os.PRIO_PROCESS, collector.pid) == -20
        # tests/c/test_seal.c tests which system calls are refused.
        assert (status_of(collector.pid, "NoNewPrivs:"), status_of(collector.pid, "Seccomp:")) == ("1", "2")
        collector.ask("symbols", "symbols", 30 * SLOW)
        kept_capabilities = capabilities(collector.pid, "CapPrm:")
        assert kept_capabilities == capabilities(collector.pid, "CapEff:") and not capabilities(
            collector.pid, "CapInh:"
        )
        # Some kernels require further capabilities for perf_event_open(2).
        assert (
            kept_capabilities == COUNTING & our_capabilities
            if default_paranoid
            else kept_capabilities <= (COUNTING | {SYS_ADMIN}) & our_capabilities
        )
        with crowd("processes", 200) as program:
            collector.ask(f"target target {program.pid}", "target")
            program.add_children(collector, 200)
            collector.ask("open watch", "opened", 30 * SLOW)
            collector.ask("open sampler,copies,packets,shape,calls", "opened", 30 * SLOW)
            program.begin()
            program.wait()
            collector.ask("close", "closed", 30 * SLOW)
            collector.ask("open sampler,calls", "opened", 30 * SLOW)
            collector.ask("close", "closed", 30 * SLOW)
        report = collector.ask("report", "report", 30 * SLOW)
    finally:
        collector.end()
    assert sum(row["bytes"] for row in report["calls"] if row["syscall"] == "sendto") == 20_000
    assert sum(row["samples"] for row in report["samples"] if row["side"] == "target") > 20
    # The collector read the kernel's symbols before it dropped its capabilities.
    assert any("syscall" in name for row in report["samples"] for name in row["frames"])
