# SPDX-License-Identifier: GPL-2.0-only
"""Start real programs on loopback with a configuration of the tests, and end them by their pid."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from profiling import SLOW, record_of

Record = dict[str, Any]

# Factor for the duration of programs in an emulated guest, where attaching and reading take a second each.
STRETCH = max(1.0, SLOW / 2)
# In a guest the load shares one emulated CPU with copyscope, so it runs with a lower priority.
POLITE = ("nice", "-n", "10") if SLOW > 1 else ()
# Leaves out function hooks: they take longest to attach, and they have tests of their own.
SAMPLED = ("--instruments", "counters,calls,sampler")

NGINX = """\
daemon off;
master_process on;
worker_processes 1;
user root;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    sendfile {sendfile};
    client_body_temp_path {directory}; proxy_temp_path {directory};
    fastcgi_temp_path {directory}; uwsgi_temp_path {directory}; scgi_temp_path {directory};
    keepalive_requests 100000;
    server {{ listen 127.0.0.1:{port}; root {directory}; }}
}}
"""


def hook_state(record: Record, hook: str) -> str:
    return next(str(row["state"]) for row in record["hooks"] if row["id"] == hook)


def missing(*programs: str) -> str | None:
    """Return the first program that is not installed, or None."""
    return next(
        (name for name in programs if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None), None
    )


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def busy_cpus() -> Iterator[None]:
    """Run a busy loop on each CPU."""
    with contextlib.ExitStack() as held:
        for cpu in os.sched_getaffinity(0):
            held.enter_context(running(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]))
        yield


@contextlib.contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*POLITE, *argv], stdout=quiet, stderr=quiet, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5 * SLOW)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(port: int) -> None:
    """Wait until a program listens on the port. Do not connect: iperf3 -s would take that for a test."""
    deadline = time.monotonic() + 10 * SLOW
    argv = ["ss", "-H", "-l", "-t", "-n", f"sport = :{port}"]
    while time.monotonic() < deadline:
        if subprocess.run(argv, capture_output=True, text=True, check=True).stdout:
            return
        time.sleep(0.02)
    raise AssertionError(f"nobody listens on port {port}")


@contextlib.contextmanager
def nginx(directory: Path, sendfile: str) -> Iterator[tuple[int, int]]:
    """Run nginx; yield (pid of its master, port). It serves `big`, a file of 10 MiB."""
    port = free_port()
    (directory / "big").write_bytes(bytes(10 << 20))
    config = directory / "nginx.conf"
    config.write_text(NGINX.format(directory=directory, sendfile=sendfile, port=port))
    with running(["nginx", "-p", str(directory), "-c", str(config)]) as process:
        wait_for_port(port)
        yield process.pid, port


@contextlib.contextmanager
def http_server(directory: Path) -> Iterator[tuple[int, int]]:
    """Run python3 -m http.server; yield (pid, port). It serves `big`, a file of 10 MiB."""
    port = free_port()
    (directory / "big").write_bytes(bytes(10 << 20))
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with running(argv, cwd=directory) as process:
        wait_for_port(port)
        yield process.pid, port


def fetching(port: int) -> contextlib.AbstractContextManager[Any]:
    """Run curl, which fetches the file `big` repeatedly, over one connection if the server allows it."""
    return running(["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{port}/big?[1-100000]"])


def certificate(directory: Path) -> Path:
    """Write a key and a self-signed certificate, valid for a day, into one file of the directory."""
    make = (
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 1 -keyout key -out certificate"
    )
    subprocess.run(make.split(), cwd=directory, check=True, capture_output=True, timeout=60 * SLOW)
    both = directory / "both.pem"
    both.write_bytes(b"".join((directory / name).read_bytes() for name in ("key", "certificate")))
    return both


def receiving(port: int, *, tls: bool) -> contextlib.AbstractContextManager[Any]:
    """Run a client that connects to the port and discards what it receives."""
    return running([sys.executable, "-c", RECEIVE, str(port), "tls" if tls else "plain"])


RECEIVE = """
import socket, ssl, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
if sys.argv[2] == "tls":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sock = context.wrap_socket(sock)
buffer = bytearray(1 << 18)
while sock.recv_into(buffer):
    pass
