"""Where a sweep keeps what it measured. Whatever ends it, a run's record is here whole or not at all.

experiment.toml        the file that was run
records.jsonl.gz       one line per run (record/records_file.py)
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

from copyscope.errors import RunError, UsageError
from copyscope.files import regular_file, saving
from copyscope.files.rescuing import rescue
from copyscope.ledger.derive import whole
from copyscope.paths import is_reference
from copyscope.places import HERE
from copyscope.record import records_file, store
from copyscope.record.same_machine import SAME_MACHINE, SAME_SETTINGS
from copyscope.record.store import Record, RecordError
from copyscope.sweep.experiment import Experiment, Point, difference, load

# A record is some 20 KB; below this the next one may not fit any more.
LEAST_FREE_BYTES = 4 << 20


class StopError(RunError):
    """The sweep cannot go on; what it has is safe."""


@dataclass
class SweepDirectory:
    """An open directory of a sweep; open_directory() makes one."""

    path: Path
    earlier: list[records_file.Line]
    damaged: list[str] = field(default_factory=list)
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    here: Mapping[str, Any] | None = None

    @property
    def records(self) -> Path:
        return self.path / records_file.NAME

    def read_records(self) -> Iterator[Record]:
        """Those of earlier calls. One that cannot be read is noted as damaged, and will be run again."""
        kept = []
        for line in self.earlier:
            problem = line.problem
            if line.record is not None:
                problem = next(iter(store.validate(line.record, raw="verdict" not in line.record)), "")
            if line.record is None or problem:
                self.damaged.append(f"{self.records}: {line.name}: {problem}")
                continue
            self._check_machine(line.record)
            kept.append(line.record)
            yield whole(line.record)
        self.earlier.clear()
        if self.damaged:
            records_file.write(self.records, kept)

    def check_space(self) -> None:
        """Before a run: afterwards its measurement would be lost."""
        try:
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise StopError(f"{self.path}: {error.strerror}: choose another --out") from error
        if free < LEAST_FREE_BYTES:
            raise StopError(f"{self.path}: {free >> 10} KiB left on this device: free some space")

    def keep(self, made: Record) -> None:
        """One record, on the disk when this returns."""
        self._check_machine(made)
        try:
            records_file.append(self.records, made)
        except RecordError as error:
            kept = rescue({f"{made['run']['id']}.json.gz": store.compressed(made)})
            raise StopError(f"{error}: {kept}: free some space, or choose another --out") from error

    def note_failure(self, point: Point, reason: str) -> None:
        """A line in failures.jsonl."""
        path = self.path / "failures.jsonl"
        row = {
            "run_id": point.run_id,
            "factors": point.factors,
            "repeat": point.repeat,
            "reason": reason,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            saving.append(path, json.dumps(row, sort_keys=True).encode() + b"\n", lines=True)
        except OSError as error:
            raise StopError(f"{path}: {error.strerror}: {_next_step(error)}") from error

    def _check_machine(self, found: Record) -> None:
        if self.here is not None and (why := foreign(found, self.here)) is not None:
            raise StopError(f"{self.path}: {why}")
        for host, made_on in _machines_of(found).items():
            machine = {key: value for key, value in made_on.items() if key in (*SAME_MACHINE, "qemu")}
            first = self.machines.setdefault(host, machine)
            for key, value in machine.items():
                if first[key] != value:
                    where = "" if host == HERE else f"{host}: "
                    raise StopError(
                        f"{self.path}: {where}machine.{key}: {first[key]} and {value}: "
                        "results of two machines (or kernels) are not mixed: choose another --out"
                    )


@contextmanager
def open_directory(
    path: Path, experiment: Experiment, here: Mapping[str, Any] | None = None
) -> Iterator[SweepDirectory]:
    """Made if need be, checked to be this experiment's, and ours alone until the end.

    Raises UsageError when another experiment was run into it, RunError when it cannot be used.
    """
    with ExitStack() as held:
        try:
            saving.make_directory(path)
            kept = held.enter_context(saving.open_to_append(path / "experiment.toml"))
            _lock(kept, path)
            _keep_experiment(kept, path, experiment)
            records = path / records_file.NAME
            earlier = records_file.resume(records) if records.exists() else []
        except OSError as error:
            where = error.filename or path
            raise RunError(f"{where}: {error.strerror}: {_next_step(error)}") from error
        yield SweepDirectory(path, earlier, here=here)


def _next_step(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "free some space, or choose another --out" if full else "choose another --out"


def _machines_of(found: Record) -> dict[str, Mapping[str, Any]]:
    """The machines of a record by host; a simulated one is the same wherever this QEMU runs it."""
    if "simulated" in found:
        return {HERE: {"qemu": found["simulated"]["qemu"]["version"]}}
    places = found.get("places")
    if not places:
        return {HERE: found["machine"]}
    return {place["host"]: place["machine"] for place in places.values()}


def foreign(found: Record, here: Mapping[str, Any]) -> str | None:
    """In what a record is of another machine, or of this one in another state; None: in nothing.

    What was measured between two other hosts is not of this machine, whatever it is.
    """
    made_on = _machines_of(found).get(HERE, {})
    for key in (*SAME_MACHINE, *SAME_SETTINGS):
        if key in made_on and key in here and made_on[key] != here[key]:
            what = "" if key == "kernel" else f"{key} "
            return f"made on {what}{made_on[key]}, this is {what}{here[key]}: choose another --out"
    return None


def refuse_foreign(path: Path, here: Mapping[str, Any]) -> None:
    """Before anything is said or run. Raises UsageError for what is no directory, and for results that this
    machine must not go on with.
    """
    there = next(part for part in (path, *path.absolute().parents) if part.exists())
    if not there.is_dir():
        raise UsageError(f"--out: {there}: not a directory: choose another --out")
    if is_reference(path):
        raise UsageError(f"{path}: reference results, of another machine: choose another --out")
    file = path / records_file.NAME
    for line in records_file.lines(file) if file.exists() else ():
        if line.record is not None:
            if (why := foreign(line.record, here)) is not None:
                raise UsageError(f"{path}: {why}")
            return


def _lock(kept: IO[bytes], path: Path) -> None:
    """The kernel drops the lock when we end, however we end."""
    try:
        fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(
            f"{path}: another sweep is running into it: wait for it, or choose another --out"
        ) from None


def _keep_experiment(kept: IO[bytes], path: Path, experiment: Experiment) -> None:
    """Byte for byte the file that was run; one that asks for something else is refused."""
    place = path / "experiment.toml"
    kept.seek(0)
    asked = regular_file.read(experiment.path)
    found = kept.read()
    if found == asked:
        return
    # An empty or half-written file is what a full disk or a kill in this moment leaves; no run exists yet.
    if not found or (asked.startswith(found) and not (path / records_file.NAME).exists()):
        kept.truncate(0)
        kept.write(asked)
        kept.flush()
        os.fsync(kept.fileno())
        return
    key = difference(load(place), experiment)
    if key is not None:
        raise UsageError(
            f"{place}: {key} differs from {experiment.path}: runs of two experiments are not mixed: "
            f"choose another --out, or remove {path} if it is not needed any more"
        )
