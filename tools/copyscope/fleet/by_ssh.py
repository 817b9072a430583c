"""One command on many hosts, so many at a time: what each said, and how it ended.

Each host is one connection and one process here. It is asked for its end by closing its input, which ends the
command over there, too (guard.py); after that it is killed.
"""

import asyncio
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
STDERR = 2


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


# Is told whom we ask now, and what a host answered.
Began = Callable[[str], None]
Ended = Callable[[str, Answer], None]


def ask_hosts(  # noqa: PLR0917 (the hosts, and then what every engine is told)
    hosts: Mapping[str, Place], names: Sequence[str], job: Job, forks: int, began: Began, ended: Ended
) -> None:
    """Some of the hosts by ssh; see ask_all(). Raises what `ended` does."""
    try:
        asyncio.run(ask_all({name: hosts[name] for name in names}, job, forks, began, ended))
    except ExceptionGroup as group:
        # The first error ends all; commands know it by its own class.
        raise group.exceptions[0] from None


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
        process, said = await asyncio.get_running_loop().subprocess_exec(
            _Said,
            *place.argv(guard, become=job.become),
            # Ctrl-C is for us, and we then end them in order.
            start_new_session=True,
            env=_environment(),
        )
    except OSError as error:
        return Answer(127, b"", f"{error.filename}: {error.strerror}".encode(), 0.0)
    stdin = process.get_pipe_transport(0)
    assert isinstance(stdin, asyncio.WriteTransport)
    beat = asyncio.create_task(_beat(stdin, job.opening()))
    status: int | None = None
    try:
        # Not asyncio.timeout(): before Python 3.11.3 it does not tell its own end from a Ctrl-C (gh-102780).
        await asyncio.wait((said.ended,), timeout=job.timeout_s)
        if said.ended.done():
            status = process.get_returncode()
    finally:
        seconds = time.monotonic() - started
        beat.cancel()
        await _end(process, stdin, said.ended)
    if said.too_much:
        status, said.errors = 1, bytearray(f"more than {OUTPUT_MAX_BYTES >> 20} MiB were said".encode())
    return Answer(status, bytes(said.output), bytes(said.errors), seconds)


def _environment() -> dict[str, str]:
    """Ours, and the agent that keeps the caller's keys, of which root's other programs know nothing."""
    agent = of_caller(os.environ).get("SSH_AUTH_SOCK")
    return {**os.environ, **({} if agent is None else {"SSH_AUTH_SOCK": agent})}


class _Said(asyncio.SubprocessProtocol):
    """What a process says until it and its streams have ended."""

    _process: asyncio.SubprocessTransport

    def __init__(self) -> None:
        self.output, self.errors = bytearray(), bytearray()
        self.too_much = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDERR:
            self.errors += data
            del self.errors[:-ERRORS_MAX_BYTES]
            return
        self.output += data
        if len(self.output) > OUTPUT_MAX_BYTES:
            self.too_much = True
            self._process.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.ended.set_result(None)


async def _beat(stdin: asyncio.WriteTransport, opening: bytes) -> None:
    stdin.write(opening)
    while not stdin.is_closing():
        await asyncio.sleep(BEAT_S)
        stdin.write(b"\n")


async def _end(
    process: asyncio.SubprocessTransport, stdin: asyncio.WriteTransport, ended: "asyncio.Future[None]"
) -> None:
    """Its input ends; whatever it still says is read; then it is killed."""
    stdin.close()
    try:
        await asyncio.wait((ended,), timeout=END_S)
    finally:
        # Kills it and closes its streams, which a ProxyCommand may hold.
        process.close()
        await asyncio.wait((ended,))
