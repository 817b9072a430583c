"""The program crowd.c, held until a test lets it go, and a collector that watches it."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.run.child import Child
from profiling import SLOW

CROWD = paths.OUTPUT / "tests" / "crowd"


class Crowd:
    """One crowd, whose number is known."""

    def __init__(self, what: str, count: int) -> None:
        self.process = subprocess.Popen(
            [str(CROWD), what, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def children(self, count: int) -> list[int]:
        """Its children, when so many are there."""
        listing = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        deadline = time.monotonic() + 20 * SLOW
        while len(pids := listing.read_text().split()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return [int(pid) for pid in pids]

    def name_all(self, collector: Child, count: int, pause_s: float = 0) -> None:
        """Tell the collector of its children, when so many are there; between two of them wait so long."""
        for pid in self.children(count):
            collector.ask(f"target target {pid}", "target")
            time.sleep(pause_s)

    def number(self) -> int:
        """A line of its own, before it is done."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def wait(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"done\n", self.process.wait()

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(10 * SLOW)


@contextlib.contextmanager
def crowd(what: str, count: int) -> Iterator[Crowd]:
    made = Crowd(what, count)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@contextlib.contextmanager
def watching(pid: int, *options: str, under: Sequence[str] = ()) -> Iterator[Child]:
    """A collector whose target is this process; the counters of `watch` are attached.

    `under`: the words of a program that becomes the collector, such as prlimit(1) with its options.
    """
    collector = Child("collector", [*under, str(paths.COLLECTOR), "--watch", *options])
    try:
        collector.expect("ready", 30 * SLOW)
        collector.ask("open watch,volume", "opened", 30 * SLOW)
        collector.ask(f"target target {pid}", "target")
        yield collector
    finally:
        collector.end()


def every_call_timed(what: str, count: int) -> dict[str, Any]:
    """The collector's report on a crowd's whole work."""
    with crowd(what, count) as made, watching(made.pid) as collector:
        collector.ask("open calls", "opened", 30 * SLOW)
        made.begin()
        made.wait()
        collector.ask("close", "closed", 30 * SLOW)
        return collector.ask("report", "report")
