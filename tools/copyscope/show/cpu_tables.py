# SPDX-License-Identifier: GPL-2.0-only
"""Tables of CPU time: by stage, by thread and by processor."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.text import Text

from copyscope.base import spelling
from copyscope.base.spelling import one_line
from copyscope.ledger.attribution import SIDES, side_times, time_samples
from copyscope.ledger.share import few_samples, supported
from copyscope.ledger.watched_program import ThreadShare, thread_shares
from copyscope.record.derived import Elsewhere, StageRow
from copyscope.record.run import Run
from copyscope.show.layout import TextTable, heading, wrap
from copyscope.show.ledger_cells import interval_per_kib, sum_known
from copyscope.show.ledger_rows import (
    Row,
    covered,
    derived_rows,
    kib_factor,
    position,
    why_no_time,
)
from copyscope.taxonomy.accounts import ACCOUNTS, IN_USER_MODE, RECEIVE_COPIES, SEND_COPIES, STAGES, called

# Lines about the CPUs of the run, with a caution for each problem of the CPUs.


def processor_lines(run: Run, width: int) -> list[Text]:
    """Return the CPUs of sender and receiver, and yellow warnings about CPUs and their clocks."""
    placement, state = run.derived.placement, run.derived.machine_state
    cautions = filter(None, (state.clock_sentence, state.quota_sentence))
    lines = [line for caution in cautions for line in _caution(caution, width)]
    if placement is None:
        return lines
    sentence = placement.sentence
    return [*(_caution(sentence, width) if placement.caution else wrap(sentence, width, indent=2)), *lines]


def _caution(text: str, width: int) -> list[Text]:
    return wrap(f"caution: {text}", width, indent=2, style="yellow")


# Table of the threads of a watched program: one row per thread name, with shares of CPU time and of copies.

# Shares below this limit are shown as `-`, because they would round to 0.0 %.
THREAD_SHARE_MIN = 0.0005
# Account -> title of its column, in the order of the path. Late copies and the kernel's ciphers are rare, so
# they come last.
TITLES = {
    account.name: account.column
    for account in sorted(
        ACCOUNTS.values(),
        key=lambda account: (
            account.group == "cipher" and account.context != "user",
            account.arrow == "late",
        ),
    )
    if account.column
}
# Columns that are shown even without a share, because a zero is a finding.
PERMANENT_COLUMNS = (*SEND_COPIES, *RECEIVE_COPIES)


def thread_lines(run: Run, width: int, room: int | None = None) -> list[Text]:
    """Return a table of CPU time by thread name.

    room: maximum number of lines; thread names beyond it share one row; None for no limit
    """
    lines = heading("BY THREAD", f"{covered(run, 'ledger')}; shares of the program's own CPU time", width)
    rows = thread_shares(run.raw, side_times(run.raw)["target"])
    few = few_samples(run.raw, run.derived.sides)
    if few or not rows:
        unread = "nothing was sampled" if run.raw.threads is not None else "not in this record: measure again"
        why = few or unread
        return lines + wrap(f"n/a: {why}", width, indent=2)
    rows_max = len(rows) if room is None else max(1, room - len(lines) - 3)
    shown = rows if len(rows) <= rows_max else rows[: rows_max - 1]
    accounts = [
        account
        for account in TITLES
        if account in PERMANENT_COLUMNS
        or any((row.copies[account] or 0.0) >= THREAD_SHARE_MIN for row in rows)
    ]
    titles = (TITLES[account] for account in accounts)
    table = TextTable(("thread",), "share", "95 % interval", *titles, "samples")
    for row in shown:
        table.add(*_thread_cells(row, accounts))
    if len(shown) < len(rows):
        table.add(*_sum_cells(rows[len(shown) :], accounts))
    lines += table.lines(width)
    unknown = [account for account in IN_USER_MODE if rows[0].copies.get(account, 0) is None]
    if unknown and run.derived.ledger:
        names = " and ".join(called(account, watched=True) for account in unknown)
        text = f"{names}: only bounds are known, for the whole program"
        lines += wrap(text, width, indent=2, style="dim")
    return lines


def _thread_cells(row: ThreadShare, accounts: list[str]) -> list[str | None]:
    """Return the cells for a thread name: share of the CPU time, its interval, shares of copies, samples.

    accounts: copy accounts that have a column
    """
    low, high = row.share.low * 100, row.share.high * 100
    return [
        one_line(row.name) or "others",
        spelling.format_percent(row.share.share),
        f"{low:.1f}..{high:.1f} %",
        *(_copy_share_cell(row.copies[account]) for account in accounts),
        spelling.format_count(row.samples),
    ]


def _copy_share_cell(share: float | None) -> str | None:
    if share is None:
        return None
    return "-" if share < THREAD_SHARE_MIN else spelling.format_percent(share)


def _sum_cells(rows: list[ThreadShare], accounts: list[str]) -> list[str | None]:
    """Return the cells for several thread names: `3 more names`, and the sums of their shares.

    accounts: copy accounts that have a column
    """
    shares_by_account = ([row.copies[account] for row in rows] for account in accounts)
    sums = [None if None in shares else sum_known(shares) for shares in shares_by_account]
    return [
        spelling.counted(len(rows), "more name"),
        spelling.format_percent(sum(row.share.share or 0.0 for row in rows)),
        "",
        *map(_copy_share_cell, sums),
        spelling.format_count(sum(row.samples for row in rows)),
    ]


# Table of the CPU time of sender and receiver: copies, every stage, unattributed time, and the sum.

BAR_WIDTH = 10
# Name of the row that adds up all rows of the copy ledger.
LEDGER_ROW = "copies"


class Sums(NamedTuple):
    """Sums over the rows of one side (sender or receiver); None if unknown.

    share: share of all CPU time
    ns_per_kib: CPU time in ns per KiB of payload
    cpu_ns: CPU time in ns
    softirq: share of all CPU time that was spent in softirqs
    """

    share: float | None
    ns_per_kib: float | None
    cpu_ns: float | None
    softirq: float | None


# Side -> stage -> sums.
Totals = Mapping[str, Mapping[str, Sums]]


def stage_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return a table of all CPU time by stage, with sender and receiver next to each other.

    verbose: also return each stage's rows, and the functions of unattributed samples
    """
    note = f"{covered(run, 'ledger')}; share of all CPU time, part in softirqs, ns/KiB"
    lines = heading("ALL CPU TIME", note, width)
    totals = _stage_totals(run)
    if not any(sums.share for stages in totals.values() for sums in stages.values()):
        why = why_no_time(run, "no CPU time was sampled")
        lines += wrap(f"n/a: {why}", width, indent=2, style="dim")
        return lines + _side_lines(run, totals, width)
    if few := few_samples(run.raw, run.derived.sides):
        lines += wrap(f"n/a: {few}", width, indent=2, style="dim")
    else:
        lines += _balance_table(run, totals).lines(width)
    lines += _side_lines(run, totals, width)
    if verbose:
        lines += _stage_detail_lines(run, width)
        lines += _symbol_lines(run, width)
    return lines


