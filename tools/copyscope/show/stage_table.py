"""Where all CPU time of both sides went: copies, every stage, unattributed, and their sum."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.text import Text

from copyscope import units
from copyscope.ledger.attribution import SIDES
from copyscope.record.check import Whole
from copyscope.record.derived import Elsewhere, StageRow
from copyscope.show.account_words import COPIES, WORK
from copyscope.show.layout import Table, heading, wrap
from copyscope.show.ledger_table import (
    Row,
    every_row,
    interval_per_kib,
    kib_factor,
    position,
    time_samples,
    too_few,
    why_no_time,
)

BAR_WIDTH = 10
LEDGER_ROW = "copies"  # the rows of the table above, in one


class Sums(NamedTuple):
    """Of one side's CPU time; None: not known."""

    share: float | None
    ns_per_kib: float | None
    cpu_ns: float | None
    softirq: float | None


def stage_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """Sender and receiver side by side: the copy ledger, every stage, unattributed, and their sum."""
    note = "ledger segments; share of all CPU time, part of it in softirq, ns/KiB; bars by share"
    lines = heading("ALL CPU TIME", note, width)
    totals = _stage_totals(run)
    if not any(sums.share for stages in totals.values() for sums in stages.values()):
        why = why_no_time(run, "no CPU time was sampled")
        lines += wrap(f"n/a: {why}", width, indent=2, style="dim")
        return lines + _side_lines(run, totals, width)
    if few := too_few(run):
        lines += wrap(f"n/a: {few}: too few for shares", width, indent=2, style="dim")
    else:
        lines += _balance_table(run, totals).lines(width)
    lines += _side_lines(run, totals, width)
    if verbose:
        lines += _stage_detail_lines(run, width)
        lines += _symbol_lines(run, width)
    return lines


def processes(run: Whole) -> tuple[str, ...]:
    """The sides of this record that are processes; `other` is printed behind them."""
    return tuple(run.raw.run.sides)


def _balance_table(run: Whole, totals: Mapping[str, Mapping[str, Sums]]) -> Table:
    # without payload there is nothing to divide by: the time itself stands in its place
    price = "ns/KiB" if kib_factor(run) is not None else "CPU time"
    titles = [title for side in processes(run) for title in (side, "softirq", price, "")]
    table = Table(("stage",), *titles, words=("",), optional=("",))
    longest = max(sums.share or 0 for side in processes(run) for sums in totals[side].values())
    for stage in _stage_order(totals):
        cells: list[str | None] = [WORK.get(stage, stage)]
        for side in processes(run):
            sums = totals[side].get(stage)
            cells += ["-", "-", "-", ""] if sums is None else _cells(sums, price, longest)
        table.add(*cells, strong=stage in (LEDGER_ROW, "unattributed"))
    cells = ["sum"]
    for side in processes(run):
        cells += _cells(_added(totals[side].values()), price, 0)
    table.add(*cells, strong=True)
    return table


def _cells(sums: Sums, price: str, longest: float) -> list[str | None]:
    cost = units.format_tenths(sums.ns_per_kib) if price == "ns/KiB" else units.format_ns(sums.cpu_ns)
    return [
        units.format_percent(sums.share),
        units.format_percent(sums.softirq) if sums.softirq else "-",
        cost,
        units.format_bar(sums.share, longest, BAR_WIDTH),
    ]


def _stage_totals(run: Whole) -> dict[str, dict[str, Sums]]:
    """side -> stage -> sums over the contexts, with the softirq part kept apart.

    A row of which only bounds are known is in another one: _side_lines() says so.
    """
    parts: dict[str, dict[str, list[Sums]]] = {side: {} for side in (*processes(run), "other")}
    for row in every_row(run):
        if _is_bounded(row):
            continue
        in_softirq = row.share if row.context == "softirq" else 0.0
        stage = row.stage if isinstance(row, StageRow) else LEDGER_ROW
        parts[row.side].setdefault(stage, []).append(Sums(row.share, row.ns_per_kib, row.cpu_ns, in_softirq))
    return {side: {stage: _added(rows) for stage, rows in stages.items()} for side, stages in parts.items()}


def _is_bounded(row: Row) -> bool:
    return row.cpu_ns is None and row.ci is not None


