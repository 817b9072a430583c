"""One run as an HTML page that needs nothing else: verdict, path of a byte, ledger, checks, all the rest."""

import io
from collections.abc import Iterable, Iterator, Sequence

from copyscope import VERSION, units
from copyscope.exports import flamegraph
from copyscope.exports.costs import moved
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow, StageRow
from copyscope.report import blocks, html
from copyscope.report.machine import machine_blocks
from copyscope.report.plots.colours import FILLS
from copyscope.show import terminal, watch
from copyscope.show.account_words import called
from copyscope.show.console import make_console
from copyscope.show.ledger_table import Row, kib_factor, occurring, why_no_time
from copyscope.show.path_table import CORES_AT_10_GBPS, where
from copyscope.study.wording import number

FLAMES = blocks.Picture(
    "flamegraph", "Flame graph", "Functions of the kernel, as wide as their CPU time; copies are red."
)
SHOWN = ("ns_per_kib", "ci", "share", "bytes", "calls")
TONES: dict[bool | None, blocks.Tone] = {True: "good", False: "bad", None: "open"}
ANSWERS: dict[str, blocks.Tone] = {"yes": "good", "no": "bad", "maybe": "open"}
# Work that takes less of all CPU time is one bar together.
LEAST, WHITE = 0.01, "#FFFFFF"
HOLDS = {True: "holds", False: "does not hold", None: "n/a"}


def write(run: Whole) -> bytes:
    """The page; the same record gives the same bytes."""
    pictures = {FLAMES.name: flamegraph.draw(run)} if run.raw.stacks else {}
    return html.write(document(run), pictures).encode()


def document(run: Whole) -> list[blocks.Block]:
    """All blocks, the verdict first."""
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
        blocks.Heading(2, "All of it, and what it means", "all"),
        blocks.Fold("as a terminal shows it", [blocks.Code(_text(run))]),
        *machine_blocks(run.raw.machine),
    ]


def _title(run: Whole) -> str:
    if run.raw.target:
        return f"{run.raw.target.name}: what it copies"
    work, path = run.raw.asked, run.raw.topology.kind
    size, threads = units.format_bytes(work.size_bytes), units.counted(work.threads, "thread")
    return f"{work.impl}, {size}, {threads}, {path}: where the copies are"


def _byline(run: Whole) -> str:
    machine, made = run.raw.machine, run.raw.copyscope
    when = str(run.raw.run.started)[:16].replace("T", " ")
    return (
        f"Measured on {when} on {machine.hostname}, Linux {machine.kernel}, by copyscope "
        f"{made.version}; run {run.raw.run.id}; page by copyscope {VERSION}."
    )


def _verdict(run: Whole) -> Iterator[blocks.Block]:
    verdict = run.derived.verdict
    if not verdict.valid and not run.is_partial:
        yield blocks.Paragraph("INVALID RUN", strong=True)
        yield blocks.Bullets(verdict.reasons)
    yield blocks.Paragraph(verdict.sentence, strong=True)
    goodput = run.derived.throughput_gbps
    rates = {"without instruments": goodput.unprobed, "with the ledger's": goodput.probed}
    told = ", ".join(f"{units.format_gbps(rate)} {how}" for how, rate in rates.items() if rate is not None)
    measured = units.format_seconds(run.raw.run.measured_s)
    yield blocks.Paragraph(f"Goodput: {told or 'n/a'}; {measured} measured.")


def _path(run: Whole) -> list[blocks.Block]:
    """Copies in the order in which a byte meets them, then other work, the largest first; they add up."""
    per_kib = kib_factor(run)
    work = sorted(run.derived.stages, key=lambda row: -(row.cpu_ns or 0.0))
    every: list[Row] = [*occurring(run.derived.ledger), *work]
    rows = [(row, row.cpu_ns) for row in every if row.cpu_ns]
    whole = sum(ns for _, ns in rows)
    if not whole or per_kib is None:
        return [blocks.Paragraph(f"Not drawn: {why_no_time(run, 'no CPU time was seen')}.")]
    small = [ns for row, ns in rows if isinstance(row, StageRow) and ns < LEAST * whole]
    shown = [(row, ns) for row, ns in rows if isinstance(row, AccountRow) or ns >= LEAST * whole]
    named = [(_named(run, row), FILLS[row.category].colour, ns) for row, ns in shown]
    if small:
        named.append((f"{len(small)} rows of other work below 1 % each", WHITE, sum(small)))
    longest = max(ns for _, _, ns in named)
    bars = [
        blocks.Bar(name, [blocks.Box(0, ns / longest, colour)], f"{_price(ns * per_kib)}, {ns / whole:.1%}")
        for name, colour, ns in named
    ]
    said = f"Total {_price(whole * per_kib)}; shares are of all CPU time."
    moved = "sent or received" if run.raw.target else "delivered"
    title = f"CPU time per KiB {moved}: copies are coloured, other work is grey"
    return [blocks.Paragraph(said), blocks.Bars(title, bars)]


