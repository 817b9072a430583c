"""What a run leaves as files: its record, its folded stacks, and whose they are."""

import json
import sys
from pathlib import Path

from copyscope import streams
from copyscope.commands.entry import say
from copyscope.errors import RunError
from copyscope.files import saving
from copyscope.files.rescuing import rescue
from copyscope.record import store
from copyscope.record.segments import Record
from copyscope.taxonomy.samples import folded_stacks


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


def check_file(name: str | None, option: str = "--json") -> None:
    """The file of an option, tried before the run, for the same reason."""
    if name is None or name == "-":
        return
    try:
        saving.check(Path(name))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{option}: {name}: no such directory: make it, or choose another file") from None
    except IsADirectoryError:
        raise RunError(f"{option}: {name}: is a directory: choose a file in it") from None
    except OSError as error:
        raise RunError(f"{option}: {name}: {error.strerror}: choose another file") from error


def keep(made: Record, samples: list[Record], directory: Path) -> bool:
    """The record and the folded stacks (for any flame graph tool) of one run; False: they are elsewhere."""
    stem = f"{made['run']['id']}-{made['run']['started'].replace(':', '')}"
    folded = folded_stacks(samples)
    files = {f"{stem}.json": store.serialise(made), f"{stem}.folded": folded.encode(errors="replace")}
    try:
        for name, data in files.items():
            saving.save(directory / name, data)
    except OSError as error:
        # The table is still printed.
        say(f"--out: {directory}: cannot be written: {error.strerror}")
        say(rescue(files))
        return False
    return True


def write_json(what: Record | list[Record], name: str) -> bool:
    """To a file, compressed if its name ends in .gz, or with `-` to standard output.

    False: it is elsewhere, and where was said.
    """
    if isinstance(what, dict):
        data = store.serialise(what)
    else:
        data = json.dumps(what, indent=1, sort_keys=True).encode() + b"\n"
    try:
        if name != "-":
            saving.save(Path(name), store.gzipped(data) if name.endswith(".gz") else data)
            return True
        json.dump(what, sys.stdout, indent=1, sort_keys=True)
        print()
        lost = streams.incomplete(sys.stdout)
        if lost is None:
            return True
        raise lost
    except OSError as error:
        where = "standard output" if name == "-" else name
        say(f"--json: {where}: cannot be written: {error.strerror}")
        say(rescue({"record.json": data}))
        return False
