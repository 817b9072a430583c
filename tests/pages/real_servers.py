# SPDX-License-Identifier: GPL-2.0-only
"""Real servers with a load on loopback, which run beside the commands of pages."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import programs
from copyscope.base import paths

HERE = Path(__file__).resolve().parent
LIVE = HERE.parent / "live"
# Time until the load of a server is steady.
SETTLED_S = 1.0
HAPROXY = """\
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
{options}
frontend all
  bind 127.0.0.1:{port}
  default_backend files
backend files
  server nginx 127.0.0.1:{files}
"""


@contextlib.contextmanager
def nginx(sendfile: str, directory: Path) -> Iterator[None]:
    with programs.nginx(directory, sendfile) as (_, port), programs.fetching(port):
        yield


@contextlib.contextmanager
def redis(directory: Path) -> Iterator[None]:
    port = programs.free_port()
    server = ["redis-server", "--port", str(port), "--save", "", "--dir", str(directory)]
    load = ["redis-benchmark", "-p", str(port), "-d", "65536", "-q"]
    with programs.running(server):
        programs.wait_for_port(port)
        subprocess.run([*load, "-t", "set", "-n", "100"], check=True, stdout=subprocess.DEVNULL)
        with programs.running([*load, "-t", "get", "-n", "100000000"]):
            yield


@contextlib.contextmanager
def iperf3(_: Path) -> Iterator[None]:
    with programs.running(["iperf3", "-s", "-B", "127.0.0.1"]):
        programs.wait_for_port(5201)
        yield


@contextlib.contextmanager
def sender(directory: Path) -> Iterator[None]:
    """Run `myserver`, which sends to this machine with zero-copy and waits for each notification."""
    program = directory / "myserver"
    program.symlink_to(paths.OUTPUT / "tests" / "moves")
    with programs.running([str(program), "wait_each", "600s", str(directory / "said")]):
        yield


@contextlib.contextmanager
def haproxy(options: str, directory: Path) -> Iterator[None]:
    """Run haproxy in front of nginx with `sendfile on`."""
    with programs.nginx(directory, "on") as (_, files):
        port = programs.free_port()
        config = directory / "haproxy.cfg"
        config.write_text(HAPROXY.format(options=options, port=port, files=files))
        with programs.running(["haproxy", "-f", str(config)]):
            programs.wait_for_port(port)
            with programs.fetching(port):
                yield


@contextlib.contextmanager
def go_relay(directory: Path) -> Iterator[None]:
    """Run a relay in Go that forwards by io.Copy(), in front of nginx with `sendfile on`."""
    program = directory / "relay"
    subprocess.run(["go", "build", "-o", program, HERE / "relay.go"], cwd=directory, check=True)
    with programs.nginx(directory, "on") as (_, files):
        port = programs.free_port()
        with programs.running([str(program), str(port), str(files)]):
            programs.wait_for_port(port)
            with programs.fetching(port):
                yield


@contextlib.contextmanager
def asyncio_tls(directory: Path) -> Iterator[None]:
    """Run `pyserver`, which sends a file by `loop.sendfile()` over TLS."""
    both = programs.certificate(directory)
    (directory / "big").write_bytes(bytes(16 << 20))
    port = programs.free_port()
    words = [LIVE / "files_over_tls.py", port, directory / "big", both]
    program = directory / "pyserver"
    program.symlink_to(Path(sys.executable).resolve())
    with programs.running([str(program), *map(str, words)]):
        programs.wait_for_port(port)
        with programs.receiving(port, tls=True):
            yield


BESIDE: dict[str | None, Callable[[Path], AbstractContextManager[None]]] = {
    None: lambda _: contextlib.nullcontext(),
    "nginx": partial(nginx, "off"),
    "nginx-sendfile": partial(nginx, "on"),
    "redis": redis,
    "iperf3": iperf3,
    "sender": sender,
    "haproxy": partial(haproxy, ""),
    "haproxy-splice": partial(haproxy, "  option splice-response"),
    "go-relay": go_relay,
    "asyncio-tls": asyncio_tls,
}


@contextlib.contextmanager
def started(name: str | None, directory: Path) -> Iterator[None]:
    """Run a server with its load until the block ends."""
    with BESIDE[name](directory):
        if name:
            time.sleep(SETTLED_S)
        yield
