# SPDX-License-Identifier: GPL-2.0-only
"""Writers of the files that --out and --json name: records, folded stacks and JSON documents.

A signal never causes the loss of a record.
"""

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Self

from msgspec import to_builtins

from copyscope.base import process
from copyscope.base.errors import AbandonedError, RunError
from copyscope.base.files import check_writable, make_directory, record_mode, rescue, save
from copyscope.commands import entry
from copyscope.commands.entry import print_message
from copyscope.record import store
from copyscope.record.run import CompleteRun, Run
from copyscope.run.command import SIGNALS_TO_ABANDON
from copyscope.taxonomy.samples import StackSample, folded_stacks


def create_directory(name: str | None) -> Path | None:
    """Create the directory of --out and return it, or None without --out. Raises RunError.

    Commands call this function before they measure, so that a mistyped path does not waste a measurement.
    """
    if name is None:
        return None
    directory = Path(name)
    try:
        make_directory(directory)
        check_writable(directory / "record.json")
    except OSError as error:
        raise RunError(f"--out {name}: {error.strerror}; choose another directory") from error
    return directory


def check_file(name: str | None, option: str = "--json") -> None:
    """Raise RunError if an option's file cannot be written. Commands call this before they measure."""
    if name is None or name == "-":
        return
    try:
        check_writable(Path(name))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{option} {name}: no such directory; create it, or choose another file") from None
    except IsADirectoryError:
        raise RunError(f"{option} {name}: is a directory; choose a file in it") from None
    except OSError as error:
        raise RunError(f"{option} {name}: {error.strerror}; choose another file") from error


def save_run(run: Run, samples: Sequence[StackSample], directory: Path) -> bool:
    """Save a run's record and folded stacks (for any flame graph tool) in the directory of --out.

    Return False if the files could not be written there. The files are then saved in another directory, and a
    message names that directory.
    """
    stem = f"{run.raw.run.id}-{run.raw.run.started.replace(':', '')}"
    stacks = folded_stacks(samples).encode(errors="replace")
    files = {f"{stem}.json": store.serialise(run), f"{stem}.folded": stacks}
    try:
        for name, data in files.items():
            save(directory / name, data, record_mode())
    except OSError as error:
        # No exception, because the command still has to print its table.
        print_message(f"--out {directory}: cannot be written: {error.strerror}")
        print_message(rescue(files))
        return False
    return True


def write_runs(runs: CompleteRun | Sequence[Run], name: str) -> bool:
    """Write the record of a run, or a list of records, to the file of --json, or to stdout if it is `-`.

    A file whose name ends with .gz is compressed. Return False if the file could not be written. The
    record is then saved in another directory, and a message names the directory.
    """
    data = store.as_indented_json(runs).encode() if isinstance(runs, Sequence) else store.serialise(runs)
    try:
        if name != "-":
            save(Path(name), store.gzipped(data) if name.endswith(".gz") else data, record_mode())
            return True
        sys.stdout.write(store.as_indented_json(runs))
        stdout_error = process.output_error(sys.stdout)
        if stdout_error is None:
            return True
        raise stdout_error
    except OSError as error:
        print_message(f"--json {name}: cannot be written: {error.strerror}")
        print_message(rescue({"record.json": data}))
        return False


# Signals that stop a measurement, but not its report.
STOP_SIGNALS = (signal.SIGINT, *entry.INTERRUPTING_SIGNALS)


class SignalGuard:
    """Context in which a signal stops the measurement, but not the report.

    Before measuring_done() a signal raises KeyboardInterrupt. Afterwards signals are only counted. When the
    user has sent SIGNALS_TO_ABANDON signals, AbandonedError ends the command without a report.
    """

    def __init__(self) -> None:
        # Number of signals after measuring_done().
        self.ignored_signals = 0
        self._is_measuring = True

    def measuring_done(self) -> None:
        """From now on, count signals instead of raising KeyboardInterrupt."""
        self._is_measuring = False

    def __enter__(self) -> Self:
        # Under nohup(1) SIGHUP is ignored, and the run goes on.
        handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_measuring:
            raise KeyboardInterrupt
        self.ignored_signals += 1
        if self.ignored_signals >= SIGNALS_TO_ABANDON:
            raise AbandonedError


def write_document(document: object, file: Path) -> None:
    """Write a JSON document to a file. Raises OSError."""
    text = json.dumps(to_builtins(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    save(file, text.encode(errors="backslashreplace"))


def write_json_option(document: object, name: str | None) -> None:
    """Write a JSON document to the file of --json, or to stdout for `-`. Without --json, do nothing.

    Raises OSError.
    """
    if name == "-":
        print_document(document)
    elif name is not None:
        write_document(document, Path(name))


def print_document(document: object) -> None:
    """Print a JSON document. Characters that stdout cannot encode become \\u escapes."""
    ascii_only = not process.is_utf8(sys.stdout)
    text = json.dumps(to_builtins(document), indent=1, ensure_ascii=ascii_only, allow_nan=False)
    sys.stdout.write(text + "\n")
