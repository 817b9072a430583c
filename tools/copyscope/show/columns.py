# SPDX-License-Identifier: GPL-2.0-only
"""Columns of the ledger. COLUMNS lists them for the first screen, the report of `-v`, the page and the files.

Every screen chooses its columns by name, width and verbosity. `-v` and the page follow the order of COLUMNS.
The first screen and the files have their own orders, in which unlisted columns come last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from copyscope.base import spelling
from copyscope.show.ledger_cells import (
    LedgerPart,
    bytes_cell,
    bytes_method,
    calls_cell,
    counted_calls,
    deciding_functions,
    event_cell,
    event_count,
    event_high,
    event_interval_cell,
    event_low,
    event_samples,
    event_samples_cell,
    half_width_cell,
    half_width_ns,
    interval_high_ns,
    interval_low_ns,
    interval_per_kib,
    modelled_l1d_misses,
    modelled_llc_misses,
    moved_bytes,
    ms_factor,
    page_interval_cell,
    rate,
    share_cell,
    sum_known,
    time_cell,
)
from copyscope.show.ledger_rows import position
from copyscope.taxonomy.events import EVENT_COLUMNS, MISSES

# Hardware events of the first screen, the most important first: key of the event in a row -> column title.
EVENT_TITLES = {"cycles": "cycles", **MISSES}

Value = float | str | None
Spell = Callable[[float], str | None]
Cell = Callable[[LedgerPart], str | None]


@dataclass(frozen=True)
class ColumnView:
    """Appearance of a column on one screen.

    spell: function that formats the number on this screen; None for the column's own function
    cell: function that returns the cell's text if it depends on more than the value; None to format the value
    missing: text for a cell without a value; None for `n/a`
    """

    title: str
    spell: Spell | None = None
    cell: Cell | None = None
    missing: str | None = None


@dataclass(frozen=True)
class OnFirstScreen(ColumnView):
    """Appearance of a column in the table "path of a byte" of the first screen.

    from_width: width in characters of the narrowest terminal to show the column
    dropped: rank; a narrow screen drops the columns with the lowest rank first; None: never dropped
    """

    from_width: int = 0
    dropped: int | None = 0


@dataclass(frozen=True)
class InTable(ColumnView):
    """Appearance of a column in the ledger of `-v`.

    verbosity: 1 for a column of `-v` and `-vv`; 2 for a column of `-vv` only
    """

    verbosity: int = 1


@dataclass(frozen=True)
class OnPage(ColumnView):
    """Appearance of a column in the page's ledger."""

    missing: str | None = spelling.NOT_AVAILABLE


@dataclass(frozen=True)
class LedgerColumn:
    """A column of the ledger, and its appearance on each screen.

    name: key by which screens choose the column, and its name in CSV and Parquet
    unit: unit of the value; empty for a column of texts
    value: function that returns the value for the rows of a LedgerPart; None if unknown
    spell: function that formats a number
    first, table, page: appearance on the first screen, in the `-v` ledger and on the page; None if not shown
    in_files: True for a column in CSV and Parquet files
    reason: key in a row's `reasons` that explains a missing value; None: the column's name; empty: another
        column gives the reason
    """

    name: str
    unit: str
    value: Callable[[LedgerPart], Value]
    spell: Spell = spelling.format_count
    first: OnFirstScreen | None = None
    table: InTable | None = None
    page: OnPage | None = None
    in_files: bool = False
    reason: str | None = None

    @property
    def is_text(self) -> bool:
        """True for a column of texts, which are aligned to the left."""
        return not self.unit

    @property
    def reason_key(self) -> str:
        """Key in a row's `reasons` that explains a missing value; empty: another column gives the reason."""
        return self.name if self.reason is None else self.reason

    def cell(self, view: ColumnView, part: LedgerPart) -> str | None:
        """Return a cell's text on the screen that `view` describes, or None if unknown."""
        if view.cell is not None:
            text = view.cell(part)
        else:
            value = self.value(part)
            text = value if value is None or isinstance(value, str) else (view.spell or self.spell)(value)
        return view.missing if text is None else text


