"""Runs the commands of pages again, as root: below each `    $ copyscope ...` stands what it prints now.

`commands.py PAGE...`. What goes on below a command is its output; the lines of a page beside that stay. What
runs meanwhile is in the page: `<!-- beside: nginx -->` is a server under load. The commands of a page share a
directory, in which `results` is the tree's; `> /dev/null` runs one and shows nothing.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import programs
from copyscope import paths

ROOT = Path(__file__).resolve().parents[2]
# Four blanks make a block of Markdown; the output ends with the block.
BLOCK = re.compile(
    r"((?:<!-- beside: (?P<beside>\S+) -->\n)?"
    r"    \$ (?:sudo )?(?P<command>copyscope .*)\n)(?:    (?!\$ ).*\n|\n(?=    (?!\$ )))*"
)
TIMEOUT_S = 600
WIDTH = 100
# Of a comparison that found something.
DIFFERS = 1
# Until a server has its load.
SETTLED_S = 1.0


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
    """`myserver`: it sends to this machine with zero-copy, and waits for each notice."""
    program = directory / "myserver"
    program.symlink_to(paths.OUTPUT / "tests" / "moves")
    with programs.running([str(program), "wait_each", "600s", str(directory / "said")]):
        yield


BESIDE: dict[str | None, Callable[[Path], AbstractContextManager[None]]] = {
    None: lambda _: contextlib.nullcontext(),
    "nginx": partial(nginx, "off"),
    "nginx-sendfile": partial(nginx, "on"),
    "redis": redis,
    "iperf3": iperf3,
    "sender": sender,
}


def output_of(command: str, directory: Path) -> str:
    """What it prints, as a block. Raises CalledProcessError: one that fails is no example."""
    asked, silent, _ = command.partition(" > /dev/null")
    words = [str(ROOT / "bin" / "copyscope"), *shlex.split(asked)[1:]]
    print(command, file=sys.stderr)
    terminal = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    done = subprocess.run(
        words, stdout=subprocess.PIPE, env=terminal, cwd=directory, check=False, timeout=TIMEOUT_S
    )
    if done.returncode not in (0, DIFFERS):
        raise subprocess.CalledProcessError(done.returncode, words)
    if silent:
        return ""
    lines = (line.rstrip() for line in done.stdout.decode().strip("\n").splitlines())
    return "".join(f"    {line}\n" if line else "\n" for line in lines)


def answered(found: re.Match[str], directory: Path) -> str:
    """A block with the output of its command, beside what the page says."""
    with tempfile.TemporaryDirectory() as place, BESIDE[found["beside"]](Path(place)):
        if found["beside"]:
            time.sleep(SETTLED_S)
        return found[1] + output_of(found["command"], directory)


def main(pages: list[str]) -> None:
    for page in map(Path, pages):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "results").symlink_to(ROOT / "results")
            told = BLOCK.sub(partial(answered, directory=Path(directory)), text)
        page.write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
