"""A sweep's directory, read: the records that belong together, and by name those that had to be left out.

    results/HOST/EXPERIMENT/experiment.toml   what was run
                            raw/RUN_ID.json.gz   one record per run
                            failures.jsonl       one line per failed attempt

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
from copyscope.record import store
from copyscope.record.same_machine import SAME_MACHINE
from copyscope.record.store import Record, RecordError, SchemaError
from copyscope.sweep import experiment
from copyscope.sweep.experiment import Experiment

SUFFIXES = (".json", ".json.gz")


def record_paths(raw: Path) -> list[Path]:
    """The records in the raw/ of a sweep, in order; what is only being written has a dot before its name."""
    return sorted(path for path in raw.iterdir() if path.name.endswith(SUFFIXES) and path.name[0] != ".")


@dataclass(frozen=True)
class LeftOut:
    """A record that is in none of the numbers, and why."""

    path: Path
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
    """Every sweep's directory under results/ (HOST/EXPERIMENT with a raw/ in it), in order of name."""
    return sorted(path.parent for path in root.glob("*/*/raw") if path.is_dir())


def load(directory: Path) -> Results:
    """Everything under one directory. Raises UsageError: the object, the cause, the next step."""
    raw = directory / "raw"
    try:
        there = raw.is_dir()
    except OSError as error:  # a name that is too long
        raise UsageError(f"{directory}: {error.strerror}: give the directory of a sweep") from error
    if not there:
        kind = "no raw/ in it" if directory.is_dir() else "not a directory"
        cause = kind if directory.exists() else "no such directory"
        raise UsageError(f"{directory}: {cause}: give the directory of a sweep, results/HOST/EXPERIMENT")
    paths = record_paths(raw)
    read, left_out = _read_all(paths)
    measured = [(path, record) for path, record in read if "simulated" not in record]
    _refuse_mixture(measured)
    definition = directory / "experiment.toml"
    known = experiment.load(definition) if definition.is_file() else None
    if known is not None:
        present = {path.name.split(".json")[0] for path in paths}
        left_out += _missing(known, present, directory)
    if not read:
        named = f" ({left_out[0].path.name}: {left_out[0].reason})" if left_out else ""
        raise UsageError(f"{raw}: no record that can be read: run tools/sweep.py first{named}")
    ordered = sorted((r for _, r in read), key=lambda r: (r["run"]["order"], r["run"]["id"]))
    modelled = tuple(r for r in ordered if "simulated" in r)
    records = tuple(r for r in ordered if "simulated" not in r)
    return Results(directory, known, records, tuple(left_out), modelled)


def _read_all(paths: Sequence[Path]) -> tuple[list[tuple[Path, Record]], list[LeftOut]]:
    read: list[tuple[Path, Record]] = []
    left_out: list[LeftOut] = []
    by_id: dict[str, Path] = {}
    for path in paths:
        try:
            found = store.read(path)
        except SchemaError as error:
            raise UsageError(str(error)) from error
        except RecordError as error:
            left_out.append(LeftOut(path, str(error).removeprefix(f"record: {path}: ")))
            continue
        problems = store.validate(found, raw="verdict" not in found)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            left_out.append(LeftOut(path, f"damaged: {problems[0]}{more}: run it again"))
            continue
        twin = by_id.setdefault(found["run"]["id"], path)
        if twin != path:
            left_out.append(LeftOut(path, f"the same run as {twin.name}: delete one of them"))
            continue
        read.append((path, whole(found)))
    return read, left_out


def _refuse_mixture(read: Sequence[tuple[Path, Record]]) -> None:
    """Raises UsageError for the first machine key in which two records differ."""
    if not read:
        return
    first_path, first = read[0]
    for path, other in read[1:]:
        for key in SAME_MACHINE:
            a, b = first["machine"].get(key), other["machine"].get(key)
            if a != b:
                raise UsageError(
                    f"{path.parent}: machine.{key} differs: {_short(a)} in {first_path.name}, {_short(b)} in "
                    f"{path.name}: keep the records of two machines, or of two states, in two directories"
                )


def _short(value: Any) -> str:
    return "not known" if value is None else value if isinstance(value, str) else json.dumps(value)


def _missing(known: Experiment, present: Set[str], directory: Path) -> list[LeftOut]:
    """Runs that the experiment wants and that have no file, with the reason of their last attempt."""
    why = _failures(directory / "failures.jsonl")
    return [
        LeftOut(
            directory / "raw" / f"{point.run_id}.json.gz",
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
