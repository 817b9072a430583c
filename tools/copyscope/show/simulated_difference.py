# SPDX-License-Identifier: GPL-2.0-only
"""Screen of `copyscope diff` for two simulated machines."""

from rich.console import Console
from rich.text import Text

from copyscope.base.spelling import counted, join_with_and
from copyscope.judge.difference import SAME
from copyscope.judge.simulated_difference import (
    INSTRUCTIONS,
    L1D,
    LINES,
    LLC,
    ChangedFunction,
    ChangedRow,
    CountChange,
    SettingDifference,
    SimulatedCount,
    SimulatedDifference,
)
from copyscope.show.layout import TextTable, heading, print_lines, report_width, wrap
from copyscope.taxonomy.accounts import ACCOUNTS, called

# At most this many functions are named for a setting without -v.
FUNCTIONS_SHOWN_MAX = 8
LEGEND = (
    "per KiB delivered; lines: cache lines read and written; every instruction is counted, so the difference"
    " is the kernel's; \N{PLUS-MINUS SIGN}: spread of the seeds"
)


def render_simulated_difference(difference: SimulatedDifference, *, verbose: bool, console: Console) -> None:
    """Print the verdict, and for each setting a table of changed rows and one of changed functions.

    verbose: also print the rows without a difference, and all changed functions
    """
    width = report_width(console)
    lines: list[Text] = []
    for setting in difference.settings:
        lines += [Text()] if lines else []
        lines += wrap(sentence(setting, difference), width, indent=2, style="bold")
        lines += heading("WHAT CHANGED", LEGEND, width)
        lines += _row_lines(setting, width, verbose=verbose)
        lines += _function_lines(setting, width, verbose=verbose)
    if difference.seeds == 1:
        lines += [Text(), *wrap("one seed shows no spread of misses: simulate both with --seeds 3", width)]
    print_lines(lines, console)


def sentence(setting: SettingDifference, difference: SimulatedDifference) -> str:
    """Return the verdict on a setting in one sentence, instructions and cache lines first."""
    quantities = (INSTRUCTIONS, LINES, L1D)
    changes = [setting.total.change(quantity) for quantity in quantities]
    texts = [
        f"a copy appeared ({ACCOUNTS[row.category].title}, {_number(row.change(LINES).after)} lines per KiB)"
        for row in setting.rows
        if row.is_new_copy
    ]
    texts += [_change_text(change) for change in changes if change.verdict != SAME]
    unchanged = [
        quantity for quantity, change in zip(quantities, changes, strict=True) if _is_equal(quantity, change)
    ]
    if unchanged:
        texts.append(f"the same {join_with_and([quantity.name for quantity in unchanged])}")
    unclear = [
        f"{change.quantity} {_number(change.before)} -> {_number(change.after)} per KiB"
        for quantity, change in zip(quantities, changes, strict=True)
        if change.verdict == SAME and quantity not in unchanged
    ]
    if unclear:
        texts.append(f"within the spread of the seeds: {join_with_and(unclear)}")
    kernels = f"{difference.before} -> {difference.after}"
    return f"{setting.name}: {setting.verdict}: {'; '.join(texts)}; {kernels}"


def _is_equal(quantity: SimulatedCount, change: CountChange) -> bool:
    """Return True if a change is too small for any verdict, whatever the spread of the seeds."""
    return abs(change.difference) <= quantity.least_change(change.before)


def _change_text(change: CountChange) -> str:
    """Format a change, such as `12.3 % more instructions per KiB (1,204 -> 1,352)`."""
    more = "more" if change.difference > 0 else "fewer"
    values = f"{_number(change.before)} -> {_number(change.after)}"
    if not change.before:
        return f"{_number(change.after)} more {change.quantity} per KiB"
    share = abs(change.difference) / change.before
    return f"{100 * share:.1f} % {more} {change.quantity} per KiB ({values})"


def _row_lines(setting: SettingDifference, width: int, *, verbose: bool) -> list[Text]:
    """Return the table of accounts and stages, and a note on the rows that are left out."""
    table = TextTable(("what",), "instr", "now", "lines", "now ", "L1D misses", "LLC misses")
    shown = [row for row in setting.rows if verbose or _differs(row)]
    for row in shown:
        table.add(called(row.category, watched=False), *_cells(row))
    table.add(setting.total.category, *_cells(setting.total), strong=True)
    lines = table.lines(width)
    if hidden := len(setting.rows) - len(shown):
        lines += wrap(f"{counted(hidden, 'other row')}: no difference", width)
    return lines


def _differs(row: ChangedRow) -> bool:
    return any(row.change(quantity).verdict != SAME for quantity in (INSTRUCTIONS, LINES))


def _cells(row: ChangedRow) -> list[str]:
    cells = []
    for quantity in (INSTRUCTIONS, LINES):
        change = row.change(quantity)
        cells += [_number(change.before), _number(change.after)]
    return cells + [_difference_cell(row.change(quantity)) for quantity in (L1D, LLC)]


def _difference_cell(change: CountChange) -> str:
    """Format the difference in a miss count, with the spread between seeds."""
    spread = "" if change.spread is None else f" \N{PLUS-MINUS SIGN}{change.spread:.1f}"
    return f"{change.difference:+.1f}{spread}"


def _function_lines(setting: SettingDifference, width: int, *, verbose: bool) -> list[Text]:
    """Return the table of the functions that changed."""
    lines = heading("IN WHICH FUNCTIONS", "per KiB delivered, before and now", width)
    if setting.functions is None:
        note = "unknown: a record of an older copyscope has no functions; simulate both kernels again"
        return lines + wrap(note, width)
    if not setting.functions:
        return []
    shown = setting.functions if verbose else setting.functions[:FUNCTIONS_SHOWN_MAX]
    table = TextTable(("function", "part of"), "instr", "now", "lines", "now ")
    for function in shown:
        table.add(*_function_cells(function))
    lines += table.lines(width)
    if hidden := len(setting.functions) - len(shown):
        lines += wrap(f"{counted(hidden, 'more function')}: -v", width)
    return lines


def _function_cells(function: ChangedFunction) -> list[str]:
    return [
        function.name,
        called(function.category, watched=False),
        _number(function.instructions_before),
        _number(function.instructions_after),
        _number(function.lines_before),
        _number(function.lines_after),
    ]


def _number(value: float) -> str:
    """Format a count per KiB: whole numbers from 100 on, otherwise one decimal."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
