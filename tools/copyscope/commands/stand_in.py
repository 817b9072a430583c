# SPDX-License-Identifier: GPL-2.0-only
"""Measure copyscope's own traffic in place of a watched program's, and keep the runs for each machine."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from copyscope.base.errors import RunError
from copyscope.commands import entry, record_files, sweep
from copyscope.commands.kept_results import stand_in_directory
from copyscope.judge.advice import with_stand_in
from copyscope.judge.stand_in import StandInPlan
from copyscope.record.run import Run
from copyscope.sweep import results


def add_kept(plan: StandInPlan, run: Run) -> bool:
    """Add the result of the plan's earlier runs to a run's advice. Return False if there is no result."""
    directory = stand_in_directory(plan, run)
    if not results.has_records(directory) or run.derived.advice is None:
        return False
    result = plan.result(record_files.load_sweep(directory).records)
    if result is None:
        return False
    run.derived.advice = with_stand_in(run.derived.advice, result)
    return True


def measure(plan: StandInPlan, run: Run) -> None:
    """Perform the plan's missing runs, and add their result to a run's advice. Raises RunError.

    The two settings alternate in blocks of random order, as in every sweep.
    """
    with TemporaryDirectory() as temporary, redirect_stdout(io.StringIO()):
        file = Path(temporary) / f"{plan.name}.toml"
        file.write_text(plan.experiment(), encoding="utf-8")
        status = sweep.main([str(file), "--out", str(stand_in_directory(plan, run)), "--quiet"])
    if status not in (0, entry.FAILED):
        raise RunError("the measurement did not finish")
    if not add_kept(plan, run):
        raise RunError("fewer than two pairs of runs are valid")
