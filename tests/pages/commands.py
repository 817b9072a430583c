"""Runs the commands of pages again, as root: below each `    $ copyscope ...` stands what it prints now.

`commands.py PAGE...`. What goes on below a command is its output; the lines of a page beside that stay.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Four blanks make a block of Markdown; the output ends with the block.
BLOCK = re.compile(r"(    \$ (?:sudo )?(copyscope .*)\n)((?:    .*\n|\n(?=    ))*)")
TIMEOUT_S = 600
WIDTH = 100


def output_of(command: str) -> str:
    """What it prints, as a block. Raises CalledProcessError: one that fails is no example."""
    words = [str(ROOT / "bin" / "copyscope"), *shlex.split(command)[1:]]
    print(command, file=sys.stderr)
    terminal = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    done = subprocess.run(words, stdout=subprocess.PIPE, env=terminal, check=True, timeout=TIMEOUT_S)
    lines = (line.rstrip() for line in done.stdout.decode().strip("\n").splitlines())
    return "".join(f"    {line}\n" if line else "\n" for line in lines)


def main(pages: list[str]) -> None:
    for page in map(Path, pages):
        text = page.read_text(encoding="utf-8")
        page.write_text(BLOCK.sub(lambda found: found[1] + output_of(found[2]), text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
