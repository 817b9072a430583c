"""What the commands that read sweeps share: refusing, naming what was left out."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from copyscope.commands import documents
from copyscope.commands.entry import say
from copyscope.errors import RunError, UsageError
from copyscope.files import saving
from copyscope.paths import is_reference
from copyscope.record import records_file, store
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.record.store import Record, RecordError
from copyscope.sweep import results
from copyscope.sweep.results import Results

SUFFIXES = (".json", ".json.gz", records_file.SUFFIX)


def load(directories: Sequence[Path], *, modelled: bool = False) -> list[Results]:
    """The sweeps in some directories, of one machine. Raises UsageError; says on stderr what was left out.

    `modelled`: sweeps of simulated machines may be among them.
    """
    found = [results.load(directory) for directory in directories]
    for one in found:
        if one.modelled and not modelled:
            raise UsageError(f"{one.directory}: modelled, not measured: give measured runs")
    measured = [one for one in found if one.records]
    first = measured[0].records[0]["machine"] if measured else {}
    for other in measured[1:]:
        machine = other.records[0]["machine"]
        key = next((key for key in SAME_MACHINE if machine.get(key) != first.get(key)), None)
        if key is not None:
            raise UsageError(
                f"{other.directory}: machine.{key} is {machine.get(key)!r}, of {found[0].directory} "
                f"{first.get(key)!r}: results of two machines cannot be judged together"
            )
    found = _each_once(found)
    for one in found:
        for entry in one.left_out:
            say(f"left out: {entry.name}: {entry.reason}")
        for record in one.invalid:
            why = record["verdict"]["reasons"][0]
            # Of a boot only that is left out which was counted while a check did not hold.
            what = "invalid, that point is" if "simulated" in record else "invalid,"
            say(f"{what} in no number: {record['run']['id']}: {why}")
    return found


def _each_once(found: Sequence[Results]) -> list[Results]:
    """A run is evidence once, however often it is reached: a directory named twice, a link, a copy."""
    first: dict[tuple[Any, ...], int] = {}
    kept = []
    for number, one in enumerate(found):
        every = (*one.records, *one.modelled)
        keys = [(r["run"]["id"], r["run"]["started"], r["run"]["seed"]) for r in every]
        earlier = [first.setdefault(key, number) for key in keys]
        for other in sorted(set(earlier) - {number}):
            again = f"{one.directory}: {earlier.count(other)} runs of {len(keys)}"
            say(f"counted once: {again} are in {found[other].directory}, too")
        new = [record for record, place in zip(every, earlier, strict=True) if place == number]
        kept.append(
            replace(
                one,
                records=tuple(record for record in new if "simulated" not in record),
                modelled=tuple(record for record in new if "simulated" in record),
            )
        )
    return kept


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


def check_whole(found: Record, name: str) -> None:
    """Raises RunError for what cannot be shown."""
    problems = store.validate(found, raw="verdict" not in found)
    if problems:
        raise RunError(f"{name}: not a whole record: {problems[0]}: measure again")


def write_beside(what: dict[str, Any], name: str, directory: Path, out: str | None) -> None:
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
