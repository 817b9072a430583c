# SPDX-License-Identifier: GPL-2.0-only
"""Run a program with limits on its time and output, on this machine or on a host over ssh."""

import contextlib
import os
import select
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol, cast

from copyscope.base.errors import RunError

# Short programs (git, ip, perf, make, ssh) run with limits of time and output.
#
# A program that exceeds a limit is ended with its whole session, and a message of one line names the program.
# Each program runs in its own session without our terminal: Ctrl-C reaches copyscope only, which then ends
# the program.

LIMIT_S = 10.0
OUTPUT_MAX_BYTES = 16 << 20
# Time in seconds from SIGTERM to SIGKILL, so that make can delete incomplete files.
TERMINATION_S = 1.0
LINE_MAX_BYTES = 4096
# PIPE_BUF of pipe(7): a pipe that select(2) reports as writable accepts this many bytes without blocking.
STDIN_CHUNK_BYTES = 4096
# Programs that only execute another program. Messages name the executed program instead.
WRAPPERS = ("nsenter", "setpriv", "sudo")


class LimitError(RunError):
    """A program exceeded its time or output limit, and was stopped."""


@dataclass(frozen=True)
class ProgramOutput:
    """Exit status, standard output (`output`) and standard error (`errors`) of a program.

    A negative status is the number of the signal that ended the program, negated.
    """

    status: int
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """Standard error as text."""
        return self.errors.decode(errors="replace").strip()


@contextlib.contextmanager
def delay_interrupts() -> Iterator[list[int]]:
    """Delay SIGINT while the body starts a program, because an exception would leave that program running.

    Yields the list of the delayed signals. The caller raises them again.
    """
    signals: list[int] = []
    old_handler = signal.getsignal(signal.SIGINT)
    # Python handles signals in the main thread only. An ignored SIGINT must stay ignored in the program.
    if threading.current_thread() is not threading.main_thread() or not callable(old_handler):
        yield signals
        return
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, old_handler)