def _added(rows: Iterable[Sums]) -> Sums:
    """Sums of each key; what is unknown in one row is unknown in the sum."""
    every = list(rows)
    columns = ([row[place] for row in every] for place in range(len(Sums._fields)))
    return Sums(*(None if None in column else sum(filter(None, column), 0.0) for column in columns))


def _stage_order(totals: Mapping[str, Mapping[str, Sums]]) -> list[str]:
    """copies first, unattributed last and always there, the rest by the larger of its shares."""
    weight: dict[str, float] = {}
    for side in totals:
        if side == "other":
            continue
        for stage, sums in totals[side].items():
            weight[stage] = max(weight.get(stage, 0.0), sums.share or 0.0)
    middle = [stage for stage in weight if stage not in (LEDGER_ROW, "unattributed") and weight[stage] > 0]
    return [LEDGER_ROW, *sorted(middle, key=lambda stage: (-weight[stage], stage)), "unattributed"]


def _side_lines(run: Whole, totals: Mapping[str, Mapping[str, Sums]], width: int) -> list[Text]:
    """The balance in nanoseconds: what the rows add up to, and the CPU time that they should."""
    lines: list[Text] = []
    sides = {**run.derived.sides.processes(), "other": run.derived.sides.other}
    for side in (*processes(run), "other"):
        values = sides[side]
        if side == "other" and not values.cpu_ns and not values.samples:
            continue
        added = units.format_ns(_added(totals[side].values()).cpu_ns)
        text = f"{side}: rows add up to {added} of {units.format_ns(values.cpu_ns)} CPU time"
        bounded = [COPIES[row.account] for row in run.derived.ledger if row.side == side and _is_bounded(row)]
        if bounded:
            text += f" ({', '.join(bounded)}, of which only bounds are known, is in user)"
        if values.samples:
            text += f", {units.format_count(values.samples)} samples{_stand_for(run, side)}"
        if side == "other":
            text += f" (softirq work charged to other tasks, {run.derived.sides.other.rule})"
        lines += wrap(text, width, indent=2, style="dim")
    return lines + _elsewhere_lines(run.derived.sides.elsewhere, width)


def _stand_for(run: Whole, side: str) -> str:
    """How much of the clock's time samples x period are: a timer that comes late misses short turns."""
    found = next((row for row in run.derived.identities if row.name == f"{side}_time"), None)
    if found is None or not found.left or not found.right:
        return ""
    return f", which stand for {100 * found.left / found.right:.0f} % of it"


def _elsewhere_lines(elsewhere: Elsewhere, width: int) -> list[Text]:
    """Softirq work that nothing ties to this run: said once, in no other figure."""
    if not elsewhere.samples:
        return []
    text = (
        f"elsewhere on this machine: {units.format_ns(elsewhere.cpu_ns)} of softirq work, "
        f"unrelated or unknown; not included elsewhere ({elsewhere.cause})"
    )
    return wrap(text, width, indent=2, style="dim")


def _stage_detail_lines(run: Whole, width: int) -> list[Text]:
    lines = heading("STAGES IN DETAIL", "one row per stage, side and context", width)
    per_kib = kib_factor(run)
    numbers = ("CPU time", "ns/KiB", "95 % interval", "share", "samples")
    table = Table(("stage", "side", "where"), *numbers, "method", words=("method",))
    order = sorted(run.derived.stages, key=lambda row: (position(SIDES, row.side), -(row.share or 0)))
    for row in order:
        table.add(
            *(WORK.get(row.stage, row.stage), row.side, row.context),
            None if row.cpu_ns is None else units.format_ns(row.cpu_ns),
            units.format_tenths(row.ns_per_kib),
            interval_per_kib(row.ci, per_kib),
            units.format_percent(row.share),
            None if row.samples is None else units.format_count(row.samples),
            row.method,
        )
    return lines + table.lines(width)


def _symbol_lines(run: Whole, width: int) -> list[Text]:
    """The unattributed samples by leaf symbol: what a taxonomy rule is still missing for."""
    lines = heading("NOT EXPLAINED", "by the kernel function that was running", width)
    table = Table(("symbol",), "side", "where", "samples", words=("side", "where"))
    samples = [row for row in time_samples(run) if row.category == "unattributed"]
    for row in sorted(samples, key=lambda row: (-row.samples, row.symbol)):
        table.add(row.symbol, row.side, row.context, units.format_count(row.samples))
    return lines + (table.lines(width) or wrap("none: every sample has an account or a stage", width))
