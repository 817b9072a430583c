"""Where text goes: a terminal, a pipe or a log, how wide it is, and what must never reach it."""

import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from copyscope.escaping import visible

REPORT_WIDTH = 100  # the widest line of a report, also where nobody says how wide the output is


class SafeConsole(Console):
    """What a program, a file or a record calls itself is text: neither markup nor an escape sequence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*args, **options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text, lines=True), segment.style)


def make_console(stream: TextIO | None = None) -> Console:
    """A console for reports: as wide as the terminal up to 100, and 100 into a file or a pipe.

    With NO_COLOR set (no-color.org) there is no escape code at all, bold type included.
    """
    out = sys.stdout if stream is None else stream
    width = None if out.isatty() else REPORT_WIDTH
    plain = bool(os.environ.get("NO_COLOR"))
    return SafeConsole(file=out, width=width, color_system=None if plain else "auto")


def has_screen(console: Console) -> bool:
    """Whether it is a terminal that has a size and can be drawn on."""
    return console.is_terminal and not console.is_dumb_terminal


def report_width(console: Console) -> int:
    """Columns to use on this console: its width, at most 100."""
    return min(console.width, REPORT_WIDTH)


def print_lines(lines: list[Text], console: Console) -> None:
    """Print finished lines as they are: no second wrapping, no cropping."""
    for line in lines:
        line.plain = visible(line.plain)  # one line stays one
        console.print(line, soft_wrap=True)
