"""copyscope report: plots, tables and a report from the records of a sweep. Needs no root."""

import argparse
import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from copyscope import paths
from copyscope.arguments import UsageParser, add
from copyscope.commands import documents, entry, reading
from copyscope.errors import RunError, UsageError, what_to_add
from copyscope.escaping import visible
from copyscope.files import saving
from copyscope.judge import crossover_file
from copyscope.judge.crossover_file import headline, sentence
from copyscope.record.check import Whole
from copyscope.report import html, modelled, readme, table_files
from copyscope.report.blocks import Block
from copyscope.report.plots.catalogue import MODELLED, PLOTS
from copyscope.report.plots.draw import Drawing, Subject, draw_all
from copyscope.report.sections import document
from copyscope.simulate import kernels
from copyscope.study import table as results_table
from copyscope.study.claims.judge import judge_all
from copyscope.study.cost_waterfall import simplest
from copyscope.study.modelled import ModelPoint, points_of
from copyscope.study.study import Study, caption, examine
from copyscope.study.table import Row
from copyscope.sweep import results
from copyscope.sweep.results import Results
from copyscope.sweep.rewriting import derive_anew, rewrite, strip

# The experiment whose models of the caches stand in for what a PMU would have counted.
SIMULATED = ("simulated", "simulated-threads")
EXAMPLES = """\
examples:
  copyscope report results/HOST/quick     one sweep
  copyscope report                        all your sweeps under results/
  copyscope report DIR --out /tmp/look    leave DIR as it is
  copyscope report DIR --derive           redo verdicts and ledgers of an older copyscope
  copyscope report DIR --strip            remove derived data, to archive the records
"""
OPTIONS = """
--out OUT               write to this directory instead of DIR (one DIR only)
--derive                first recompute all derived data (ledger, consistency checks, verdict) from the raw
                        sections of each record, and write the records that change
--strip                 first remove derived data from each record; reading a record recomputes it
"""


def parser() -> UsageParser:
    made = UsageParser(
        prog="report",
        description="Makes report.html, plots and tables (CSV, Parquet) of one sweep from its"
        " DIR/records.jsonl.gz. The same records give the same bytes. Needs no root."
        " Exit status: 0 made, 1 failed, 2 usage.",
        epilog=EXAMPLES,
    )
    made.add_argument("directory", nargs="*", metavar="DIR", help="results/HOST/EXPERIMENT of a sweep")
    add(made, OPTIONS)
    return made


def _report(arguments: argparse.Namespace) -> int:
    # matplotlib's cache stays in the tree, unless that was installed and is not the user's to write in; no
    # configuration of the user's changes a plot
    os.environ["MPLCONFIGDIR"] = str((kernels.cache() if paths.INSTALLED else paths.OUTPUT) / "matplotlib")
    # numpy starts no threads: it multiplies nothing here
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    named = [Path(name) for name in arguments.directory]
    directories = named or [path for path in results.find(paths.RESULTS) if not paths.is_reference(path)]
    if not directories:
        raise UsageError(
            f"{paths.RESULTS}: none of your sweeps in it: measure first (sudo make sweep), or give DIR"
        )
    if arguments.out and len(directories) > 1:
        raise UsageError("--out: one output for several directories: give one DIR")
    asked = ((derive_anew, arguments.derive), (strip, arguments.strip))
    changes = [change for change, wanted in asked if wanted]
    for directory in directories:
        for change in changes:
            count, written = rewrite(directory, change)
            which = ", ".join(written[:3]) + " and others" * (len(written) > 3)
            said = f"{len(written)} of {count} records were changed"
            entry.say(f"{directory}: {said}{f': {which}' if which else ''}")
        try:
            make(directory, Path(arguments.out) if arguments.out else directory)
        except (ImportError, SystemError) as error:
            # SystemError: what Python makes of some allocations that fail. A library's words may be a page.
            why = str(error).rpartition(": ")[2].strip(" )\n")
            raise RunError(
                f"a library of the report cannot be loaded: {why}: free some memory, or install them again: "
                + what_to_add("report")
            ) from error
    return 0


