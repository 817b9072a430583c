"""A tool of others that watches the same traffic: started before a segment, ended after it, and read."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from copyscope.asking import SAID_MAX_BYTES, LimitError
from copyscope.errors import RunError
from copyscope.run.child import dies_with_us

# What runs a tool of others that needs tracefs where it is not mounted: in a mount namespace of its own,
# because it is not ours to mount. Old tools look for it in debugfs.
IN_TRACEFS = (
    *("unshare", "--mount", "sh", "-c"),
    "exec 3>&2 2>/dev/null; mount -t tracefs tracefs /sys/kernel/tracing;"
    'mount -t debugfs debugfs /sys/kernel/debug; exec 2>&3 3>&-; exec "$@"',
    "sh",
)
# A tool is attached when it has opened its events and opens no more for this long, or for so many times the
# longest that it took from one to the next.
QUIET_S = 0.25
QUIET_GAPS = 3
# Compiling a script and attaching kprobes takes half a minute on an emulated machine.
ATTACH_S = 90.0
END_S = 60.0

Quantities = dict[str, float]


@dataclass(frozen=True)
class Watched:
    """Whom a peer looks at: process ids by side; directory is its own, emptied afterwards."""

    pids: Mapping[str, int]
    directory: Path


class Peer:
    """One tool. A subclass says how it is started and what its output means."""

    name = ""
    program = ""
    # What a distribution calls it that has renamed it.
    renamed = ""
    package = ""
    # What must be there for it, and what it says where it is not.
    needs: tuple[Path, str] | None = None

    @property
    def found(self) -> str | None:
        """The program by the name that it has here; None where it is not installed."""
        names = [name for name in (self.program, self.renamed) if name]
        return next((name for name in names if shutil.which(name) is not None), None)

    def missing(self) -> str | None:
        """Why it cannot be used here at all, or None."""
        if self.found is None:
            return f"{self.program}: not installed: apt-get install {self.package}"
        return self.needs[1] if self.needs is not None and not self.needs[0].exists() else None

    def argv(self, watched: Watched) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def read(self, watched: Watched, output: str) -> Quantities:
        """Totals of the segment by quantity (compare.py), from what it printed and left in its directory."""
        raise NotImplementedError


@contextlib.contextmanager
def attached(peer: Peer, pids: Mapping[str, int]) -> Iterator[Quantities]:
    """Start it, wait until it is attached; end it with SIGINT and read it. Raises RunError in its words.

    What it counted is in the dictionary when it has ended.
    """
    made: Quantities = {}
    with (
        tempfile.TemporaryDirectory(prefix="copyscope-") as directory,
        tempfile.TemporaryFile("w+", errors="replace") as output,
    ):
        watched = Watched(pids, Path(directory))
        with _running(peer, watched, output) as tool:
            _wait_attached(peer, tool, output)
            yield made
            if tool.poll() is not None:
                raise RunError(f"{peer.name}: ended during its segment, status {tool.returncode}")
            tool.send_signal(signal.SIGINT)
            try:
                tool.wait(END_S)
            except subprocess.TimeoutExpired:
                raise RunError(f"{peer.name}: does not end on SIGINT") from None
        output.seek(0)
        try:
            made |= peer.read(watched, output.read(SAID_MAX_BYTES))
        except (OSError, ValueError, LimitError) as error:
            raise RunError(f"{peer.name}: its output cannot be read: {error}") from error


@contextlib.contextmanager
def _running(peer: Peer, watched: Watched, output: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    tool = subprocess.Popen(
        [*dies_with_us(), *IN_TRACEFS, *peer.argv(watched)],
        cwd=watched.directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        yield tool
    finally:
        if tool.poll() is None:
            tool.kill()
            tool.wait()


def _wait_attached(peer: Peer, tool: subprocess.Popen[bytes], output: IO[str]) -> None:
    deadline = time.monotonic() + ATTACH_S
    held, since, longest_s = 0, time.monotonic(), 0.0
    while time.monotonic() < deadline:
        if tool.poll() is not None:
            output.seek(0)
            said = [line for line in output.read(SAID_MAX_BYTES).splitlines() if line.strip()]
            raise RunError(f"{peer.name}: {said[-1] if said else f'ended with status {tool.returncode}'}")
        now = _events_held(tool.pid)
        quiet_s = time.monotonic() - since
        if now != held:
            longest_s = max(longest_s, quiet_s) if held else 0.0
            held, since = now, time.monotonic()
        elif held and quiet_s > max(QUIET_S, QUIET_GAPS * longest_s):
            return
        time.sleep(0.02)
    raise RunError(f"{peer.name}: opened no event within {ATTACH_S:.0f} s")


def _events_held(pid: int) -> int:
    """How many perf events and BPF links a process has open."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 (a process's files come and go)
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                count += "perf_event" in target or "bpf" in target
    return count
