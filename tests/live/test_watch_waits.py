# SPDX-License-Identifier: GPL-2.0-only
"""Programs that wait for a known reason: the record names this reason as the largest part of the time."""

import sys
from typing import Any

import pytest
from copyscope.ledger.waiting import Waiting, waiting
from copyscope.record import store
from copyscope.record.measured import Measured
from profiling import is_root
from programs import stretched, watch

Record = dict[str, Any]

SNDBUF_BYTES = 16_384

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

# A program that sends header and body, and waits for the answer of its child. Arguments: seconds, TCP_NODELAY
# and SO_SNDBUF. With SO_SNDBUF, the child reads slowly and never answers.
TALK = """
import os, socket, sys, time
seconds, nodelay, sndbuf = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    other, _ = listener.accept()
    other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while other.recv(1100, socket.MSG_WAITALL):
        if sndbuf:
            time.sleep(0.01)
        else:
            other.sendall(b"12345")
    os._exit(0)
mine = socket.create_connection(listener.getsockname())
mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
if sndbuf:
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
end = time.monotonic() + seconds
while time.monotonic() < end:
    mine.sendall(bytes(100))
    mine.sendall(bytes(1000))
    if not sndbuf:
        mine.recv(5, socket.MSG_WAITALL)
"""


def watch_talk(nodelay: int, sndbuf: int) -> tuple[Record, Waiting]:
    """Watch the program without its other end. Return the record, and why the program waits."""
    program = ("--", sys.executable, "-c", TALK, stretched(4), str(nodelay), str(sndbuf))
    record = watch("--no-follow", *program, check=None)
    found = waiting(store.convert_part(record, Measured))
    assert found is not None
    return record, found


def test_a_header_before_its_body_waits_for_the_delayed_ack() -> None:
    _, held = watch_talk(0, 0)
    assert held.causes[0].name == "Nagle's algorithm" and held.causes[0].share > 0.5
    _, at_once = watch_talk(1, 0)
    assert "Nagle's algorithm" not in {cause.name for cause in at_once.causes}


def test_the_size_of_a_full_send_buffer_is_read_if_the_program_set_it() -> None:
    record, full = watch_talk(1, SNDBUF_BYTES)
    # socket(7): the kernel doubles the size.
    assert record["waits"]["fixed_buffer_bytes"] == 2 * SNDBUF_BYTES
    assert full.causes[0].call == "sendto" and full.causes[0].share > 0.5
