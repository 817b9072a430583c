"""Where a sweep keeps what it measured. Whatever ends it, a run's record is here whole or not at all.

experiment.toml        the file that was run
raw/RUN_ID.json.gz     one record per run
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
from copyscope.record import store
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
    records: dict[str, Path] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    here: Mapping[str, Any] | None = None

    @property
    def raw(self) -> Path:
        return self.path / "raw"

    def read_records(self) -> Iterator[Record]:
        """Those of earlier calls. One that cannot be read is noted as damaged, and will be run again."""
        for path in sorted(self.raw.glob("*.json.gz")):
            run_id = path.name.removesuffix(".json.gz")
            try:
                found = store.read(path)
                if problems := store.validate(found, raw="verdict" not in found):
                    raise RecordError(f"record: {path}: not complete: {problems[0]}")
            except RecordError as error:
                self.damaged.append(str(error))
                continue
            if found["run"]["id"] != run_id:
                self.damaged.append(f"record: {path}: holds the run {found['run']['id']}")
                continue
            self._check_machine(found)
            self.records[run_id] = path
            yield whole(found)

    def check_space(self) -> None:
        """Before a run: afterwards its measurement would be lost."""
        try:
            free = shutil.disk_usage(self.raw).free
        except OSError as error:
            raise StopError(f"{self.raw}: {error.strerror}: choose another --out") from error
        if free < LEAST_FREE_BYTES:
            raise StopError(f"{self.raw}: {free >> 10} KiB left on this device: free some space")

    def keep(self, made: Record) -> None:
        """One record, on the disk when this returns."""
        self._check_machine(made)
        path = self.raw / f"{made['run']['id']}.json.gz"
        try:
            store.write(made, path)
        except RecordError as error:
            kept = rescue({path.name: store.compressed(made)})
            raise StopError(f"{error}: {kept}: free some space, or choose another --out") from error
        self.records[made["run"]["id"]] = path

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
            with saving.open_to_append(path) as stream:
                # A line that a full disk has cut stays alone.
                if stream.tell() and (stream.seek(-1, os.SEEK_END), stream.read(1))[1] != b"\n":
                    stream.write(b"\n")
                stream.write(json.dumps(row, sort_keys=True).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
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
            saving.make_directory(path / "raw")
            kept = held.enter_context(saving.open_to_append(path / "experiment.toml"))
            _lock(kept, path)
            _keep_experiment(kept, path, experiment)
            # What a kill in the middle of writing has left.
            for part in (path / "raw").glob(".*.part"):
                part.unlink()
        except OSError as error:
            where = error.filename or path
            raise RunError(f"{where}: {error.strerror}: {_next_step(error)}") from error
        yield SweepDirectory(path, here=here)


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
    for file in sorted((path / "raw").glob("*.json.gz")):
        try:
            found = store.read(file)
        except RecordError:
            continue  # it will be named, and run again
        if (why := foreign(found, here)) is not None:
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
    if asked.startswith(found) and not any((path / "raw").glob("*.json.gz")):
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
