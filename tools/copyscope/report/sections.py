# SPDX-License-Identifier: GPL-2.0-only
"""Sections of a sweep's report, from verdict to machine, and the README.md for its directory."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from copyscope import VERSION
from copyscope.base.stats import Estimate, grouped
from copyscope.judge.crossover import where_second_is_better
from copyscope.judge.crossover_sentences import TYPICAL_BYTES
from copyscope.report.blocks import (
    BarRow,
    Bars,
    Block,
    Box,
    Bullets,
    Choice,
    Code,
    Fold,
    Heading,
    Paragraph,
    Picture,
    TableBlock,
    View,
    machine_blocks,
)
from copyscope.report.plots.catalogue import BLUE, FILLS, MODELLED, PLOTS, RATIOS, VERMILLION, view_name
from copyscope.report.questions import SHORT
from copyscope.report.study import (
    Study,
    caption,
    claims_table,
    copies_table,
    crossovers_table,
    duration,
    facts_table,
    repeats,
    results_table,
    saved_tables,
    verdict_table,
)
from copyscope.report.study_table import (
    BASES,
    RatioView,
    StudyRow,
    Waterfall,
    WaterfallStep,
    comparable,
    spell_factor,
    varied,
    why_no_waterfall,
)
from copyscope.report.wording import number, spell_estimate
from copyscope.taxonomy.accounts import ACCOUNTS

# Text of the section "Files beside this page".
FILES = """\
results.csv      one row per point: value, low, high of every metric
ledger.csv       one row per point and account or stage: ns/KiB
plots/           every plot as PNG (150 DPI) and SVG
records.jsonl.gz the records, one line per run: docs/reference/record.md"""
NO_PAIR = "No pair of strategies was measured at several sizes with the same settings."


def document(study: Study, undrawn: Mapping[str, str]) -> list[Block]:
    """Return all blocks of the report. `undrawn`: name of a plot -> reason why the plot was not drawn."""
    return [
        Heading(1, f"{study.name} on {study.machine.hostname}: copies and their cost", "top"),
        _byline(study),
        *_verdict(study),
        *leading(study, undrawn),
        Heading(2, "Crossovers", "crossovers"),
        crossovers_table(study.crossings) if study.has_crossovers else Paragraph(NO_PAIR),
        Heading(2, "Tables", "tables"),
        results_table(study),
        copies_table(study),
        *saved_tables(study.saved),
        *_questions(study),
        *_plots(study, undrawn),
        Heading(2, "Published claims", "claims"),
        claims_table(study),
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
    """Return the section with the main result, the question, and the number of points and runs."""
    blocks: list[Block] = [Heading(2, "Verdict", "verdict"), Paragraph(study.verdict, strong=True)]
    if study.question:
        blocks.append(Paragraph(f"Question: {study.question}"))
    if study.answer and study.answer.settings > 1:
        blocks.append(Paragraph("The lowest and the highest ratio of each, by setting:"))
        blocks.append(Bullets([value.extremes for value in study.answer.values]))
    if study.has_crossovers:
        blocks.append(verdict_table(study.crossings))
    counts = f"{len(study.rows)} points, {len(study.runs)} runs"
    bad = f"{len(study.invalid)} invalid, {len(study.left_out)} left out (listed below)"
    blocks.append(Paragraph(f"{counts}: {bad}. {caption(study.runs, study.rows)}"))
    return blocks


def _byline(study: Study) -> Paragraph:
    """Return a line with the records' date, and the copyscope versions that made the records and the page."""
    days = sorted(run.raw.run.started[:10] for run in study.runs)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return Paragraph(f"Measured on {when} by copyscope {_versions(study)}; page by copyscope {VERSION}.")


def _versions(study: Study) -> str:
    """Format the copyscope versions and git revisions that measured the runs."""
    versions = []
    for build in (run.raw.copyscope for run in study.runs):
        changed = " with changes" if build.dirty else ""
        revision = "no revision" if build.git is None else f"{build.git}{changed}"
        versions.append(f"{build.version} ({revision})")
    return ", ".join(dict.fromkeys(versions))


