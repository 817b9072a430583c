"""A program of ours that is driven by lines on its stdin and answers with JSON lines on its stdout.

It lives as long as we hold its stdin: when we die, by whatever signal, it reads the end of file and ends. The
collectors of two hosts are spoken to as one (Collectors).
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
from typing import NoReturn, Protocol

from copyscope.complaints import Complaints
from copyscope.errors import RunError, UsageError, why_not_executed, why_not_started, with_memory
from copyscope.record import two_hosts
from copyscope.record.two_hosts import Message
from copyscope.topology import Side

ANSWER_S = 10.0
END_S = 1.0
# A report on 262,144 sockets and as many stacks as there is room for has a tenth of that.
ANSWER_MAX_BYTES = 256 << 20
# As much as a pipe holds (pipe(7)). The allocator maps a larger buffer anew each time.
PIPE_BYTES = 1 << 16
# A stopped program does not answer: that is seen sooner than the time for an answer is over.
LOOK_S = 1.0
# ssh(1): also of a program that a signal ended.
SSH_FAILED = 255
STOPPED_LOOKS = 2
# In a report of several: what became of those that gave none.
UNHEARD = "unheard"


class Program(Protocol):
    """One that is spoken to in lines, or several as one (Collectors)."""

    @property
    def pid(self) -> int: ...

    def fileno(self) -> int: ...

    def send(self, line: str, event: str | None = None) -> None: ...

    def expect(self, event: str, timeout_s: float = ANSWER_S) -> Message: ...

    def ask(self, line: str, event: str, timeout_s: float = ANSWER_S) -> Message: ...

    def end(self) -> None: ...


class Elsewhere(Protocol):
    """The machine that it runs on, where that is another one: what is started here is then ssh."""

    name: str
    environment: dict[str, str] | None

    def why_gone(self) -> str | None: ...


class Child:
    """One such program; a context is not needed: end() is safe at any time."""

    def __init__(self, name: str, argv: Sequence[str], at: Elsewhere | None = None) -> None:
        self.name = name
        self._at = at
        # What it is called in errors.
        self._called = name if at is None else f"{name} on {at.name}"
        self._pending = bytearray()
        # Events that were asked for and not read yet: an interrupt leaves one in the pipe.
        self._unread: list[str] = []
        self._gave_up = False
        try:
            # A session of its own: Ctrl-C is for us, and we then end it in order.
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
        self._complaints = Complaints(self.process.stderr)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_message(self) -> bool:
        """A whole message was read already: select() will not tell of it."""
        return b"\n" in self._pending

    def fileno(self) -> int:
        return self._stdout.fileno()

    def send(self, line: str, event: str | None = None) -> None:
        """Send a command; `event` is what it will be answered with, to be expected later."""
        if event is not None:
            self._unread.append(event)
        try:
            self._stdin.write(line.encode() + b"\n")
        except OSError:
            self._fail(time.monotonic() + 1.0)

    def ask(
        self, line: str, event: str, timeout_s: float = ANSWER_S, *, needs: Sequence["Child"] = ()
    ) -> Message:
        """Send a command and wait for its answer."""
        self.send(line, event)
        return self.expect(event, timeout_s, needs=needs)

    def expect(self, event: str, timeout_s: float = ANSWER_S, *, needs: Sequence["Child"] = ()) -> Message:
        """The next message, which must be this event; an error event raises RunError with its text.

        Answers to questions whose asker was interrupted come first, and are passed over. `needs`: without
        whom it cannot answer either.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._read(deadline, (self, *needs))
            said = message["event"]
            late = said in self._unread
            if late:
                self._unread.remove(said)
            if said == event:
                return message
            if said == "error":
                raise RunError(with_memory(f"{self._called}: {message['message']}"))
            if said != "finished" and not late:  # a fixed count may be reached at any moment
                raise RunError(f"{self._called}: unexpected answer {said!r} instead of {event!r}")

    def _read(self, deadline: float, needed: Sequence["Child"]) -> Message:
        # Who has not answered for that long, stopped, is not waited for again.
        looks = STOPPED_LOOKS - 1 if self._gave_up and self.is_stopped() else 0
        whole = self.has_message
        while not whole:
            left_s = deadline - time.monotonic()
            look_s = LOOK_S if looks < STOPPED_LOOKS - 1 or not self._gave_up else 0.0
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, min(left_s, look_s)))
            if not ready:
                stopped = [child for child in needed if child.is_stopped()]
                looks = looks + 1 if stopped else 0
                if looks >= STOPPED_LOOKS:
                    stopped[0].give_up()
                if left_s <= 0:
                    said = self._complaints.lines() or ["it is still running"]
                    raise RunError(f"{self._called}: no answer in time: {said[-1]}")
                continue
            chunk = os.read(self._stdout.fileno(), PIPE_BYTES)
            if not chunk:
                self._fail(deadline)
            self._pending += chunk
            whole = b"\n" in chunk
            if len(self._pending) > ANSWER_MAX_BYTES:
                raise RunError(f"{self._called}: an answer of more than {ANSWER_MAX_BYTES >> 20} MiB")
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("event"), str):
            raise RunError(f"{self._called}: an answer that cannot be read: {bytes(line[:60])!r}")
        return message

    def give_up(self) -> NoReturn:
        """It has been stopped for long enough."""
        self._gave_up = True
        raise RunError(f"{self._called}: no answer: process {self.pid} is stopped (SIGSTOP)")

    def is_stopped(self) -> bool:
        try:
            # proc_pid_stat(5): the state follows the name, which may hold anything.
            return Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
        except OSError:
            return False

    def _fail(self, deadline: float) -> None:
        """It is gone: say how, in its own words where there are any."""
        try:
            status = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = None
        gone = None if self._at is None else self._at.why_gone()
        if gone is not None:
            raise RunError(gone)
        said = self._complaints.lines()
        if status == 2 and said:
            raise UsageError(said[0] if self._at is None else f"{self._called}: {said[0]}")
        if said and (absent := why_not_executed(said[-1])) is not None:
            raise RunError(f"{self._called}: {absent}")
        how = "closed its output" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        if status == SSH_FAILED and self._at is not None:
            how = "was killed there: look at its system log, and run again"
        raise RunError(with_memory(f"{self._called}: {how}" + (f": {said[-1]}" if said else "")))

    def end(self) -> None:
        """Close its stdin, wait, and kill it (by its pid) if it does not go."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self.process.wait(0.0 if self._gave_up and self.is_stopped() else END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._stdout.close()


def dies_with_us() -> tuple[str, ...]:
    """The argv prefix of a program that reads nothing from us: the kernel ends it when we end, however we do.

    setpriv asks for the signal (PR_SET_PDEATHSIG of prctl(2)); without its parent it does not begin.
    To be started by the main thread: it is a thread whose death counts.
    """
    check = '[ "$PPID" = "$0" ] && exec "$@"'
    return ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", check, str(os.getpid()))


def watch(children: Iterable[Child], seconds: float | None, *, needs: Sequence[Child] = ()) -> None:
    """Let time pass, or with None wait until each says `finished`; raise when one fails, dies or is stopped.

    `needs`: without whom they do not get on.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    waiting = list(children)
    looks = 0
    while waiting:
        left = math.inf if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return
        ready = [child for child in waiting if child.has_message]
        ready = ready or select.select(waiting, [], [], min(left, LOOK_S))[0]
        stopped = [child for child in (*waiting, *needs) if child.is_stopped()] if left > LOOK_S else []
        looks = looks + 1 if stopped and not ready else 0
        if looks >= STOPPED_LOOKS:
            stopped[0].give_up()
        for child in ready:
            child.expect("finished")
            waiting.remove(child)


