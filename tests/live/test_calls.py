"""Every call of a calls segment is counted and timed, and its hooks are gone when the segment is over."""

from contextlib import ExitStack

import pytest
from copyscope import paths
from copyscope.errors import RunError
from copyscope.run.child import Child
from links import attached
from profiling import SLOW, broken_identities, is_root, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


@pytest.mark.parametrize("instrument", ["calls", "sampler", "bytes", "watch"])
def test_an_instrument_that_is_open_is_not_opened_again(instrument: str) -> None:
    """The second time lost what the first had attached: its thread then used memory that was freed."""
    watching = ["--watch"] if instrument == "watch" else []
    with ExitStack() as exit_:
        collector = Child("collector", [str(paths.COLLECTOR), *watching])
        exit_.callback(collector.end)
        collector.expect("ready", 30 * SLOW)
        collector.ask("symbols", "symbols", 30 * SLOW)
        collector.ask(f"open {instrument}", "opened", 30 * SLOW)
        with pytest.raises(RunError, match="is open already: close first"):
            collector.ask(f"open {instrument}", "opened", 30 * SLOW)
        collector.ask("close", "closed", 30 * SLOW)
        if instrument != "watch":  # that stays until the end
            collector.ask(f"open {instrument}", "opened", 30 * SLOW)
            collector.ask("close", "closed", 30 * SLOW)
        assert attached(collector.pid) == frozenset() or instrument == "watch"
        collector.ask("report", "report", 30 * SLOW)
        assert collector.process.wait(30 * SLOW) == 0


@pytest.mark.parametrize("impl", [pytest.param("one_copy", marks=pytest.mark.all), "zero_copy"])
def test_each_call_is_timed(impl: str) -> None:
    """Own traffic stands still while the hooks come: only the receiver is in a call, and waits."""
    record = record_of("--impl", impl, "--size", "4K", "--instruments", "calls", "--duration", "2")
    assert broken_identities(record) == []
    assert next(i for i in record["identities"] if i["name"] == "timed_calls")["holds"]
    begun = sum(segment["phase"] == "calls" for segment in record["run"]["segments"])
    assert all(0 <= row["calls"] - row["timed_calls"] <= begun < row["calls"] for row in record["calls"])
    sent = next(row for row in record["calls"] if row["side"] == "sender" and row["bytes"])
    # Softirq work is told apart: a send over veth always has some.
    assert sent["on_cpu_ns"] > 0 and sent["softirq_ns"] > 0


def test_pieces_of_a_file_are_not_taken_for_calls() -> None:
    """A message of 256 KiB passes the socket four times in one sendfile(2)."""
    options = ("--impl", "sendfile", "--size", "256K", "--instruments", "calls", "--duration", "1")
    record = record_of(*options)
    assert broken_identities(record) == []
    (sent,) = (row for row in record["calls"] if row["syscall"] == "sendfile")
    assert sent["bytes"] == sent["calls"] * (256 << 10)
    assert next(i for i in record["identities"] if i["name"] == "timed_calls")["holds"]


def test_every_call_that_passes_a_socket_is_counted_there_even_in_vain() -> None:
    """Reads of the error queue are mostly refused: calls all the same, as the program counts them."""
    options = ("--impl", "zero_copy", "--topology", "loopback", "--instruments", "calls", "--duration", "1")
    record = record_of(*options)
    assert broken_identities(record) == []
    made = [segment for segment in record["run"]["segments"] if segment["phase"] == "calls"]
    counted = {(row["side"], row["syscall"]): row["calls"] for row in record["calls"]}
    reads = sum(segment["sides"]["sender"]["zerocopy"]["errqueue_reads"] for segment in made)
    assert counted["sender", "recvmsg"] == reads > 0
    assert (
        counted["receiver", "recvfrom"] == sum(segment["sides"]["receiver"]["calls"] for segment in made) > 0
    )


def test_no_call_takes_less_time_than_its_softirq_work() -> None:
    """What an interrupt ran at the begin or end of a call was taken off: the rest was below 0, or minutes."""
    options = ("--impl", "one_copy", "--topology", "loopback", "--size", "64", "--threads", "8")
    record = record_of(*options, "--instruments", "calls", "--duration", "3")
    longest = [row["histogram"]["buckets"][-1][0] for row in record["calls"] if row["calls"]]
    assert longest and max(longest) < 10e9 * SLOW