"""


@contextlib.contextmanager
def iperf3_server() -> Iterator[int]:
    port = free_port()
    with running(["iperf3", "-s", "-p", str(port), "-B", "127.0.0.1"]):
        wait_for_port(port)
        yield port


def watch(*options: str, check: int | None = 0) -> Record:
    """Watch a program and return the record. The default instruments are SAMPLED.

    `check` is the expected exit status (None: any); 0 also requires a valid run.
    """
    instruments = () if "--instruments" in options else SAMPLED
    record = record_of(*instruments, *options, verb="watch", check=None if check == 0 and SLOW > 1 else check)
    assert check != 0 or wrong(record) == [], record["verdict"]
    return record


def wrong(record: Record) -> list[str]:
    """Return the reasons why a run is invalid.

    In a guest, sampled time is ignored: the host stops the guest for longer than a period of the sampler.
    """
    reasons: list[str] = record["verdict"]["reasons"]
    return [reason for reason in reasons if SLOW == 1 or not reason.startswith("identity target_time")]


def stretched(seconds: float) -> str:
    """Return a duration in seconds, longer in an emulated guest, as the text of an option."""
    return str(round(seconds * STRETCH))


def bytes_of(record: Record, account: str) -> int:
    return sum(row["bytes"] or 0 for row in record["ledger"] if row["account"] == account)


def share_of(record: Record, account: str) -> float:
    return sum(row["share"] or 0.0 for row in record["ledger"] if row["account"] == account)


def holding_identities(record: Record) -> set[str]:
    """Return the names of the identities that were checked and hold."""
    return {row["name"] for row in record["identities"] if row["holds"]}


RELAY = """
import os, socket, sys
source = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sink = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
inlet, outlet = os.pipe()
while moved := os.splice(source.fileno(), outlet, 1 << 20):
    while moved:
        moved -= os.splice(inlet, sink.fileno(), moved)
"""
SOURCE = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
peer, _ = server.accept()
block = bytes(1 << 17)
while True:
    peer.sendall(block)
"""
SINK = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
peer, _ = server.accept()
block = bytearray(1 << 17)
while peer.recv_into(block):
    pass
"""


@contextlib.contextmanager
def splice_pipeline() -> Iterator[int]:
    """Yield the pid of a program that moves bytes from one connection to another with splice(2)."""
    first, last = free_port(), free_port()
    python = [sys.executable, "-c"]
    with running([*python, SOURCE, str(first)]), running([*python, SINK, str(last)]):
        wait_for_port(first)
        wait_for_port(last)
        with running([*python, RELAY, str(first), str(last)]) as relay:
            yield relay.pid


@contextlib.contextmanager
def redis(directory: Path, value_bytes: int) -> Iterator[int]:
    """Yield the pid of a redis-server. redis-benchmark sets and gets values of this size."""
    port = free_port()
    server = [
        "redis-server",
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(directory),
    ]
    # Few requests of each kind, so that a second contains both. A guest is slower.
    requests = str(max(round(200 / SLOW), round((1 << 27) / value_bytes / SLOW**2)))
    benchmark = ["redis-benchmark", "-p", str(port), "-t", "set,get", "-d", str(value_bytes)]
    benchmark += ["-c", "4", "-n", requests, "-l", "-q"]
    with running(server) as process:
        wait_for_port(port)
        with running(benchmark):
            time.sleep(0.3 * SLOW)
            yield process.pid


KNOWN = """
import os, socket, struct, sys
how, port, messages, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
peer = socket.create_connection(("127.0.0.1", port))
SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = 60, 0x4000000, 0x2000
payload, completed = bytes(size), 0
pair = socket.socketpair()
if how == "sendfile":
    file = os.memfd_create("known")
    os.write(file, payload)
if how == "zerocopy":
    peer.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
for _ in range(messages):
    if how == "sendfile":
        assert os.sendfile(peer.fileno(), file, 0, size) == size
    elif how == "zerocopy":
        assert peer.send(payload, MSG_ZEROCOPY) == size
    elif how == "written":
        assert os.write(peer.fileno(), payload) == size
    else:
        assert peer.send(payload) == size
    if how == "elsewhere":
        pair[0].send(b"not over TCP")
        assert pair[1].recv(99)
        os.write(pair[0].fileno(), b"nor by these calls")
        assert os.read(pair[1].fileno(), 99)
    back = 0
    while how in ("echo", "peek") and back < size:
        looked = len(peer.recv(size - back, socket.MSG_PEEK)) if how == "peek" else size - back
        back += len(peer.recv(looked))
peer.shutdown(socket.SHUT_WR)
# End of the peer's stream: the peer has received everything.
assert peer.recv(1) == b""
while how == "zerocopy" and completed < messages:
    _, ancillary, _, _ = peer.recvmsg(1, 512, MSG_ERRQUEUE)
    _, _, _, _, _, low, high = struct.unpack_from("=I4B2I", ancillary[0][2])
    completed += high - low + 1
"""
KNOWN_PEER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
peer, _ = server.accept()
while block := peer.recv(1 << 17):
    if sys.argv[2] in ("echo", "peek"):
        peer.sendall(block)
"""


@contextlib.contextmanager
def known_sender(how: str, messages: int, size: int) -> Iterator[list[str]]:
    """Yield a command that sends `messages` messages of `size` bytes to a peer.

    `how`: copied, written, sendfile or zerocopy; echo or peek (the peer sends everything back); elsewhere
    (also sends through a Unix socket, which is not TCP).
    """
    port = free_port()
    with running([sys.executable, "-c", KNOWN_PEER, str(port), how]):
        wait_for_port(port)
        yield [sys.executable, "-c", KNOWN, how, str(port), str(messages), str(size)]
