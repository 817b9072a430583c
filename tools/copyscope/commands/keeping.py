"""What a run leaves as files: its record, its folded stacks, and whose they are."""

import json
import sys
from pathlib import Path
from typing import Any

from copyscope import record, saving
from copyscope.errors import RunError
from copyscope.record import RecordError
from copyscope.samples import folded_stacks, of_ledger

Record = dict[str, Any]


def open_directory(name: str | None) -> Path | None:
    """The --out directory, made before the run: a run is too dear to lose for a typing error."""
    if name is None:
        return None
    directory = Path(name)
    try:
        saving.make_directory(directory)
        saving.check(directory / "record.json")
    except OSError as error:
        raise RunError(f"--out: {name}: {error.strerror}: choose another directory") from error
    return directory


def check_json(name: str | None) -> None:
    """The file of --json, tried before the run, for the same reason."""
    if name is None or name == "-":
        return
    try:
        saving.check(Path(name))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"--json: {name}: no such directory: make it, or choose another file") from None
    except IsADirectoryError:
        raise RunError(f"--json: {name}: is a directory: choose a file in it") from None
    except OSError as error:
        raise RunError(f"--json: {name}: {error.strerror}: choose another file") from error


def keep(made: Record, samples: list[Record], directory: Path) -> None:
    """The record and the folded stacks (for any flame graph tool) of one run."""
    stem = f"{made['run']['id']}-{made['run']['started'].replace(':', '')}"
    path = directory / f"{stem}.json"
    try:
        record.write(made, path)
        folded = directory / f"{stem}.folded"
        saving.save(folded, folded_stacks(of_ledger(samples)).encode())
    except (RecordError, OSError) as error:
        # The table is still printed: what was measured is not lost.
        print(f"profile: --out: {error}: free some space and use --json -", file=sys.stderr)


def write_json(what: Record | list[Record], name: str) -> None:
    """To a file, or with `-` to standard output. Raises RecordError."""
    if name == "-":
        json.dump(what, sys.stdout, indent=1, sort_keys=True)
        print()
        return
    path = Path(name)
    if isinstance(what, dict):
        record.write(what, path)
    else:
        try:
            saving.save(path, (json.dumps(what, indent=1, sort_keys=True) + "\n").encode())
        except OSError as error:
            raise RecordError(f"record: {path}: cannot be written: {error.strerror}") from error
