"""Lines of a report: wrapped prose and tables that fit a width without losing a number.

A table that is too wide is not cut: its optional columns (bars) go first, then the remaining
columns continue in a second block under the same key columns. Columns without any value are
left out; the caller says why below the table.
"""

import re
import textwrap
from collections.abc import Container, Iterable, Sequence

from rich.text import Text

from copyscope.units import NOT_AVAILABLE

GAPS = ("  ", " ")  # between columns; the narrow one only where it saves a second block
LABEL_WIDTH = 14
NO_BREAK = "\N{NO-BREAK SPACE}"  # textwrap does not break a line there
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|Gb/s|[GMK]iB|B|s|ms|us|ns)(?![\w/]))")


class Table:
    """Rows of cells; a None cell is an unknown and is shown as n/a."""

    def __init__(
        self,
        keys: Sequence[str],
        *titles: str,
        words: Container[str] = (),
        numbers: Container[str] = (),
        optional: Container[str] = (),
    ) -> None:
        """Columns `keys`, which are repeated in every block, and others; those of numbers stand to the right.

        Keys are words but for `numbers`, others are numbers but for `words`; `optional` may be left out.
        """
        self.titles = (*keys, *titles)
        self.rows: list[Sequence[str | None]] = []
        self.strong: set[int] = set()
        self._keys = range(len(keys))
        self._right = [*(title in numbers for title in keys), *(title not in words for title in titles)]
        self._optional = [title in optional for title in self.titles]

    def add(self, *cells: str | None, strong: bool = False) -> None:
        """Append one row, one cell per column."""
        if len(cells) != len(self.titles):
            raise ValueError(f"table row: {len(cells)} cells for {len(self.titles)} columns")
        if strong:
            self.strong.add(len(self.rows))
        self.rows.append(cells)

    def lines(self, width: int) -> list[Text]:
        """The table as lines of at most `width` columns (a single column wider than that is kept whole)."""
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
        keys = len(self._keys)
        blocks: list[list[int]] = [[*self._keys]]
        for index in shown[keys:]:
            if len(blocks[-1]) > keys and self._width([*blocks[-1], index], gap) > width:
                blocks.append([*self._keys])
            blocks[-1].append(index)
        lines: list[Text] = []
        for block in blocks:
            if lines:
                lines.append(Text())
            lines.extend(self._block(block, gap))
        return lines

    def _column_width(self, index: int) -> int:
        cells = [_shown(row[index]) for row in self.rows]
        return max(len(self.titles[index]), *map(len, cells))

    def _width(self, indexes: list[int], gap: str) -> int:
        return sum(self._column_width(index) for index in indexes) + len(gap) * (len(indexes) - 1)

    def _block(self, indexes: list[int], gap: str) -> Iterable[Text]:
        yield Text(self._line(indexes, self.titles, gap), style="dim")
        for number, row in enumerate(self.rows):
            cells = [_shown(cell) for cell in row]
            yield Text(self._line(indexes, cells, gap), style="bold" if number in self.strong else "")

    def _line(self, indexes: list[int], cells: Sequence[str], gap: str) -> str:
        padded = (
            f"{cells[index]:{'>' if self._right[index] else '<'}{self._column_width(index)}}"
            for index in indexes
        )
        return gap.join(padded).rstrip()


def _shown(cell: str | None) -> str:
    return NOT_AVAILABLE if cell is None else cell


def wrap(text: str, width: int, *, indent: int = 0, style: str = "") -> list[Text]:
    """Prose as lines of at most `width` columns; a number stays with its unit, later lines are indented."""
    glued = NUMBER_AND_UNIT.sub(NO_BREAK, text)
    lines = textwrap.wrap(glued, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [Text(line.replace(NO_BREAK, " "), style=style) for line in lines] or [Text()]


def labelled(label: str, text: str, width: int, *, style: str = "") -> list[Text]:
    """`label   text`, the text hanging under itself: the form of every finding that is no table."""
    lines = wrap(f"{label:<{LABEL_WIDTH - 1}} {text}", width, indent=LABEL_WIDTH, style=style)
    lines[0].stylize("bold", 0, len(label))
    return lines


def heading(title: str, note: str, width: int) -> list[Text]:
    """An empty line, then a title; `note` says in the same line what the numbers below are."""
    lines = wrap(f"{title}  {note}" if note else title, width, indent=2, style="dim")
    lines[0].stylize("bold not dim", 0, len(title))
    return [Text(), *lines]
