# SPDX-License-Identifier: GPL-2.0-only
"""Count processes' events with `perf stat` between enable() and disable().

    counting = PerfStat(pid)
    counting.start()
    counting.wait_ready()
    counting.enable(); ...; counting.disable()
    counters = counting.finish()

If perf is missing or not permitted, no exception is raised: `failure` has the reason, and finish() returns
every counter as unsupported for that reason. perf is killed when the thread that called start() ends, so call
start() in a thread that lives as long as the run.
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

from copyscope.base.programs import OUTPUT_MAX_BYTES
from copyscope.machine.processors import ROOT, bracketed_choice, read_cpuinfo, read_text
from copyscope.run import processes
from copyscope.run.counters import (
    EVENTS,
    CounterEvent,
    CounterRow,
    adapt_to_processor,
    all_unsupported,
    combine,
    parse,
    unsupported,
)

FORMATS = (("-j",), ("-x", ","))  # options of output formats: JSON first; perf before 6.0 has only `-x ,`
# Paths of Ubuntu's builds of perf. /usr/bin/perf is a script that runs only the build of the running kernel,
# which custom and cloud kernels lack. Each build works on every kernel.
UBUNTU_BUILDS = ("/usr/lib/linux-tools/*/perf", "/usr/lib/linux-tools-*/perf")
TRACEFS = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))
READY_TIMEOUT_S = 10.0
ACK_TIMEOUT_S = 2.0
FINISH_TIMEOUT_S = 5.0  # perf checks its signal flag at least once a second

# Capabilities of root that perf keeps, by number because some versions of setpriv do not know the new names
# (linux/capability.h): CAP_PERFMON to count another process, CAP_SYS_RESOURCE to open the events of many
# threads. Some distributions require CAP_SYS_ADMIN for any event.
CAPABILITIES = "-all,+cap_38,+cap_24"
CAPABILITY_SETS = (CAPABILITIES, f"{CAPABILITIES},+cap_21")

NOT_PERMITTED = r"perf_event_paranoid|No permission to enable|Operation not permitted|Permission denied"
# Failure of perf if the process exits before perf counts it
PROCESS_ENDED = "perf: the process had ended before counting began"
# Pairs (pattern of a message of perf, our message). The first match wins.
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
    (r"No such process|finding threads of monitor|Couldn't (?:create|open) thread", PROCESS_ENDED),
)


def explain_failure(stderr: str) -> str:
    """Return the reason why perf does not run, condensed from its stderr to one line."""
    for pattern, meaning in FAILURES:
        if re.search(pattern, stderr):
            return meaning
    text = " ".join(stderr.split())
    return f"perf: {text[:200]}" if text else "perf: ended without a message"


def find_ubuntu_build() -> str | None:
    """Return the path of the newest perf that Ubuntu built for another kernel, or None."""
    builds = [path for pattern in UBUNTU_BUILDS for path in Path("/").glob(pattern.lstrip("/"))]
    usable = [path for path in builds if os.access(path, os.X_OK)]
    return str(max(usable, key=lambda path: path.stat().st_mtime)) if usable else None


def why_no_tracepoint(name: str) -> str | None:
    """Return the reason why perf cannot count a tracepoint, or None. Only root can read a tracepoint's id."""
    for tracefs in TRACEFS:
        try:
            (tracefs / name.replace(":", "/") / "id").read_bytes()
            return None
        except FileNotFoundError:
            continue
        except OSError as error:
            locked = bracketed_choice(read_text(ROOT, "sys/kernel/security/lockdown"))
            why = f"lockdown={locked}" if locked == "confidentiality" else "run as root"
            return f"tracepoint {name}: {tracefs}: {error.strerror}: {why}"
    if any(tracefs.exists() for tracefs in TRACEFS):
        return f"this kernel has no tracepoint {name}"
    if "tracefs" not in (read_text(ROOT, "proc/filesystems") or "").split():
        return f"tracepoint {name}: this kernel has no tracefs (CONFIG_TRACING)"
    return f"tracepoint {name}: tracefs is not mounted: mount -t tracefs tracefs /sys/kernel/tracing"


