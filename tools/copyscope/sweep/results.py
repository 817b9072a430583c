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
from copyscope.ledger.derive import any_run
from copyscope.record import records_file
from copyscope.record.check import Whole
from copyscope.record.derived import SimulatedRun
from copyscope.record.measured import RunIdentity
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.record.store import RecordError
from copyscope.sweep import experiment
from copyscope.sweep.experiment import Experiment

Run = Whole | SimulatedRun


@dataclass(frozen=True)
class LeftOut:
    """A run that is in none of the numbers (the line where it stands, or its id), and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Results:
    directory: Path
    experiment: Experiment | None
    records: tuple[Whole, ...]
    left_out: tuple[LeftOut, ...]
    # Of a simulated experiment: what is modelled stands in no number of what is measured.
    modelled: tuple[SimulatedRun, ...] = ()

    @property
    def invalid(self) -> tuple[tuple[str, str], ...]:
        """Runs that are kept and shown, and never averaged: the id of each, and why."""
        verdicts = [(one.raw.run.id, one.derived.verdict) for one in self.records]
        boots = [(one.run.id, one.verdict) for one in self.modelled]
        return tuple((name, one.reasons[0]) for name, one in (*verdicts, *boots) if not one.valid)


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
    records = [one for one in read if isinstance(one, Whole)]
    boots = [one for one in read if isinstance(one, SimulatedRun)]
    _refuse_mixture(path, records)
    definition = directory / "experiment.toml"
    known = experiment.load(definition) if definition.is_file() else None
    if known is not None:
        left_out += _missing(known, {_identity(one).id for one in read}, directory)
    if not read:
        named = f" ({left_out[0].name}: {left_out[0].reason})" if left_out else ""
        raise UsageError(f"{path}: no record that can be read: run the sweep first{named}")
    return Results(
        directory,
        known,
        tuple(sorted(records, key=_order)),
        tuple(left_out),
        tuple(sorted(boots, key=_order)),
    )


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


def _read_all(path: Path) -> tuple[list[Run], list[LeftOut]]:
    """One line after the other: as its Structs a record takes a fifth of the memory of its JSON."""
    read: list[Run] = []
    left_out: list[LeftOut] = []
    by_id: dict[str, str] = {}
    try:
        for line in records_file.lines(path):
            found = _of_line(line)
            if isinstance(found, LeftOut):
                left_out.append(found)
                continue
            twin = by_id.setdefault(_identity(found).id, line.name)
            if twin == line.name:
                read.append(found)
            else:
                left_out.append(LeftOut(line.name, f"the same run as {twin}: counted once"))
    except RecordError as error:  # a newer schema, or no file that can be read
        raise UsageError(str(error)) from error
    return read, left_out


def _of_line(line: records_file.Line) -> Run | LeftOut:
    found = line.record
    if found is None:
        return LeftOut(line.name, line.problem)
    try:
        return any_run(found)
    except RecordError as error:
        return LeftOut(line.name, f"damaged: {error}")


def _identity(one: Run) -> RunIdentity:
    return one.raw.run if isinstance(one, Whole) else one.run


def _order(one: Run) -> tuple[int, str]:
    run = _identity(one)
    return run.order, run.id


def _refuse_mixture(path: Path, read: Sequence[Whole]) -> None:
    """Raises UsageError for the first machine key in which two records differ."""
    for other in read[1:]:
        for key in SAME_MACHINE:
            a, b = getattr(read[0].raw.machine, key), getattr(other.raw.machine, key)
            if a != b:
                raise UsageError(
                    f"{path}: machine.{key} differs: {_short(a)} in {read[0].raw.run.id}, {_short(b)} in "
                    f"{other.raw.run.id}: keep the records of two machines, or of two states, apart"
                )


def _short(value: Any) -> str:
    return "not known" if value is None else value if isinstance(value, str) else json.dumps(value)


def _missing(known: Experiment, present: Set[str], directory: Path) -> list[LeftOut]:
    """Runs that the experiment wants and that have no record, with the reason of their last attempt."""
    why = _failures(directory / "failures.jsonl")
    return [
        LeftOut(
            point.run_id,
            f"missing: {why.get(point.run_id, 'not measured yet: run the sweep again, it resumes')}",
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
