"""A report as one HTML page that needs nothing else: no network, its plots and its script inside."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from copyscope.escaping import for_html
from copyscope.report import blocks, charts
from copyscope.report.page import SCRIPT, STYLE

# a longer table is folded away until it is wanted
LONG_ROWS = 24

Pictures = Mapping[str, bytes]
# Whatever a record or a host calls itself: the page fetches nothing, and runs this one script only.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
    f"{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
)


def write(document: Sequence[blocks.Block], pictures: Pictures) -> str:
    """The page. `pictures`: the SVG of each plot by its name. Before the first section stands its head."""
    title = next(block.text for block in document if isinstance(block, blocks.Heading))
    sections = [block for block in document if isinstance(block, blocks.Heading) and block.level == 2]
    links = "\n".join(f'<a href="#{for_html(s.anchor)}">{for_html(s.text)}</a>' for s in sections)
    at = document.index(sections[0]) if sections else len(document)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{for_html(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{for_html(title)}</h1>
{_all(document[1:at], pictures)}
</header>
<nav aria-label="Sections">
{links}
</nav>
<main>
{_all(document[at:], pictures)}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _all(document: Sequence[blocks.Block], pictures: Pictures) -> str:
    """Charts that follow each other stand side by side where there is room."""
    made = []
    for charted, group in groupby(document, key=lambda block: isinstance(block, blocks.Curves)):
        texts = [_block(block, pictures) for block in group]
        made += [f'<div class="charts">{"".join(texts)}</div>'] if charted else texts
    return "\n".join(made)


def _block(block: blocks.Block, pictures: Pictures) -> str:  # noqa: PLR0911 (a row for each kind)
    match block:
        case blocks.Heading():
            return f'<h{block.level} id="{for_html(block.anchor)}">{for_html(block.text)}</h{block.level}>'
        case blocks.Paragraph():
            mark = ' class="strong"' if block.strong else ""
            return f"<p{mark}>{for_html(block.text)}</p>"
        case blocks.Bullets():
            return "<ul>\n" + "\n".join(f"<li>{for_html(item)}</li>" for item in block.items) + "\n</ul>"
        case blocks.Code():
            return f'<div class="wide" tabindex="0"><pre>{for_html(block.text)}</pre></div>'
        case blocks.Picture():
            return _picture(block, pictures[block.name])
        case blocks.Bars():
            return charts.bars(block)
        case blocks.Curves():
            folded = _folded("in numbers", _table(charts.numbers(block)))
            return charts.curves(block).removesuffix("</figure>") + folded + "</figure>"
        case blocks.Choice():
            return _choice(block, pictures)
        case blocks.Fold():
            return _folded(block.summary, _all(block.blocks, pictures))
        case blocks.Table():
            made = _table(block)
            if len(block.rows) > LONG_ROWS and not block.whole:
                made = _folded(f"{block.title or 'Table'}: {len(block.rows)} rows", made)
            return made + "".join(f'<p class="note">{for_html(note)}</p>' for note in block.notes)


def _folded(summary: str, inside: str) -> str:
    return f"<details><summary>{for_html(summary)}</summary>{inside}</details>"


def _choice(choice: blocks.Choice, pictures: Pictures) -> str:
    """Each view folded away but the first; the script has a menu for each name instead."""

    def data(texts: Sequence[str]) -> str:
        return for_html(json.dumps(list(texts)))

    views = "\n".join(
        f'<details class="view" data-setting="{data(view.setting)}"{" open" * (index == choice.first)}>'
        f"<summary>{for_html(', '.join(view.setting) or 'all')}</summary>"
        f"{_all(view.blocks, pictures)}</details>"
        for index, view in enumerate(choice.views)
    )
    return f'<div class="choice" data-names="{data(choice.names)}">\n{views}\n</div>'


def _picture(picture: blocks.Picture, svg: bytes) -> str:
    """As an image: the ids inside of one plot cannot meet those of another."""
    data = base64.b64encode(svg).decode()
    return (
        f'<figure id="plot-{for_html(picture.name)}"><div class="paper">'
        f'<img alt="{for_html(picture.alt)}" src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{for_html(picture.title)}. {for_html(picture.alt)}</figcaption></figure>"
    )


def _table(table: blocks.Table) -> str:
    def attributes(index: int, tone: str = "") -> str:
        names = " ".join(filter(None, ("n" if index in table.numbers else "", tone)))
        return f' class="{names}"' if names else ""

    def shown(cell: blocks.Cell) -> str:
        text = for_html(cell.text)
        return f'<a href="#{for_html(cell.link)}">{text}</a>' if cell.link else text

    head = "".join(f"<th{attributes(i)}>{for_html(name)}</th>" for i, name in enumerate(table.columns))
    rows = []
    for index, row in enumerate(table.rows):
        made = enumerate(map(blocks.as_cell, row))
        cells = "".join(f"<td{attributes(i, cell.tone)}>{shown(cell)}</td>" for i, cell in made)
        named = f' id="{for_html(table.anchors[index])}"' if table.anchors else ""
        rows.append(f"<tr{named}>{cells}</tr>")
    title = f"<caption>{for_html(table.title)}</caption>" if table.title else ""
    body = "\n".join(rows)
    return (
        f'<div class="wide" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
