"""One `perf stat` beside one process, counting only between enable() and disable().

    counting = PerfStat(pid)
    counting.start()
    counting.wait_ready()
    counting.enable(); ...; counting.disable()
    counters = counting.finish()

Nothing here raises because perf is missing or refused: `failure` says why, and finish() then returns every
counter as unsupported with that reason. perf gets the parent-death signal, so start() belongs in the thread
that lives as long as the run.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from copyscope.asking import SAID_MAX_BYTES
from copyscope.machine.cpu import read_cpuinfo
from copyscope.machine.files import ROOT, chosen, read_text
from copyscope.run import processes
from copyscope.run.counters import (
    EVENTS,
    Counter,
    Event,
    all_unsupported,
    combine,
    of_processor,
    parse,
    unsupported,
)

FORMATS = (("-j",), ("-x", ","))  # JSON first; perf before 6.0 knows only the second
# Where Ubuntu keeps perf, per kernel; its /usr/bin/perf is a script that insists on the running kernel's own,
# which custom and cloud kernels do not have. Each of them works on every kernel.
OTHER_BUILDS = ("/usr/lib/linux-tools/*/perf", "/usr/lib/linux-tools-*/perf")
TRACEFS = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))
READY_TIMEOUT_S = 10.0
ACK_TIMEOUT_S = 2.0
FINISH_TIMEOUT_S = 5.0  # perf looks at its signal flag at least once a second

# What perf has of root's capabilities, by their numbers in linux/capability.h (not every setpriv knows the
# newer names): CAP_PERFMON to count another process, CAP_SYS_RESOURCE to hold all events of many threads.
# Some distributions want CAP_SYS_ADMIN for any event.
LEAST = "-all,+cap_38,+cap_24"
RIGHTS = (LEAST, f"{LEAST},+cap_21")

NOT_PERMITTED = r"perf_event_paranoid|No permission to enable|Operation not permitted|Permission denied"
# perf's own words -> what they mean here. The first that matches wins.
FAILURES = (
    (r"perf not found for kernel", "perf: no build for this kernel: install linux-tools-$(uname -r)"),
    (r"failed to execute perf|perf: not found", "perf: not installed: install perf (tools/deps.sh run)"),
    (
        r"unknown (?:option|switch) `control",
        "perf: too old, it has no --control (Linux 5.9): install a newer perf",
    ),
    (
        NOT_PERMITTED,
        "perf: not permitted (perf_event_paranoid or a container's seccomp profile): run as root on the host",
    ),
    (
        r"No such process|finding threads of monitor|Couldn't (?:create|open) thread",
        "perf: the process had ended before counting began",
    ),
)


def explain_failure(stderr: str) -> str:
    """One line out of perf's many when it does not run."""
    for pattern, meaning in FAILURES:
        if re.search(pattern, stderr):
            return meaning
    words = " ".join(stderr.split())
    return f"perf: {words[:200]}" if words else "perf: ended without a message"


def find_other_build() -> str | None:
    """The newest perf that Ubuntu has for another kernel; None when there is none."""
    builds = [path for pattern in OTHER_BUILDS for path in Path("/").glob(pattern.lstrip("/"))]
    usable = [path for path in builds if os.access(path, os.X_OK)]
    return str(max(usable, key=lambda path: path.stat().st_mtime)) if usable else None


def why_no_tracepoint(name: str) -> str | None:
    """Why perf cannot count it; None where it can: perf reads its number, too (root)."""
    for tracefs in TRACEFS:
        try:
            (tracefs / name.replace(":", "/") / "id").read_bytes()
            return None
        except FileNotFoundError:
            continue
        except OSError as error:
            locked = chosen(read_text(ROOT, "sys/kernel/security/lockdown"))
            why = f"lockdown={locked}" if locked == "confidentiality" else "run as root"
            return f"tracepoint {name}: {tracefs}: {error.strerror}: {why}"
    if any(tracefs.exists() for tracefs in TRACEFS):
        return f"this kernel has no tracepoint {name}"
    if "tracefs" not in (read_text(ROOT, "proc/filesystems") or "").split():
        return f"tracepoint {name}: this kernel has no tracefs (CONFIG_TRACING)"
    return f"tracepoint {name}: tracefs is not mounted: mount -t tracefs tracefs /sys/kernel/tracing"


