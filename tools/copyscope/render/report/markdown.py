"""A report as Markdown: reads well as text, and on any code host."""

import re
from collections.abc import Sequence
from dataclasses import replace

from copyscope.escaping import visible
from copyscope.render.report import blocks, charts


def write(document: Sequence[blocks.Block]) -> str:
    """The whole document; pictures point to plots/NAME.png beside it."""
    return _all(document) + "\n"


def _all(document: Sequence[blocks.Block]) -> str:
    return "\n\n".join(_block(block) for block in document)


def _block(block: blocks.Block) -> str:  # noqa: PLR0911 (a row for each kind)
    match block:
        case blocks.Heading():
            return f"{'#' * block.level} {_text(block.text)}"
        case blocks.Paragraph():
            return f"**{_text(block.text)}**" if block.strong else _text(block.text)
        case blocks.Bullets():
            return "\n".join(f"- {_text(item)}" for item in block.items)
        case blocks.Picture():
            return f"![{_text(block.alt)}](plots/{block.name}.png)"
        case blocks.Code():
            # A fence is longer than any that stands inside.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
            return f"{fence}\n{visible(block.text, lines=True)}\n{fence}"
        case blocks.Bars():
            return _table(
                blocks.Table(["", ""], [[bar.label, bar.text] for bar in block.bars], title=block.title)
            )
        case blocks.Curves():
            return _table(replace(charts.numbers(block), title=block.title))
        case blocks.Choice():
            view = block.views[block.first]
            return f"{_text(', '.join(view.setting))}\n\n{_all(view.blocks)}"
        case blocks.Fold():
            return _all(block.blocks)
        case blocks.Table():
            return _table(block)


def _table(table: blocks.Table) -> str:
    rules = ["--:" if index in table.numbers else "---" for index in range(len(table.columns))]
    lines = [_line(table.columns), f"|{'|'.join(rules)}|", *(_line(row) for row in table.rows)]
    title = [f"{_text(table.title)}\n"] if table.title else []
    notes = [f"\n{_text(note)}" for note in table.notes]
    return "\n".join([*title, *lines, *notes])


def _line(cells: Sequence[str | blocks.Cell]) -> str:
    return "| " + " | ".join(_text(blocks.as_cell(cell).text).replace("|", "\\|") for cell in cells) + " |"


def _text(text: str) -> str:
    """Text that means itself: what Markdown would read as markup is escaped."""
    for character in "\\`*_<>[]":
        text = text.replace(character, f"\\{character}")
    return visible(" ".join(text.split()))
