"""What copyscope starts ends with it, and whoever waits for a process that was killed is told."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.sweep import store, sweep
from copyscope import paths
from copyscope.run.program import processes

# As in a program of ours: the package by its path, then one child that reads nothing from us.
STARTER = f"""
import runpy, subprocess, time
runpy.run_path({str(paths.ROOT / "tools/copyscope/__main__.py")!r})["load_package"]()
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


@pytest.fixture
def report(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """tools/report.py that has begun to draw."""
    directory = store(sweep(sizes=(64, 4096), repeats=2), tmp_path / "demo")
    run = subprocess.Popen(
        [sys.executable, str(paths.ROOT / "tools" / "report.py"), str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield run
    run.kill()
    run.communicate()


def children(pid: int) -> list[int]:
    return [process.pid for process in processes.all_processes() if process.parent == pid and process.alive]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def family(run: subprocess.Popen[str]) -> tuple[int, list[int]]:
    """The process that draws, and its painters, once there are some.

    Python keeps a process beside the one that draws, and matplotlib asks fc-list for fonts once
    on each machine: a painter is a fork, so its command line is that of its parent.
    """
    found: list[tuple[int, list[int]]] = []

    def seen() -> bool:
        for drawer in children(run.pid):
            painters = [child for child in children(drawer) if command(child) == command(drawer)]
            if painters:
                found.append((drawer, painters))
        return bool(found)

    wait_until(seen)
    return found[0]


@pytest.mark.parametrize("who", ["drawer", "painter"])
def test_a_report_does_not_wait_for_a_process_that_was_killed(
    who: str, report: subprocess.Popen[str]
) -> None:
    drawer, painters = family(report)
    os.kill(drawer if who == "drawer" else painters[0], signal.SIGKILL)
    _, said = report.communicate(timeout=20)
    assert report.returncode == 1
    # matplotlib says on its first day on a machine that it looks for fonts.
    (line,) = [line for line in said.splitlines() if not line.startswith("Matplotlib is building")]
    assert line.startswith("report: plots: a process that draws them did not start or was killed")
    wait_until(lambda: not any(map(processes.is_alive, [drawer, *painters])), 5)


def test_nobody_draws_for_a_report_that_was_killed(report: subprocess.Popen[str]) -> None:
    drawer, painters = family(report)
    beside = children(report.pid)
    report.kill()
    wait_until(lambda: not any(map(processes.is_alive, [drawer, *painters, *beside])), 5)