def _event_columns(
    event: str, title: str, kib: float, first: OnFirstScreen | None = None
) -> tuple[LedgerColumn, ...]:
    """Return the columns for a hardware event: its count, and the count's interval and samples.

    event: key of the event in a row of the ledger
    title: title of the count in the ledger of `-v`
    kib: payload in KiB to which the count in the ledger of `-v` refers
    first: appearance on the first screen; None if not shown
    """

    def rate_cell(part: LedgerPart) -> str | None:
        return rate(event_count(event, part), part.per_kib, kib)

    interval = InTable("95 % interval", cell=partial(event_interval_cell, event))
    samples = InTable("samples", cell=partial(event_samples_cell, event), verbosity=2)
    is_miss = event in MISSES
    return (
        LedgerColumn(
            name=event,
            unit="events",
            value=partial(event_count, event),
            first=first,
            table=InTable(title, cell=rate_cell),
            in_files=True,
        ),
        # On the screen the column of the low end shows both ends of the interval. The column of the count
        # itself gives the reason for all missing values.
        LedgerColumn(
            name=f"{event}_low",
            unit="events",
            value=partial(event_low, event),
            table=interval if is_miss else None,
            in_files=True,
            reason="",
        ),
        LedgerColumn(f"{event}_high", "events", partial(event_high, event), in_files=True),
        LedgerColumn(
            name=f"{event}_samples",
            unit="samples",
            value=partial(event_samples, event),
            table=samples if is_miss else None,
            in_files=True,
            reason="",
        ),
    )


def _event_on_first_screen(event: str, dropped: int | None = None) -> OnFirstScreen:
    """Return the appearance of an event's count on the first screen. `dropped`: as in OnFirstScreen."""
    return OnFirstScreen(EVENT_TITLES[event], cell=partial(event_cell, event), dropped=dropped)


# All columns, in the order of the ledger of `-v` and of the page.
COLUMNS: tuple[LedgerColumn, ...] = (
    LedgerColumn(
        name="ns_per_kib",
        unit="ns/KiB",
        value=lambda part: sum_known(row.ns_per_kib for row in part.rows),
        spell=spelling.format_tenths,
        first=OnFirstScreen("ns/KiB", cell=lambda part: time_cell(part, part.per_kib), dropped=None),
        table=InTable("ns/KiB"),
        page=OnPage("ns/KiB", "{:.1f}".format),
        in_files=True,
    ),
    LedgerColumn(
        name="ci",
        unit="ns",
        value=lambda part: half_width_ns(part.rows),
        first=OnFirstScreen("±", cell=half_width_cell, dropped=None),
        table=InTable("95 % interval", cell=lambda part: interval_per_kib(part.interval, part.per_kib)),
        page=OnPage("95 % interval", cell=page_interval_cell),
    ),
    LedgerColumn(
        name="cpu_ns_low",
        unit="ns",
        value=interval_low_ns,
        in_files=True,
    ),
    LedgerColumn(
        name="cpu_ns_high",
        unit="ns",
        value=interval_high_ns,
        in_files=True,
    ),
    LedgerColumn(
        name="share",
        unit="1",
        value=lambda part: sum_known(row.share for row in part.rows),
        spell=spelling.format_percent,
        first=OnFirstScreen("share", cell=share_cell, dropped=None),
        table=InTable("share"),
        page=OnPage("share", "{:.1%}".format),
        in_files=True,
    ),
    LedgerColumn(
        name="bytes",
        unit="bytes",
        value=moved_bytes,
        first=OnFirstScreen("bytes", cell=bytes_cell, missing="", from_width=100, dropped=3),
        table=InTable("bytes", cell=bytes_cell),
        page=OnPage("bytes", missing=""),
        in_files=True,
    ),
    LedgerColumn(
        name="calls",
        unit="calls",
        value=counted_calls,
        first=OnFirstScreen("calls", cell=calls_cell, missing="", from_width=160, dropped=2),
        table=InTable("calls", cell=calls_cell),
        page=OnPage("calls", missing=""),
        in_files=True,
    ),
    LedgerColumn(
        name="method",
        unit="",
        value=lambda part: ", ".join(dict.fromkeys(row.method for row in part.rows)),
        table=InTable("method"),
        page=OnPage("method"),
        in_files=True,
    ),
    *_event_columns("cycles", "cycles/B", 1 / 1024, _event_on_first_screen("cycles")),
    *_event_columns("instructions", "instr/B", 1 / 1024),
    *_event_columns("l1d_misses", "L1D miss/KiB", 1.0, _event_on_first_screen("l1d_misses", dropped=5)),
    *_event_columns("llc_misses", "LLC miss/KiB", 1.0, _event_on_first_screen("llc_misses")),
    LedgerColumn(
        name="cpu_ns",
        unit="ns",
        value=lambda part: part.cpu_ns,
        spell=spelling.format_ns,
        first=OnFirstScreen(
            "CPU time",
            cell=lambda part: "" if part.is_unsampled else spelling.format_ns(part.cpu_ns),
            from_width=100,
            dropped=4,
        ),
        table=InTable("CPU time", verbosity=2),
        in_files=True,
    ),
    # A run without payload has CPU time in place of ns/KiB.
    LedgerColumn(
        name="cpu_ns_without_payload",
        unit="ns",
        # With -vv every run already has a column of CPU time.
        value=lambda part: part.cpu_ns if part.per_kib is None and part.verbosity < 2 else None,
        spell=spelling.format_ns,
        first=OnFirstScreen("ms", cell=lambda part: time_cell(part, ms_factor(part)), dropped=None),
        table=InTable("CPU time"),
        reason="",
    ),
    LedgerColumn(
        name="samples",
        unit="samples",
        value=lambda part: sum_known(row.samples for row in part.rows),
        table=InTable("samples", verbosity=2),
        in_files=True,
    ),
    LedgerColumn(name="bytes_method", unit="", value=bytes_method, table=InTable("bytes by", verbosity=2)),
    LedgerColumn(
        name="llc_simulated",
        unit="events/KiB",
        value=modelled_llc_misses,
        spell=spelling.format_hundredths,
        first=OnFirstScreen("LLC sim", dropped=None),
    ),
    LedgerColumn(
        name="l1d_simulated",
        unit="events/KiB",
        value=modelled_l1d_misses,
        spell=spelling.format_hundredths,
        first=OnFirstScreen("L1D sim", dropped=6),
    ),
    LedgerColumn(
        name="functions",
        unit="",
        value=deciding_functions,
        first=OnFirstScreen("mostly in", missing="", from_width=160, dropped=1),
    ),
)

