# SPDX-License-Identifier: GPL-2.0-only
"""Values and texts of the ledger's cells. A line on a screen shows one row, or the sum of several."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from copyscope.base import spelling
from copyscope.base.spelling import one_line
from copyscope.ledger.noise import relative_half_width
from copyscope.record.derived import AccountRow, EventEstimate
from copyscope.record.instruments import Counter
from copyscope.record.run import Run
from copyscope.record.sections import RecordedInterval
from copyscope.record.simulated import SimulatedRow
from copyscope.show.ledger_rows import Row, deciding_symbols
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name

WHOLE_FROM = 10  # the interval of the whole run has decimals only below this number
FUNCTIONS_MAX = 34  # maximum length of a cell with names of functions, in characters

# Key of a hardware event -> function that returns the count of the event in a row of the ledger.
EVENT_COUNTS: Mapping[str, Callable[[Row], float | None]] = {
    "cycles": lambda row: row.cycles,
    "instructions": lambda row: row.instructions,
    "l1d_misses": lambda row: row.l1d_misses,
    "llc_misses": lambda row: row.llc_misses,
}


@dataclass(frozen=True)
class LedgerPart:
    """Ledger rows that one line of a screen shows.

    rows: one row, or all rows of an account on one side, of some stages, or of the run
    per_kib: factor that turns a total into its value per KiB of payload; None if the run has no payload
    total_ns: CPU time of all lines of the screen together, in ns
    modelled: rows of a simulated cache model for the same work; None if the run was not simulated
    is_all: True for the line of the whole run
    verbosity: 1 for `-v`, 2 for `-vv`
    """

    run: Run
    rows: Sequence[Row]
    per_kib: float | None
    total_ns: float = 0.0
    modelled: Sequence[SimulatedRow] | None = None
    is_all: bool = False
    verbosity: int = 0

    @property
    def copies(self) -> list[AccountRow]:
        """The rows if all belong to one account; [] for work other than copies and for the whole run."""
        return [] if self.is_all else [row for row in self.rows if isinstance(row, AccountRow)]

    @property
    def cpu_ns(self) -> float | None:
        """CPU time of the rows in ns, or None if unknown."""
        return sum_known(row.cpu_ns for row in self.rows)

    @property
    def half_ns(self) -> float | None:
        """Half the width in ns of the 95 % interval of the CPU time, for a copy or for the whole run.

        A copy's interval comes from its samples, the whole run's from its segments. None if the time was
        measured exactly or is unknown, or if the part is other work.
        """
        if self.is_all:
            spread = relative_half_width(self.run.raw)
            return None if spread is None or self.cpu_ns is None else spread * self.cpu_ns
        return half_width_ns(row for row in self.copies if row.cpu_ns is not None)

    @property
    def is_unsampled(self) -> bool:
        """True for a copy without samples, for which only an upper bound of its time is known."""
        return self.cpu_ns == 0.0 and bool(self.half_ns)

    @property
    def interval(self) -> RecordedInterval | None:
        """Interval of a single row's CPU time; None for several rows."""
        return self.rows[0].ci if len(self.rows) == 1 else None

    def estimate(self, event: str) -> EventEstimate | None:
        """Return the interval and samples for an event's count in a single row, or None for several rows."""
        return self.rows[0].events.get(event) if len(self.rows) == 1 else None


