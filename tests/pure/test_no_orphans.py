# SPDX-License-Identifier: GPL-2.0-only
"""Programs that copyscope starts end with copyscope."""

import subprocess
import sys
import time
from collections.abc import Callable

from copyscope.run import processes

# A parent like copyscope, with one child that reads nothing from the parent.
STARTER = """
import subprocess, time
from copyscope.run.child import dies_with_us
print(subprocess.Popen([*dies_with_us(), "sleep", "60"]).pid, flush=True)
time.sleep(60)
"""


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def test_a_tool_that_reads_nothing_ends_with_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        tool = int(starter.stdout.readline())
        wait_until(lambda: (process := processes.read_process(tool)) and process.comm == "sleep")
        starter.kill()
    wait_until(lambda: not processes.is_alive(tool), 5)
