"""Each way to send is killed at random moments: the other side ends, says so, and has got no wrong byte.

One kill of each side here; COPYSCOPE_KILLS=50 makes fifty.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from test_traffic_loopback import BY_PAGES, RELAYS, end, listening_port, start

KILLS = int(os.environ.get("COPYSCOPE_KILLS", "1"))
# A side that waits for one that is gone is still there after this.
ENDS_S = 10.0
WAYS = (
    *("zero_copy", "one_copy --call writev", "per_field --batch 8", "sendfile --via splice", "vmsplice"),
    *RELAYS,
    *("uring_send", "uring_send --issue async", "uring_send --issue sqpoll"),
    *("uring_zc", "uring_zc --registered --fields 1", "uring_zc --issue async", "uring_zc --issue sqpoll"),
)


def wait_until_connected(port: str, connections: int) -> None:
    """A sender waits for ever for receivers that were killed before they connected."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        accepted = [row for row in rows if row[1].endswith(f":{int(port):04X}") and row[3] == "01"]
        if len(accepted) == connections:
            return
    raise AssertionError("the receiver does not connect")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_a_side_that_is_killed_takes_nothing_with_it(way: str, victim: str) -> None:
    chosen = random.Random(f"{way} {victim}")
    touch = [] if way.split(maxsplit=1)[0] in (*BY_PAGES, *RELAYS) else ["--touch"]
    both = ["--size", "100003", "--verify", *touch, "--threads", "2"]
    for _ in range(KILLS):
        with start("send", "--impl", *way.split(), "--duration", "60", *both) as sender:
            port = listening_port(sender)
            with start("recv", "--port", port, *both) as receiver:
                killed, left = (sender, receiver) if victim == "sender" else (receiver, sender)
                try:
                    wait_until_connected(port, 2)
                    time.sleep(chosen.uniform(0, 0.08))
                    killed.send_signal(signal.SIGKILL)
                    killed.communicate(timeout=ENDS_S)
                    ended = end(left)
                finally:
                    receiver.kill()
                    sender.kill()
        if victim == "receiver":
            assert ended.status == 1
            assert len(ended.report["errors"]) in (1, 2), ended.report["errors"]
            assert all("\n" not in error for error in ended.report["errors"])
        else:
            assert ended.report["verify"]["wrong_bytes"] == 0