class StartedProgram:
    """A running program. wait_for_output() returns the output; several programs can run at the same time."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stdin_data: bytes = b"",
        stdin_descriptor: int | None = None,
        limit_s: float = LIMIT_S,
        output_max_bytes: int = OUTPUT_MAX_BYTES,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a program. Raises OSError.

        `argv`: words of the command. `stdin_data`: bytes for its standard input. `stdin_descriptor`: open
        file that is its standard input instead. `limit_s`: time within which it must exit.
        `output_max_bytes`: limit for standard output and for standard error. `environment`: its variables;
        None: the variables of this process.
        """
        self._argv, self._stdin_left = argv, memoryview(stdin_data)
        self._limit_s, self._output_max_bytes = limit_s, output_max_bytes
        stdin = subprocess.DEVNULL if stdin_descriptor is None else stdin_descriptor
        with delay_interrupts() as signals:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if stdin_data else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        if signals:
            self._raise_delayed(signals[0])
        self._until_s = time.monotonic() + limit_s

    def _raise_delayed(self, signal_number: int) -> None:
        """Raise a delayed signal. End the program if the handler raises an exception."""
        try:
            signal.raise_signal(signal_number)
        except BaseException:
            self.end()
            raise

    def wait_for_output(self) -> ProgramOutput:
        """Wait until the program exits and return its output. Raises LimitError."""
        process = self._process
        assert process.stdout and process.stderr
        outputs = {process.stdout: bytearray(), process.stderr: bytearray()}
        try:
            self._exchange(outputs)
            status = process.wait(max(TERMINATION_S, self._until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._timeout_error() from None
        finally:
            self.end()
        return ProgramOutput(status, bytes(outputs[process.stdout]), bytes(outputs[process.stderr]))

    def end(self) -> None:
        """End the program and all processes of its session. May be called repeatedly."""
        process = self._process
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal_number)
                process.wait(TERMINATION_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def _exchange(self, outputs: Mapping[IO[bytes], bytearray]) -> None:
        """Write the program's input and append its output to `outputs`, until both are closed."""
        with selectors.DefaultSelector() as selector:
            for stdout_or_stderr in outputs:
                selector.register(stdout_or_stderr, selectors.EVENT_READ)
            if self._process.stdin is not None:
                selector.register(self._process.stdin, selectors.EVENT_WRITE)
            open_outputs = len(outputs)
            while open_outputs:
                ready = selector.select(max(0.0, self._until_s - time.monotonic()))
                if not ready:
                    raise self._timeout_error()
                for key, _ in ready:
                    stream = cast(IO[bytes], key.fileobj)
                    if stream is self._process.stdin:
                        ended = self._write_chunk(stream)
                    else:
                        ended = self._read_chunk(stream, outputs[stream])
                        open_outputs -= ended
                    if ended:
                        selector.unregister(stream)

    def _write_chunk(self, stream: IO[bytes]) -> bool:
        """Write the next chunk of the input to `stream`. Return True after the last chunk."""
        try:
            written_bytes = os.write(stream.fileno(), self._stdin_left[:STDIN_CHUNK_BYTES])
            self._stdin_left = self._stdin_left[written_bytes:]
        except BrokenPipeError:  # the program has closed its standard input
            self._stdin_left = self._stdin_left[:0]
        if not self._stdin_left:
            stream.close()
        return not self._stdin_left

    def _read_chunk(self, stream: IO[bytes], output: bytearray) -> bool:
        """Append the next chunk of a stream to `output`. Return True at the end of the stream.

        Raises LimitError if `output` gets too long.
        """
        chunk = os.read(stream.fileno(), 1 << 16)
        output += chunk
        if len(output) > self._output_max_bytes:
            raise self._limit_error(f"printed more than {self._output_max_bytes >> 20} MiB")
        return not chunk

    def _timeout_error(self) -> LimitError:
        return self._limit_error(f"did not end within {self._limit_s:g} s")

    def _limit_error(self, problem: str) -> LimitError:
        """Return the error for a stopped program. `problem`: predicate, such as `did not end within 10 s`."""
        advice = f"run the program by hand to find the cause: {shlex.join(self._argv)}"
        return LimitError(f"{program_name(self._argv)}: {problem}, and was stopped; {advice}")


def run_program(
    argv: Sequence[str],
    *,
    stdin_data: bytes = b"",
    stdin_descriptor: int | None = None,
    limit_s: float = LIMIT_S,
    output_max_bytes: int = OUTPUT_MAX_BYTES,
    environment: Mapping[str, str] | None = None,
) -> ProgramOutput:
    """Run a program to its end and return its output. StartedProgram explains the parameters.

    Raises OSError if the program cannot be started, LimitError if it exceeds a limit.
    """
    return StartedProgram(
        argv,
        stdin_data=stdin_data,
        stdin_descriptor=stdin_descriptor,
        limit_s=limit_s,
        output_max_bytes=output_max_bytes,
        environment=environment,
    ).wait_for_output()


def read_line(stream: IO[bytes], limit_s: float = LIMIT_S) -> bytes:
    """Return the next line that a running program prints. Raises TimeoutError.

    The line is incomplete if the program ends, or if the line is longer than LINE_MAX_BYTES. The program must
    print nothing after the line until its next command, because more bytes would be returned with the line.
    """
    until_s, line = time.monotonic() + limit_s, b""
    while not line.endswith(b"\n") and len(line) < LINE_MAX_BYTES:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([stream], [], [], left_s)[0]:
            raise TimeoutError(f"no answer within {limit_s:g} s")
        chunk = os.read(stream.fileno(), LINE_MAX_BYTES)
        if not chunk:
            break
        line += chunk
    return line


def program_name(argv: Sequence[str]) -> str:
    """Return the name of a program for messages: `ip` for `nsenter --net=FILE -- ip link`."""
    words = list(argv)
    while os.path.basename(words[0]) in WRAPPERS and "--" in words[:-1]:  # noqa: PTH119
        words = words[words.index("--") + 1 :]
    return os.path.basename(words[0])  # noqa: PTH119


# A command runs on this machine, or on a host by OpenSSH.
#
# The user's ssh_config(5) says how to reach a host (address, user, port, keys, jumps). ssh never prompts, so
# that a password or an unknown host key makes the command fail. Each command opens its own connection.

# Word for this machine in a list of hosts.
HERE = "here"
SSH_CONNECT_S = 10
# ssh sends a keepalive at this interval, and closes the connection after three without an answer.
SSH_ALIVE_S = 5
SSH_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(SSH_CONNECT_S),
    "ServerAliveInterval": str(SSH_ALIVE_S),
    "ServerAliveCountMax": "3",
    # Use the user's open master connection if there is one. A new master could outlive copyscope.
    "ControlMaster": "no",
    # Settings of ssh_config for interactive shells; forwardings would fail with several connections.
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
}


class CommandLocation(Protocol):
    """Machine on which commands run: this machine or a remote host."""

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        """Return the words of the local command that runs `command` on the machine.

        `become`: run `command` as root, by sudo without a prompt.
        """


@dataclass(frozen=True)
class ThisMachine:
    """This machine: a command runs without ssh."""

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        return [*_sudo(become), *command]


@dataclass(frozen=True)
class RemoteHost:
    """A destination of ssh(1): an address, a name or an alias of ssh_config, with or without USER@.

    `control_path`: socket of the master connection, which master_argv() opens and all other commands share.
    If it is None, each command opens its own connection.
    """

    destination: str
    control_path: str | None = None

    def master_argv(self, command: Sequence[str]) -> list[str]:
        """Return the ssh command that opens the master connection, which lasts as long as `command` runs."""
        master = {"ControlMaster": "yes", "ControlPath": str(self.control_path), "ControlPersist": "no"}
        return self._ssh({**SSH_OPTIONS, **master, "ServerAliveInterval": "1"}, command)

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        if self.control_path is None:
            return self._ssh(SSH_OPTIONS, [*_sudo(become), *command])
        # Without its master, ssh would open a new connection; ProxyCommand makes it fail instead.
        shared = {"ControlPath": self.control_path, "ProxyCommand": "false"}
        return self._ssh({**SSH_OPTIONS, **shared}, [*_sudo(become), *command])

    def _ssh(self, settings: Mapping[str, str], command: Sequence[str]) -> list[str]:
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        # ssh joins the words of a command with blanks, and the shell of the host splits them again.
        return ["ssh", *options, "--", self.destination, shlex.join(command)]


def _sudo(become: bool) -> list[str]:
    return ["sudo", "-n", "--"] if become else []
