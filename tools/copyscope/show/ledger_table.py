# SPDX-License-Identifier: GPL-2.0-only
"""Tables of the copy ledger (one row per account, side and context) and of hooked functions."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from copyscope.base import spelling
from copyscope.base.stats import gathered
from copyscope.ledger.exact import OVERSTATED_MAX, why_nothing_exact
from copyscope.ledger.losses import stopped_readings
from copyscope.ledger.rows import COUNTED_ON
from copyscope.ledger.share import supported
from copyscope.record.derived import AccountRow, CopyRun, ExactRow
from copyscope.record.instruments import Event, Functions
from copyscope.record.run import Run
from copyscope.show.columns import InTable, LedgerColumn, table_columns
from copyscope.show.layout import TextTable, heading, labelled, wrap
from copyscope.show.ledger_cells import EVENT_COUNTS, LedgerPart, interval_per_kib, rate
from copyscope.show.ledger_rows import (
    counters_explain_missing_pmu,
    covered,
    flow_order,
    kib_factor,
    occurring,
    plain_reason,
)
from copyscope.taxonomy.accounts import ACCOUNTS, called
from copyscope.taxonomy.events import EVENT_COLUMNS, MISSES, describe_misses

# Content of a cell that shares its value with another row: the value is counted there for both rows.
DITTO = '"'

Columns = Sequence[tuple[LedgerColumn, InTable]]


def account_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return the table of the copy ledger, in the order in which a byte passes the copies.

    verbose: return more columns, as for -vv
    """
    rows = sorted(
        occurring(run.derived.ledger), key=lambda row: flow_order(row.account, row.side, row.context)
    )
    payload = "sent or received" if run.raw.target else "delivered"
    lines = heading(
        "COPY LEDGER", f"{covered(run, 'ledger')}; shares of all CPU time; per KiB {payload}", width
    )
    if not rows:
        lines += wrap("no copy: nothing was sent, or no sample could be attributed", width)
    elif all(row.cpu_ns is None and row.bytes is None for row in rows):
        reasons = dict.fromkeys(plain_reason(row.reasons[key]) for row in rows for key in ("cpu_ns", "bytes"))
        return lines + wrap(f"n/a: {'; '.join(reasons)}", width, indent=2, style="dim")
    rows = supported(run, rows)
    lines += _account_table(run, rows, width, verbosity=2 if verbose else 1)
    for event in MISSES:
        if any(EVENT_COUNTS[event](row) is not None for row in rows):
            lines += wrap(describe_misses(run.raw.machine, event), width, indent=2, style="dim")
    if note := describe_interrupts(run.raw.sampler.events):
        lines += wrap(note, width, indent=2, style="dim")
    names = {row.account for row in rows}
    absent = [
        account.title for account in ACCOUNTS.values() if account.name not in names and not account.rare
    ]
    if absent:
        lines += wrap(f"not seen in this run: {', '.join(absent)}", width, indent=2, style="dim")
    return lines


def describe_interrupts(events: Sequence[Event]) -> str:
    """Describe the events that a sampling interrupt causes itself, or return nothing if a timer samples."""
    costs = [(event, event.per_interrupt) for event in events if event.per_interrupt is not None]
    unknown = next((cost.reason for _, cost in costs if cost.mean is None), None)
    if unknown is not None:
        return f"rows include events of the sampling interrupts themselves; how many is unknown: {unknown}"
    each = [
        f"{spelling.three_digits(max(0.0, cost.mean))} {event.name if event.unit != 'ns' else 'ns'}"
        for event, cost in costs
        if cost.mean is not None
    ]
    if not each:
        return ""
    return (
        f"rows are without the events of the sampling interrupts themselves, {spelling.join_with_and(each)} "
        "each in a test; the sum of all rows includes them"
    )


def _account_table(run: Run, rows: Sequence[AccountRow], width: int, *, verbosity: int) -> list[Text]:
    """Return the table of the ledger, followed by the reasons for missing values.

    verbosity: 1 for -v, 2 for -vv
    """
    per_kib = kib_factor(run)
    parts = [LedgerPart(run, (row,), per_kib, verbosity=verbosity) for row in rows]
    columns = table_columns(verbosity)
    counted_on = {COUNTED_ON + " ".join((row.account, row.side, row.context)) for row in rows}
    titles = (view.title for _, view in columns)
    texts = {view.title for column, view in columns if column.is_text}
    table = TextTable(("copy", "side", "where"), *titles, words=texts)
    for row, part in zip(rows, parts, strict=True):
        keys = called(row.account, watched=row.side == "target", side=row.side), row.side, row.context
        cells = [(column.reason_key, column.cell(view, part)) for column, view in columns]
        table.add(
            *keys,
            *(
                DITTO if text is None and row.reasons.get(reason_key) in counted_on else text
                for reason_key, text in cells
            ),
        )
    unexplained = EVENT_COLUMNS if counters_explain_missing_pmu(run) else ()
    explained = [
        (column, view) for column, view in columns if column.reason_key and column.name not in unexplained
    ]
    return table.lines(width) + _missing_value_lines(parts, explained, counted_on, width)


