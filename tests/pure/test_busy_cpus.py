"""Timers of the CPUs sample a watched program only where its CPUs are never idle."""

import os
from pathlib import Path

from copyscope.machine.fingerprint import times_of_cpus
from copyscope.run.program.busy_cpus import BusyCpus, Look, allowed, were_busy

STAT = """\
cpu  30 0 60 900 9 0 0 0 0 0
cpu0 10 0 20 400 4 0 0 0 0 0
cpu12 20 0 40 500 5 0 0 0 0 0
intr 1234 0 0
cpus 7
"""


def test_waiting_for_a_disk_is_idle_too(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text(STAT)
    assert {cpu: one.idle for cpu, one in times_of_cpus(tmp_path).items()} == {0: 404, 12: 505}


def test_one_tick_a_second_may_be_idle() -> None:
    before = Look(10.0, {0: 100, 1: 100})
    assert were_busy(before, Look(12.0, {0: 102, 1: 150}), {0})
    assert not were_busy(before, Look(12.0, {0: 103, 1: 100}), {0})


def test_all_cpus_that_it_may_use_must_be_busy() -> None:
    before = Look(10.0, {0: 100, 1: 100})
    assert not were_busy(before, Look(12.0, {0: 100, 1: 150}), {0, 1})
    # One that came online meanwhile, and a program of which nothing is known.
    assert not were_busy(before, Look(12.0, {0: 100, 1: 100, 2: 0}), {0, 2})
    assert not were_busy(before, Look(12.0, {0: 100, 1: 100}), ())


def test_a_program_may_use_the_cpus_of_all_its_threads() -> None:
    assert allowed([os.getpid()]) == os.sched_getaffinity(0)
    assert allowed([]) == frozenset()
    assert allowed([os.getpid()] * 65) == frozenset()  # more threads than are asked


def test_of_one_look_nothing_follows_and_of_a_second_soon_after_it_neither() -> None:
    cpus = BusyCpus()
    assert cpus.look([os.getpid()]) is None
    assert cpus.look([os.getpid()]) is None
