"""Programs with many calls, threads, processes and connections: nothing is forgotten without a count."""

import time
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd, every_call_timed, watching
from profiling import SLOW, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not CROWD.exists(), reason=f"needs {CROWD.name}: make {CROWD.relative_to(paths.ROOT)}"
    ),
]

FIN_WAIT1 = 4  # include/net/tcp_states.h
PID_MAX_LIMIT = 1 << 22  # include/linux/threads.h
OFTEN = ("--frequency", "1000")


def test_a_call_whose_file_is_closed_meanwhile_is_counted_and_timed() -> None:
    (received,) = (row for row in every_call_timed("closed", 40)["calls"] if row["syscall"] == "recvfrom")
    assert received["calls"] == received["timed_calls"] == received["bytes"] == 40
    assert received["blocked_ns"] > 40 * 2e6


@pytest.mark.all
def test_the_next_call_of_a_thread_does_not_begin_where_one_of_a_closed_file_did() -> None:
    """All receives together, by the program's own clock, are the most that these can have taken."""
    count = 40
    with crowd("again", count) as made, watching(made.pid) as collector:
        collector.ask("open calls", "opened", 30 * SLOW)
        made.begin()
        took_ns = made.number()
        made.wait()
        collector.ask("close", "closed", 30 * SLOW)
        report = collector.ask("report", "report")
    (received,) = (row for row in report["calls"] if row["syscall"] == "recvfrom")
    told_ns = sum(received[f"{what}_ns"] for what in ("on_cpu", "softirq", "blocked"))
    # Those of a closed file are among them: each of these waits for 2 ms.
    assert count * 2e6 < told_ns <= took_ns
    assert received["calls"] == received["timed_calls"] == received["bytes"] == 2 * count
    assert report["loss"]["calls_file_closed"] == 0


@pytest.mark.all
def test_threads_that_ended_take_no_room() -> None:
    """More than the 8,192 threads that may be in a call at once, one after the other."""
    report = every_call_timed("threads", 9000)
    (sent,) = (row for row in report["calls"] if row["syscall"] == "sendto")
    assert report["loss"]["calls_task_map_full"] == 0
    assert sent["calls"] == sent["timed_calls"] == 9000


def sockets_of(collector: Child) -> list[list[int]]:
    return list(collector.ask("sockets", "sockets")["sockets"].values())


def test_every_open_connection_is_told_apart() -> None:
    count = 20_000 if SLOW == 1 else 2000
    with crowd("connections", count) as made, watching(made.pid) as collector:
        made.begin()
        made.wait()
        first = sockets_of(collector)
        made.begin()
        made.wait()
        second = sockets_of(collector)
        made.end()
        # The last acknowledgements may be under way.
        deadline = time.monotonic() + 20 * SLOW
        while (left := sockets_of(collector)) and time.monotonic() < deadline:
            time.sleep(0.05)
        loss = collector.ask("report", "report")["loss"]
    assert sorted(first) == sorted([[100, 0], [0, 100]] * count)
    assert sorted(second) == sorted([[200, 0], [0, 200]] * count)
    # Closed, they leave their places to others.
    assert left == [] and loss["watch_socket_map_full"] == 0


@pytest.mark.all
def test_a_connection_that_is_closed_leaves_its_place_while_tcp_goes_on() -> None:
    """It has more to send than its peer takes, so TCP keeps it for minutes."""
    with crowd("unread", 4) as made, watching(made.pid) as collector:
        made.begin()
        made.wait()
        told = sockets_of(collector)
        volume = collector.ask("volume", "volume")["volume"]
        closing = Path("/proc/net/tcp").read_text().count(f" {FIN_WAIT1:02X} ")
    assert sum(row["bytes"] for row in volume if row["direction"] == "send") > 4 * 65536
    assert closing >= 4
    assert told == []


@pytest.mark.all
def test_connections_that_find_no_place_are_counted() -> None:
    with (
        crowd("connections", 5000) as made,
        watching(made.pid, "--sockets-max", "4000") as collector,
    ):
        made.begin()
        made.wait()
        told = sockets_of(collector)
        volume = collector.ask("volume", "volume")["volume"]
        loss = collector.ask("report", "report")["loss"]
    assert sum(row["bytes"] for row in volume if row["direction"] == "send") == 500_000
    assert len(told) == 4000
    assert loss["watch_socket_map_full"] == 10_000 - 4000


