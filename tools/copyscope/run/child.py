# SPDX-License-Identifier: GPL-2.0-only
"""Drive child programs that read commands from stdin, one per line, and answer on stdout in JSON lines.

A child runs as long as copyscope holds the child's stdin open. When copyscope dies, even by SIGKILL, the
child reads end of file and exits. Collectors drives the collectors on two hosts like a single program.
"""

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from copyscope.base.errors import RunError, UsageError, add_memory_advice, why_not_executed, why_not_started
from copyscope.base.spelling import StderrReader
from copyscope.machine.topology import Side
from copyscope.record.messages import CollectorReport, join_answers, join_reports

ANSWER_TIMEOUT_S = 10.0
# Seconds that a child gets to exit after its stdin was closed, before it is killed.
EXIT_TIMEOUT_S = 1.0
# Maximum number of bytes of an answer. A report with 262,144 sockets and all stacks of full BPF maps has a
# tenth of this size.
ANSWER_MAX_BYTES = 256 << 20
# Bytes of a read: the capacity of a pipe (pipe(7)). A larger buffer would be allocated anew for each read.
READ_BYTES = 1 << 16
# Interval in seconds between checks whether a child is stopped (SIGSTOP) and cannot answer, and number of
# consecutive checks after which copyscope gives up.
CHECK_STOPPED_S = 1.0
STOPPED_CHECKS = 2
# Exit status of ssh(1) if ssh fails, and also if a signal killed the remote program.
SSH_FAILED = 255


