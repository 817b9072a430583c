"""Programs that share a CPU: their time is where it is alone."""

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
# Two of these take turns: each goes round its loop so often, and then wakes the other.
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
    """The pid of one of two programs that take turns on one CPU."""
    with ExitStack() as stack:
        (here, to_here), (there, to_there) = os.pipe(), os.pipe()
        for fd in (here, to_here, there, to_there):
            stack.callback(os.close, fd)
        turns = ((here, to_there), (there, to_here))
        pids = [
            stack.enter_context(
                running([*ON_ONE, TURNS, str(mine), str(theirs), str(rounds)], pass_fds=(mine, theirs))
            ).pid
            for mine, theirs in turns
        ]
        os.write(to_here, b"x")
        time.sleep(0.3 * SLOW)
        yield pids[0]


def turn_ns(pid: int) -> float:
    """CPU time from one switch to the next, by the scheduler's own count (schedstat)."""
    path = Path(f"/proc/{pid}/schedstat")
    before = [int(word) for word in path.read_text().split()]
    time.sleep(0.5 * SLOW)
    after = [int(word) for word in path.read_text().split()]
    return (after[0] - before[0]) / (after[2] - before[2])


def in_user_space(record: Record) -> float:
    """The part of what the program itself does: without the softirq work of others on its time."""
    own = [row for row in record["stages"] if row["side"] == "target" and row["context"] != "softirq"]
    user_ns = sum(row["cpu_ns"] for row in own if row["stage"] == "user")
    return float(user_ns / sum(row["cpu_ns"] for row in own))


def test_a_loop_between_two_switches_is_in_user_space() -> None:
    """What a turn takes without the loop is all that can be elsewhere."""
    with taking_turns(0) as pid:
        without = turn_ns(pid)
    with taking_turns(ROUNDS) as pid:
        elsewhere = without / turn_ns(pid)
        record = watch("--pid", str(pid), "--duration", stretched(1), "--frequency", "1000", check=None)
    assert elsewhere < 0.25
    assert in_user_space(record) > 1 - elsewhere - 0.1


def test_who_only_runs_in_user_space_is_there_beside_another() -> None:
    options = ("--duration", stretched(1), "--frequency", "1000")
    with ThreadPoolExecutor() as pool, running([*ON_ONE, SPIN]) as one, running([*ON_ONE, SPIN]) as other:
        seen = [
            pool.submit(watch, "--pid", str(spinner.pid), *options, check=None) for spinner in (one, other)
        ]
        records = [record.result() for record in seen]
    for record in records:
        assert record["sides"]["target"]["samples"] > 40
        assert in_user_space(record) > 0.97


def copy_shares(record: Record) -> dict[str, float]:
    """The share of either copy in the time of the side that does it."""
    rows = [row for row in record["ledger"] if row["account"] in COPIES and row["samples"]]
    return {row["account"]: row["share"] for row in rows}


def test_a_run_that_shares_its_cpu_has_the_copies_that_it_has_alone() -> None:
    """Equal runs of 3 s differ by up to 20 %. A receiver that waits for its CPU copies more at a time: its
    copy had 1.3 times the share, the mean of eight pairs.
    """
    how = ("--impl", "one_copy", "--duration", stretched(3), "--frequency", "1000")
    options = (*how, "--sender-cpus", CPU, "--receiver-cpus", CPU)
    alone = record_of(*options)
    with running([*ON_ONE, SPIN]):
        beside = record_of(*options, check=None)
    assert broken_identities(beside) == []
    before, shares = copy_shares(alone), copy_shares(beside)
    for account in COPIES:
        assert 2 / 3 < shares[account] / before[account] < 2, account