def _missing_value_lines(
    parts: Sequence[LedgerPart], columns: Columns, counted_on: Container[str], width: int
) -> list[Text]:
    """Return a line for each reason why values are n/a.

    A column without any value is not shown: one line gives the most frequent reason among its rows.

    columns: columns with a reason for their missing values
    counted_on: reasons for values that are not really missing, because another row counts them
    """
    titles_by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)  # key: (reason, accounts)
    for column, view in columns:
        unknown = [part.rows[0] for part in parts if column.value(part) is None]
        key = column.reason_key
        reasons = [(row.reasons.get(key, "no reason recorded"), row.category) for row in unknown]
        by_reason = gathered(
            (plain_reason(reason), ACCOUNTS[account].title)
            for reason, account in reasons
            if reason not in counted_on
        )
        if sum(map(len, by_reason.values())) == len(parts) > 0:
            commonest = max(by_reason, key=lambda reason: len(by_reason[reason]))
            titles_by_reason[commonest, ""].append(view.title)
        else:
            for reason, accounts in by_reason.items():
                of_accounts = f" of {', '.join(dict.fromkeys(accounts))}"
                titles_by_reason[reason, of_accounts].append(view.title)
    lines: list[Text] = []
    for (reason, of_accounts), titles in titles_by_reason.items():
        lines += wrap(f"n/a: {', '.join(titles)}{of_accounts}: {reason}", width, indent=2, style="dim")
    return lines


# Table of the counts of function hooks, with one row per copy, side and context.


@dataclass(frozen=True)
class HookCounter:
    """An event that function hooks count.

    name: key of the count in the record
    title: title of its column
    count: function that returns the count of a row; None if not counted
    verified: True if a test compared the counts with known counts (docs/reference/pmu.md)
    """

    name: str
    title: str
    count: Callable[[ExactRow], float | None]
    verified: bool = False


COUNTED = (
    HookCounter("llc_misses", "LLC miss/KiB", lambda row: row.llc_misses, verified=True),
    HookCounter("cpu_clock_ns", "cpu-clock ns/KiB", lambda row: row.cpu_clock_ns),
    HookCounter("page_faults", "faults/KiB", lambda row: row.page_faults),
    HookCounter("dtlb_load_misses", "dTLB load miss/KiB", lambda row: row.dtlb_load_misses),
    HookCounter("dtlb_store_misses", "dTLB store miss/KiB", lambda row: row.dtlb_store_misses),
    HookCounter("itlb_load_misses", "iTLB miss/KiB", lambda row: row.itlb_load_misses),
)


def exact_lines(run: Run, width: int) -> list[Text]:
    """Return the table of copies that function hooks measured, or [] if no hooks were requested."""
    rows, functions = run.derived.exact, run.raw.functions
    note = f"{covered(run, 'functions')}; own time; share = of that side's CPU time"
    lines = heading("EXACT", note, width)
    if (reason := why_nothing_exact(run.raw)) is not None:
        return lines + wrap(f"n/a: {reason}", width, indent=2, style="dim")
    if not rows or functions is None:
        return []
    titles = ("calls", "bytes", "own time", "ns/KiB", "95 % interval", "share")
    raw_names = sorted({name for row in rows for name in (row.raw or {})})
    event_titles = [*(event.title for event in COUNTED), *(f"{name}/KiB" for name in raw_names)]
    table = TextTable(("in", "side", "where"), *titles, *event_titles)
    for row in sorted(rows, key=lambda row: (row.side != "sender", row.side, -row.self_ns)):
        # Factor that turns a total of this row into its value per KiB of payload.
        per_kib = row.ns_per_kib / row.cpu_ns if row.cpu_ns and row.ns_per_kib else None
        table.add(
            *(
                ACCOUNTS[row.category].title if row.category in ACCOUNTS else row.category,
                row.side,
                row.context,
            ),
            spelling.format_count(row.calls),
            spelling.format_bytes(row.bytes) if row.bytes else "-",
            None if row.cpu_ns is None else spelling.format_ns(row.cpu_ns),
            None if row.ns_per_kib is None else f"{row.ns_per_kib:,.1f}",
            interval_per_kib(row.ci, per_kib) if functions.gate > 1 else None,
            spelling.format_percent(row.share),
            *(rate(event.count(row), per_kib) for event in COUNTED),
            *(rate((row.raw or {}).get(name), per_kib) for name in raw_names),
        )
    lines += table.lines(width)
    for text in _exact_notes(run, functions):
        lines += wrap(text, width, indent=2, style="dim")
    return lines + life_lines(run, width)