def _named(run: Whole, row: Row) -> str:
    place = where(row.side, {row.context})
    name = called(row.category, watched=bool(run.raw.target), side=row.side)
    return f"{name} ({place})" if place else name


def _price(ns_per_kib: float) -> str:
    cores = units.format_hundredths(ns_per_kib * CORES_AT_10_GBPS)
    return f"{number(ns_per_kib)} ns/KiB, {cores} cores at 10 Gb/s"


def _ledger(run: Whole) -> blocks.Table:
    columns = ["what", "side", "where", "ns/KiB", "95 % interval", "share"]
    columns += ["bytes", "calls", "method"]
    per_kib = kib_factor(run) or 0.0
    rows: list[list[str]] = []
    every: list[Row] = [*occurring(run.derived.ledger), *run.derived.stages]
    for row in every:
        ends = row.ci
        interval = f"{ends.low_ns * per_kib:.1f} to {ends.high_ns * per_kib:.1f}" if ends else "n/a"
        rows.append(
            [
                called(row.category, watched=bool(run.raw.target), side=row.side),
                row.side,
                row.context,
                "n/a" if row.ns_per_kib is None else f"{row.ns_per_kib:.1f}",
                interval,
                "n/a" if row.share is None else f"{row.share:.1%}",
                *("" if count is None else f"{count:,}" for count in moved(row)),
                row.method,
            ]
        )
    notes = _notes(row.reasons.get(key) for row in run.derived.ledger for key in SHOWN)
    return blocks.Table(columns, rows, frozenset((3, 4, 5, 6, 7)), notes, "Copies, and all other work")


def _advice(run: Whole) -> Sequence[blocks.Block]:
    advice = run.derived.advice
    if not advice:
        return []
    rows: list[list[str | blocks.Cell]] = [
        [one.name, blocks.Cell(one.answer, ANSWERS.get(one.answer, "")), one.why]
        for one in advice.remedies or ()
    ]
    table = [blocks.Table(["remedy", "answer", "why"], rows)] if rows else []
    return [
        blocks.Heading(2, "What would help?", "advice"),
        *([blocks.Paragraph(advice.answer)] if advice.answer else []),
        *table,
        blocks.Bullets(advice.reasons or [advice.text]),
    ]


def _checks(run: Whole) -> blocks.Block:
    """Folded away where all hold."""
    rows: list[list[str | blocks.Cell]] = [
        [
            blocks.Cell(HOLDS[one.holds], TONES[one.holds]),
            one.name,
            one.what,
            *("n/a" if value is None else f"{value:,.10g}" for value in (one.left, one.right, one.tolerance)),
            one.unit,
        ]
        for one in run.derived.identities
    ]
    columns = ["check", "name", "what must agree", "left", "right", "may differ by", "unit"]
    notes = _notes(one.reason for one in run.derived.identities)
    table = blocks.Table(columns, rows, frozenset((3, 4, 5)), notes, "What must agree")
    known = [one.holds for one in run.derived.identities if one.holds is not None]
    return blocks.Fold(f"all {len(known)} hold", [table]) if known and all(known) else table


def _notes(reasons: Iterable[str | None]) -> list[str]:
    """Why there is an n/a above; each reason once."""
    return [f"n/a: {reason}." for reason in dict.fromkeys(reasons) if reason]


def _text(run: Whole) -> str:
    """What `-v --explain` prints."""
    stream = io.StringIO()
    console = make_console(stream)
    render = watch.render if run.raw.target else terminal.render
    render(run, verbose=True, explain=True, console=console)
    return stream.getvalue()