def _plots(study: Study, undrawn: Mapping[str, str]) -> list[Block]:
    """Return the section with plots that no other section shows, and a line for each plot without data."""
    if not study.rows:
        return []
    blocks: list[Block] = [Heading(2, "Other plots", "plots")]
    drawn = []
    for plot in (plot for plot in PLOTS if plot != RATIOS):
        if why := undrawn.get(plot.name):
            blocks.append(Paragraph(f"{plot.title}: not drawn: {why}."))
        else:
            drawn.append(Picture(plot.name, plot.title, plot.alt))
    if drawn:
        blocks.append(Fold(f"{len(drawn)} plots: {', '.join(picture.title for picture in drawn)}", drawn))
    return blocks


def _questions(study: Study) -> list[Block]:
    """Return the section with the six questions, each with its answer and the facts behind it."""
    blocks: list[Block] = [Heading(2, "Six questions", "questions")]
    for index, answer in enumerate(study.answers, start=1):
        blocks += [Heading(3, f"{index}. {answer.question}", f"question-{index}"), Paragraph(answer.text)]
        if answer.bullets:
            blocks.append(Bullets(answer.bullets))
        if answer.facts:
            blocks.append(facts_table(answer))
    return blocks


def _methods(study: Study) -> list[Block]:
    """Return the section that explains how the numbers were measured and estimated."""
    instruments = dict.fromkeys(
        f"{event.name}: {event.status}" + (f" ({event.reason})" if event.reason else "")
        for run in study.runs
        for event in run.raw.sampler.events
    )
    stolen = [run.raw.machine.steal_percent for run in study.runs]
    steal = [percent for percent in stolen if percent is not None]
    items = [
        f"Each run takes {duration(study.runs)}, {repeats(study.rows)} per point, in shuffled blocks (by a "
        "seed). A block has every point once, so that drift of the machine affects all points alike.",
        "Goodput is delivered payload, measured in segments without instruments. CPU time is measured in "
        "segments with the ledger's instruments, per KiB (1024 B) delivered.",
        "Estimates are medians of valid runs with 95 % intervals; strategies are compared repeat by repeat. "
        "If the interval of a difference includes zero, the page says `no difference found`.",
        "Invalid runs are not part of any figure. Unknown values are n/a with a reason, never 0.",
        f"Sampler: {'; '.join(instruments)}.",
        f"Measured by copyscope {_versions(study)}.",
    ]
    if steal:
        items.append(f"CPU time taken by the hypervisor: at most {max(steal):.3g} % of a run.")
    return [Heading(2, "Methods", "methods"), Bullets(items), Paragraph("In full: docs/method.md.")]


def _failed(study: Study) -> list[Block]:
    """Return the section on invalid runs and skipped records, each with its reason."""
    blocks: list[Block] = [Heading(2, "Invalid runs and skipped records", "invalid")]
    if study.invalid:
        rows = []
        for run in study.invalid:
            header, asked = run.raw.run, run.raw.asked
            settings = (
                f"{asked.impl}, {asked.size_bytes:,} B, threads {asked.threads}, repeat {header.repeat}"
            )
            rows.append([header.id, settings, "; ".join(run.derived.verdict.reasons)])
        title = "Invalid runs: listed here, not used in any average"
        blocks.append(TableBlock(["run", "settings", "reason"], rows, title=title))
    else:
        blocks.append(Paragraph("No run was invalid."))
    if study.left_out:
        rows = [[name, reason] for name, reason in study.left_out]
        blocks.append(TableBlock(["record", "reason"], rows, title="Left out of all figures"))
    else:
        blocks.append(Paragraph("No record was left out."))
    return blocks


# Colours of bars for the totals of a waterfall, and for all work other than copies.
TOTAL_COLOUR, OTHER_WORK_COLOUR = "#999999", "#D9D9D9"
# Factor -> name of the factor in menus. Other factors appear under their own name.
MENU_NAMES = {"size": "message size"}


def leading(study: Study, undrawn: Mapping[str, str]) -> list[Block]:
    """Return the sections that open the report: waterfalls and ratios.

    undrawn: name of a plot -> reason why the plot was not drawn
    """
    if not study.rows:
        return []
    why = f"{RATIOS.title}: not drawn: {undrawn.get(RATIOS.name)}."
    return [
        Heading(2, "Where the saved copy went", "saved"),
        *_settings(study),
        Heading(2, f"Against {study.ratios[0].base if study.ratios else BASES[0]}", "ratios"),
        _ratios(study.ratios) if study.ratios else Paragraph(why),
    ]


