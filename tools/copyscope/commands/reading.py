"""What the commands that read sweeps share: refusing, naming what was left out."""

import os
from pathlib import Path

from copyscope.commands import documents
from copyscope.commands.entry import say
from copyscope.errors import RunError, UsageError
from copyscope.files import saving
from copyscope.ledger.derive import any_run
from copyscope.paths import is_reference
from copyscope.record import records_file, store
from copyscope.record.store import Record, RecordError
from copyscope.sweep import results
from copyscope.sweep.results import Results, Run
from copyscope.units import counted

SUFFIXES = (".json", ".json.gz", records_file.SUFFIX)

# Of invalid runs; a large sweep may have dozens.
MOST_SAID = 3


def load(directory: Path, *, modelled: bool = False) -> Results:
    """The sweep in a directory. Raises UsageError; says on stderr what was left out.

    `modelled`: it may be of simulated machines.
    """
    found = results.load(directory)
    if found.modelled and not modelled:
        raise UsageError(f"{directory}: modelled, not measured: give measured runs")
    for entry in found.left_out:
        say(f"left out: {entry.name}: {entry.reason}")
    for run_id, why in found.invalid[:MOST_SAID]:
        # Of a boot only that is left out which was counted while a check did not hold.
        what = "invalid, that point is not used" if found.modelled else "invalid, not used"
        say(f"{what}: {run_id}: {why}")
    if (more := len(found.invalid) - MOST_SAID) > 0:
        say(f"and {counted(more, 'more invalid run')}: copyscope show FILE --run ID says why")
    return found


def record_paths(directory: Path) -> list[Path]:
    """The files of records in it, in order; what is only being written has a dot before its name."""
    return sorted(
        path for path in directory.iterdir() if path.name.endswith(SUFFIXES) and path.name[0] != "."
    )


def runs_of(path: Path, run_id: str | None = None) -> list[Record]:
    """The records in a file of one or many, or the one of that id. Raises RecordError, UsageError."""
    if path.name.endswith(records_file.SUFFIX):
        lines = records_file.read(path)
        for line in lines:
            if line.record is None:
                raise RecordError(f"record: {path}: {line.name}: {line.problem}")
        found = [line.record for line in lines if line.record is not None]
    else:
        found = store.read_runs(path)
    if run_id is None:
        return found
    chosen = [one for one in found if one.get("run", {}).get("id") == run_id]
    if not chosen:
        raise UsageError(f"--run: {run_id}: not one of the {len(found)} runs in {path}: check its id")
    return chosen


def typed(found: Record, name: str) -> Run:
    """A record of a file, typed. Raises RunError that names the file."""
    try:
        return any_run(found)
    except RecordError as error:
        raise RunError(f"{name}: {error}") from error


def write_beside(what: object, name: str, directory: Path, out: str | None) -> None:
    """Into `out`, or into the sweep's directory where that is one's own: to read is not to rewrite."""
    if out is not None:
        saving.make_directory(Path(out))
        documents.write_json(what, Path(out) / name)
    elif is_reference(directory):
        say(f"{directory}: reference results: {name} was not written: --out DIR writes it")
    elif _is_ones_own(directory):
        documents.write_json(what, directory / name)
    else:
        say(
            f"{directory}: not writable, or another user's: {name} was not written: --out DIR writes it",
        )


def _is_ones_own(directory: Path) -> bool:
    invoking = saving.invoking_ids() if os.geteuid() == 0 else None
    user = os.geteuid() if invoking is None else invoking[0]
    return directory.stat().st_uid == user and os.access(directory, os.W_OK)
