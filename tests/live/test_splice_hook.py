"""While nobody splices, a ledger segment hooks no system call of the machine; then the hook comes."""

import time
from contextlib import ExitStack

import pytest
from copyscope import paths
from copyscope.run.child import Child
from links import attached
from profiling import SLOW, is_root
from programs import splice_pipeline

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


def test_the_hook_of_splice_comes_when_somebody_splices() -> None:
    with ExitStack() as exit_:
        collector = Child("collector", [str(paths.COLLECTOR), "--watch"])
        exit_.callback(collector.end)
        hooks = {hook["id"]: hook["state"] for hook in collector.expect("ready", 30 * SLOW)["hooks"]}
        if hooks["splice_seen"] == "missing":
            pytest.skip("this kernel has no tcp_rcv_space_adjust")
        collector.ask("open watch,volume,copies", "opened", 30 * SLOW)
        if not attached(collector.pid):
            pytest.skip("this kernel does not say what a link is attached to (before 5.9)")
        with splice_pipeline() as pid:
            time.sleep(0.2)
            # Nobody is watched: what this one does is nothing to us.
            assert "sys_exit" not in attached(collector.pid) >= {"tcp_rcv_space_adjust"}
            collector.ask(f"target target {pid}", "target", 30 * SLOW)
            until = time.monotonic() + 5 * SLOW
            while "sys_exit" not in attached(collector.pid):
                assert time.monotonic() < until
                time.sleep(0.01)
            time.sleep(0.3)
            collector.ask("close", "closed", 30 * SLOW)
            # It stays from now on, so that all segments count alike; nobody has to look for it any more.
            assert "tcp_rcv_space_adjust" not in attached(collector.pid) >= {"sys_exit"}
            collector.ask("open copies", "opened", 30 * SLOW)
            assert "tcp_rcv_space_adjust" not in attached(collector.pid) >= {"sys_exit"}
            collector.ask("close", "closed", 30 * SLOW)
            volume = collector.ask("volume", "volume", 30 * SLOW)["volume"]
        report = collector.ask("report", "report", 30 * SLOW)
    (spliced,) = (row for row in volume if row["syscall"] == "splice from a socket")
    # Those until the hook was there, 20 ms or so, are said to be lost.
    assert report["loss"]["splices_before_their_hook"] > 0
    assert spliced["calls"] > 0 and spliced["bytes"] > 1 << 20
