"""What a report is made of; html.py writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.report.plots.colours import Mark
from copyscope.stats import Estimate

Tone = Literal["", "good", "bad", "open"]


@dataclass(frozen=True)
class Heading:
    """A heading; `level` 1 is the title. `anchor` names it in links."""

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
    """A cell that says more than its text: a colour beside the words, the anchor of what it rests on."""

    text: str
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """`numbers`: columns that are set to the right. `notes` stand below. `anchors`: a name for each row.

    `whole`: never folded away, however long it is.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    numbers: frozenset[int] = frozenset()
    notes: Sequence[str] = ()
    title: str = ""
    anchors: Sequence[str] = ()
    whole: bool = False


@dataclass(frozen=True)
class Picture:
    """A plot by the stem of its files; `alt` says in words what can be seen."""

    name: str
    title: str
    alt: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Box:
    """A part of a bar: where it begins and how long it is, of the whole width (0..1)."""

    left: float
    width: float
    colour: str
    name: str = ""


@dataclass(frozen=True)
class Bar:
    """A line of boxes; `text` says the same in numbers."""

    label: str
    boxes: Sequence[Box]
    text: str


@dataclass(frozen=True)
class Bars:
    """Bars below each other on one scale; `legend`: (colour, what it stands for)."""

    title: str
    bars: Sequence[Bar]
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Crossing:
    """Where a curve crosses 1, with its interval, in places from the first; None: an end beyond them."""

    at: float
    low: float | None
    high: float | None
    said: str


@dataclass(frozen=True)
class Curve:
    """A line: one value for each place across, None where there is none."""

    name: str
    mark: Mark
    values: Sequence[Estimate | None]
    crossing: Crossing | None = None


@dataclass(frozen=True)
class Curves:
    """Ratios on a linear axis from 0, with a line at 1; `places`: what stands below, from left to right."""

    title: str
    across: str
    places: Sequence[str]
    curves: Sequence[Curve]


@dataclass(frozen=True)
class View:
    """What is seen in one setting: a value for each name of its choice."""

    setting: Sequence[str]
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Choice:
    """One of several views: a page can show any, paper has the first. `names`: of the settings' values."""

    names: Sequence[str]
    views: Sequence[View]
    first: int = 0


@dataclass(frozen=True)
class Fold:
    """Folded away until it is wanted."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Paragraph | Bullets | Table | Picture | Code | Bars | Curves | Choice | Fold


def as_cell(cell: str | Cell) -> Cell:
    """Plain text is a cell that says no more than that."""
    return cell if isinstance(cell, Cell) else Cell(cell)