# Columns of the first screen, from left to right.
FIRST_SCREEN_ORDER = (
    *("ns_per_kib", "cpu_ns_without_payload", "ci", "share", *EVENT_TITLES, "llc_simulated", "l1d_simulated"),
    *("cpu_ns", "bytes", "calls", "functions"),
)
# Columns of CSV and Parquet. New columns follow those of earlier versions, so that positions never change.
FILE_ORDER = (
    *("cpu_ns", "ns_per_kib", "share", "bytes", "calls", "samples", *EVENT_COLUMNS, "method"),
    *("cpu_ns_low", "cpu_ns_high"),
    *(f"{event}_{end}" for event in EVENT_COLUMNS for end in ("low", "high", "samples")),
)


def first_screen_columns(width: int) -> list[tuple[LedgerColumn, OnFirstScreen]]:
    """Return the first screen's columns for a terminal of `width` characters, from left to right."""
    columns = sorted(COLUMNS, key=lambda column: position(FIRST_SCREEN_ORDER, column.name))
    return [(column, view) for column in columns if (view := column.first) and width >= view.from_width]


def table_columns(verbosity: int) -> list[tuple[LedgerColumn, InTable]]:
    """Return the columns of the ledger of `-v` (verbosity 1) or `-vv` (2)."""
    return [(column, view) for column in COLUMNS if (view := column.table) and view.verbosity <= verbosity]


def page_columns() -> list[tuple[LedgerColumn, OnPage]]:
    """Return the columns of the ledger on the page, from left to right."""
    return [(column, view) for column in COLUMNS if (view := column.page)]


def file_columns() -> list[LedgerColumn]:
    """Return the columns of the CSV and Parquet files, in their order there."""
    columns = sorted(COLUMNS, key=lambda column: position(FILE_ORDER, column.name))
    return [column for column in columns if column.in_files]
