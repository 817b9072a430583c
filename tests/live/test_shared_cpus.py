# SPDX-License-Identifier: GPL-2.0-only
"""A program that shares its CPU has its time in the same rows as alone."""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from profiling import SLOW, broken_identities, is_root, record_of
from programs import Record, running, stretched, watch

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.quiet,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

CPU = str(max(os.sched_getaffinity(0)))
ON_ONE = ("taskset", "--cpu-list", CPU, sys.executable, "-c")
SPIN = "while True: pass"
# Two of these programs alternate: each runs its loop `rounds` times, and then wakes the other.
TURNS = """
import os, sys
mine, theirs, rounds = (int(word) for word in sys.argv[1:])
while os.read(mine, 1):
    for _ in range(rounds):
        pass
    os.write(theirs, b"x")
"""
ROUNDS = 1000
COPIES = ("copy_in", "copy_out")


@contextmanager
def taking_turns(rounds: int) -> Iterator[int]:
    """Run two programs that alternate on one CPU, and yield the pid of the first."""
    with ExitStack() as stack:
        (first_read, first_write), (second_read, second_write) = os.pipe(), os.pipe()
        for fd in (first_read, first_write, second_read, second_write):
            stack.callback(os.close, fd)
        turns = ((first_read, second_write), (second_read, first_write))
        pids = [
            stack.enter_context(
                running(
                    [*ON_ONE, TURNS, str(own_fd), str(other_fd), str(rounds)], pass_fds=(own_fd, other_fd)
                )
            ).pid
            for own_fd, other_fd in turns
        ]
        os.write(first_write, b"x")
        time.sleep(0.3 * SLOW)
        yield pids[0]


def turn_ns(pid: int) -> float:
    """Return the CPU time (ns) between two switches by the scheduler's own count (schedstat)."""
    path = Path(f"/proc/{pid}/schedstat")
    before = [int(word) for word in path.read_text().split()]
    time.sleep(0.5 * SLOW)
    after = [int(word) for word in path.read_text().split()]
    return (after[0] - before[0]) / (after[2] - before[2])


def in_user_space(record: Record) -> float:
    """Return the share of user mode in the program's own time, without softirq work for others."""
    own = [row for row in record["stages"] if row["side"] == "target" and row["context"] != "softirq"]
    user_ns = sum(row["cpu_ns"] for row in own if row["stage"] == "user")
    return float(user_ns / sum(row["cpu_ns"] for row in own))


def test_a_loop_between_two_switches_counts_as_user_space() -> None:
    """Time outside user space is at most the time of a turn with an empty loop."""
    with taking_turns(0) as pid:
        empty_turn_ns = turn_ns(pid)
    with taking_turns(ROUNDS) as pid:
        outside_share = empty_turn_ns / turn_ns(pid)
        record = watch("--pid", str(pid), "--duration", stretched(1), "--frequency", "1000", check=None)
    assert outside_share < 0.25
    assert in_user_space(record) > 1 - outside_share - 0.1


def test_a_busy_loop_beside_another_has_its_time_in_user_space() -> None:
    options = ("--duration", stretched(1), "--frequency", "1000")
    with ThreadPoolExecutor() as pool, running([*ON_ONE, SPIN]) as first, running([*ON_ONE, SPIN]) as second:
        futures = [
            pool.submit(watch, "--pid", str(spinner.pid), *options, check=None) for spinner in (first, second)
        ]
        records = [record.result() for record in futures]
    for record in records:
        assert record["sides"]["target"]["samples"] > 40
        assert in_user_space(record) > 0.97


def copy_shares(record: Record) -> dict[str, float]:
    """Return the share of each copy in the time of the process that makes it."""
    rows = [row for row in record["ledger"] if row["account"] in COPIES and row["samples"]]
    return {row["account"]: row["share"] for row in rows}


def test_copies_take_the_same_share_on_a_shared_cpu() -> None:
    """Identical runs of 3 s differ by up to 20 %.

    A receiver that waits for its CPU copies more at a time: the share of its copy was 1.3 times as large, the
    mean of eight pairs.
    """
    common_options = ("--impl", "one_copy", "--duration", stretched(3), "--frequency", "1000")
    options = (*common_options, "--sender-cpus", CPU, "--receiver-cpus", CPU)
    alone = record_of(*options)
    with running([*ON_ONE, SPIN]):
        beside = record_of(*options, check=None)
    assert broken_identities(beside) == []
    shares_alone, shares = copy_shares(alone), copy_shares(beside)
    for account in COPIES:
        assert 2 / 3 < shares[account] / shares_alone[account] < 2, account