def sum_known(values: Iterable[float | None]) -> float | None:
    """Add the known values. Return None if all are unknown."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def first_known(values: Iterable[float | None]) -> float | None:
    """Return the first known value, or None. Rows of an account share one count, so nothing is added."""
    return next((value for value in values if value is not None), None)


def half_width_ns(rows: Iterable[Row]) -> float | None:
    """Return half the width in ns of the 95 % interval for a sum of independent rows, or None if unknown."""
    halves = [(row.ci.high_ns - row.ci.low_ns) / 2 for row in rows if row.ci]
    return math.hypot(*halves) if halves else None


def rate(total: float | None, per_kib: float | None, kib: float = 1.0) -> str | None:
    """Format a row's total as a value per `kib` KiB of payload.

    per_kib: factor that turns a total into its value per KiB of payload; None if the run has no payload
    """
    return None if total is None or per_kib is None else spelling.format_hundredths(total * per_kib * kib)


def interval_per_kib(interval: RecordedInterval | None, per_kib: float | None) -> str | None:
    """Format an interval of CPU time in ns per KiB of payload. `per_kib`: as in rate()."""
    if interval is None or per_kib is None:
        return None
    return spelling.format_interval(interval.low_ns * per_kib, interval.high_ns * per_kib)


def time_cell(part: LedgerPart, factor: float | None) -> str | None:
    """Format the CPU time times `factor`; for a copy without samples, an upper bound such as `<0.3`."""
    if factor is None or part.cpu_ns is None:
        return None
    if part.is_unsampled:
        return f"<{spelling.format_tenths(2 * (part.half_ns or 0.0) * factor)}"
    return spelling.format_tenths(part.cpu_ns * factor)


def ms_factor(part: LedgerPart) -> float | None:
    """Return the factor that turns ns into ms for a run without payload, or None for a run with payload."""
    return 1e-6 if part.per_kib is None else None


def half_width_cell(part: LedgerPart) -> str:
    """Format half the width of the CPU-time interval. Return "" for a copy whose CPU time is unknown or 0."""
    if part.half_ns is None or not part.cpu_ns:
        return ""
    half = part.half_ns * (part.per_kib or 1e-6)
    # The widest number of the column has no decimals, so that the column stays narrow.
    return f"{half:,.0f}" if part.is_all and half >= WHOLE_FROM else spelling.format_tenths(half) or ""


def page_interval_cell(part: LedgerPart) -> str | None:
    """Format the interval of the CPU time per KiB of payload, as the page shows it."""
    if part.interval is None or part.per_kib is None:
        return None
    return f"{part.interval.low_ns * part.per_kib:.1f} to {part.interval.high_ns * part.per_kib:.1f}"


def interval_low_ns(part: LedgerPart) -> float | None:
    """Return the lower end of the interval for a single row's CPU time."""
    return None if part.interval is None else part.interval.low_ns


def interval_high_ns(part: LedgerPart) -> float | None:
    """Return the upper end of the interval for a single row's CPU time."""
    return None if part.interval is None else part.interval.high_ns


def share_cell(part: LedgerPart) -> str | None:
    """Format the part's share of the whole screen's CPU time. An upper bound is rounded up."""
    if part.is_unsampled:
        most = 2 * (part.half_ns or 0.0) / part.total_ns
        return f"<{math.ceil(most * 1000) / 10:.1f} %"
    return None if part.cpu_ns is None else spelling.format_percent(part.cpu_ns / part.total_ns)


def moved_bytes(part: LedgerPart) -> float | None:
    """Return how many bytes an account moved, or None for stages or if unknown."""
    return first_known(row.bytes for row in part.copies)


def bytes_cell(part: LedgerPart) -> str | None:
    """Format how many bytes an account moved, with `~` before an estimate."""
    count = moved_bytes(part)
    tilde = "~" if any(row.bytes_method == "scaled" for row in part.copies) else ""
    spelled = spelling.format_bytes(count, exact=part.verbosity > 1)
    return None if count is None else tilde + spelled


def counted_calls(part: LedgerPart) -> float | None:
    """Return an account's number of calls, or None for stages or if unknown."""
    return first_known(row.calls for row in part.copies)


def calls_cell(part: LedgerPart) -> str | None:
    """Format an account's number of calls, with `~` before an estimate."""
    calls = counted_calls(part)
    tilde = "~" if any(row.calls_method == "scaled" for row in part.copies) else ""
    return None if calls is None else tilde + spelling.format_count(calls)


