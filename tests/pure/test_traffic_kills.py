# SPDX-License-Identifier: GPL-2.0-only
"""Sender or receiver is killed at random moments: the other program ends with a report, and no byte is wrong.

Sender and receiver are killed once each. COPYSCOPE_KILLS=50 makes fifty kills.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from test_traffic_loopback import BY_PAGES, RELAYS, end, listening_port, start

KILLS = int(os.environ.get("COPYSCOPE_KILLS", "1"))
# A program that has not ended after this many seconds hangs.
ENDS_S = 10.0
STRATEGIES = (
    *("zero_copy", "one_copy --call writev", "per_field --batch 8", "sendfile --via splice", "vmsplice"),
    *RELAYS,
    *("uring_send", "uring_send --issue async", "uring_send --issue sqpoll"),
    *("uring_zc", "uring_zc --registered --fields 1", "uring_zc --issue async", "uring_zc --issue sqpoll"),
)


def wait_until_connected(port: str, connections: int) -> None:
    """Wait for all connections, because a sender waits forever if its receiver dies before connecting."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        accepted = [row for row in rows if row[1].endswith(f":{int(port):04X}") and row[3] == "01"]
        if len(accepted) == connections:
            return
    raise AssertionError("the receiver does not connect")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_after_a_kill_the_other_program_ends_with_a_report(strategy: str, victim: str) -> None:
    generator = random.Random(f"{strategy} {victim}")
    touch = [] if strategy.split(maxsplit=1)[0] in (*BY_PAGES, *RELAYS) else ["--touch"]
    common = ["--size", "100003", "--verify", *touch, "--threads", "2"]
    for _ in range(KILLS):
        with start("send", "--impl", *strategy.split(), "--duration", "60", *common) as sender:
            port = listening_port(sender)
            with start("recv", "--port", port, *common) as receiver:
                killed, survivor = (sender, receiver) if victim == "sender" else (receiver, sender)
                try:
                    wait_until_connected(port, 2)
                    time.sleep(generator.uniform(0, 0.08))
                    killed.send_signal(signal.SIGKILL)
                    killed.communicate(timeout=ENDS_S)
                    ended = end(survivor)
                finally:
                    receiver.kill()
                    sender.kill()
        if victim == "receiver":
            assert ended.status == 1
            assert len(ended.report["errors"]) in (1, 2), ended.report["errors"]
            assert all("\n" not in error for error in ended.report["errors"])
        else:
            assert ended.report["verify"]["wrong_bytes"] == 0
