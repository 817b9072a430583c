# SPDX-License-Identifier: GPL-2.0-only
"""Ledger rows: their selection and order on a screen, and the samples from which they were estimated."""

from collections import Counter
from collections.abc import Iterable

from copyscope.base import spelling
from copyscope.ledger.attribution import SIDES, time_samples
from copyscope.ledger.rows import CONTEXTS
from copyscope.ledger.share import supported
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.measured import Segment
from copyscope.record.run import Run
from copyscope.record.segments import is_relay, measured, select, wall_ns
from copyscope.record.watched import WITHOUT_RECEIVE_CALL
from copyscope.taxonomy.accounts import ACCOUNTS
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name

Row = AccountRow | StageRow

# All names that perf uses for the hardware events of the ledger.
EVENT_NAMES = frozenset(name for names in EVENT_COLUMNS.values() for name in names)


def part_and_whole(run: Run, segments: Iterable[Segment]) -> tuple[str, str]:
    """Format the time of some segments, and of all measured segments of a run."""
    part, whole = (
        spelling.format_seconds(wall_ns(rows) / 1e9) for rows in (segments, measured(run.raw.run.segments))
    )
    return part, whole


def covered(run: Run, phase: str) -> str:
    """Format the part of a run that a phase's segments cover: `ledger segments, 1.6 s of 2.7 s`."""
    part, whole = part_and_whole(run, select(run.raw.run.segments, phase))
    return "the whole run" if part == whole else f"{phase} segments, {part} of {whole}"


def uncounted_segments(run: Run) -> list[Segment]:
    """Return the segments that did not count what the program received with splice(2) or by mapping.

    Such bytes are counted in ledger segments, and in all segments after the first such call.
    """
    if not any(row.syscall in WITHOUT_RECEIVE_CALL for row in run.raw.volume):
        return []
    return [segment for segment in measured(run.raw.run.segments) if not segment.target.counts_taken]


def received_text(run: Run) -> str:
    """Format how many bytes a watched program received: a lower bound if some segments did not count all."""
    text = f"{spelling.format_bytes(run.raw.watched.received_bytes)} received"
    return f"at least {text}" if uncounted_segments(run) else text


def derived_rows(run: Run) -> list[Row]:
    """Return the rows of all accounts, then of all stages, as derived."""
    return [*run.derived.ledger, *run.derived.stages]


def every_row(run: Run) -> list[Row]:
    """Return the rows of derived_rows(), with only those values that enough samples support."""
    return supported(run, derived_rows(run))


def occurring(rows: Iterable[AccountRow]) -> list[AccountRow]:
    """Return the rows of copies that took place, or may have taken place if time and bytes are unknown."""
    return [
        row
        for row in rows
        if row.bytes or row.calls or row.cpu_ns or row.samples or (row.cpu_ns is None and row.bytes is None)
    ]


def copies_to_relay(run: Run, rows: Iterable[AccountRow]) -> list[AccountRow]:
    """Return the rows of copies into a relay's memory, or [] if the sender is not a relay that copies."""
    if not is_relay(run.raw.run):
        return []
    return [row for row in rows if (row.account, row.side) == ("copy_out", "sender")]


def flow_order(account: str, side: str, context: str = "") -> tuple[int, int, int]:
    """Return a sort key: the order in which a byte meets the rows of a ledger."""
    # A relay copies data out of its first socket before it sends them into the second.
    first = -1 if (account, side) == ("copy_out", "sender") else position((*ACCOUNTS,), account)
    return first, position(SIDES, side), position(CONTEXTS, context)


def position(names: tuple[str, ...], name: str) -> int:
    """Return the index of a name. An unknown name gets the number of names, so that it sorts last."""
    return names.index(name) if name in names else len(names)


def kib_factor(run: Run) -> float | None:
    """Return the factor that turns a row's total into its value per KiB, or None without payload.

    The factor comes from a row that has both values, so that all values refer to the same payload.
    """
    for row in derived_rows(run):
        if row.cpu_ns and row.ns_per_kib:
            return row.ns_per_kib / row.cpu_ns
    return None


def why_no_time(run: Run, default_reason: str) -> str:
    """Return why the CPU time of the first stage without one is unknown, or `default_reason`."""
    reasons = (row.reasons.get("share") for row in run.derived.stages)
    return next(filter(None, reasons), default_reason)


def deciding_symbols(
    run: Run, category: str, side: str | None = None, context: str | None = None
) -> Counter[str]:
    """Count the samples of an account or stage (`category`) by function.

    side, context: count only samples of this side or context; None for all
    """
    symbols: Counter[str] = Counter()
    for sample in time_samples(run.raw):
        is_wanted = side in (None, sample.side) and context in (None, sample.context)
        if sample.category == category and is_wanted:
            symbols[sample.symbol] += sample.samples
    return symbols


def plain_reason(reason: str) -> str:
    """Strip the event's name from the front of a reason, so that several events can share one line."""
    event, _, rest = reason.partition(": ")
    return rest if rest and event_name(event) in EVENT_NAMES else reason


def counters_explain_missing_pmu(run: Run) -> bool:
    """Return True if the lines on counters already state that this machine has no PMU."""
    counters = (counter for of_side in run.raw.counters.values() for counter in of_side.items())
    return run.raw.machine.pmu == [] and any(
        counter.value is None and event_name(name) in EVENT_NAMES for name, counter in counters
    )