class Program(Protocol):
    """A child program, or several child programs that are driven like a single program (Collectors)."""

    @property
    def pid(self) -> int: ...

    def fileno(self) -> int: ...

    def send(self, line: str, event: str | None = None) -> None: ...

    def expect(self, event: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Mapping[str, Any]: ...

    def ask(self, line: str, event: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Mapping[str, Any]: ...

    def end(self) -> None: ...


class RemoteMachine(Protocol):
    """Another machine that runs a child. The local process is then an ssh client."""

    name: str
    environment: dict[str, str] | None

    def why_gone(self) -> str | None: ...


class Child:
    """A running child program. end() may be called at any time, so this is no context manager."""

    def __init__(self, name: str, argv: Sequence[str], at: RemoteMachine | None = None) -> None:
        """Start a child. Raises RunError.

        `name`: name of the child in results. `argv`: local command. `at`: remote machine on which
        `argv` runs the child, or None for this machine.
        """
        self.name = name
        self._at = at
        # Name of the child in error messages.
        self._label = name if at is None else f"{name} on {at.name}"
        self._pending = bytearray()
        # Names of requested answers that were not read: an interrupted caller leaves its answer in the pipe.
        self._unread: list[str] = []
        self._gave_up = False
        try:
            # The child gets a session of its own, so that Ctrl-C reaches only us, and we end the child in
            # order.
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
                env=None if at is None else at.environment,
            )
        except OSError as error:
            raise RunError(f"{name}: {why_not_started(argv[0], error)}") from error
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout
        self._stderr = StderrReader(self.process.stderr)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_message(self) -> bool:
        """True if our buffer already holds a complete message. select() does not report such a message."""
        return b"\n" in self._pending

    def fileno(self) -> int:
        return self._stdout.fileno()

    def send(self, line: str, event: str | None = None) -> None:
        """Send a command. `event`: name of the answer, which the caller reads later with expect()."""
        if event is not None:
            self._unread.append(event)
        try:
            self._stdin.write(line.encode() + b"\n")
        except OSError:
            self._fail(time.monotonic() + 1.0)

    def ask(
        self, line: str, event: str, timeout_s: float = ANSWER_TIMEOUT_S, *, needs: Sequence["Child"] = ()
    ) -> Mapping[str, Any]:
        """Send a command and return its answer, named `event`. The parameters are those of expect()."""
        self.send(line, event)
        return self.expect(event, timeout_s, needs=needs)

    def expect(
        self, event: str, timeout_s: float = ANSWER_TIMEOUT_S, *, needs: Sequence["Child"] = ()
    ) -> Mapping[str, Any]:
        """Return the next message, which must have the name `event`. Raises RunError for an error message.

        Late answers to interrupted requests are skipped. `needs`: other children that must not be stopped,
        because this child could not answer without them.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._read(deadline, (self, *needs))
            name = message["event"]
            late = name in self._unread
            if late:
                self._unread.remove(name)
            if name == event:
                return message
            if name == "error":
                raise RunError(add_memory_advice(f"{self._label}: {message['message']}"))
            if name != "finished" and not late:  # a program with a fixed count may finish at any moment
                raise RunError(f"{self._label}: unexpected answer {name!r} instead of {event!r}")

    def _read(self, deadline: float, needed: Sequence["Child"]) -> Mapping[str, Any]:
        """Return the next message of the child. Raises RunError after the deadline, or for invalid JSON.

        `needed`: children that must not be stopped meanwhile, including this child.
        """
        # A child that was given up and is still stopped gets no second wait.
        stopped_checks = STOPPED_CHECKS - 1 if self._gave_up and self.is_stopped() else 0
        complete = self.has_message
        while not complete:
            left_s = deadline - time.monotonic()
            wait_s = CHECK_STOPPED_S if stopped_checks < STOPPED_CHECKS - 1 or not self._gave_up else 0.0
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, min(left_s, wait_s)))
            if not ready:
                stopped = [child for child in needed if child.is_stopped()]
                stopped_checks = stopped_checks + 1 if stopped else 0
                if stopped_checks >= STOPPED_CHECKS:
                    stopped[0].give_up()
                if left_s <= 0:
                    lines = self._stderr.lines() or ["the program is still running"]
                    raise RunError(f"{self._label}: no answer in time: {lines[-1]}")
                continue
            chunk = os.read(self._stdout.fileno(), READ_BYTES)
            if not chunk:
                self._fail(deadline)
            self._pending += chunk
            complete = b"\n" in chunk
            if len(self._pending) > ANSWER_MAX_BYTES:
                raise RunError(f"{self._label}: the answer is longer than {ANSWER_MAX_BYTES >> 20} MiB")
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("event"), str):
            raise RunError(f"{self._label}: unreadable answer (expected JSON): {bytes(line[:60])!r}")
        return message

    def give_up(self) -> NoReturn:
        """Raise RunError because the child is stopped. Later calls do not wait for this child again."""
        self._gave_up = True
        raise RunError(f"{self._label}: no answer: process {self.pid} is stopped (SIGSTOP)")

    def is_stopped(self) -> bool:
        try:
            # proc_pid_stat(5): the state follows the name, which may contain any character.
            return Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
        except OSError:
            return False

    def _fail(self, deadline: float) -> None:
        """Raise RunError or UsageError that says how the child ended, with a line of its stderr."""
        try:
            status = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = None
        machine_error = None if self._at is None else self._at.why_gone()
        if machine_error is not None:
            raise RunError(machine_error)
        stderr_lines = self._stderr.lines()
        if status == 2 and stderr_lines:
            raise UsageError(stderr_lines[0] if self._at is None else f"{self._label}: {stderr_lines[0]}")
        if stderr_lines and (exec_error := why_not_executed(stderr_lines[-1])) is not None:
            raise RunError(f"{self._label}: {exec_error}")
        ending = "closed its output" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            ending = f"was killed by {signal.Signals(-status).name}"
        if status == SSH_FAILED and self._at is not None:
            ending = "was killed on that machine: read the system log there, and repeat the run"
        raise RunError(
            add_memory_advice(f"{self._label}: {ending}" + (f": {stderr_lines[-1]}" if stderr_lines else ""))
        )

    def end(self) -> None:
        """Close the child's stdin and wait for its exit. After EXIT_TIMEOUT_S, kill the child."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self.process.wait(0.0 if self._gave_up and self.is_stopped() else EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._stdout.close()


def dies_with_us() -> tuple[str, ...]:
    """Return a command prefix that makes the kernel kill the program when copyscope dies.

    Only needed for programs that do not read stdin. setpriv requests the signal (PR_SET_PDEATHSIG of
    prctl(2)). The shell does not start the program if copyscope is already dead. The main thread must start
    the program, because the signal is sent when the starting thread dies.
    """
    check = '[ "$PPID" = "$0" ] && exec "$@"'
    return ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", check, str(os.getpid()))


def wait_until_finished(
    children: Iterable[Child], seconds: float | None, *, needs: Sequence[Child] = ()
) -> None:
    """Wait for `seconds`, or, if `seconds` is None, until all children report `finished`.

    Raises RunError if a child fails, dies or is stopped. `needs`: other children that must not be stopped.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    waiting = list(children)
    stopped_checks = 0
    while waiting:
        left_s = math.inf if deadline is None else deadline - time.monotonic()
        if left_s <= 0:
            return
        ready = [child for child in waiting if child.has_message]
        ready = ready or select.select(waiting, [], [], min(left_s, CHECK_STOPPED_S))[0]
        stopped = (
            [child for child in (*waiting, *needs) if child.is_stopped()] if left_s > CHECK_STOPPED_S else []
        )
        stopped_checks = stopped_checks + 1 if stopped and not ready else 0
        if stopped_checks >= STOPPED_CHECKS:
            stopped[0].give_up()
        for child in ready:
            child.expect("finished")
            waiting.remove(child)


class Collectors:
    """The collectors on two hosts, driven like a single program. A report joins both answers.

    `by_side`: maps each side to its collector.
    """

    def __init__(self, by_side: Mapping[Side, Child]) -> None:
        self.by_side = by_side
        # Pids of the collectors on their hosts; complete once both collectors are ready.
        self.pids: dict[Side, int] = {}

    @property
    def pid(self) -> int:
        """Pid of the local process for the sender's collector, which may be an ssh client."""
        return self.by_side["sender"].pid

    def fileno(self) -> int:
        """Return the file descriptor of the sender's collector's output."""
        return self.by_side["sender"].fileno()

    def send(self, line: str, event: str | None = None) -> None:
        for child in self.by_side.values():
            child.send(line, event)

    def expect(self, event: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Mapping[str, Any]:
        answers = {side: child.expect(event, timeout_s) for side, child in self.by_side.items()}
        if event == "ready":
            self.pids = {side: answer["pid"] for side, answer in answers.items()}
        return join_answers(answers)

    def ask(self, line: str, event: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Mapping[str, Any]:
        """Send a command to both collectors and return their joined answers.

        If one collector fails to report, the key `unheard` lists its error. Raises RunError if both fail.
        """
        if event != "report":
            self.send(line, event)
            return self.expect(event, timeout_s)
        answers: dict[Side, Mapping[str, Any]] = {}
        errors = []
        for side, child in self.by_side.items():
            try:
                answers[side] = child.ask(line, event, timeout_s)
            except (RunError, UsageError) as error:
                errors.append(str(error))
        if not answers:
            raise RunError(errors[0])
        report = join_reports({side: cast("CollectorReport", answer) for side, answer in answers.items()})
        return {**report, "unheard": errors}

    def end(self) -> None:
        for child in self.by_side.values():
            child.end()
