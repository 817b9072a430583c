# SPDX-License-Identifier: GPL-2.0-only
"""Results that earlier commands kept on this host: crossovers, and runs of stand-ins."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import json

from copyscope.base import files
from copyscope.base.paths import command, host_results
from copyscope.commands.entry import print_message
from copyscope.judge import crossover_file
from copyscope.judge.stand_in import StandInPlan
from copyscope.record.run import Run


def read_crossovers(
    host_directories: Iterable[Path], machine_facts: Mapping[str, Any]
) -> list[crossover_file.SavedCrossover] | None:
    """Return this host's results of `copyscope crossover`, the newest first, or None if there are none.

    host_directories: result directories of the host
    machine_facts: facts of this machine, with which each result is compared
    """
    results: list[tuple[str, list[crossover_file.SavedCrossover]]] = []
    paths = sorted(file for directory in host_directories for file in directory.glob("*/crossover.json"))
    for file in paths:
        try:
            document = json.decode(files.read(file), type=crossover_file.Document)
            rows = crossover_file.saved_crossovers(document, file, machine_facts)
        except (OSError, ValueError, RecursionError) as error:
            # A damaged file must not cost the report of the program.
            next_step = f"run {command()} crossover {file.parent}"
            print_message(f"--advise: {file}: left out, not a crossover file: {error!r}; {next_step}")
        else:
            # Sorted by the time in the file, because git does not keep modification times.
            results.append((document.started or "", rows))
    results.sort(key=lambda result: result[0], reverse=True)
    return [row for _, rows in results for row in rows] or None


def stand_in_directory(plan: StandInPlan, run: Run) -> Path:
    """Return the directory for a stand-in's runs on the host and kernel of a watched program's run."""
    machine = run.raw.machine
    return host_results(machine.hostname, machine.kernel) / plan.name
