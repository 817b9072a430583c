# SPDX-License-Identifier: GPL-2.0-only
"""`traffic send --rewrite`: a message is overwritten after its send. The old or the new bytes arrive."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from test_traffic_loopback import TRAFFIC, Json, end, event, listening_port, running, tell


@contextmanager
def rewriting(moment: str, messages: int, *options: str) -> Iterator[tuple[Json, Json, Json]]:
    """Send 16 KiB messages on two connections. Yield totals of sender and receiver, and the sender's report.

    The receiver has room for one message, and reads after the rewrite.
    """
    common = ["--threads", "2", "--control"]
    # Fields are whole pages. A field that begins within a page would take more of the sender's buffer.
    sizes = ["--size", "16K", "--fields", "1", "--align", "page", "--sndbuf", "208K"]
    sizes += ["--messages", str(messages)]
    with running("send", *options, *sizes, "--rewrite", moment, *common) as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, "--rcvbuf", "32K", "--rewrite", *common) as receiver:
            assert (event(receiver)["event"], event(sender)["event"]) == ("connected", "connected")
            tell(sender, "go")
            assert event(sender)["event"] == "going"
            finished = event(sender)
            assert finished["event"] == "finished"
            tell(receiver, f"settle {finished['bytes']}")
            mark = event(receiver)
            tell(sender, "stop")
            yield finished, mark, event(sender)


OLD, NEW = {"old_bytes": 16384, "new_bytes": 0}, {"old_bytes": 0, "new_bytes": 16384}
# Strategy -> bytes of a message overwritten while it waits in the sender's socket, and after its delivery.
REWRITTEN = {
    "per_field": (OLD, OLD),
    "one_copy": (OLD, OLD),
    "two_copy": (OLD, OLD),
    "uring_send": (OLD, OLD),
    "zero_copy": (NEW, OLD),  # lo copies at the delivery
    "uring_zc": (NEW, OLD),
    "sendfile": (NEW, NEW),
    "vmsplice": (NEW, NEW),
}


@pytest.mark.parametrize(("impl", "expected"), REWRITTEN.items())
def test_an_overwritten_message_arrives_with_old_or_new_bytes(impl: str, expected: tuple[Json, Json]) -> None:
    """Only --rewrite overwrites memory before its notification, while the kernel still refers to it."""
    for moment, messages, arrived_bytes in (("returned", 11, expected[0]), ("arrived", 1, expected[1])):
        with rewriting(moment, messages, "--impl", impl) as (sent, mark, report):
            assert sent["bytes"] == mark["bytes"] == 2 * messages * 16384
            assert mark["rewritten"] == [arrived_bytes, arrived_bytes]
            assert report["errors"] == [] and report["options"]["rewrite"] == moment
            assert ("arrived_ns" in report) is (moment == "arrived")
            if report["zerocopy"] is not None:
                assert report["zerocopy"]["completions"] == report["zerocopy"]["copied"] == 2 * messages


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("send --impl one_copy --rewrite arrived", "give --messages"),
        ("send --impl one_copy --rewrite arrived --messages 9 --working-set 8", "--working-set holds (8)"),
        ("send --impl one_copy --rewrite arrived --messages 1 --verify", "with --verify"),
        ("send --impl one_copy --rewrite arrived --messages 1 --mode rr", "with --mode rr"),
        ("send --impl one_copy --rewrite arrived --messages 1 --sender loop", "--sender loop"),
        ("send --impl zero_copy --rewrite arrived --messages 1 --wait each", "--wait"),
        ("send --impl relay_copy --rewrite arrived --messages 1", "with a relay"),
        ("recv --port 1 --rewrite", "only with --control"),
        ("recv --port 1 --rewrite --control --receiver trunc", "with --receiver trunc"),
        ("recv --port 1 --rewrite --control --receiver poll", "with --receiver poll"),
    ],
)
def test_an_impossible_rewrite_is_refused(words: str, message: str) -> None:
    done = subprocess.run([str(TRAFFIC), *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--rewrite: " in done.stderr and message in done.stderr


def test_a_receiver_without_a_settle_command_ends_with_stop() -> None:
    with running("send", "--impl", "one_copy", "--messages", "1", "--rewrite", "returned") as sender:
        port = listening_port(sender)
        with running("recv", "--port", port, "--rewrite", "--control") as receiver:
            assert event(receiver)["event"] == "connected"
            tell(receiver, "stop")
            assert end(receiver).report["rewritten"] == [{"old_bytes": 65536, "new_bytes": 0}]
        assert end(sender).status == 0