class PerfStat:
    """perf stat on existing processes: all their threads, and the threads and children that they start."""

    def __init__(self, *pids: int, events: Sequence[Event] = EVENTS) -> None:
        self.pids = pids
        self.events = of_processor(events, read_cpuinfo(ROOT))
        self.failure: str | None = None
        self._formats, self._rights = list(FORMATS), list(RIGHTS)
        self._perf = "perf"
        self._process: subprocess.Popen[bytes] | None = None
        self._control = self._ack = -1
        self._counts: IO[bytes] | None = None
        self._messages: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """perf's process; None when it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start perf with counting off, without waiting for it (several are started at the same time)."""
        missing = [program for program in ("setpriv", "perf") if shutil.which(program) is None]
        if missing:
            self.failure = f"{missing[0]}: not installed: run tools/deps.sh run"
            return
        self._spawn()

    def wait_ready(self) -> None:
        """Block until perf has opened its counters."""
        while self.failure is None and not self._send("disable", READY_TIMEOUT_S):
            text = self._stop()
            other = find_other_build() if "perf not found for kernel" in text else None
            if other is not None and other != self._perf:
                self._perf = other
                self._spawn()
            elif len(self._formats) > 1 and re.search(r"unknown (switch|option) `(j|json)", text):
                self._formats.pop(0)
                self._spawn()
            elif len(self._rights) > 1 and re.search(NOT_PERMITTED, text):
                self._rights.pop(0)
                self._spawn()
            else:
                self.failure = explain_failure(text)

    def enable(self) -> None:
        """Switch counting on; when this returns it is on."""
        self._switch("enable")

    def disable(self) -> None:
        """Switch counting off; when this returns it is off."""
        self._switch("disable")

    def finish(self) -> dict[str, Counter]:
        """Stop perf and read the counters (event name -> counter)."""
        if self.failure is not None or self._process is None:
            return all_unsupported(self.failure or "perf: was not started", self.events)
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(FINISH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.failure = f"perf: did not answer SIGINT within {FINISH_TIMEOUT_S:.0f} s"
        assert self._counts is not None
        self._counts.seek(0)
        readings = parse(self._counts.read(SAID_MAX_BYTES).decode("utf-8", "replace"))
        messages = self._stop()
        if not readings and self.failure is None:
            self.failure = explain_failure(messages)
        if self.failure is not None:
            return all_unsupported(self.failure, self.events)
        counters = combine(readings, self.events)
        return counters | {event.name: unsupported(event, why) for event, why in self._absent().items()}

    def _absent(self) -> dict[Event, str]:
        """Events whose tracepoint is not there, and why: perf would refuse to start for one of them."""
        found = {event: why_no_tracepoint(event.tracepoint) for event in self.events if event.tracepoint}
        return {event: why for event, why in found.items() if why is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End perf without reading it; safe at any time."""
        self._stop()

    def _spawn(self) -> None:
        control_read, self._control = os.pipe()
        self._ack, ack_write = os.pipe()
        # Files and not pipes: perf says a line per enable and disable, and must never wait for a reader.
        self._counts = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _stop()
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _stop()
        log = self._counts.fileno()
        argv = ["setpriv", "--pdeathsig", "KILL", "--inh-caps=-all"]
        # Of rights to lose only root has some: a user's setpriv would be refused.
        argv += [f"--bounding-set={self._rights[0]}"] if os.geteuid() == 0 else []
        argv += ["--no-new-privs", "--", self._perf, "stat", *self._formats[0], "--no-scale"]
        argv += ["-D", "-1", "--control", f"fd:{control_read},{ack_write}", "--log-fd", str(log)]
        # One -e each, never a group: an event that this machine lacks must not take the others with it.
        absent = self._absent()
        for event in self.events:
            if event in absent:
                continue
            argv += ["-e", event.asked]
            argv += ["--filter", event.only] if event.only else []
        try:
            self._process = subprocess.Popen(
                [*argv, "-p", ",".join(map(str, self.pids))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                pass_fds=(control_read, ack_write, log),
                env={**os.environ, "LC_ALL": "C"},  # perf's numbers follow the locale
                process_group=0,  # Ctrl-C is for us: perf must still be able to answer
            )
        except OSError as error:
            self.failure = f"setpriv: {error.strerror}: run tools/deps.sh run"
        finally:
            os.close(control_read)
            os.close(ack_write)

    def _switch(self, command: str) -> None:
        """perf ends when the last of its processes has: then it has counted all."""
        if self.failure is not None or self._send(command, ACK_TIMEOUT_S):
            return
        if any(map(processes.is_alive, self.pids)):
            self.failure = f"perf: did not acknowledge {command!r}: {explain_failure(self._stop())}"

    def _send(self, command: str, timeout_s: float) -> bool:
        """Send one control command and wait for its `ack`; False when perf has ended or stays silent."""
        deadline = time.monotonic() + timeout_s
        answer, chunk = b"", b"-"
        try:
            os.write(self._control, command.encode() + b"\n")
            while chunk and b"ack\n" not in answer:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not select.select([self._ack], [], [], left_s)[0]:
                    return False
                chunk = os.read(self._ack, 64)  # perf sends the terminating NUL of "ack\n" too
                answer += chunk
        except OSError:  # EPIPE: perf has ended
            return False
        return b"ack\n" in answer

    def _stop(self) -> str:
        """End perf, by force if it still runs, release everything, and return what it said on stderr."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None
        for descriptor in (self._control, self._ack):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._ack = -1
        said = ""
        if self._messages is not None:
            self._messages.seek(0)
            said = self._messages.read(SAID_MAX_BYTES).decode("utf-8", "replace")
            self._messages.close()
        if self._counts is not None:
            self._counts.seek(0)
            said = said or self._counts.read(SAID_MAX_BYTES).decode("utf-8", "replace")
            self._counts.close()
        self._messages = self._counts = None
        return said
