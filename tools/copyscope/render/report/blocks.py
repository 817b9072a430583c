"""What a report is made of. One document, two writers: the HTML page and its Markdown twin say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
class Table:
    """Cells are text. `numbers`: columns that are set to the right. `notes` stand below."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    notes: Sequence[str] = ()
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """A plot by the stem of its files; `alt` says in words what can be seen."""

    name: str
    title: str
    alt: str


@dataclass(frozen=True)
class Code:
    text: str


Block = Heading | Paragraph | Bullets | Table | Picture | Code
