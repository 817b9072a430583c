# SPDX-License-Identifier: GPL-2.0-only
"""HTTP server for /, /metrics and /healthz, in its own thread: a measurement never waits for a client.

A request's Accept header selects the format of the metrics. Slow clients are disconnected. The page and the
metrics are cached for a second, and at most ten connections are accepted per second, so that a flood of
requests costs little CPU time.

A web page may bind its own host name to this server's address to read the metrics (DNS rebinding). The server
therefore answers only if the Host header is one of the server's names.
"""

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Self

from copyscope.base.errors import RunError, UsageError
from copyscope.report.live_page import POLICY
from copyscope.report.openmetrics import MetricsText, accepted_format

# Maximum duration of a request and its answer, in seconds.
ANSWER_S = 2.0
# Maximum size of the headers of a request, in bytes.
REQUEST_MAX_BYTES = 8192
# Maximum number of simultaneous connections. Further connections are closed without an answer.
CONNECTIONS_MAX = 16
# Minimum time between two accepted connections, and lifetime of the text of the metrics, in seconds.
ACCEPT_INTERVAL_S = 0.1
TEXT_INTERVAL_S = 1.0
PAGES, METHODS = ("/", "/metrics", "/healthz"), ("GET", "HEAD")
STATUS_LINES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found: GET /, /metrics or /healthz",
    405: "Method Not Allowed: GET or HEAD",
    421: "Misdirected Request: the name in the URL is unknown; start watch with --serve-name NAME",
    431: "Request Header Fields Too Large",
}
# Browsers neither keep the page nor guess its type, and the page loads and runs only what POLICY allows.
PAGE_HEADERS = (
    f"Content-Security-Policy: {POLICY}\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
)
# Names of every server in the header Host, besides the address that the client connected to.
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class HttpRequest(NamedTuple):
    """A parsed request.

    status: HTTP status of the answer
    page, method: members of PAGES and METHODS, if the status is 200
    accept: value of the header Accept
    """

    status: int
    page: str = ""
    method: str = ""
    accept: str = ""


