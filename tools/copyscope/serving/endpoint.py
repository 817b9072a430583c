"""GET /metrics over HTTP; who is slow is cut off.

On a thread of its own, so that a measurement waits for no reader. A text is made once a second at most, and
of connections only so many are taken in a second: a flood costs little.
"""

import asyncio
import contextlib
import errno
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Self

from copyscope.errors import RunError, UsageError

# Of one request and its answer, from the first byte to the last.
ANSWER_S = 2.0
REQUEST_MAX_BYTES = 8192
# At once; further ones are closed without a word.
CONNECTIONS_MAX = 16
TAKEN_EVERY_S = 0.1
TEXT_EVERY_S = 1.0
TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SAID = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found: GET /metrics",
    405: "Method Not Allowed: GET /metrics",
    431: "Request Header Fields Too Large",
}


class Endpoint:
    """Listens from its making on; used as a context manager, in which it answers."""

    def __init__(self, address: tuple[str, int], text: Callable[[Mapping[str, int]], bytes]) -> None:
        """`text` is called by the thread that answers, with how often it has answered, by status. Raises
        RunError where nobody can listen."""
        self._text = text
        self._kept, self._made_s = b"", -TEXT_EVERY_S
        self._answering: set[asyncio.Task[None]] = set()
        # Answers by their status, and `closed`.
        self.answers: Counter[str] = Counter()
        self._listener = listen(address)
        self.address: str = "{}:{}".format(*self._listener.getsockname()[:2])
        if self._listener.family == socket.AF_INET6:
            self.address = "[{}]:{}".format(*self._listener.getsockname()[:2])
        self._loop = asyncio.new_event_loop()
        self._accepting = self._loop.create_task(self._accept())
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._accepting.cancel)
        self._thread.join(ANSWER_S)
        self._listener.close()

    def _run(self) -> None:
        with contextlib.closing(self._loop), contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._accepting)

    async def _accept(self) -> None:
        try:
            while True:
                # The client may have gone, or there is no file left for it.
                with contextlib.suppress(OSError):
                    self._take((await self._loop.sock_accept(self._listener))[0])
                await asyncio.sleep(TAKEN_EVERY_S)
        finally:
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    def _take(self, client: socket.socket) -> None:
        if len(self._answering) >= CONNECTIONS_MAX:
            client.close()
            self.answers["closed"] += 1
            return
        task = self._loop.create_task(self._serve(client))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _serve(self, client: socket.socket) -> None:
        """One request, one answer. Whoever takes longer than ANSWER_S is cut off."""
        reader, writer = await asyncio.open_connection(sock=client, limit=REQUEST_MAX_BYTES)
        # drain() waits until the kernel has all.
        writer.transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(ANSWER_S):
                status = await self._status(reader)
                writer.write(self._answer(status))
                await writer.drain()
                self.answers[str(status)] += 1
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self.answers["closed"] += 1
        finally:
            writer.transport.abort()

    async def _status(self, reader: asyncio.StreamReader) -> int:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return 431
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return 400
        if words[1].partition(b"?")[0] != b"/metrics":
            return 404
        return 200 if words[0] == b"GET" else 405

    def _answer(self, status: int) -> bytes:
        body, kind = f"{SAID[status]}\n".encode(), "text/plain; charset=utf-8"
        if status == 200:
            body, kind = self._fresh(), TYPE
        more = "Allow: GET\r\n" if status == 405 else ""
        head = f"HTTP/1.1 {status} {SAID[status].partition(':')[0]}\r\nContent-Type: {kind}\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
        return head.encode() + body

    def _fresh(self) -> bytes:
        """The text, at most a second old."""
        now = time.monotonic()
        if now - self._made_s >= TEXT_EVERY_S:
            self._kept, self._made_s = self._text(self.answers), now
        return self._kept


def listen(address: tuple[str, int]) -> socket.socket:
    """A socket that listens there. Raises RunError with the next step."""
    host, port = address
    where = f"--serve: {f'[{host}]' if ':' in host else host}:{port}"
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
    except OSError:
        raise UsageError(f"{where}: not an address: give it in numbers, such as 127.0.0.1:9464") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(CONNECTIONS_MAX)
    except OSError as error:
        listener.close()
        step = {
            errno.EADDRINUSE: f"choose another port, or end who has it (ss -ltnp 'sport = :{port}')",
            errno.EADDRNOTAVAIL: "choose an address of this machine (ip address)",
        }.get(error.errno or 0, "choose another address or port")
        raise RunError(f"{where}: {os.strerror(error.errno or 0)}: {step}") from error
    listener.setblocking(False)
    return listener
