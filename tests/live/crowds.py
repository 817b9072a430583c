# SPDX-License-Identifier: GPL-2.0-only
"""Start crowd.c, which waits for a line before it works, and a collector that watches it."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from copyscope.base import paths
from copyscope.run.child import Child
from profiling import SLOW

CROWD = paths.OUTPUT / "tests" / "crowd"


class Crowd:
    """A running crowd.c with a known number of threads, processes or connections."""

    def __init__(self, work: str, count: int) -> None:
        self.process = subprocess.Popen(
            [str(CROWD), work, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self) -> None:
        """Let the program work."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def children(self, count: int) -> list[int]:
        """Wait until the program has `count` child processes, and return their pids."""
        listing = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        deadline = time.monotonic() + 20 * SLOW
        while len(pids := listing.read_text().split()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return [int(pid) for pid in pids]

    def add_children(self, collector: Child, count: int, pause_s: float = 0) -> None:
        """Add `count` children to the targets of the collector, with a pause after each."""
        for pid in self.children(count):
            collector.ask(f"target target {pid}", "target")
            time.sleep(pause_s)

    def number(self) -> int:
        """Read the number that the program prints before "done"."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def wait(self) -> None:
        """Wait until the program prints "done"."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"done\n", self.process.wait()

    def end(self) -> None:
        """Close the program's input, on which it exits."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(10 * SLOW)


@contextlib.contextmanager
def crowd(work: str, count: int) -> Iterator[Crowd]:
    program = Crowd(work, count)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()


@contextlib.contextmanager
def watching(pid: int, *options: str, under: Sequence[str] = ()) -> Iterator[Child]:
    """Yield a collector that watches the process `pid`, with the counters of `watch` attached.

    `under` is a command that starts the collector, such as prlimit(1) with its options.
    """
    collector = Child("collector", [*under, str(paths.COLLECTOR), "--watch", *options])
    try:
        collector.expect("ready", 30 * SLOW)
        collector.ask("open watch,volume", "opened", 30 * SLOW)
        collector.ask(f"target target {pid}", "target")
        yield collector
    finally:
        collector.end()


def report_of_timed_calls(work: str, count: int) -> dict[str, Any]:
    """Time every call of a crowd, and return the report of the collector."""
    with crowd(work, count) as program, watching(program.pid) as collector:
        collector.ask("open calls", "opened", 30 * SLOW)
        program.begin()
        program.wait()
        collector.ask("close", "closed", 30 * SLOW)
        return dict(collector.ask("report", "report"))
