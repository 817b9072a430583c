"""Runs the commands of pages again, as root: below each `    $ copyscope ...` stands what it prints now.

`commands.py PAGE...`. What goes on below a command is its output; the lines of a page beside that stay. What
runs meanwhile is in the page: `<!-- beside: nginx -->` is a server under load. The commands of a page share a
directory, in which `results` is the tree's; `> /dev/null` runs one and shows nothing.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import real_servers

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
    with tempfile.TemporaryDirectory() as place, real_servers.started(found["beside"], Path(place)):
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
