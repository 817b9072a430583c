# SPDX-License-Identifier: GPL-2.0-only
"""Table "path of a byte" of the first screen, and notes on the hardware events in this table.

Each copy has a row, in the order in which a byte passes the copies. Rows for all other work follow. The rows
add up to all CPU time: the time of sender and receiver, or of the watched program, plus the softirq work for
their packets that the kernel charged to other tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from copyscope.base import spelling
from copyscope.base.spelling import one_line
from copyscope.base.stats import grouped
from copyscope.ledger.share import DENSE_FREQUENCY_HZ, few_samples, percent
from copyscope.ledger.watched_program import copy_callers
from copyscope.record.derived import AccountRow
from copyscope.record.measured import PmuCheck
from copyscope.record.run import Run
from copyscope.record.segments import is_relay
from copyscope.record.simulated import SimulatedRow
from copyscope.show.columns import EVENT_TITLES, LedgerColumn, OnFirstScreen, first_screen_columns
from copyscope.show.explain import SHORT_MEANING
from copyscope.show.layout import TextTable, heading, wrap
from copyscope.show.ledger_cells import EVENT_COUNTS, FUNCTIONS_MAX, LedgerPart, first_known, sum_known
from copyscope.show.ledger_rows import (
    Row,
    every_row,
    flow_order,
    kib_factor,
    occurring,
    plain_reason,
    why_no_time,
)
from copyscope.taxonomy.accounts import called
from copyscope.taxonomy.events import EVENT_COLUMNS, MISS_EVENTS, MISSES, describe_misses_briefly, event_name

# Minimum and maximum width of a bar, in characters.
BAR_MIN, BAR_MAX = 8, 60
# Width in characters that is enough for every table in a single block.
UNLIMITED = 10_000
# The note on the program's own copies names at most CALLERS_MAX callers, with at least this share each.
CALLERS_MAX, CALLER_SHARE_MIN = 3, 0.05
# Print the counted share of misses in copies if it differs by more than this from the share in random reads.
COPY_DIFFERS = 0.1
# Names of the last two rows: all work without a separate row, and the whole run.
REST, ALL = "the rest", "all"
# Work with a smaller share of all CPU time than this is part of the row REST.
SMALL_SHARE = 0.01
# Factor that turns a cost in ns/KiB into the number of CPU cores that 10 Gb/s of payload keep busy.
CORES_AT_10_GBPS = 10e9 / 8 / 1024 / 1e9

Columns = Sequence[tuple[LedgerColumn, OnFirstScreen]]


@dataclass(frozen=True)
class PathStep:
    """Row of the table of the path.

    name: name of the copy or of the work
    where: `sender` or `receiver`, with `softirq` for work in softirqs only; empty: the watched program
    rows: ledger rows that the step adds up
    why: reason why the CPU time is unknown; empty: the CPU time is known
    meaning: explanation of the step in one line
    """

    name: str
    where: str
    rows: tuple[Row, ...]
    why: str = ""
    meaning: str = ""

    @property
    def ns(self) -> float | None:
        """CPU time in ns; None if unknown."""
        return sum_known(row.cpu_ns for row in self.rows)


def path_lines(run: Run, width: int, rows_max: int, *, explain: bool) -> list[Text]:
    """Return the table: all copies, and in the remaining rows the largest other work.

    width: width of the screen in characters
    rows_max: maximum number of rows; every copy gets a row even if there are more
    explain: print the meaning of each row below it
    """
    copies, work = _copies(run), _work(run)
    total_ns = sum(step.ns or 0.0 for step in (*copies, *work))
    few = few_samples(run.raw, run.derived.sides)
    if few or not total_ns:
        why = few or why_no_time(run, "no CPU time was sampled")
        return heading("THE PATH OF A BYTE", "", width) + wrap(f"n/a: {why}", width, indent=2)
    steps = [*copies, *_largest(work, total_ns, max(0 if explain else 1, rows_max - len(copies) - 1))]
    steps.append(PathStep(ALL, "", tuple(every_row(run))))
    table, columns = _table(steps, _parts(run, steps, total_ns), width)
    table.strong = {*range(len(copies)), len(steps) - 1}
    lines = heading("THE PATH OF A BYTE", _unit(run), width)
    lines += _with_meanings(table.lines(width), steps, width) if explain else table.lines(width)
    for text in (
        *_charged_to_others(run, total_ns),
        *_callers(run),
        *(f"{step.name} {step.why}" for step in copies if step.why),
        *event_notes(
            run, every_row(run), [column.name for column, _ in columns if column.name in EVENT_TITLES]
        ),
    ):
        lines += wrap(text, width, indent=2, style="dim")
    return lines


def _largest(work: list[PathStep], total_ns: float, room: int) -> list[PathStep]:
    """Return the steps with the most CPU time, the largest first, then all others as a single step.

    total_ns: CPU time of the whole table; steps with less than SMALL_SHARE of it get no row
    room: maximum number of steps to return
    """
    work.sort(key=lambda step: step.ns or 0.0, reverse=True)
    shown = [step for step in work if (step.ns or 0.0) >= SMALL_SHARE * total_ns]
    if len(shown) > room or len(shown) < len(work) - 1:
        shown = shown[:room]
    rest = work[len(shown) :]
    if len(rest) <= 1:
        return work
    return [*shown, PathStep(REST, "", tuple(row for step in rest for row in step.rows))]


def _with_meanings(rows: Sequence[Text], steps: Sequence[PathStep], width: int) -> list[Text]:
    """Return the table with each row's meaning below the row. Repeated meanings are printed once.

    rows: lines of the table, beginning with the titles of the columns
    """
    lines, explained = [rows[0]], {""}
    for number, row in enumerate(rows[1:]):
        lines.append(row)
        meaning = steps[number].meaning if number < len(steps) else ""
        if meaning not in explained:
            lines += wrap(f"  {meaning}", width, indent=2, style="dim")
            explained.add(meaning)
    return lines


def _unit(run: Run) -> str:
    """Return the unit of the numbers in the table, such as `per KiB delivered`."""
    if kib_factor(run) is None:
        return "CPU time; nothing was sent or received through sockets"
    unit = "per KiB sent or received" if run.raw.target is not None else "per KiB delivered"
    has_events = counted_events(every_row(run)) or run.raw.modelled is not None
    return unit if has_events else f"CPU time {unit}"


def _callers(run: Run) -> list[str]:
    """Return a note on what called the program's own copies, or [] if there are no such copies.

    If these copies have too few samples, the note says so and names the option that gives more.
    """
    found, name = copy_callers(run.raw), called("gather", watched=True)
    if isinstance(found, int):
        return [f"{name}, callers: {_more_samples(run, found)}"] if found else []
    callers = [
        f"{percent(share)} by {one_line(name, FUNCTIONS_MAX)}"
        + (f" ({one_line(source, FUNCTIONS_MAX)})" if source else "")
        for name, source, share in found
        if share >= CALLER_SHARE_MIN
    ]
    return [f"{name}: {', '.join(callers[:CALLERS_MAX])}"] if callers else []


def _more_samples(run: Run, samples: int) -> str:
    """Return a note such as `6 samples: too few; --frequency 999`."""
    is_dense = run.raw.sampler.frequency_hz >= DENSE_FREQUENCY_HZ
    return f"{spelling.counted(samples, 'sample')}: too few; " + (
        "watch longer" if is_dense else f"--frequency {DENSE_FREQUENCY_HZ}"
    )


def _charged_to_others(run: Run, total_ns: float) -> list[str]:
    """Return a note on the softirq work for a watched program that the kernel charged to other tasks."""
    others_ns = sum(row.cpu_ns or 0.0 for row in every_row(run) if row.side == "other")
    if run.raw.target is None or not others_ns:
        return []
    share = spelling.format_percent(others_ns / total_ns)
    return [f"{share} of all CPU time: softirq work for its packets, charged to other tasks"]


def _parts(run: Run, steps: Sequence[PathStep], total_ns: float) -> list[LedgerPart]:
    """Return each step's ledger rows as a LedgerPart. The last step is the whole run.

    total_ns: CPU time of the whole table in ns
    """
    per_kib = kib_factor(run)
    last = len(steps) - 1
    return [
        LedgerPart(run, step.rows, per_kib, total_ns, modelled, is_all=number == last)
        for number, (step, modelled) in enumerate(zip(steps, _modelled_rows(run, steps), strict=True))
    ]


def _modelled_rows(run: Run, steps: Sequence[PathStep]) -> list[Sequence[SimulatedRow] | None]:
    """Return the cache model's rows for each step. All are None if the run has no model."""
    if run.raw.modelled is None:
        return [None] * len(steps)
    all_rows = [row for row in run.raw.modelled.measurements[0].rows if row.side != "other"]
    keys_by_step = [{(row.category, row.side) for row in step.rows} for step in steps[:-1]]
    rest = next((number for number, step in enumerate(steps) if step.name == REST), None)
    if rest is not None:
        # Work of the model that has no sample in this run belongs to the row REST.
        keys_of_others = set().union(*keys_by_step[:rest], *keys_by_step[rest + 1 :])
        keys_by_step[rest] = {(row.category, row.side) for row in all_rows} - keys_of_others
    by_step = [[row for row in all_rows if (row.category, row.side) in keys] for keys in keys_by_step]
    return [*by_step, all_rows]


