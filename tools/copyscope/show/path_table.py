"""The path of a byte as a table: each copy in the order in which a byte meets it, then all other work.

The rows add up to all CPU time: that of both sides, or of the watched program, and the softirq work for their
packets that the kernel charged to other tasks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from copyscope import units
from copyscope.escaping import one_line
from copyscope.grouping import grouped
from copyscope.ledger.share import percent
from copyscope.ledger.user_copies import called_by
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow
from copyscope.show import event_columns
from copyscope.show.account_words import called
from copyscope.show.explain import IN_A_LINE
from copyscope.show.layout import Table, heading, wrap
from copyscope.show.ledger_table import (
    Row,
    deciding_symbols,
    every_row,
    flow_order,
    kib_factor,
    occurring,
    too_few,
    why_no_time,
)

# From these widths on there are more columns.
WIDE, WIDEST = 100, 160
# In this order columns go where there is no room for all.
LESS_WANTED = ("mostly in", "calls", "bytes", "CPU time", "L1D miss", "L1D sim")
BAR_MIN, BAR_MAX = 8, 60
FUNCTIONS_MAX = 34  # columns of the names of functions
# Callers of the program's own copies: so many, and none that calls less.
CALLERS_MAX, CALLER_LEAST = 3, 0.05
REST, ALL = "the rest", "all"
# Other work below this share of all is in the rest.
SMALL_SHARE = 0.01
# KiB that 10 Gb/s deliver in a second, each for so many ns of CPU time; in seconds, which is in CPUs.
CORES_AT_10_GBPS = 10e9 / 8 / 1024 / 1e9


@dataclass(frozen=True)
class Step:
    """One row: where CPU time went, and, of a copy, what was counted there. ns None: not known, and why."""

    what: str
    where: str
    ns: float | None
    # Half of the 95 % interval.
    half_ns: float | None = None
    bytes: int | None = None
    calls: int | None = None
    # Whether the calls are estimated.
    about: bool = False
    functions: str = ""
    why: str = ""
    meaning: str = ""
    # Those of the record that it is made of.
    rows: tuple[Row, ...] = ()


def path_lines(run: Whole, width: int, rows_max: int, *, explain: bool) -> list[Text]:
    """At most so many rows, but for copies, each with its meaning where that is asked for."""
    copies, work = _copies(run), _work(run)
    total_ns = sum(step.ns or 0.0 for step in (*copies, *work))
    per_kib = kib_factor(run)
    few = too_few(run)
    if few or not total_ns:
        unseen = why_no_time(run, "no CPU time was seen")
        why = f"{few} of its CPU time: too few for shares" if few else unseen
        return heading("THE PATH OF A BYTE", "", width) + wrap(f"n/a: {why}", width, indent=2)
    steps = [*copies, *_largest(work, total_ns, max(0 if explain else 1, rows_max - len(copies) - 1))]
    steps.append(Step(ALL, "", total_ns, rows=tuple(every_row(run))))
    table = _table(run, steps, total_ns, per_kib, width)
    table.strong = {*range(len(copies)), len(steps) - 1}
    lines = heading("THE PATH OF A BYTE", _per(run), width)
    lines += _with_meanings(table.lines(width), steps, width) if explain else table.lines(width)
    for text in (
        *_elsewhere(run, total_ns),
        *_callers(run),
        *(f"{step.what} {step.why}" for step in copies if step.why),
    ):
        lines += wrap(text, width, indent=2, style="dim")
    shown = [column for column, title in event_columns.TITLES.items() if title in table.titles]
    for note in event_columns.notes(run, every_row(run), shown):
        lines += wrap(note, width, indent=2, style="dim")
    return lines


def _largest(work: list[Step], total_ns: float, room: int) -> list[Step]:
    """As many as there is room for, if they are worth a row; the rest in one."""
    work.sort(key=lambda step: step.ns or 0.0, reverse=True)
    shown = [step for step in work if (step.ns or 0.0) >= SMALL_SHARE * total_ns]
    if len(shown) > room or len(shown) < len(work) - 1:
        shown = shown[:room]
    left = work[len(shown) :]
    if len(left) <= 1:
        return work
    rest_ns = sum(step.ns or 0.0 for step in left)
    return [*shown, Step(REST, "", rest_ns, rows=tuple(row for step in left for row in step.rows))]


def _with_meanings(rows: Sequence[Text], steps: Sequence[Step], width: int) -> list[Text]:
    """The title, and each row with what it means, the same thing once."""
    lines, said = [rows[0]], {""}
    for number, row in enumerate(rows[1:]):
        lines.append(row)
        meaning = steps[number].meaning if number < len(steps) else ""
        if meaning not in said:
            lines += wrap(f"  {meaning}", width, indent=2, style="dim")
            said.add(meaning)
    return lines


def _per(run: Whole) -> str:
    """What the numbers are of."""
    watched = run.raw.target is not None
    per = "per KiB sent or received" if watched else "per KiB delivered"
    if kib_factor(run) is None:
        return "CPU time; nothing was sent or received through sockets"
    if event_columns.known(every_row(run)) or run.raw.modelled is not None:
        return per
    return f"CPU time {per}"


def _callers(run: Whole) -> list[str]:
    """Who calls the copies that the program makes itself."""
    found = [
        f"{percent(part)} by {one_line(name, FUNCTIONS_MAX)}"
        + (f" ({one_line(source, FUNCTIONS_MAX)})" if source else "")
        for name, source, part in called_by(run.raw)
        if part >= CALLER_LEAST
    ]
    return [f"{called('gather', watched=True)}: {', '.join(found[:CALLERS_MAX])}"] if found else []


def _elsewhere(run: Whole, total_ns: float) -> list[str]:
    """How much of the work for a watched program's packets the kernel charged to other tasks."""
    if run.raw.target is None:
        return []
    others_ns = sum(row.cpu_ns or 0.0 for row in every_row(run) if row.side == "other")
    share = units.format_percent(others_ns / total_ns)
    return [f"of all, {share} was softirq work for its packets, charged to other tasks"] if others_ns else []