def make(directory: Path, out: Path) -> None:
    """Everything of one sweep, from its records into `out`."""
    # The records stay to the end: nothing is worth collecting but what draw_all() has drawn.
    gc.disable()
    found = reading.load(directory, modelled=True)
    saving.make_directory(out / "plots")
    if found.modelled:
        _make_modelled(found, out)
        return
    runs = found.records
    rows = results_table.fill(runs)
    study = _examine(found, runs, rows)
    _write_tables(study, out)
    shown = caption(runs, rows)
    drawings, undrawn = draw_all(Subject(rows, simplest(rows), shown, crossings=study.crossings))
    drawn = _write_page(document(study, undrawn), drawings, out)
    main = headline(study.crossings)
    # An experiment of one size does not ask from which size on anything pays.
    verdict = sentence(study.crossings, runs) if main and len(main.measured) > 1 else None
    saving.save(out / "README.md", readme.write(study.name, study.question, verdict, shown, drawn))
    counts = f"{len(study.rows)} points, {len(runs)} runs, {len(study.invalid)} invalid"
    print(visible(f"{out / 'report.html'}: {counts}"))


def _make_modelled(found: Results, out: Path) -> None:
    """The report of a simulated experiment."""
    points = points_of(found.modelled)
    study = modelled.ModelStudy(
        found.experiment.name if found.experiment else found.directory.name,
        found.experiment.question if found.experiment else None,
        found.modelled,
        points,
        [(entry.name, entry.reason) for entry in found.left_out],
        judge_all((), points),
    )
    _write_table(table_files.modelled_table(points), out / "modelled")
    drawings, undrawn = draw_all(Subject((), (), study.caption, points))
    drawn = _write_page(modelled.document(study, undrawn), drawings, out)
    verdict = "Modelled, not measured; never mixed with measured numbers."
    saving.save(out / "README.md", readme.write(study.name, study.question, verdict, study.caption, drawn))
    counts = f"{len(points)} points, {len(found.modelled)} boots, {len(found.invalid)} invalid"
    print(visible(f"{out / 'report.html'}: {counts}"))


def _examine(found: Results, runs: Sequence[Whole], rows: Sequence[Row]) -> Study:
    experiment = found.experiment
    return examine(
        experiment.name if experiment else runs[0].raw.run.experiment or found.directory.name,
        experiment.question if experiment else None,
        runs,
        rows,
        left_out=[(entry.name, entry.reason) for entry in found.left_out],
        judgements=judge_all(runs),
        modelled=_simulated_beside(found.directory),
    )


def _simulated_beside(directory: Path) -> list[ModelPoint]:
    """The points of the simulated experiments of the same host, where they were run."""
    places = (directory.absolute().parent / name for name in SIMULATED)
    try:
        records = [
            one for place in places if results.has_records(place) for one in results.load(place).modelled
        ]
    except UsageError as error:
        entry.say(f"no answer from a model of the caches: {error}")
        return []
    return points_of(records)


def _write_tables(study: Study, out: Path) -> None:
    _write_table(table_files.results_table(study.rows, study.name), out / "results")
    _write_table(table_files.ledger_table(study.rows), out / "ledger")
    found = crossover_file.document(study.runs, study.crossings, study.costs)
    documents.write_json(found, out / "crossover.json")


def _write_table(table: table_files.Table, stem: Path) -> None:
    saving.save(stem.with_suffix(".csv"), table_files.as_csv(table))
    saving.save(stem.with_suffix(".parquet"), table_files.as_parquet(table))


def _write_page(blocks: Sequence[Block], drawings: Mapping[str, Drawing], out: Path) -> list[str]:
    """The page and its plots; returns the plots' names. What an older one drew there does not stay."""
    for plot in (*PLOTS, *MODELLED):
        for suffix in (".svg", ".png"):
            if plot.name not in drawings:
                (out / "plots" / f"{plot.name}{suffix}").unlink(missing_ok=True)
    for name, drawn in drawings.items():
        saving.save(out / "plots" / f"{name}.svg", drawn.svg)
        saving.save(out / "plots" / f"{name}.png", drawn.png)
    pictures = {name: drawn.svg for name, drawn in drawings.items()}
    saving.save(out / "report.html", html.write(blocks, pictures).encode())
    return list(drawings)


main = entry.command(parser, _report, "interrupted: run it again, it starts over")
