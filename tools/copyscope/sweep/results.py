# SPDX-License-Identifier: GPL-2.0-only
"""Reader of a sweep's directory: its records, and the names of the runs that are left out.

    results/HOST/EXPERIMENT/experiment.toml    the experiment that was run
                            records.jsonl.gz   one line per run
                            failures.jsonl     one line per failed attempt

Numbers from two machines cannot be compared, so records from two machines are rejected, with the key that
differs. Records from a newer copyscope are rejected, too. Unreadable and missing records are left out and
listed. Invalid runs are kept: reports show them, but never average them. If a record has only raw sections,
its results are derived while it is read.
"""

import json
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from copyscope.base import files
from copyscope.base.errors import RecordError, UsageError
from copyscope.ledger.derive import completed, derived
from copyscope.record import store
from copyscope.record.derived import SimulatedRun
from copyscope.record.measured import Measured
from copyscope.record.run import CompleteRun, Run, run_section, verdict_of
from copyscope.record.store import Document, machine_identity
from copyscope.sweep import experiment
from copyscope.sweep.experiment import Experiment


@dataclass(frozen=True)
class LeftOut:
    """A run that is left out of all statistics.

    name: line of the record in the file, or the run's id if it has no record
    reason: why the run was left out
    """

    name: str
    reason: str


@dataclass(frozen=True)
class Results:
    """The content of a sweep's directory.

    experiment: the experiment that was run; None if the directory has no experiment.toml
    records: measured runs, in order
    left_out: runs that are missing, unreadable, duplicates, or of a watched program
    modelled: simulated runs; they are never mixed with measured runs
    """

    directory: Path
    experiment: Experiment | None
    records: tuple[Run, ...]
    left_out: tuple[LeftOut, ...]
    modelled: tuple[SimulatedRun, ...] = ()

    @property
    def invalid(self) -> tuple[tuple[str, str], ...]:
        """Invalid runs, as (id, reason). They are shown, but never averaged."""
        runs: tuple[CompleteRun, ...] = (*self.records, *self.modelled)
        verdicts = [(run_section(run).id, verdict_of(run)) for run in runs]
        return tuple((name, verdict.reasons[0]) for name, verdict in verdicts if not verdict.valid)


def find(root: Path) -> list[Path]:
    """Return the sweep directories below `root` (HOST/EXPERIMENT, with records), sorted by name."""
    return sorted(path.parent for path in root.glob(f"*/*/{store.RECORDS_NAME}"))


def load(directory: Path, keep: Callable[[CompleteRun], CompleteRun] = lambda run: run) -> Results:
    """Read the directory of a sweep. Raises UsageError if it cannot be used.

    keep: function that returns the part of a run to hold in memory
    """
    path = directory / store.RECORDS_NAME
    if not has_records(directory):
        cause = "no such directory"
        if directory.exists():
            cause = f"no {store.RECORDS_NAME} in it" if directory.is_dir() else "not a directory"
        raise UsageError(f"{directory}: {cause}; give the directory of a sweep, results/HOST/EXPERIMENT")
    runs, left_out = _read_all(path, keep)
    records = [run for run in runs if isinstance(run, Run)]
    boots = [run for run in runs if isinstance(run, SimulatedRun)]
    _refuse_mixture(path, records)
    definition = directory / "experiment.toml"
    planned = experiment.load(definition) if definition.is_file() else None
    if planned is not None:
        left_out += _missing(planned, {run_section(run).id for run in runs}, directory)
    if not runs:
        reason = f" ({left_out[0].name}: {left_out[0].reason})" if left_out else ""
        raise UsageError(f"{path}: no readable record; run the sweep first{reason}")
    return Results(
        directory=directory,
        experiment=planned,
        records=tuple(sorted(records, key=_order)),
        left_out=tuple(left_out),
        modelled=tuple(sorted(boots, key=_order)),
    )


def has_records(directory: Path) -> bool:
    """Return True if the directory has a sweep's records. Raises UsageError for an impossible name."""
    try:
        return (directory / store.RECORDS_NAME).exists()
    except OSError as error:  # The name is too long.
        raise UsageError(f"{directory}: {error.strerror}; give the directory of a sweep") from error


def ids(directory: Path) -> set[str]:
    """Return the ids of the runs that have a record."""
    lines = store.read_lines(directory / store.RECORDS_NAME)
    return {store.find_run_id(line.record) for line in lines if line.record is not None}


