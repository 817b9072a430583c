"""A hook that the kernel refuses, loaded or attached: the one that stands in for it counts."""

import json
import subprocess

import pytest
from copyscope import paths
from copyscope.plan.tier import choose_tier
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


@pytest.mark.all
def test_where_fentry_is_refused_functions_are_hooked_by_kprobes() -> None:
    shim = ["env", f"LD_PRELOAD={REFUSING}", "REFUSE_FENTRY=1"]
    argv = [*shim, str(paths.COLLECTOR), "--probe", "--functions"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=100 * SLOW)
    hooks = [row for row in json.loads(said.stdout)["hooks"] if row["instrument"] == "functions"]
    roots = {row["id"]: row for row in hooks if row["id"] in ("send", "receive")}
    if any("this kernel has no kprobes" in str(row["reason"]) for row in roots.values()):
        pytest.skip("this kernel has no kprobes")
    assert {row["state"] for row in roots.values()} == {"attached"}, roots
    # What auto takes, and what it does not (test_tier.py).
    multi = roots["send"]["how"] == "kprobe.multi"
    tier = choose_tier(True, hooks)
    assert {roots["send"]["how"], roots["receive"]["how"]} == {"kprobe.multi" if multi else "kprobe"}
    assert tier.exact == multi and ("by kprobe.multi" if multi else "only by kprobe") in tier.reason