def _table(steps: Sequence[PathStep], parts: Sequence[LedgerPart], width: int) -> tuple[TextTable, Columns]:
    """Return the table, with bars that fill the width, and the ledger columns that it shows.

    If the table is wider than `width` characters, columns are left out in order of their rank `dropped`.
    """
    cells: list[dict[str, str | None]] = [
        {
            "what": step.name,
            "where": step.where,
            **{column.name: column.cell(view, part) for column, view in first_screen_columns(width)},
        }
        for step, part in zip(steps, parts, strict=True)
    ]
    keys = [key for key in ("what", "where") if any(row[key] for row in cells)]
    columns = [
        (column, view)
        for column, view in first_screen_columns(width)
        if any(row[column.name] not in (None, "") for row in cells)
    ]
    table_width = _width(_filled_table(keys, columns, cells))
    # Narrow gaps save one character for each column.
    while table_width - len(columns) - 1 > width and (droppable := _droppable(columns)):
        columns.remove(droppable[0])
        table_width = _width(_filled_table(keys, columns, cells))
    bars = _bars(steps, parts[-1], min(max(width - table_width - 2, BAR_MIN), BAR_MAX))
    return _filled_table(keys, columns, cells, bars), columns


def _width(table: TextTable) -> int:
    """Return a table's width in characters in a single block with wide gaps."""
    return max(len(line.plain) for line in table.lines(UNLIMITED))


