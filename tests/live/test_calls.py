# SPDX-License-Identifier: GPL-2.0-only
"""A calls segment counts and times every system call, and its hooks are gone when it ends."""

from contextlib import ExitStack

import pytest
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.run.child import Child
from links import attached_tracepoints
from profiling import SLOW, broken_identities, is_root, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


@pytest.mark.parametrize("instrument", ["calls", "sampler", "bytes", "watch"])
def test_an_open_instrument_cannot_be_opened_again(instrument: str) -> None:
    """Opening it twice once lost the first attachment, and its thread used freed memory."""
    watching = ["--watch"] if instrument == "watch" else []
    with ExitStack() as exit_:
        collector = Child("collector", [str(paths.COLLECTOR), *watching])
        exit_.callback(collector.end)
        collector.expect("ready", 30 * SLOW)
        collector.ask("symbols", "symbols", 30 * SLOW)
        collector.ask(f"open {instrument}", "opened", 30 * SLOW)
        with pytest.raises(RunError, match="already open; close it first"):
            collector.ask(f"open {instrument}", "opened", 30 * SLOW)
        collector.ask("close", "closed", 30 * SLOW)
        if instrument != "watch":  # `watch` stays attached until the collector exits
            collector.ask(f"open {instrument}", "opened", 30 * SLOW)
            collector.ask("close", "closed", 30 * SLOW)
        assert attached_tracepoints(collector.pid) == frozenset() or instrument == "watch"
        collector.ask("report", "report", 30 * SLOW)
        assert collector.process.wait(30 * SLOW) == 0


@pytest.mark.all
@pytest.mark.parametrize("impl", ["one_copy", "zero_copy"])
def test_each_call_is_timed(impl: str) -> None:
    """Our own traffic is paused while hooks are attached: only the receiver waits in a system call."""
    record = record_of("--impl", impl, "--size", "4K", "--instruments", "calls", "--duration", "2")
    assert broken_identities(record) == []
    assert next(identity for identity in record["identities"] if identity["name"] == "timed_calls")["holds"]
    calls_segments = sum(segment["phase"] == "calls" for segment in record["run"]["segments"])
    assert all(
        0 <= row["calls"] - row["timed_calls"] <= calls_segments < row["calls"] for row in record["calls"]
    )
    sent = next(row for row in record["calls"] if row["side"] == "sender" and row["bytes"])
    # Softirq work is counted separately, and a send over veth always includes some.
    assert sent["on_cpu_ns"] > 0 and sent["softirq_ns"] > 0


def test_pieces_of_a_file_do_not_count_as_calls() -> None:
    """sendfile(2) passes a message of 256 KiB to the socket in four pieces."""
    options = ("--impl", "sendfile", "--size", "256K", "--instruments", "calls", "--duration", "1")
    record = record_of(*options)
    assert broken_identities(record) == []
    (sent,) = (row for row in record["calls"] if row["syscall"] == "sendfile")
    assert sent["bytes"] == sent["calls"] * (256 << 10)
    assert next(i for i in record["identities"] if i["name"] == "timed_calls")["holds"]


def test_calls_that_fail_are_counted_too() -> None:
    """Most reads of the error queue fail, but they are calls, and the program counts them, too."""
    options = ("--impl", "zero_copy", "--topology", "loopback", "--instruments", "calls", "--duration", "1")
    record = record_of(*options)
    assert broken_identities(record) == []
    calls_segments = [segment for segment in record["run"]["segments"] if segment["phase"] == "calls"]
    counted = {(row["side"], row["syscall"]): row["calls"] for row in record["calls"]}
    reads = sum(segment["sides"]["sender"]["zerocopy"]["errqueue_reads"] for segment in calls_segments)
    assert counted["sender", "recvmsg"] == reads > 0
    assert (
        counted["receiver", "recvfrom"]
        == sum(segment["sides"]["receiver"]["calls"] for segment in calls_segments)
        > 0
    )


@pytest.mark.all
def test_no_call_takes_less_time_than_its_softirq_work() -> None:
    """Softirq work in a call was once subtracted wrongly: times were negative or minutes long."""
    options = ("--impl", "one_copy", "--topology", "loopback", "--size", "64", "--threads", "8")
    record = record_of(*options, "--instruments", "calls", "--duration", "3")
    longest = [row["histogram"]["buckets"][-1][0] for row in record["calls"] if row["calls"]]
    assert longest and max(longest) < 10e9 * SLOW
