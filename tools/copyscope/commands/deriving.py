"""Everything derived of the records of a sweep, worked out again: the raw sections stay as they are."""

from pathlib import Path

from copyscope.errors import UsageError
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.store import RecordError
from copyscope.sweep.results import record_paths


def derive_anew(directory: Path) -> tuple[int, list[str]]:
    """Derive each record in DIR/raw by this copyscope and write those that come out otherwise.

    Returns how many there are, and the names of those that were written. What cannot be read is left for the
    report to name. Raises UsageError for one that cannot be written.
    """
    raw = directory / "raw"
    count, written = 0, []
    for path in record_paths(raw) if raw.is_dir() else ():
        try:
            old = store.read(path)
        except RecordError:
            continue
        if store.validate(old, raw=True):
            continue
        count += 1
        new = derive(old)
        if store.serialise(new) == store.serialise(old):
            continue
        try:
            store.write(new, path)
        except RecordError as error:
            raise UsageError(str(error)) from error
        written.append(path.name)
    return count, written
