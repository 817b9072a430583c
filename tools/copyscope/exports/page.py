"""One run as an HTML page that needs nothing else: verdict, path of a byte, ledger, checks, all the rest."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from copyscope import VERSION, units
from copyscope.exports import flamegraph
from copyscope.record.segments import Record
from copyscope.report import blocks, html
from copyscope.report.machine import machine_blocks
from copyscope.report.plots.colours import FILLS
from copyscope.show import first_screen, terminal, watch
from copyscope.show.console import make_console
from copyscope.show.ledger_table import kib_factor, occurring, why_no_time
from copyscope.study.wording import number

FLAMES = blocks.Picture(
    "flamegraph", "Flame graph", "Functions of the kernel, as wide as their CPU time; copies are red."
)
SHOWN = ("ns_per_kib", "ci", "share", "bytes", "calls")
TONES: dict[bool | None, blocks.Tone] = {True: "good", False: "bad", None: "open"}
ANSWERS: dict[str, blocks.Tone] = {"yes": "good", "no": "bad", "maybe": "open"}
HOLDS = {True: "holds", False: "does not hold", None: "n/a"}


def write(record: Record) -> bytes:
    """The page; the same record gives the same bytes."""
    pictures = {FLAMES.name: flamegraph.draw(record)} if record.get("stacks") else {}
    return html.write(document(record), pictures).encode()


def document(record: Record) -> list[blocks.Block]:
    """All blocks, the verdict first."""
    flames: list[blocks.Block] = [blocks.Heading(2, FLAMES.title, "flames"), FLAMES]
    return [
        blocks.Heading(1, _title(record), "top"),
        blocks.Paragraph(_byline(record)),
        blocks.Heading(2, "Verdict", "verdict"),
        *_verdict(record),
        blocks.Heading(2, "The path of a byte", "path"),
        *_path(record),
        *(flames if record.get("stacks") else []),
        blocks.Heading(2, "Ledger", "ledger"),
        _ledger(record),
        *_advice(record),
        blocks.Heading(2, "Consistency checks", "checks"),
        _checks(record),
        blocks.Heading(2, "All of it, and what it means", "all"),
        blocks.Fold("as a terminal shows it", [blocks.Code(_text(record))]),
        *machine_blocks(record["machine"]),
    ]


def _title(record: Record) -> str:
    if record.get("target"):
        return f"{record['target']['name']}: what it copies"
    work, path = record["workload"], record["topology"]["kind"]
    size, threads = units.format_bytes(work["size_bytes"]), units.counted(work["threads"], "thread")
    return f"{work['impl']}, {size}, {threads}, {path}: where the copies are"


def _byline(record: Record) -> str:
    run, machine, made = record["run"], record["machine"], record["copyscope"]
    when = str(run["started"])[:16].replace("T", " ")
    return (
        f"Measured on {when} on {machine['hostname']}, Linux {machine['kernel']}, by copyscope "
        f"{made['version']}; run {run['id']}; page by copyscope {VERSION}."
    )


def _verdict(record: Record) -> Iterator[blocks.Block]:
    verdict = record["verdict"]
    if not verdict["valid"]:
        yield blocks.Paragraph("INVALID RUN", strong=True)
        yield blocks.Bullets(verdict["reasons"])
    yield blocks.Paragraph(verdict["sentence"], strong=True)
    goodput = record["throughput_gbps"]
    rates = {"without instruments": goodput["unprobed"], "with the ledger's": goodput["probed"]}
    told = ", ".join(f"{units.format_gbps(rate)} {how}" for how, rate in rates.items() if rate is not None)
    held = [one["holds"] for one in record["identities"] if one["holds"] is not None]
    measured = units.format_seconds(record["run"]["measured_s"])
    yield blocks.Paragraph(
        f"Goodput: {told or 'n/a'}; {measured} measured; {sum(held)} of {len(held)} consistency checks hold."
    )


def _path(record: Record) -> list[blocks.Block]:
    """Copies in the order in which a byte meets them, then other work, the dearest first; they add up."""
    per_kib = kib_factor(record)
    copies = [row for row in occurring(record["ledger"]) if row["cpu_ns"]]
    work = sorted((row for row in record["stages"] if row["cpu_ns"]), key=lambda row: -row["cpu_ns"])
    rows = [*copies, *work]
    whole = sum(row["cpu_ns"] for row in rows if first_screen.is_counted(record, row))
    if not whole or per_kib is None:
        return [blocks.Paragraph(f"Not drawn: {why_no_time(record, 'no CPU time was seen')}.")]
    longest = max(row["cpu_ns"] for row in rows)
    bars = []
    for row in rows:
        where = first_screen.where(record, row["side"], {row["context"]})
        name = first_screen.called(_name(row), watched=bool(record.get("target")))
        box = blocks.Box(0, row["cpu_ns"] / longest, FILLS[_name(row)].colour)
        text = f"{_price(row['cpu_ns'] * per_kib)}, {_share(record, row, whole)}"
        bars.append(blocks.Bar(f"{name} ({where})" if where else name, [box], text))
    beside = sum(row["cpu_ns"] for row in rows) - whole
    said = f"In all {_price(whole * per_kib)}"
    said += f"; {first_screen.OTHERS} {_price(beside * per_kib)}." if beside else "."
    moved = "sent or received" if record.get("target") else "delivered"
    title = f"CPU time for each KiB {moved}: colours are copies, greys are other work"
    return [blocks.Paragraph(said), blocks.Bars(title, bars)]


def _share(record: Record, row: Mapping[str, Any], whole: float) -> str:
    """Of the same whole as on the screen."""
    if not first_screen.is_counted(record, row):
        return first_screen.OTHERS
    return f"{row['cpu_ns'] / whole:.1%} of {'its CPU time' if record.get('target') else 'all'}"


def _price(ns_per_kib: float) -> str:
    cores = units.format_hundredths(ns_per_kib * first_screen.CORES_AT_10_GBPS)
    return f"{number(ns_per_kib)} ns/KiB, {cores} cores at 10 Gb/s"


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("account") or row["stage"])


def _ledger(record: Record) -> blocks.Table:
    columns = ["account", "what", "side", "where", "ns/KiB", "95 % interval", "share of its side"]
    columns += ["bytes", "calls", "method"]
    per_kib = kib_factor(record) or 0.0
    rows = []
    for row in [*occurring(record["ledger"]), *record["stages"]]:
        ends = row["ci"]
        interval = f"{ends['low_ns'] * per_kib:.1f} to {ends['high_ns'] * per_kib:.1f}" if ends else "n/a"
        rows.append(
            [
                _name(row),
                first_screen.WORDS.get(_name(row), ""),
                row["side"],
                row["context"],
                "n/a" if row["ns_per_kib"] is None else f"{row['ns_per_kib']:.1f}",
                interval,
                "n/a" if row["share"] is None else f"{row['share']:.1%}",
                *("" if row.get(key) is None else f"{row[key]:,}" for key in ("bytes", "calls")),
                row["method"],
            ]
        )
    notes = _notes(row["reasons"].get(key) for row in record["ledger"] for key in SHOWN)
    return blocks.Table(columns, rows, frozenset((4, 5, 6, 7, 8)), notes, "Copies, and all other work")


def _advice(record: Record) -> Sequence[blocks.Block]:
    advice = record.get("advice")
    if not advice:
        return []
    rows = [
        [one["name"], blocks.Cell(one["answer"], ANSWERS.get(one["answer"], "")), one["why"]]
        for one in advice.get("remedies") or ()
    ]
    table = [blocks.Table(["remedy", "answer", "why"], rows)] if rows else []
    return [
        blocks.Heading(2, "What would help?", "advice"),
        *table,
        blocks.Bullets(advice.get("reasons") or [advice["text"]]),
    ]


def _checks(record: Record) -> blocks.Table:
    rows = [
        [
            blocks.Cell(HOLDS[one["holds"]], TONES[one["holds"]]),
            one["name"],
            one["what"],
            *("n/a" if one[key] is None else f"{one[key]:,.10g}" for key in ("left", "right", "tolerance")),
            one["unit"],
        ]
        for one in record["identities"]
    ]
    columns = ["check", "name", "what must agree", "left", "right", "may differ by", "unit"]
    notes = _notes(why for one in record["identities"] for why in one.get("reasons", {}).values())
    return blocks.Table(columns, rows, frozenset((3, 4, 5)), notes, "What must agree")


def _notes(reasons: Iterable[str | None]) -> list[str]:
    """Why there is an n/a above; each reason once."""
    return [f"n/a: {reason}." for reason in dict.fromkeys(reasons) if reason]


def _text(record: Record) -> str:
    """What `-v --explain` prints."""
    stream = io.StringIO()
    console = make_console(stream)
    render = watch.render if record.get("target") else terminal.render
    render(record, verbose=True, explain=True, console=console)
    return stream.getvalue()