def _table(run: Whole, steps: Sequence[Step], total_ns: float, per_kib: float | None, width: int) -> Table:
    """The columns that there is room for, and bars in what they leave."""
    parts = steps[:-1]
    rest = next((number for number, step in enumerate(parts) if step.what == REST), None)
    modelled = event_columns.simulated(run, [step.rows for step in parts], rest)
    cells = [
        {**_costs(step, total_ns, per_kib), **_events(run, step, per_kib), **more, **_moved(step, width)}
        for step, more in zip(steps, modelled, strict=True)
    ]
    names = tuple(name for name in ("what", "where") if any(row[name] for row in cells))
    titles = [
        title
        for title in cells[0]
        if title not in ("what", "where") and any(row[title] not in (None, "") for row in cells)
    ]
    # Where it is too narrow for all, what can be missed most easily goes first.
    for title in (*LESS_WANTED, None):
        table = Table(names, *titles, words=("mostly in",))
        for row in cells:
            table.add(*(row[name] for name in names), *(row[title] for title in titles))
        taken = max(len(line.plain) for line in table.lines(WIDEST * 2))
        if title is None or taken - len(titles) - 1 <= width:
            break
        titles = [one for one in titles if one != title]
    made = Table(names, *titles, "", words=("mostly in", ""), optional=("",))
    bars = _bars(steps, total_ns, per_kib, min(max(width - taken - 2, BAR_MIN), BAR_MAX))
    for filled, bar in zip(table.rows, bars, strict=True):
        made.add(*filled, bar)
    return made


def _bars(steps: Sequence[Step], total_ns: float, per_kib: float | None, room: int) -> list[str]:
    """A bar for each share, and at last what all of it means."""
    longest = max(step.ns or 0.0 for step in steps[:-1]) / total_ns
    drawn = [units.format_bar(step.ns / total_ns, longest, room) if step.ns else "" for step in steps[:-1]]
    if per_kib is None:
        return [*drawn, ""]
    return [*drawn, f"{units.format_hundredths(total_ns * per_kib * CORES_AT_10_GBPS)} cores at 10 Gb/s"]


def _costs(step: Step, total_ns: float, per_kib: float | None) -> dict[str, str | None]:
    """The cells of one row by title: what it is, and its CPU time. Of no sample what it is below.

    per_kib None: no payload that it could be of.
    """
    title, factor = ("ms", 1e-6) if per_kib is None else ("ns/KiB", per_kib)
    price, share = (None, None) if step.ns is None else (step.ns * factor, step.ns / total_ns)
    between = units.format_tenths(step.half_ns * factor) if step.half_ns is not None and step.ns else ""
    spelled = (units.format_tenths(price), units.format_percent(share))
    if step.ns == 0.0 and step.half_ns:
        most_ns = 2 * step.half_ns
        spelled = (f"<{units.format_tenths(most_ns * factor)}", _below(most_ns / total_ns))
    return {
        "what": step.what,
        "where": step.where,
        title: spelled[0],
        "±": between,
        "share": spelled[1],
    }


