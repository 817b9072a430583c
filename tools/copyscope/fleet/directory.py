"""What the directory of a fleet holds, and with which hosts an asking that was broken off goes on.

    DIR/asked.json                      what was asked, and since when
    DIR/rows/HOST.json                  what came of a host
    DIR/host=HOST/date=DAY/TIME.json    what it measured, where queries over directories look (Hive's layout)

A row is written when its host has answered: whatever ends the asking, the next one knows who is left.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from copyscope.files import regular_file, saving
from copyscope.fleet.answers import Row
from copyscope.record import store

ASKED, ROWS, PAGE = "asked.json", "rows", "fleet.html"
Kind = TypeVar("Kind")
# These hosts have a record; all others are asked again.
ANSWERED = ("ok", "invalid")


class Asked(Struct, frozen=True):
    """What every host was asked, as whom, of which copyscope (a directory there, or the SHA-256 of a bundle).

    `began` tells askings of the same apart.
    """

    words: tuple[str, ...]
    become: bool
    of: str
    began: str = ""

    def same(self, other: "Asked") -> bool:
        return (self.words, self.become, self.of) == (other.words, other.become, other.of)


class KeptRow(Struct):
    began: str
    row: Row


@dataclass(frozen=True)
class Start:
    """What is asked now, the rows that are there already, and what is to be said of that."""

    asked: Asked
    rows: dict[str, Row]
    said: str | None


def start(out: Path, asked: Asked, hosts: Sequence[str], *, again: bool) -> Start:
    """Goes on with the last asking, if it was the same and is not complete; else begins one.

    Raises OSError.
    """
    saving.make_directory(out)
    last = _read(out / ASKED, Asked)
    anew = structs.replace(asked, began=datetime.now(UTC).isoformat(timespec="microseconds"))
    said = None
    if last is not None and not last.same(anew):
        what = " ".join(["sudo"] * last.become + list(last.words))
        said = (
            f"{out}: {what} of {last.of} was asked before: none of its answers count here, its records stay"
        )
    elif last is not None and not again:
        rows = rows_of(out, last, hosts)
        if 0 < len(rows) < len(hosts):
            count = f"{len(rows)} of {len(hosts)} hosts have answered since {last.began[:16]} UTC"
            return Start(last, rows, f"{out}: {count}: only the others are asked; --again asks all")
    saving.save(out / ASKED, msgspec.json.encode(anew) + b"\n")
    return Start(anew, {}, said)


def rows_of(out: Path, asked: Asked, hosts: Iterable[str]) -> dict[str, Row]:
    """The rows of those that have answered this asking."""
    kept = ((name, _read(row_file(out, name), KeptRow)) for name in hosts)
    return {
        name: found.row
        for name, found in kept
        if found is not None and found.began == asked.began and found.row.state in ANSWERED
    }


def row_file(out: Path, host: str) -> Path:
    return out / ROWS / f"{host}.json"


def keep(out: Path, asked: Asked, row: Row) -> Row:
    """What came of a host, and before that what it measured, as it was validated; it is held no longer."""
    if row.document is not None:
        now = datetime.now(UTC)
        directory = out / f"host={row.host}" / f"date={now:%Y-%m-%d}"
        saving.make_directory(directory)
        if "schema" in row.document:
            data = store.serialise(row.document)
        else:
            data = (json.dumps(row.document, indent=1) + "\n").encode()
        saving.save(directory / f"{now:%H%M%S}.json", data)
    saving.make_directory(out / ROWS)
    row = replace(row, document=None)
    saving.save(row_file(out, row.host), msgspec.json.encode(KeptRow(asked.began, row)) + b"\n")
    return row


def _read(path: Path, kind: type[Kind]) -> Kind | None:
    """None: there is none, or it is not ours: what is not known is asked."""
    try:
        return msgspec.json.decode(regular_file.read(path), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, RecursionError):
        return None
