# SPDX-License-Identifier: GPL-2.0-only
"""Run the commands of pages again, as root, and replace the output below each `    $ copyscope ...`.

Usage: `commands.py PAGE...`. Indented lines below a command are its output; all other lines of a page stay.
The commands of a page share a directory, in which `results` is a link to the tree's results. The output of a
command that ends with `> /dev/null` is not shown. Two comments above a command change what is run and shown:

`<!-- beside: nginx -->` names a server that runs meanwhile, under load (real_servers.py).
`<!-- paragraphs: 1 3:5 -->` shows the first paragraph of the output and five lines of the third.
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
# A block of Markdown is indented by four blanks; the output ends with the block.
BLOCK = re.compile(
    r"((?:<!-- beside: (?P<beside>\S+) -->\n)?(?:<!-- paragraphs: (?P<paragraphs>[\d: ]+) -->\n)?"
    r"    \$ (?:sudo )?(?P<command>copyscope .*)\n)(?P<output>(?:    (?!\$ ).*\n|\n(?=    (?!\$ )))*)"
)
# Line in place of lines of an output that a page does not show.
OMISSION = "    ..."
TIMEOUT_S = 600
# Lines of pages have at most 100 columns, and four of these are indentation.
WIDTH = 96
# Exit status of a comparison that found a difference.
DIFFERS = 1


def output_of(command: str, directory: Path) -> str:
    """Return the output of a command, as a block. Raises CalledProcessError if the command fails."""
    shown_command, silent, _ = command.partition(" > /dev/null")
    argv = [str(ROOT / "bin" / "copyscope"), *shlex.split(shown_command)[1:]]
    print(command, file=sys.stderr)
    terminal = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, env=terminal, cwd=directory, check=False, timeout=TIMEOUT_S
    )
    if done.returncode not in (0, DIFFERS):
        raise subprocess.CalledProcessError(done.returncode, argv)
    if silent:
        return ""
    # Pages show the commands of an installed copyscope.
    text = done.stdout.decode().replace(str(ROOT / "bin" / "copyscope"), "copyscope")
    lines = (line.rstrip() for line in text.strip("\n").splitlines())
    return "".join(f"    {line}\n" if line else "\n" for line in lines)


def shorten(output: str, selection: str | None) -> str:
    """Return the selected paragraphs of a block, with `...` in place of omitted lines.

    selection: numbers of paragraphs, from 1; `2:8` selects eight lines of the second. None: the whole block.
    """
    if selection is None:
        return output
    paragraphs = output.rstrip("\n").split("\n\n")
    shown: list[str] = []
    last_number = 0
    for number_text, _, line_count in (item.partition(":") for item in selection.split()):
        number = int(number_text)
        lines = paragraphs[number - 1].splitlines()
        kept_lines = lines[: int(line_count)] if line_count else lines
        if number > last_number + 1 and not (shown and shown[-1].endswith(OMISSION)):
            shown.append(OMISSION)
        shown.append("\n".join([*kept_lines, *[OMISSION] * (len(kept_lines) < len(lines))]))
        last_number = number
    if last_number < len(paragraphs) and not shown[-1].endswith(OMISSION):
        shown.append(OMISSION)
    return "\n\n".join(shown) + "\n"


def answer_block(block: re.Match[str], directory: Path) -> str:
    """Return a block of a page with the present output of its command."""
    with tempfile.TemporaryDirectory() as scratch, real_servers.started(block["beside"], Path(scratch)):
        return block[1] + shorten(output_of(block["command"], directory), block["paragraphs"])


def main(pages: list[str]) -> None:
    for page in map(Path, pages):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "results").symlink_to(ROOT / "results")
            answered_text = BLOCK.sub(partial(answer_block, directory=Path(directory)), text)
        page.write_text(answered_text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
