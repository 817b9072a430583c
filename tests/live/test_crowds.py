# SPDX-License-Identifier: GPL-2.0-only
"""Many calls, threads, processes and connections: everything is counted, or its loss is counted."""

import time
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd, report_of_timed_calls, watching
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


def test_a_call_is_counted_and_timed_although_its_file_is_closed_meanwhile() -> None:
    (received,) = (
        row for row in report_of_timed_calls("closed", 40)["calls"] if row["syscall"] == "recvfrom"
    )
    assert received["calls"] == received["timed_calls"] == received["bytes"] == 40
    assert received["blocked_ns"] > 40 * 2e6


@pytest.mark.all
def test_the_call_after_one_on_a_closed_file_has_its_own_begin() -> None:
    """The program's own clock limits the time of all its receives together."""
    count = 40
    with crowd("again", count) as program, watching(program.pid) as collector:
        collector.ask("open calls", "opened", 30 * SLOW)
        program.begin()
        took_ns = program.number()
        program.wait()
        collector.ask("close", "closed", 30 * SLOW)
        report = collector.ask("report", "report")
    (received,) = (row for row in report["calls"] if row["syscall"] == "recvfrom")
    attributed_ns = sum(received[f"{part}_ns"] for part in ("on_cpu", "softirq", "blocked"))
    # Receives from a closed file are included, and each of them waits for 2 ms.
    assert count * 2e6 < attributed_ns <= took_ns
    assert received["calls"] == received["timed_calls"] == received["bytes"] == 2 * count
    assert report["loss"]["calls_file_closed"] == 0


@pytest.mark.all
def test_threads_that_exited_take_no_place_in_the_map() -> None:
    """The program starts 9,000 threads, one after the other. Only 8,192 can be in a call at once."""
    report = report_of_timed_calls("threads", 9000)
    (sent,) = (row for row in report["calls"] if row["syscall"] == "sendto")
    assert report["loss"]["calls_task_map_full"] == 0
    assert sent["calls"] == sent["timed_calls"] == 9000


def sockets_of(collector: Child) -> list[list[int]]:
    """Return [bytes sent, bytes received] of each socket that the collector knows."""
    return list(collector.ask("sockets", "sockets")["sockets"].values())


def test_bytes_of_every_open_connection_are_counted_separately() -> None:
    count = 20_000 if SLOW == 1 else 2000
    with crowd("connections", count) as program, watching(program.pid) as collector:
        program.begin()
        program.wait()
        first = sockets_of(collector)
        program.begin()
        program.wait()
        second = sockets_of(collector)
        program.end()
        # The last acknowledgements may still be on the way.
        deadline = time.monotonic() + 20 * SLOW
        while (open_sockets := sockets_of(collector)) and time.monotonic() < deadline:
            time.sleep(0.05)
        loss = collector.ask("report", "report")["loss"]
    assert sorted(first) == sorted([[100, 0], [0, 100]] * count)
    assert sorted(second) == sorted([[200, 0], [0, 200]] * count)
    # Closed connections free their places in the map.
    assert open_sockets == [] and loss["watch_socket_map_full"] == 0


@pytest.mark.all
def test_a_closed_connection_frees_its_place_although_tcp_still_sends() -> None:
    """The connections have more to send than their peer reads, so TCP keeps them for minutes."""
    with crowd("unread", 4) as program, watching(program.pid) as collector:
        program.begin()
        program.wait()
        sockets = sockets_of(collector)
        volume = collector.ask("volume", "volume")["volume"]
        closing = Path("/proc/net/tcp").read_text().count(f" {FIN_WAIT1:02X} ")
    assert sum(row["bytes"] for row in volume if row["direction"] == "send") > 4 * 65536
    assert closing >= 4
    assert sockets == []


@pytest.mark.all
def test_connections_beyond_the_size_of_the_map_are_counted() -> None:
    """Linux 6.3 gives the hook the socket, and stores the bytes at the socket, so no socket is lost."""
    with (
        crowd("connections", 5000) as program,
        watching(program.pid, "--sockets-max", "4000") as collector,
    ):
        program.begin()
        program.wait()
        sockets = sockets_of(collector)
        volume = collector.ask("volume", "volume")["volume"]
        report = collector.ask("report", "report")
    (sent,) = (hook["state"] for hook in report["hooks"] if hook["id"] == "volume_sent")
    kept = 10_000 if sent == "attached" else 4000
    assert sum(row["bytes"] for row in volume if row["direction"] == "send") == 500_000
    assert len(sockets) == kept
    assert report["loss"]["watch_socket_map_full"] == 10_000 - kept