def _droppable(columns: Columns) -> Columns:
    """Return the columns that a narrow screen may leave out, in the order in which they are left out."""
    droppable = [(column, view) for column, view in columns if view.dropped is not None]
    return sorted(droppable, key=lambda pair: pair[1].dropped or 0)


def _filled_table(
    keys: Sequence[str],
    columns: Columns,
    cells: Sequence[Mapping[str, str | None]],
    bars: Sequence[str] | None = None,
) -> TextTable:
    """Return a table with key columns, ledger columns, and a last column of bars if `bars` is given.

    cells: a mapping for each row: name of a key or column -> text of the cell
    """
    texts = {view.title for column, view in columns if column.is_text}
    titles = [view.title for _, view in columns]
    table = TextTable(keys, *titles, *([""] if bars else []), words={*texts, ""}, optional=("",))
    names = [*keys, *(column.name for column, _ in columns)]
    for number, row in enumerate(cells):
        table.add(*(row[name] for name in names), *([bars[number]] if bars else []))
    return table


def _bars(steps: Sequence[PathStep], whole_run: LedgerPart, room: int) -> list[str]:
    """Return a bar for each step except the last, which gets a text on the cores needed at 10 Gb/s.

    whole_run: ledger part of the last step
    room: maximum length of a bar in characters
    """
    total_ns, per_kib = whole_run.total_ns, whole_run.per_kib
    shares = [(step.ns or 0.0) / total_ns for step in steps[:-1]]
    bars = [spelling.format_bar(share, max(shares), room) for share in shares]
    if per_kib is None:
        return [*bars, ""]
    cores = spelling.format_hundredths(total_ns * per_kib * CORES_AT_10_GBPS)
    text = f"10 Gb/s would need {cores} cores"
    return [*bars, text if len(text) <= room else f"{cores} cores at 10 Gb/s"]


def _copies(run: Run) -> list[PathStep]:
    """Return a step for each account and side that moved bytes, even without samples."""
    rows = grouped(occurring(run.derived.ledger), lambda row: (row.account, row.side))
    return [
        step
        for account, side in sorted(rows, key=lambda key: flow_order(*key)[0])
        if (step := _copy(run, account, side, rows[account, side])) is not None
    ]


def _copy(run: Run, account: str, side: str, rows: Sequence[AccountRow]) -> PathStep | None:
    """Return the step of an account and side, or None if it took no time and moved no known bytes."""
    ns = sum_known(row.cpu_ns for row in rows)
    if ns == 0.0 and not first_known(row.bytes for row in rows):
        return None
    # If the time is unknown, the reason may still state bounds of the time.
    opening = "n/a: " if rows[0].ci is None else ""
    return PathStep(
        called(account, watched=run.raw.target is not None, side=side),
        where(side, {row.context for row in rows}),
        tuple(rows),
        opening + rows[0].reasons.get("cpu_ns", "no reason recorded") if ns is None else "",
        SHORT_MEANING[account],
    )