def _settings(study: Study) -> list[Block]:
    """Return a view for each setting, with its waterfalls and a bar of CPU time for each strategy."""
    swept = varied(study.rows, without=("impl",))
    ordered = sorted(study.rows, key=lambda row: [comparable(row.factors.get(name)) for name in swept])
    groups = grouped(ordered, lambda row: _setting(row, swept))
    drawable = [item for item in study.saved if isinstance(item, Waterfall)]
    waterfalls = grouped(drawable, lambda waterfall: _setting(waterfall.after, swept))
    views = []
    for setting, rows in groups.items():
        bars: list[Block] = [_steps(waterfall) for waterfall in waterfalls.get(setting, [])]
        shares = _shares(rows)
        if shares.bars:
            bars.append(shares)
        views.append(View(setting, bars or [Paragraph("No CPU time was sampled in this setting.")]))
    blocks: list[Block] = []
    if why := why_no_waterfall(study.saved):
        blocks.append(Paragraph(f"From one_copy to zero_copy: not drawn: {why}."))
    names = [MENU_NAMES.get(name, name.replace("_", " ")) for name in swept]
    has_waterfall = [setting in waterfalls for setting in groups]
    return [*blocks, Choice(names, views, _first_view(list(groups.values()), has_waterfall))]


def _setting(row: StudyRow, swept: Sequence[str]) -> tuple[str, ...]:
    """Format a row's values of the varied factors (`swept`)."""
    return tuple(spell_factor(name, row.factors.get(name)) for name in swept)


def _first_view(groups: Sequence[Sequence[StudyRow]], has_waterfall: Sequence[bool]) -> int:
    """Return the index of the setting to show first: the fewest threads, and the most typical message size.

    groups: rows of each setting
    has_waterfall: for each setting, True if it has a waterfall; such settings are preferred
    """

    def distance(index: int) -> tuple[bool, int, float]:
        row = groups[index][0]
        return not has_waterfall[index], row.threads, abs(math.log(row.size / TYPICAL_BYTES))

    return min(range(len(groups)), key=distance)


def _steps(waterfall: Waterfall) -> Bars:
    """Return a waterfall's bars: the first cost, each step between the costs, and the second cost."""
    levels = list(accumulate((step.change.value for step in waterfall.steps), initial=waterfall.start))
    low, high = min(0.0, *levels), max(levels)

    def box(start: float, end: float, colour: str) -> Box:
        left, right = sorted((start, end))
        return Box((left - low) / (high - low), (right - left) / (high - low), colour)

    def whisker(level: float, step: WaterfallStep) -> tuple[float, float] | None:
        if step.change.ends is None:
            return None
        first, last = ((level + end - low) / (high - low) for end in step.change.ends)
        # An interval beyond the bars is cut off.
        return min(1.0, max(0.0, first)), min(1.0, max(0.0, last))

    before, after = waterfall.names
    bars = [BarRow(before, [box(0, waterfall.start, TOTAL_COLOUR)], f"{number(waterfall.start)} ns/KiB")]
    for step, level in zip(waterfall.steps, levels, strict=False):
        change = step.change.value
        colour = VERMILLION if change >= 0 else BLUE
        change_text = f"{'+' if change >= 0 else ''}{spell_estimate(step.change)}"
        bars.append(
            BarRow(step.name, [box(level, level + change, colour)], change_text, whisker(level, step))
        )
    bars.append(BarRow(after, [box(0, waterfall.end, TOTAL_COLOUR)], f"{number(waterfall.end)} ns/KiB"))
    legend = [(TOTAL_COLOUR, "total"), (BLUE, "saved"), (VERMILLION, "added")]
    setting, strategy = (
        ("", "") if waterfall.by == "impl" else (f"{waterfall.by} ", f" of {waterfall.after.impl}")
    )
    has_intervals = any(step.change.ends for step in waterfall.steps)
    note = "in brackets: 95 % intervals" if has_intervals else "one repeat: no intervals"
    title = f"CPU time per KiB{strategy}, all processes: from {setting}{before} to {setting}{after} ({note})"
    return Bars(title, bars, legend)


