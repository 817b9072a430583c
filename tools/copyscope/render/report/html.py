"""A report as one HTML page that needs nothing else: no network, no script, its plots inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from copyscope.escaping import for_html
from copyscope.render.report.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table
from copyscope.render.report.page import STYLE

# a longer table is folded away until it is wanted
LONG_ROWS = 24


def write(blocks: Sequence[Block], pictures: Mapping[str, bytes]) -> str:
    """The page. `pictures`: the SVG of each plot by its name."""
    title = next(block.text for block in blocks if isinstance(block, Heading))
    sections = [block for block in blocks if isinstance(block, Heading) and block.level == 2]
    links = "\n".join(f'<a href="#{for_html(s.anchor)}">{for_html(s.text)}</a>' for s in sections)
    body = "\n".join(_block(block, pictures) for block in blocks[1:])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{for_html(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{for_html(title)}</h1>
<nav aria-label="Sections">
{links}
</nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def _block(block: Block, pictures: Mapping[str, bytes]) -> str:
    match block:
        case Heading():
            return f'<h{block.level} id="{for_html(block.anchor)}">{for_html(block.text)}</h{block.level}>'
        case Paragraph():
            mark = ' class="strong"' if block.strong else ""
            return f"<p{mark}>{for_html(block.text)}</p>"
        case Bullets():
            return "<ul>\n" + "\n".join(f"<li>{for_html(item)}</li>" for item in block.items) + "\n</ul>"
        case Code():
            return f'<div class="wide" tabindex="0"><pre>{for_html(block.text)}</pre></div>'
        case Picture():
            return _picture(block, pictures[block.name])
        case Table():
            return _table(block)


def _picture(picture: Picture, svg: bytes) -> str:
    """As an image: the ids inside of one plot cannot meet those of another."""
    data = base64.b64encode(svg).decode()
    return (
        f'<figure id="plot-{for_html(picture.name)}"><div class="wide" tabindex="0">'
        f'<img alt="{for_html(picture.alt)}" src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{for_html(picture.alt)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        marks = [' class="n"' if index in table.numbers else "" for index in range(len(texts))]
        return "".join(f"<{tag}{mark}>{for_html(t)}</{tag}>" for mark, t in zip(marks, texts, strict=True))

    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in table.rows)
    head = f"<thead><tr>{cells('th', table.columns)}</tr></thead>"
    title = f"<caption>{for_html(table.title)}</caption>" if table.title else ""
    made = f'<div class="wide" tabindex="0"><table>{title}{head}\n<tbody>\n{rows}\n</tbody></table></div>'
    if len(table.rows) > LONG_ROWS:
        summary = f"{for_html(table.title or 'Table')}: {len(table.rows)} rows"
        made = f"<details><summary>{summary}</summary>{made}</details>"
    return made + "".join(f'<p class="note">{for_html(note)}</p>' for note in table.notes)