class Collectors:
    """As one program. A report is that of those which still answer."""

    def __init__(self, of: Mapping[Side, Child]) -> None:
        self.of = of
        # Theirs, where they run: known when they are ready.
        self.pids: dict[Side, int] = {}

    @property
    def pid(self) -> int:
        """Of one of them, here: it may be an ssh."""
        return self.of["sender"].pid

    def fileno(self) -> int:
        """Of one of them, too."""
        return self.of["sender"].fileno()

    def send(self, line: str, event: str | None = None) -> None:
        for child in self.of.values():
            child.send(line, event)

    def expect(self, event: str, timeout_s: float = ANSWER_S) -> Message:
        answers = {side: child.expect(event, timeout_s) for side, child in self.of.items()}
        if event == "ready":
            self.pids = {side: said["pid"] for side, said in answers.items()}
        return two_hosts.join(answers)

    def ask(self, line: str, event: str, timeout_s: float = ANSWER_S) -> Message:
        if event != "report":
            self.send(line, event)
            return self.expect(event, timeout_s)
        answers, errors = {}, []
        for side, child in self.of.items():
            try:
                answers[side] = child.ask(line, event, timeout_s)
            except (RunError, UsageError) as error:
                errors.append(str(error))
        if not answers:
            raise RunError(errors[0])
        return {**two_hosts.join(answers), UNHEARD: errors}

    def end(self) -> None:
        for child in self.of.values():
            child.end()