def _exact_notes(run: Run, functions: Functions) -> Iterator[str]:
    """Yield notes below the table on copies of unknown time, the hooks' own work, and events that are n/a."""
    if functions.gate != 1:
        timed = sum(row.timed_calls for row in run.derived.exact)
        calls = sum(row.calls for row in run.derived.exact)
        yield (
            f"exact 1/{functions.gate}: {spelling.format_count(timed)} of {spelling.format_count(calls)}"
            " copies were timed, chosen at random; calls and bytes are those of all copies"
        )
    stopped = stopped_readings(run.raw)
    if stopped is not None and stopped[0]:
        interrupted, timed_copies = map(spelling.format_count, stopped)
        yield (
            f"left out: {interrupted} of {timed_copies} timed copies, interrupted while the clock was read"
        )
    yield from _own_work_notes(run.derived.exact, functions)
    for event in functions.events:
        if event.status == "scaled":
            ran = f"ran {(event.running or 0.0) * 100:.0f} % of the time"
            yield f"{event.name}: scaled, {ran}: {event.reason}"
        elif event.status == "partial":
            yield f"{event.name}: {event.reason}"
        if event.counts:
            yield f"{event.name}: {event.counts}"
    unsupported = gathered(
        (plain_reason(event.reason or "no reason recorded"), event.name)
        for event in functions.events
        if event.status == "unsupported"
    )
    for reason, names in unsupported.items():
        yield f"n/a: {', '.join(names)} per function: {reason}"


def _own_work_notes(rows: Sequence[ExactRow], functions: Functions) -> Iterator[str]:
    """Yield notes on what the hooks add to their own results: time to read the clock, and counted events."""
    cost = functions.read_cost
    if cost is not None:
        yield (
            f"reading the clock at the start and end of a copy takes {cost.look_ns:.0f} ns "
            f"({cost.low_ns:.0f} to {cost.high_ns:.0f}, {cost.reads:,} readings)"
        )
    unverified = [
        event.name
        for event in COUNTED
        if not event.verified and any(event.count(row) is not None for row in rows)
    ]
    unverified += sorted(
        {name for row in rows for name, count in (row.raw or {}).items() if count is not None}
    )
    if unverified:
        yield f"the hooks' own work is part of {', '.join(unverified)}; its amount is unknown"
    events = ", ".join(OVERSTATED_MAX)
    yield f"n/a: {events} of a copy: they include the hooks' own work (docs/reference/pmu.md)"


def life_lines(run: Run, width: int) -> list[Text]:
    """Return lines on the late copies of zero-copy sends, and on the delay of notifications.

    Each line on copies names the owner of the copied memory and the task that made the copies. The result is
    empty without function hooks.
    """
    life = run.derived.zerocopy_life
    if life is None:
        return []
    lines: list[Text] = []
    for owner in life.owners:
        side = owner.owner_side
        memory = "memory of unknown owner" if side is None else f"{_possessive(side)} memory"
        text = (
            f"{spelling.format_count(owner.calls)} copies of {memory}, {spelling.format_bytes(owner.bytes)}"
        )
        runs = ", ".join(f"{spelling.format_count(run.calls)} {_runner_text(run)}" for run in owner.runs)
        lines += labelled("late copies", f"{text}; run by: {runs}", width)
    for notified in life.notified:
        p50, p99 = _delay_text(notified.p50_ns), _delay_text(notified.p99_ns)
        count = spelling.format_count(notified.count)
        before = spelling.format_count(notified.before_return)
        text = f"{_possessive(notified.side)} sends: notified p50 {p50}, p99 {p99} "
        text += f"({count} notifications, {before} of them before the send returned)"
        lines += labelled("completion", text, width)
    return lines


def _possessive(side: str) -> str:
    return "other processes'" if side == "other" else f"the {side}'s"


def _runner_text(run: CopyRun) -> str:
    """Return the task that made the copies, such as `softirq on the receiver`."""
    if run.context == "softirq":
        return "softirq of others" if run.side == "other" else f"softirq on the {run.side}"
    task = "others" if run.side == "other" else f"the {run.side}"
    return task if run.context == "process" else f"{task} (context unknown)"


def _delay_text(after_return_ns: int | None) -> str:
    """Format a notification's delay after the send returned.

    after_return_ns: upper bound of the delay in ns; 0 if the send had not returned yet; None if unknown
    """
    if after_return_ns is None:
        return spelling.NOT_AVAILABLE
    if after_return_ns == 0:
        return "by its return"
    return f"at most {spelling.format_ns(after_return_ns)} after its return"
