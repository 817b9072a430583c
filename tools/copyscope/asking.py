"""Programs that are asked something (git, ip, perf, make, ssh): each has a limit of time and of words.

Who is over a limit is ended, with all that it has started, and named in one line. None of them has our
terminal: Ctrl-C is for us, and we then end them.
"""

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
from pathlib import Path
from typing import IO, cast

from copyscope.errors import RunError

LIMIT_S = 10.0
SAID_MAX_BYTES = 16 << 20
# make deletes what it has half made.
END_S = 1.0
LINE_MAX_BYTES = 4096
# What a pipe takes at once when it takes anything (pipe(7), PIPE_BUF).
PIECE_BYTES = 4096
# What only starts another program, which is the one that is named.
STARTERS = ("nsenter", "setpriv", "sudo")


class LimitError(RunError):
    """A program was over a limit and was ended: which, and how to look at it by hand."""


@dataclass(frozen=True)
class Answer:
    """How it ended (negative: by which signal), and all that it printed."""

    status: int
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """What it said on standard error."""
        return self.errors.decode(errors="replace").strip()


@contextlib.contextmanager
def held() -> Iterator[list[int]]:
    """Ctrl-C waits: a program that is just being started would be nobody's. What came is in the list."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    # Only there is it handled; and what is ignored would not be by the program.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield came
        return
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


class Asked:
    """A program that runs; answer() waits for it. Several that are asked at once run at the same time."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        said: bytes = b"",
        reads: int | None = None,
        limit_s: float = LIMIT_S,
        most_bytes: int = SAID_MAX_BYTES,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """It reads what is `said`, or an open file (`reads`). Raises OSError where it cannot be started."""
        self._argv, self._left = argv, memoryview(said)
        self._limit_s, self._most_bytes = limit_s, most_bytes
        with held() as came:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if said else subprocess.DEVNULL if reads is None else reads,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        if came:
            self._pass_on(came[0])
        self._until_s = time.monotonic() + limit_s

    def _pass_on(self, number: int) -> None:
        try:
            signal.raise_signal(number)
        except BaseException:
            self.end()
            raise

    def answer(self) -> Answer:
        """When it has ended. Raises LimitError."""
        process = self._process
        assert process.stdout and process.stderr
        told = {process.stdout: bytearray(), process.stderr: bytearray()}
        try:
            self._exchange(told)
            status = process.wait(max(END_S, self._until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._late() from None
        finally:
            self.end()
        return Answer(status, bytes(told[process.stdout]), bytes(told[process.stderr]))

    def end(self) -> None:
        """At any time, and again."""
        process = self._process
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(END_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def _exchange(self, told: Mapping[IO[bytes], bytearray]) -> None:
        """Until it has closed both of its outputs."""
        with selectors.DefaultSelector() as waiting:
            for output in told:
                waiting.register(output, selectors.EVENT_READ)
            if self._process.stdin is not None:
                waiting.register(self._process.stdin, selectors.EVENT_WRITE)
            reading = len(told)
            while reading:
                ready = waiting.select(max(0.0, self._until_s - time.monotonic()))
                if not ready:
                    raise self._late()
                for key, _ in ready:
                    stream = cast(IO[bytes], key.fileobj)
                    if stream is self._process.stdin:
                        ended = self._write(stream)
                    else:
                        ended = self._read(stream, told[stream])
                        reading -= ended
                    if ended:
                        waiting.unregister(stream)

    def _write(self, stream: IO[bytes]) -> bool:
        """A piece of what it reads; whether that was the last."""
        try:
            self._left = self._left[os.write(stream.fileno(), self._left[:PIECE_BYTES]) :]
        except BrokenPipeError:  # it wants no more
            self._left = self._left[:0]
        if not self._left:
            stream.close()
        return not self._left

    def _read(self, stream: IO[bytes], into: bytearray) -> bool:
        """What it has said since; whether that was all."""
        chunk = os.read(stream.fileno(), 1 << 16)
        into += chunk
        if len(into) > self._most_bytes:
            raise self._over(f"printed more than {self._most_bytes >> 20} MiB", "prints")
        return not chunk

    def _late(self) -> LimitError:
        return self._over(f"no end within {self._limit_s:g} s", "waits for")

    def _over(self, what: str, does: str) -> LimitError:
        by_hand = f"run it by hand to see what it {does}: {shlex.join(self._argv)}"
        return LimitError(f"{named(self._argv)}: {what}, and was ended: {by_hand}")


def ask(
    argv: Sequence[str],
    *,
    said: bytes = b"",
    reads: int | None = None,
    limit_s: float = LIMIT_S,
    most_bytes: int = SAID_MAX_BYTES,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Answer:
    """What a program answers. Raises OSError where it cannot be started, LimitError."""
    return Asked(
        argv,
        said=said,
        reads=reads,
        limit_s=limit_s,
        most_bytes=most_bytes,
        environment=environment,
        directory=directory,
    ).answer()


def line_of(stream: IO[bytes], limit_s: float = LIMIT_S) -> bytes:
    """A line of a program that goes on; less where it ends, or says too much. Raises TimeoutError.

    There is nothing behind it yet: it was asked for this line.
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


def named(argv: Sequence[str]) -> str:
    """The program that is meant: of `nsenter --net=FILE -- ip link` that is ip."""
    words = list(argv)
    while os.path.basename(words[0]) in STARTERS and "--" in words[:-1]:  # noqa: PTH119
        words = words[words.index("--") + 1 :]
    return os.path.basename(words[0])  # noqa: PTH119
