"""The records of a sweep's directory, changed where they are: derived anew, or without what is derived."""

from collections.abc import Callable
from pathlib import Path

from copyscope.errors import UsageError
from copyscope.ledger.derive import derive
from copyscope.record import records_file, store
from copyscope.record.derived import Derived
from copyscope.record.measured import Measured
from copyscope.record.store import Record


def derive_anew(old: Record) -> Record:
    """By this copyscope; one that holds its raw sections only stays so: it is derived whenever it is read."""
    return derive(old) if "verdict" in old else old


def strip(old: Record) -> Record:
    """Without what is derived alone (`loss` has its counts from the run)."""
    derived = set(Derived.__struct_fields__) - set(Measured.__struct_fields__)
    return {key: value for key, value in old.items() if key not in derived}


def rewrite(directory: Path, change: Callable[[Record], Record]) -> tuple[int, list[str]]:
    """Change each record of a sweep: how many there are, and the ids of those that are other than before.

    A file with a line that cannot be read is left as it is: to write it would lose that line. Raises
    UsageError where the file cannot be read or written.
    """
    path = directory / records_file.NAME
    try:
        lines = records_file.read(path)
        made = [_changed(line.record, change) for line in lines if line.record is not None]
        if len(made) < len(lines):
            raise UsageError(f"{path}: a line of it is damaged: run the sweep again, to repeat it")
        written = [new["run"]["id"] for new, differs in made if differs]
        if written:
            records_file.write(path, (new for new, _ in made))
    except store.RecordError as error:
        raise UsageError(str(error)) from error
    return len(made), written


def _changed(old: Record, change: Callable[[Record], Record]) -> tuple[Record, bool]:
    """The record, and whether that is another than before."""
    if "simulated" in old or store.validate(old, raw=True):
        return old, False
    new = change(old)
    return new, store.serialise(new) != store.serialise(old)