def where(side: str, contexts: set[str]) -> str:
    """Return where work ran, such as `sender, softirq`, or "" for the watched program."""
    task = {"target": "", "other": "other tasks"}.get(side, side)
    return f"{task}, softirq".removeprefix(", ") if contexts == {"softirq"} else task


def _work(run: Run) -> list[PathStep]:
    """Return a step for each stage that took CPU time, as a sum over all sides."""
    watched = run.raw.target is not None
    steps = [
        PathStep(called(stage, watched=watched), "", tuple(rows), meaning=SHORT_MEANING[stage])
        for stage, rows in grouped(run.derived.stages, lambda row: row.stage).items()
    ]
    return [step for step in steps if step.ns]


# Notes below the table: what the hardware events count, or why no event is known.


def counted_events(rows: Sequence[Row]) -> list[str]:
    """Return the first screen's hardware events that have a count in at least one row."""
    return [event for event in EVENT_TITLES if any(EVENT_COUNTS[event](row) is not None for row in rows)]


def event_notes(run: Run, rows: Sequence[Row], shown_events: Sequence[str]) -> list[str]:
    """Return notes on hardware events and on simulated misses.

    The first note states what the shown events count, or why no count is known.

    shown_events: events with a column in the table
    """
    model = run.raw.modelled
    texts = [
        _event_note(run, rows, shown_events),
        "; ".join(describe_checks(run.raw.machine.pmu_checks or [])),
    ]
    if model is not None:
        broken = "" if all(check.holds for check in model.measurements[0].checks) else " CHECKS DO NOT HOLD:"
        name, release = model.model.name, model.kernel.release
        texts.append(f"sim:{broken} simulated load misses (caches: {name}, Linux {release})")
    return list(filter(None, texts))


def _event_note(run: Run, rows: Sequence[Row], shown_events: Sequence[str]) -> str:
    """Return a note on what the events in `shown_events` count here, or on why no count is known."""
    counted = counted_events(rows)
    if not counted:
        return _why_no_events(run, rows)
    misses = [event for event in shown_events if event in MISSES]
    missing = [title for event, title in MISSES.items() if event not in counted]
    texts = [describe_misses_briefly(run.raw.machine, misses)] if misses else []
    texts += [f"{EVENT_TITLES[event]} {cpus}" for event in shown_events if (cpus := _sampled_on(run, event))]
    texts += [f"{', '.join(missing)} n/a: see -v for the reason"] if missing else []
    return "; ".join(texts)


def describe_checks(checks: Sequence[PmuCheck]) -> list[str]:
    """Return what each event of misses counted in known work, or why its counts are n/a."""
    texts = []
    for check in checks:
        name = f"{check.event} of {check.pmu or 'this PMU'}"
        if check.event in MISS_EVENTS and check.usable is False:
            texts.append(f"{name}: {check.verdict}")
        elif check.usable and check.known_share is not None and check.copy_share is not None:
            differs = abs(check.copy_share - check.known_share) > COPY_DIFFERS
            in_copies = f", {check.copy_share:.2f} in copies" if differs else ""
            texts.append(f"{name} count {check.known_share:.2f} of known misses{in_copies}")
    return texts


def _sampled_on(run: Run, column: str) -> str | None:
    """Return the CPUs on which an event was sampled (some types of cores lack it), or None for all CPUs."""
    events = (event for event in run.raw.sampler.events if event_name(event.name) in EVENT_COLUMNS[column])
    event = next(events, None)
    return str(event.reason).partition(":")[0] if event and event.status == "partial" else None


def _why_no_events(run: Run, rows: Sequence[Row]) -> str:
    """Return why no event count is known, and if possible the command that simulates cache misses."""
    if run.raw.machine.pmu == []:
        return f"cycles, cache misses: no PMU here{_simulate_command(run)}"
    reasons = (row.reasons.get("cycles") for row in rows if row.method == "sampled")
    return f"cycles, cache misses n/a: {plain_reason(next(filter(None, reasons), 'not sampled'))}"


def _simulate_command(run: Run) -> str:
    """Return the command that simulates cache misses, or "" if misses are shown or cannot be simulated."""
    if run.raw.target or run.raw.modelled is not None or is_relay(run.raw.run):
        return ""
    work = run.raw.asked
    size = "" if work.size_bytes == 1 << 16 else f" --size {spelling.option_size(work.size_bytes)}"
    return f"; modelled: copyscope simulate {work.impl}{size}"
