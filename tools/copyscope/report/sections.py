"""The report from top to bottom: verdict, what leads to it, tables, answers, all plots, methods, machine."""

from collections.abc import Mapping

from copyscope import VERSION
from copyscope.judge.crossover_file import sentence
from copyscope.report.blocks import (
    Block,
    Bullets,
    Code,
    Fold,
    Heading,
    Paragraph,
    Picture,
    Table,
)
from copyscope.report.leading import leading
from copyscope.report.machine import machine_blocks
from copyscope.report.plots.catalogue import PLOTS
from copyscope.report.tables import (
    claims_table,
    copies_table,
    crossovers_table,
    facts_table,
    results_table,
    saved_tables,
    verdict_table,
)
from copyscope.study.study import Study, caption, duration, repeats

FILES = """\
results.csv      results.parquet    one row per point: value, low, high of every metric
ledger.csv       ledger.parquet     one row per point and account or stage: ns/KiB
plots/           every plot as PNG (300 DPI) and SVG
records.jsonl.gz the records, one line per run: docs/reference/record.md"""
NO_PAIR = "No pair of strategies was measured at the same settings."


def document(study: Study, undrawn: Mapping[str, str]) -> list[Block]:
    """All blocks of the report. `undrawn`: names of plots, and why there is nothing to draw."""
    return [
        Heading(
            1, f"{study.name} on {study.machine.hostname}: where the copies are, and what they cost", "top"
        ),
        _byline(study),
        *_verdict(study),
        *leading(study),
        Heading(2, "Crossovers", "crossovers"),
        crossovers_table(study.crossings) if study.crossings else Paragraph(NO_PAIR),
        Heading(2, "Tables", "tables"),
        results_table(study),
        copies_table(study),
        *saved_tables(study.saved),
        *_questions(study),
        *_plots(study, undrawn),
        *_claims(study),
        *_methods(study),
        *machine_blocks(study.machine),
        *_failed(study),
        Heading(2, "Files beside this page", "files"),
        Code(FILES),
        Paragraph(
            "Made from records.jsonl.gz by copyscope report; the same records give the same bytes."
            " See docs/reference/results.md."
        ),
    ]


def _verdict(study: Study) -> list[Block]:
    verdict = sentence(study.crossings, study.runs)
    blocks: list[Block] = [Heading(2, "Verdict", "verdict"), Paragraph(verdict, strong=True)]
    if study.question:
        blocks.append(Paragraph(f"Question: {study.question}"))
    if study.crossings:
        blocks.append(verdict_table(study.crossings))
    counts = f"{len(study.rows)} points, {len(study.runs)} runs"
    bad = f"{len(study.invalid)} invalid, {len(study.left_out)} left out (listed below)"
    blocks.append(Paragraph(f"{counts}: {bad}. {caption(study.runs, study.rows)}"))
    return blocks


def _byline(study: Study) -> Paragraph:
    """When, by what. The page is no younger than its records: it is made again when they change."""
    days = sorted(run.raw.run.started[:10] for run in study.runs)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return Paragraph(f"Measured on {when} by copyscope {_versions(study)}; page by copyscope {VERSION}.")


def _versions(study: Study) -> str:
    found = []
    for made in (run.raw.copyscope for run in study.runs):
        changed = " with changes" if made.dirty else ""
        revision = "no revision" if made.git is None else f"{made.git}{changed}"
        found.append(f"{made.version} ({revision})")
    return ", ".join(dict.fromkeys(found))


def _plots(study: Study, undrawn: Mapping[str, str]) -> list[Block]:
    """All that were drawn; what there is nothing to draw of is one line."""
    if not study.rows:
        return []
    blocks: list[Block] = [Heading(2, "All plots", "plots")]
    drawn = []
    for plot in PLOTS:
        if why := undrawn.get(plot.name):
            blocks.append(Paragraph(f"{plot.title}: not drawn: {why}."))
        else:
            drawn.append(Picture(plot.name, plot.title, plot.alt))
    if drawn:
        blocks.append(Fold(f"{len(drawn)} plots: {', '.join(one.title for one in drawn)}", drawn))
    return blocks


def _questions(study: Study) -> list[Block]:
    blocks: list[Block] = [Heading(2, "Six questions", "questions")]
    for index, answer in enumerate(study.answers, start=1):
        blocks += [Heading(3, f"{index}. {answer.question}", f"question-{index}"), Paragraph(answer.text)]
        if answer.bullets:
            blocks.append(Bullets(answer.bullets))
        if answer.facts:
            blocks.append(facts_table(answer))
    return blocks


def _claims(study: Study) -> list[Block]:
    return [Heading(2, "Published claims", "claims"), claims_table(study)]


def _methods(study: Study) -> list[Block]:
    instruments = dict.fromkeys(
        f"{event.name}: {event.status}" + (f" ({event.reason})" if event.reason else "")
        for run in study.runs
        for event in run.raw.sampler.events
    )
    stolen = [run.raw.machine.steal_percent for run in study.runs]
    steal = [percent for percent in stolen if percent is not None]
    items = [
        f"Each run takes {duration(study.runs)}, {repeats(study.rows)} per point, in shuffled blocks (by a "
        "seed). A block has every point once, so drift of the machine affects all points alike.",
        "Goodput is delivered payload, measured in segments without instruments. CPU time is measured in "
        "segments with the ledger's instruments, per KiB (1024 B) delivered.",
        "Estimates are medians of valid runs with 95 % intervals; strategies are compared repeat by repeat. "
        "If the interval of a difference includes zero, the page says `no difference found`.",
        "Invalid runs count in no figure. Unknown values are n/a with a reason, never 0.",
        f"Sampler: {'; '.join(instruments)}.",
        f"Measured by copyscope {_versions(study)}.",
    ]
    if steal:
        items.append(f"CPU time taken by the hypervisor: at most {max(steal):.3g} % of a run.")
    return [Heading(2, "Methods", "methods"), Bullets(items), Paragraph("In full: docs/method.md.")]


def _failed(study: Study) -> list[Block]:
    blocks: list[Block] = [Heading(2, "Invalid runs, and what was left out", "invalid")]
    if study.invalid:
        rows = []
        for one in study.invalid:
            run, work = one.raw.run, one.raw.asked
            what = f"{work.impl}, {work.size_bytes:,} B, threads {work.threads}, repeat {run.repeat}"
            rows.append([run.id, what, "; ".join(one.derived.verdict.reasons)])
        blocks.append(Table(["run", "what", "why"], rows, title="Invalid runs: kept, shown, never averaged"))
    else:
        blocks.append(Paragraph("No run was invalid."))
    if study.left_out:
        rows = [[name, reason] for name, reason in study.left_out]
        blocks.append(Table(["record", "why"], rows, title="Left out of all figures"))
    else:
        blocks.append(Paragraph("No record was left out."))
    return blocks
