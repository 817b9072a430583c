"""Whose timers sample a watched program: what is told to the collector."""

from copyscope.run.program.processes import Use
from copyscope.run.program.timers import Timers

SLEEPY = Use(cpu_ns=66_000 * 50, voluntary=50)  # 66 us of each 10 ms
RESTLESS = Use(cpu_ns=10_000 * 2800, voluntary=2000, involuntary=800)
HALF_S = 0.5


def test_a_program_that_is_switched_seldom_keeps_its_timers() -> None:
    timers = Timers()
    assert timers.choose(busy=None) is None
    timers.add(SLEEPY, HALF_S)
    assert timers.choose(busy=False) == "threads"
    assert timers.choose(busy=False) is None
    timers.add(RESTLESS, HALF_S)
    assert timers.choose(busy=False) == "bursts"


def test_one_that_never_leaves_its_cpu_keeps_them() -> None:
    timers = Timers()
    timers.add(Use(cpu_ns=10**9), 1.0)
    assert timers.choose(busy=False) == "threads"


def test_cpus_that_are_never_idle_sample_it_whatever_it_does() -> None:
    timers = Timers()
    timers.add(SLEEPY, HALF_S)
    assert timers.choose(busy=True) == "cpus"
    # Too short ago to look again: as it was.
    assert timers.choose(busy=None) is None
    timers.add(RESTLESS, HALF_S)
    assert timers.choose(busy=None) is None
    assert timers.choose(busy=False) == "bursts"