@pytest.mark.all
def test_every_process_is_watched_and_sampled() -> None:
    """3,000 processes exist before watching begins. The last hundred spend 10 ms each in the kernel."""
    count = 3000 if SLOW == 1 else 300
    with crowd("processes", count) as program:
        program.children(count)  # wait until all of them exist
        with watching(program.pid) as collector:
            program.add_children(collector, count)
            collector.ask("symbols", "symbols", 30 * SLOW)
            collector.ask("open sampler", "opened", 60 * SLOW)
            program.begin()
            program.wait()
            collector.ask("close", "closed", 60 * SLOW)
            volume = collector.ask("volume", "volume")
            report = collector.ask("report", "report", 60 * SLOW)
    (sent,) = (row for row in volume["volume"] if row["direction"] == "send")
    assert len(volume["processes"]) == count + 1
    assert (sent["calls"], sent["bytes"]) == (count, 100 * count)
    sampled = sum(row["samples"] for row in report["samples"] if row["side"] == "target")
    assert sampled > 20  # a second of CPU time at 199 Hz
    assert report["loss"]["watch_process_map_full"] == 0


def begin_sampling(collector: Child) -> None:
    collector.ask("symbols", "symbols", 30 * SLOW)
    collector.ask("open sampler", "opened", 60 * SLOW)


@pytest.mark.all
@pytest.mark.parametrize("how", ["named", "forked"])
def test_processes_that_join_during_a_segment_are_sampled(how: str) -> None:
    """Hundreds of processes join during one segment. Only processes that have joined spend 10 ms each."""
    count = 300 if SLOW == 1 else 100
    with crowd("processes" if how == "named" else "joiners", count) as program:
        existing = program.children(count) if how == "named" else []
        with watching(program.pid, *OFTEN) as collector:
            begin_sampling(collector)
            if how == "named":
                program.add_children(collector, count, pause_s=0.003)
            program.begin()
            program.wait()
            joined = existing or program.children(count)
            collector.ask("close", "closed", 60 * SLOW)
            processes = collector.ask("volume", "volume")["processes"]
            report = collector.ask("report", "report", 60 * SLOW)
            assert collector.process.wait(30 * SLOW) == 0
    assert sorted(pid for pid, _ in processes) == sorted([program.pid, *joined])
    # If the processes exist before, only the last hundred spend this time.
    spent_s = 0.01 * (min(count, 100) if how == "named" else count)
    of_target = [row for row in report["samples"] if row["side"] == "target"]
    if {row["event"] for row in of_target} == {"cpu-clock"}:
        sampled = sum(row["weight"] for row in of_target) / 1e9 / spent_s
        # An emulated CPU stops at times, so its samples prove little.
        assert 0.8 < sampled < 1.25 if SLOW == 1 else sampled > 0
    assert of_target and report["loss"]["watch_process_map_full"] == 0


def unused_pids(count: int) -> list[int]:
    """Return the `count` highest pids that no process has now."""
    highest = range(PID_MAX_LIMIT - 1, PID_MAX_LIMIT - 1 - 2 * count, -1)
    return [pid for pid in highest if not Path(f"/proc/{pid}").exists()][:count]


@pytest.mark.all
@pytest.mark.skipif(SLOW > 1, reason="an emulated CPU takes minutes to add 17,000 processes")
def test_processes_beyond_the_size_of_the_map_are_counted() -> None:
    """Both processes added by command and processes forked by a watched process are counted."""
    pids = unused_pids(17_000)
    with crowd("joiners", 20) as program, watching(program.pid) as collector:
        for pid in pids:
            collector.ask(f"target target {pid}", "target")
        listed = len(collector.ask("volume", "volume")["processes"])
        rejected = collector.ask("samples", "samples")["loss"]["watch_process_map_full"]
        program.begin()
        program.wait()
        forks = collector.ask("volume", "volume")["totals"]["forks"]
        loss = collector.ask("report", "report")["loss"]
    assert rejected > 0 and listed + rejected == 1 + len(pids)
    assert forks == 20
    assert loss["watch_process_map_full"] == rejected + forks
