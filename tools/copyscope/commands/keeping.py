"""What a run leaves as files: its record, its folded stacks, and whose they are."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from copyscope import record
from copyscope.errors import RunError
from copyscope.record import RecordError
from copyscope.samples import folded_stacks, of_ledger
from copyscope.topology import invoking_user

Record = dict[str, Any]


def open_directory(name: str | None) -> Path | None:
    """The --out directory, made before the run: a run is too dear to lose for a typing error."""
    if name is None:
        return None
    directory = Path(name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".copyscope-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RunError(f"--out: {name}: {error.strerror}: choose another directory") from error
    _give_to_user(directory)
    return directory


def check_json(name: str | None) -> None:
    """The directory of --json, looked at before the run, for the same reason."""
    if name is None or name == "-":
        return
    directory = Path(name).absolute().parent
    if not directory.is_dir():
        raise RunError(f"--json: {name}: no such directory: make it, or choose another file")
    if Path(name).is_dir():
        raise RunError(f"--json: {name}: is a directory: choose a file in it")
    if not os.access(directory, os.W_OK):
        raise RunError(f"--json: {name}: its directory cannot be written: choose another")


def keep(made: Record, samples: list[Record], directory: Path) -> None:
    """The record and the folded stacks (for any flame graph tool) of one run."""
    stem = f"{made['run']['id']}-{made['run']['started'].replace(':', '')}"
    path = directory / f"{stem}.json"
    try:
        record.write(made, path)
        folded = directory / f"{stem}.folded"
        folded.write_text(folded_stacks(of_ledger(samples)), encoding="utf-8")
    except (RecordError, OSError) as error:
        # The table is still printed: what was measured is not lost.
        print(f"profile: --out: {error}: free some space and use --json -", file=sys.stderr)
        return
    _give_to_user(path)
    _give_to_user(folded)


def write_json(what: Record | list[Record], name: str) -> None:
    if name == "-":
        json.dump(what, sys.stdout, indent=1, sort_keys=True)
        print()
        return
    path = Path(name)
    if isinstance(what, dict):
        record.write(what, path)
    else:
        path.write_text(json.dumps(what, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    _give_to_user(path)


def _give_to_user(path: Path) -> None:
    """What is made under sudo belongs to the invoking user."""
    user = invoking_user()
    os.chown(path, user.uid, user.gid)