class Endpoint:
    """HTTP server that listens as soon as it is created, and answers while it is used as a context."""

    def __init__(
        self,
        address: tuple[str, int],
        text: Callable[[Mapping[str, int], str], MetricsText],
        names: Iterable[str] = (),
        page: Callable[[], bytes] | None = None,
    ) -> None:
        """Listen on an address. Raises RunError if that is impossible.

        text: function that returns the text of the metrics; the server's thread calls this function with the
            number of answers by HTTP status and the header Accept of a request
        names: names of this machine that clients may use, besides LOOPBACK_NAMES and its address
        page: function that returns the HTML of GET /; the server's thread calls this function
        """
        self._names = LOOPBACK_NAMES | {normal_host(name) for name in names if name}
        self._text, self._page = text, page
        # Path and format -> body and header Content-Type. All are dropped when the oldest expires.
        self._texts: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._oldest_text_s = 0.0
        self._answering: set[asyncio.Task[None]] = set()
        # Number of answers by HTTP status. Key `closed`: connections without an answer.
        self.answers: Counter[str] = Counter()
        self._listener = listen(address)
        self.address: str = "{}:{}".format(*self._listener.getsockname()[:2])
        if self._listener.family == socket.AF_INET6:
            self.address = "[{}]:{}".format(*self._listener.getsockname()[:2])
        self._loop = asyncio.new_event_loop()
        self._accepting = self._loop.create_task(self._accept())
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread that answers requests."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop answering, and close the listening socket."""
        self._loop.call_soon_threadsafe(self._accepting.cancel)
        self._thread.join(ANSWER_S)
        self._listener.close()

    def _run(self) -> None:
        with contextlib.closing(self._loop), contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._accepting)

    async def _accept(self) -> None:
        """Accept connections and start their answers, until the task is cancelled."""
        try:
            while True:
                # accept() fails if the client has disconnected or the limit of open files is reached.
                with contextlib.suppress(OSError):
                    self._start_answer((await self._loop.sock_accept(self._listener))[0])
                await asyncio.sleep(ACCEPT_INTERVAL_S)
        finally:
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    def _start_answer(self, client: socket.socket) -> None:
        """Start a task that answers a client, or close the connection if too many clients wait."""
        if len(self._answering) >= CONNECTIONS_MAX:
            client.close()
            self.answers["closed"] += 1
            return
        task = self._loop.create_task(self._serve(client))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _serve(self, client: socket.socket) -> None:
        """Read one request and send its answer. Disconnect the client after ANSWER_S."""
        reader, writer = await asyncio.open_connection(sock=client, limit=REQUEST_MAX_BYTES)
        # With a limit of 0, drain() returns only when the kernel has accepted all bytes.
        writer.transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(ANSWER_S):
                request = await self._read_request(reader, writer.get_extra_info("sockname")[0])
                writer.write(self._answer(request))
                await writer.drain()
                # Probes of /healthz are no scrapes.
                self.answers[str(request.status)] += request.page != "/healthz"
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self.answers["closed"] += 1
        finally:
            writer.transport.abort()

    async def _read_request(self, reader: asyncio.StreamReader, address: str) -> HttpRequest:
        """Read a request.

        address: address of this machine to which the client connected
        """
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return HttpRequest(431)
        first_line, *rows = head.decode("latin-1").split("\r\n")
        words, headers = first_line.split(" "), defaultdict[str, list[str]](list)
        for name, _, value in (row.partition(":") for row in rows):
            headers[name.lower()].append(value.strip())
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or len(headers["host"]) != 1:
            return HttpRequest(400)
        host = normal_host(headers["host"][0], has_port=True)
        if host not in self._names and host != normal_host(address):
            return HttpRequest(421)
        method, page = words[0], words[1].partition("?")[0]
        if page not in PAGES or (page == "/" and self._page is None):
            return HttpRequest(404)
        accepted = accepted_format(",".join(headers["accept"]))
        return HttpRequest(200 if method in METHODS else 405, page, method, accepted)

    def _answer(self, request: HttpRequest) -> bytes:
        """Return the HTTP response: page, metrics or status in words. The response to HEAD has no body."""
        status_line = STATUS_LINES[request.status]
        body, content_type = f"{status_line}\n".encode(), "text/plain; charset=utf-8"
        if request.status == 200 and request.page != "/healthz":
            body, content_type = self._fresh_text(request.page, request.accept)
        extra_headers = f"Allow: {', '.join(METHODS)}\r\n" if request.status == 405 else ""
        extra_headers += PAGE_HEADERS if request.page == "/" else ""
        head = (
            f"HTTP/1.1 {request.status} {status_line.partition(':')[0]}\r\nContent-Type: {content_type}\r\n"
        )
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n{extra_headers}\r\n"
        return head.encode() + (b"" if request.method == "HEAD" else body)

    def _fresh_text(self, path: str, accept: str) -> tuple[bytes, str]:
        """Return the page, or the metrics in the format that a client accepts, at most one second old."""
        now = time.monotonic()
        if not self._texts or now - self._oldest_text_s >= TEXT_INTERVAL_S:
            self._texts, self._oldest_text_s = {}, now
        # The page has one format for all clients.
        key = path, "" if path == "/" else accept
        if key not in self._texts:
            if path == "/" and self._page is not None:
                self._texts[key] = self._page(), "text/html; charset=utf-8"
            else:
                self._texts[key] = self._text(self.answers, accept)
        return self._texts[key]


def normal_host(host: str, *, has_port: bool = False) -> str:
    """Return a host name or a numeric address in a form that can be compared.

    has_port: `host` may end with a port, as in the header Host
    """
    host = host.strip().lower()
    if has_port:
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.removesuffix(".")
    # A socket for IPv6 shows the addresses of IPv4 clients as ::ffff:192.0.2.7.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def listen(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens on an address.

    Raises UsageError or RunError, with a message that tells the user what to do.
    """
    host, port = address
    where = f"--serve {f'[{host}]' if ':' in host else host}:{port}"
    try:
        family, socket_type, protocol, _, socket_address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
    except OSError:
        raise UsageError(f"{where}: not a numeric address; write it as in 127.0.0.1:9464") from None
    listener = socket.socket(family, socket_type, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(socket_address)
        listener.listen(CONNECTIONS_MAX)
    except OSError as error:
        listener.close()
        next_step = {
            errno.EADDRINUSE: f"choose another port, or end its owner: ss -ltnp 'sport = :{port}'",
            errno.EADDRNOTAVAIL: "choose an address of this machine (ip address)",
        }.get(error.errno or 0, "choose another address or port")
        raise RunError(f"{where}: {os.strerror(error.errno or 0)}; {next_step}") from error
    listener.setblocking(False)
    return listener