class PerfStat:
    """A `perf stat` that counts processes, their threads, and later threads and children."""

    def __init__(self, *pids: int, events: Sequence[CounterEvent] = EVENTS) -> None:
        """Choose events for this processor. start() starts perf for the processes `pids`."""
        self.pids = pids
        self.events = adapt_to_processor(events, read_cpuinfo(ROOT))
        # Reason why perf does not count, or None.
        self.failure: str | None = None
        # Options and capabilities to try, the best first.
        self._formats, self._capabilities = list(FORMATS), list(CAPABILITY_SETS)
        self._perf = "perf"
        self._process: subprocess.Popen[bytes] | None = None
        self._control = self._ack = -1
        self._counts: IO[bytes] | None = None
        self._messages: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Pid of perf; None if perf does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start perf with counting off. Return at once, so that several perfs can start in parallel."""
        missing = [program for program in ("setpriv", "perf") if shutil.which(program) is None]
        if missing:
            self.failure = f"{missing[0]}: not installed: run tools/deps.sh run"
            return
        self._spawn()

    def wait_ready(self) -> None:
        """Wait until perf has opened its counters. If perf fails, retry with fallbacks."""
        while self.failure is None and not self._send("disable", READY_TIMEOUT_S):
            text = self._stop()
            ubuntu_build = find_ubuntu_build() if "perf not found for kernel" in text else None
            if ubuntu_build is not None and ubuntu_build != self._perf:
                self._perf = ubuntu_build
                self._spawn()
            elif len(self._formats) > 1 and re.search(r"unknown (switch|option) `(j|json)", text):
                self._formats.pop(0)
                self._spawn()
            elif len(self._capabilities) > 1 and re.search(NOT_PERMITTED, text):
                self._capabilities.pop(0)
                self._spawn()
            else:
                self.failure = explain_failure(text)

    def enable(self) -> None:
        """Switch counting on. Return once perf is counting."""
        self._switch("enable")

    def disable(self) -> None:
        """Switch counting off. Return once perf has stopped counting."""
        self._switch("disable")

    def finish(self) -> dict[str, CounterRow]:
        """Stop perf and return a map from event names to counters."""
        if self.failure is not None or self._process is None:
            return all_unsupported(self.failure or "perf: was not started", self.events)
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(FINISH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.failure = f"perf: did not answer SIGINT within {FINISH_TIMEOUT_S:.0f} s"
        assert self._counts is not None
        self._counts.seek(0)
        readings = parse(self._counts.read(OUTPUT_MAX_BYTES).decode("utf-8", "replace"))
        messages = self._stop()
        if not readings and self.failure is None:
            self.failure = explain_failure(messages)
        if self.failure is not None:
            return all_unsupported(self.failure, self.events)
        counters = combine(readings, self.events)
        return counters | {
            event.name: unsupported(event, why) for event, why in self._missing_tracepoints().items()
        }

    def _missing_tracepoints(self) -> dict[CounterEvent, str]:
        """Map each event whose tracepoint is missing to the reason. perf would fail on such an event."""
        reasons = {event: why_no_tracepoint(event.tracepoint) for event in self.events if event.tracepoint}
        return {event: why for event, why in reasons.items() if why is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End perf without reading its counters. This is safe at any time."""
        self._stop()

    def _spawn(self) -> None:
        """Start perf with the chosen output format, capabilities and binary. An error sets `failure`."""
        control_read, self._control = os.pipe()
        self._ack, ack_write = os.pipe()
        # Use files instead of pipes, because perf prints a line per enable and disable and must never block.
        self._counts = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _stop())
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _stop())
        log = self._counts.fileno()
        argv = ["setpriv", "--pdeathsig", "KILL", "--inh-caps=-all"]
        # Only root can drop capabilities from the bounding set. For a user, setpriv would fail.
        argv += [f"--bounding-set={self._capabilities[0]}"] if os.geteuid() == 0 else []
        argv += ["--no-new-privs", "--", self._perf, "stat", *self._formats[0], "--no-scale"]
        argv += ["-D", "-1", "--control", f"fd:{control_read},{ack_write}", "--log-fd", str(log)]
        # Use one -e for each event, not a group: an unsupported event must not disable the other events.
        missing = self._missing_tracepoints()
        for event in self.events:
            if event in missing:
                continue
            argv += ["-e", event.perf_name]
            argv += ["--filter", event.filter] if event.filter else []
        try:
            self._process = subprocess.Popen(
                [*argv, "-p", ",".join(map(str, self.pids))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                pass_fds=(control_read, ack_write, log),
                env={**os.environ, "LC_ALL": "C"},  # perf's numbers follow the locale
                process_group=0,  # Ctrl-C must not reach perf, because we still need its counts
            )
        except OSError as error:
            self.failure = f"setpriv: {error.strerror}: run tools/deps.sh run"
        finally:
            os.close(control_read)
            os.close(ack_write)

    def _switch(self, command: str) -> None:
        """Send `enable` or `disable`. If perf exited along with its last process, its counts are complete."""
        if self.failure is not None or self._send(command, ACK_TIMEOUT_S):
            return
        if any(map(processes.is_alive, self.pids)):
            self.failure = f"perf: did not acknowledge {command!r}: {explain_failure(self._stop())}"

    def _send(self, command: str, timeout_s: float) -> bool:
        """Send a control command and wait for its `ack`. Return False if perf has ended or is silent."""
        deadline = time.monotonic() + timeout_s
        reply, chunk = b"", b"-"
        try:
            os.write(self._control, command.encode() + b"\n")
            while chunk and b"ack\n" not in reply:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not select.select([self._ack], [], [], left_s)[0]:
                    return False
                chunk = os.read(self._ack, 64)  # perf sends the terminating NUL of "ack\n" too
                reply += chunk
        except OSError:  # EPIPE: perf has ended
            return False
        return b"ack\n" in reply

    def _stop(self) -> str:
        """End perf, with SIGKILL if necessary, close its files, and return its messages."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None
        for fd in (self._control, self._ack):
            if fd >= 0:
                os.close(fd)
        self._control = self._ack = -1
        text = ""
        if self._messages is not None:
            self._messages.seek(0)
            text = self._messages.read(OUTPUT_MAX_BYTES).decode("utf-8", "replace")
            self._messages.close()
        if self._counts is not None:
            self._counts.seek(0)
            text = text or self._counts.read(OUTPUT_MAX_BYTES).decode("utf-8", "replace")
            self._counts.close()
        self._messages = self._counts = None
        return text
