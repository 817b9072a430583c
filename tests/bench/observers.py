"""Who watches: our instruments and what people would use instead, each switched on and off."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from copyscope.crosscheck.peer import Peer, Quantities, Watched, attached
from copyscope.errors import RunError
from copyscope.run.child import Child
from copyscope.run.counters import EVENTS, SENDER_EVENTS
from copyscope.run.perf_stat import PerfStat

# The default of copyscope run, and of profile.bt.
FREQUENCY = "199"
# What a run of copyscope run with its defaults gives its collector (tests/pure/test_bench.py).
COLLECTOR_OPTIONS = ("--frequency", FREQUENCY)
HERE = Path(__file__).resolve().parent
READY_S = 20.0
Observer = Callable[[], contextlib.AbstractContextManager[None]]


class ObserverError(Exception):
    """It cannot run here, or does not end: its name and what it said."""


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """What cannot run here says so in its row."""
    try:
        yield
    except RunError as error:
        raise ObserverError(str(error)) from error


def ours(collector: Child, instruments: str, counting: tuple[PerfStat, ...] = ()) -> Observer:
    """Instruments of the collector, and the perf counters that copyscope run reads beside them."""

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
    """The counters of both sides as copyscope run has them; off until they are switched on."""
    sides = ((sender, SENDER_EVENTS), (receiver, EVENTS))
    counting = tuple(exit_.enter_context(PerfStat(child.pid, events=events)) for child, events in sides)
    for perf in counting:
        perf.start()
    for perf in counting:
        perf.wait_ready()
    return counting


def bpftrace(script: str) -> Observer:
    return program(f"bpftrace {script}", ["bpftrace", str(HERE / script)])


class Tool(Peer):
    """A tool of others of which only the cost is wanted."""

    def __init__(self, name: str, argv: list[str]) -> None:
        self.name, self.program, self._argv = name, argv[0], argv

    def argv(self, _watched: Watched) -> list[str]:
        return self._argv

    def read(self, _watched: Watched, _output: str) -> Quantities:
        return {}


def program(name: str, argv: list[str]) -> Observer:
    """As crosscheck starts and ends it."""

    @contextlib.contextmanager
    def running() -> Iterator[None]:
        tool = Tool(name, argv)
        if (why := tool.missing()) is not None:
            raise ObserverError(why)
        with refusing(), attached(tool, {}):
            yield

    return running
