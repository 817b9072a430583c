"""What copyscope starts ends with it, and whoever waits for a process that was killed is told."""

import subprocess
import sys
import time
from collections.abc import Callable

from copyscope.run import processes

# As in a program of ours: one child that reads nothing from us.
STARTER = """
import subprocess, time
from copyscope.run.child import dies_with_us
print(subprocess.Popen([*dies_with_us(), "sleep", "60"]).pid, flush=True)
time.sleep(60)
"""


def wait_until(true: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def test_a_tool_that_is_asked_nothing_ends_with_us() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        tool = int(starter.stdout.readline())
        wait_until(lambda: (found := processes.read_process(tool)) and found.comm == "sleep")
        starter.kill()
    wait_until(lambda: not processes.is_alive(tool), 5)
