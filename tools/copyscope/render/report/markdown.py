"""A report as Markdown: reads well as text, and on any code host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copyscope.escaping import visible
from copyscope.render.report import charts
from copyscope.render.report.blocks import (
    Bars,
    Block,
    Bullets,
    Cell,
    Choice,
    Code,
    Curves,
    Fold,
    Heading,
    Paragraph,
    Picture,
    Table,
    text_of,
)


def write(blocks: Sequence[Block]) -> str:
    """The whole document; pictures point to plots/NAME.png beside it."""
    return _all(blocks) + "\n"


def _all(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:  # noqa: PLR0911 (a row for each kind)
    match block:
        case Heading():
            return f"{'#' * block.level} {_text(block.text)}"
        case Paragraph():
            return f"**{_text(block.text)}**" if block.strong else _text(block.text)
        case Bullets():
            return "\n".join(f"- {_text(item)}" for item in block.items)
        case Picture():
            return f"![{_text(block.alt)}](plots/{block.name}.png)"
        case Code():
            # A fence is longer than any that stands inside.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
            return f"{fence}\n{visible(block.text, lines=True)}\n{fence}"
        case Bars():
            return _table(Table(["", ""], [[bar.label, bar.text] for bar in block.bars], title=block.title))
        case Curves():
            columns, rows = charts.numbers(block)
            return _table(Table(columns, rows, frozenset(range(1, len(columns))), title=block.title))
        case Choice():
            view = block.views[block.first]
            return f"{_text(', '.join(view.setting))}\n\n{_all(view.blocks)}"
        case Fold():
            return _all(block.blocks)
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rules = ["--:" if index in table.numbers else "---" for index in range(len(table.columns))]
    lines = [_line(table.columns), f"|{'|'.join(rules)}|", *(_line(row) for row in table.rows)]
    title = [f"{_text(table.title)}\n"] if table.title else []
    notes = [f"\n{_text(note)}" for note in table.notes]
    return "\n".join([*title, *lines, *notes])


def _line(cells: Sequence[str | Cell]) -> str:
    return "| " + " | ".join(_text(text_of(cell)).replace("|", "\\|") for cell in cells) + " |"


def _text(text: str) -> str:
    """Text that means itself: what Markdown would read as markup is escaped."""
    for character in "\\`*_<>[]":
        text = text.replace(character, f"\\{character}")
    return visible(" ".join(text.split()))
