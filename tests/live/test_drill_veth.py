# SPDX-License-Identifier: GPL-2.0-only
"""The drill over veth, which needs root: results that hold on any kernel, in seconds, and nothing remains."""

import json
import subprocess
import time

import pytest
from copyscope.base import paths
from profiling import SLOW, is_root, left_after_a_second, traces

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
]


def test_the_drill_takes_seconds_finds_known_results_and_leaves_nothing() -> None:
    before, began = traces(), time.monotonic()
    argv = [str(paths.ROOT / "bin" / "copyscope"), "drill", "--json", "-"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 10 * SLOW
    ways = {(row["way"], row["path"]): row for row in json.loads(done.stdout)["ways"]}
    assert {ways[way, "veth"]["result"] for way in ("send", "sendmsg")} == {"copied before return"}
    # The bytes are delivered on this machine, so the reader gets a copy.
    assert ways["MSG_ZEROCOPY", "veth"]["changed_bytes"] == 0
    assert ways["MSG_ZEROCOPY", "veth"]["notified"] == "copied"
    # The copy within the call, and the copy at delivery, found by hooks or by samples.
    copied = {way: ways[way, "veth"]["copied_by"] for way in ("send", "sendmsg", "MSG_ZEROCOPY")}
    assert {copied[way]["account"] for way in ("send", "sendmsg")} == {"copy_in"}
    assert {copied[way]["within"] for way in ("send", "sendmsg")} == {"tcp_sendmsg_locked"}
    assert (copied["MSG_ZEROCOPY"]["function"], copied["MSG_ZEROCOPY"]["account"]) == (
        "skb_copy_ubufs",
        "deferred",
    )
    assert ways["vmsplice", "veth"]["copied_by"] is None
    # veth passes the pages themselves to the receiver.
    assert {ways[way, "veth"]["result"] for way in ("sendfile, memfd", "vmsplice")} == {"by reference"}
    assert {ways[key]["bytes"] for key in ways} == {16_384} and len(ways) == 27
    assert left_after_a_second(before) == []