def _balance_table(run: Run, totals: Totals) -> TextTable:
    """Return the table of stages, with columns for each side and a row of totals."""
    has_payload = kib_factor(run) is not None
    cost_title = "ns/KiB" if has_payload else "CPU time"
    sides = tuple(run.raw.run.sides)
    titles = [title for side in sides for title in (side, "softirq", cost_title, "")]
    table = TextTable(("stage",), *titles, words=("",), optional=("",))
    longest = max(sums.share or 0 for side in sides for sums in totals[side].values())
    for stage in _stage_order(totals):
        cells: list[str | None] = [STAGES.get(stage, stage)]
        for side in sides:
            sums = totals[side].get(stage)
            cells += ["-", "-", "-", ""] if sums is None else _stage_cells(sums, longest, per_kib=has_payload)
        table.add(*cells, strong=stage in (LEDGER_ROW, "unattributed"))
    cells = ["sum"]
    for side in sides:
        cells += _stage_cells(_add(totals[side].values()), 0, per_kib=has_payload)
    table.add(*cells, strong=True)
    return table


def _stage_cells(sums: Sums, longest: float, *, per_kib: bool) -> list[str | None]:
    """Return the cells for a stage: share of the CPU time, part in softirqs, cost and bar.

    longest: share that gets a bar of full length; 0: no bar
    per_kib: True for a cost in ns/KiB; False for CPU time, used for a run without payload
    """
    cost = spelling.format_tenths(sums.ns_per_kib) if per_kib else spelling.format_ns(sums.cpu_ns)
    return [
        spelling.format_percent(sums.share),
        spelling.format_percent(sums.softirq) if sums.softirq else "-",
        cost,
        spelling.format_bar(sums.share, longest, BAR_WIDTH),
    ]


def _stage_totals(run: Run) -> Totals:
    """Return for each side and stage the sums over all contexts (process, softirq).

    Rows with bounds instead of a time are left out, because the stage `user` contains their time.
    """
    parts: dict[str, dict[str, list[Sums]]] = {side: {} for side in (*run.raw.run.sides, "other")}
    for row in derived_rows(run):
        if _has_only_bounds(row):
            continue
        in_softirq = row.share if row.context == "softirq" else 0.0
        stage = row.stage if isinstance(row, StageRow) else LEDGER_ROW
        parts[row.side].setdefault(stage, []).append(Sums(row.share, row.ns_per_kib, row.cpu_ns, in_softirq))
    return {side: {stage: _add(rows) for stage, rows in stages.items()} for side, stages in parts.items()}


def _has_only_bounds(row: Row) -> bool:
    return row.cpu_ns is None and row.ci is not None


