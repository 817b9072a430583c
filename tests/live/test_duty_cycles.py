"""Which hooks stand while one call in sixteen is timed: asked of the kernel, not of the collector."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.errors import RunError
from copyscope.run.child import Child
from profiling import SLOW, broken_identities, is_root, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

SYSCALLS = frozenset(("sys_enter", "sys_exit"))
SOCKET = frozenset(("sock_send_length", "sock_recv_length"))
LOOKS = 100


def attached(pid: int) -> frozenset[str]:
    """The tracepoints that links of this process hold (bpf_raw_tp_link_show_fdinfo())."""
    found = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = info.read_text().splitlines()
        except OSError:  # a link that went meanwhile
            continue
        found |= {line.split()[1] for line in lines if line.startswith("tp_name:")}
    return frozenset(found)


def looks(*options: str) -> tuple[list[frozenset[str]], str]:
    """What is attached at many moments of one segment, and the state of a hook that counts at the socket.

    Nothing may be attached before or after.
    """
    with ExitStack() as exit_:
        collector = Child("collector", [str(paths.COLLECTOR), *options])
        exit_.callback(collector.end)
        hooks = {h["id"]: h["state"] for h in collector.expect("ready", 30 * SLOW)["hooks"]}
        assert not attached(collector.pid)
        collector.ask("open calls", "opened", 30 * SLOW)
        seen = []
        for _ in range(LOOKS):
            time.sleep(0.01)
            seen.append(attached(collector.pid))
        collector.ask("close", "closed", 30 * SLOW)
        assert not attached(collector.pid)
    if not any(seen):
        pytest.skip("this kernel does not say what a link is attached to (before 5.9)")
    return seen, hooks["call_sent"]


@pytest.mark.parametrize("instrument", ["calls", "sampler", "bytes", "watch"])
def test_an_instrument_that_is_open_is_not_opened_again(instrument: str) -> None:
    """The second time lost what the first had attached: its thread then used memory that was freed."""
    watching = ["--watch"] if instrument == "watch" else []
    with ExitStack() as exit_:
        collector = Child("collector", [str(paths.COLLECTOR), "--gate", "16", *watching])
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


def test_no_system_call_is_hooked_for_most_of_the_time() -> None:
    seen, state = looks("--gate", "16")
    if state == "missing":
        pytest.skip("this kernel has no sock_send_length (6.3): calls are counted where they return")
    assert all(now >= SOCKET for now in seen)
    slow = sum(bool(now & SYSCALLS) for now in seen)
    # A sixteenth of it, more where switching takes long; a look or two fall into each of its few duty cycles.
    assert 0 < slow < LOOKS * 3 // 4


def test_where_the_program_counts_nothing_is_hooked_between_duty_cycles() -> None:
    seen, state = looks("--gate", "16", "--count-timed")
    assert state in ("unused", "missing")
    assert not any(now & SOCKET for now in seen)
    assert any("sys_exit" in now for now in seen)
    assert sum(not now for now in seen) > LOOKS // 4


@pytest.mark.parametrize("options", [("--gate", "1"), ("--gate", "16", "--count-returns")])
def test_what_counts_where_calls_return_stays(options: tuple[str, ...]) -> None:
    seen, _ = looks(*options)
    assert all("sys_exit" in now and not now & SOCKET for now in seen)
    assert all("sys_enter" in now for now in seen) == (options[1] == "1")


def test_pieces_of_a_file_are_not_taken_for_calls() -> None:
    """A message of 256 KiB passes the socket four times in one sendfile(2)."""
    options = ("--impl", "sendfile", "--size", "256K", "--instruments", "calls", "--duration", "1")
    record = record_of(*options)
    assert broken_identities(record) == []
    (sent,) = (row for row in record["calls"] if row["syscall"] == "sendfile")
    assert sent["counted_at"] == "return"
    assert sent["bytes"] == sent["calls"] * (256 << 10)
    assert next(i for i in record["identities"] if i["name"] == "timed_calls")["holds"]


def test_every_call_that_passes_a_socket_is_counted_there_even_in_vain() -> None:
    """Reads of the error queue are mostly refused: calls all the same, as the program counts them."""
    options = ("--impl", "zero_copy", "--topology", "loopback", "--instruments", "calls", "--duration", "1")
    record = record_of(*options)
    assert broken_identities(record) == []
    made = [segment for segment in record["run"]["segments"] if segment["arm"] == "calls"]
    counted = {(row["side"], row["syscall"]): row["calls"] for row in record["calls"]}
    reads = sum(segment["sender"]["zerocopy"]["errqueue_reads"] for segment in made)
    assert counted["sender", "recvmsg"] == reads > 0
    assert counted["receiver", "recvfrom"] == sum(segment["receiver"]["calls"] for segment in made) > 0
