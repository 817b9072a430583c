# SPDX-License-Identifier: GPL-2.0-only
"""If the kernel refuses to load or attach a hook, its fallback hook counts instead."""

import json
import subprocess

import pytest
from copyscope.base import paths
from copyscope.plan.tier import choose_tier
from copyscope.run.child import Child
from crowds import CROWD, crowd
from profiling import SLOW, in_all, is_root

REFUSING = paths.OUTPUT / "tests" / "refusing.so"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not (CROWD.exists() and REFUSING.exists()),
        reason=f"needs {REFUSING.name}: make {REFUSING.relative_to(paths.ROOT)}",
    ),
]


@pytest.mark.parametrize(("refused_step", "reason"), [in_all("LOAD", "load: "), ("ATTACH", "attach: ")])
def test_the_fallback_counts_what_a_refused_hook_would_have_counted(refused_step: str, reason: str) -> None:
    shim = ["env", f"LD_PRELOAD={REFUSING}", f"REFUSE_{refused_step}=on_volume_sent"]
    collector = Child("collector", [*shim, str(paths.COLLECTOR), "--watch"])
    try:
        hooks = {row["id"]: row for row in collector.expect("ready", 60 * SLOW)["hooks"]}
        if hooks["volume_sent"]["state"] == "missing":
            pytest.skip("this kernel has no sock_send_length (new in 6.3): the fallback is always used")
        assert hooks["volume_sent"]["state"] == "refused"
        assert hooks["volume_sent"]["reason"].startswith(reason)
        assert hooks["volume_sent_at_exit"]["state"] == "available"
        with crowd("threads", 50) as program:
            collector.ask("open watch,volume", "opened", 30 * SLOW)
            collector.ask(f"target target {program.pid}", "target")
            program.begin()
            program.wait()
            volume = collector.ask("volume", "volume")["volume"]
    finally:
        collector.end()
    sent = [row for row in volume if row["direction"] == "send"]
    assert [(row["syscall"], row["calls"], row["bytes"]) for row in sent] == [("sendto", 50, 50)]


@pytest.mark.all
def test_where_fentry_is_refused_functions_are_hooked_by_kprobes() -> None:
    shim = ["env", f"LD_PRELOAD={REFUSING}", "REFUSE_FENTRY=1"]
    argv = [*shim, str(paths.COLLECTOR), "--probe", "--functions"]
    probe = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=100 * SLOW)
    hooks = [row for row in json.loads(probe.stdout)["hooks"] if row["instrument"] == "functions"]
    roots = {row["id"]: row for row in hooks if row["id"] in ("send", "receive")}
    if any("this kernel has no kprobes" in str(row["reason"]) for row in roots.values()):
        pytest.skip("this kernel has no kprobes")
    assert {row["state"] for row in roots.values()} == {"attached"}, roots
    # --instruments auto accepts kprobe.multi and not kprobe (test_tier.py).
    multi = roots["send"]["how"] == "kprobe.multi"
    tier = choose_tier(True, hooks)
    assert {roots["send"]["how"], roots["receive"]["how"]} == {"kprobe.multi" if multi else "kprobe"}
    assert tier.exact == multi and ("by kprobe.multi" if multi else "only by kprobe") in tier.reason
