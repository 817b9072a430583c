# SPDX-License-Identifier: GPL-2.0-only
"""Blocks of a page (headings, tables, bars, pictures), and a function that returns the page as one HTML file.

The template of the page is report.html.j2. Records can contain any text: control characters are replaced
here, and Jinja2 escapes the rest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from copyscope.base.spelling import visible
from copyscope.record.measured import Machine
from copyscope.report.plots.catalogue import BLACK, FAINT, GRID, INK

if TYPE_CHECKING:
    from jinja2 import Environment


Tone = Literal["", "good", "bad", "open"]


@dataclass(frozen=True)
class Heading:
    """A heading of the page.

    level: 1 for the page title, 2 for a section, 3 for a subsection
    anchor: id of the heading, for links to it
    """

    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Paragraph:
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Cell:
    """A table cell.

    tone: background colour
    link: anchor of the evidence to which the cell links; empty: no link
    """

    text: str
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True)
class TableBlock:
    """A table of the page. A long table is collapsed until the reader opens it.

    numbers: indexes of the columns with numbers, which are aligned to the right
    notes: paragraphs below the table
    anchors: anchor of each row, for links to the row; empty: no anchors
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    numbers: frozenset[int] = frozenset()
    notes: Sequence[str] = ()
    title: str = ""
    anchors: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """An SVG picture.

    name: key in the pictures of write_html()
    alt: text alternative for readers who do not see the picture
    image: True for an SVG with its own style; the page shows it with <img>
    """

    name: str
    title: str
    alt: str
    image: bool = False


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Box:
    """A part of a bar. `left` and `width` are fractions (0 to 1) of the width available to every bar."""

    left: float
    width: float
    colour: str
    name: str = ""


@dataclass(frozen=True)
class BarRow:
    """A bar of boxes.

    label: text to the left of the bar
    text: numbers of the bar, written to its right
    whisker: ends of the error bar, as fractions (0 to 1) of the width available to every bar
    """

    label: str
    boxes: Sequence[Box]
    text: str
    whisker: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bars:
    """Horizontal bars on the same scale.

    legend: pairs of (colour, meaning)
    """

    title: str
    bars: Sequence[BarRow]
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class View:
    """Blocks for one setting of a Choice. The setting has a value for each menu of the Choice."""

    setting: Sequence[str]
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Choice:
    """Views from which the reader selects one with menus.

    names: labels of the menus
    first: index of the view that the page shows initially
    """

    names: Sequence[str]
    views: Sequence[View]
    first: int = 0


@dataclass(frozen=True)
class Fold:
    """Blocks that are hidden until the reader opens them."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Paragraph | Bullets | TableBlock | Picture | Code | Bars | Choice | Fold


def as_cell(cell: str | Cell) -> Cell:
    """Return the cell, or plain text as a cell without colour or link."""
    return cell if isinstance(cell, Cell) else Cell(cell)


# Directory of the template, style and script of the page.
HERE = Path(__file__).parent
# Colour in a plot with white background -> CSS variable, which follows the light or dark theme of the page.
THEME_COLOURS = {
    **dict.fromkeys((INK, BLACK), "var(--ink)"),
    **{FAINT: "var(--faint)", GRID.lower(): "var(--line)", "#ffffff": "var(--paper)"},
}


def write_html(document: Sequence[Block], pictures: Mapping[str, bytes]) -> str:
    """Return a page as HTML. Blocks before the first section form the header of the page.

    document: blocks of the page, which begin with its title
    pictures: name of a Picture block -> SVG
    """
    sections = [block for block in document if isinstance(block, Heading) and block.level == 2]
    body_start = document.index(sections[0]) if sections else len(document)
    script = (HERE / "report.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=next(block.text for block in document if isinstance(block, Heading)),
            head=document[1:body_start],
            sections=sections,
            body=document[body_start:],
            pictures=pictures,
            style=(HERE / "report.css").read_text(encoding="utf-8"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


@cache
def _environment() -> Environment:
    """Return the Jinja2 environment with the filters that report.html.j2 uses."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 (50 ms)

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value, lines=True) if type(value) is str else value,
    )
    environment.filters |= {"json": json.dumps, "kind": lambda block: type(block).__name__, "cell": as_cell}
    environment.filters |= {"base64": lambda data: base64.b64encode(data).decode(), "inlined": _inlined}
    return environment


def _inlined(svg: bytes) -> str:
    """Return an SVG for insertion into the page: everything before the attribute viewBox is removed.

    The text of an inserted plot can be searched, and its colours follow the theme of the page.
    """
    view_box, _, content = svg.decode().partition("viewBox=")[2].partition(" xmlns=")
    content = re.sub(r"\s*\n\s*", " ", content[content.index("<g ") :])
    return f"viewBox={view_box}>{re.sub(r'<[^>]+>', _shorten_tag, content)}"


def _shorten_tag(tag: re.Match[str]) -> str:
    """Shorten the numbers of an SVG tag, remove ids that all plots share, and set theme colours."""
    text = re.sub(r' id="[A-Za-z][\w.]*_\d+"', "", tag[0])
    text = re.sub(r"(\.\d\d)\d+", r"\1", text)
    return re.sub("#[0-9a-f]{6}", lambda colour: THEME_COLOURS.get(colour[0], colour[0]), text)


# Keys of the record's section `machine` that the page shows.
MACHINE_KEYS = (
    *("hostname", "cpu_model", "cpus_online", "hypervisor", "kernel", "arch", "memory_bytes"),
    *("numa_nodes", "pmu", "hybrid", "governor", "turbo", "smt", "clocksource"),
    *("irq_time_accounting", "transparent_hugepages", "lockdown"),
)


def machine_blocks(machine: Machine) -> list[Block]:
    """Return the section on the machine, with the reason for each unknown value."""
    reasons = machine.reasons or {}
    rows = [[name, _spell_value(getattr(machine, name), reasons.get(name))] for name in MACHINE_KEYS]
    rows += [[f"caches.{name}", _spell_value(value, None)] for name, value in machine.caches.items()]
    rows += [[f"limits.{name}", _spell_value(value, None)] for name, value in machine.limits.items()]
    rows += [[name, _spell_value(value, None)] for name, value in machine.sysctls.items()]
    rows += [[f"mitigations.{name}", str(value)] for name, value in machine.mitigations.items()]
    rows += [
        [f"version of {name}", _spell_value(value, "not installed")] for name, value in machine.tools.items()
    ]
    return [Heading(2, "Machine", "machine"), TableBlock(["what", "value"], rows, title="The machine")]


def _spell_value(value: Any, reason: str | None) -> str:
    """Format a record's value for a table cell. `reason`: why the value is None, if known."""
    match value:
        case None:
            text = f"n/a: {reason}" if reason else "n/a"
        case bool():
            text = "yes" if value else "no"
        case list():
            text = ", ".join(str(item) for item in value) or "none"
        case dict():
            text = ", ".join(f"{key} {item}" for key, item in sorted(value.items()))
        case _:
            text = f"{value:,}" if isinstance(value, int) else str(value)
    return text
