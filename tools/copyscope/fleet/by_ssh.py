"""One command on many hosts, so many at a time: what each said, and how it ended.

Each host is one connection and one process here. It is asked for its end by closing its input, which ends the
command over there, too (guard.py); after that it is killed.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from copyscope.places import Place
from copyscope.start.environment import of_caller

GUARD = Path(__file__).with_name("guard.py")
BEAT_S = 1.0
# Without a beat for so long the far side gives up.
SILENCE_S = 3
# The guard has that long to end what it runs and to say so.
END_S = 5.0
# A record is a hundredth of that. Who says more is not listened to.
OUTPUT_MAX_BYTES = 64 << 20
ERRORS_MAX_BYTES = 16 << 10


@dataclass(frozen=True)
class Job:
    """What every host is asked to run, and as whom; `bundle`: what it is brought before."""

    argv: tuple[str, ...]
    become: bool
    timeout_s: float
    bundle: bytes = b""

    def opening(self) -> bytes:
        """What its guard reads first."""
        said = {
            "argv": self.argv,
            "silence_s": SILENCE_S,
            "bundle_bytes": len(self.bundle),
            "sha256": hashlib.sha256(self.bundle).hexdigest(),
        }
        return json.dumps(said).encode() + b"\n" + self.bundle


@dataclass(frozen=True)
class Answer:
    """How it ended (None: its time was over), and what was said, which is another machine's word."""

    status: int | None
    output: bytes
    errors: bytes
    seconds: float


class TooMuchError(Exception):
    """More was said than any record has."""


# Is told whom we ask now, and what a host answered.
Began = Callable[[str], None]
Ended = Callable[[str, Answer], None]


def ask_hosts(  # noqa: PLR0917 (the hosts, and then what every engine is told)
    hosts: Mapping[str, Place], names: Sequence[str], job: Job, forks: int, began: Began, ended: Ended
) -> None:
    """Some of the hosts by ssh; see ask_all()."""
    asyncio.run(ask_all({name: hosts[name] for name in names}, job, forks, began, ended))


async def ask_all(hosts: Mapping[str, Place], job: Job, forks: int, began: Began, ended: Ended) -> None:
    """Every host is asked once, `forks` at a time; `ended` is called in a thread of its own.

    An answer takes milliseconds to check. Meanwhile the others are read: the time that each host has goes on.
    """
    turns, loop = asyncio.Semaphore(forks), asyncio.get_running_loop()

    async def in_turn(name: str, place: Place) -> None:
        async with turns:
            began(name)
            await loop.run_in_executor(beside, ended, name, await ask(place, job))

    with ThreadPoolExecutor(max_workers=1) as beside:
        async with asyncio.TaskGroup() as group:
            for name, place in hosts.items():
                group.create_task(in_turn(name, place))


async def ask(place: Place, job: Job) -> Answer:
    """What one host answered. Whatever happens, its process here has ended."""
    started = time.monotonic()
    guard = ("python3", "-I", "-c", GUARD.read_text(encoding="utf-8"))
    try:
        process = await asyncio.create_subprocess_exec(
            *place.argv(guard, become=job.become),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for us, and we then end them in order.
            start_new_session=True,
            env=_environment(),
        )
    except OSError as error:
        return Answer(127, b"", f"{error.filename}: {error.strerror}".encode(), 0.0)
    assert process.stdin
    output, errors = bytearray(), bytearray()
    listening = asyncio.create_task(_listen(process, output, errors))
    # Whether anybody asks for its error or not, asyncio prints none.
    listening.add_done_callback(lambda task: task.cancelled() or task.exception())
    beat = asyncio.create_task(_beat(process.stdin, job.opening()))
    status: int | None = None
    try:
        await asyncio.wait((listening,), timeout=job.timeout_s)
        if listening.done():
            status = listening.result()
    except TooMuchError:
        status, errors = 1, bytearray(f"more than {OUTPUT_MAX_BYTES >> 20} MiB were said".encode())
    finally:
        seconds = time.monotonic() - started
        beat.cancel()
        await _end(process, listening)
    return Answer(status, bytes(output), bytes(errors), seconds)


def _environment() -> dict[str, str]:
    """Ours, and the agent that keeps the caller's keys, of which root's other programs know nothing."""
    agent = of_caller(os.environ).get("SSH_AUTH_SOCK")
    return {**os.environ, **({} if agent is None else {"SSH_AUTH_SOCK": agent})}


async def _beat(stdin: asyncio.StreamWriter, opening: bytes) -> None:
    with contextlib.suppress(OSError):
        stdin.write(opening)
        while True:
            await stdin.drain()
            await asyncio.sleep(BEAT_S)
            stdin.write(b"\n")


async def _listen(process: asyncio.subprocess.Process, output: bytearray, errors: bytearray) -> int:
    """What it says until it ends, and how it ends. Raises TooMuchError."""
    assert process.stdout and process.stderr
    await asyncio.gather(_keep(process.stdout, output, OUTPUT_MAX_BYTES), _keep_last(process.stderr, errors))
    return await process.wait()


async def _keep(stream: asyncio.StreamReader, into: bytearray, most: int) -> None:
    while chunk := await stream.read(1 << 16):
        into += chunk
        if len(into) > most:
            raise TooMuchError


async def _keep_last(stream: asyncio.StreamReader, into: bytearray) -> None:
    while chunk := await stream.read(1 << 12):
        into += chunk
        del into[:-ERRORS_MAX_BYTES]


async def _end(process: asyncio.subprocess.Process, listening: "asyncio.Task[int]") -> None:
    """Its input ends; whatever it still says is read; then it is killed."""
    assert process.stdin
    process.stdin.close()
    try:
        # Not asyncio.timeout(): before Python 3.11.3 it does not tell its own end from a Ctrl-C (gh-102780).
        await asyncio.wait((listening,), timeout=END_S)
    finally:
        # Kills it and closes its streams: wait() waits for their end, too, and a ProxyCommand may hold them.
        process._transport.close()  # type: ignore[attr-defined]
        listening.cancel()
    await process.wait()
