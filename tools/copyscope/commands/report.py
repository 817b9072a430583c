# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope report`: make a page, plots and tables from a sweep's records. Needs no root."""

import argparse
import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from copyscope.base import paths
from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.errors import RunError, UsageError, how_to_install_extra
from copyscope.base.files import make_directory, save
from copyscope.base.spelling import visible
from copyscope.commands import entry, output_files, record_files
from copyscope.judge import crossover_file
from copyscope.record.run import Run
from copyscope.record.store import without_derived
from copyscope.report import modelled, study_table, table_files
from copyscope.report.blocks import Block, write_html
from copyscope.report.claim_judge import judge_all
from copyscope.report.model_points import ModelPoint, points_of
from copyscope.report.plots.catalogue import MODELLED, PLOTS
from copyscope.report.plots.draw import Drawing, PlotSubject, draw_all
from copyscope.report.sections import document, readme
from copyscope.report.study import Study, as_reported, caption, examine
from copyscope.report.study_table import StudyRow
from copyscope.sweep import results
from copyscope.sweep.results import Results, Rewritten, derive_anew, rewrite

# Names of the experiments that model cache misses. Their results on the same host supplement the page of a
# sweep, because many machines have no PMU.
SIMULATED_EXPERIMENTS = ("simulated", "simulated-threads")
# Print the names of at most this many changed records.
CHANGED_IDS_MAX = 3
EXAMPLES = """\
examples:
  copyscope report results/HOST/quick     one sweep
  copyscope report                        all your sweeps under results/
  copyscope report DIR --out /tmp/page    leave DIR as it is
  copyscope report DIR --derive           after an update of copyscope
  copyscope report DIR --strip            make the records smaller
"""
OPTIONS = """
--out DIR               write to this directory instead of that of the sweep (one sweep only)
--derive                first recompute all derived data (ledger, consistency checks, verdict) from the raw
                        sections of each record, and write the records that change
--strip                 first remove derived data from each record; reading a record recomputes it
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope report`."""
    result = UsageParser(
        prog="report",
        usage="%(prog)s [options] [DIR ...]",
        description="Make report.html, plots and tables (CSV) of one sweep from its"
        " DIR/records.jsonl.gz. The same records give the same bytes. Needs no root."
        " Exit status: 0 made, 1 failed, 2 usage.",
        epilog=EXAMPLES,
    )
    result.add_argument("directory", nargs="*", metavar="DIR", help="results/HOST/EXPERIMENT of a sweep")
    add_options(result, OPTIONS)
    return result


def _report(args: argparse.Namespace) -> int:
    """Make the reports of the given sweeps, or of all sweeps under results/, and return the exit status."""
    directories = [Path(name) for name in args.directory] or [
        path for path in results.find(paths.RESULTS) if not paths.is_reference(path)
    ]
    if not directories:
        raise UsageError(
            f"{paths.RESULTS}: contains no sweep of yours; measure first (sudo make sweep), or give DIR"
        )
    if args.out and len(directories) > 1:
        raise UsageError(f"--out {args.out}: a single output, but several directories; give one DIR")
    for directory in directories:
        if args.derive:
            _print_changes(directory, rewrite(directory, derive_anew))
        if args.strip:
            _print_changes(directory, rewrite(directory, without_derived))
        make_page(directory, Path(args.out) if args.out else directory)
    return 0


def make_page(directory: Path, out: Path) -> None:
    """Make all files of a report. Import its libraries first. Raises RunError if they cannot be loaded."""
    # A separate directory keeps matplotlib's cache, and prevents a user's configuration from changing plots.
    cache = paths.cache_directory() if paths.INSTALLED else paths.OUTPUT
    os.environ["MPLCONFIGDIR"] = str(cache / "matplotlib")
    # numpy needs no threads here.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        with entry.insistent_interrupts():
            make_report(directory, out)
    except (ImportError, SystemError) as error:
        # Python raises SystemError after some failed allocations. The message of a library may be long.
        reason = str(error).rpartition(": ")[2].strip(" )\n")
        raise RunError(
            f"cannot load a library that the report needs: {reason}; free some memory, or reinstall the "
            f"libraries: {how_to_install_extra('report')}"
        ) from error


def _print_changes(directory: Path, rewritten: Rewritten) -> None:
    """Print how many of a sweep's records --derive or --strip has changed."""
    changed = rewritten.changed_ids
    ids = ", ".join(changed[:CHANGED_IDS_MAX]) + " and others" * (len(changed) > CHANGED_IDS_MAX)
    message = f"{directory}: {len(changed)} of {rewritten.records} records were changed"
    entry.print_message(f"{message}{f': {ids}' if ids else ''}")