def _shares(rows: Sequence[StudyRow]) -> Bars:
    """Return a bar for each strategy that divides its CPU time per KiB into copies and other work."""
    bars, legend = [], []
    for row in rows:
        total = sum(row.parts.values())
        if total <= 0:
            continue
        copies = [(name, row.parts[name]) for name in ACCOUNTS if row.parts.get(name, 0.0) > 0]
        parts = [(ACCOUNTS[name].title, FILLS[name].colour, ns) for name, ns in copies]
        parts.append(("other work", OTHER_WORK_COLOUR, total - sum(ns for _, ns in copies)))
        left, boxes = 0.0, []
        for name, colour, ns in parts:
            share = ns / total
            boxes.append(Box(left, share, colour, f"{name} {share:.0%}"))
            left += share
        legend += [(colour, name) for name, colour, _ in parts]
        shares = ", ".join(f"{name} {_spell_share(ns / total)}" for name, _, ns in parts)
        bars.append(BarRow(row.impl, boxes, f"{shares}; total {number(total)} ns/KiB"))
    order = [*(account.title for account in ACCOUNTS.values()), "other work"]
    unique = sorted(dict.fromkeys(legend), key=lambda entry: order.index(entry[1]))
    title = "CPU time per KiB: each bar is 100 % of a strategy's CPU time, copies are coloured"
    return Bars(title, bars, unique)


def _spell_share(share: float) -> str:
    return "below 0.5 %" if share < 0.005 else f"{100 * share:.0f} %"


def _ratios(views: Sequence[RatioView]) -> Choice:
    """Return a choice with a view for each setting: picture of the ratios, crossovers and numbers."""
    names = [name.replace("_", " ") for name in views[0].setting]
    return Choice(
        names,
        [View(list(view.setting.values()), _ratio_view(index, view)) for index, view in enumerate(views)],
    )


def _ratio_view(index: int, view: RatioView) -> list[Block]:
    """Return a setting's picture, crossovers and tables. `index`: index of the setting."""
    blocks: list[Block] = [Picture(view_name(index), RATIOS.title, RATIOS.alt)]
    sentences = [
        f"{crossing.pair[1]} against {crossing.pair[0]}, {SHORT[metric]}: {where_second_is_better(crossing)}."
        for metric, crossings in view.crossings.items()
        for crossing in crossings.values()
    ]
    blocks += [Bullets(sentences)] if sentences else []
    tables = [_ratio_table(view, metric) for metric in view.ratios if view.ratios[metric]]
    return [*blocks, Fold("the ratios in numbers", tables)]


def _ratio_table(view: RatioView, metric: str) -> TableBlock:
    """Return the table of a metric's ratios: one row per value of the axis, one column per strategy."""
    ratios = view.ratios[metric]
    rows = [
        [spell_factor(view.axis.factor, position), *(_spell_ratio(values[i]) for values in ratios.values())]
        for i, position in enumerate(view.positions)
    ]
    columns = [view.axis.label, *ratios]
    numbers = frozenset(range(1, len(columns)))
    return TableBlock(columns, rows, numbers, title=f"Ratio to {view.base}: {SHORT[metric]}")


def _spell_ratio(value: Estimate | None) -> str:
    if value is None:
        return "n/a"
    ends = "" if value.ends is None else f" [{value.ends[0]:.2f}, {value.ends[1]:.2f}]"
    return f"{value.value:.2f}{ends}"


# Names of the plots in the README of a measured sweep. The README of a simulated sweep has all its plots.
README_PLOTS = ("goodput", "cycles", "ledger_stack")


def readme(name: str, question: str | None, verdict: str | None, caption: str, drawn: Sequence[str]) -> bytes:
    """Return a sweep's README.md, in UTF-8.

    verdict: sentence with the main result; None if there is no such sentence
    caption: machine and method, in one line
    drawn: names of the plots that were drawn
    """
    lines = [f"# {name}", ""]
    lines += [f"*{question}*", ""] if question else []
    lines += [verdict, ""] if verdict else []
    for plot in (*PLOTS, *MODELLED):
        if plot.name not in drawn or not (plot.name in README_PLOTS or plot in MODELLED):
            continue
        lines += [f"![{plot.alt}](plots/{plot.name}.png)", ""]
    tables = "`modelled.csv`" if MODELLED[0].name in drawn else "`results.csv` and `ledger.csv`"
    lines += [
        caption,
        "",
        "`records.jsonl.gz` has every run. `copyscope report` on this directory writes this page,"
        f" {tables} with the numbers, and `report.html` with the verdict, all plots, answers"
        " and methods.",
    ]
    return "\n".join([*lines, ""]).encode()
