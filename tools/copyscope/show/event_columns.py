"""Cycles and cache misses on the first screen: of each row and of all, and what they count.

Of a run with --simulate also the misses of a model, in columns of their own.
"""

from collections.abc import Sequence

from copyscope import units
from copyscope.record.check import Whole
from copyscope.record.segments import relays
from copyscope.show.ledger_table import Row, plain_reason
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name
from copyscope.taxonomy.misses import MISSES, in_short

# The most wanted first. The heading says that all is per KiB.
TITLES = {"cycles": "cycles", **MISSES}
# Load misses of a model: what the PMUs' events are of.
SIMULATED = {"llc_load_misses": "LLC sim", "l1d_load_misses": "L1D sim"}


def known(rows: Sequence[Row]) -> list[str]:
    """The columns of which some row has a value."""
    return [column for column in TITLES if any(getattr(row, column) is not None for row in rows)]


def cell(rows: Sequence[Row], column: str, per_kib: float) -> str | None:
    """The count of some rows per KiB; of none sampled, what it is below. None: of one row it is not known."""
    counts = [getattr(row, column) for row in rows]
    if not counts or None in counts:
        return None
    if sum(counts):
        return _spelled(column, sum(counts) * per_kib)
    highs = [row.events[column].high for row in rows if column in row.events]
    return "<" + _spelled(column, sum(highs) * per_kib).removeprefix("<") if highs else None


def whole(run: Whole, rows: Sequence[Row], column: str, per_kib: float) -> str | None:
    """What the counters of all processes said per KiB, and the rows on the time of others."""
    counters = [
        next((one.value for name, one in events.items() if event_name(name) in EVENT_COLUMNS[column]), None)
        for events in run.raw.counters.values()
    ]
    counts = [*counters, *(getattr(row, column) for row in rows if row.side == "other")]
    return None if not counters or None in counts else _spelled(column, sum(counts) * per_kib)


def _spelled(column: str, value: float) -> str:
    """Cycles are hundreds, misses a few or less than one."""
    return str(units.format_tenths(value, 0) if column == "cycles" else units.format_hundredths(value))


def simulated(run: Whole, parts: Sequence[Sequence[Row]], rest: int | None) -> list[dict[str, str | None]]:
    """The columns of a model for some parts of the ledger, and last for all; empty where none was asked for.

    `rest`: which part also has the work that was not sampled in this run, and is in the model.
    """
    if run.raw.modelled is None:
        return [{} for _ in (*parts, None)]
    every = [row for row in run.raw.modelled.measurements[0].rows if row.side != "other"]
    keys = [{(row.category, row.side) for row in part} for part in parts]
    if rest is not None:
        taken = {key for number, part in enumerate(keys) if number != rest for key in part}
        keys[rest] = {(row.category, row.side) for row in every} - taken
    found = [[row for row in every if (row.category, row.side) in part] for part in keys]
    return [
        {
            title: units.format_hundredths(sum(getattr(row, f"{name}_per_kib") for row in rows))
            for name, title in SIMULATED.items()
        }
        for rows in [*found, every]
    ]


def notes(run: Whole, rows: Sequence[Row], shown: Sequence[str]) -> list[str]:
    """What the misses that are shown count; where nothing is known, why; what was modelled."""
    model = run.raw.modelled
    said = [_note(run, rows, shown)]
    if model is not None:
        broken = "" if all(one.holds for one in model.measurements[0].checks) else " CHECKS DO NOT HOLD:"
        name, release = model.model.name, model.kernel.release
        said.append(f"sim:{broken} simulated load misses (caches: {name}, Linux {release})")
    return list(filter(None, said))


def _note(run: Whole, rows: Sequence[Row], shown: Sequence[str]) -> str:
    there = known(rows)
    if not there:
        return _why_none(run, rows)
    misses = [column for column in shown if column in MISSES]
    lacking = [title for column, title in MISSES.items() if column not in there]
    said = [in_short(run.raw.machine, misses)] if misses else []
    said += [f"{TITLES[column]} {why}" for column in shown if (why := _partly(run, column))]
    said += [f"{', '.join(lacking)} n/a: -v says why"] if lacking else []
    return "; ".join(said)


def _partly(run: Whole, column: str) -> str | None:
    """On which CPUs an event was sampled, where not on all: cores of another type may not have it."""
    events = (one for one in run.raw.sampler.events if event_name(one.name) in EVENT_COLUMNS[column])
    event = next(events, None)
    return str(event.reason).partition(":")[0] if event and event.status == "partial" else None


def _why_none(run: Whole, rows: Sequence[Row]) -> str:
    if run.raw.machine.pmu == []:
        return f"cycles, cache misses: no PMU here{_instead(run)}"
    reasons = (row.reasons.get("cycles") for row in rows if row.method == "sampled")
    return f"cycles, cache misses n/a: {plain_reason(next(filter(None, reasons), 'not sampled'))}"


def _instead(run: Whole) -> str:
    """What models them, where no model stands beside them; of a watched program or a relay nothing does."""
    if run.raw.target or run.raw.modelled is not None or relays(run.raw.run):
        return ""
    work = run.raw.asked
    size = "" if work.size_bytes == 1 << 16 else f" --size {units.option_size(work.size_bytes)}"
    return f"; modelled: copyscope simulate {work.impl}{size}"
