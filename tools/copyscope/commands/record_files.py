# SPDX-License-Identifier: GPL-2.0-only
"""Readers of records and sweeps, for commands that judge or show them. Skipped records are reported."""

import os
from collections.abc import Callable
from pathlib import Path

from copyscope.base import files
from copyscope.base.errors import RecordError, RunError, UsageError
from copyscope.base.paths import is_reference
from copyscope.base.spelling import counted
from copyscope.commands.entry import print_message
from copyscope.commands.output_files import write_document
from copyscope.ledger.derive import completed
from copyscope.record import store
from copyscope.record.run import CompleteRun
from copyscope.sweep import results
from copyscope.sweep.results import Results

RECORD_SUFFIXES = (".json", ".json.gz", store.RECORDS_SUFFIX)
# Print the reasons of at most this many invalid runs, because a large sweep may have dozens of invalid runs.
INVALID_RUNS_SHOWN_MAX = 3


def load_sweep(
    directory: Path,
    *,
    allow_modelled: bool = False,
    keep: Callable[[CompleteRun], CompleteRun] = lambda run: run,
) -> Results:
    """Load the runs of a sweep, and print which records are left out. Raises UsageError.

    allow_modelled: accept a sweep of simulated machines
    keep: function that returns the part of a run to keep in memory
    """
    sweep = results.load(directory, keep)
    if sweep.modelled and not allow_modelled:
        raise UsageError(f"{directory}: modelled, not measured; give measured runs")
    for entry in sweep.left_out:
        print_message(f"left out: {entry.name}: {entry.reason}")
    # An invalid boot of a simulated machine loses only the points that were counted while a check failed.
    consequence = "invalid, that point is not used" if sweep.modelled else "invalid, not used"
    for run_id, reason in sweep.invalid[:INVALID_RUNS_SHOWN_MAX]:
        print_message(f"{consequence}: {run_id}: {reason}")
    if (more := len(sweep.invalid) - INVALID_RUNS_SHOWN_MAX) > 0:
        print_message(f"{counted(more, 'more invalid run')}; copyscope show FILE --run ID prints the reason")
    return sweep


def record_paths(directory: Path) -> list[Path]:
    """Return the record files in a directory, sorted. The name of an unfinished file begins with a dot."""
    return sorted(
        path for path in directory.iterdir() if path.name.endswith(RECORD_SUFFIXES) and path.name[0] != "."
    )


def read_runs(path: Path, run_id: str | None = None) -> list[CompleteRun]:
    """Return the runs in a record file, or only the run with this id.

    Raises RecordError or RunError for an unusable file, UsageError for an unknown id.
    """
    document_count, runs = 0, []
    for document in store.read_documents(path):
        document_count += 1
        if run_id is None or store.find_run_id(document) == run_id:
            try:
                runs.append(completed(store.as_record(document)))
            except RecordError as error:
                raise RunError(f"{path}: {error}") from error
    if run_id is not None and not runs:
        raise UsageError(f"--run {run_id}: not one of the {document_count} runs in {path}; check the id")
    return runs


def write_answer(document: object, name: str, sweep_directory: Path, out: str | None) -> None:
    """Write a JSON document to the directory of --out, or next to the records that it was computed from.

    The document is not written next to reference results or another user's records; a message then suggests
    --out.

    name: file name of the document
    sweep_directory: directory of the records
    out: directory of --out; None if the option was not given
    """
    if out is not None:
        files.make_directory(Path(out))
        write_document(document, Path(out) / name)
    elif is_reference(sweep_directory):
        print_message(f"{sweep_directory}: reference results; {name} was not written; use --out DIR")
    elif _belongs_to_user(sweep_directory):
        write_document(document, sweep_directory / name)
    else:
        print_message(
            f"{sweep_directory}: not writable, or owned by another user; {name} was not written; "
            "use --out DIR"
        )


def _belongs_to_user(directory: Path) -> bool:
    """Return True if a directory belongs to this user (or to the user who called sudo) and is writable."""
    invoking_ids = files.invoking_ids() if os.geteuid() == 0 else None
    user_id = os.geteuid() if invoking_ids is None else invoking_ids[0]
    return directory.stat().st_uid == user_id and os.access(directory, os.W_OK)
