"""The records of a sweep's directory, changed where they are: derived anew, or without what is derived."""

from collections.abc import Callable
from pathlib import Path

from copyscope.errors import UsageError
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.derived import Derived
from copyscope.record.raw import RawRun
from copyscope.record.store import Record
from copyscope.sweep.results import record_paths


def derive_anew(old: Record) -> Record:
    """By this copyscope; one that holds its raw sections only stays so: it is derived whenever it is read."""
    return derive(old) if "verdict" in old else old


def strip(old: Record) -> Record:
    """Without what is derived alone (`loss` has its counts from the run)."""
    derived = set(Derived.__struct_fields__) - set(RawRun.__struct_fields__)
    return {key: value for key, value in old.items() if key not in derived}


def rewrite(directory: Path, change: Callable[[Record], Record]) -> tuple[int, list[str]]:
    """Change each record in DIR/raw, and write those that are other than before: how many there are, and
    the names of those that were written.

    What cannot be read is left for the report to name. Raises UsageError for one that cannot be written.
    """
    raw = directory / "raw"
    count, written = 0, []
    for path in record_paths(raw) if raw.is_dir() else ():
        try:
            old = store.read(path)
        except store.RecordError:
            continue
        if "simulated" in old or store.validate(old, raw=True):
            continue
        count += 1
        new = change(old)
        if store.serialise(new) == store.serialise(old):
            continue
        try:
            store.write(new, path)
        except store.RecordError as error:
            raise UsageError(str(error)) from error
        written.append(path.name)
    return count, written
