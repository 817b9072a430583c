"""A sweep's directory, read: the records that belong together, and by name those that had to be left out.

    results/HOST/EXPERIMENT/experiment.toml    what was run
                            records.jsonl.gz   one line per run
                            failures.jsonl     one line per failed attempt

Numbers of two machines have no common meaning, so records of two machines are refused, naming the key; so
are records that a newer copyscope wrote. A record that cannot be read, or that the experiment wants and
that is not there, is left out and listed. One whose verdict is invalid is kept: it is shown, never averaged.
One that holds its raw sections only is derived as it is read.
"""

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copyscope.errors import UsageError
from copyscope.files import regular_file
from copyscope.ledger.derive import whole
from copyscope.record import records_file, store
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.record.store import Record, RecordError
from copyscope.sweep import experiment
from copyscope.sweep.experiment import Experiment


@dataclass(frozen=True)
class LeftOut:
    """A run that is in none of the numbers (the line where it stands, or its id), and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Results:
    directory: Path
    experiment: Experiment | None
    records: tuple[Record, ...]
    left_out: tuple[LeftOut, ...]
    # Of a simulated experiment: what is modelled stands in no number of what is measured.
    modelled: tuple[Record, ...] = ()

    @property
    def invalid(self) -> tuple[Record, ...]:
        """Runs that are kept and shown, and never averaged."""
        return tuple(r for r in (*self.records, *self.modelled) if not r["verdict"]["valid"])


def find(root: Path) -> list[Path]:
    """Every sweep's directory under results/ (HOST/EXPERIMENT with records in it), in order of name."""
    return sorted(path.parent for path in root.glob(f"*/*/{records_file.NAME}"))


def load(directory: Path) -> Results:
    """Everything under one directory. Raises UsageError: the object, the cause, the next step."""
    path = directory / records_file.NAME
    if not has_records(directory):
        kind = f"no {records_file.NAME} in it" if directory.is_dir() else "not a directory"
        cause = kind if directory.exists() else "no such directory"
        raise UsageError(f"{directory}: {cause}: give the directory of a sweep, results/HOST/EXPERIMENT")
    read, left_out = _read_all(path)
    _refuse_mixture(path, [record for record in read if "simulated" not in record])
    definition = directory / "experiment.toml"
    known = experiment.load(definition) if definition.is_file() else None
    if known is not None:
        left_out += _missing(known, {record["run"]["id"] for record in read}, directory)
    if not read:
        named = f" ({left_out[0].name}: {left_out[0].reason})" if left_out else ""
        raise UsageError(f"{path}: no record that can be read: run the sweep first{named}")
    ordered = sorted(read, key=lambda r: (r["run"]["order"], r["run"]["id"]))
    modelled = tuple(r for r in ordered if "simulated" in r)
    records = tuple(r for r in ordered if "simulated" not in r)
    return Results(directory, known, records, tuple(left_out), modelled)


def has_records(directory: Path) -> bool:
    """Whether a sweep was run into it. Raises UsageError for a name that no file can have."""
    try:
        return (directory / records_file.NAME).exists()
    except OSError as error:  # too long
        raise UsageError(f"{directory}: {error.strerror}: give the directory of a sweep") from error


def ids(directory: Path) -> set[str]:
    """Of the runs that have a record."""
    lines = records_file.read(directory / records_file.NAME)
    return {line.record["run"]["id"] for line in lines if line.record is not None}


def _read_all(path: Path) -> tuple[list[Record], list[LeftOut]]:
    try:
        lines = records_file.read(path)
    except RecordError as error:  # a newer schema, or no file that can be read
        raise UsageError(str(error)) from error
    read: list[Record] = []
    left_out: list[LeftOut] = []
    by_id: dict[str, str] = {}
    for line in lines:
        found = line.record
        if found is None:
            left_out.append(LeftOut(line.name, line.problem))
            continue
        problems = store.validate(found, raw="verdict" not in found)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            left_out.append(LeftOut(line.name, f"damaged: {problems[0]}{more}: run it again"))
            continue
        twin = by_id.setdefault(found["run"]["id"], line.name)
        if twin != line.name:
            left_out.append(LeftOut(line.name, f"the same run as {twin}: counted once"))
            continue
        read.append(whole(found))
    return read, left_out


def _refuse_mixture(path: Path, read: Sequence[Record]) -> None:
    """Raises UsageError for the first machine key in which two records differ."""
    for other in read[1:]:
        for key in SAME_MACHINE:
            a, b = read[0]["machine"].get(key), other["machine"].get(key)
            if a != b:
                raise UsageError(
                    f"{path}: machine.{key} differs: {_short(a)} in {read[0]['run']['id']}, {_short(b)} in "
                    f"{other['run']['id']}: keep the records of two machines, or of two states, apart"
                )


def _short(value: Any) -> str:
    return "not known" if value is None else value if isinstance(value, str) else json.dumps(value)


def _missing(known: Experiment, present: Set[str], directory: Path) -> list[LeftOut]:
    """Runs that the experiment wants and that have no record, with the reason of their last attempt."""
    why = _failures(directory / "failures.jsonl")
    return [
        LeftOut(
            point.run_id,
            f"missing: {why.get(point.run_id, 'not measured yet: run the sweep again, it goes on')}",
        )
        for point in experiment.expand(known)
        if point.run_id not in present
    ]


def _failures(path: Path) -> dict[str, str]:
    """The reason of the last failed attempt of each run; a torn last line is what a killed sweep leaves."""
    reasons: dict[str, str] = {}
    if not path.is_file():
        return reasons
    for line in regular_file.read(path).decode(errors="replace").splitlines():
        try:
            attempt = json.loads(line)
            reasons[attempt["run_id"]] = str(attempt["reason"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return reasons