def _add(rows: Iterable[Sums]) -> Sums:
    """Add up rows. A value that is unknown in any row is unknown in the sum."""
    columns = zip(*rows, strict=True)
    sums = [None if None in column else sum(filter(None, column), 0.0) for column in columns]
    return Sums(*sums) if sums else Sums(0.0, 0.0, 0.0, 0.0)


def _stage_order(totals: Totals) -> list[str]:
    """Return the names of the rows: copies, stages with the largest share first, and unattributed."""
    largest: dict[str, float] = {}
    for stages in (totals[side] for side in totals if side != "other"):
        for stage, sums in stages.items():
            largest[stage] = max(largest.get(stage, 0.0), sums.share or 0.0)
    middle = [stage for stage, share in largest.items() if share > 0]
    middle.sort(key=lambda stage: (-largest[stage], stage))
    return [
        LEDGER_ROW,
        *(stage for stage in middle if stage not in (LEDGER_ROW, "unattributed")),
        "unattributed",
    ]


def _side_lines(run: Run, totals: Totals, width: int) -> list[Text]:
    """Return a line per side: the sum of its rows, its measured CPU time, and the number of samples."""
    lines: list[Text] = []
    sides = {**run.derived.sides.processes(), "other": run.derived.sides.other}
    for side in (*run.raw.run.sides, "other"):
        values = sides[side]
        if side == "other" and not values.cpu_ns and not values.samples:
            continue
        row_sum = spelling.format_ns(_add(totals[side].values()).cpu_ns)
        text = f"{side}: rows add up to {row_sum} of {spelling.format_ns(values.cpu_ns)} CPU time"
        bounded = [
            ACCOUNTS[row.account].title
            for row in run.derived.ledger
            if row.side == side and _has_only_bounds(row)
        ]
        if bounded:
            text += f" ({', '.join(bounded)}: part of user, only bounds are known)"
        if values.samples:
            text += f", {spelling.format_count(values.samples)} samples{_coverage_text(run, side)}"
        if side == "other":
            text += f" (softirq work charged to other tasks, {run.derived.sides.other.rule})"
        lines += wrap(text, width, indent=2, style="dim")
    return lines + _unrelated_lines(run.derived.sides.elsewhere, width)


def _coverage_text(run: Run, side: str) -> str:
    """Return a note on the share of a side's CPU time that its samples cover.

    The share is below 100 % if timers fire late and therefore miss short time slices.
    """
    check = next((row for row in run.derived.identities if row.name == f"{side}_time"), None)
    if check is None or not check.left or not check.right:
        return ""
    return f", which stand for {100 * check.left / check.right:.0f} % of it"


def _unrelated_lines(elsewhere: Elsewhere, width: int) -> list[Text]:
    """Return a line on the softirq time spent on packets of other or unknown programs.

    No other number of the report includes this time.
    """
    if not elsewhere.samples:
        return []
    text = (
        f"elsewhere on this machine: {spelling.format_ns(elsewhere.cpu_ns)} of softirq work for packets of "
        f"other or unknown programs, not counted above ({elsewhere.cause})"
    )
    return wrap(text, width, indent=2, style="dim")


def _stage_detail_lines(run: Run, width: int) -> list[Text]:
    """Return a table with a row for each stage, side and context, for the report of -vv."""
    lines = heading("STAGES IN DETAIL", "one row per stage, side and context", width)
    per_kib = kib_factor(run)
    titles = ("CPU time", "ns/KiB", "95 % interval", "share", "samples", "method")
    table = TextTable(("stage", "side", "where"), *titles, words=("method",))
    rows = sorted(
        supported(run, run.derived.stages), key=lambda row: (position(SIDES, row.side), -(row.share or 0))
    )
    for row in rows:
        table.add(
            *(STAGES.get(row.stage, row.stage), row.side, row.context),
            None if row.cpu_ns is None else spelling.format_ns(row.cpu_ns),
            spelling.format_tenths(row.ns_per_kib),
            interval_per_kib(row.ci, per_kib),
            spelling.format_percent(row.share),
            None if row.samples is None else spelling.format_count(row.samples),
            row.method,
        )
    return lines + table.lines(width)


def _symbol_lines(run: Run, width: int) -> list[Text]:
    """Return a table of the unattributed samples by function. These functions need a rule in taxonomy.tsv."""
    lines = heading("NOT EXPLAINED", "samples without an account or a stage, by running function", width)
    table = TextTable(("symbol",), "side", "where", "samples", words=("side", "where"))
    samples = [row for row in time_samples(run.raw) if row.category == "unattributed"]
    for row in sorted(samples, key=lambda row: (-row.samples, row.symbol)):
        table.add(row.symbol, row.side, row.context, spelling.format_count(row.samples))
    return lines + (table.lines(width) or wrap("none: every sample has an account or a stage", width))
