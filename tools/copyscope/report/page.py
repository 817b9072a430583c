# SPDX-License-Identifier: GPL-2.0-only
"""HTML page for one run in a single file: verdict, path of a byte, ledger, checks and terminal output."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from copyscope import VERSION
from copyscope.base import spelling
from copyscope.ledger.noise import beside_goodput
from copyscope.ledger.share import few_samples, supported
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.run import Run
from copyscope.record.sections import RecordedInterval
from copyscope.report import blocks
from copyscope.report.blocks import machine_blocks
from copyscope.report.costs import flame_graph
from copyscope.report.plots.catalogue import FILLS
from copyscope.report.wording import number
from copyscope.show import terminal, watch
from copyscope.show.columns import page_columns
from copyscope.show.layout import make_console
from copyscope.show.ledger_cells import LedgerPart
from copyscope.show.ledger_rows import Row, kib_factor, occurring, why_no_time
from copyscope.show.path_table import CORES_AT_10_GBPS, where
from copyscope.taxonomy.accounts import called

FLAMES = blocks.Picture(
    "flamegraph",
    "Flame graph",
    "Kernel functions. The width of a function is its CPU time, and copies are red.",
    image=True,
)
# Result of a check or answer about a remedy -> background colour of its cell.
TONES: dict[bool | None, blocks.Tone] = {True: "good", False: "bad", None: "open"}
ANSWERS: dict[str, blocks.Tone] = {"yes": "good", "no": "bad", "maybe": "open"}
# Stages with less than this share of all CPU time are added up in one bar, which has the colour WHITE.
SHARE_MIN, WHITE = 0.01, "#FFFFFF"
# Result of a check -> text of its cell.
HOLDS = {True: "holds", False: "does not hold", None: "n/a"}


def write(run: Run) -> bytes:
    """Return the HTML page for a run. Equal records give equal bytes."""
    pictures = {FLAMES.name: flame_graph(run)} if run.raw.stacks else {}
    return blocks.write_html(document(run), pictures).encode()


def document(run: Run) -> list[blocks.Block]:
    """Return the blocks of a run's page, with the verdict first."""
    flames: list[blocks.Block] = [blocks.Heading(2, FLAMES.title, "flames"), FLAMES]
    return [
        blocks.Heading(1, _title(run), "top"),
        blocks.Paragraph(_byline(run)),
        blocks.Heading(2, "Verdict", "verdict"),
        *_verdict(run),
        blocks.Heading(2, "The path of a byte", "path"),
        *_path(run),
        *(flames if run.raw.stacks else []),
        blocks.Heading(2, "Ledger", "ledger"),
        _ledger(run),
        *_advice(run),
        blocks.Heading(2, "Consistency checks", "checks"),
        _checks(run),
        blocks.Heading(2, "Full output, with explanations", "all"),
        blocks.Fold("as printed on a terminal", [blocks.Code(_terminal_output(run))]),
        *machine_blocks(run.raw.machine),
    ]


def _title(run: Run) -> str:
    if run.raw.target:
        return f"{run.raw.target.title}: its copies"
    work, path = run.raw.asked, run.raw.topology.kind
    size, threads = spelling.format_bytes(work.size_bytes), spelling.counted(work.threads, "thread")
    return f"{work.impl}, {size}, {threads}, {path}: where the copies are"


def _byline(run: Run) -> str:
    machine, measured_by = run.raw.machine, run.raw.copyscope
    when = str(run.raw.run.started)[:16].replace("T", " ")
    return (
        f"Measured on {when} on {machine.hostname}, Linux {machine.kernel}, by copyscope "
        f"{measured_by.version}; run {run.raw.run.id}; page by copyscope {VERSION}."
    )


def _verdict(run: Run) -> Iterator[blocks.Block]:
    """Yield the blocks of the verdict: why the run is invalid, the main result and the goodput."""
    verdict = run.derived.verdict
    if not verdict.valid and not run.is_partial:
        yield blocks.Paragraph("INVALID RUN", strong=True)
        yield blocks.Bullets(verdict.reasons)
    yield blocks.Paragraph(verdict.sentence, strong=True)
    goodput = run.derived.throughput_gbps
    rates = {"without instruments": goodput.unprobed, "with the ledger's instruments": goodput.probed}
    texts = [f"{spelling.format_gbps(rate)} {how}" for how, rate in rates.items() if rate is not None]
    measured = spelling.format_seconds(run.raw.run.measured_s)
    noise = beside_goodput(run.derived.machine_state)
    yield blocks.Paragraph(f"Goodput: {', '.join(texts) or 'n/a'}{noise}; measured for {measured}.")


def _path(run: Run) -> list[blocks.Block]:
    """Return the bars of the CPU time: copies in the order of the path, then stages, the largest first.

    The bars add up to the run's CPU time.
    """
    per_kib = kib_factor(run)
    work = sorted(run.derived.stages, key=lambda row: -(row.cpu_ns or 0.0))
    all_rows: list[Row] = [*occurring(run.derived.ledger), *work]
    rows = [(row, row.cpu_ns) for row in supported(run, all_rows) if row.cpu_ns]
    total_ns = sum(ns for _, ns in rows)
    if not total_ns or per_kib is None:
        few = few_samples(run.raw, run.derived.sides)
        return [blocks.Paragraph(f"Not drawn: {few or why_no_time(run, 'no CPU time was sampled')}.")]
    small = [ns for row, ns in rows if isinstance(row, StageRow) and ns < SHARE_MIN * total_ns]
    shown = [(row, ns) for row, ns in rows if isinstance(row, AccountRow) or ns >= SHARE_MIN * total_ns]
    lines = [_PathBar(_row_label(run, row), FILLS[row.category].colour, ns, row.ci) for row, ns in shown]
    if small:
        lines.append(_PathBar(f"{len(small)} kinds of other work below 1 % each", WHITE, sum(small)))
    longest_ns = max(line.ci.high_ns if line.ci else line.ns for line in lines)
    bars = [_draw_bar(line, longest_ns, total_ns, per_kib) for line in lines]
    summary = f"Total {_spell_cost(total_ns * per_kib)}; shares are of all CPU time."
    payload = "sent or received" if run.raw.target else "delivered"
    title = (
        f"CPU time per KiB {payload}: copies are coloured, other work is grey (lines and brackets: 95 % "
        "intervals)"
    )
    return [blocks.Paragraph(summary), blocks.Bars(title, bars)]


