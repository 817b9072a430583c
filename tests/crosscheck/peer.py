# SPDX-License-Identifier: GPL-2.0-only
"""Start a tool that observes the traffic, wait until it is attached, end it and read its counts."""

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

from copyscope.base.errors import RunError
from copyscope.base.programs import OUTPUT_MAX_BYTES, LimitError
from copyscope.run.child import dies_with_us

# Command prefix that mounts tracefs for a tool in a mount namespace of its own, because the host's mounts are
# not ours to change. Old tools look for tracefs in debugfs.
IN_TRACEFS = (
    *("unshare", "--mount", "sh", "-c"),
    "exec 3>&2 2>/dev/null; mount -t tracefs tracefs /sys/kernel/tracing;"
    'mount -t debugfs debugfs /sys/kernel/debug; exec 2>&3 3>&-; exec "$@"',
    "sh",
)
# A tool counts as attached once it has opened events and opens no more for QUIET_S, and for QUIET_GAPS times
# the longest time between two of them.
QUIET_S = 0.25
QUIET_GAPS = 3
# Compiling a script and attaching kprobes takes half a minute on an emulated machine.
ATTACH_S = 90.0
END_S = 60.0

Quantities = dict[str, float]


@dataclass(frozen=True)
class Watched:
    """Process ids of both sides, and a temporary directory for the files of one tool."""

    pids: Mapping[str, int]
    directory: Path


class Peer:
    """One tool. A subclass defines its command line and parses its output."""

    name = ""
    program = ""
    # Name of the program in distributions that have renamed it.
    renamed = ""
    package = ""
    # A path that must exist for the tool to work, and the reason to give if it does not.
    needs: tuple[Path, str] | None = None

    @property
    def installed(self) -> str | None:
        """Name or path of the installed program, or None."""
        names = [name for name in (self.program, self.renamed) if name]
        return next((name for name in names if shutil.which(name) is not None), None)

    def missing(self) -> str | None:
        """Return why the tool cannot run on this machine, or None."""
        if self.installed is None:
            return f"{self.program}: not installed: apt-get install {self.package}"
        return self.needs[1] if self.needs is not None and not self.needs[0].exists() else None

    def argv(self, watched: Watched) -> list[str]:
        """Return the command line."""
        raise NotImplementedError

    def read(self, watched: Watched, output: str) -> Quantities:
        """Return the totals of a segment by quantity (agreement.KINDS), from the tool's output and files."""
        raise NotImplementedError


@contextlib.contextmanager
def attached(peer: Peer, pids: Mapping[str, int]) -> Iterator[Quantities]:
    """Run a tool during the block, and end it with SIGINT. Raises RunError with the tool's own message.

    The yielded dictionary has the tool's counts once the block is left.
    """
    counts: Quantities = {}
    with (
        tempfile.TemporaryDirectory(prefix="copyscope-") as directory,
        tempfile.TemporaryFile("w+", errors="replace") as output,
    ):
        watched = Watched(pids, Path(directory))
        with _running(peer, watched, output) as tool:
            _wait_attached(peer, tool, output)
            yield counts
            if tool.poll() is not None:
                raise RunError(f"{peer.name}: ended during its segment, status {tool.returncode}")
            tool.send_signal(signal.SIGINT)
            try:
                tool.wait(END_S)
            except subprocess.TimeoutExpired:
                raise RunError(f"{peer.name}: does not end on SIGINT") from None
        output.seek(0)
        try:
            counts |= peer.read(watched, output.read(OUTPUT_MAX_BYTES))
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
            lines = [line for line in output.read(OUTPUT_MAX_BYTES).splitlines() if line.strip()]
            raise RunError(f"{peer.name}: {lines[-1] if lines else f'ended with status {tool.returncode}'}")
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
    """Return how many perf events and BPF objects a process has open."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 (file descriptors come and go)
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                count += "perf_event" in target or "bpf" in target
    return count
