"""Who watches: our instruments and what people would use instead, each switched on and off."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT

from copyscope.crosscheck.peer import IN_TRACEFS
from copyscope.errors import RunError
from copyscope.run.child import Child
from copyscope.run.counters import EVENTS, SENDER_EVENTS
from copyscope.run.perf_stat import PerfStat

# The default of tools/profile.py, and of profile.bt.
FREQUENCY = "199"
HERE = Path(__file__).resolve().parent
# perf says nothing when it has attached; it takes a quarter of this.
PERF_START_S = 0.5
READY_S = 20.0
END_S = 10.0
Observer = Callable[[], contextlib.AbstractContextManager[None]]


class ObserverError(Exception):
    """It cannot run here, or does not end: its name and what it said."""


def ours(collector: Child, instruments: str, counting: tuple[PerfStat, ...] = ()) -> Observer:
    """Instruments of the collector, and the perf counters that tools/profile.py reads beside them."""

    @contextlib.contextmanager
    def attached() -> Iterator[None]:
        try:
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
        except RunError as error:
            raise ObserverError(str(error)) from error

    return attached


def perf_stat(sender: Child, receiver: Child, exit_: contextlib.ExitStack) -> tuple[PerfStat, ...]:
    """The counters of both sides as tools/profile.py has them; off until they are switched on."""
    sides = ((sender, SENDER_EVENTS), (receiver, EVENTS))
    counting = tuple(exit_.enter_context(PerfStat(child.pid, events=events)) for child, events in sides)
    for perf in counting:
        perf.start()
    for perf in counting:
        perf.wait_ready()
    return counting


def bpftrace(script: str) -> Observer:
    # BEGIN runs when the first probe is attached; the others follow within a millisecond or two.
    return program(f"bpftrace {script}", [*IN_TRACEFS, "bpftrace", str(HERE / script)], "attached")


def program(name: str, argv: list[str], ready: str | None = None) -> Observer:
    """A tool of others; `ready`: what it prints when it is attached. What ignores SIGINT is killed."""

    @contextlib.contextmanager
    def attached() -> Iterator[None]:
        with tempfile.TemporaryDirectory() as scratch:
            # A file: whoever prints a lot must not wait for a reader.
            said = Path(scratch) / "said"
            with said.open("wb", 0) as out:
                tool = subprocess.Popen(argv, cwd=scratch, stdout=out, stderr=out, process_group=0)
            try:
                _wait_attached(tool, said, ready)
                yield
                _end(tool)
            except ObserverError as error:
                last = said.read_text(errors="replace").strip().splitlines()[-1:]
                raise ObserverError(": ".join([name, str(error), *last])) from None
            finally:
                if tool.poll() is None:
                    tool.kill()
                    tool.wait()

    return attached


def _wait_attached(tool: subprocess.Popen[bytes], said: Path, ready: str | None) -> None:
    until = time.monotonic() + (READY_S if ready else PERF_START_S)
    while not (ready and ready in said.read_text(errors="replace")):
        if tool.poll() is not None:
            raise ObserverError(f"ended before it was attached, status {tool.returncode}")
        if time.monotonic() > until:
            if ready is None:
                return
            raise ObserverError(f"not attached after {READY_S:.0f} s")
        time.sleep(0.01)


def _end(tool: subprocess.Popen[bytes]) -> None:
    if tool.poll() is not None:
        raise ObserverError(f"ended while it should observe, status {tool.returncode}")
    tool.send_signal(SIGINT)
    try:
        tool.wait(END_S)
    except subprocess.TimeoutExpired:
        raise ObserverError(f"does not end within {END_S:.0f} s after SIGINT") from None
