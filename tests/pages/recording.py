# SPDX-License-Identifier: GPL-2.0-only
"""Record real commands in docs/recording.cast, as root, and draw docs/recording.svg, which plays it.

`recording.py` makes both; `recording.py --draw` draws the existing recording.
The recording is asciicast v2 (docs.asciinema.org/manual/asciicast/v2): `asciinema play` plays it.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

import pyte
import real_servers

ROOT = Path(__file__).resolve().parents[2]
CAST = ROOT / "docs" / "recording.cast"
COLUMNS, LINES = 80, 24
# Server that runs meanwhile, and the typed command.
SCENES = (
    ("nginx", "copyscope watch nginx --duration 4"),
    ("nginx", "copyscope advise nginx --duration 4"),
    ("nginx-sendfile", "copyscope watch nginx --duration 4"),
)
PROMPT, CLEAR = "\x1b[1m$\x1b[0m ", "\x1b[H\x1b[2J"
KEY_S, READ_S, LONGEST_S = 0.05, 5.0, 1.0
CHARACTER_PX, LINE_PX, MARGIN_PX = 8.4, 18, 12
COLOURS = {"red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef", "cyan": "#56b6c2"}
HEXADECIMAL = re.compile("[0-9a-f]{6}")
PAPER, INK = "#1e2127", "#d7dae0"

Event = tuple[float, str]


def output_of(command: str) -> Iterator[Event]:
    """Yield the output of a command in a terminal: seconds since the previous output, and text."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (LINES, COLUMNS))
    words = [str(ROOT / "bin" / "copyscope"), *command.split()[1:]]
    terminal = os.environ | {"TERM": "xterm-256color"}
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=terminal) as process:
        os.close(theirs)
        before = time.monotonic()
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                text = os.read(ours, 1 << 16).decode(errors="replace")
            except OSError:  # the other end of the terminal is closed
                break
            now = time.monotonic()
            yield min(now - before, LONGEST_S), text
            before = now
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{command}: status {process.returncode}: not recorded")


def scene(server: str, command: str) -> Iterator[Event]:
    """Yield the events of a scene: a command is typed, prints its output, and stays on screen."""
    with tempfile.TemporaryDirectory() as directory, real_servers.started(server, Path(directory)):
        yield 0.0, CLEAR + PROMPT
        yield from ((KEY_S, key) for key in "sudo " + command)
        yield 0.4, "\r\n"
        yield from output_of(command)
        yield READ_S, ""


def record() -> None:
    header = {"version": 2, "width": COLUMNS, "height": LINES, "title": "copyscope"}
    now, lines = 0.0, [json.dumps(header)]
    for server, command in SCENES:
        for after, text in scene(server, command):
            now += after
            lines.append(json.dumps([round(now, 3), "o", text]))
    CAST.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Frame:
    at_s: float
    drawn: str


def frames() -> tuple[list[Frame], float]:
    """Return the different contents of the terminal, and the end of the recording in seconds."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.Stream(screen)
    shown: list[Frame] = []
    at_s = 0.0
    for line in CAST.read_text(encoding="utf-8").splitlines()[1:]:
        at_s, _, text = json.loads(line)
        stream.feed(text)
        drawn = "".join(row_of(screen, number) for number in range(LINES))
        if not shown or drawn != shown[-1].drawn:
            shown.append(Frame(at_s, drawn))
    return shown, at_s


def row_of(screen: pyte.Screen, number: int) -> str:
    """Return a line of the screen as SVG text, with one element for each run of equal colour."""
    cells = [screen.buffer[number][column] for column in range(COLUMNS)]
    while cells and cells[-1].data == " ":
        cells.pop()
    parts = []
    for (colour, bold), run in groupby(cells, lambda cell: (cell.fg, cell.bold)):
        # pyte names a colour, or gives it in hexadecimal.
        named = COLOURS.get(colour, f"#{colour}" if HEXADECIMAL.fullmatch(colour) else "")
        fill = f' fill="{named}"' if named else ""
        weight = ' font-weight="bold"' if bold else ""
        text = escape("".join(cell.data for cell in run))
        parts.append(f"<tspan{fill}{weight}>{text}</tspan>" if fill or weight else text)
    top = MARGIN_PX + LINE_PX * (number + 0.75)
    return f'<text x="{MARGIN_PX}" y="{top:g}">{"".join(parts)}</text>' if parts else ""


def draw() -> str:
    """Return an SVG with all frames side by side, of which one is visible.

    Readers who prefer reduced motion see the last frame.
    """
    shown, end_s = frames()
    width, height = COLUMNS * CHARACTER_PX + 2 * MARGIN_PX, LINES * LINE_PX + 2 * MARGIN_PX
    steps = "".join(
        f"{100 * frame.at_s / end_s:.3f}%{{transform:translateX({-width * number:g}px)}}"
        for number, frame in enumerate(shown)
    )
    last = f"translateX({-width * (len(shown) - 1):g}px)"
    style = (
        f"text{{font:14px ui-monospace,Menlo,Consolas,monospace;fill:{INK};white-space:pre}}"
        f"@keyframes play{{{steps}100%{{transform:{last}}}}}"
        f".film{{animation:play {end_s:.2f}s steps(1,end) infinite}}"
        f"@media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:{last}}}}}"
    )
    film = "".join(
        f'<g transform="translate({width * number:g} 0)">{frame.drawn}</g>'
        for number, frame in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>copyscope in a terminal: nginx copies each byte twice; with sendfile on, not</title>"
        f'<style>{style}</style><rect width="100%" height="100%" rx="8" fill="{PAPER}"/>'
        f'<g class="film">{film}</g></svg>\n'
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["--draw"]:
        record()
    CAST.with_suffix(".svg").write_text(draw(), encoding="utf-8")
