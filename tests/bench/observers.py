# SPDX-License-Identifier: GPL-2.0-only
"""Observers of the traffic: our instruments and other tools, each switched on and off."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from copyscope.base.errors import RunError
from copyscope.run.child import Child
from copyscope.run.counters import EVENTS, SENDER_EVENTS
from copyscope.run.perf_stat import PerfStat
from peer import Peer, Quantities, Watched, attached

# Default sampling frequency of copyscope run and of profile.bt.
FREQUENCY = "199"
# Options of the collector in a default copyscope run (tests/pure/test_bench.py).
COLLECTOR_OPTIONS = ("--frequency", FREQUENCY)
HERE = Path(__file__).resolve().parent
READY_S = 20.0
Observer = Callable[[], contextlib.AbstractContextManager[None]]


class ObserverError(Exception):
    """A tool cannot run here or does not end. The text has its name and its error."""


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn an error of a tool that cannot run here into an ObserverError, for its row."""
    try:
        yield
    except RunError as error:
        raise ObserverError(str(error)) from error


def ours(collector: Child, instruments: str, counting: tuple[PerfStat, ...] = ()) -> Observer:
    """Return an observer: instruments of the collector, and the perf counters of copyscope run."""

    @contextlib.contextmanager
    def running() -> Iterator[None]:
        with refusing():
            if instruments:
                collector.ask(f"open {instruments}", "opened", READY_S)
            for perf in counting:
                perf.enable()
            yield
            for perf in counting:
                perf.disable()
                if perf.failure:
                    raise ObserverError(perf.failure)
            if instruments:
                collector.ask("close", "closed", READY_S)

    return running


def perf_stat(sender: Child, receiver: Child, exit_: contextlib.ExitStack) -> tuple[PerfStat, ...]:
    """Return the perf counters of sender and receiver as in copyscope run, switched off."""
    sides = ((sender, SENDER_EVENTS), (receiver, EVENTS))
    counting = tuple(exit_.enter_context(PerfStat(child.pid, events=events)) for child, events in sides)
    for perf in counting:
        perf.start()
    for perf in counting:
        perf.wait_ready()
    return counting


def bpftrace(script: str) -> Observer:
    """Return an observer that runs a script of this directory."""
    return program(f"bpftrace {script}", ["bpftrace", str(HERE / script)])


class Tool(Peer):
    """Another tool, run only to measure its cost."""

    def __init__(self, name: str, argv: list[str]) -> None:
        self.name, self.program, self._argv = name, argv[0], argv

    def argv(self, _watched: Watched) -> list[str]:
        return self._argv

    def read(self, _watched: Watched, _output: str) -> Quantities:
        return {}


def program(name: str, argv: list[str]) -> Observer:
    """Return an observer that starts and ends a tool as make crosscheck does."""

    @contextlib.contextmanager
    def running() -> Iterator[None]:
        tool = Tool(name, argv)
        if (reason := tool.missing()) is not None:
            raise ObserverError(reason)
        with refusing(), attached(tool, {}):
            yield

    return running
