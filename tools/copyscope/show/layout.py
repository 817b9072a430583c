# SPDX-License-Identifier: GPL-2.0-only
"""Layout of prose and tables on a terminal, and the width and colours of the terminal."""

import os
import re
import sys
import textwrap
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from copyscope.base.spelling import NOT_AVAILABLE, visible

# Maximum width of a report on a terminal, and width of a report in a file or a pipe, in characters.
REPORT_WIDTH = 100


class SafeConsole(Console):
    """Console that prints program and file names literally, never as markup or escape sequences."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*args, **options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text, lines=True), segment.style)


def make_console(stream: TextIO | None = None) -> Console:
    """Return a console for reports, on stdout by default. For a file or a pipe the width is REPORT_WIDTH.

    NO_COLOR (no-color.org) removes all escape codes, including bold type.
    """
    out = sys.stdout if stream is None else stream
    width = None if out.isatty() else REPORT_WIDTH
    no_color = bool(os.environ.get("NO_COLOR"))
    return SafeConsole(file=out, width=width, color_system=None if no_color else "auto")


def has_screen(console: Console) -> bool:
    """Return True for a terminal that has a size and can move the cursor."""
    return console.is_terminal and not console.is_dumb_terminal


def report_width(console: Console) -> int:
    """Return the width of a report on this console, in characters."""
    return min(console.width, REPORT_WIDTH)


def print_lines(lines: list[Text], console: Console) -> None:
    """Print finished lines without further wrapping or cropping."""
    for line in lines:
        line.plain = visible(line.plain)  # escaped, so that control characters cannot break the line
        console.print(line, soft_wrap=True)


# Wide and narrow gap between columns. The narrow gap is used only if the table then needs no second block.
GAPS = ("  ", " ")
LABEL_WIDTH = 14
NO_BREAK = "\N{NO-BREAK SPACE}"  # textwrap does not break a line at this character
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|Gb/s|[GMK]iB|B|s|ms|us|ns)(?![\w/]))")


class TextTable:
    """Table for a terminal that never cuts a number to fit the width. A cell that is None is shown as n/a.

    A table that is too wide first loses its optional columns (bars). If it is still too wide, it continues in
    a second block with the same key columns. Columns without any value are left out.
    """

    def __init__(
        self,
        keys: Sequence[str],
        *titles: str,
        words: Container[str] = (),
        numbers: Container[str] = (),
        optional: Container[str] = (),
    ) -> None:
        """Create an empty table.

        keys: titles of the key columns, which are repeated in every block and aligned to the left
        titles: titles of the other columns, which are aligned to the right
        words: titles of columns that contain words, which are aligned to the left
        numbers: key columns that contain numbers, which are aligned to the right
        optional: titles of columns that a narrow screen may leave out
        """
        self.titles = (*keys, *titles)
        self.rows: list[Sequence[str | None]] = []
        self.strong: set[int] = set()
        self._keys = range(len(keys))
        self._right = [*(title in numbers for title in keys), *(title not in words for title in titles)]
        self._optional = [title in optional for title in self.titles]

    def add(self, *cells: str | None, strong: bool = False) -> None:
        """Append a row with one cell per column. A `strong` row is printed in bold."""
        if len(cells) != len(self.titles):
            raise ValueError(f"table row: {len(cells)} cells for {len(self.titles)} columns")
        if strong:
            self.strong.add(len(self.rows))
        self.rows.append(cells)

    def lines(self, width: int) -> list[Text]:
        """Return the table as lines of at most `width` characters, unless a single column is wider."""
        if not self.rows:
            return []
        shown = [
            index
            for index in range(len(self.titles))
            if index in self._keys or any(row[index] is not None for row in self.rows)
        ]
        if self._width(shown, GAPS[1]) > width:
            shown = [index for index in shown if not self._optional[index]]
        gap = GAPS[1] if self._width(shown, GAPS[0]) > width >= self._width(shown, GAPS[1]) else GAPS[0]
        key_count = len(self._keys)
        blocks: list[list[int]] = [[*self._keys]]
        for index in shown[key_count:]:
            if len(blocks[-1]) > key_count and self._width([*blocks[-1], index], gap) > width:
                blocks.append([*self._keys])
            blocks[-1].append(index)
        lines: list[Text] = []
        for block in blocks:
            if lines:
                lines.append(Text())
            lines.extend(self._block(block, gap))
        return lines

    def _column_width(self, index: int) -> int:
        cells = [_cell_text(row[index]) for row in self.rows]
        return max(len(self.titles[index]), *map(len, cells))

    def _width(self, indexes: list[int], gap: str) -> int:
        return sum(self._column_width(index) for index in indexes) + len(gap) * (len(indexes) - 1)

    def _block(self, indexes: list[int], gap: str) -> Iterable[Text]:
        yield Text(self._line(indexes, self.titles, gap), style="dim")
        for number, row in enumerate(self.rows):
            cells = [_cell_text(cell) for cell in row]
            yield Text(self._line(indexes, cells, gap), style="bold" if number in self.strong else "")

    def _line(self, indexes: list[int], cells: Sequence[str], gap: str) -> str:
        padded = (
            f"{cells[index]:{'>' if self._right[index] else '<'}{self._column_width(index)}}"
            for index in indexes
        )
        return gap.join(padded).rstrip()


def _cell_text(cell: str | None) -> str:
    return NOT_AVAILABLE if cell is None else cell


def wrap(text: str, width: int, *, indent: int = 0, style: str = "") -> list[Text]:
    """Wrap prose to lines of at most `width` characters. No line breaks between a number and its unit.

    indent: indentation of all lines except the first, in characters
    """
    glued = NUMBER_AND_UNIT.sub(NO_BREAK, text)
    lines = textwrap.wrap(glued, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [Text(line.replace(NO_BREAK, " "), style=style) for line in lines] or [Text()]


def labelled(label: str, text: str, width: int, *, style: str = "") -> list[Text]:
    """Return a bold label followed by a text, whose further lines are indented."""
    lines = wrap(f"{label:<{LABEL_WIDTH - 1}} {text}", width, indent=LABEL_WIDTH, style=style)
    lines[0].stylize("bold", 0, len(label))
    return lines


def heading(title: str, note: str, width: int) -> list[Text]:
    """Return an empty line and a bold title, followed by a note on the numbers below."""
    lines = wrap(f"{title}  {note}" if note else title, width, indent=2, style="dim")
    lines[0].stylize("bold not dim", 0, len(title))
    return [Text(), *lines]