def _read_all(
    path: Path, keep: Callable[[CompleteRun], CompleteRun]
) -> tuple[list[CompleteRun], list[LeftOut]]:
    """Read all records, line by line, because a parsed record takes a fifth of its JSON's memory."""
    runs: list[CompleteRun] = []
    left_out: list[LeftOut] = []
    line_by_id: dict[str, str] = {}
    try:
        for line in store.iterate_lines(path):
            run = _read_line(line)
            if isinstance(run, LeftOut):
                left_out.append(run)
                continue
            first_line = line_by_id.setdefault(run_section(run).id, line.name)
            if first_line == line.name:
                runs.append(keep(run))
            else:
                left_out.append(LeftOut(line.name, f"the same run as {first_line}: counted once"))
    except RecordError as error:  # A newer schema, or an unreadable file.
        raise UsageError(str(error)) from error
    return runs, left_out


def _read_line(line: store.RecordLine) -> CompleteRun | LeftOut:
    """Return the run in a line of the record file, or why the line is left out."""
    if line.record is None:
        return LeftOut(line.name, line.problem)
    try:
        run = completed(line.typed())
    except RecordError as error:
        return LeftOut(line.name, f"damaged: {error}")
    if isinstance(run, Run) and run.raw.target is not None:
        return LeftOut(line.name, "a watched program, not a run of a sweep; show it with copyscope show FILE")
    return run


def _order(run: CompleteRun) -> tuple[int, str]:
    """Return the sort key of a run: its position in the sweep."""
    section = run_section(run)
    return section.order, section.id


def _refuse_mixture(path: Path, runs: Sequence[Run]) -> None:
    """Raise UsageError with the first machine key in which two runs differ, if any."""
    first = machine_identity(runs[0].raw.machine) if runs else {}
    for run in runs[1:]:
        for key, value in machine_identity(run.raw.machine).items():
            if first[key] != value:
                raise UsageError(
                    f"{path}: machine.{key} differs: {_value_text(first[key])} in {runs[0].raw.run.id}, "
                    f"{_value_text(value)} in {run.raw.run.id}; keep the records of two machines, or of two "
                    "states, apart"
                )


def _value_text(value: Any) -> str:
    return "not known" if value is None else value if isinstance(value, str) else json.dumps(value)


def _missing(planned: Experiment, present: Set[str], directory: Path) -> list[LeftOut]:
    """Return the planned runs that have no record, each with the reason why its last attempt failed.

    present: ids of the runs that have a record
    """
    failures = _failures(directory / "failures.jsonl")
    otherwise = "not measured yet; run the sweep again, it resumes"
    return [
        LeftOut(point.run_id, f"missing: {failures.get(point.run_id, otherwise)}")
        for point in experiment.expand(planned)
        if point.run_id not in present
    ]


def _failures(path: Path) -> dict[str, str]:
    """Return run id -> reason why the last attempt failed, from failures.jsonl.

    Damaged lines are skipped, because a killed sweep may leave half a line.
    """
    reasons: dict[str, str] = {}
    if not path.is_file():
        return reasons
    for line in files.read(path).decode(errors="replace").splitlines():
        try:
            attempt = json.loads(line)
            reasons[attempt["run_id"]] = str(attempt["reason"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return reasons


# Changes of the records in a sweep's directory.


class Rewritten(NamedTuple):
    """Result of rewrite(): the number of records, and the ids of the records that changed."""

    records: int
    changed_ids: list[str]


def derive_anew(old: Document) -> Document:
    """Derive a record's results again with this copyscope. A record with only raw sections stays as is."""
    if "verdict" not in old:
        return old
    return store.with_derived(old, derived(store.convert_part(old, Measured)))


def rewrite(directory: Path, change: Callable[[Document], Document]) -> Rewritten:
    """Apply `change` to each measured record of a sweep, and write the file if any record changed.

    A file that has an unreadable line is not written, because writing would lose that line. Raises UsageError
    if the file cannot be read or written.

    change: function that returns the changed record
    """
    path = directory / store.RECORDS_NAME
    try:
        lines = store.read_lines(path)
        old = [line.record for line in lines if line.record is not None]
        if len(old) < len(lines):
            raise UsageError(f"{path}: a line is damaged; run the sweep again, which repeats that run")
        new = [change(record) if store.has_measured_part(record) else record for record in old]
        changed_ids = [
            store.find_run_id(after)
            for before, after in zip(old, new, strict=True)
            if after is not before and store.serialise(after) != store.serialise(before)
        ]
        if changed_ids:
            store.write_records(path, new)
    except RecordError as error:
        raise UsageError(str(error)) from error
    return Rewritten(len(new), changed_ids)