class _PathBar(NamedTuple):
    """A bar of CPU time. `ci`: interval of the time; None if the time is a sum or was not sampled."""

    label: str
    colour: str
    ns: float
    ci: RecordedInterval | None = None


def _draw_bar(line: _PathBar, longest_ns: float, total_ns: float, per_kib: float) -> blocks.BarRow:
    """Return a bar with its interval.

    longest_ns: CPU time of the longest bar, which is as wide as the page
    total_ns: CPU time of all bars
    per_kib: factor that turns CPU time into CPU time per KiB of payload
    """
    text, whisker = f"{_spell_cost(line.ns * per_kib)}, {line.ns / total_ns:.1%}", None
    if line.ci:
        whisker = line.ci.low_ns / longest_ns, line.ci.high_ns / longest_ns
        low, high = (100 * end_ns / total_ns for end_ns in (line.ci.low_ns, line.ci.high_ns))
        text = f"{text} ({low:.1f} to {high:.1f})"
    return blocks.BarRow(line.label, [blocks.Box(0, line.ns / longest_ns, line.colour)], text, whisker)


def _row_label(run: Run, row: Row) -> str:
    location = where(row.side, {row.context})
    name = called(row.category, watched=bool(run.raw.target), side=row.side)
    return f"{name} ({location})" if location else name


def _spell_cost(ns_per_kib: float) -> str:
    """Format a cost in ns/KiB, and as CPU cores at 10 Gb/s."""
    cores = spelling.format_hundredths(ns_per_kib * CORES_AT_10_GBPS)
    return f"{number(ns_per_kib)} ns/KiB, {cores} cores at 10 Gb/s"


def _ledger(run: Run) -> blocks.TableBlock:
    """Return the table of the ledger, with the reasons for unknown values below it."""
    columns, keys = page_columns(), ["what", "side", "where"]
    per_kib = kib_factor(run)
    rows: list[list[str]] = []
    all_rows: list[Row] = [*occurring(run.derived.ledger), *run.derived.stages]
    all_rows = supported(run, all_rows)
    for row in all_rows:
        name = called(row.category, watched=bool(run.raw.target), side=row.side)
        part = LedgerPart(run, (row,), per_kib)
        rows.append(
            [name, row.side, row.context, *(column.cell(view, part) or "" for column, view in columns)]
        )
    numbers = {index for index, (column, _) in enumerate(columns, len(keys)) if not column.is_text}
    notes = _notes(
        row.reasons.get(column.reason_key)
        for row in all_rows
        for column, _ in columns
        if isinstance(row, AccountRow)
    )
    titles = [*keys, *(view.title for _, view in columns)]
    return blocks.TableBlock(titles, rows, frozenset(numbers), notes, "Copies and all other work")


def _advice(run: Run) -> Sequence[blocks.Block]:
    """Return the section on remedies, or no blocks if the run has no advice."""
    advice = run.derived.advice
    if not advice:
        return []
    rows: list[list[str | blocks.Cell]] = [
        [remedy.name, blocks.Cell(remedy.answer, ANSWERS.get(remedy.answer, "")), remedy.why]
        for remedy in advice.remedies or ()
    ]
    table = [blocks.TableBlock(["remedy", "answer", "why"], rows)] if rows else []
    return [
        blocks.Heading(2, "What would help?", "advice"),
        *([blocks.Paragraph(advice.answer)] if advice.answer else []),
        *table,
        blocks.Bullets(advice.reasons or [advice.text]),
    ]


def _checks(run: Run) -> blocks.Block:
    """Return the table of consistency checks, collapsed if all checks hold."""
    rows: list[list[str | blocks.Cell]] = [
        [
            blocks.Cell(HOLDS[check.holds], TONES[check.holds]),
            check.name,
            check.what,
            *(
                "n/a" if value is None else f"{value:,.10g}"
                for value in (check.left, check.right, check.tolerance)
            ),
            check.unit,
        ]
        for check in run.derived.identities
    ]
    columns = ["check", "name", "what must agree", "left", "right", "may differ by", "unit"]
    notes = _notes(check.reason for check in run.derived.identities)
    table = blocks.TableBlock(columns, rows, frozenset((3, 4, 5)), notes, "What must agree")
    answers = [check.holds for check in run.derived.identities if check.holds is not None]
    return blocks.Fold(f"all {len(answers)} checks hold", [table]) if answers and all(answers) else table


def _notes(reasons: Iterable[str | None]) -> list[str]:
    """Return a note for each distinct reason why a value is unknown."""
    return [f"n/a: {reason}." for reason in dict.fromkeys(reasons) if reason]


def _terminal_output(run: Run) -> str:
    """Return the terminal output of `copyscope show -v --explain` for the run."""
    stream = io.StringIO()
    console = make_console(stream)
    render = watch.render if run.raw.target else terminal.render
    render(run, verbose=True, explain=True, console=console)
    return stream.getvalue()
