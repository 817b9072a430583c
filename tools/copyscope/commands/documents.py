"""What a command found, as JSON: to a file, or to standard output."""

import json
import sys
from pathlib import Path

from msgspec import to_builtins

from copyscope import streams
from copyscope.files import saving


def write_json(what: object, target: Path) -> None:
    """Write one JSON document. Raises OSError."""
    text = json.dumps(to_builtins(what), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    saving.save(target, text.encode(errors="backslashreplace"))


def give_json(what: object, name: str | None) -> None:
    """What --json asks for: a file, or with `-` standard output. Raises OSError."""
    if name == "-":
        print_json(what)
    elif name is not None:
        write_json(what, Path(name))


def print_json(what: object) -> None:
    """The same on stdout."""
    # Where the encoding of stdout lacks a letter, JSON has a way to write it.
    ascii_only = not streams.is_utf8(sys.stdout)
    sys.stdout.write(json.dumps(to_builtins(what), indent=1, ensure_ascii=ascii_only, allow_nan=False) + "\n")
