"""A hook that the kernel refuses, loaded or attached: the one that stands in for it counts."""

import pytest
from copyscope import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd
from profiling import SLOW, is_root

REFUSING = paths.OUTPUT / "tests" / "refusing.so"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not (CROWD.exists() and REFUSING.exists()),
        reason=f"needs {REFUSING.name}: make {REFUSING.relative_to(paths.ROOT)}",
    ),
]


@pytest.mark.parametrize(("refused", "said"), [("LOAD", "load: "), ("ATTACH", "attach: ")])
def test_what_is_refused_is_counted_by_its_fallback(refused: str, said: str) -> None:
    shim = ["env", f"LD_PRELOAD={REFUSING}", f"REFUSE_{refused}=on_volume_sent"]
    collector = Child("collector", [*shim, str(paths.COLLECTOR), "--watch"])
    try:
        hooks = {row["id"]: row for row in collector.expect("ready", 60 * SLOW)["hooks"]}
        if hooks["volume_sent"]["state"] == "missing":
            pytest.skip("this kernel has no sock_send_length (6.3): the fallback is what is used")
        assert hooks["volume_sent"]["state"] == "refused"
        assert hooks["volume_sent"]["reason"].startswith(said)
        assert hooks["volume_sent_at_exit"]["state"] == "available"
        with crowd("threads", 50) as made:
            collector.ask("open watch,volume", "opened", 30 * SLOW)
            collector.ask(f"target target {made.pid}", "target")
            made.begin()
            made.wait()
            volume = collector.ask("volume", "volume")["volume"]
    finally:
        collector.end()
    sent = [row for row in volume if row["direction"] == "send"]
    assert [(row["syscall"], row["calls"], row["bytes"]) for row in sent] == [("sendto", 50, 50)]