def make_report(directory: Path, out: Path) -> None:
    """Make all files of a report in `out`, from the sweep's records in `directory`."""
    # Garbage collection would only cost time, because all records are needed until the end. Only draw_all()
    # leaves garbage, and draw_all() collects that garbage itself.
    gc.disable()
    sweep = record_files.load_sweep(directory, allow_modelled=True, keep=as_reported)
    make_directory(out / "plots")
    if sweep.modelled:
        _make_modelled_report(sweep, out)
        return
    runs = sweep.records
    rows = study_table.fill(runs)
    study = _examine(sweep, runs, rows)
    _write_tables(study, out)
    subtitle = caption(runs, rows)
    drawings, undrawn = draw_all(PlotSubject(rows, subtitle, ratios=study.ratios))
    plot_names = _write_page(document(study, undrawn), drawings, out)
    verdict = study.verdict if study.answer or study.has_crossovers else None
    save(out / "README.md", readme(study.name, study.question, verdict, subtitle, plot_names))
    counts = f"{len(study.rows)} points, {len(runs)} runs, {len(study.invalid)} invalid"
    print(visible(f"{out / 'report.html'}: {counts}"))


def _make_modelled_report(sweep: Results, out: Path) -> None:
    """Make the report for a sweep of simulated machines."""
    points = points_of(sweep.modelled)
    study = modelled.ModelStudy(
        sweep.experiment.name if sweep.experiment else sweep.directory.name,
        sweep.experiment.question if sweep.experiment else None,
        sweep.modelled,
        points,
        [(entry.name, entry.reason) for entry in sweep.left_out],
        judge_all((), points),
    )
    save(out / "modelled.csv", table_files.as_csv(table_files.modelled_table(points)))
    drawings, undrawn = draw_all(PlotSubject((), study.caption, points))
    plot_names = _write_page(modelled.document(study, undrawn), drawings, out)
    verdict = "Modelled, not measured; never mixed with measured numbers."
    save(out / "README.md", readme(study.name, study.question, verdict, study.caption, plot_names))
    counts = f"{len(points)} points, {len(sweep.modelled)} boots, {len(sweep.invalid)} invalid"
    print(visible(f"{out / 'report.html'}: {counts}"))


def _examine(sweep: Results, runs: Sequence[Run], rows: Sequence[StudyRow]) -> Study:
    """Return the study of a sweep: everything that its page contains."""
    experiment = sweep.experiment
    return examine(
        experiment.name if experiment else runs[0].raw.run.experiment or sweep.directory.name,
        experiment.question if experiment else None,
        runs,
        rows,
        left_out=[(entry.name, entry.reason) for entry in sweep.left_out],
        judgements=judge_all(runs),
        factors=experiment.factors if experiment else {},
        modelled=_modelled_points(sweep.directory),
    )


def _modelled_points(directory: Path) -> list[ModelPoint]:
    """Return the points of the same host's simulated experiments, found next to a sweep's directory."""
    siblings = [directory.absolute().parent / name for name in SIMULATED_EXPERIMENTS]
    try:
        sweeps = [results.load(sibling) for sibling in siblings if results.has_records(sibling)]
    except UsageError as error:
        entry.print_message(f"modelled cache misses are left out: {error}")
        return []
    return points_of([run for sweep in sweeps for run in sweep.modelled])


def _write_tables(study: Study, out: Path) -> None:
    """Write the results, the ledger and the crossovers of a study as files in `out`."""
    save(out / "results.csv", table_files.as_csv(table_files.results_table(study.rows, study.name)))
    save(out / "ledger.csv", table_files.as_csv(table_files.ledger_table(study.rows)))
    crossovers = crossover_file.build_document(study.runs, study.crossings, study.costs)
    output_files.write_document(crossovers, out / "crossover.json")


def _write_page(blocks: Sequence[Block], drawings: Mapping[str, Drawing], out: Path) -> list[str]:
    """Write the page and its plots to `out`, and return the names of the plots.

    Plots of an older report that were not drawn again are deleted.

    drawings: name of a plot -> its files
    """
    for plot in (*PLOTS, *MODELLED):
        for suffix in (".svg", ".png"):
            if plot.name not in drawings:
                (out / "plots" / f"{plot.name}{suffix}").unlink(missing_ok=True)
    for name, drawing in drawings.items():
        if drawing.png is not None:
            save(out / "plots" / f"{name}.svg", drawing.svg)
            save(out / "plots" / f"{name}.png", drawing.png)
    pictures = {name: drawing.svg for name, drawing in drawings.items()}
    save(out / "report.html", write_html(blocks, pictures).encode())
    return list(drawings)


main = entry.make_main("report", parser, _report, "interrupted; the next call starts over")