def _below(share: float) -> str:
    """The most that a share may be, rounded up."""
    return f"<{math.ceil(share * 1000) / 10:.1f} %"


def _events(run: Whole, step: Step, per_kib: float | None) -> dict[str, str | None]:
    """Its hardware events, of each KiB."""
    if per_kib is None:
        return {}
    return {
        title: event_columns.whole(run, step.rows, column, per_kib)
        if step.what == ALL
        else event_columns.cell(step.rows, column, per_kib)
        for column, title in event_columns.TITLES.items()
    }


def _moved(step: Step, width: int) -> dict[str, str | None]:
    """What else there may be room for at such a width."""
    about = "~" if step.about else ""
    scaled = (
        "~" if any(isinstance(row, AccountRow) and row.bytes_method == "scaled" for row in step.rows) else ""
    )
    cells: dict[str, str | None] = {
        # Of no sample: below what stands in front of it.
        "CPU time": "" if step.ns == 0.0 and step.half_ns else units.format_ns(step.ns),
        "bytes": "" if step.bytes is None else scaled + units.format_bytes(step.bytes),
        "calls": "" if step.calls is None else about + units.format_count(step.calls),
        "mostly in": step.functions,
    }
    return cells if width >= WIDEST else dict(list(cells.items())[: 2 * (width >= WIDE)])


def _copies(run: Whole) -> list[Step]:
    """Each account and side: what moved bytes is a row, with or without a sample of its time."""
    rows = grouped(occurring(run.derived.ledger), lambda row: (row.account, row.side))
    return [
        step
        for account, side in sorted(rows, key=lambda key: flow_order(*key)[0])
        if (step := _copy(run, account, side, rows[account, side])) is not None
    ]


def _copy(run: Whole, account: str, side: str, some: Sequence[AccountRow]) -> Step | None:
    """None where nothing is known of it but that it took no time."""
    ns = sum(row.cpu_ns or 0.0 for row in some)
    known = any(row.cpu_ns is not None for row in some)
    moved = next((row.bytes for row in some if row.bytes is not None), None)
    calls = next((row.calls for row in some if row.calls is not None), None)
    if known and not ns and not moved:
        return None
    # Of what is not known the bounds may be.
    opening = "n/a: " if some[0].ci is None else ""
    return Step(
        called(account, watched=run.raw.target is not None, side=side),
        where(side, {row.context for row in some}),
        ns if known else None,
        _half(some),
        moved,
        calls,
        any(row.calls_method == "scaled" for row in some),
        _functions(run, account, side),
        "" if known else opening + some[0].reasons.get("cpu_ns", "no reason recorded"),
        IN_A_LINE[account],
        tuple(some),
    )


def _half(some: Sequence[AccountRow]) -> float | None:
    """Half the width of the interval of their sum, as of independent parts; None: timed, or not known."""
    halves = [(row.ci.high_ns - row.ci.low_ns) / 2 for row in some if row.ci and row.cpu_ns is not None]
    return math.hypot(*halves) if halves else None


def _functions(run: Whole, category: str, side: str | None = None) -> str:
    """Where most of its samples were, as far as there is room."""
    names = [name for name, _ in deciding_symbols(run, category, side).most_common(2)]
    return one_line(", ".join(names), FUNCTIONS_MAX)


def where(side: str, contexts: set[str]) -> str:
    """On whose time, and whether in a softirq; empty: in the watched program."""
    whose = {"target": "", "other": "other tasks"}.get(side, side)
    return f"{whose}, softirq".removeprefix(", ") if contexts == {"softirq"} else whose


def _work(run: Whole) -> list[Step]:
    """The same of all other work, all sides in one."""
    return [
        Step(
            called(stage, watched=run.raw.target is not None),
            "",
            ns,
            functions=_functions(run, stage),
            meaning=IN_A_LINE[stage],
            rows=tuple(rows),
        )
        for stage, rows in grouped(run.derived.stages, lambda row: row.stage).items()
        if (ns := sum(row.cpu_ns or 0.0 for row in rows))
    ]
