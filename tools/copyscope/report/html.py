"""A report as one HTML page that needs nothing else: no network, its plots and its script inside.

report.html.j2 is the page. What is foreign is escaped by Jinja2, and made visible here before that.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from copyscope.escaping import visible
from copyscope.report import blocks, charts

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent


def write(document: Sequence[blocks.Block], pictures: Mapping[str, bytes]) -> str:
    """The page. `pictures`: the SVG of each plot by its name. Before the first section stands its head."""
    sections = [block for block in document if isinstance(block, blocks.Heading) and block.level == 2]
    at = document.index(sections[0]) if sections else len(document)
    script = (HERE / "report.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=next(block.text for block in document if isinstance(block, blocks.Heading)),
            head=document[1:at],
            sections=sections,
            body=document[at:],
            pictures={name: base64.b64encode(svg).decode() for name, svg in pictures.items()},
            style=(HERE / "report.css").read_text(encoding="utf-8"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 (50 ms)

    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value, lines=True) if type(value) is str else value,
    )
    made.filters |= {"json": json.dumps, "kind": lambda block: type(block).__name__, "cell": blocks.as_cell}
    made.globals |= {"drawn": charts.drawn, "numbers": charts.numbers, "rows_of_charts": rows_of_charts}
    return made


def rows_of_charts(document: Sequence[blocks.Block]) -> list[list[blocks.Block]]:
    """Charts that follow each other stand side by side where there is room; all else alone."""
    groups = groupby(document, key=lambda block: isinstance(block, blocks.Curves))
    return [one for charted, group in groups for one in ([list(group)] if charted else [[b] for b in group])]
