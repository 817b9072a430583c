"""The drill over veth, which needs root: what is certain on any kernel, in seconds, and nothing is left."""

import json
import subprocess
import time

import pytest
from copyscope import paths
from profiling import SLOW, is_root, left_after_a_second, traces

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
]


def test_the_whole_table_takes_seconds_and_leaves_nothing() -> None:
    before, began = traces(), time.monotonic()
    argv = [str(paths.ROOT / "bin" / "copyscope"), "drill", "--json", "-"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 10 * SLOW
    ways = {(row["way"], row["path"]): row for row in json.loads(done.stdout)["ways"]}
    assert {ways[way, "veth"]["result"] for way in ("write", "sendmsg")} == {"copied before return"}
    # Delivered on this machine: whoever reads has a copy.
    assert ways["MSG_ZEROCOPY", "veth"]["changed_bytes"] == 0
    assert ways["MSG_ZEROCOPY", "veth"]["notified"] == "copied"
    # By hooks or by samples: what copies within the call, and what copies at the delivery.
    copied = {way: ways[way, "veth"]["copied_by"] for way in ("write", "sendmsg", "MSG_ZEROCOPY")}
    assert {copied[way]["account"] for way in ("write", "sendmsg")} == {"copy_in"}
    assert {copied[way]["within"] for way in ("write", "sendmsg")} == {"tcp_sendmsg_locked"}
    assert (copied["MSG_ZEROCOPY"]["function"], copied["MSG_ZEROCOPY"]["account"]) == (
        "skb_copy_ubufs",
        "deferred",
    )
    assert ways["vmsplice", "veth"]["copied_by"] is None
    assert {ways[key]["bytes"] for key in ways} == {16_384} and len(ways) == 32
    assert left_after_a_second(before) == []