def bytes_method(part: LedgerPart) -> str | None:
    """Return how an account's bytes were determined, and whether the program or the kernel counted them."""
    texts = [", ".join(filter(None, (row.bytes_method, row.bytes_by))) for row in part.copies]
    return next(filter(None, texts), None)


def deciding_functions(part: LedgerPart) -> str | None:
    """Return the two functions with the most samples, or None if the part is not one account or stage."""
    if part.is_all or len({row.category for row in part.rows}) != 1:
        return None
    side = part.copies[0].side if part.copies else None
    symbols = deciding_symbols(part.run, part.rows[0].category, side).most_common(2)
    return one_line(", ".join(name for name, _ in symbols), FUNCTIONS_MAX)


def modelled_l1d_misses(part: LedgerPart) -> float | None:
    """Return the L1D load misses per KiB in the run's cache model, or None if the run has no model."""
    return None if part.modelled is None else sum(row.l1d_load_misses_per_kib for row in part.modelled)


def modelled_llc_misses(part: LedgerPart) -> float | None:
    """Return the LLC load misses per KiB in the run's cache model, or None if the run has no model."""
    return None if part.modelled is None else sum(row.llc_load_misses_per_kib for row in part.modelled)


def event_count(event: str, part: LedgerPart) -> float | None:
    """Add up an event's counts over the rows. Return None if the count of any row is unknown.

    The whole run's count is the sum of all processes' counters and of the softirq work that the kernel
    charged to other tasks.
    """
    count_of = EVENT_COUNTS[event]
    counts = [count_of(row) for row in part.rows if not part.is_all or row.side == "other"]
    if part.is_all:
        totals = [_counter_value(event, counters) for counters in part.run.raw.counters.values()]
        counts = [*totals, *counts] if totals else []
    return None if not counts or None in counts else sum_known(counts)


def _counter_value(event: str, counters: Mapping[str, Counter]) -> float | None:
    """Return the value of an event's counter in one process."""
    values = (counter.value for name, counter in counters.items() if event_name(name) in EVENT_COLUMNS[event])
    return next(values, None)


def event_cell(event: str, part: LedgerPart) -> str | None:
    """Format an event's count per KiB. Rows that have no sample of the event get an upper bound."""
    count = event_count(event, part)
    if count is None or part.per_kib is None:
        return None
    # Cycles per KiB are in the hundreds; misses per KiB are often below 1.
    digits = 0 if event == "cycles" else 2
    if count or part.is_all:
        return spelling.format_tenths(count * part.per_kib, digits)
    highs = [row.events[event].high for row in part.rows if event in row.events]
    bound = spelling.format_tenths(sum(highs) * part.per_kib, digits) or ""
    return "<" + bound.removeprefix("<") if highs else None


def event_interval_cell(event: str, part: LedgerPart) -> str | None:
    """Format the interval of an event's count per KiB."""
    estimate = part.estimate(event)
    if estimate is None or part.per_kib is None:
        return None
    return spelling.format_interval(estimate.low * part.per_kib, estimate.high * part.per_kib, digits=2)


def event_samples_cell(event: str, part: LedgerPart) -> str | None:
    """Format the number of samples from which an event's count was estimated."""
    estimate = part.estimate(event)
    return None if estimate is None or part.per_kib is None else spelling.format_count(estimate.samples)


def event_low(event: str, part: LedgerPart) -> float | None:
    """Return the lower end of the interval for an event's count."""
    estimate = part.estimate(event)
    return None if estimate is None else estimate.low


def event_high(event: str, part: LedgerPart) -> float | None:
    """Return the upper end of the interval for an event's count."""
    estimate = part.estimate(event)
    return None if estimate is None else estimate.high


def event_samples(event: str, part: LedgerPart) -> float | None:
    """Return the number of samples from which an event's count was estimated."""
    estimate = part.estimate(event)
    return None if estimate is None else estimate.samples
