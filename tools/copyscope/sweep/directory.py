# SPDX-License-Identifier: GPL-2.0-only
"""The directory of a sweep. However the sweep ends, each run's record is either complete or missing.

experiment.toml        the file that was run
records.jsonl.gz       one line per run (record/store.py)
failures.jsonl         one line per failed attempt
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from copyscope.base import files
from copyscope.base.errors import RecordError, RunError, UsageError
from copyscope.base.files import rescue
from copyscope.base.paths import is_reference
from copyscope.base.programs import HERE
from copyscope.ledger.derive import completed
from copyscope.record import store
from copyscope.record.derived import SimulatedRun
from copyscope.record.measured import Measured
from copyscope.record.run import CompleteRun, Stored, run_section
from copyscope.record.store import SAME_MACHINE, SAME_SETTINGS, machine_facts
from copyscope.sweep.experiment import Experiment, ExperimentPoint, differing_setting, load

# Stop the sweep if fewer bytes than this are free on the device. A record takes some 20 KB.
FREE_BYTES_MIN = 4 << 20


class StopError(RunError):
    """Raised if the sweep cannot continue. The records of its finished runs are safe."""


@dataclass
class SweepDirectory:
    """The open directory of a sweep, as open_directory() yields it.

    path: the directory
    earlier: records from earlier calls of `copyscope sweep`, until read_runs() has read them
    damaged: unreadable records, each with the reason; their runs are repeated
    machines: host -> facts of the machine that made the first record
    here: facts of this machine; None if unknown
    """

    path: Path
    earlier: list[store.RecordLine]
    damaged: list[str] = field(default_factory=list)
    machines: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    here: Mapping[str, Any] | None = None

    @property
    def records(self) -> Path:
        """File with one record per line."""
        return self.path / store.RECORDS_NAME

    def read_runs(self) -> Iterator[CompleteRun]:
        """Yield the runs from earlier calls. Drop unreadable records, so that their runs are repeated."""
        kept: list[store.Document] = []
        for line in self.earlier:
            try:
                record = line.typed()
            except RecordError as error:
                self.damaged.append(f"{self.records}: {line.name}: {error}")
                continue
            self._check_machine(record)
            # Keep the document, because the types may lack some of its keys.
            kept.append(line.record or {})
            yield completed(record)
        self.earlier.clear()
        if self.damaged:
            store.write_records(self.records, kept)

    def check_space(self) -> None:
        """Raise StopError if the disk is too full to save another run. Call this before each run."""
        try:
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise StopError(f"{self.path}: {error.strerror}; choose another --out") from error
        if free < FREE_BYTES_MIN:
            raise StopError(f"{self.path}: {free >> 10} KiB left on this device; free some space")

    def keep(self, run: CompleteRun) -> None:
        """Write a run's record to the disk. Raises StopError if the record cannot be written."""
        self._check_machine(run)
        try:
            store.append_record(self.records, run)
        except RecordError as error:
            rescued = rescue({f"{run_section(run).id}.json.gz": store.compressed(run)})
            raise StopError(f"{error}; {rescued}; free some space, or choose another --out") from error

    def note_failure(self, point: ExperimentPoint, reason: str) -> None:
        """Append a failed attempt at a run, and the reason, to failures.jsonl. Raises StopError."""
        path = self.path / "failures.jsonl"
        row = {
            "run_id": point.run_id,
            "factors": point.factors,
            "repeat": point.repeat,
            "reason": reason,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            files.append(path, json.dumps(row, sort_keys=True).encode() + b"\n", lines=True)
        except OSError as error:
            raise StopError(f"{path}: {error.strerror}; {_next_step(error)}") from error

    def _check_machine(self, record: Stored) -> None:
        """Raise StopError if a record is not from this machine, or not from the first record's machine."""
        if self.here is not None and (difference := foreign(record, self.here)) is not None:
            raise StopError(f"{self.path}: {difference}")
        for host, facts in _machines_of(record).items():
            machine = {key: value for key, value in facts.items() if key in (*SAME_MACHINE, "qemu")}
            first = self.machines.setdefault(host, machine)
            for key, value in machine.items():
                if first[key] != value:
                    prefix = "" if host == HERE else f"{host}: "
                    raise StopError(
                        f"{self.path}: {prefix}machine.{key}: {first[key]} and {value}: "
                        "results of two machines or kernels must not be mixed; choose another --out"
                    )


@contextmanager
def open_directory(
    path: Path, experiment: Experiment, here: Mapping[str, Any] | None = None
) -> Iterator[SweepDirectory]:
    """Create or open the directory of an experiment, and lock it for the body of the `with`.

    here: facts of this machine; None if unknown

    Raises UsageError if the directory belongs to another experiment, RunError if it cannot be used.
    """
    with ExitStack() as stack:
        try:
            files.make_directory(path)
            toml_file = stack.enter_context(files.open_to_append(path / "experiment.toml"))
            _lock(toml_file, path)
            _keep_experiment(toml_file, path, experiment)
            records = path / store.RECORDS_NAME
            earlier = store.resume_records(records) if records.exists() else []
        except OSError as error:
            raise RunError(f"{error.filename or path}: {error.strerror}; {_next_step(error)}") from error
        yield SweepDirectory(path, earlier, here=here)


def _next_step(error: OSError) -> str:
    """Return what the user can do about an error that occurred while writing to the directory."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "free some space, or choose another --out" if is_full else "choose another --out"


def _machines_of(record: Stored) -> dict[str, Mapping[str, Any]]:
    """Return host -> facts of the machine, for each machine in a record.

    For a simulated machine, the only fact is QEMU's version.
    """
    if isinstance(record, SimulatedRun):
        return {HERE: {"qemu": record.simulated.qemu.version}}
    raw = record if isinstance(record, Measured) else record.raw
    if raw.places is None:
        return {HERE: machine_facts(raw.machine)}
    return {host.host: machine_facts(host.machine) for host in (raw.places.sender, raw.places.receiver)}


def foreign(record: Stored, here: Mapping[str, Any]) -> str | None:
    """Describe how this machine differs from the one that made a record; None if it is the same machine.

    Also return None for the record of a run between two other hosts.

    here: facts of this machine
    """
    facts = _machines_of(record).get(HERE, {})
    for key in (*SAME_MACHINE, *SAME_SETTINGS):
        if key in facts and key in here and facts[key] != here[key]:
            prefix = "" if key == "kernel" else f"{key} "
            here_text = f"this machine has {prefix}{here[key]}"
            return f"made on {prefix}{facts[key]}, but {here_text}; choose another --out"
    return None


def refuse_foreign(path: Path, here: Mapping[str, Any]) -> None:
    """Raise UsageError if the path is not a directory, or if it contains another machine's results.

    path: directory of a sweep, which may not exist yet

    here: facts of this machine
    """
    existing = next(part for part in (path, *path.absolute().parents) if part.exists())
    if not existing.is_dir():
        raise UsageError(f"--out {existing}: not a directory; choose another --out")
    if is_reference(path):
        raise UsageError(f"{path}: reference results of another machine; choose another --out")
    file = path / store.RECORDS_NAME
    for line in store.iterate_lines(file) if file.exists() else ():
        try:
            difference = foreign(line.typed(), here)
        except RecordError:
            continue
        if difference is not None:
            raise UsageError(f"{path}: {difference}")
        return


def _lock(toml_file: IO[bytes], path: Path) -> None:
    """Lock the directory, by its experiment.toml. The kernel releases the lock when this process exits."""
    try:
        fcntl.flock(toml_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(
            f"{path}: another sweep writes to this directory; wait for it, or choose another --out"
        ) from None


def _keep_experiment(toml_file: IO[bytes], path: Path, experiment: Experiment) -> None:
    """Copy the experiment's file into the directory of the sweep.

    Raises UsageError if the directory belongs to another experiment.

    toml_file: the open experiment.toml of the directory
    path: the directory
    """
    toml_file.seek(0)
    wanted = files.read(experiment.path)
    kept = toml_file.read()
    if kept == wanted:
        return
    # A full disk or a kill may have left an empty or half-written file, before the first run.
    if not kept or (wanted.startswith(kept) and not (path / store.RECORDS_NAME).exists()):
        toml_file.truncate(0)
        toml_file.write(wanted)
        toml_file.flush()
        os.fsync(toml_file.fileno())
        return
    toml_path = path / "experiment.toml"
    key = differing_setting(load(toml_path), experiment)
    if key is not None:
        raise UsageError(
            f"{toml_path}: {key} differs from {experiment.path}: runs of two experiments are not mixed; "
            f"choose another --out, or remove {path} if it is no longer needed"
        )
