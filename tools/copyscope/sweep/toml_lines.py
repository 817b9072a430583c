"""On which line of a TOML file a key stands: tomllib does not tell, and an error needs it. Pure."""

from __future__ import annotations

import re

KeyPath = tuple[str | int, ...]

_NAME = r"""([A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_TABLE = re.compile(rf"\[\s*{_NAME}\s*\]")
_TABLE_OF_LIST = re.compile(rf"\[\[\s*{_NAME}\s*\]\]")
_KEY = re.compile(rf"{_NAME}\s*=")
_QUOTES = ('"' * 3, "'" * 3)


def find_lines(text: str) -> dict[KeyPath, int]:
    """`("factors", "size")` -> line, from 1; the n-th `[[exclude]]` is `("exclude", n)`.

    For what an experiment needs: plain tables, lists of tables, one key per line. Lines inside a text of
    several lines are not looked at; a value of several lines belongs to the line of its key.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    lists: dict[str, int] = {}
    closing: str | None = None
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole.strip()
        if closing is not None:
            if closing in line:
                closing = None
            continue
        closing = _opens_text(line)
        if (found := _TABLE_OF_LIST.match(line)) is not None:
            name = _plain(found[1])
            lists[name] = lists.get(name, -1) + 1
            table = (name, lists[name])
            lines.setdefault(table, number)
        elif (found := _TABLE.match(line)) is not None:
            table = (_plain(found[1]),)
            lines.setdefault(table, number)
        elif (found := _KEY.match(line)) is not None:
            lines.setdefault((*table, _plain(found[1])), number)
    return lines


def _opens_text(line: str) -> str | None:
    """The quotes that end a text of several lines, when one begins on this line."""
    for quotes in _QUOTES:
        if line.count(quotes) == 1 and not line.startswith("#"):
            return quotes
    return None


def _plain(name: str) -> str:
    return name.strip("\"'")