def test_every_process_is_watched_and_sampled() -> None:
    """Three thousand that are there before; the last hundred of them spend 10 ms each in the kernel."""
    count = 3000 if SLOW == 1 else 300
    with crowd("processes", count) as made:
        made.children(count)  # all are there before
        with watching(made.pid) as collector:
            made.name_all(collector, count)
            collector.ask("symbols", "symbols", 30 * SLOW)
            collector.ask("open sampler", "opened", 60 * SLOW)
            made.begin()
            made.wait()
            collector.ask("close", "closed", 60 * SLOW)
            volume = collector.ask("volume", "volume")
            report = collector.ask("report", "report", 60 * SLOW)
    (sent,) = (row for row in volume["volume"] if row["direction"] == "send")
    assert len(volume["processes"]) == count + 1
    assert (sent["calls"], sent["bytes"]) == (count, 100 * count)
    sampled = sum(row["samples"] for row in report["samples"] if row["side"] == "target")
    assert sampled > 20  # of a second at 199 Hz
    assert report["loss"]["watch_process_map_full"] == 0


def begin_sampling(collector: Child) -> None:
    collector.ask("symbols", "symbols", 30 * SLOW)
    collector.ask("open sampler", "opened", 60 * SLOW)


@pytest.mark.all
@pytest.mark.parametrize("how", ["named", "forked"])
def test_processes_that_join_meanwhile_are_sampled(how: str) -> None:
    """Hundreds, one after the other, in one segment; only those that have joined spend 10 ms each."""
    count = 300 if SLOW == 1 else 100
    with crowd("processes" if how == "named" else "joiners", count) as made:
        there = made.children(count) if how == "named" else []
        with watching(made.pid, *OFTEN) as collector:
            begin_sampling(collector)
            if how == "named":
                made.name_all(collector, count, pause_s=0.003)
            made.begin()
            made.wait()
            joined = there or made.children(count)
            collector.ask("close", "closed", 60 * SLOW)
            processes = collector.ask("volume", "volume")["processes"]
            report = collector.ask("report", "report", 60 * SLOW)
            assert collector.process.wait(30 * SLOW) == 0
    assert sorted(pid for pid, _ in processes) == sorted([made.pid, *joined])
    # Of those that are there before the last hundred spend it.
    spent_s = 0.01 * (min(count, 100) if how == "named" else count)
    of_target = [row for row in report["samples"] if row["side"] == "target"]
    if {row["event"] for row in of_target} == {"cpu-clock"}:
        sampled = sum(row["weight"] for row in of_target) / 1e9 / spent_s
        # An emulated processor stands still at times.
        assert 0.8 < sampled < 1.25 if SLOW == 1 else sampled > 0
    assert of_target and report["loss"]["watch_process_map_full"] == 0


def numbers_of_nobody(count: int) -> list[int]:
    """The highest that a process may have and that none has now."""
    highest = range(PID_MAX_LIMIT - 1, PID_MAX_LIMIT - 1 - 2 * count, -1)
    return [pid for pid in highest if not Path(f"/proc/{pid}").exists()][:count]


@pytest.mark.all
@pytest.mark.skipif(SLOW > 1, reason="to tell of 17,000 processes takes an emulated processor minutes")
def test_processes_that_find_no_place_are_counted() -> None:
    """Those that it is told of, and those that a watched process forks when all places are taken."""
    nobody = numbers_of_nobody(17_000)
    with crowd("joiners", 20) as made, watching(made.pid) as collector:
        for pid in nobody:
            collector.ask(f"target target {pid}", "target")
        listed = len(collector.ask("volume", "volume")["processes"])
        told = collector.ask("samples", "samples")["loss"]["watch_process_map_full"]
        made.begin()
        made.wait()
        forks = collector.ask("volume", "volume")["totals"]["forks"]
        loss = collector.ask("report", "report")["loss"]
    assert told > 0 and listed + told == 1 + len(nobody)
    assert forks == 20
    assert loss["watch_process_map_full"] == told + forks
