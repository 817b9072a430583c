# SPDX-License-Identifier: GPL-2.0-only
"""A ledger segment hooks the exit of system calls only after the watched process has called splice(2)."""

import time
from contextlib import ExitStack

import pytest
from copyscope.base import paths
from copyscope.run.child import Child
from links import attached_tracepoints
from profiling import SLOW, is_root
from programs import splice_pipeline

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


def test_the_splice_hook_is_attached_once_the_target_splices() -> None:
    with ExitStack() as exit_:
        collector = Child("collector", [str(paths.COLLECTOR), "--watch"])
        exit_.callback(collector.end)
        hooks = {hook["id"]: hook["state"] for hook in collector.expect("ready", 30 * SLOW)["hooks"]}
        if hooks["splice_seen"] == "missing":
            pytest.skip("this kernel has no tcp_rcv_space_adjust")
        collector.ask("open watch,volume,copies", "opened", 30 * SLOW)
        if not attached_tracepoints(collector.pid):
            pytest.skip("this kernel does not say what a link is attached to (before 5.9)")
        with splice_pipeline() as pid:
            time.sleep(0.2)
            # No process is watched yet, so the splices of this program have no effect.
            assert "sys_exit" not in attached_tracepoints(collector.pid) >= {"tcp_rcv_space_adjust"}
            collector.ask(f"target target {pid}", "target", 30 * SLOW)
            deadline = time.monotonic() + 5 * SLOW
            while "sys_exit" not in attached_tracepoints(collector.pid):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.3)
            collector.ask("close", "closed", 30 * SLOW)
            # Both hooks stay attached, so that all segments count alike.
            assert attached_tracepoints(collector.pid) >= {"tcp_rcv_space_adjust", "sys_exit"}
            volume = collector.ask("volume", "volume", 30 * SLOW)["volume"]
        report = collector.ask("report", "report", 30 * SLOW)
    (spliced,) = (row for row in volume if row["syscall"] == "splice from a socket")
    # Splices before the hook was attached (10 ms or so) are counted as lost.
    assert report["loss"]["splices_before_their_hook"] > 0
    assert spliced["calls"] > 0 and spliced["bytes"] > 1 << 20
